"""The second half of the code that is written for a segment (`segment_code`): its run, and what
each call has after it. The lines do what `segments._run_segment` and `take` do by loops:

    outputs = ready.run([b0.buffer if b0.__class__ is Value else buffer_of(b0)], k7)
    v0 = blank(Value); v0.buffer = outputs[0]; ...
    c0.value = v0; c0.moves = k9; c0.generation = generation
    ...

and there are none for a segment whose run may take more than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tilegrad.base.flat_code import FlatCode
from tilegrad.device.registry import Device
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.leaf_memory import VALUE_ERRORS
from tilegrad.engine.run.ready import NoRoomError
from tilegrad.engine.run.run import ready_plan, record_of_thread, timer_of_thread
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.aliases import same_storage
from tilegrad.tensor.handle.living import generations
from tilegrad.tensor.handle.waiting import (
    Call,
    Number,
    Value,
    become_memory,
    expand,
    settle_alias,
    this_thread,
)
from tilegrad.tensor.storage import past, running
from tilegrad.tensor.storage.ended_ways import end_way, end_ways, waiting_on
from tilegrad.tensor.storage.generations import generation_of
from tilegrad.tensor.storage.memory import needs_no_run
from tilegrad.tensor.storage.memory_below import Base
from tilegrad.tensor.storage.noted_runs import Computed, Outcome, Segment
from tilegrad.tensor.storage.signatures import WaitingCalls

__all__ = [
    "copied", "give_back", "guards_of", "is_leaf", "is_plain", "stand_on_memory",
    "stands_on_memory", "take", "take_lines", "value_for",
]  # fmt: skip


def is_plain(segment: Segment, found: WaitingCalls, asked: Call) -> bool:
    """Whether each run of a segment is one of its plan, and all that it leaves is known before."""
    if segment.binding is None or segment.config.SEGMENTS > 1:
        return False
    if ready_plan(segment.binding.plan) is None:
        return False
    # Else that is a view of memory, which is made again.
    return any(each.is_lasting and found.calls[each.call] is asked for each in segment.outcomes)


def guards_of(segment: Segment, found: WaitingCalls) -> list[str]:
    """The conditions under which the calls are others than those that the lines are for."""
    guards: list[str] = []
    for number in dict.fromkeys([each.call for each in segment.outcomes]):
        call = found.calls[number]
        guards.append(f"c{number}.requires_grad is not {call.requires_grad}")
        if number >= len(found.alive):
            guards.append(f"{'not ' if call.is_write else ''}c{number}.is_write")
    return guards


def take_lines(writer: FlatCode, segment: Segment, found: WaitingCalls) -> None:
    """Write the lines for a segment that `is_plain`. Before them, calls `c0`, `c1`, their leaves
    `l0`, `l1`, the memory below, `b0`, `b1`, and `values` of variables have names.
    """
    writer.names |= {
        "buffer_of": store.buffer_of, "generation_of": generation_of, "generations": generations,
        "give_back": give_back, "note_run": past.note_run,
        "record": record_of_thread, "remember": engine.remember,
        "stand_on_memory": stand_on_memory, "timer": timer_of_thread, "Value": Value,
        "value_for": value_for,
    }  # fmt: skip
    _run(writer, segment)
    _values(writer, segment)
    leaves = range(len(found.leaves))
    add = writer.lines.append
    add("generation = 0")
    for number in leaves:
        if not isinstance(found.leaves[number], Number):
            leaf = f"l{number}"
            add(f"if {leaf}.__class__ is Call and {leaf}.value is not None:")
            add(f"    if {leaf}.generation > generation: generation = {leaf}.generation")
            add(f"elif {leaf}.__class__ is Call or {leaf}.stored is not None:")
            add(f"    generation = max(generation, generation_of({leaf}))")
    add("generation += 1")
    add("waiting, done = asked.pool.waiting, asked.pool.computed")
    lasting = [each for each in segment.outcomes if each.is_lasting]
    counts = Counter([each.source for each in lasting])
    if len(counts) < len(lasting):
        add("first_of = {}")
    for each in lasting:
        _take(writer, each, is_shared=counts[each.source] > 1)
    add("if len(done) >= asked.pool.many: asked.pool.forget_dead()")
    _note(writer, segment, found)
    for call in found.states:
        add(f"c{found.calls.index(call)}.is_state = True")
    for call in found.writes:
        _end_write(writer, found.calls.index(call))
    last = [each.call for each in lasting if not _has_graph(found.calls[each.call])]
    if last:
        add(f"if generation >= {running.MOST_GENERATIONS}:")
        add(f"    {'; '.join([f'give_back(c{number})' for number in last])}")
    _end_ways(writer, segment, found)
    add("return True")


def _end_ways(writer: FlatCode, segment: Segment, found: WaitingCalls) -> None:
    """Let calls that still wait have the memory of operands that no gradient flows to."""
    computed = {found.calls[each.call] for each in segment.outcomes}
    numbers = {call: number for number, call in enumerate(found.calls)}
    for call in waiting_on(found.alive, computed):
        if call not in numbers:
            # It is below a leaf that was computed as a node.
            continue
        flowing = call.template.flowing(call.slot)
        inputs = enumerate(call.inputs or ())
        if any(each.__class__ is Call and at not in flowing for at, each in inputs):
            ended = writer.name(end_way)
            writer.lines.append(f"{ended}(c{numbers[call]})")


def _has_graph(call: Call) -> bool:
    return bool(call.requires_grad or call.is_write)


def _run(writer: FlatCode, segment: Segment) -> None:
    """Run the plan, unless somebody is to see its steps or a device is another one by now."""
    add = writer.lines.append
    binding = segment.binding
    assert binding is not None
    ready = ready_plan(binding.plan)
    assert ready is not None
    backends = dict(binding.backends)
    backends[ready.backend.name] = ready.backend
    conditions = ["record() is not None", "timer() is not None"]
    for name, backend in backends.items():
        at_hand, known = writer.name(Device.at_hand), writer.name(backend)
        conditions.append(f"{at_hand}({name!r}) is not {known}")
    add(f"if {' or '.join(conditions)}: return False")
    inputs = [
        f"b{number}.buffer if b{number}.__class__ is Value else buffer_of(b{number})"
        for number in segment.inputs
    ]
    fixed = writer.name(segment.values)
    add("try:")
    add(
        f"    outputs = {writer.name(ready)}.run([{', '.join(inputs)}], "
        f"{{**{fixed}, **values}} if values else {fixed})"
    )
    # The nodes tell the user's line.
    add(f"except {writer.name((NoRoomError, *VALUE_ERRORS))}: return False")


def _values(writer: FlatCode, segment: Segment) -> None:
    """Name the memory of each outcome: `v0`, `v1`, and `m1` what was there before. Copies from the
    host are known by their nodes.
    """
    add = writer.lines.append
    sources = [each.source for each in segment.outcomes]
    for source in dict.fromkeys([*sources, *[source for _, source in segment.copies]]):
        if source >= 0:
            add(f"v{source} = value = blank(Value)")
            add(f"value.buffer = outputs[{source}]; value.leaf = value.past = None")
        else:
            base = f"b{-1 - source}"
            of_node = f"Value(buffer_of({base}), {base})"
            add(f"{_value(source)} = {base} if {base}.__class__ is Value else {of_node}")
    if segment.copies:
        add("made = [*copies]")
    for number, source in segment.copies:
        add(f"remember(made[{number}], {_value(source)}.node())")


def _value(source: int) -> str:
    return f"v{source}" if source >= 0 else f"m{-1 - source}"


def _take(writer: FlatCode, outcome: Outcome, *, is_shared: bool) -> None:
    """Let a call have its memory, which may be that of others as well."""
    add = writer.lines.append
    call, value = f"c{outcome.call}", _value(outcome.source)
    if outcome.moves is None:
        add(f"moves = (({writer.name(Ops.RESHAPE)}, {call}.shape, {call}.shape),)")
    else:
        add(f"moves = {writer.name(outcome.moves)}")
    add(f"each = {call}.handle()")
    add(f"is_its = each is not None and each._call is {call}")
    if is_shared:
        add(f"value = value_for(each, {value}, first_of) if is_its else {value}")
        value = "value"
    add(f"{call}.value = {value}; {call}.moves = moves; {call}.generation = generation")
    add(f"if {call}.node is not None:")
    add(f"    remember({call}.node, {value}.node(moves))")
    add(f"    if not {call}.requires_grad: generations[{call}.node] = generation")
    add("if is_its:")
    add(f"    if {call}.handle in waiting:")
    add(f"        waiting.discard({call}.handle); done.append({call}.handle)")


def _note(writer: FlatCode, segment: Segment, found: WaitingCalls) -> None:
    """Note what values were computed from."""
    noted = [
        f"({each.call}, {_value(each.source)}, {writer.name(each.reached)})"
        for each in segment.outcomes
        if each.reached is not None and not _has_graph(found.calls[each.call])
    ]
    if not noted:
        return
    bases = [f"b{number}" for number in range(_base_count(segment.kinds))]
    leaves = [f"l{number}" for number in range(len(found.leaves))]
    writer.lines.append(
        f"note_run([{', '.join(noted)}], [{', '.join(leaves)}], [{', '.join(bases)}], alive)"
    )


def _base_count(kinds: Sequence[Any]) -> int:
    return len({kind.base for kind in kinds if hasattr(kind, "base")})


def _end_write(writer: FlatCode, number: int) -> None:
    """No gradient goes on below what was assigned; and what is written next goes to the memory,
    which the node of a call does not show.
    """
    call = f"c{number}"
    add = writer.lines.append
    add(f"{call}.inputs = None; {call}.generation = 0")
    add(f"if {call}.node is not None and {call}.value is not None:")
    add(f"    each = {call}.handle()")
    add(f"    if each is not None and each._call is {call} and not each._requires_grad:")
    add(f"        stand_on_memory(each, {call}, {call}.value.node({call}.moves))")


def take(
    found: WaitingCalls,
    bases: Sequence[Base],
    tensor: Any,
    asked: Call,
    computed: Sequence[Computed],
) -> None:
    """Let calls have the memory that a run gave them."""
    generation = found.generation + 1
    calls = found.calls
    waiting, done = asked.pool.waiting, asked.pool.computed
    first_of: dict[Value, Any] = {}
    noted: list[tuple[int, Value, past.Reached]] = []
    for number, value, moves, reached, is_lasting in computed:
        call = calls[number]
        if reached is not None and not (call.requires_grad or call.is_write):
            # Else its graph is alive, or it ends there.
            noted.append((number, value, reached))
        if not is_lasting:
            continue
        each: Any = call.handle()
        is_its = each is not None and each._call is call
        if is_its:
            value = value_for(each, value, first_of)
        call.value, call.moves, call.generation = value, moves, generation
        if call.node is not None:
            engine.remember(call.node, value.node(moves))
            if not call.requires_grad:
                generations[call.node] = generation
        if is_its:
            if call.handle in waiting:
                waiting.discard(call.handle)
                done.append(call.handle)
    asked.pool.forget_dead()
    if noted:
        past.note_run(noted, found.leaves, bases, found.alive)
    found.note_states()
    for call in found.writes:
        # No gradient goes on below what was assigned.
        call.inputs = None
        call.generation = 0
        each = call.handle()
        is_plain = each is not None and each._call is call and not each._requires_grad
        if is_plain and call.node is not None and call.value is not None:
            # The next write goes to the memory, which its node does not show.
            stand_on_memory(each, call, call.value.node(call.moves))
    if asked.value is None:
        # A view of memory that is made again.
        for number, value, moves, _, _ in computed:
            if calls[number] is asked:
                stand_on_memory(tensor, asked, value.node(moves))
    if generation >= running.MOST_GENERATIONS:
        for number, _, _, _, is_lasting in computed:
            call = calls[number]
            if is_lasting and not (call.requires_grad or call.is_write):
                give_back(call)
    end_ways(found.alive)


def stand_on_memory(tensor: Any, call: Call, memory: UOp) -> None:
    """Let the tensor of a call that was computed stand on the memory."""
    call.pool.forget(call.handle)
    if call.requires_grad and call.inputs is not None:
        # Its graph is alive beside its memory.
        expand(call)
    if call.node is not None:
        running.become_memory(tensor, call.node, memory)
    else:
        become_memory(tensor, call, memory)


def give_back(call: Call) -> None:
    """Let the result of a call that was computed stand on its memory alone."""
    tensor = call.handle()
    if tensor is not None and tensor._call is call:
        if call.node is not None and call.value is not None:
            stand_on_memory(tensor, call, call.value.node(call.moves))
        else:
            settle_alias(tensor, call)
    call.inputs = None
    call.generation = 0


def value_for(tensor: Any, value: Value, first_of: dict[Value, Any]) -> Value:
    """The memory for a tensor whose call has `value`. Results of equal calls share one, and who
    writes to one of them copies it first: `first_of` knows the first of them. A leaf shares with no
        other tensor, as values computed from its memory have its gradient.
    """
    first = first_of.setdefault(value, tensor)
    if first is not tensor and not same_storage(first, tensor):
        if is_leaf(first) or is_leaf(tensor):
            return copied(value)
        first._is_shared = tensor._is_shared = True
    return value


def is_leaf(tensor: Any) -> bool:
    return bool(tensor._requires_grad and tensor._is_leaf)


def copied(value: Value) -> Value:
    """The same in memory of its own."""
    buffer = value.buffer
    own = Device[buffer.allocator.device].buffer(buffer.size, buffer.dtype)
    own.copy_in(buffer.copy_out())
    return Value(own)


def stands_on_memory(tensor: Any) -> bool:
    """Whether a tensor is a view of memory, here or at the host, and needs no run. A computed one
    that no gradient can be asked for is one from now on.
    """
    call: Call | None = tensor._call
    if call is None:
        return needs_no_run(tensor._node)
    if call.requires_grad or call.pool is not this_thread.pool:
        return False
    if call.value is None:
        return _is_view_of_memory(call)
    with engine.exclusive():
        if tensor._call is call:
            stand_on_memory(tensor, call, call.value.node(call.moves))
    return tensor._call is None


def _is_view_of_memory(call: Call) -> bool:
    """Whether a call that waits moves what is in memory."""
    inputs = call.inputs
    if inputs is None or len(inputs) != 1 or not call.template.is_view_at(call.slot):
        return False
    (below,) = inputs
    return isinstance(below, UOp) and needs_no_run(below)
