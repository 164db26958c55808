"""Folds become accumulators: a variable set to the identity, changed in the loop, read after it.

The order of a fold is fixed here and nowhere else: within an iteration the written-out values are
folded one after the other, in a sum of products each as one MULACC; where accumulators are too few
to keep a processor busy, several values meet each other first, so that an iteration waits for the
one before it once. Vector accumulators meet lane by lane in a tree after the loop. Where every step
of a fold is looked at, the accumulator is read as a turn begins, and the SINK keeps what sets it.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import UPat
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["carried_dtype", "place_accumulators"]

REDUCE = PatternMatcher("lower.reduce")


# So many accumulators hide the latency of what is done to one of them.
_MANY = 8
# So many values of an iteration meet each other before they meet an accumulator.
_SEVERAL = 4


class _Context:
    def __init__(self, target: Target, is_short: bool, around: dict[UOp, set[UOp]]):
        self.target, self.is_short = target, is_short
        # The loops around those of prefixes.
        self.around = around
        self.count = 0
        # What the turns of a prefix fold to after each of its values, and what keeps that.
        self.prefixes: dict[tuple[tuple[UOp, ...], Ops], list[UOp]] = {}
        self.assigned: list[UOp] = []


@REDUCE.rule("fold-to-accumulator", UPat(Ops.REDUCE, name="fold"))
def fold_to_accumulator(fold: UOp, ctx: _Context) -> UOp:
    """before   REDUCE(x, k)
    after    AFTER(acc, END(ASSIGN(acc, acc + x), k))       acc = DEFINE_ACC(0)
    """
    loops = tuple(part for part in fold.src if part.op is Ops.RANGE)
    values = [part for part in fold.src if part.op is not Ops.RANGE]
    idle = next((loop for loop in loops if _is_idle(fold, loop, values)), None)
    if idle is not None:
        # What does not change with a loop would not stand in it.
        once = fold.replace(src=tuple(part for part in fold.src if part is not idle))
        return _repeated(fold_to_accumulator(once, ctx), idle.src[0], fold.arg)
    if not loops:
        total = values[0]
        for value in values[1:]:
            total = _step(fold, total, value, ctx)
        return total
    identity = UOp.const(fold.dtype, fold.arg.definition.identity(fold.dtype.scalar))
    outer = tuple(sorted(fold.ranges, key=lambda part: part.arg[0]))
    accumulator = UOp(Ops.DEFINE_ACC, fold.dtype, (identity, *outer), ctx.count)
    ctx.count += 1
    is_plain = all(value.op not in (Ops.WMMA, Ops.RESCALED) for value in values)
    if ctx.is_short and is_plain and len(values) >= _SEVERAL:
        values = [_met(fold, values, ctx)]
    total = accumulator
    for value in values:
        total = _step(fold, total, value, ctx)
    assigned = UOp(Ops.ASSIGN, fold.dtype, (accumulator, total))
    return accumulator.after(assigned.end(*loops))


def _met(fold: UOp, values: list[UOp], ctx: _Context) -> UOp:
    """The values of one iteration folded with each other: products in a row, others in a tree."""
    if any(_is_product(fold, value, ctx) for value in values):
        total, *rest = values
        for value in rest:
            total = _step(fold, total, value, ctx)
        return total
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [left.alu(fold.arg, right) for left, right in pairs] + values[len(values) & ~1 :]
    return values[0]


def _is_idle(fold: UOp, loop: UOp, values: list[UOp]) -> bool:
    times = loop.src[0]
    is_known = fold.arg is Ops.ADD or (times.op is Ops.CONST and times.arg > 0)
    return is_known and all(loop not in value.ranges for value in values)


def _repeated(value: UOp, times: UOp, function: Ops) -> UOp:
    """`value` folded with itself, so that it stands there `times` times; once at least."""
    if function is Ops.ADD:
        return value * times.cast(value.dtype.scalar).broadcast(value.dtype.lanes)
    if function is Ops.MUL:
        product = value
        for bit in bin(times.arg)[3:]:
            product = product * product
            product = product * value if bit == "1" else product
        return product
    return value


def _step(fold: UOp, total: UOp, value: UOp, ctx: _Context) -> UOp:
    if value.op is Ops.RESCALED:
        return total * value.src[1] + value.src[0]
    if value.op is Ops.WMMA:
        # A matrix unit adds to what it is given; the graph gives it zero.
        return value.replace(src=(*value.src[:2], total))
    if _is_product(fold, value, ctx):
        return UOp(Ops.MULACC, fold.dtype, (*value.src, total))
    if fold.arg is Ops.MAX and ctx.is_short:
        # What stands first is tested for NaN: of the value, that need not wait for the fold.
        return value.alu(fold.arg, total)
    return total.alu(fold.arg, value)


def _is_product(fold: UOp, value: UOp, ctx: _Context) -> bool:
    is_sum = fold.arg is Ops.ADD and fold.dtype.is_float
    return is_sum and value.op is Ops.MUL and ctx.target.has_fma


def _vectors(ast: UOp, target: Target) -> int:
    """The registers that the accumulators of the largest group of loops take."""
    counts: dict[tuple[UOp, ...], int] = {}
    for node in ast.toposort():
        if node.op is Ops.REDUCE:
            loops = tuple(part for part in node.src if part.op is Ops.RANGE)
            lanes = max(target.lanes_of(node.dtype.scalar), 1)
            counts[loops] = counts.get(loops, 0) + -(-node.dtype.lanes // lanes)
    return max(counts.values(), default=0)


def carried_dtype(dtype: DType, function: Ops, target: Target) -> DType:
    """What a running sum or product of `dtype` is carried in from one step to the next."""
    is_rounded = dtype.scalar is dtypes.float32 and function in (Ops.ADD, Ops.MUL)
    return (
        dtypes.float64.vec(dtype.lanes) if is_rounded and target.supports(dtypes.float64) else dtype
    )


@REDUCE.rule("prefix-to-accumulator", UPat(Ops.PREFIX, name="prefix"))
def prefix_to_accumulator(prefix: UOp, ctx: _Context) -> UOp:
    """before   PREFIX(x, k)
    after    old + x        old = AFTER(acc, k), ASSIGN(acc, old + x), acc = DEFINE_ACC(0)

    The prefixes of one turn that differ in how much of it they fold share the accumulator. It is
    read as a turn begins. Of float32 it is a float64, where the target has one: what a thousand
    turns round would be seen in the last of their prefixes.
    """
    function, count = prefix.arg
    if (prefix.src, function) not in ctx.prefixes:
        loops = tuple(part for part in prefix.src if part.op is Ops.RANGE)
        values = [part for part in prefix.src if part.op is not Ops.RANGE]
        wide = carried_dtype(prefix.dtype, function, ctx.target)
        identity = UOp.const(wide, function.definition.identity(wide.scalar))
        around = prefix.ranges.union(*(ctx.around.get(loop, ()) for loop in loops))
        outer = tuple(sorted(around.difference(loops), key=lambda part: part.arg[0]))
        accumulator = UOp(Ops.DEFINE_ACC, wide, (identity, *outer), ctx.count)
        totals: list[UOp] = [accumulator.after(*loops) if loops else identity]
        for value in values:
            value = value.cast(wide.scalar)
            totals.append(totals[-1].alu(function, value) if loops or totals[1:] else value)
        ctx.prefixes[prefix.src, function] = [each.cast(prefix.dtype.scalar) for each in totals]
        if loops:
            ctx.assigned.append(UOp(Ops.ASSIGN, wide, (accumulator, totals[-1])))
            ctx.count += 1
    found: UOp = ctx.prefixes[prefix.src, function][count]
    return found


def _around_prefixes(ast: UOp) -> dict[UOp, set[UOp]]:
    """For each loop that a prefix runs over, those around it. A prefix begins anew in their every
    turn, also where its value does not depend on them.
    """
    nodes = ast.toposort()
    prefixes = [node for node in nodes if node.op is Ops.PREFIX]
    around: dict[UOp, set[UOp]] = {
        part: set() for node in prefixes for part in node.src if part.op is Ops.RANGE
    }
    if not around:
        return around
    place = {number: rank for rank, number in enumerate(ast.arg.order)}

    def depth(loop: UOp) -> int:
        return place.get(loop.arg[0], len(place) + int(loop.arg[0]))

    nests = {node.ranges for node in nodes}
    for loop, found in around.items():
        for nest in nests:
            if loop in nest:
                found.update(other for other in nest if depth(other) < depth(loop))
    return around


def place_accumulators(ast: UOp, target: Target) -> UOp:
    """`ast` without REDUCE and PREFIX."""
    ctx = _Context(target, _vectors(ast, target) < _MANY, _around_prefixes(ast))
    ast = graph_rewrite(ast, REDUCE, ctx, name="lower.reduce")
    return ast.replace(src=(*ast.src, *ctx.assigned)) if ctx.assigned else ast
