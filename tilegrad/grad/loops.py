"""The derivative of a loop: a loop over the same steps the other way round.

A step's derivative needs what the step found: the carries as they were, which the forward loop
stacks if it is asked for them, and the rows of the stacks. So memory grows with the number of steps
by the carries alone, and each step is computed once more on the way back.

forward    c' , y = f(c, x, w)         for each step
backward   gc, gx, gw' = the pullback of f at (c, x, w) of (gc', gy);  gw + gw'

The gradients of the carries are carried, those of the stacks are stacked, and those of what all
steps share are sums, carried too. The result is a LOOP, so it has a derivative in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from tilegrad.base.dtype import sum_dtype
from tilegrad.ir.args import LoopArg
from tilegrad.ir.loops import Pair, loop_of, part_of, shaped, stand_in
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["LOOPS", "loop_gradients"]

LOOPS = frozenset({Ops.LOOP, Ops.PART})
"""What has a derivative here, and not in a rule of one node."""

Pullback = Callable[[Sequence[UOp], Sequence[UOp], Sequence[UOp]], list[UOp | None]]


def loop_gradients(
    loop: UOp, given: Mapping[int, UOp], wanted: Set[UOp], pullback: Pullback
) -> list[Pair]:
    """The sources of `loop` that are `wanted` and that a gradient reaches by those `given` of its
    parts, each with its gradient.
    """
    arg: LoopArg = loop.arg
    values = arg.body.src
    leaves = {node: -1 - node.arg.slot for node in arg.body.toposort() if node.op is Ops.BUFFER}
    if not leaves or not given:
        return []
    device = next(iter(leaves)).arg.device
    own = {number: leaf for leaf, number in leaves.items()}
    is_asked = [source.dtype.is_float and source in wanted for source in loop.src]
    flowing = [number for number in range(arg.carries) if values[number].dtype.is_float]

    # What comes in: the gradients of the carries as they are carried back, of the rows given.
    back = {n: stand_in(values[n].dtype, values[n].shape, device) for n in flowing}
    rows = {
        part: stand_in(gradient.dtype, arg.value(part).shape, device)
        for part, gradient in given.items()
        if part >= arg.carries
    }
    seeds = {number: shaped(back[number], values[number].shape) for number in flowing}
    kept: dict[int, UOp] = {}
    for part, row in rows.items():
        row = shaped(row, arg.value(part).shape)
        if part < len(values):
            seeds[part] = row
        else:
            kept[part - len(values)] = row
    targets = [
        own[number]
        for number in sorted(own)
        if (number in flowing if number < arg.carries else is_asked[number])
    ]
    flows = pullback([values[part] for part in seeds], [*seeds.values()], targets)
    found = dict(zip(targets, flows, strict=True))

    # What goes out.
    carries: list[Pair] = []
    made: list[UOp] = []
    place: dict[int, int] = {}
    for number in flowing:
        flow = found.get(own[number]) if number in own else None
        flow = _zeros(back[number]) if flow is None else flow
        flow = shaped(flow, values[number].shape)
        first = given.get(number)
        carries.append((back[number], _zeros(values[number]) if first is None else first))
        place[number] = len(made)
        made.append(flow + kept[number] if number in kept else flow)
    for number in range(arg.carries + arg.stacks, len(loop.src)):
        flow = found.get(own[number]) if number in own else None
        if flow is not None:
            # Many steps are a long sum.
            wide = sum_dtype(flow.dtype)
            shape = loop.src[number].shape
            total = stand_in(wide, shape, device)
            carries.append((total, _zeros(shaped(total, shape))))
            place[number] = len(made)
            made.append(shaped(total, shape) + shaped(flow.cast(wide), shape))
    for number in range(arg.carries, arg.carries + arg.stacks):
        flow = found.get(own[number]) if number in own else None
        if flow is not None:
            place[number] = len(made)
            made.append(shaped(flow, loop.src[number].shape[1:]))
    stacks = [(leaf, given[part]) for part, leaf in rows.items()]
    shared: list[Pair] = []
    for leaf, number in leaves.items():
        if number < arg.carries:
            stacks.append((leaf, part_of(loop, len(values) + number)))
        else:
            is_stack = number < arg.carries + arg.stacks
            (stacks if is_stack else shared).append((leaf, loop.src[number]))
    backward = loop_of(
        made, carries, stacks, shared, arg.length, device, is_reversed=not arg.is_reversed
    )
    return [
        (source, part_of(backward, place[number]).cast(source.dtype))
        for number, source in enumerate(loop.src)
        if is_asked[number] and number in place
    ]


def _zeros(like: UOp) -> UOp:
    shape = like.shape
    zero = shaped(UOp.const(like.dtype, 0.0), (1,) * len(shape))
    return zero if zero.shape == shape else UOp(Ops.EXPAND, like.dtype, (zero,), shape)
