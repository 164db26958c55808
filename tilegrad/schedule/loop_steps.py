"""A loop of the tensor graph as one item: the graph of a step, and which memory it finds when.

A step is a graph of assignments, scheduled and compiled once, like any other graph. The number of
the step is a variable in it, at which the rows of stacks begin. A carry alternates between two
buffers: a step reads the one and writes the other, so that the last step writes the memory of the
result, whatever the length, and nothing is copied.

before   LOOP_OUTPUT(LOOP(first, xs), 1)                body of the LOOP: SINK(c + x, c * x)
after    a Loop of SINK(ASSIGN(next, c + x), ASSIGN(SHRINK(out, ((step, step + 1),)), c * x))

Only the outputs that the graph asks for are made, and only the carries that these need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import DType
from tilegrad.ir.args import STEP, BufferArg, LoopArg
from tilegrad.ir.movement import reshape, shaped, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes, nodes_of
from tilegrad.ir.uop import UOp, prod, sint, toposort

__all__ = ["Loop", "carries_of", "memory_below", "sources_of", "step_of"]


@dataclass(frozen=True)
class Loop:
    """An item that runs its body `length` times, the last step first if it `is_reversed`. The
    length may be one that a launch says.

    Attributes:
        body: a SINK of assignments.
        positions: for the body's BUFFER -1 - i, the position in the item's buffers in the first
            iteration, if an even number of iterations follow and if an odd number do, and so in a
            later one.
    """

    body: UOp
    length: sint
    is_reversed: bool
    positions: tuple[tuple[int, int, int, int], ...]


def memory_below(loop: UOp, number: int) -> UOp:
    """The node that must be in memory for a step to read source `number` of a LOOP; the step does
    the movement. A carry is read from its own memory after the first step.
    """
    is_carry = number < loop.arg.carries
    source = loop.src[number]
    while _is_done_by_step(source) and (source.op is Ops.RESHAPE or not is_carry):
        if not all(isinstance(size, int) for size in (*source.shape, *source.src[0].shape)):
            # Where a row begins must not depend on how many there are.
            if source.op not in (Ops.RESHAPE, Ops.DETACH):
                break
        source = source.src[0]
    return source


def _is_done_by_step(node: UOp) -> bool:
    """Whether a node moves values in memory: the row of an outer loop's step is there first."""
    if not (node.op.is_movement or node.op is Ops.DETACH):
        return False
    return not any(
        each.op is Ops.SHRINK and any(isinstance(end, UOp) for pair in each.arg for end in pair)
        for each in (node, node.src[0])
    )


def carries_of(arg: LoopArg, outputs: Iterable[int]) -> list[int]:
    """The carries that `outputs` need, directly or by way of other carries."""
    found: set[int] = set()
    waiting = list(outputs)
    while waiting:
        output = waiting.pop()
        needed = {output - len(arg.body.src)}
        if output < len(arg.body.src):
            needed = {number for number in sources_of(arg, [output]) if number < arg.carries}
            needed |= {output} if output < arg.carries else set()
        waiting += needed - found
        found |= needed
    return sorted(found)


def sources_of(arg: LoopArg, outputs: Iterable[int]) -> set[int]:
    """The sources whose value a step needs for `outputs`."""
    nodes = toposort([arg.value(output) for output in outputs])
    return {-1 - node.arg.slot for node in nodes if node.op is Ops.BUFFER}


class _StepLeaves:
    """The leaves of a step, each with its positions."""

    def __init__(self, device: str):
        self.device = device
        self.positions: list[tuple[int, int, int, int]] = []

    def leaf(self, dtype: DType, shape: Sequence[sint], *positions: int) -> UOp:
        """Memory at a position, at one by what follows, or at four. Where a launch says the number
        of rows, memory has the most that there may be.
        """
        first_even, first_odd, even, odd = positions * (4 // len(positions))
        self.positions.append((first_even, first_odd, even, odd))
        sizes = tuple([size if isinstance(size, int) else int(size.vmax) for size in shape])
        arg = BufferArg(-len(self.positions), self.device, int(prod(sizes)))
        return shaped(UOp(Ops.BUFFER, dtype, (), arg), sizes)


def step_of(
    loop: UOp,
    device: str,
    written: Mapping[int, int],
    spare: Mapping[int, int],
    reads: Mapping[UOp, int],
) -> Loop:
    """The body of a LOOP, by positions in the item's buffers: those of each `written` output, with
    the last values of its carries; the `spare` buffer of each carry, if there are several steps;
    and the memory below each source that it `reads`.
    """
    arg: LoopArg = loop.arg
    most = arg.length if isinstance(arg.length, int) else int(arg.length.vmax)
    step = UOp.variable(STEP, 0, most - 1)
    memory = _StepLeaves(device)
    below: dict[UOp, UOp] = {}

    def value_of(number: int) -> UOp:
        """Source `number`, as a step finds it."""
        source = loop.src[number]
        base = memory_below(loop, number)
        if number < arg.carries:
            last = written[number]
            other = spare.get(number, last)
            first = reads[base]
            return memory.leaf(source.dtype, source.shape, first, first, other, last)
        is_stack = number < arg.carries + arg.stacks
        if is_stack and not isinstance(arg.length, int):
            return _row(memory.leaf(source.dtype, source.shape, reads[base]), step)
        if base not in below:
            below[base] = memory.leaf(base.dtype, base.shape, reads[base])
        value = _moved(source, below[base])
        return _row(value, step) if is_stack else value

    count = len(arg.body.src)
    before = [output - count for output in written if output >= count]
    found = {number: value_of(number) for number in sorted({*sources_of(arg, written), *before})}
    own = {node: -1 - node.arg.slot for node in nodes_of(arg.body, Ops.BUFFER)}
    made = {leaf: shaped(found[n], leaf.shape) for leaf, n in own.items() if n in found}
    targets: dict[int, UOp] = {}
    stacks: dict[int, UOp] = {}
    for output, slot in written.items():
        value = arg.value(output)
        if output < arg.carries:
            targets[output] = memory.leaf(value.dtype, value.shape, slot, spare.get(output, slot))
        else:
            stacks[output] = memory.leaf(value.dtype, arg.shape(output), slot)
            targets[output] = _row(stacks[output], step)
    outputs = [output for output in written if output < count]
    assigned = _values(arg, outputs, made, stacks, step)
    effects = []
    for output, target in targets.items():
        if output in assigned:
            effects.append(assigned[output])
        else:
            value = found[output - count] if output >= count else made[arg.value(output)]
            effects.append(UOp(Ops.ASSIGN, value.dtype, (target, value)))
    return Loop(UOp.sink(*effects), arg.length, arg.is_reversed, tuple(memory.positions))


def _values(
    arg: LoopArg,
    outputs: Sequence[int],
    made: dict[UOp, UOp],
    stacks: Mapping[int, UOp],
    step: UOp,
) -> dict[int, UOp]:
    """Make the nodes of the step's `outputs` over the leaves in `made`. A value that
    is stored anyway is written to the row of its stack, and read there. Returns the assignments
    that write rows.

    before   ASSIGN(row, SUM(x)), ASSIGN(next, f(SUM(x)))
    after    ASSIGN(row, SUM(x)), ASSIGN(next, f(row))
    """
    values = {arg.value(output): output for output in outputs if output >= arg.carries}
    rows = _stored_in_rows([arg.value(output) for output in outputs], values)
    assigned: dict[int, UOp] = {}
    for node in toposort([arg.value(output) for output in outputs]):
        if node not in made:
            src = tuple([made[source] for source in node.src])
            made[node] = node.over(src)
        if node in rows:
            output = rows[node]
            value = shaped(made[node], arg.value(output).shape)
            assigned[output] = UOp(Ops.ASSIGN, value.dtype, (_row(stacks[output], step), value))
            made[node] = shaped(_row_after(stacks[output], assigned[output], step), node.shape)
    return assigned


def _stored_in_rows(values: Sequence[UOp], outputs: Mapping[UOp, int]) -> dict[UOp, int]:
    """Outputs that a step adds to stacks and whose value it stores anyway, as it reads it again: a
    sum, or an operand that a product reads many times. The row of the stack is that memory. Keys
    are the values without their last reshapes.
    """
    users: dict[UOp, list[UOp]] = {}
    for node in toposort(values):
        for source in node.src:
            users.setdefault(source, []).append(node)
    found: dict[UOp, int] = {}
    for value, output in outputs.items():
        base = below_reshapes(value)
        is_read_often = base.op is Ops.REDUCE_AXIS or _is_factor(base, users)
        if base.op is not Ops.BUFFER and users.get(base) and is_read_often:
            found[base] = output
    return found


def _is_factor(node: UOp, users: Mapping[UOp, Sequence[UOp]]) -> bool:
    """Whether a value is stretched, through movement alone."""
    waiting = [node]
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if user.op is Ops.EXPAND and prod(user.shape) > prod(user.src[0].shape):
                return True
            if user.op in (Ops.RESHAPE, Ops.PERMUTE):
                waiting.append(user)
    return False


def _row(stack: UOp, step: UOp) -> UOp:
    """The step's row of a stack."""
    whole = tuple((0, size) for size in stack.shape[1:])
    return reshape(shrink(stack, ((step, step + 1), *whole)), stack.shape[1:])


def _row_after(stack: UOp, assign: UOp, step: UOp) -> UOp:
    """The step's row of a stack, once it has been written."""
    base = stack.src[0] if stack.op is Ops.RESHAPE else stack
    written = UOp(Ops.AFTER, base.dtype, (base, assign))
    return _row(shaped(written, stack.shape), step)


def _moved(source: UOp, base: UOp) -> UOp:
    """`base` under the movement ops that `source` has above its own."""
    chain = []
    while _is_done_by_step(source):
        chain.append(source)
        source = source.src[0]
    for node in reversed(chain):
        if node.op is not Ops.DETACH:
            base = UOp(node.op, node.dtype, (base,), node.arg)
    return base
