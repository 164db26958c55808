"""The check of `CHECK=1`: whether the integers that data gives for indices lie inside their axes.

An index that is a number is checked where the tensor is made; so are those that came from a list or
an array, and the few of a small tensor that is in memory (`tensor.storage.host_readable`): to look
at them runs nothing. One that is found in other data is known only when a kernel reads it; there,
what lies outside is read as zero and not written. With the switch on, a step in Python looks at the
indices first. Inside a loop none can: there the indices of all iterations are kept, and looked at
once the loop has run, before anybody sees its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import DataError, IndexBoundsError
from tilegrad.ir.args import CustomArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import compute, describe
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import here
from tilegrad.tensor.handle.tracing import is_transforming, watch
from tilegrad.tensor.storage import host_memory
from tilegrad.tensor.storage.host_readable import known
from tilegrad.tensor.storage.memory import bound

__all__ = ["Indices", "check_shares", "check_weights", "checked", "checked_later"]


@dataclass(frozen=True)
class Indices:
    """Indices and the axis that they have to lie inside of; `skip` stands for none.

    `where` and `line` name them in an error. The first `steps` axes count the iterations of
    loops.
    """

    name: str
    tensor: Any
    extent: int
    least: int
    axis: int | None
    skip: int | None
    where: str
    line: str = ""
    steps: int = 0

    def look(self, data: Any) -> None:
        """Raise IndexBoundsError if one lies outside; `data` are their bytes, or an array."""
        if isinstance(data, memoryview):
            data = host_memory.array_from(data, self.tensor.dtype, tuple(self.tensor.shape))
        values, shape = data, data.shape
        outside = (values < self.least) | (values >= self.extent)
        if self.skip is not None:
            outside &= values != self.skip
        count = int(outside.sum())
        if not count:
            return
        first = rest = int(outside.argmax())
        index: list[int] = []
        for size in reversed(shape):
            rest, at = divmod(rest, size)
            index.insert(0, at)
        trips, index = index[: self.steps], index[self.steps :]
        positions = [f"in step {trip}" for trip in trips] + [f"at {index} of the index"] * bool(
            index
        )
        positions += [f"and {count - 1} more"] * (count > 1)
        details = {"line": self.line} if self.line else {}
        raise IndexBoundsError(
            f"{self.name}: index {int(values.reshape(-1)[first])} is out of range for "
            f"{'an axis' if self.axis is None else f'axis {self.axis}'} of size {self.extent}",
            found=", ".join(positions or ["the index"]),
            index=self.where,
            rule=f"from {self.least} to {self.extent - 1}"
            + ("" if self.skip is None else f", or {self.skip} for none"),
            **details,
        )


def checked(
    name: str,
    index: Any,
    size: Any,
    axis: int | None = None,
    *,
    wraps: bool = True,
    skip: int | None = None,
) -> Any:
    """The integer tensor `index`, if all of it lies inside an axis of `size`, as far as that is
    known; under CHECK=1, once all of it was found to. A negative one counts from the end where the
    caller `wraps` it; `skip` stands for none.

    Raises IndexBoundsError for what is known to lie outside.
    """
    if not config.CHECK:
        values = known(index)
        if values is not None and isinstance(size, int) and size >= 0:
            least = -size if wraps and index.dtype.kind == "int" else 0
            if not values.is_inside(least, size - 1, skip):
                _found(name, index, size, least, axis, skip, here()).look(values.array())
        return index
    if not all(isinstance(extent, int) for extent in index.shape):
        return index
    extent = bound(size, index._variables)
    least = -extent if wraps and index.dtype.kind == "int" else 0
    found = _found(name, index, extent, least, axis, skip)
    if is_transforming():
        watch(replace(found, line=here()))
        return index
    return _behind(index, [found])


def _found(
    name: str,
    index: Any,
    extent: int,
    least: int,
    axis: int | None,
    skip: int | None,
    line: str = "",
) -> Indices:
    return Indices(name, index, extent, least, axis, skip, describe(index.uop), line)


def check_shares(name: str, what: str, tensor: Any) -> None:
    """Raise DataError where a value that is known is not in 0..1; NaN is let through."""
    found = known(tensor)
    if found is None or found.is_inside(0.0, 1.0):
        return
    array = found.array()
    raise DataError(
        f"{name}: a {what} is {float(array[(array < 0) | (array > 1)][0]):g}",
        rule="from 0 to 1",
        tensor=describe(tensor.uop),
    )


def check_weights(name: str, tensor: Any) -> None:
    """Raise DataError where a weight that is known is negative or not finite, or all are 0."""
    found = known(tensor)
    if found is None:
        return
    array = found.array()
    is_good = (array >= 0) & (array < math.inf)
    if is_good.all() and array.any():
        return
    bad = array[~is_good]
    raise DataError(
        f"{name}: a weight is {float(bad[0]):g}" if bad.size else f"{name}: all weights are 0",
        rule="finite, 0 or more, and one of them more",
        tensor=describe(tensor.uop),
    )


def checked_later(results: Sequence[Any], found: Sequence[Indices]) -> list[Any]:
    """`results`, once all of `found` was looked at; a gradient passes through."""
    if is_transforming():
        for each in found:
            watch(each)
    if is_transforming() or not found:
        return list(results)
    return [_behind(result, found) for result in results]


def _behind(value: Any, found: Sequence[Indices]) -> Any:
    """`value`, by a step that looks at all of `found` first."""
    sources = [_stored(value)]
    for each in found:
        if each.tensor is not value:
            sources.append(_stored(each.tensor))

    def look(data: Sequence[memoryview]) -> memoryview:
        for each, read in zip(found, data[len(data) - len(found) :], strict=True):
            each.look(read)
        return data[0]

    def gradient(g: UOp, node: UOp) -> list[UOp | None]:
        return [g, *[None] * (len(node.src) - 1)]

    arg = CustomArg("check_index", tuple(value.shape), look, gradient)
    return value._like(compute(Ops.CUSTOM, value.dtype, tuple(sources), arg))


def _stored(tensor: Any) -> UOp:
    """The node of `tensor`, on its device if it is constant."""
    node: UOp = tensor.uop
    if node.is_constant:
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,), canonical(tensor.device))
    return node
