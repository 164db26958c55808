"""The rows as a user of tinygrad writes them, captured; on the CPU, with clang."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
from models import nets
from models.inputs import some
from models.library import LEARNING_RATES, STEPS, Made
from models.networks import Networks

os.environ["DEV"] = "CPU"
if shutil.which("clang") is None:
    # The newest that has its number in its name.
    _found = [f"clang-{number}" for number in range(14, 30) if shutil.which(f"clang-{number}")]
    os.environ.setdefault("CC", (_found or ["clang"])[-1])

from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn

__all__ = ["Tinygrad"]


class Ops:
    """The networks' operations; in training the running statistics move."""

    def __init__(self) -> None:
        self._norms: dict[str, Any] = {}

    def conv(self, x: Tensor, w: Tensor, bias: Any, stride: int = 1, padding: int = 0) -> Tensor:
        return x.conv2d(w, bias, stride=stride, padding=padding)

    def batchnorm(self, x: Tensor, w: nets.Weights, name: str) -> Tensor:
        norm = self._norms.get(name)
        if norm is None:
            norm = self._norms[name] = nn.BatchNorm(x.shape[1])
            for part in ("weight", "bias", "running_mean", "running_var"):
                setattr(norm, part, w[f"{name}.{part}"])
        return norm(x)

    def relu(self, x: Tensor) -> Tensor:
        return x.relu()

    def max_pool(self, x: Tensor, size: int, stride: int, padding: int) -> Tensor:
        return x.max_pool2d(size, stride, padding=padding)

    def mean_of_pixels(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def flat(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def linear(self, x: Tensor, w: Tensor, bias: Any) -> Tensor:
        return x.linear(w.T, bias)

    def layernorm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return x.layernorm() * weight + bias

    def gelu(self, x: Tensor, approximate: str) -> Tensor:
        return x.gelu() if approximate == "tanh" else _gelu(x)

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        return table[ids]

    def first_rows(self, table: Tensor, count: int) -> Tensor:
        return table[:count]

    def row(self, table: Tensor, at: Any) -> Tensor:
        return table[at : at + 1]

    def heads(self, x: Tensor, count: int) -> Any:
        batch, length, width = x.shape
        parts = x.reshape(batch, length, 3, count, width // 3 // count)
        return [parts[:, :, number].transpose(1, 2) for number in range(3)]

    def joined(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        return q.scaled_dot_product_attention(k, v, is_causal=is_causal)

    def cached_attention(
        self, q: Tensor, k: Tensor, v: Tensor, caches: Any, layer: int, at: Any
    ) -> Tensor:
        cache = caches[layer]
        cache[:, :, :, at : at + 1].assign(Tensor.stack(k, v)).realize()
        keys, values = (cache[part, :, :, : at + 1] for part in (0, 1))
        return self.attention(q, keys, values, False)

    def last_place(self, x: Tensor) -> Tensor:
        return x[:, -1]

    def first_place(self, x: Tensor) -> Tensor:
        return x[:, 0]

    def pixels_last(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)

    def prepended(self, x: Tensor, first: Tensor) -> Tensor:
        return first.expand(x.shape[0], 1, x.shape[2]).cat(x, dim=1)


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + (x * 0.5**0.5).erf())


class Tinygrad(Networks):
    def __init__(self, threads: int):
        """The threads are those of the process."""

    def _inference(self, function: Callable[..., Any], *given: Any) -> Made:
        tensors = [each if isinstance(each, Tensor) else Tensor(each) for each in given]
        Tensor.realize(*tensors)

        @TinyJit
        def captured(*tensors: Tensor) -> Any:
            found = function(*tensors)
            if isinstance(found, Tensor):
                return found.realize()
            Tensor.realize(*found)
            return found

        def run() -> Any:
            found = captured(*tensors)
            _wait()
            return found

        return _made(run)

    def matmul(self, a: Any, b: Any) -> Made:
        return self._inference(lambda a, b: a @ b, a, b)

    def matmul_bfloat16(self, a: Any, b: Any) -> Made:
        return self._inference(lambda a, b: a @ b, *(Tensor(each).bfloat16() for each in (a, b)))

    def matmul_int8(self, a: Any, b: Any) -> Made:
        return self._inference(lambda a, b: a.int() @ b.int(), a, b)

    def convolution(self, x: Any, w: Any, stride: int, groups: int, kernel: int) -> Made:
        def function(x: Tensor, w: Tensor) -> Tensor:
            return x.conv2d(w, groups=groups, stride=stride, padding=kernel // 2)

        return self._inference(function, x, w)

    def convolution_backward(
        self, x: Any, w: Any, g: Any, stride: int, groups: int, kernel: int
    ) -> Made:
        def function(x: Tensor, w: Tensor, g: Tensor) -> Any:
            out = x.conv2d(w, groups=groups, stride=stride, padding=kernel // 2)
            return out.gradient(x, w, gradient=g)

        return self._inference(function, x, w, g)

    def softmax(self, x: Any) -> Made:
        return self._inference(lambda x: x.softmax(1), x)

    def layernorm(self, x: Any) -> Made:
        return self._inference(lambda x: x.layernorm(), x)

    def gelu(self, x: Any) -> Made:
        return self._inference(_gelu, x)

    def sum(self, x: Any) -> Made:
        return self._inference(lambda x: x.sum(), x)

    def copy(self, x: Any) -> Made:
        return self._inference(lambda x: x + 0, x)

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
        def function(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Any:
            return q.scaled_dot_product_attention(k, v).gradient(q, k, v, gradient=g)

        return self._inference(function, *arrays)

    def chain(self, x: Any, turned: Any, steps: int) -> Made:
        def function(x: Tensor, turned: Tensor) -> Tensor:
            for _ in range(steps):
                x = (x @ turned).contiguous()
            return x

        return self._inference(function, x, turned)

    # networks

    def _network(self, w: nets.Weights, forward: Callable[..., Tensor], *arrays: Any) -> Made:
        weights, ops = _weights(w), Ops()
        return self._inference(lambda *given: forward(ops, weights, *given), *arrays)

    def _training(
        self, kind: str, w: nets.Weights, forward: Callable[..., Tensor], x: Any, y: Any
    ) -> Made:
        weights, ops, rate = _weights(w), Ops(), LEARNING_RATES[kind]
        trained = [value for name, value in weights.items() if "running" not in name]
        if kind == "resnet_step":
            optimizer = nn.optim.SGD(trained, rate, momentum=0.9)
        elif kind == "transformer_step":
            optimizer = nn.optim.AdamW(trained, rate, weight_decay=0.01)
        else:
            optimizer = nn.optim.Adam(trained, rate)
        given = Tensor(x).realize(), Tensor(y).flatten().realize()

        @TinyJit
        def step(x: Tensor, y: Tensor) -> Tensor:
            with Context(TRAINING=1):
                optimizer.zero_grad()
                scores = forward(ops, weights, x)
                loss = scores.reshape(-1, scores.shape[-1]).sparse_categorical_crossentropy(y)
                loss.backward()
                return loss.realize(*optimizer.schedule_step())

        def run() -> float:
            return float(step(*given).item())

        return Made(run, lambda: [run() for _ in range(STEPS)], lambda: _facts(run))

    def gpt2_decode(
        self, token: Any, caches: Any, config: dict[str, int], at: int, room: int
    ) -> Made:
        sizes = nets.Transformer(**config)
        weights, ops = _weights(nets.decoder_weights(sizes)), Ops()
        kept = [Tensor(layer).realize() for layer in caches]
        given, place = Tensor(token).realize(), Variable("place", 1, room - 1)

        @TinyJit
        def step(token: Tensor, at: Any) -> Tensor:
            return nets.decoder(
                ops, weights, sizes, token, at=at, caches=kept, last_only=True
            ).realize()

        def run() -> Tensor:
            found = step(given, place.bind(at))
            _wait()
            return found

        return _made(run)


def _weights(w: nets.Weights) -> nets.Weights:
    return {name: Tensor(np.ascontiguousarray(value)).realize() for name, value in w.items()}


def _wait() -> None:
    Device[Device.DEFAULT].synchronize()


def _made(run: Callable[[], Any]) -> Made:
    def values() -> list[float]:
        found = run()
        parts = found if isinstance(found, (tuple, list)) else (found,)
        return some(*(part.float().numpy() if part.dtype == dtypes.bfloat16 else part.numpy()
                      for part in parts))  # fmt: skip

    return Made(run, values, lambda: _facts(run))


def _facts(run: Callable[[], Any]) -> dict[str, Any]:
    GlobalCounters.reset()
    run()
    return {"kernels": GlobalCounters.kernel_count, "bytes": int(GlobalCounters.global_mem)}
