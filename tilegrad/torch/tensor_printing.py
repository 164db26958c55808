"""A tensor as PyTorch prints it: four digits, `tensor(...)`, and what is not the default."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType, dtypes

__all__ = ["behind", "complex_text", "member", "options", "set_printoptions", "text_of"]

options: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80}
_PROFILES: dict[str, dict[str, Any]] = {
    "default": dict(options),
    "short": {**options, "precision": 2, "edgeitems": 2},
    "full": {**options, "threshold": 1 << 62},
}
_HEAD = "tensor("


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print from here on: what is None stays, but for `sci_mode`; `profile` is
    "default", "short" or "full".
    """
    if profile is not None:
        options.update(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems}
    given["linewidth"] = linewidth
    options.update({name: value for name, value in given.items() if value is not None})
    options["sci_mode"] = sci_mode


def text_of(array: Any, dtype: DType | None, device: str, notes: str) -> str:
    """`array` as the text of a tensor of `dtype`, None for the default one; `notes` is what is said
    of its gradient.
    """
    is_plain = dtype in (None, dtypes.default_float) or (
        dtype in (dtypes.int64, dtypes.bool) and array.size
    )
    shown_device = "" if device == "CPU" else f"device='{device.lower()}'"
    kind = "" if is_plain or dtype is None else f"dtype=torch.{dtype.name}"
    return _ended(array, [shown_device, _size(array), kind, notes])


def complex_text(array: Any, kind: str, notes: str) -> str:
    """Complex numbers as the text of a tensor of the dtype that `kind` names."""
    is_plain = kind == "complex64" and array.size
    return _ended(array, [_size(array), "" if is_plain else f"dtype=torch.{kind}", notes])


def _size(array: Any) -> str:
    """The shape of an array without elements, and with more than one axis or none: it shows no
    other way.
    """
    return "" if array.size or array.ndim == 1 else f"size={array.shape}"


def _ended(array: Any, ends: list[str]) -> str:
    """The values, and what stands behind them."""
    return f"{behind(f'{_HEAD}{_values(array)}', ends)})"


def behind(text: str, ends: list[str], *, starts_line: bool = False) -> str:
    """The text of a tensor so far, and what stands behind it, on a new line where the last one is
    full; the first one too, where it `starts_line`.
    """
    used = len(text) - text.rfind("\n") + 1
    for end in filter(None, ends):
        if starts_line or used + len(end) + 2 > options["linewidth"]:
            text += f",\n{' ' * len(_HEAD)}{end}"
            used = len(_HEAD) + len(end)
        else:
            text += f", {end}"
            used += len(end) + 2
        starts_line = False
    return text


def member(name: str, array: Any) -> str:
    """An array that a sparse tensor is made of, as it prints within that."""
    head = f"{name}=tensor("
    size = "" if array.size else f", size={array.shape}"
    return f"{head}{_values(array, len(_HEAD) + len(head))}{size})"


def _values(array: Any, indent: int = len(_HEAD)) -> str:
    if not array.size:
        return "[]"
    edge = options["edgeitems"] if array.size > options["threshold"] else None
    shown = _edges(array, edge)
    if array.dtype.kind == "c":
        real, imag = _format_of(shown.real), _format_of(shown.imag)
        write: Callable[[Any], str] = functools.partial(_complex, real, imag)
        width = real.width + imag.width + 1
    else:
        one = _format_of(shown)
        write, width = one.text, one.width
    return _rows(array, write, width, edge, indent)


def _edges(array: Any, edge: int | None) -> Any:
    """The shown items of an array: along each axis `edge` items from both ends."""
    if edge is None:
        return array
    import numpy

    for axis, size in enumerate(array.shape):
        if size > 2 * edge:
            array = numpy.take(array, [*range(edge), *range(size - edge, size)], axis)
    return array


def without_values(shape: Any, dtype: DType, note: str) -> str:
    """A tensor on the device `meta` as it prints."""
    notes = ["device='meta'", f"size={tuple(shape)}"]
    if dtype is not dtypes.default_float:
        notes.append(f"dtype=torch.{dtype.name}")
    return f"tensor(..., {', '.join([*notes, *([note] if note else [])])})"


def _rows(
    array: Any, write: Callable[[Any], str], width: int, edge: int | None, indent: int
) -> str:
    """The numbers of an array in brackets."""
    if not array.ndim:
        return write(array.item())
    size = len(array)
    is_short = edge is not None and size > 2 * edge
    chosen: Any = range(size)
    if is_short:
        assert edge is not None
        chosen = [*range(edge), None, *range(size - edge, size)]
    if array.ndim > 1:
        rows = [
            "..." if i is None else _rows(array[i], write, width, edge, indent + 1) for i in chosen
        ]
        between = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
        return f"[{between.join(rows)}]"
    row = array.tolist()
    items = [" ..." if i is None else write(row[i]) for i in chosen]
    a_line = max(1, (options["linewidth"] - indent) // (width + 2))
    lines = [", ".join(items[i : i + a_line]) for i in range(0, len(items), a_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


class _Format(NamedTuple):
    """How the numbers of a tensor are written: `spec` of `format`, and the width of the longest."""

    spec: str
    width: int
    is_whole: bool = False

    def text(self, value: Any) -> str:
        """One number."""
        text = format(value, self.spec) if self.spec else str(value)
        if self.is_whole and math.isfinite(value):
            text += "."
        return text.rjust(self.width)


def _complex(real: _Format, imag: _Format, value: complex) -> str:
    second = imag.text(value.imag).strip()
    sign = "" if second.startswith(("+", "-")) else "+"
    return f"{real.text(value.real)}{sign}{second}j"


def _format_of(array: Any) -> _Format:
    """Whole numbers with a point, others with the digits they need, or all as powers of ten where
    they are large, small, or differ by much.
    """
    import numpy

    if array.dtype.kind != "f":
        return _Format("", max(len(str(value)) for value in array.ravel().tolist()))
    precision, wanted = options["precision"], options.get("sci_mode")
    found = array[numpy.isfinite(array) & (array != 0)].astype(numpy.float64)
    sizes = numpy.abs(found) if found.size else numpy.ones(1)
    is_whole = bool((sizes == numpy.ceil(sizes)).all())
    is_wide = sizes.max() / sizes.min() > 1000 or sizes.max() > 1e8
    power = bool(is_wide or (not is_whole and sizes.min() < 1e-4))
    # Zeros, infinities and NaN alone have no power of ten.
    power = power if wanted is None else wanted and bool(found.size)
    is_whole = is_whole and not power
    spec = f".{precision}e" if power else ".0f" if is_whole else f".{precision}f"
    width = max((len(format(value, spec)) + is_whole for value in found.tolist()), default=1)
    return _Format(spec, width, is_whole)
