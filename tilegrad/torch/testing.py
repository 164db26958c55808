"""`torch.testing`: tensors compared as tests compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.complex import Complex
from tilegrad.torch.complexes import as_tensor

__all__ = ["assert_close"]

# PyTorch's tolerances (its page of torch.testing): relative and absolute.
_TOLERANCES: dict[DType, tuple[float, float]] = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless two tensors, numbers, or sequences and mappings of them have the
    same shapes and dtypes, and values that differ by at most `atol + rtol * |expected|`.

    Raises ValueError if only one of the tolerances is given.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: pass both rtol and atol, or none of them")
    same = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_dtype": check_dtype}
    text = _difference(actual, expected, same)
    if text is not None:
        raise AssertionError(msg(text) if callable(msg) else text if msg is None else msg)


def _difference(actual: Any, expected: Any, rules: dict[str, Any]) -> str | None:
    """The difference, in words."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"The keys differ: {sorted(map(str, actual))}, {sorted(map(str, expected))}"
        return _first(((f"[{key!r}]", actual[key], expected[key]) for key in actual), rules)
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"The lengths differ: {len(actual)} and {len(expected)}"
        pairs = enumerate(zip(actual, expected))
        return _first(((f"[{index}]", *pair) for index, pair in pairs), rules)
    return _of_tensors(actual, expected, rules)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, OurTensor, Complex))


def _first(items: Any, rules: dict[str, Any]) -> str | None:
    for where, actual, expected in items:
        found = _difference(actual, expected, rules)
        if found is not None:
            return f"At {where}: {found}"
    return None


def _of_tensors(actual: Any, expected: Any, rules: dict[str, Any]) -> str | None:
    are_tensors = all(isinstance(each, (OurTensor, Complex)) for each in (actual, expected))
    a, b = as_tensor(actual).detach(), as_tensor(expected).detach()
    if tuple(a.shape) != tuple(b.shape):
        return f"The shapes differ: {tuple(a.shape)} and {tuple(b.shape)}"
    if are_tensors and rules["check_dtype"] and a.dtype is not b.dtype:
        return f"The dtypes differ: {a.dtype.name} and {b.dtype.name}"
    kinds = [getattr(each.dtype, "component", each.dtype) for each in (a, b)]
    known = [_TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds]
    relative, absolute = map(max, zip(*known))
    if rules["rtol"] is not None:
        relative, absolute = rules["rtol"], rules["atol"]
    mine, other = (each.double().numpy() for each in (a, b))
    with numpy.errstate(invalid="ignore"):
        gap = numpy.abs(mine - other)
        good = (gap <= absolute + relative * numpy.abs(other)) | (mine == other)
    if rules["equal_nan"]:
        good |= numpy.isnan(mine) & numpy.isnan(other)
    if good.all():
        return None
    bad = int((~good).sum())
    index = tuple(map(int, numpy.argwhere(~good)[0])) if good.ndim else ()
    return (
        f"{bad} of {good.size} values are not close (relative {relative}, absolute {absolute}); "
        f"the first at {index}: {mine[index]!r} and {other[index]!r}"
    )


refuse_others(__name__)
