"""What `CHECK=1` looks at: whether the integers that data gives for indices lie inside their axes.

An index that is a number is checked where the tensor is made. One that is found in data is known
only when a kernel reads it; there, what lies outside is read as zero and not written. With the
switch on, a step in Python looks at the indices first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import IndexBoundsError
from tilegrad.ir.args import CustomArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor import host
from tilegrad.tensor.core import compute, describe
from tilegrad.tensor.memory import bound
from tilegrad.tensor.tracing import is_transforming

__all__ = ["checked"]


def checked(
    name: str,
    index: Any,
    size: Any,
    axis: int | None = None,
    *,
    wraps: bool = True,
    skip: int | None = None,
) -> Any:
    """The integer tensor `index`; under CHECK=1, once all of it was found to lie inside an axis of
    `size`. A negative one counts from the end where the caller `wraps` it; `skip` stands for none.
    """
    if (
        not config.CHECK
        or is_transforming()
        or not all(isinstance(extent, int) for extent in index.shape)
    ):
        return index
    extent, dtype, shape = bound(size, index._variables), index.dtype, tuple(index.shape)
    least = -extent if wraps and dtype.kind == "int" else 0
    where = describe(index.uop)

    def look(data: Sequence[memoryview]) -> memoryview:
        values = host.array_from(data[0], dtype, shape)
        outside = (values < least) | (values >= extent)
        if skip is not None:
            outside &= values != skip
        count = int(outside.sum())
        if count:
            first = rest = int(outside.argmax())
            place: list[int] = []
            for part in reversed(shape):
                rest, here = divmod(rest, part)
                place.insert(0, here)
            raise IndexBoundsError(
                f"{name}: index {int(values.reshape(-1)[first])} is out of range for "
                f"{'an axis' if axis is None else f'axis {axis}'} of size {extent}",
                found=f"at {place} of the index" + (f", and {count - 1} more" * (count > 1)),
                index=where,
                rule=f"from {least} to {extent - 1}"
                + ("" if skip is None else f", or {skip} for none"),
            )
        return data[0]

    node = index.uop
    if node.is_constant:
        node = UOp(Ops.CONTIGUOUS, dtype, (node,), index.device)
    looked = compute(Ops.CUSTOM, dtype, (node,), CustomArg("check_index", shape, look))
    return index._like(looked)
