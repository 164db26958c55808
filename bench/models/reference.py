"""What the rows' results are: NumPy in float64, and networks with their gradients.

`Value` is an array that remembers how it was made, so that `backward` can go back along it: a few
operations, each with its derivative. While a network runs, the operations of its products are
counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from models import nets
from models.inputs import some
from models.library import LEARNING_RATES, STEPS, call

__all__ = ["Reference", "Result", "Value"]

Array = Any


@dataclass(frozen=True)
class Result:
    """Numbers to compare with, and the operations of a network's products, 0 where not counted."""

    values: list[float]
    flops: float = 0


class Value:
    """An array, its sources, and a function from its gradient to theirs."""

    def __init__(
        self, data: Array, sources: Sequence[Value] = (), back: Callable[..., Any] | None = None
    ):
        self.data, self.sources, self.back = data, sources, back
        self.grad: Array = None
        self.wanted = any(source.wanted for source in sources)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.data.shape
        return shape

    def __add__(self, other: Value) -> Value:
        return Value(
            self.data + other.data,
            (self, other),
            lambda g: (_shrunk(g, self.shape), _shrunk(g, other.shape)),
        )

    def backward(self) -> None:
        """Gradients of this value's sum, in `grad` of all values it was made of."""
        order: list[Value] = []
        seen: set[int] = set()
        stack = [(self, False)]
        while stack:
            value, is_done = stack.pop()
            if is_done:
                order.append(value)
            elif id(value) not in seen and value.wanted:
                seen.add(id(value))
                stack.append((value, True))
                stack.extend((source, False) for source in value.sources)
        self.grad = np.ones_like(self.data)
        for value in reversed(order):
            if value.back is None:
                continue
            for source, gradient in zip(value.sources, value.back(value.grad)):
                if source.wanted:
                    source.grad = gradient if source.grad is None else source.grad + gradient


def _shrunk(g: Array, shape: tuple[int, ...]) -> Array:
    """Summed over what was broadcast."""
    g = g.sum(tuple(range(g.ndim - len(shape))))
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 != g.shape[axis])
    return g.sum(axes, keepdims=True) if axes else g


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes="d")(x)


class Ops:
    """The networks' operations.

    Attributes:
        flops: of convolutions and matrix products so far, backward ones included as they would be
            made.
    """

    def __init__(self, training: bool = False):
        self.training, self.flops = training, 0.0

    def _count(self, flops: float, *sources: Value) -> None:
        self.flops += flops * (1 + sum(source.wanted for source in sources))

    def conv(
        self, x: Value, w: Value, bias: Value | None, stride: int = 1, padding: int = 0
    ) -> Value:
        out, back = convolution(x.data, w.data, stride, padding, 1)
        self._count(2.0 * out.size * w.data[0].size, x, w)
        found = Value(out, (x, w), lambda g: back(g, need_x=x.wanted))
        return found if bias is None else found + self._seen(bias, (1, -1, 1, 1))

    def _seen(self, x: Value, shape: tuple[int, ...]) -> Value:
        return Value(x.data.reshape(shape), (x,), lambda g: (g.reshape(x.shape),))

    def batchnorm(self, x: Value, w: nets.Weights, name: str) -> Value:
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        weight, bias = (
            self._seen(w[f"{name}.{part}"], (1, -1, 1, 1)) for part in ("weight", "bias")
        )
        if not self.training:
            scale = 1 / np.sqrt(var.data + 1e-5)
            centred = x.data - mean.data[:, None, None]
            return _scaled(Value(centred * scale[:, None, None]), weight) + bias
        return _scaled(_normalized(x, (0, 2, 3)), weight) + bias

    def relu(self, x: Value) -> Value:
        return Value(np.maximum(x.data, 0), (x,), lambda g: (g * (x.data > 0),))

    def max_pool(self, x: Value, size: int, stride: int, padding: int) -> Value:
        edge = (padding, padding)
        padded = np.pad(x.data, ((0, 0), (0, 0), edge, edge), constant_values=-np.inf)
        views = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
        views = views[:, :, ::stride, ::stride].reshape(*x.shape[:2], -1, size * size)
        rows = (padded.shape[2] - size) // stride + 1
        columns = (padded.shape[3] - size) // stride + 1
        best = views.argmax(-1)
        out = np.take_along_axis(views, best[..., None], -1)[..., 0]

        def back(g: Array) -> Any:
            found = np.zeros_like(padded)
            i, j = np.divmod(np.arange(rows * columns), columns)
            n, c = np.indices(best.shape)[:2]
            np.add.at(
                found,
                (n, c, i * stride + best // size, j * stride + best % size),
                g.reshape(best.shape),
            )
            inner = slice(padding, -padding or None)
            return (found[:, :, inner, inner],)

        return Value(out.reshape(*x.shape[:2], rows, columns), (x,), back)

    def mean_of_pixels(self, x: Value) -> Value:
        size = x.shape[2] * x.shape[3]
        return Value(
            x.data.mean((2, 3)),
            (x,),
            lambda g: (np.broadcast_to(g[:, :, None, None] / size, x.shape),),
        )

    def flat(self, x: Value) -> Value:
        return self._seen(x, (x.shape[0], -1))

    def linear(self, x: Value, w: Value, bias: Value | None) -> Value:
        self._count(2.0 * x.data.size * len(w.data), x, w)

        def back(g: Array) -> Any:
            flat = g.reshape(-1, g.shape[-1])
            return g @ w.data, flat.T @ x.data.reshape(-1, x.shape[-1])

        found = Value(x.data @ w.data.T, (x, w), back)
        return found if bias is None else found + bias

    def layernorm(self, x: Value, weight: Value, bias: Value) -> Value:
        return _scaled(_normalized(x, (-1,)), weight) + bias

    def gelu(self, x: Value, approximate: str) -> Value:
        data = x.data
        if approximate == "tanh":
            by = math.sqrt(2 / math.pi)
            t = np.tanh(by * (data + 0.044715 * data**3))
            share, slope = 0.5 * (1 + t), 0.5 * (1 - t**2) * by * (1 + 3 * 0.044715 * data**2)
        else:
            share = 0.5 * (1 + _erf(data / math.sqrt(2)))
            slope = np.exp(-(data**2) / 2) / math.sqrt(2 * math.pi)
        return Value(data * share, (x,), lambda g: (g * (share + data * slope),))

    def rows(self, table: Value, ids: Array) -> Value:
        def back(g: Array) -> Any:
            found = np.zeros_like(table.data)
            np.add.at(found, ids, g)
            return (found,)

        return Value(table.data[ids], (table,), back)

    def first_rows(self, table: Value, count: int) -> Value:
        return self.rows(table, np.arange(count))

    def row(self, table: Value, at: int) -> Value:
        return self.rows(table, np.array([at]))

    def heads(self, x: Value, count: int) -> list[Value]:
        batch, length, width = x.shape
        shape = batch, length, 3, count, width // 3 // count
        parts = x.data.reshape(shape).transpose(2, 0, 3, 1, 4)

        def part(number: int) -> Value:
            def back(g: Array) -> Any:
                found = np.zeros(shape)
                found[:, :, number] = g.transpose(0, 2, 1, 3)
                return (found.reshape(x.shape),)

            return Value(parts[number], (x,), back)

        return [part(number) for number in range(3)]

    def joined(self, x: Value) -> Value:
        batch, heads, length, width = x.shape
        return Value(
            x.data.transpose(0, 2, 1, 3).reshape(batch, length, heads * width),
            (x,),
            lambda g: (g.reshape(batch, length, heads, width).transpose(0, 2, 1, 3),),
        )

    def attention(self, q: Value, k: Value, v: Value, is_causal: bool) -> Value:
        by = 1 / math.sqrt(q.shape[-1])
        scores = q.data @ k.data.swapaxes(-1, -2) * by
        if is_causal:
            rows, columns = scores.shape[-2:]
            scores = np.where(np.tri(rows, columns, dtype=bool), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        product = 2.0 * scores.size * q.shape[-1]
        self._count(product, q, k)
        self._count(product, v, v)

        def back(g: Array) -> Any:
            dp = g @ v.data.swapaxes(-1, -2)
            ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * by
            return ds @ k.data, ds.swapaxes(-1, -2) @ q.data, p.swapaxes(-1, -2) @ g

        return Value(p @ v.data, (q, k, v), back)

    def cached_attention(
        self, q: Value, k: Value, v: Value, caches: Value, layer: int, at: int
    ) -> Value:
        keys, values = (Value(caches.data[layer, part, :, :, : at + 1]) for part in (0, 1))
        keys.data[:, :, at], values.data[:, :, at] = k.data[:, :, 0], v.data[:, :, 0]
        return self.attention(q, keys, values, False)

    def last_place(self, x: Value) -> Value:
        return Value(x.data[:, -1])

    def first_place(self, x: Value) -> Value:
        return Value(x.data[:, 0])

    def pixels_last(self, x: Value) -> Value:
        return Value(x.data.reshape(*x.shape[:2], -1).transpose(0, 2, 1))

    def prepended(self, x: Value, first: Value) -> Value:
        shape = (x.shape[0], *first.shape[1:])
        return Value(np.concatenate([np.broadcast_to(first.data, shape), x.data], 1))

    def cross_entropy(self, scores: Value, labels: Array) -> Value:
        flat = scores.data.reshape(-1, scores.shape[-1])
        labels = labels.reshape(-1)
        e = np.exp(flat - flat.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        rows = np.arange(len(flat))

        def back(g: Array) -> Any:
            found = p.copy()
            found[rows, labels] -= 1
            return ((g * found / len(flat)).reshape(scores.shape),)

        return Value(-np.log(p[rows, labels]).mean(), (scores,), back)


def _scaled(x: Value, by: Value) -> Value:
    return Value(
        x.data * by.data,
        (x, by),
        lambda g: (_shrunk(g * by.data, x.shape), _shrunk(g * x.data, by.shape)),
    )


def _normalized(x: Value, axes: tuple[int, ...]) -> Value:
    centred = x.data - x.data.mean(axes, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)
    n = centred * scale

    def back(g: Array) -> Any:
        mean = g.mean(axes, keepdims=True)
        return (scale * (g - mean - n * (g * n).mean(axes, keepdims=True)),)

    return Value(n, (x,), back)


def convolution(
    x: Array, w: Array, stride: int, padding: int, groups: int
) -> tuple[Array, Callable[..., Any]]:
    """The result, and a function from its gradient to those of `x` and `w`."""
    edge = (padding, padding)
    padded = np.pad(x, ((0, 0), (0, 0), edge, edge))
    batch = len(x)
    to, few, rows, columns = w.shape
    out_rows = (padded.shape[2] - rows) // stride + 1
    out_columns = (padded.shape[3] - columns) // stride + 1
    split = padded.reshape(batch, groups, few, *padded.shape[2:])
    kernels = w.reshape(groups, to // groups, few, rows, columns)

    def part(array: Array, i: int, j: int) -> Array:
        end_i, end_j = i + stride * (out_rows - 1) + 1, j + stride * (out_columns - 1) + 1
        return array[..., i:end_i:stride, j:end_j:stride]

    pixels = out_rows * out_columns
    out = np.zeros((batch, groups, to // groups, pixels))
    places = [(i, j) for i in range(rows) for j in range(columns)]
    for i, j in places:
        out += kernels[..., i, j] @ part(split, i, j).reshape(batch, groups, few, pixels)

    def back(g: Array, need_x: bool = True) -> tuple[Array, Array]:
        g = g.reshape(batch, groups, to // groups, pixels)
        dw, dx = np.zeros_like(kernels), np.zeros_like(split)
        for i, j in places:
            seen = part(split, i, j).reshape(batch, groups, few, pixels)
            dw[..., i, j] = (g @ seen.swapaxes(-1, -2)).sum(0)
            if need_x:
                moved = kernels[..., i, j].swapaxes(-1, -2) @ g
                part(dx, i, j)[...] += moved.reshape(batch, groups, few, out_rows, out_columns)
        dx = dx.reshape(padded.shape)
        inner = slice(padding, -padding or None)
        return dx[:, :, inner, inner], dw.reshape(w.shape)

    return out.reshape(batch, to, out_rows, out_columns), back


class Reference:
    """The rows' results, by their kinds."""

    def make(self, kind: str, arrays: tuple[Any, ...], sizes: dict[str, Any]) -> Result:
        found = call(getattr(self, kind), arrays, sizes)
        return found if isinstance(found, Result) else Result(found)

    def matmul(self, a: Array, b: Array) -> list[float]:
        return some(a.astype("d") @ b.astype("d"))

    matmul_bfloat16 = matmul_int8 = matmul

    def convolution(self, x: Array, w: Array, stride: int, groups: int, kernel: int) -> list[float]:
        return some(convolution(x.astype("d"), w.astype("d"), stride, kernel // 2, groups)[0])

    def convolution_backward(
        self, x: Array, w: Array, g: Array, stride: int, groups: int, kernel: int
    ) -> list[float]:
        back = convolution(x.astype("d"), w.astype("d"), stride, kernel // 2, groups)[1]
        return some(*back(g.astype("d")))

    def softmax(self, x: Array) -> list[float]:
        e = np.exp(x.astype("d"))
        return some(e / e.sum(1, keepdims=True))

    def layernorm(self, x: Array) -> list[float]:
        return some(_normalized(Value(x.astype("d")), (1,)).data)

    def gelu(self, x: Array) -> list[float]:
        return some(Ops().gelu(Value(np.array(some(x))), "none").data)

    def sum(self, x: Array) -> list[float]:
        return some(x.sum(dtype="d"))

    def copy(self, x: Array) -> list[float]:
        return some(x)

    def transpose(self, x: Array) -> list[float]:
        return some(np.ascontiguousarray(x.T))

    def gather(self, x: Array, ids: Array) -> list[float]:
        return some(x[ids])

    def cumsum(self, x: Array) -> list[float]:
        return some(x.cumsum(1, dtype="d"))

    def sort(self, x: Array) -> list[float]:
        order = x.argsort()
        return some(x[order], order)

    def topk(self, x: Array, k: int) -> list[float]:
        order = x.argsort()[::-1][:k]
        return some(x[order], order)

    def attention(self, *qkv: Array) -> list[float]:
        return some(Ops().attention(*(Value(each.astype("d")) for each in qkv), False).data)

    def attention_backward(self, *arrays: Array) -> list[float]:
        *qkv, g = (each.astype("d") for each in arrays)
        out = Ops().attention(*map(Value, qkv), False)
        assert out.back is not None
        return some(*out.back(g))

    # networks

    def _values(self, w: nets.Weights, *, trained: bool) -> nets.Weights:
        found = {name: Value(value.astype("d")) for name, value in w.items()}
        for name, value in found.items():
            value.wanted = trained and "running" not in name
        return found

    def _network(self, w: nets.Weights, forward: Callable[..., Value]) -> Result:
        ops = Ops()
        out = forward(ops, self._values(w, trained=False))
        return Result(some(out.data), ops.flops)

    def _training(
        self, kind: str, w: nets.Weights, forward: Callable[..., Value], labels: Array
    ) -> Result:
        weights, rate = self._values(w, trained=True), LEARNING_RATES[kind]
        trained = [value for value in weights.values() if value.wanted]
        first = [np.zeros_like(value.data) for value in trained]
        second = [np.zeros_like(value.data) for value in trained]
        losses, flops = [], 0.0
        for step in range(1, STEPS + 1):
            for value in trained:
                value.grad = None
            ops = Ops(training=True)
            loss = ops.cross_entropy(forward(ops, weights), labels)
            loss.backward()
            losses.append(float(loss.data))
            flops = ops.flops
            for value, m, v in zip(trained, first, second):
                if kind == "resnet_step":
                    m *= 0.9
                    m += value.grad
                    value.data = value.data - rate * m
                    continue
                if kind == "transformer_step":
                    value.data = value.data * (1 - rate * 0.01)
                m += 0.1 * (value.grad - m)
                v += 0.001 * (value.grad**2 - v)
                mean, square = m / (1 - 0.9**step), v / (1 - 0.999**step)
                value.data = value.data - rate * mean / (np.sqrt(square) + 1e-8)
        return Result(losses, flops)

    def mlp_step(self, x: Array, y: Array) -> Result:
        given = Value(x.astype("d"))
        forward = lambda ops, w: nets.mlp(ops, w, given)  # noqa: E731
        return self._training("mlp_step", nets.mlp_weights(), forward, y)

    def convnet_step(self, x: Array, y: Array) -> Result:
        given = Value(x.astype("d"))
        forward = lambda ops, w: nets.convnet(ops, w, given)  # noqa: E731
        return self._training("convnet_step", nets.convnet_weights(), forward, y)

    def resnet(self, x: Array) -> Result:
        given = Value(x.astype("d"))
        return self._network(nets.resnet_weights(), lambda ops, w: nets.resnet(ops, w, given))

    def resnet_step(self, x: Array, y: Array) -> Result:
        given = Value(x.astype("d"))
        forward = lambda ops, w: nets.resnet(ops, w, given)  # noqa: E731
        return self._training("resnet_step", nets.resnet_weights(), forward, y)

    def gpt2_decode(self, token: Array, caches: Array, config: dict[str, int], at: int) -> Result:
        sizes, kept = nets.Transformer(**config), Value(caches.astype("d"))

        def forward(ops: Ops, w: nets.Weights) -> Value:
            return nets.decoder(ops, w, sizes, token, at=at, caches=kept, last_only=True)

        return self._network(nets.decoder_weights(sizes), forward)

    def gpt2_prefill(self, tokens: Array, config: dict[str, int]) -> Result:
        sizes = nets.Transformer(**config)
        forward = lambda ops, w: nets.decoder(ops, w, sizes, tokens, last_only=True)  # noqa: E731
        return self._network(nets.decoder_weights(sizes), forward)

    def vit(self, x: Array, config: dict[str, int]) -> Result:
        sizes, given = nets.Transformer(**config), Value(x.astype("d"))
        forward = lambda ops, w: nets.vit(ops, w, sizes, given)  # noqa: E731
        return self._network(nets.vit_weights(sizes), forward)

    def transformer_step(self, x: Array, y: Array, config: dict[str, int]) -> Result:
        sizes = nets.Transformer(**config)
        forward = lambda ops, w: nets.decoder(ops, w, sizes, x)  # noqa: E731
        return self._training("transformer_step", nets.decoder_weights(sizes), forward, y)

    def chain(self, x: Array, turned: Array, steps: int, size: int) -> list[float]:
        found = x.astype("d")
        for _ in range(steps):
            found = found @ turned.astype("d")
        return some(found)
