"""The rows as a user of tilegrad writes them, captured; the networks are those of the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models import nets
from models.inputs import some
from models.library import LEARNING_RATES, STEPS, Library, Made

from examples.models.gpt2 import GPT2, Decoder
from examples.models.resnet import ResNet
from examples.models.vit import ViT
from tilegrad import GlobalCounters, Tensor, jit, nn
from tilegrad.nn.state import get_parameters, load_state_dict

__all__ = ["Tilegrad", "limits"]


def limits() -> dict[str, Any]:
    """What the machine reaches with this process's threads: operations a second by what they are
    made on, and bytes a second by how many are touched.
    """
    # A compiler, which a process that only computes does not load when its kernels are on disk.
    from dots import rates

    from tilegrad.device.calibrate import ceilings

    found = ceilings("CPU")
    return {"flops": {"float32": found.flops, **rates()}, "copies": found.copies}


class Mlp:
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(784, 512), nn.Linear(512, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


class ConvNet:
    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 32, 5)
        self.conv3, self.conv4 = nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3)
        self.norm1, self.norm2 = nn.BatchNorm(32), nn.BatchNorm(64)
        self.head = nn.Linear(576, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv2(self.conv1(x).relu()).relu()).max_pool2d()
        x = self.norm2(self.conv4(self.conv3(x).relu()).relu()).max_pool2d()
        return self.head(x.flatten(1))


class Tilegrad(Library):
    """Captured: the second call of each function, and those that follow, replay its kernels."""

    def __init__(self, threads: int):
        """The threads are those of the process."""

    def _inference(self, function: Callable[..., Any], *given: Any) -> Made:
        tensors = [Tensor(array).realize() for array in given]

        @Tensor.train(False)
        def computed(*tensors: Tensor) -> Any:
            found = function(*tensors)
            if isinstance(found, Tensor):
                return found.realize()
            Tensor.realize(*found)
            return found

        return _made(jit(computed), *tensors)

    def matmul(self, a: Any, b: Any) -> Made:
        return self._inference(lambda a, b: a @ b, a, b)

    def matmul_bfloat16(self, a: Any, b: Any) -> Made:
        halves = [Tensor(each).bfloat16().realize() for each in (a, b)]
        return _made(jit(lambda a, b: (a @ b).realize()), *halves)

    def matmul_int8(self, a: Any, b: Any) -> Made:
        return self._inference(lambda a, b: a.int() @ b.int(), a, b)

    def convolution(self, x: Any, w: Any, stride: int, groups: int, kernel: int) -> Made:
        def function(x: Tensor, w: Tensor) -> Tensor:
            return x.conv2d(w, groups=groups, stride=stride, padding=kernel // 2)

        return self._inference(function, x, w)

    def convolution_backward(
        self, x: Any, w: Any, g: Any, stride: int, groups: int, kernel: int
    ) -> Made:
        def function(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
            out = x.conv2d(w, groups=groups, stride=stride, padding=kernel // 2)
            return out.gradient(x, w, gradient=g)

        return self._inference(function, x, w, g)

    def softmax(self, x: Any) -> Made:
        return self._inference(lambda x: x.softmax(1), x)

    def layernorm(self, x: Any) -> Made:
        return self._inference(lambda x: x.layernorm(), x)

    def gelu(self, x: Any) -> Made:
        return self._inference(lambda x: x.gelu(), x)

    def sum(self, x: Any) -> Made:
        return self._inference(lambda x: x.sum(), x)

    def copy(self, x: Any) -> Made:
        return self._inference(lambda x: x.clone(), x)

    def transpose(self, x: Any) -> Made:
        return self._inference(lambda x: x.T.contiguous(), x)

    def gather(self, x: Any, ids: Any) -> Made:
        return self._inference(lambda x, ids: x[ids], x, ids)

    def cumsum(self, x: Any) -> Made:
        return self._inference(lambda x: x.cumsum(1), x)

    def sort(self, x: Any) -> Made:
        return self._inference(lambda x: x.sort(), x)

    def topk(self, x: Any, k: int) -> Made:
        return self._inference(lambda x: x.topk(k), x)

    def attention(self, *qkv: Any) -> Made:
        return self._inference(lambda q, k, v: q.scaled_dot_product_attention(k, v), *qkv)

    def attention_backward(self, *arrays: Any) -> Made:
        def function(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> list[Tensor]:
            return q.scaled_dot_product_attention(k, v).gradient(q, k, v, gradient=g)

        return self._inference(function, *arrays)

    def chain(self, x: Any, turned: Any, steps: int) -> Made:
        def function(x: Tensor, turned: Tensor) -> Tensor:
            for _ in range(steps):
                x = (x @ turned).contiguous()
            return x

        return self._inference(function, x, turned)

    # networks

    def _training(self, kind: str, model: Any, w: nets.Weights, x: Any, y: Any) -> Made:
        load(model, w)
        parameters, rate = get_parameters(model), LEARNING_RATES[kind]
        optimizer: nn.optim.Optimizer
        if kind == "resnet_step":
            optimizer = nn.optim.SGD(parameters, rate, momentum=0.9)
        elif kind == "transformer_step":
            optimizer = nn.optim.AdamW(parameters, rate, weight_decay=0.01)
        else:
            optimizer = nn.optim.Adam(parameters, rate)

        @jit
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            scores = model(x)
            scores = scores.reshape(-1, scores.shape[-1])
            loss = scores.sparse_categorical_crossentropy(y.flatten()).backward()
            optimizer.step()
            return loss.realize()

        given = Tensor(x).realize(), Tensor(y).realize()

        def run() -> float:
            return float(step(*given).item())

        return Made(run, lambda: [run() for _ in range(STEPS)], lambda: _facts(run))

    def mlp_step(self, x: Any, y: Any) -> Made:
        return self._training("mlp_step", Mlp(), nets.mlp_weights(), x, y)

    def convnet_step(self, x: Any, y: Any) -> Made:
        return self._training("convnet_step", ConvNet(), nets.convnet_weights(), x, y)

    def resnet(self, x: Any) -> Made:
        return self._inference(load(ResNet(18), nets.resnet_weights()), x)

    def resnet_step(self, x: Any, y: Any) -> Made:
        return self._training("resnet_step", ResNet(18), nets.resnet_weights(), x, y)

    def gpt2_decode(
        self, token: Any, caches: Any, config: dict[str, int], at: int, room: int
    ) -> Made:
        decoder = Decoder(_gpt2(config), room=room)
        for mine, given in ((decoder.keys, caches[:, 0]), (decoder.values, caches[:, 1])):
            for tensor, array in zip(mine, given):
                tensor.assign(Tensor(array)).realize()
        return _made(lambda token: decoder.step(token, at), Tensor(token).realize())

    def gpt2_prefill(self, tokens: Any, config: dict[str, int]) -> Made:
        decoder = Decoder(_gpt2(config), room=config["context"])
        return _made(jit(decoder.prefill), Tensor(tokens).realize())

    def vit(self, x: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)
        model = ViT(layers=sizes.layers, heads=sizes.heads, width=sizes.width, classes=sizes.tokens)
        return self._inference(load(model, nets.vit_weights(sizes)), x)

    def transformer_step(self, x: Any, y: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)
        weights = nets.decoder_weights(sizes)
        return self._training("transformer_step", _gpt2(config), weights, x, y)


def load(model: Any, w: nets.Weights) -> Any:
    """The model with these weights; batches are counted by none of the other libraries."""
    unmatched = load_state_dict(model, w, strict=False)
    assert all(name.endswith("num_batches_tracked") for name in unmatched.missing)
    assert not unmatched.unexpected
    return model


def _gpt2(config: dict[str, int]) -> GPT2:
    return load(GPT2(**config), nets.decoder_weights(nets.Transformer(**config)))


def _made(function: Callable[..., Any], *tensors: Tensor) -> Made:
    def run() -> Any:
        return function(*tensors)

    def values() -> list[float]:
        found = run()
        parts = found if isinstance(found, (tuple, list)) else (found,)
        return some(*(part.float().numpy() if "float" in part.dtype.name else part.numpy()
                      for part in parts))  # fmt: skip

    return Made(run, values, lambda: _facts(run))


def _facts(run: Callable[[], Any]) -> dict[str, Any]:
    """Kernels of one call, and the bytes that they touch."""
    GlobalCounters.reset()
    run()
    return {"kernels": GlobalCounters.kernel_count, "bytes": GlobalCounters.global_mem}
