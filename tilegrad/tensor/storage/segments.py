"""Equal segments: what a thread's waiting calls led to once is run again without making nodes.

Between two reads, a loop makes the same calls over other memory. The work for a read follows from
these calls (`tensor.handle.waiting`), from the leaves they stand on, and from the results that are
alive. All of this is the *signature* of a segment. The first time, the nodes are made and run as
any graph, and what came of it is noted: the plan, the memory that it reads, and which results are
memory after it. The next equal segment runs that plan. `SEGMENTS=2` runs the nodes as well, and
compares.

    _known: structure of the calls -> segments, the one used last first
    Segment: what the leaves have to be; binding of the plan; which memory it reads; which call has
        which result of the plan
    Call.value -> Value: the buffer, and a leaf once somebody asks for a node

Values that a result is computed from are cached for a few runs, as graphs are
(`tensor.storage.running`), so that its nodes can still be made; then it stands on its memory alone,
and the memory knows its past.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilegrad.base.config import config, current_config
from tilegrad.base.recent import Recent
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.leaf_memory import VALUE_ERRORS, is_of_value
from tilegrad.engine.run.ready import NoRoomError
from tilegrad.engine.run.run import ready_plan, record_of_thread
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import Call, Value, settle_alias, this_thread
from tilegrad.tensor.storage import past, running
from tilegrad.tensor.storage.block_runs import blocks_of, compute_results
from tilegrad.tensor.storage.failed_runs import left_of, note_failure
from tilegrad.tensor.storage.host_runs import run_on_host
from tilegrad.tensor.storage.known_indices import settle_indices, without_indices
from tilegrad.tensor.storage.memory import base_of
from tilegrad.tensor.storage.memory_below import Base, moves_of
from tilegrad.tensor.storage.noted_runs import (
    Computed,
    PlainNodes,
    ResultsAlive,
    Segment,
    noted,
    reached_by,
)
from tilegrad.tensor.storage.segment_check import compare
from tilegrad.tensor.storage.segment_code import Match, Values, written
from tilegrad.tensor.storage.segment_take import copied, is_leaf, stand_on_memory, take
from tilegrad.tensor.storage.signatures import (
    Leaves,
    WaitingCalls,
    bases_of,
    described,
    is_computed,
    waiting_calls,
)
from tilegrad.tensor.storage.sized_segments import (
    LeafSizes,
    SizedSegment,
    sized_segment,
    sizes_before,
)

__all__ = ["compute_together", "may_run", "read", "settle"]

Compute = Callable[[Sequence[Any]], None]
Taken = TypeVar("Taken")
# By structure, for leaves of different kinds.
_known: Recent[tuple[int, ...], list[Segment]] = Recent(lambda: min(config.KEEP_KERNELS, 1024))
# By the number of the call that was asked for and how many results are alive, the segments that
# code was written for, as it takes as long as some fifty reads lose without it.
_written: Recent[tuple[int, int], list[tuple[Segment, Match]]] = Recent(
    lambda: min(config.KEEP_KERNELS, 1024)
)
_OFTEN = 8
_NEVER_AGAIN = -(1 << 62)
_MOST_KINDS = 4
# By structure, for leaves of all sizes.
_sized: Recent[tuple[int, ...], list[SizedSegment]] = Recent(lambda: min(config.KEEP_KERNELS, 512))
# By structure, the sizes that the leaves of the last runs had that made nodes, up to a number, and
# how often no segment for all sizes was found.
_sizes: Recent[tuple[int, ...], tuple[tuple[LeafSizes, ...], int]] = Recent(
    lambda: min(config.KEEP_KERNELS, 1024)
)
_MOST_FAILURES, _MOST_SIZES = 4, 8
# By structure, the results that a run concerns: of equal calls over other results these are equal.
_concerned: Recent[tuple[int, ...], tuple[int, ...]] = Recent(
    lambda: min(config.KEEP_KERNELS, 1024)
)
# By the numbers of the asked call and of all that wait, the results that a run of written code
# concerned. Other calls with these numbers fit no code, or leave a result to its own read.
_latest: Recent[tuple[int, ...], tuple[int, ...]] = Recent(lambda: min(config.KEEP_KERNELS, 1024))
# By structure, how often the host ran it, and from `_FEW_RUNS` on, how often it had no segment: a
# structure that comes often has one, unless its leaves are others each time.
_tries: Recent[tuple[int, ...], int] = Recent(lambda: min(config.KEEP_KERNELS, 1024))
_FEW_RUNS = 128
_exclusive = engine.exclusive()
blank = object.__new__


def settle(tensor: Any, compute: Compute) -> bool:
    """Run what a tensor whose call waits needs, if it is known what that is; whether it was. Else
    the nodes are made, `compute` runs them, and it is known the next time. The tensor is memory
    then.
    """
    call: Call = tensor._call
    if not may_run(tensor, call):
        return False
    with _exclusive:
        if call.value is None:
            _run(tensor, call, compute)
        if call.value is not None and tensor._call is call:
            stand_on_memory(tensor, call, call.value.node(call.moves))
    return True


def compute_together(results: Sequence[Call]) -> bool:
    """Compute results of calls that wait by a run of their own, whatever else waits; False, and
    nothing has run, where their leaves have no signature. They are no views.
    """
    *others, asked = results
    pool = asked.pool
    before, pool.together = pool.together, tuple(others)
    try:
        with _exclusive:
            alive = [*results]
            if _run_written(alive, None, asked):
                return True
            found = WaitingCalls(alive, asked)
            if _run_known(found, None, asked) or _run_sized(found, None, asked):
                return True
            below = described(found.leaves)
            if below is None:
                return False
            segment = _run_plain(found, below, None, asked)
            if segment is not None:
                _note(found.key, segment)
            return True
    finally:
        pool.together = before
        pool.count = 0


def read(
    tensor: Any, compute: Compute, take: Callable[[Buffer], Taken], *, is_users: bool = True
) -> Taken | None:
    """As `settle`, and what `take` gives of the memory that has the elements in their order; None
    if there is no such memory, or somebody is to see the read, which may be none of the user's. No
    node is made for it.
    """
    call: Call = tensor._call
    if not may_run(tensor, call):
        return None
    if is_users:
        call.pool.reads += 1
    with _exclusive:
        if call.value is None:
            _run(tensor, call, compute)
        value = call.value
        if value is None or tensor._call is not call:
            return None
        is_in_order = True
        for move in call.moves:
            if move[0] is not Ops.RESHAPE:
                is_in_order = False
        if not is_in_order or call.node is not None or record_of_thread() or transforms.depth:
            stand_on_memory(tensor, call, value.node(call.moves))
            return None
        if call.inputs is not None and not call.requires_grad:
            # Origins of other values by way of this call are still known.
            settle_alias(tensor, call)
            tensor._call = call.of_memory()
        leaf = value.leaf
        return take(value.buffer if leaf is None else store.buffer_of(leaf))


def may_run(tensor: Any, call: Call) -> bool:
    """Whether a tensor is of this thread's pool; else it is an ordinary one from now on."""
    if call.pool is this_thread.pool and call.handle() is tensor:
        if not (record_of_thread() or transforms.depth or current_config().NOOPT):
            return True
        if running.keeps():
            return True
    _ = tensor.uop
    tensor._call = None
    return False


def _run(tensor: Any, call: Call, compute: Compute) -> None:
    """Run what a tensor whose call waits needs."""
    if call.node is not None and is_computed(call):
        compute([tensor])
    else:
        alive = left_of(waiting_calls(call.pool), call)
        try:
            _run_for(alive, tensor, call, compute)
        except Exception as error:
            note_failure(error, [call, *WaitingCalls(alive or [call], call).roots(call)])
            raise
        if call.value is None and tensor._call is call and not is_computed(call):
            # The nodes of a constant are stored by no run of calls.
            compute([tensor])
    call.pool.has_run()


def _run_for(alive: list[Call], tensor: Any, call: Call, compute: Compute) -> None:
    """Run what a call needs, one of those `alive` unless its tensor has another value by now."""
    pool = call.pool
    if call not in alive:
        pool.expand()
        compute([tensor])
        pool.count_miss()
        return
    if tensor._at_once:
        if pool.indices:
            settle_indices(pool)
        alive = without_indices(alive, call)
    found = _run_found(alive, tensor, call)
    if found is None:
        pool.count_hit()
        return
    tries = _tries.get(found.key) or 0
    is_for_host = tries < _FEW_RUNS or tries >= _FEW_RUNS + _MOST_FAILURES
    if tensor._at_once and is_for_host and run_on_host(tensor, call, alive):
        found.note_states()
        if tries < _FEW_RUNS:
            _tries.put(found.key, tries + 1)
        pool.count_hit()
        return
    _tries.put(found.key, tries + 1)
    if _compute_blocks(found, tensor):
        _run_for(left_of(waiting_calls(pool), call), tensor, call, compute)
        return
    below = described(found.leaves)
    if below is None:
        pool.expand()
        # A value that grows is memory from now on, so that the next step can be a segment.
        growing = [each.handle() for each in (*pool.together, *found.going_on(call))]
        compute([tensor, *[each for each in growing if each is not None and each is not tensor]])
    else:
        try:
            segment = _run_plain(found, below, tensor, call)
        except Exception as error:
            if not is_of_value(error):
                raise
            # Perhaps that of another result: what was asked for runs alone.
            pool.expand()
            compute([tensor])
        else:
            if segment is not None:
                _note(found.key, segment)
    pool.count_miss()


def _run_found(alive: list[Call], tensor: Any, call: Call) -> WaitingCalls | None:
    """Run the segment that is known for a call; where none is, the calls that its run concerns."""
    if _run_written(alive, tensor, call):
        return None
    numbers = (call.number, *[each.number for each in alive])
    if _run_concerned(alive, _latest.get(numbers), tensor, call):
        return None
    found = WaitingCalls(alive, call)
    if _run_known(found, tensor, call) or _run_sized(found, tensor, call):
        return None
    concerned = _concerned.get(found.key) or _concerned.put(found.key, found.concerned(call))
    if len(concerned) < len(alive):
        if _run_concerned(alive, concerned, tensor, call):
            _latest.put(numbers, concerned)
            return None
        found = WaitingCalls([alive[number] for number in concerned], call)
        if _run_known(found, tensor, call) or _run_sized(found, tensor, call):
            return None
    return found


def _compute_blocks(found: WaitingCalls, tensor: Any) -> bool:
    """Compute what the steps of a loop leave to later ones, if the calls are such a loop, and do
    not end in its gradients; whether that was to be done.
    """
    if any(call.is_loss for call in found.calls):
        return False
    blocks = blocks_of(found.by_time, device_of(tensor), has_gradients=False)
    if blocks is None or all(each.value is not None for one in blocks for each in one.outputs):
        return False
    return compute_results(blocks, compute_together)


def _note(key: tuple[int, ...], segment: Segment) -> None:
    """Remember a segment, instead of one for the same leaves."""
    others = [
        each
        for each in _known.get(key) or ()
        if each.kinds != segment.kinds or each.config is not segment.config
    ]
    _known.put(key, [segment, *others[: _MOST_KINDS - 1]])


def _run_written(alive: list[Call], tensor: Any, asked: Call) -> bool:
    """Run the segment of equal calls over equal leaves, if code was written for it."""
    switches = current_config()
    for segment, match in _written.get((asked.number, len(alive))) or ():
        if segment.config is switches or segment.config == switches:
            found = match(alive, asked)
            if found is True:
                return True
            if found:
                return _run_segment(segment, *found, tensor, asked)
    return False


def _run_concerned(
    alive: list[Call], concerned: tuple[int, ...] | None, tensor: Any, asked: Call
) -> bool:
    """As `_run_written`, of those results alone that a run concerns, if that is known."""
    return concerned is not None and _run_written(
        [alive[number] for number in concerned], tensor, asked
    )


def _write(
    segment: Segment, found: WaitingCalls, asked: Call, values_of: Values | None = None
) -> None:
    """Count a run of a segment; of one that has run often, write the code."""
    segment.runs += 1
    if segment.runs < _OFTEN:
        return
    segment.runs = _NEVER_AGAIN
    match = written(segment, found, asked, values_of)
    if match is not None:
        key = asked.number, len(found.alive)
        others = [each for each in _written.get(key) or () if each[0] is not segment]
        _written.put(key, [(segment, match), *others[: _MOST_KINDS - 1]])


def _run_known(found: WaitingCalls, tensor: Any, asked: Call) -> bool:
    """Run the segment of equal calls over equal leaves, if there is one."""
    segments = _known.get(found.key)
    if segments is None:
        return False
    switches = current_config()
    for segment in segments:
        if segment.config is not switches and segment.config != switches:
            continue
        below = bases_of(found.leaves, segment.kinds)
        if below is None:
            continue
        if segment.comes_again is not None and not segment.comes_again():
            return False
        bases, copies, values = below
        if segment is not segments[0]:
            # Another thread's list may be another one by now.
            _known.put(found.key, [segment, *[each for each in segments if each is not segment]])
        if segment.comes_again is None:
            _write(segment, found, asked)
        return _run_segment(segment, found, bases, copies, values, tensor, asked)
    return False


def _run_sized(found: WaitingCalls, tensor: Any, asked: Call) -> bool:
    """Run the segment of equal calls over leaves of other sizes, if there is one."""
    # A batch above a size that is memory at once is a leaf of another kind.
    for sized in _sized.get(found.key) or ():
        if sized.segment.config != current_config():
            continue
        below = sized.bases_of(found.leaves)
        if below is not None:
            _write(sized.segment, found, asked, sized.values_of)
            return _run_segment(sized.segment, found, *below, tensor, asked)
    return False


def _run_plain(found: WaitingCalls, below: Leaves, tensor: Any, asked: Call) -> Segment | None:
    """Run the nodes of a segment, and note what came of it, if an equal one can do the same."""
    plain = PlainNodes(found, below)
    others = ResultsAlive([plain.calls[each] for each in found.alive])
    roots = found.roots(asked)
    before = {call for call, node in plain.calls.items() if node.stored is not None}
    engine.realize([plain.calls[each] for each in roots], {}, others)
    memory = {leaf: base for base, leaf in plain.bases.items()}
    computed: list[tuple[Call, UOp, past.Reached | None, bool]] = []
    reaches = reached_by(found, plain)
    for call, node in plain.calls.items():
        is_lasting = node.stored is not None or not call.template.is_view
        if call in roots or is_lasting:
            stored = engine.realized(node)
            # The memory that a view looks at was there before: it has a past.
            is_new = stored is not None and base_of(stored) not in memory
            if stored is not None and (call in roots or is_new):
                computed.append((call, stored, reaches.get(call) if is_new else None, is_lasting))
    for copy, node in zip(below.copies, plain.copies, strict=True):
        if (stored := engine.realized(node)) is not None:
            engine.remember(copy, stored)
    segment = noted(found, below, plain, computed, others) if len(others.runs) < 2 else None
    if segment is not None:
        _note_sizes(segment, found, plain, asked, others)
    values: dict[UOp, Value] = {}
    results: list[Computed] = []
    for call, stored, reached, is_lasting in computed:
        moves, base = moves_of(stored)
        # A view of memory that was there before is one of that leaf, to which gradients go.
        base = memory.get(base, base)
        value = values.setdefault(base, Value(store.buffer_of(base), base))
        taker = call.handle() if call.is_write else None
        if taker is not None and is_leaf(taker):
            # As in `_take`: neither a node that was computed before has its memory, nor one that
            # equals this one from now on.
            if call in before:
                value = copied(value)
            plain.calls[call].stored = None
        results.append((found.calls.index(call), value, moves, reached, is_lasting))
    take(found, below.bases, tensor, asked, results)
    return segment


def _note_sizes(
    segment: Segment, found: WaitingCalls, plain: PlainNodes, asked: Call, others: ResultsAlive
) -> None:
    """Remember a segment for leaves of all sizes, if equal calls ran over leaves of other ones."""
    sizes = sizes_before(segment, found)
    before, failures = _sizes.get(found.key) or ((), 0)
    others_before = [each for each in before if each != sizes]
    if others_before and failures < _MOST_FAILURES:
        sized = sized_segment(segment, found, plain, asked, others, others_before)
        failures += sized is None
        if sized is not None:
            known, kinds = _sized.get(found.key) or (), sized.segment.kinds
            rest = [each for each in known if each.segment.kinds != kinds]
            _sized.put(found.key, [sized, *rest[: _MOST_KINDS - 1]])
    _sizes.put(found.key, ((*others_before[1 - _MOST_SIZES :], sizes), failures))


def _run_segment(
    segment: Segment,
    found: WaitingCalls,
    bases: list[Base],
    copies: list[UOp],
    numbers: dict[str, int],
    tensor: Any,
    asked: Call,
) -> bool:
    """Run a segment; False, and nothing has run, if that takes more than its plan."""
    outputs: list[Buffer] = []
    binding = segment.binding
    if binding is not None:
        ready = ready_plan(binding.plan) if binding.is_current else None
        if ready is None:
            return False
        try:
            inputs: list[Buffer] = []
            for number in segment.inputs:
                base = bases[number]
                inputs.append(base.buffer if isinstance(base, Value) else store.buffer_of(base))
            if numbers:
                numbers = {**segment.values, **numbers}
            outputs = ready.run(inputs, numbers or segment.values)
        except (NoRoomError, *VALUE_ERRORS):
            # The nodes tell the user's line.
            return False
    values: dict[int, Value] = {}
    computed: list[Computed] = []
    for position, source, moves, reached, is_lasting in segment.outcomes:
        value = values.get(source)
        if value is None:
            if source >= 0:
                # As `Value(...)`, without its frame.
                value = blank(Value)
                value.buffer, value.leaf, value.past = outputs[source], None, None
            else:
                value = _value_of(bases[-1 - source])
            values[source] = value
        if moves is None:
            shape = found.calls[position].shape
            moves = ((Ops.RESHAPE, shape, shape),)
        computed.append((position, value, moves, reached, is_lasting))
    if segment.config.SEGMENTS > 1:
        # While the copies are those that the calls stand on.
        compare(segment, found, asked, computed)
    for number, source in segment.copies:
        value = values.get(source)
        if value is None:
            value = values[source] = Value(outputs[source])
        engine.remember(copies[number], value.node())
    take(found, bases, tensor, asked, computed)
    return True


def _value_of(base: Base) -> Value:
    return base if isinstance(base, Value) else Value(store.buffer_of(base), base)
