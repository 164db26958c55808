"""What every library is given: arrays that a seed makes, by the kind of the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["inputs", "some", "stride_of"]

Arrays = tuple[Any, ...]


def stride_of(size: int) -> int:
    """From one compared value to the next: about a thousand are, from everywhere. An odd stride
    meets every column of a matrix whose width is a power of two.
    """
    return max(size // 1000, 1) | 1


def some(*arrays: Any) -> list[float]:
    """The values that are compared."""
    flat = [np.asarray(array).reshape(-1) for array in arrays]
    return [value for each in flat for value in each[:: stride_of(each.size)].astype("d").tolist()]


def inputs(kind: str, sizes: Mapping[str, Any]) -> Arrays:
    """The arrays of a row."""
    return _MADE[kind](**sizes)


def _normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _half(array: Any) -> Any:
    """Rounded to what bfloat16 holds too."""
    return (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _matmul(m: int, k: int, n: int) -> Arrays:
    return _normal(m, k), _normal(k, n, seed=1)


def _matmul_bfloat16(m: int, k: int, n: int) -> Arrays:
    a, b = _matmul(m, k, n)
    return _half(a), _half(b)


def _matmul_int8(m: int, k: int, n: int) -> Arrays:
    numbers = np.random.default_rng(0)
    a, b = (numbers.integers(-128, 128, shape, np.int8) for shape in ((m, k), (k, n)))
    # The extremes meet.
    a[0], b[:, 0] = -128, -128
    a[1], b[:, 1] = 127, -128
    return a, b


def _convolution(
    batch: int, channels: int, to: int, side: int, kernel: int, stride: int, groups: int
) -> Arrays:
    x = _normal(batch, channels, side, side)
    return x, _normal(to, channels // groups, kernel, kernel, seed=1)


def _convolution_backward(**sizes: int) -> Arrays:
    x, w = _convolution(**sizes)
    out = (sizes["side"] - 1) // sizes["stride"] + 1
    return x, w, _normal(sizes["batch"], sizes["to"], out, out, seed=2)


def _matrix(rows: int, columns: int) -> Arrays:
    return (_normal(rows, columns),)


def _vector(size: int) -> Arrays:
    return (_normal(size),)


def _shuffled(size: int, k: int = 0) -> Arrays:
    """Distinct numbers, so that there is one order."""
    return (np.random.default_rng(0).permutation(size).astype(np.float32),)


def _gather(rows: int, columns: int, count: int) -> Arrays:
    chosen = np.random.default_rng(1).integers(0, rows, count, np.int32)
    return _normal(rows, columns), chosen


def _attention(heads: int, length: int, width: int) -> Arrays:
    return tuple(_normal(1, heads, length, width, seed=seed) for seed in range(3))


def _attention_backward(heads: int, length: int, width: int) -> Arrays:
    given = _attention(heads, length, width)
    return *given, _normal(1, heads, length, width, seed=3)


def _labelled(x: Any, classes: int) -> Arrays:
    return x, np.random.default_rng(1).integers(0, classes, len(x), np.int32)


def _pictures(batch: int, side: int) -> Any:
    return _normal(batch, 3, side, side)


def _words(config: Mapping[str, int], *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, config["tokens"], shape, np.int32)


def _decode(config: Mapping[str, int], at: int, room: int) -> Arrays:
    """A token, and keys and values of all places before it, by layer."""
    heads = config["heads"]
    shape = config["layers"], 2, 1, heads, room, config["width"] // heads
    caches = _normal(*shape, seed=1)
    caches[..., at:, :] = 0
    return _words(config, 1, 1), caches


def _transformer_step(config: Mapping[str, int], batch: int) -> Arrays:
    words = _words(config, batch, config["context"] + 1)
    return np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, 1:])


def _chain(steps: int, size: int) -> Arrays:
    """The second is a rotation, so that nothing grows."""
    turned, _ = np.linalg.qr(_normal(size, size, seed=1))
    return _normal(size, size), turned.astype(np.float32)


_MADE: dict[str, Callable[..., Arrays]] = {
    "matmul": _matmul,
    "matmul_bfloat16": _matmul_bfloat16,
    "matmul_int8": _matmul_int8,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "softmax": _matrix,
    "layernorm": _matrix,
    "gelu": _vector,
    "sum": _vector,
    "copy": _matrix,
    "transpose": _matrix,
    "gather": _gather,
    "cumsum": _matrix,
    "sort": _shuffled,
    "topk": _shuffled,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "mlp_step": lambda batch: _labelled(_normal(batch, 784), 10),
    "convnet_step": lambda batch: _labelled(_normal(batch, 1, 28, 28), 10),
    "resnet": lambda batch, side: (_pictures(batch, side),),
    "resnet_step": lambda batch, side: _labelled(_pictures(batch, side), 1000),
    "gpt2_decode": _decode,
    "gpt2_prefill": lambda config, length: (_words(config, 1, length),),
    "vit": lambda config, batch: (_pictures(batch, 224),),
    "transformer_step": _transformer_step,
    "chain": _chain,
}
