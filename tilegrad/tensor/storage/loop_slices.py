"""Slices of a computed sequence with a gradient, in a loop that runs in blocks.

    e = embedding(words)                # one length after the other
    for t in range(e.shape[1]):
        h = torch.tanh(e[:, t] @ w + h @ u)

Where `e[:, t]` lies, and in how much memory, is another thing for each step and length, so that no
two blocks would be one structure. Here each slice is a leaf with memory of its own, which the host
copies. The gradients of the leaves are gathered by the host to one of the sequence, which goes on
to what made that. The calls stand on the sequence again when the blocks have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import prod
from tilegrad.tensor.handle.waiting import Call, Value
from tilegrad.tensor.storage import host_memory
from tilegrad.tensor.storage.host_readable import elements_below, moves_below
from tilegrad.tensor.storage.loop_blocks import CallBlock
from tilegrad.tensor.storage.new_memory import new_memory

__all__ = ["LoopSlices"]

_KINDS = {dtypes.float32: "float32", dtypes.float64: "float64"}
_IN_ORDER = (Ops.RESHAPE, Ops.PERMUTE)


class LoopSlices:
    """The slices of the blocks of a loop."""

    def __init__(self) -> None:
        self._leaf_of: dict[Call, Call | None] = {}
        self._view_of: dict[Any, Call] = {}
        # By sequence, its leaves, each with the positions of its elements in the memory.
        self._of_sequence: dict[Call, list[tuple[Call, Any]]] = {}
        self._positions: dict[Call, Any] = {}
        self._changed: list[Call] = []

    def cut(self, block: CallBlock) -> None:
        """Let calls of a block stand on leaves in place of slices of earlier results."""
        sequences = frozenset([each for each in block.inputs if each.requires_grad])
        for call in block.calls() if sequences else ():
            if call.template.is_view:
                continue
            inputs = call.inputs or ()
            leaves = tuple([self._cut_from(each, sequences) or each for each in inputs])
            if leaves != inputs:
                call.inputs = leaves
                self._changed.append(call)
                block.inputs.extend(
                    each
                    for each in leaves
                    if isinstance(each, Call) and each in self._view_of and each not in block.inputs
                )

    def sequences(self, block: CallBlock) -> Iterator[Call]:
        """The results of a block that were cut."""
        return (each for each in block.outputs if each in self._of_sequence)

    def leaves(self, sequence: Call) -> Iterator[Call]:
        """The leaves of a sequence."""
        return (leaf for leaf, _ in self._of_sequence[sequence])

    def gathered(self, sequence: Call, gradients: dict[Call, Any]) -> Any | None:
        """The gradient of a sequence from the `gradients` of its leaves, which are taken out of
        these, as an array of bits; None where one is not there yet.
        """
        import numpy

        value = sequence.value
        assert value is not None
        kind = numpy.dtype(_KINDS[sequence.dtype])
        total = numpy.zeros(value.buffer.size, kind)
        for leaf, positions in self._of_sequence[sequence]:
            gradient = gradients.pop(leaf, None)
            if gradient is None:
                continue
            bits = elements_below(gradient._node if gradient._call is None else gradient._call)
            if bits is None:
                return None
            total[positions] += numpy.ascontiguousarray(bits).view(kind).reshape(leaf.shape)
        for op, arg, _ in sequence.moves:
            total = host_memory.moved(total, op, arg)
        return numpy.ascontiguousarray(total).view(f"u{kind.itemsize}").reshape(sequence.shape)

    def restore(self) -> None:
        """Let the calls stand on the sequences again, as later gradients go to these."""
        view_of = self._view_of
        for call in self._changed:
            if call.inputs is not None:
                call.inputs = tuple([view_of.get(each, each) for each in call.inputs])

    def _cut_from(self, view: Any, sequences: frozenset[Call]) -> Call | None:
        """The leaf in the place of a view of one of the `sequences`; None for all else."""
        if view.__class__ is not Call or not view.requires_grad or not view.template.is_view:
            return None
        if view not in self._leaf_of:
            self._leaf_of[view] = self._made(view, sequences)
        return self._leaf_of[view]

    def _made(self, view: Call, sequences: frozenset[Call]) -> Call | None:
        source, is_slice = view, False
        while source.template.is_view and len(source.inputs or ()) == 1:
            is_slice = is_slice or any(step[0] is Ops.SHRINK for step in source.template.steps)
            (below,) = source.inputs or ()
            if source.stop is not None or below.__class__ is not Call:
                return None
            source = below
        value = source.value
        if not is_slice or source not in sequences or value is None or view.dtype not in _KINDS:
            return None
        if any(op not in _IN_ORDER for op, _, _ in source.moves):
            return None
        array, moves = elements_below(view), moves_below(view)
        if array is None or moves is None or any(op is Ops.EXPAND for op, _ in moves):
            return None
        buffer = new_memory(array, view.dtype, prod(view.shape))
        if buffer is None:
            return None
        positions = self._positions_in(source, value)
        for op, arg in moves:
            positions = host_memory.moved(positions, op, arg)
        leaf = view.standing_on(Value(buffer), ((Ops.RESHAPE, view.shape, view.shape),))
        self._view_of[leaf] = view
        self._of_sequence.setdefault(source, []).append((leaf, positions))
        return leaf

    def _positions_in(self, sequence: Call, value: Value) -> Any:
        import numpy

        found = self._positions.get(sequence)
        if found is None:
            found = self._positions[sequence] = numpy.arange(value.buffer.size)
        return found
