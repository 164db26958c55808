"""Accumulators: a variable set to the identity before the loop, updated in it, read after it.

The order of a reduction is fixed here and nowhere else. The unrolled values of an iteration are
reduced one after the other, in a sum of products each as one MULACC. Where accumulators are too few
to hide the latency of an update, several values of an iteration are combined first, so that the
iteration waits once for the one before it. Vector accumulators are reduced across their lanes by a
tree after the loop. A scan reads its accumulator at the start of an iteration, and the SINK holds
the assignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import UPat
from tilegrad.ir.queries import loops_of, nesting_depth, nodes_of, values_of
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["carried_dtype", "use_accumulators"]

REDUCE = PatternMatcher("lower.accumulators")


# The number of accumulators, in vector registers, that hides the latency of an update.
_MANY = 8
# The number of values of an iteration from which on they are combined before they reach the
# accumulator.
_SEVERAL = 4


class _Accumulators:
    def __init__(self, ast: UOp, target: Target):
        self.target, self.is_short = target, _vectors(ast, target) < _MANY
        # For the loop of a scan, the loops around it.
        self.around = _around_prefixes(ast)
        # For the loop of a reduction, the loops around it that change a value of some reduction.
        self.outside = _outside_reductions(ast)
        self.count = 0
        # For each scan, its value after each of the values of an iteration; and the assignments
        # that carry it.
        self.prefixes: dict[tuple[tuple[UOp, ...], Ops], list[UOp]] = {}
        self.assigned: list[UOp] = []


@REDUCE.rule("reduce-to-accumulator", UPat(Ops.REDUCE, name="reduce"))
def reduce_to_accumulator(reduce: UOp, ctx: _Accumulators) -> UOp:
    """before   REDUCE(x, k)
    after    AFTER(acc, END(ASSIGN(acc, acc + x), k))       acc = DEFINE_ACC(0)
    """
    loops = loops_of(reduce)
    values = values_of(reduce)
    idle = next((loop for loop in loops if _is_idle(reduce, loop, values, ctx)), None)
    if idle is not None:
        # A value that is invariant in a loop is not inside of it, unless another reduction, whose
        # loops it shares, is.
        once = reduce.replace(src=tuple(source for source in reduce.src if source is not idle))
        return _repeated(reduce_to_accumulator(once, ctx), idle.src[0], reduce.arg)
    if not loops:
        total = values[0]
        for value in values[1:]:
            total = _step(reduce, total, value, ctx)
        return _waited(total)
    identity = UOp.const(reduce.dtype, reduce.arg.definition.identity(reduce.dtype.scalar))
    outer = tuple(sorted(reduce.ranges, key=lambda loop: loop.number))
    accumulator = UOp(Ops.DEFINE_ACC, reduce.dtype, (identity, *outer), ctx.count)
    ctx.count += 1
    is_plain = all(value.op not in (Ops.WMMA, Ops.RESCALED) for value in values)
    if ctx.is_short and is_plain and len(values) >= _SEVERAL:
        values = [_combined(reduce, values, ctx)]
    total = accumulator
    for value in values:
        total = _step(reduce, total, value, ctx)
    assigned = UOp(Ops.ASSIGN, reduce.dtype, (accumulator, _waited(total)))
    return accumulator.after(assigned.end(*loops))


def _waited(total: UOp) -> UOp:
    """`total` once the unit that gives it has: units that follow each other do not wait."""
    if total.op is Ops.WMMA and not total.arg.synchronous:
        return UOp(Ops.WAIT, total.dtype, (total,))
    return total


def _combined(reduce: UOp, values: list[UOp], ctx: _Accumulators) -> UOp:
    """The values of one iteration as one value: products in sequence, others as a tree."""
    if any(_is_product(reduce, value, ctx) for value in values):
        total, *rest = values
        for value in rest:
            total = _step(reduce, total, value, ctx)
        return total
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [left.alu(reduce.arg, right) for left, right in pairs] + values[len(values) & ~1 :]
    return values[0]


def _is_idle(reduce: UOp, loop: UOp, values: list[UOp], ctx: _Accumulators) -> bool:
    times = loop.extent
    is_known = reduce.arg is Ops.ADD or (times.op is Ops.CONST and times.arg > 0)
    is_invariant = is_known and all(loop not in value.ranges for value in values)
    return is_invariant and all(loop not in ctx.outside[other] for other in loops_of(reduce))


def _repeated(value: UOp, times: UOp, function: Ops) -> UOp:
    """`value` reduced `times` times with itself; at least once."""
    if function is Ops.ADD:
        return value * times.cast(value.dtype.scalar).broadcast(value.dtype.lanes)
    if function is Ops.MUL:
        product = value
        for bit in bin(times.arg)[3:]:
            product = product * product
            product = product * value if bit == "1" else product
        return product
    return value


def _step(reduce: UOp, total: UOp, value: UOp, ctx: _Accumulators) -> UOp:
    if value.op is Ops.RESCALED:
        return total * value.src[1] + value.src[0]
    if value.op is Ops.WMMA:
        # A matrix unit adds to its third operand, which is zero in the graph.
        return value.replace(src=(*value.src[:2], total))
    if _is_product(reduce, value, ctx):
        return UOp(Ops.MULACC, reduce.dtype, (*value.src, total))
    return total.alu(reduce.arg, value)


def _is_product(reduce: UOp, value: UOp, ctx: _Accumulators) -> bool:
    is_sum = reduce.arg is Ops.ADD and reduce.dtype.is_float
    return is_sum and value.op is Ops.MUL and ctx.target.has_fma


def _vectors(ast: UOp, target: Target) -> int:
    """The vector registers that the accumulators of the largest group of loops take."""
    counts: dict[tuple[UOp, ...], int] = {}
    for node in ast.toposort():
        if node.op is Ops.REDUCE:
            loops = loops_of(node)
            lanes = max(target.lanes_of(node.dtype.scalar), 1)
            counts[loops] = counts.get(loops, 0) + -(-node.dtype.lanes // lanes)
    return max(counts.values(), default=0)


def carried_dtype(dtype: DType, function: Ops, target: Target) -> DType:
    """The dtype that carries a scan of `dtype` from one iteration to the next."""
    is_rounded = dtype.scalar is dtypes.float32 and function in (Ops.ADD, Ops.MUL)
    return (
        dtypes.float64.vec(dtype.lanes) if is_rounded and target.supports(dtypes.float64) else dtype
    )


@REDUCE.rule("prefix-to-accumulator", UPat(Ops.PREFIX, name="prefix"))
def prefix_to_accumulator(prefix: UOp, ctx: _Accumulators) -> UOp:
    """before   PREFIX(x, k)
    after    old + x        old = AFTER(acc, k), ASSIGN(acc, old + x), acc = DEFINE_ACC(0)

    Inclusive and exclusive prefixes of one scan share the accumulator, which is read at the start
    of an iteration. It is float64 for float32 where the target has float64: otherwise the last
    prefixes would show the rounding errors of a thousand iterations.
    """
    function, count = prefix.arg
    if (prefix.src, function) not in ctx.prefixes:
        loops = loops_of(prefix)
        values = values_of(prefix)
        wide = carried_dtype(prefix.dtype, function, ctx.target)
        identity = UOp.const(wide, function.definition.identity(wide.scalar))
        around = prefix.ranges.union(*(ctx.around.get(loop, ()) for loop in loops))
        outer = tuple(sorted(around.difference(loops), key=lambda loop: loop.number))
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
    """For each loop that a scan runs over, the loops around it. The scan starts anew in each of
    their iterations, also where its value does not depend on them.
    """
    nodes = ast.toposort()
    prefixes = [node for node in nodes if node.op is Ops.PREFIX]
    around: dict[UOp, set[UOp]] = {
        source: set() for node in prefixes for source in node.src if source.op is Ops.RANGE
    }
    if not around:
        return around
    depth = nesting_depth(ast)
    sets = {node.ranges for node in nodes}
    for loop, found in around.items():
        for loops in sets:
            if loop in loops:
                found.update(other for other in loops if depth(other) < depth(loop))
    return around


def _outside_reductions(ast: UOp) -> dict[UOp, set[UOp]]:
    """For each loop that reductions run over, those of their loops outside of it that some value of
    theirs depends on.
    """
    outside: dict[UOp, set[UOp]] = {}
    depth = nesting_depth(ast)
    for reduce in nodes_of(ast, Ops.REDUCE):
        changing = set().union(*(value.ranges for value in values_of(reduce)))
        for loop in loops_of(reduce):
            others = (each for each in loops_of(reduce) if depth(each) < depth(loop))
            outside.setdefault(loop, set()).update(changing.intersection(others))
    return outside


def use_accumulators(ast: UOp, target: Target) -> UOp:
    """`ast` without REDUCE and PREFIX."""
    ctx = _Accumulators(ast, target)
    ast = graph_rewrite(ast, REDUCE, ctx, name="lower.accumulators")
    ast = _add_by_units(ast)
    return ast.replace(src=(*ast.src, *ctx.assigned)) if ctx.assigned else ast


def _add_by_units(ast: UOp) -> UOp:
    """`ast` with matrix units that add their products to rescaled accumulators themselves.

    before   ASSIGN(acc, acc * c + GEP(WMMA(a, b, 0), 0))       and so for each element
    after    ASSIGN(acc, GEP(WMMA(a, b, VECTORIZE(acc * c, ...)), 0))
    """
    nodes = ast.toposort()
    if all(node.op is not Ops.WMMA for node in nodes):
        return ast
    users: dict[UOp, list[UOp]] = {}
    for node in nodes:
        for source in node.src:
            users.setdefault(source, []).append(node)
    mapping: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is Ops.WMMA and not any(user.op is Ops.WMMA for user in users[node]):
            mapping |= _added(node, users)
    return ast.substitute(mapping) if mapping else ast


def _added(product: UOp, users: Mapping[UOp, list[UOp]]) -> dict[UOp, UOp]:
    """Sums of a unit's elements with rescaled accumulators, each as an element of the unit's
    result; nothing where an element has another use.
    """
    # The result of an asynchronous unit must be waited for.
    given = product if product.arg.synchronous else users[product][0]
    chain = [product]
    while chain[-1].src[2].op is Ops.WMMA:
        chain.append(chain[-1].src[2])
        if len(users[chain[-1]]) > 1:
            return {}
    start = chain[-1].src[2]
    is_zero = all(each.op is Ops.CONST and each.arg == 0 for each in (start.src or (start,)))
    if not is_zero or len(users[given]) != product.dtype.lanes:
        return {}
    others: dict[int, UOp] = {}
    sums: dict[int, UOp] = {}
    for element in users[given]:
        total = users[element][0]
        if element.op is not Ops.GEP or len(users[element]) > 1 or total.op is not Ops.ADD:
            return {}
        (other,) = [source for source in total.src if source is not element] or [element]
        (assigned, *rest) = users[total]
        is_assigned = assigned.op is Ops.ASSIGN and not rest
        if not is_assigned or other.op is not Ops.MUL or assigned.src[0] not in other.src:
            return {}
        others[element.arg[0]], sums[element.arg[0]] = other, total
    if len(sums) != product.dtype.lanes:
        return {}
    made = UOp.stack(others[lane] for lane in sorted(others))
    for unit in reversed(chain):
        made = unit.replace(src=(*unit.src[:2], made))
    if given is not product:
        made = given.replace(src=(made,))
    return {total: made.gep(lane) for lane, total in sums.items()}
