"""The derivative of a loop: a loop over the same steps the other way round.

A step's derivative needs the step's inputs: the carries as they were, which the forward loop stacks
if it is asked for them, and the rows of the stacks. So memory grows with the number of steps by the
carries alone, and each step is computed once more on the way back.

forward    c' , y = f(c, x, w)         for each step
backward   gc, gx, gw' = the pullback of f at (c, x, w) of (gc', gy);  gw + gw'

The gradients of the carries are carried, those of the stacks are stacked. Those of sources
that all steps share are sums: of products after the loop (`over_steps`) where the factors take less
memory than the products, else carried too. Outputs of the forward loop are read and not computed
again. The result is a LOOP, so it has a derivative as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.grad.over_steps import sum_over_steps, worth_stacking
from tilegrad.ir.args import LoopArg
from tilegrad.ir.loop_building import Pair, loop_of, output_of, stand_in
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes, nodes_of
from tilegrad.ir.uop import UOp, toposort

__all__ = ["LOOPS", "batched_loop", "loop_gradients", "loop_tangents"]

LOOPS = frozenset({Ops.LOOP, Ops.LOOP_OUTPUT})
"""Ops whose derivative is here, and not in a rule of one node."""

Pullback = Callable[[Sequence[UOp], Sequence[UOp], Sequence[UOp]], list[UOp | None]]
Pushforward = Callable[[Sequence[UOp], Mapping[UOp, UOp]], list[UOp | None]]


class _LoopBody:
    """The body of a loop, with the answers that a derivative needs of it.

    The sources of a loop are numbered: first the carries, then the stacks, then the values that all
    steps share; `own` has the leaf of the body for each that it uses. `differentiable` are the
    carries that have derivatives.
    """

    def __init__(self, loop: UOp):
        arg: LoopArg = loop.arg
        self.loop, self.arg, self.values = loop, arg, arg.body.src
        self.own = {-1 - node.arg.slot: node for node in nodes_of(arg.body, Ops.BUFFER)}
        self.device: str = next(iter(self.own.values())).arg.device if self.own else ""
        self.carries = range(arg.carries)
        self.stacks = range(arg.carries, arg.carries + arg.stacks)
        self.shared = range(arg.carries + arg.stacks, len(loop.src))
        self.differentiable = [
            number for number in self.carries if self.values[number].dtype.is_float
        ]

    def stand_in(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
        return stand_in(dtype, shape, self.device)

    def source_shape(self, number: int) -> tuple[int, ...]:
        """The shape of source `number` within a step: of a stack, one row."""
        shape = self.loop.src[number].shape
        return shape[1:] if number in self.stacks else shape


class _Flow(NamedTuple):
    """The value that a step of the backward loop makes for source `number`; `carry` if it is
    carried on.
    """

    number: int
    value: UOp
    carry: Pair | None = None


def loop_gradients(
    loop: UOp, given: Mapping[int, UOp], wanted: Set[UOp], pullback: Pullback
) -> list[Pair]:
    """The sources of `loop` that are `wanted` and that a gradient reaches by those `given` of its
    parts, each with its gradient.
    """
    body = _LoopBody(loop)
    if not body.own or not given:
        return []
    is_asked = [source.dtype.is_float and source in wanted for source in loop.src]
    back = {
        n: body.stand_in(body.values[n].dtype, body.values[n].shape) for n in body.differentiable
    }
    rows = {
        number: body.stand_in(gradient.dtype, body.arg.value(number).shape)
        for number, gradient in given.items()
        if number >= body.arg.carries
    }
    found = _pulled_back(body, back, rows, is_asked, pullback)
    found, materialised = _materialised(body, found)
    stacks, shared = _found_again(body)
    stacks = [*((leaf, given[number]) for number, leaf in rows.items()), *materialised, *stacks]
    carried, stacked = _carried_back(body, back, rows, given, found), _stacked(body, found)
    later = _summed_later(body, found, stacked, stacks)
    at_once = {number: flow for number, flow in found.items() if number not in later}
    flows = [*carried, *_summed(body, at_once), *stacked]
    values = [flow.value for flow in flows]
    # Factors of later sums that are stacked for these sums alone.
    leaves = {*back.values(), *(leaf for leaf, _ in (*stacks, *shared))}
    bases = {below_reshapes(value) for value in values} | leaves
    values += dict.fromkeys(
        factor for each in later.values() for factor in each if factor not in bases
    )
    backward = loop_of(
        values,
        [flow.carry for flow in flows if flow.carry is not None],
        stacks,
        shared,
        body.arg.length,
        body.device,
        is_reversed=not body.arg.is_reversed,
    )
    made = {flow.number: output_of(backward, number) for number, flow in enumerate(flows)}
    if later:
        known = _all_steps(backward, values, [*back.values()], stacks)
        outside = {leaf: shaped(source, leaf.shape) for leaf, source in shared}
        for number in later:
            made[number] = sum_over_steps(found[number], body.arg.length, known, outside)
    return [
        (source, shaped(made[number], source.shape).cast(source.dtype))
        for number, source in enumerate(loop.src)
        if is_asked[number] and number in made
    ]


def _materialised(body: _LoopBody, found: Mapping[int, UOp]) -> tuple[dict[int, UOp], list[Pair]]:
    """The gradients by results of the forward steps, where these are a part of the loop: they are
    read and not computed once more. With the stacks that they read.
    """
    nodes = toposort(found.values())
    mapping: dict[UOp, UOp] = {}
    stacks: list[Pair] = []
    for number in range(body.arg.carries, len(body.values)):
        value = body.values[number]
        if value in nodes and not (value.op.is_movement or value.op is Ops.BUFFER):
            leaf = body.stand_in(value.dtype, value.shape)
            mapping[value] = shaped(leaf, value.shape)
            stacks.append((leaf, output_of(body.loop, number)))
    if not mapping:
        return dict(found), []
    return dict(zip(found, UOp.sink(*found.values()).substitute(mapping).src, strict=True)), stacks


def _summed_later(
    body: _LoopBody, found: Mapping[int, UOp], stacked: Sequence[_Flow], stacks: Sequence[Pair]
) -> dict[int, list[UOp]]:
    """The shared sources whose gradient is one sum after the loop, each with the values of every
    step that it needs. The stacks for them are at most as large as all reads of the steps.
    """
    flows = {number: found[number] for number in body.shared if number in found}
    known = {leaf for leaf, _ in stacks} | {body.own[number] for number in body.shared
                                            if number in body.own}  # fmt: skip
    known |= {below_reshapes(flow.value) for flow in stacked}
    return worth_stacking(flows, known, sum(leaf.arg.size for leaf, _ in stacks))


def _all_steps(
    backward: UOp, values: Sequence[UOp], back: Sequence[UOp], stacks: Sequence[Pair]
) -> dict[UOp, UOp]:
    """The values of all steps, with the axis of steps in front, by the value of one step."""
    length = backward.arg.length
    known = {leaf: shaped(source, (length, *leaf.shape)) for leaf, source in stacks}
    for number, leaf in enumerate(back):
        known[leaf] = shaped(output_of(backward, len(values) + number), (length, *leaf.shape))
    for number in range(backward.arg.carries, len(values)):
        base = below_reshapes(values[number])
        known.setdefault(base, shaped(output_of(backward, number), (length, *base.shape)))
    return known


def _pulled_back(
    body: _LoopBody,
    back: Mapping[int, UOp],
    rows: Mapping[int, UOp],
    is_asked: Sequence[bool],
    pullback: Pullback,
) -> dict[int, UOp]:
    """The gradient of each source in one step, of those `back` of the carries, and those of `rows`
    that the loop gives.
    """
    seeds = {
        number: shaped(back[number], body.values[number].shape) for number in body.differentiable
    }
    for number, row in rows.items():
        if number < len(body.values):
            seeds[number] = shaped(row, body.arg.value(number).shape)
    targets = [
        number
        for number in sorted(body.own)
        if (number in body.differentiable if number in body.carries else is_asked[number])
    ]
    flows = pullback(
        [body.values[number] for number in seeds],
        [*seeds.values()],
        [body.own[number] for number in targets],
    )
    return {number: flow for number, flow in zip(targets, flows, strict=True) if flow is not None}


def _carried_back(
    body: _LoopBody,
    back: Mapping[int, UOp],
    rows: Mapping[int, UOp],
    given: Mapping[int, UOp],
    found: Mapping[int, UOp],
) -> list[_Flow]:
    """The gradients of the carries, which the step before goes on with. A carry whose values are
    stacked gets, in each step, the gradient of that step's value too.
    """
    flows = []
    for number in body.differentiable:
        shape = body.values[number].shape
        flow = shaped(found.get(number, _zeros(back[number])), shape)
        row = rows.get(len(body.values) + number)
        first = given.get(number)
        carry = back[number], _zeros(body.values[number]) if first is None else first
        flows.append(_Flow(number, flow if row is None else flow + shaped(row, shape), carry))
    return flows


def _summed(body: _LoopBody, found: Mapping[int, UOp]) -> list[_Flow]:
    """Gradients of the sources that all steps share: sums over the steps, carried too."""
    flows = []
    for number in body.shared:
        if number in found:
            # Many steps are a long sum.
            wide, shape = sum_dtype(found[number].dtype), body.source_shape(number)
            total = body.stand_in(wide, shape)
            value = shaped(total, shape) + shaped(found[number].cast(wide), shape)
            flows.append(_Flow(number, value, (total, _zeros(shaped(total, shape)))))
    return flows


def _stacked(body: _LoopBody, found: Mapping[int, UOp]) -> list[_Flow]:
    """The gradients of the rows of the stacks."""
    return [
        _Flow(number, shaped(found[number], body.source_shape(number)))
        for number in body.stacks
        if number in found
    ]


def _found_again(body: _LoopBody) -> tuple[list[Pair], list[Pair]]:
    """The values that a step found, for the backward step: stacks of its carries and of rows, and
    the sources that all steps share.
    """
    stacks: list[Pair] = []
    shared: list[Pair] = []
    for number, leaf in body.own.items():
        if number in body.carries:
            stacks.append((leaf, output_of(body.loop, len(body.values) + number)))
        else:
            (stacks if number in body.stacks else shared).append((leaf, body.loop.src[number]))
    return stacks, shared


def loop_tangents(
    loop: UOp, given: Sequence[UOp | None], pushforward: Pushforward
) -> dict[int, UOp]:
    """The tangents of the parts of `loop`, by those `given` of its sources: of a loop that carries
    the tangents of its carries beside them.
    """
    body = _LoopBody(loop)
    if not body.own:
        return {}
    values, differentiable = body.values, body.differentiable
    carries: list[Pair] = []
    stacks: list[Pair] = []
    shared: list[Pair] = []
    # The change of each source of a step, by its leaf.
    changes: dict[UOp, UOp] = {}
    moved: list[Pair] = []
    for number, source in enumerate(loop.src):
        is_carry, leaf, tangent = number in body.carries, body.own.get(number), given[number]
        group = carries if is_carry else stacks if number in body.stacks else shared
        if is_carry and leaf is None:
            leaf = body.stand_in(source.dtype, source.shape)
        if leaf is not None:
            group.append((leaf, source))
        if number in differentiable or (tangent is not None and leaf is not None and not is_carry):
            change = body.stand_in(source.dtype, body.source_shape(number))
            if number in body.own:
                changes[body.own[number]] = change
            first = _zeros(values[number]) if tangent is None else tangent
            (moved if is_carry else group).append((change, first))
    tangents = pushforward(values, changes)
    made = list(values[: body.arg.carries])
    number_of: dict[int, int] = {}
    for number, tangent in enumerate(tangents):
        if number in differentiable and tangent is None:
            tangent = _zeros(values[number])
        if tangent is not None and (number in differentiable or number not in body.carries):
            number_of[number] = len(made)
            made.append(tangent)
    both = loop_of(
        made,
        [*carries, *moved],
        stacks,
        shared,
        body.arg.length,
        body.device,
        is_reversed=body.arg.is_reversed,
    )
    found = {number: output_of(both, where) for number, where in number_of.items()}
    for number in differentiable:
        found[len(values) + number] = output_of(both, len(made) + number_of[number])
    return found


def batched_loop(
    loop: UOp,
    mapped: Mapping[UOp, UOp],
    size: int,
    batch: Callable[[Sequence[UOp], Mapping[UOp, UOp]], list[UOp | None]],
) -> UOp:
    """`loop` for `size` examples, where the sources in `mapped` have an axis of examples in front.

    Carries have that axis, rows of stacks have it behind that of the steps; so have the slices,
    unless a row is the same for all examples. `batch` gives values over other leaves with the axis,
    None for those that depend on none of these.
    """
    body = _LoopBody(loop)
    arg, own = body.arg, body.own
    leaves: dict[UOp, UOp] = {}
    pairs: list[Pair] = []
    for number, source in enumerate(loop.src):
        if number not in body.carries and source not in mapped:
            pairs.append((own.get(number, source), source))
            continue
        whole = mapped.get(source)
        if whole is None:
            one = shaped(source, (1, *source.shape))
            whole = UOp(Ops.EXPAND, source.dtype, (one,), (size, *source.shape))
        if number in body.stacks:
            order = (1, 0, *range(2, len(whole.shape)))
            whole = UOp(Ops.PERMUTE, whole.dtype, (whole,), order)
        leaf = body.stand_in(source.dtype, (size, *body.source_shape(number)))
        pairs.append((leaf, whole))
        if number in own:
            leaves[own[number]] = shaped(leaf, (size, own[number].arg.size))
    made: list[UOp] = []
    for number, (value, found) in enumerate(
        zip(body.values, batch(body.values, leaves), strict=True)
    ):
        if found is None and number in body.carries:
            one = shaped(value, (1, *value.shape))
            found = UOp(Ops.EXPAND, value.dtype, (one,), (size, *value.shape))
        made.append(value if found is None else found)
    return loop_of(
        made,
        pairs[: body.stacks.start],
        pairs[body.stacks.start : body.stacks.stop],
        pairs[body.shared.start :],
        arg.length,
        body.device,
        is_reversed=arg.is_reversed,
    )


def _zeros(like: UOp) -> UOp:
    shape = like.shape
    zero = shaped(UOp.const(like.dtype, 0.0), (1,) * len(shape))
    return zero if zero.shape == shape else UOp(Ops.EXPAND, like.dtype, (zero,), shape)
