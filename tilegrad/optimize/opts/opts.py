"""The Opts as checked rewrites: a kernel graph in, the same kernel in another shape out.

Each move checks first and raises OptError with the fault; the kernel that it returns computes the
same values. None looks at the computed values, only at ranges, loads and stores. STAGE, GROUP and
TC, which give values memory of their own, stand in files beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.base.errors import OptError
from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.exact_products import exact_products
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import (
    bytes_of,
    loop_ranks,
    memory_of,
    next_number,
    nodes_of,
    points_to,
    reductions_of,
    written_memories,
)
from tilegrad.ir.ranges import pad_range, replace_ranges
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.opts.dots import exact_integers
from tilegrad.optimize.opts.gated_products import without_choices
from tilegrad.optimize.opts.group import group
from tilegrad.optimize.opts.matrix import use_matrix_unit
from tilegrad.optimize.opts.opt import (
    Opt,
    OptOps,
    axes_of,
    loop_order,
    reduce_axes,
    running_loops,
)
from tilegrad.optimize.opts.shared_scan import scan
from tilegrad.optimize.opts.shared_slices import share_slices
from tilegrad.optimize.opts.split import put_outside, reorder, split
from tilegrad.optimize.opts.stage import stage
from tilegrad.target import Target

__all__ = ["apply_opt", "apply_opts", "start"]

# Axes whose iterations each have a copy of the shared memory inside of them.
_PER_BLOCK = (Axis.LOCAL, Axis.UPCAST)
# Axes whose iterations each have a copy of the scratch memory inside of them.
_UNROLLED = (Axis.UPCAST, Axis.UNROLL)


def start(ast: UOp, target: Target) -> UOp:
    """The kernel as Opts find it: on a target with blocks, the output loops are the grid.

    An output loop that a reduction does not depend on stays a loop: in the grid, each of its
    iterations would reduce again. On a processor, products of short floats that are summed in a
    wider float are not rounded before, as little as those that a MULACC adds. On a target with
    blocks, products that are 0 where a condition does not hold are no choice any more.
    """
    if ast.arg.opts:
        return ast
    if not target.has_locals:
        if not any(node.op is Ops.CAST for node in ast.toposort()):
            return ast
        ast = exact_products(ast)
        return exact_integers(ast) if target.has_vectors else ast
    ast = without_choices(ast)
    nodes = ast.toposort()
    named = (Ops.REDUCE, Ops.PREFIX, Ops.END)
    reduced = {loop for node in nodes if node.op in named for loop in node.src[1:]}
    reductions = [node for node in nodes if node.op is Ops.REDUCE]
    mapping = {
        loop: loop.replace(arg=(loop.number, Axis.GLOBAL))
        for loop in loop_order(ast)
        if loop.axis is Axis.LOOP
        and loop not in reduced
        and all(loop in reduction.ranges for reduction in reductions)
    }
    return ast.substitute(mapping)


def apply_opts(ast: UOp, opts: Sequence[Opt], target: Target) -> UOp:
    """The kernel after all of `opts`, in order."""
    record = trace.get()
    for opt in opts:
        before = ast
        ast = apply_opt(ast, opt, target)
        if record is not None:
            record.append(PassRecord(str(opt), before, ast))
    return ast


def apply_opt(ast: UOp, opt: Opt, target: Target) -> UOp:
    """The kernel after `opt`.

    Raises OptError where the move is not legal here.
    """
    moved = _MOVES[opt.op](ast, opt, target)
    if target.has_locals:
        _check_block(moved, opt, target)
    else:
        _check_scratch(moved, opt, target)
    info = moved.arg
    moved = moved.replace(arg=type(info)(info.name, info.order, (*info.opts, opt)))
    _check_running(moved, opt)
    return moved


def _check_running(ast: UOp, opt: Opt) -> None:
    """A scan combines its values in one order, that of its ranges."""
    nodes = ast.toposort()
    if not any(node.op is Ops.PREFIX or node.op is Ops.RESCALED for node in nodes):
        return
    position = loop_ranks(ast)
    for node in nodes:
        if node.op is Ops.PREFIX:
            ranks = [position[loop.number] for loop in node.src[1:] if loop.number in position]
            if ranks != sorted(ranks):
                raise OptError(f"{opt.op.value}: a scan in another order", opt=opt)
        if any(source.op is Ops.RESCALED for source in node.src) and (
            node.op is not Ops.REDUCE or any(loop.axis is not Axis.REDUCE for loop in node.src[1:])
        ):
            raise OptError(f"{opt.op.value}: slices of rows come one after the other", opt=opt)


def _check_block(ast: UOp, opt: Opt, target: Target) -> None:
    """A block must not have more lanes or shared memory than the target offers."""
    axes = axes_of(ast)
    lanes = prod(loop.extent.arg for loop in axes if loop.axis in (Axis.LOCAL, Axis.GROUP))
    if lanes > target.block_lanes:
        raise OptError(
            f"{opt.op.value}: a block of {lanes} lanes, {target.name} has at most "
            f"{target.block_lanes}",
            opt=opt,
        )
    nbytes = 0
    for node in ast.toposort():
        if isinstance(node.dtype, Pointer) and node.op is Ops.DEFINE_LOCAL:
            inside = (loop.extent.arg for loop in node.src if loop.axis in _PER_BLOCK)
            # A tile that is filled in a loop is there twice (lower.copies).
            tiles = 2 if [loop.axis for loop in node.src] == [Axis.REDUCE] else 1
            nbytes += node.dtype.size * node.dtype.base.itemsize * int(prod(inside)) * tiles
    if nbytes > target.block_bytes:
        raise OptError(
            f"{opt.op.value}: {nbytes} bytes of shared memory, {target.name} has "
            f"{target.block_bytes}",
            opt=opt,
        )


def _check_scratch(ast: UOp, opt: Opt, target: Target) -> None:
    """The stack of a thread must hold its scratch memory: each unrolled iteration has its own."""
    nbytes = 0
    for node in nodes_of(ast, Ops.DEFINE_LOCAL):
        copies = prod(loop.vmax + 1 for loop in node.src if loop.axis in _UNROLLED)
        nbytes += bytes_of(node) * int(copies)
    if nbytes > target.scratch_bytes:
        raise OptError(
            f"{opt.op.value}: {nbytes} bytes of scratch, {target.name} has {target.scratch_bytes}",
            opt=opt,
        )


def _axis(ast: UOp, opt: Opt, kinds: tuple[Axis, ...], *, from_reduce: bool = False) -> UOp:
    axes = reduce_axes(ast) if from_reduce else axes_of(ast)
    if opt.axis is None or not 0 <= opt.axis < len(axes):
        raise OptError(
            f"{opt.op.value}: axis {opt.axis} of a kernel with {len(axes)} axes to choose from",
            opt=opt,
        )
    found = axes[opt.axis]
    if found.axis not in kinds:
        raise OptError(
            f"{opt.op.value}: axis {opt.axis} is a {found.axis.value} axis",
            opt=opt,
            allowed=", ".join(kind.value for kind in kinds),
        )
    return found


def _amount(loop: UOp, opt: Opt) -> int:
    """The size of the inner loop: a divisor of the extent, 0 for all of it."""
    extent = loop.extent
    if extent.op is not Ops.CONST:
        if isinstance(opt.arg, int) and opt.arg > 1 and extent.divisor % opt.arg == 0:
            return opt.arg
        raise OptError(
            f"{opt.op.value}: {opt.arg} is not known to divide the symbolic extent of axis "
            f"{opt.axis}",
            opt=opt,
        )
    amount = extent.arg if opt.arg == 0 else opt.arg
    if not isinstance(amount, int) or amount < 2:
        raise OptError(
            f"{opt.op.value}: an amount of {amount} does nothing to axis {opt.axis} of "
            f"{extent.arg}",
            opt=opt,
        )
    if extent.arg % amount:
        raise OptError(
            f"{opt.op.value}: {amount} does not divide axis {opt.axis} of {extent.arg}",
            opt=opt,
            remedy=f"PADTO({opt.axis}, {amount}) first, or a divisor",
        )
    return amount


def _upcast(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Unroll a divisor of an output axis: each iteration computes `amount` elements.

    before   i: loop 0..16
    after    i*4 + j, j: upcast 0..4
    """
    loop = _axis(ast, opt, (Axis.LOOP, Axis.GLOBAL, Axis.LOCAL))
    if loop.axis is Axis.LOCAL and any(done.op is OptOps.TC for done in ast.arg.opts):
        raise OptError("upcast: the lanes of a matrix unit stay lanes", opt=opt)
    return split(ast, loop, _amount(loop, opt), Axis.UPCAST, last=True)


def _unroll(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Unroll a divisor of a reduce axis. Axes of the lanes that share a reduction are outputs until
    the lanes' results are combined.
    """
    loop = _axis(ast, opt, (Axis.REDUCE, Axis.GROUP), from_reduce=True)
    if _holds_nests(ast, loop):
        raise OptError("unroll: the axis belongs to a nest that holds others", opt=opt)
    inner = Axis.UNROLL if loop.axis is Axis.REDUCE else Axis.UPCAST
    return split(ast, loop, _amount(loop, opt), inner, last=True)


def _local(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Give a slice of a grid axis, or of a block's tile (TILE), to the lanes of a block."""
    if not target.has_locals:
        raise OptError(f"local: {target.name} has no blocks of lanes", opt=opt)
    loop = _axis(ast, opt, (Axis.GLOBAL, Axis.LOOP))
    reductions = reductions_of(ast)
    if loop.axis is Axis.LOOP:
        if not reductions or not all(loop in reduction.ranges for reduction in reductions):
            raise OptError("local: each lane would compute what the loop shares", opt=opt)
        if loop in running_loops(ast):
            raise OptError("local: each iteration follows from the one before", opt=opt)
    return split(ast, loop, _amount(loop, opt), Axis.LOCAL)


def _thread(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Cut an output loop into chunks that threads take; the chunk loop becomes the outermost.

    before   i: loop 0..1024
    after    c*128 + i, c: thread 0..8
    """
    if not target.threads:
        raise OptError(f"thread: {target.name} does not split launches into chunks", opt=opt)
    if any(axis.axis is Axis.THREAD for axis in axes_of(ast)):
        raise OptError("thread: the kernel is cut into chunks already", opt=opt)
    loop = _axis(ast, opt, (Axis.LOOP,))
    _require_private(ast, loop, opt)
    if loop in running_loops(ast):
        raise OptError(
            f"thread: each iteration of axis {opt.axis} follows from the one before", opt=opt
        )
    extent = loop.extent
    chunks = extent.vmax if opt.arg == 0 else opt.arg
    if extent.op is not Ops.CONST or not isinstance(chunks, int) or not 2 <= chunks <= extent.arg:
        raise OptError(f"thread: no {chunks} chunks of axis {opt.axis} of {extent.vmax}", opt=opt)
    size = -(-extent.arg // chunks)
    if extent.arg % size == 0:
        return split(ast, loop, size, Axis.LOOP, outer=Axis.THREAD, hoist=True)
    number = next_number(ast.toposort())
    chunk = UOp.range(-(-extent.arg // size), number, Axis.THREAD)
    rest = UOp.range(simplify((extent - chunk * size).minimum(size)), number + 1, Axis.LOOP)
    order = [rest.number if each == loop.number else each for each in ast.arg.order]
    return reorder(
        replace_ranges(ast, {loop: (chunk * size + rest, (chunk, rest))}), [number, *order]
    )


def _require_private(ast: UOp, loop: UOp, opt: Opt) -> None:
    """Every element stored to memory outside the iteration must belong to one value of `loop`."""
    for node in ast.toposort():
        if node.op is Ops.STORE and loop not in node.index.ranges and not _is_private(node.src[0]):
            raise OptError(
                f"{opt.op.value}: all iterations of axis {opt.axis} write the same elements",
                opt=opt,
            )


def _is_private(pointer: UOp) -> bool:
    """Whether each thread has this memory to itself."""
    return points_to(memory_of(pointer), AddressSpace.SCRATCH)


def _tile(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Split a loop for a cache: the outer loop runs outside all loops that were not tiled; with an
    amount of 1, the loop itself does.

    Tiled loops nest in the order in which they are made. A reduce axis may be tiled: its
    accumulator then lives in memory.

    before   i: 0..64, j: 0..64
    after    tile of j: 0..4, i: 0..64, j: 0..16
    """
    if target.has_locals:
        return _tile_of_block(ast, opt)
    loop = _axis(ast, opt, (Axis.LOOP, Axis.REDUCE))
    if loop.axis is Axis.REDUCE and any(done.op is OptOps.OVERLAP for done in ast.arg.opts):
        raise OptError("tile: chunks that overlap would accumulate twice in memory", opt=opt)
    if opt.arg == 1:
        return put_outside(ast, loop)
    return split(ast, loop, _amount(loop, opt), loop.axis, hoist=True)


def _tile_of_block(ast: UOp, opt: Opt) -> UOp:
    """Split a grid axis into blocks and the tile of a block, which LOCAL, UPCAST and TC share out;
    or a reduce axis into chunks and what one chunk has, which become the innermost reduce loops: in
    a convolution, what an element of the filter says of padding is known outside of them.

    before   i: global 0..4096, k: reduce 0..4096
    after    i: global 0..32, i: loop 0..128, k: reduce 0..512, k: reduce 0..8
    """
    loop = _axis(ast, opt, (Axis.GLOBAL, Axis.REDUCE))
    if loop.axis is Axis.GLOBAL:
        return split(ast, loop, _amount(loop, opt), Axis.LOOP, outer=Axis.GLOBAL)
    before = next_number(ast.toposort())
    ast = split(ast, loop, _amount(loop, opt), Axis.REDUCE)
    made = [axis.number for axis in loop_order(ast) if axis.number >= before]
    order = [number for number in ast.arg.order if number not in made]
    last = max(
        (order.index(axis.number) for axis in reduce_axes(ast) if axis.number in order), default=-1
    )
    position = last + 1 if last >= 0 else len(order)
    order[position:position] = made
    return reorder(ast, order)


def _merge(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Join an output axis with the one inside it to one axis, which larger tiles divide.

    before   h: global 0..28, w: global 0..28
    after    p: global 0..784, h = p // 28, w = p % 28
    """
    outer = _axis(ast, opt, (Axis.GLOBAL,))
    inner = _axis(ast, Opt(OptOps.MERGE, opt.arg), (Axis.GLOBAL,))
    if outer is inner or any(loop.extent.op is not Ops.CONST for loop in (outer, inner)):
        raise OptError(f"merge: axes {opt.axis} and {opt.arg} are no two of known size", opt=opt)
    size = inner.extent.arg
    both = UOp.range(outer.extent.arg * size, next_number(ast.toposort()), Axis.GLOBAL)
    order = [each for each in ast.arg.order if each != outer.number]
    order[order.index(inner.number)] = both.number
    mapping = {outer: (both // size, (both,)), inner: (both % size, (both,))}
    return reorder(replace_ranges(ast, mapping), order)


def _swap(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Exchange two loops in the loop order."""
    loop = _axis(ast, opt, (Axis.LOOP, Axis.GLOBAL, Axis.REDUCE))
    other = _axis(ast, Opt(OptOps.SWAP, opt.arg), (Axis.LOOP, Axis.GLOBAL, Axis.REDUCE))
    if loop is other or loop.axis is not other.axis:
        raise OptError(f"swap: axes {opt.axis} and {opt.arg} cannot be exchanged", opt=opt)
    order = list(ast.arg.order)
    first, second = order.index(loop.number), order.index(other.number)
    order[first], order[second] = order[second], order[first]
    return reorder(ast, order)


def _padto(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Round an extent up; loads and stores of the added iterations are masked.

    A reduce axis is padded with the identity of the reduction. A symbolic extent is rounded up as
    it comes; with blocks, it becomes its largest value, rounded up.

    before   i: 0..9
    after    i: 0..12, gates i < 9
    """
    loop = _axis(ast, opt, (Axis.LOOP, Axis.GLOBAL, Axis.REDUCE))
    extent = loop.extent
    if not isinstance(opt.arg, int) or opt.arg < 2:
        raise OptError(f"padto: {opt.arg} cannot pad axis {opt.axis}", opt=opt)
    largest = int(extent.vmax)
    padded = -(-largest // opt.arg) * opt.arg
    if extent.op is Ops.CONST and padded == largest:
        raise OptError(f"padto: {opt.arg} divides axis {opt.axis} of {largest} already", opt=opt)
    # A matrix unit is worth more padding: its products are many at a time.
    if padded > max(4 * largest, *(unit.m for unit in target.matrix_units if not unit.is_dot), 0):
        raise OptError(f"padto: {padded} iterations for {largest} elements", opt=opt)
    if _holds_nests(ast, loop):
        raise OptError("padto: the axis belongs to a nest that holds others", opt=opt)
    wide: int | UOp = padded
    if extent.op is not Ops.CONST and not target.has_locals:
        wide = simplify((extent + (opt.arg - 1)) // opt.arg * opt.arg)
    new = UOp.range(wide, next_number(ast.toposort()), loop.axis)
    order = [new.number if number == loop.number else number for number in ast.arg.order]
    return reorder(pad_range(ast, loop, new), order)


def _holds_nests(ast: UOp, loop: UOp) -> bool:
    """Whether other loop nests run in each iteration of `loop`."""
    ends = (node for node in nodes_of(ast, Ops.END) if loop in node.src)
    return any(node.src[0].op is not Ops.STORE for node in ends)


def _overlap(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Cut an output loop into chunks of `amount`; the last chunk begins earlier, so that it ends
    where the loop does: elements in two chunks are computed twice, and nothing has a gate.

    before   i: 0..53
    after    min(c*16, 37) + j, c: loop 0..4, j: loop 0..16
    """
    if target.has_locals:
        raise OptError(f"overlap: two blocks of {target.name} would write the same; PADTO", opt=opt)
    loop = _axis(ast, opt, (Axis.LOOP,))
    extent, amount = loop.extent, opt.arg
    if extent.op is not Ops.CONST or not isinstance(amount, int) or not 1 < amount < extent.arg:
        raise OptError(f"overlap: no chunks of {amount} in axis {opt.axis}", opt=opt)
    if extent.arg % amount == 0:
        raise OptError(f"overlap: {amount} divides axis {opt.axis} of {extent.arg}", opt=opt)
    _require_repeatable(ast, loop, opt)
    number = next_number(ast.toposort())
    chunk = UOp.range(-(-extent.arg // amount), number, Axis.LOOP)
    inside = UOp.range(amount, number + 1, Axis.LOOP)
    index = (chunk * amount).minimum(extent.arg - amount) + inside
    order = list(ast.arg.order)
    at = order.index(loop.number)
    order[at : at + 1] = [number, number + 1]
    return reorder(replace_ranges(ast, {loop: (index, (chunk, inside))}), order)


def _require_repeatable(ast: UOp, loop: UOp, opt: Opt) -> None:
    """An iteration of `loop` that comes twice must write the same values again."""
    nodes = ast.toposort()
    if loop in running_loops(ast):
        raise OptError(f"{opt.op.value}: a scan would combine it twice", opt=opt)
    stored = written_memories(nodes)
    read = {node.src[0] for node in nodes if node.op is Ops.LOAD}
    if any(memory in read and memory.op is Ops.DEFINE_GLOBAL for memory in stored):
        raise OptError(f"{opt.op.value}: the kernel reads what it writes", opt=opt)
    if any(node.op is Ops.STORE and node.arg is not None for node in nodes):
        raise OptError(f"{opt.op.value}: the kernel adds to what it writes", opt=opt)
    position = ast.arg.order.index(loop.number)
    for node in nodes:
        if node.op is Ops.REDUCE and loop in node.ranges:
            outside = set(ast.arg.order[:position])
            if any(axis.number in outside for axis in node.src[1:]):
                raise OptError(
                    f"{opt.op.value}: a reduction outside accumulates in memory", opt=opt
                )


_MOVES: dict[OptOps, Callable[[UOp, Opt, Target], UOp]] = {
    OptOps.UPCAST: _upcast,
    OptOps.UNROLL: _unroll,
    OptOps.LOCAL: _local,
    OptOps.GROUP: lambda ast, opt, target: group(
        ast, opt, _axis(ast, opt, (Axis.REDUCE,), from_reduce=True), target, top=False
    ),
    OptOps.GROUPTOP: lambda ast, opt, target: group(
        ast, opt, _axis(ast, opt, (Axis.REDUCE,), from_reduce=True), target, top=True
    ),
    OptOps.PADTO: _padto,
    OptOps.OVERLAP: _overlap,
    OptOps.SWAP: _swap,
    OptOps.MERGE: _merge,
    OptOps.THREAD: _thread,
    OptOps.TILE: _tile,
    OptOps.STAGE: stage,
    OptOps.SCAN: lambda ast, opt, target: scan(ast, opt, _axis(ast, opt, (Axis.LOOP,)), target),
    OptOps.SLICE: lambda ast, opt, target: share_slices(
        ast, opt, _axis(ast, opt, (Axis.REDUCE,)), target
    ),
    OptOps.TC: use_matrix_unit,
}
