"""The programs of the corpus as JAX and onnxruntime run them, on one thread.

A case is written once for PyTorch's names (families.py). `Array` has these names for JAX, and the
function is compiled by `jax.jit`; onnxruntime takes the graph that PyTorch exports, into memory
that is bound once. Each maker gives a function to time, and its values to compare.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from families import Case

__all__ = ["of_jax", "of_onnxruntime"]

Made = tuple[Callable[[], Any], list[Any]]
_LAYOUT = ("NCHW", "OIHW", "NCHW")


class Array:
    """An array of JAX with PyTorch's methods, as far as families.py calls them."""

    def __init__(self, value: Any):
        self.value = value

    def __matmul__(self, other: Array) -> Array:
        return Array(self.value @ other.value)

    def __add__(self, other: Any) -> Array:
        return Array(self.value + _plain(other))

    def __sub__(self, other: Any) -> Array:
        return Array(self.value - _plain(other))

    def __mul__(self, other: Any) -> Array:
        return Array(self.value * _plain(other))

    def __truediv__(self, other: Any) -> Array:
        return Array(self.value / _plain(other))

    def __getitem__(self, ids: Array) -> Array:
        return Array(self.value[ids.value])

    def __getattr__(self, name: str) -> Callable[..., Array]:
        import jax
        from jax import numpy as jnp

        x = self.value
        functions: dict[str, Callable[..., Any]] = {
            "amax": lambda axis: x.max(axis),
            "exp": lambda: jnp.exp(x),
            "flip": lambda axes: jnp.flip(x, axes),
            "gather": lambda axis, ids: jnp.take_along_axis(x, ids.value, axis),
            "index_add": lambda axis, ids, source: x.at[ids.value].add(source.value),
            "log": lambda: jnp.log(x),
            "logsumexp": lambda axis: jax.nn.logsumexp(x, axis),
            "narrow": lambda axis, at, count: jax.lax.slice_in_dim(x, at, at + count, axis=axis),
            "permute": lambda order: x.transpose(order),
            "relu": lambda: jax.nn.relu(x),
            "repeat": lambda *times: jnp.tile(x, times),
            "roll": lambda amount, axis: jnp.roll(x, amount, axis),
            "sqrt": lambda: jnp.sqrt(x),
            "sum": lambda axis=None: x.sum(axis),
            "transpose": lambda first, second: jnp.swapaxes(x, first, second),
            "var": lambda axis: x.var(axis, ddof=1),
        }
        found = functions[name]
        return lambda *given: Array(found(*given))


def _plain(other: Any) -> Any:
    return other.value if isinstance(other, Array) else other


def _windows(x: Any, size: int, stride: int, initial: float, combine: Any) -> Any:
    import jax

    shape, steps = (1, 1, size, size), (1, 1, stride, stride)
    return jax.lax.reduce_window(x.value, initial, combine, shape, steps, "VALID")


def _functional() -> Any:
    """`torch.nn.functional` for `Array`, as far as families.py calls it."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    def conv2d(x: Array, w: Array, stride: int, padding: int, groups: int) -> Array:
        edges = [(padding, padding)] * 2
        return Array(
            lax.conv_general_dilated(
                x.value, w.value, (stride, stride), edges, dimension_numbers=_LAYOUT,
                feature_group_count=groups,
            )
        )  # fmt: skip

    def layer_norm(x: Array, shape: Sequence[int]) -> Array:
        mean, var = x.value.mean(-1, keepdims=True), x.value.var(-1, keepdims=True)
        return Array((x.value - mean) * lax.rsqrt(var + 1e-5))

    def normalize(x: Array, dim: int) -> Array:
        norm = jnp.sqrt((x.value * x.value).sum(dim, keepdims=True))
        return Array(x.value / jnp.maximum(norm, 1e-12))

    def pad(x: Array, amounts: Sequence[int]) -> Array:
        pairs = [(0, 0)] * (x.value.ndim - len(amounts) // 2)
        pairs += reversed(list(zip(amounts[::2], amounts[1::2], strict=True)))
        return Array(jnp.pad(x.value, pairs))

    def attention(q: Array, k: Array, v: Array, is_causal: bool) -> Array:
        # JAX's has the heads behind the rows.
        moved = [each.value.swapaxes(1, 2) for each in (q, k, v)]
        return Array(jax.nn.dot_product_attention(*moved, is_causal=is_causal).swapaxes(1, 2))

    return SimpleNamespace(
        conv2d=conv2d, layer_norm=layer_norm, normalize=normalize, pad=pad,
        scaled_dot_product_attention=attention,
        cat=lambda arrays, axis: Array(jnp.concatenate([each.value for each in arrays], axis)),
        copy=lambda x: x,
        gelu=lambda x: Array(jax.nn.gelu(x.value, approximate=False)),
        silu=lambda x: Array(jax.nn.silu(x.value)),
        softmax=lambda x, axis: Array(jax.nn.softmax(x.value, axis)),
        log_softmax=lambda x, axis: Array(jax.nn.log_softmax(x.value, axis)),
        max_pool2d=lambda x, size, stride: Array(_windows(x, size, stride, -jnp.inf, lax.max)),
        avg_pool2d=lambda x, size, stride: Array(
            _windows(x, size, stride, 0.0, lax.add) / size**2
        ),
    )  # fmt: skip


def of_jax(case: Case, inputs: Sequence[Any]) -> Made:
    """The compiled function, for a gradient together with the value."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    import jax
    from jax import numpy as jnp

    functional = _functional()

    def value_of(*given: Any) -> Any:
        return case.compute(functional, *map(Array, given)).value

    def with_gradients(*given: Any) -> Any:
        def of_wanted(*wanted: Any) -> Any:
            mixed = list(given)
            for place, each in zip(case.wrt, wanted, strict=True):
                mixed[place] = each
            return value_of(*mixed)

        value, back = jax.vjp(of_wanted, *(given[place] for place in case.wrt))
        return value, *back(jnp.ones_like(value))

    compiled = jax.jit(with_gradients if case.wrt else value_of)
    arrays = [
        jnp.asarray(each.astype(np.int32) if each.dtype.kind == "i" else each) for each in inputs
    ]

    def run() -> Any:
        return jax.block_until_ready(compiled(*arrays))

    found = run()
    return run, [np.asarray(each) for each in (found if case.wrt else [found])]


def of_onnxruntime(case: Case, inputs: Sequence[Any]) -> Made | None:
    """The exported graph; None for gradients, which no graph of ONNX computes, and for programs
    that PyTorch does not export.
    """
    import onnxruntime
    import torch
    from torch.nn import functional

    if case.wrt:
        return None

    class Program(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *given: Any) -> Any:
            return case.compute(functional, *given)

    tensors = tuple(map(torch.from_numpy, inputs))
    names = [f"x{number}" for number in range(len(inputs))]
    text = io.BytesIO()
    try:
        torch.onnx.export(
            Program(), tensors, text, input_names=names, output_names=["y"], dynamo=False
        )
    except Exception:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        text.getvalue(), options, providers=["CPUExecutionProvider"]
    )
    (first,) = session.run(None, dict(zip(names, inputs, strict=True)))
    binding = session.io_binding()
    kept = [onnxruntime.OrtValue.ortvalue_from_numpy(each) for each in (*inputs, first)]
    for name, each in zip(names, kept, strict=False):
        binding.bind_ortvalue_input(name, each)
    binding.bind_ortvalue_output("y", kept[-1])
    return lambda: session.run_with_iobinding(binding), [first]
