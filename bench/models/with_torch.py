"""The rows as a user of PyTorch writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models import nets
from models.inputs import stride_of
from models.library import LEARNING_RATES, STEPS, Made
from models.networks import Networks
from torch.nn import functional

__all__ = ["Torch"]

Tensor = torch.Tensor


class Ops:
    """The networks' operations; in training the running statistics move."""

    def __init__(self, training: bool = False):
        self.training = training

    def conv(self, x: Tensor, w: Tensor, bias: Any, stride: int = 1, padding: int = 0) -> Tensor:
        return functional.conv2d(x, w, bias, stride, padding)

    def batchnorm(self, x: Tensor, w: nets.Weights, name: str) -> Tensor:
        parts = ("running_mean", "running_var", "weight", "bias")
        return functional.batch_norm(x, *(w[f"{name}.{part}"] for part in parts), self.training)

    relu = staticmethod(functional.relu)
    max_pool = staticmethod(functional.max_pool2d)
    linear = staticmethod(functional.linear)

    def mean_of_pixels(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def flat(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def layernorm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], weight, bias)

    def gelu(self, x: Tensor, approximate: str) -> Tensor:
        return functional.gelu(x, approximate=approximate)

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        return functional.embedding(ids, table)

    def first_rows(self, table: Tensor, count: int) -> Tensor:
        return table[:count]

    def row(self, table: Tensor, at: int) -> Tensor:
        return table[at]

    def heads(self, x: Tensor, count: int) -> Any:
        batch, length, width = x.shape
        parts = x.view(batch, length, 3, count, width // 3 // count)
        return parts.permute(2, 0, 3, 1, 4).unbind(0)

    def joined(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def cached_attention(
        self, q: Tensor, k: Tensor, v: Tensor, caches: Any, layer: int, at: int
    ) -> Tensor:
        keys, values = caches[layer]
        keys[:, :, at : at + 1] = k
        values[:, :, at : at + 1] = v
        return self.attention(q, keys[:, :, : at + 1], values[:, :, : at + 1], False)

    def last_place(self, x: Tensor) -> Tensor:
        return x[:, -1]

    def first_place(self, x: Tensor) -> Tensor:
        return x[:, 0]

    def pixels_last(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)

    def prepended(self, x: Tensor, first: Tensor) -> Tensor:
        return torch.cat([first.expand(x.shape[0], -1, -1), x], 1)


class Torch(Networks):
    """Eager, with images channels last, compiled, or into a given buffer."""

    def __init__(self, threads: int, device: str = "cpu"):
        torch.set_num_threads(threads)
        self.device = device

    def _given(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _chosen(self, function: Any) -> Any:
        """The function, compiled if that is wanted."""
        if not self.engine.endswith("compiled"):
            return function
        torch._dynamo.reset()
        return torch.compile(function)

    def _layout(self, x: Tensor) -> Tensor:
        if self.engine.endswith("last") and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _inference(
        self,
        function: Callable[..., Any],
        *arrays: Any,
        into: Callable[..., Any] | None = None,
        dtype: Any = None,
    ) -> Made:
        """`into(out, *tensors)` writes the result into a buffer, if the engine is that."""
        tensors = [self._layout(self._given(array)) for array in arrays]
        if dtype is not None:
            tensors = [each.to(dtype) for each in tensors]
        if self.engine.endswith("buffer") and into is not None:
            with torch.inference_mode():
                out = function(*tensors)
                out = tuple(map(torch.empty_like, out)) if isinstance(out, tuple) else (
                    torch.empty_like(out, memory_format=torch.contiguous_format)
                )  # fmt: skip

            def run() -> Any:
                with torch.inference_mode():
                    into(out, *tensors)
                return out
        else:
            chosen = self._chosen(function)

            def run() -> Any:
                with torch.inference_mode():
                    return chosen(*tensors)

        return Made(run, lambda: _numbers(run()))

    def matmul(self, a: Any, b: Any) -> Made:
        return self._inference(torch.mm, a, b, into=lambda out, a, b: torch.mm(a, b, out=out))

    def matmul_bfloat16(self, a: Any, b: Any) -> Made:
        into = lambda out, a, b: torch.mm(a, b, out=out)  # noqa: E731
        return self._inference(torch.mm, a, b, into=into, dtype=torch.bfloat16)

    def matmul_int8(self, a: Any, b: Any) -> Made:
        return self._inference(torch._int_mm, a, b)

    def convolution(self, x: Any, w: Any, stride: int, groups: int, kernel: int) -> Made:
        def function(x: Tensor, w: Tensor) -> Tensor:
            return functional.conv2d(x, w, None, stride, kernel // 2, 1, groups)

        return self._inference(function, x, w)

    def convolution_backward(
        self, x: Any, w: Any, g: Any, stride: int, groups: int, kernel: int
    ) -> Made:
        tensors = [self._layout(self._given(array)) for array in (x, w)]
        for each in tensors:
            each.requires_grad_()
        given = self._layout(self._given(g))
        out = functional.conv2d(*tensors, None, stride, kernel // 2, 1, groups)

        def run() -> Any:
            return torch.autograd.grad(out, tensors, given, retain_graph=True)

        return Made(run, lambda: _numbers(run()))

    def softmax(self, x: Any) -> Made:
        into = lambda out, x: torch.softmax(x, 1, out=out)  # noqa: E731
        return self._inference(lambda x: x.softmax(1), x, into=into)

    def layernorm(self, x: Any) -> Made:
        size = x.shape[1:]
        few = torch.empty(len(x), 1), torch.empty(len(x), 1)

        def into(out: Tensor, x: Tensor) -> None:
            out0 = {"out0": out, "out1": few[0], "out2": few[1]}
            torch.ops.aten.native_layer_norm.out(x, size, None, None, 1e-5, **out0)

        return self._inference(lambda x: functional.layer_norm(x, size), x, into=into)

    def gelu(self, x: Any) -> Made:
        into = lambda out, x: torch.ops.aten.gelu.out(x, out=out)  # noqa: E731
        return self._inference(functional.gelu, x, into=into)

    def sum(self, x: Any) -> Made:
        return self._inference(torch.sum, x)

    def copy(self, x: Any) -> Made:
        return self._inference(torch.clone, x, into=lambda out, x: out.copy_(x))

    def transpose(self, x: Any) -> Made:
        return self._inference(lambda x: x.T.contiguous(), x, into=lambda out, x: out.copy_(x.T))

    def gather(self, x: Any, ids: Any) -> Made:
        into = lambda out, x, ids: torch.index_select(x, 0, ids, out=out)  # noqa: E731
        return self._inference(lambda x, ids: torch.index_select(x, 0, ids), x, ids, into=into)

    def cumsum(self, x: Any) -> Made:
        into = lambda out, x: torch.cumsum(x, 1, out=out)  # noqa: E731
        return self._inference(lambda x: x.cumsum(1), x, into=into)

    def sort(self, x: Any) -> Made:
        into = lambda out, x: torch.sort(x, out=out)  # noqa: E731
        return self._inference(lambda x: tuple(torch.sort(x)), x, into=into)

    def topk(self, x: Any, k: int) -> Made:
        into = lambda out, x: torch.topk(x, k, out=out)  # noqa: E731
        return self._inference(lambda x: tuple(torch.topk(x, k)), x, into=into)

    def attention(self, *qkv: Any) -> Made:
        return self._inference(functional.scaled_dot_product_attention, *qkv)

    def attention_backward(self, *arrays: Any) -> Made:
        *qkv, given = [self._given(array) for array in arrays]
        for each in qkv:
            each.requires_grad_()
        chosen = self._chosen(functional.scaled_dot_product_attention)

        def run() -> Any:
            return torch.autograd.grad(chosen(*qkv), qkv, given)

        return Made(run, lambda: _numbers(run()))

    # networks

    def _weights(self, w: nets.Weights) -> nets.Weights:
        return {name: self._layout(self._given(value)) for name, value in w.items()}

    def _training(
        self, kind: str, w: nets.Weights, forward: Callable[..., Tensor], x: Any, y: Any
    ) -> Made:
        """A step whose loss is the cross-entropy of `forward(ops, weights, x)`."""
        weights, ops = self._weights(w), Ops(training=True)
        trained = [value for name, value in weights.items() if "running" not in name]
        for each in trained:
            each.requires_grad_()
        rate = LEARNING_RATES[kind]
        fused = {"fused": True} if self.engine.endswith("compiled") else {}
        optimizer: torch.optim.Optimizer
        if kind == "resnet_step":
            optimizer = torch.optim.SGD(trained, rate, momentum=0.9, **fused)
        elif kind == "transformer_step":
            optimizer = torch.optim.AdamW(trained, rate, weight_decay=0.01, **fused)
        else:
            optimizer = torch.optim.Adam(trained, rate, **fused)
        images, labels = self._layout(self._given(x)), self._given(y).long().flatten()

        def loss_of(x: Tensor) -> Tensor:
            scores = forward(ops, weights, x)
            return functional.cross_entropy(scores.flatten(0, -2), labels)

        chosen = self._chosen(loss_of)

        def step() -> float:
            optimizer.zero_grad()
            loss = chosen(images)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        return Made(step, lambda: [step() for _ in range(STEPS)])

    def _network(self, w: nets.Weights, forward: Callable[..., Tensor], *arrays: Any) -> Made:
        weights, ops = self._weights(w), Ops()
        return self._inference(lambda *given: forward(ops, weights, *given), *arrays)

    def gpt2_decode(self, token: Any, caches: Any, config: dict[str, int], at: int) -> Made:
        sizes = nets.Transformer(**config)

        def forward(ops: Ops, w: nets.Weights, token: Tensor, caches: Tensor) -> Tensor:
            return nets.decoder(ops, w, sizes, token, at=at, caches=caches, last_only=True)

        return self._network(nets.decoder_weights(sizes), forward, token, caches)

    def chain(self, x: Any, turned: Any, steps: int, size: int) -> Made:
        def function(x: Tensor, turned: Tensor) -> Tensor:
            for _ in range(steps):
                x = x @ turned
            return x

        return self._inference(function, x, turned)


def _numbers(found: Any) -> Any:
    """Of one result, or of several one after the other."""
    parts = found if isinstance(found, (tuple, list)) else [found]
    flat = [part.detach().reshape(-1) for part in parts]
    return [value for each in flat for value in each[:: stride_of(len(each))].double().tolist()]
