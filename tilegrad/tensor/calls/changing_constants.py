"""Constants among the operands of a method, where the same line brings others from step to step:
`positions(torch.arange(length))` in a loop whose length grows, or a triangular mask of that length.

A constant is part of a template, as its values shape the code. One that is another at each step
would need a template, and make a graph, for each. It becomes memory instead, which is an equal leaf
at each step, or one that differs in its size alone. So does a constant beside operands whose sizes
change: `torch.zeros(nodes).index_add_(...)` over graphs of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.ir.uop import UOp
from tilegrad.ir.walks import toposort
from tilegrad.tensor.calls.recorded import replaced
from tilegrad.tensor.calls.uploads import can_upload, uploaded
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.waiting import Call, Pool, this_thread
from tilegrad.tensor.storage.host_constants import constant_elements, is_filled
from tilegrad.tensor.storage.memory import needs_no_run

__all__ = ["ChangingConstants", "in_memory", "uploaded_constant"]

# Steps in which the constants of a line were new, and the most constants of a line that are
# compared.
_MANY, _MOST_COMPARED = 1, 64
# Shapes of a line in as many steps are those of batches of one size and of the last one.
_MANY_SIZES = 2
# Lines of one method that are known at a time.
_MOST_LINES = 512
# Elements of a constant that becomes memory.
_MOST_ELEMENTS = 1 << 16
Line = tuple[Any, int]


class _Seen:
    """The constants that a line brought, and in how many steps it brought new ones; the shapes of
    all operands that came with them. With `is_sized` these change.
    """

    __slots__ = ("constants", "is_sized", "news", "shapes", "step")

    def __init__(self) -> None:
        self.constants: set[int] = set()
        self.news = 0
        self.step = -1
        self.shapes: set[int] = set()
        self.is_sized = False


class ChangingConstants:
    """Lines of one method that bring other constants from step to step."""

    __slots__ = ("_lines", "_seen")

    def __init__(self) -> None:
        self._seen: dict[Line, _Seen] = {}
        self._lines: set[Line] = set()

    def note(self, operands: list[Any], entry: Any, pool: Pool) -> None:
        """Note the constants of a call that has no template. Those that are new in the step in
        which the line was first met, as those of the layers of a network are, do not count.
        """
        line = entry[0], entry[1]
        seen = self._seen.get(line)
        if seen is None:
            if len(self._seen) >= _MOST_LINES:
                self._seen.clear()
                self._lines.clear()
            seen = self._seen.setdefault(line, _Seen())
        shapes = hash(tuple([each.shape for each in operands]))
        found = hash(tuple([_signature(each.uop) for each in operands if _is_constant(each)]))
        is_new = found not in seen.constants
        if is_new and len(seen.constants) < _MOST_COMPARED:
            seen.constants.add(found)
        if seen.step == pool.runs or not (is_new or shapes not in seen.shapes):
            return
        seen.step = pool.runs
        seen.news += is_new
        if not seen.is_sized:
            seen.shapes.add(shapes)
            seen.is_sized = len(seen.shapes) > _MANY_SIZES
        if seen.is_sized or seen.news > _MANY:
            self._lines.add(line)

    def are_changing(self, inputs: Sequence[Any], entry: Any) -> bool:
        """Whether the constants that this line brings beside `inputs`, which wait or are memory,
        become memory. Recorded methods have stand-ins, and keep their constants.
        """
        if not self._lines or (entry[0], entry[1]) not in self._lines or this_thread.stand_ins:
            return False
        return all(each.__class__ is Call or needs_no_run(each) for each in inputs)

    def in_memory(
        self,
        first: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        operands: list[Any],
        entry: Any,
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
        """The tensor and the arguments of a call of a line with memory in the place of its
        constants; None if the elements of one are not to be had without a run.
        """
        made: dict[int, Any] = {}
        constants = [each for each in operands if _is_constant(each)]
        seen = self._seen.get((entry[0], entry[1]))
        is_sized = seen is not None and seen.is_sized
        # Numbers and fills stay: they are no data, and shape better code. Alone, they are positions
        # that change (`torch.full((1, 1), step)`). A call with constants has no template of all
        # sizes, so where sizes change none stays.
        changing = [each for each in constants if is_sized or not is_filled(each.uop)]
        for each in changing or [each for each in constants if each.dtype.is_int]:
            memory = uploaded_constant(each)
            if memory is None:
                return None
            made[id(each)] = memory
        if not made:
            return None
        return (
            made.get(id(first), first),
            tuple([replaced(each, made) for each in args]),
            {name: replaced(each, made) for name, each in kwargs.items()},
        )


def _is_constant(tensor: Any) -> bool:
    """Whether a tensor is a constant: one whose call waits is none, and gets no node."""
    return tensor._call is None and tensor._node.is_constant


def _signature(node: UOp) -> tuple[Any, ...]:
    """A key that tells constants apart, without keeping them alive."""
    return tuple([(each.op.serial, each.dtype.name, str(each.arg)) for each in toposort([node])])


def in_memory(tensor: Any) -> Any:
    """A tensor itself, or memory with the value of a constant of few elements: who computes with a
    constant alone, or reads it, has nodes made.
    """
    if tensor._call is not None or not tensor._node.is_constant:
        return tensor
    found = uploaded_constant(tensor)
    return tensor if found is None else found


def uploaded_constant(tensor: Any) -> Any | None:
    """The value of a constant of few elements as a tensor in memory; None if it takes a run."""
    size = tensor.numel()
    if not 0 < size <= _MOST_ELEMENTS or not can_upload(device_of(tensor)):
        return None
    array = constant_elements(tensor.uop)
    return None if array is None else uploaded(tensor, array, tensor.dtype)
