"""A tensor as PyTorch prints it: four digits, `tensor(...)`, and what is not the default."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes

__all__ = ["options", "set_printoptions", "text_of"]

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
    floats = _float_format(array, precision) if dtype.is_float else None
    with numpy.printoptions(
        precision=precision, threshold=options["threshold"], edgeitems=options["edgeitems"],
        linewidth=options["linewidth"],
    ):  # fmt: skip
        text = numpy.array2string(
            array,
            separator=", ",
            prefix=head,
            formatter={"float_kind": floats} if floats is not None else None,
        )
    named = (dtypes.float32, dtypes.int64, dtypes.bool)
    kind = "" if dtype in named and array.size else f", dtype=torch.{dtype.name}"
    place = "" if device == "CPU" else f", device='{device.lower()}'"
    return f"{head}{text}{place}{kind}{notes})"


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
