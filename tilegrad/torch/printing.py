"""A tensor as PyTorch prints it: four digits, `tensor(...)`, and what is not the default."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes

__all__ = ["complex_text", "options", "set_printoptions", "text_of"]

options: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80}
_DEFAULT = dict(options)


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print from here on; what is None stays, and `profile="default"` undoes all."""
    if profile == "default":
        options.update(_DEFAULT)
    if profile == "full":
        options["threshold"] = 1 << 62
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems}
    given["linewidth"] = linewidth
    options.update({name: value for name, value in given.items() if value is not None})
    options["sci_mode"] = sci_mode if sci_mode is not None else options.get("sci_mode")


def text_of(array: Any, dtype: DType, device: str, notes: str) -> str:
    """`array` as the text of a tensor; `notes` stands behind the values."""
    import numpy

    head = "tensor("
    precision = options["precision"]
    formats: Any = {}
    if dtype.is_float:
        formats["float_kind"] = _float_format(array, precision)
    elif dtype is dtypes.bool:
        width = 4 if array.all() else 5
        formats["bool"] = lambda value: str(bool(value)).rjust(width)
    with numpy.printoptions(
        precision=precision, threshold=options["threshold"], edgeitems=options["edgeitems"],
        linewidth=options["linewidth"],
    ):  # fmt: skip
        text = numpy.array2string(
            array,
            separator=", ",
            prefix=head,
            formatter=formats or None,
        )
    named = (dtypes.float32, dtypes.int64, dtypes.bool)
    is_plain = dtype in named and (array.size or dtype is dtypes.float32)
    kind = "" if is_plain else f", dtype=torch.{dtype.name}"
    # What has no elements, and more than one axis, would not tell its shape.
    size = "" if array.size or array.ndim < 2 else f", size={array.shape}"
    place = "" if device == "CPU" else f", device='{device.lower()}'"
    return f"{head}{text}{size}{place}{kind}{notes})"


def complex_text(array: Any, notes: str) -> str:
    """Complex numbers as the text of a tensor."""
    import numpy

    real, imag = (_float_format(part, options["precision"]) for part in (array.real, array.imag))
    width = max((len(real(value).strip()) for value in array.real.ravel()), default=0)

    def text(value: Any) -> str:
        sign = "-" if numpy.signbit(value.imag) else "+"
        return f"{real(value.real).strip():>{width}}{sign}{imag(abs(value.imag)).strip()}j"

    with numpy.printoptions(
        threshold=options["threshold"], edgeitems=options["edgeitems"],
        linewidth=options["linewidth"],
    ):  # fmt: skip
        shown = numpy.array2string(
            array, separator=", ", prefix="tensor(", formatter={"complex_kind": text}
        )
    return f"tensor({shown}{notes})"


def _float_format(array: Any, precision: int) -> Any:
    """How floats print: whole numbers with a point, others with so many digits, or as powers of
    ten where they differ by much.
    """
    import numpy

    found = numpy.abs(array[numpy.isfinite(array) & (array != 0)].astype(numpy.float64))
    if not found.size or ((found == numpy.floor(found)).all() and found.max() < 1e8):
        made = "{:.0f}."
    elif found.max() / found.min() > 1000 or found.max() >= 1e8 or found.min() < 1e-4:
        made = f"{{:.{precision}e}}"
    else:
        made = f"{{:.{precision}f}}"
    finite = [made.format(value) for value in array.ravel()[: options["threshold"]]
              if numpy.isfinite(value)]  # fmt: skip
    width = max(map(len, finite), default=0)

    def show(value: Any) -> str:
        return (made.format(value) if numpy.isfinite(value) else str(float(value))).rjust(width)

    return show
