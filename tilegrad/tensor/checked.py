"""What `CHECK=1` looks at: whether the integers that data gives for indices lie inside their axes.

An index that is a number is checked where the tensor is made. One that is found in data is known
only when a kernel reads it; there, what lies outside is read as zero and not written. With the
switch on, a step in Python looks at the indices first. Inside a loop none can: there the indices of
all turns are kept, and looked at once the loop has run, before anybody sees its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import IndexBoundsError
from tilegrad.ir.args import CustomArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor import host
from tilegrad.tensor.core import compute, describe
from tilegrad.tensor.memory import bound
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tracing import is_transforming, watch

__all__ = ["Indices", "checked", "checked_later"]


@dataclass(frozen=True)
class Indices:
    """Indices and the axis that they have to lie inside of; `skip` stands for none.

    `where` and `line` say what and where they are, `steps` how many axes in front count the turns
    of loops.
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

    def look(self, data: memoryview) -> None:
        """Raise IndexBoundsError if one of them, whose bytes are `data`, lies outside."""
        shape = tuple(self.tensor.shape)
        values = host.array_from(data, self.tensor.dtype, shape)
        outside = (values < self.least) | (values >= self.extent)
        if self.skip is not None:
            outside &= values != self.skip
        count = int(outside.sum())
        if not count:
            return
        first = rest = int(outside.argmax())
        place: list[int] = []
        for part in reversed(shape):
            rest, at = divmod(rest, part)
            place.insert(0, at)
        turns, place = place[: self.steps], place[self.steps :]
        parts = [f"in step {turn}" for turn in turns] + [f"at {place} of the index"] * bool(place)
        parts += [f"and {count - 1} more"] * (count > 1)
        details = {"line": self.line} if self.line else {}
        raise IndexBoundsError(
            f"{self.name}: index {int(values.reshape(-1)[first])} is out of range for "
            f"{'an axis' if self.axis is None else f'axis {self.axis}'} of size {self.extent}",
            found=", ".join(parts or ["the index"]),
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
    """The integer tensor `index`; under CHECK=1, once all of it was found to lie inside an axis of
    `size`. A negative one counts from the end where the caller `wraps` it; `skip` stands for none.
    """
    if not config.CHECK or not all(isinstance(extent, int) for extent in index.shape):
        return index
    extent = bound(size, index._variables)
    least = -extent if wraps and index.dtype.kind == "int" else 0
    found = Indices(name, index, extent, least, axis, skip, describe(index.uop))
    if is_transforming():
        watch(replace(found, line=here()))
        return index
    return _behind(index, [found])


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
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,), tensor.device)
    return node
