"""The check of `SEGMENTS=2`: the nodes of a segment, run as any graph, have the values that its
plan gave.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import InternalError
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.tensor.handle.waiting import Call, Moves
from tilegrad.tensor.storage.memory import base_of
from tilegrad.tensor.storage.memory_below import moves_of
from tilegrad.tensor.storage.noted_runs import Computed, PlainNodes, ResultsAlive, Segment
from tilegrad.tensor.storage.signatures import WaitingCalls, bases_of, described

__all__ = ["compare"]


def compare(
    segment: Segment, found: WaitingCalls, asked: Call, computed: Sequence[Computed]
) -> None:
    """Raise InternalError unless the nodes of a segment, run by the same plan, have the same
    values.
    """
    below = described(found.leaves)
    if below is None or bases_of(found.leaves, segment.kinds) is None:
        raise InternalError("segments: the leaves are of other kinds than those of equal calls")
    plain = PlainNodes(found, below)
    others = ResultsAlive([plain.calls[each] for each in found.alive])
    engine.realize([plain.calls[each] for each in found.roots(asked)], {}, others)
    binding = segment.binding
    if not others.runs or binding is None or others.runs[0][1].plan is not binding.plan:
        # Planned anew meanwhile: sums may be added up in another order.
        return
    for number, value, moves, _, _ in computed:
        call = found.calls[number]
        stored = engine.realized(plain.calls[call])
        is_equal = stored is not None and _is_one_view(moves_of(stored)[0], moves)
        if stored is not None and is_equal:
            other = store.buffer_of(base_of(stored))
            is_equal = bytes(value.buffer.copy_out()) == bytes(other.copy_out())
        if not is_equal:
            raise InternalError(
                "segments: equal calls gave other values than their nodes",
                shape=call.shape,
                stored=stored is not None,
            )


def _is_one_view(one: Moves, other: Moves) -> bool:
    """Whether two chains of movement ops are the same view of memory. Where sizes may be others, a
    chain of RESHAPE is one RESHAPE.
    """
    if one == other:
        return True
    return all(op is Ops.RESHAPE for op, _, _ in (*one, *other)) and one[-1:] == other[-1:]
