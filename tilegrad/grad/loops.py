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

__all__ = ["LOOPS", "batched_loop", "loop_gradients", "loop_tangents"]

LOOPS = frozenset({Ops.LOOP, Ops.PART})
"""What has a derivative here, and not in a rule of one node."""

Pullback = Callable[[Sequence[UOp], Sequence[UOp], Sequence[UOp]], list[UOp | None]]
Pushforward = Callable[[Sequence[UOp], Mapping[UOp, UOp]], list[UOp | None]]


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


def loop_tangents(
    loop: UOp, given: Sequence[UOp | None], pushforward: Pushforward
) -> dict[int, UOp]:
    """The tangents of the parts of `loop`, by those `given` of its sources: of a loop that carries
    the tangents of its carries beside them.
    """
    arg: LoopArg = loop.arg
    values = arg.body.src
    own = {-1 - node.arg.slot: node for node in arg.body.toposort() if node.op is Ops.BUFFER}
    if not own:
        return {}
    device = next(iter(own.values())).arg.device
    moving = [number for number in range(arg.carries) if values[number].dtype.is_float]
    changes: dict[UOp, UOp] = {}
    carried: dict[int, Pair] = {}
    stacks: list[Pair] = []
    shared: list[Pair] = []
    for number, source in enumerate(loop.src):
        is_carry, is_stack = number < arg.carries, number < arg.carries + arg.stacks
        tangent = given[number]
        if is_carry:
            leaf = own.get(number)
            leaf = stand_in(source.dtype, source.shape, device) if leaf is None else leaf
            carried[number] = leaf, source
        elif number in own:
            (stacks if is_stack else shared).append((own[number], source))
        if number in moving or (tangent is not None and number in own and not is_carry):
            change = stand_in(
                source.dtype, source.shape[1 if is_stack and not is_carry else 0 :], device
            )
            if number in own:
                changes[own[number]] = change
            first = _zeros(values[number]) if tangent is None else tangent
            if is_carry:
                carried[arg.carries + number] = change, first
            else:
                (stacks if is_stack else shared).append((change, first))
    tangents = pushforward(values, changes)
    order = [*range(arg.carries), *(arg.carries + number for number in moving)]
    made = list(values[: arg.carries])
    for number in moving:
        tangent = tangents[number]
        made.append(_zeros(values[number]) if tangent is None else tangent)
    place = {number: arg.carries + rank for rank, number in enumerate(moving)}
    for number in range(arg.carries, len(values)):
        tangent = tangents[number]
        if tangent is not None:
            place[number] = len(made)
            made.append(tangent)
    both = loop_of(
        made,
        [carried[number] for number in order],
        stacks,
        shared,
        arg.length,
        device,
        is_reversed=arg.is_reversed,
    )
    found = {number: part_of(both, where) for number, where in place.items()}
    for number in moving:
        found[len(values) + number] = part_of(both, len(made) + place[number])
    return found


def batched_loop(
    loop: UOp,
    mapped: Mapping[UOp, UOp],
    size: int,
    batch: Callable[[Sequence[UOp], Mapping[UOp, UOp]], list[UOp | None]],
) -> UOp:
    """`loop` for `size` examples, of whose sources those `mapped` have an axis of them in front.

    Carries have that axis, rows of stacks have it behind that of the steps; so have the parts,
    unless a row is the same for all examples. `batch` gives values over other leaves with the axis,
    None for those that depend on none of these.
    """
    arg: LoopArg = loop.arg
    own = {-1 - node.arg.slot: node for node in arg.body.toposort() if node.op is Ops.BUFFER}
    device = next(iter(own.values())).arg.device if own else ""
    leaves: dict[UOp, UOp] = {}
    pairs: list[Pair] = []
    for number, source in enumerate(loop.src):
        is_carry, is_stack = number < arg.carries, number < arg.carries + arg.stacks
        if not is_carry and source not in mapped:
            pairs.append((own.get(number, source), source))
            continue
        whole = mapped.get(source)
        if whole is None:
            one = shaped(source, (1, *source.shape))
            whole = UOp(Ops.EXPAND, source.dtype, (one,), (size, *source.shape))
        shape = source.shape[1:] if is_stack and not is_carry else source.shape
        if is_stack and not is_carry:
            order = (1, 0, *range(2, len(whole.shape)))
            whole = UOp(Ops.PERMUTE, whole.dtype, (whole,), order)
        leaf = stand_in(source.dtype, (size, *shape), device)
        pairs.append((leaf, whole))
        if number in own:
            leaves[own[number]] = shaped(leaf, (size, own[number].arg.size))
    made: list[UOp] = []
    for number, (value, found) in enumerate(
        zip(arg.body.src, batch(arg.body.src, leaves), strict=True)
    ):
        if found is None and number < arg.carries:
            one = shaped(value, (1, *value.shape))
            found = UOp(Ops.EXPAND, value.dtype, (one,), (size, *value.shape))
        made.append(value if found is None else found)
    first, last = arg.carries, arg.carries + arg.stacks
    return loop_of(
        made,
        pairs[:first],
        pairs[first:last],
        pairs[last:],
        arg.length,
        device,
        is_reversed=arg.is_reversed,
    )


def _zeros(like: UOp) -> UOp:
    shape = like.shape
    zero = shaped(UOp.const(like.dtype, 0.0), (1,) * len(shape))
    return zero if zero.shape == shape else UOp(Ops.EXPAND, like.dtype, (zero,), shape)
