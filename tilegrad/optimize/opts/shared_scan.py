"""SCAN: the lanes of a warp share a scan along a row.

Each lane takes a few neighbours, so that the warp reads neighbours. Lanes then exchange their
totals: after step d, a lane knows the total of its group of 2*d lanes, and the total of the lanes
of the group before it. Each lane carries the total of all earlier iterations.

    before   PREFIX(x, k)                                                         k: loop 0..1024
    after    PREFIX(t, c, count 0) + e + PREFIX(x, u)        c: loop 0..8, l: lane 0..32, u: 0..4
             k = c*128 + l*4 + u, t: total of the warp's x, e: total of the lanes before l
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number, nodes_of
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt
from tilegrad.optimize.opts.split import reorder
from tilegrad.target import Target

__all__ = ["scan"]


def scan(ast: UOp, opt: Opt, loop: UOp, target: Target) -> UOp:
    """`loop`, along which scans run, shared by the lanes of a warp; each lane takes `opt.arg`
    neighbours at a time.
    """
    warp, extent, width = target.shuffle_lanes, loop.extent, opt.arg
    if not warp:
        raise OptError(f"scan: lanes of {target.name} exchange no values", opt=opt)
    if not isinstance(width, int) or width < 1:
        raise OptError(f"scan: no lane has {width} neighbours", opt=opt)
    if extent.op is not Ops.CONST or extent.arg % (warp * width):
        raise OptError(
            f"scan: {warp} lanes with {width} each do not divide {extent.vmax}",
            opt=opt,
            remedy=f"PADTO({opt.axis}, {warp * width}) first",
        )
    _require_scan(ast, loop, opt)
    number = next_number(ast.toposort())
    rest = UOp.range(extent.arg // (warp * width), number, Axis.LOOP)
    lane = UOp.range(warp, number + 1, Axis.LOCAL)
    own = UOp.range(width, number + 2, Axis.UPCAST)
    scanner = _Scanner(rest, lane, own, number + 3)
    made = scanner.rewritten(ast, loop)
    order = list(ast.arg.order)
    position = order.index(loop.number)
    found = {node.number for node in nodes_of(made, Ops.RANGE)}
    numbers = [axis.number for axis in (rest, lane, own) if axis.number in found]
    order[position : position + 1] = numbers
    return reorder(made, order)


def _require_scan(ast: UOp, loop: UOp, opt: Opt) -> None:
    """Raise OptError where something other than scans of 32-bit values runs along `loop`."""
    scans = 0
    for node in ast.toposort():
        if node.op in (Ops.REDUCE, Ops.END) and loop in node.src:
            raise OptError("scan: a reduction runs along the axis", opt=opt)
        if node.op is not Ops.PREFIX or loop not in node.src[1:]:
            continue
        scans += 1
        value, *loops = node.src
        if loops != [loop] or node.arg[1] not in (0, 1):
            raise OptError("scan: it runs along several axes", opt=opt)
        if node.dtype.itemsize != 4 or node.dtype is dtypes.bool:
            raise OptError(f"scan: lanes exchange 32 bits, not {node.dtype.name}", opt=opt)
        if any(inner.op is Ops.PREFIX for inner in value.toposort()):
            raise OptError("scan: it is of another scan", opt=opt)
    if not scans:
        raise OptError(f"scan: no scan runs along axis {opt.axis}", opt=opt)


class _Scanner:
    """Makes the kernel anew with `rest`, `lane` and `own` instead of one loop."""

    def __init__(self, rest: UOp, lane: UOp, own: UOp, number: int):
        self.rest, self.lane, self.own, self.number = rest, lane, own, number

    def rewritten(self, ast: UOp, loop: UOp) -> UOp:
        width, warp = self.own.extent.arg, self.lane.extent.arg
        position = simplify(self.rest * (warp * width) + self.lane * width + self.own)

        def change(scan: UOp, src: tuple[UOp, ...]) -> UOp | None:
            return self._shared(src[0], *scan.arg) if loop in scan.src[1:] else None

        return simplify(rebuilt(ast, change, (Ops.PREFIX,), {loop: position}))

    def _shared(self, value: UOp, function: Ops, count: int) -> UOp:
        """A scan of `value` by the lanes together."""
        total = value
        is_one = self.own.extent.arg == 1
        if not is_one:
            again = UOp.range(self.own.extent.arg, self.number, Axis.UNROLL)
            self.number += 1
            mine = value.substitute({self.own: again})
            total = UOp(Ops.REDUCE, value.dtype, (mine, again), function)
        result, whole = self._exchanged(total, function)
        if not is_one:
            inner = UOp(Ops.PREFIX, value.dtype, (value, self.own), (function, count))
            result = result.alu(function, inner)
        elif count:
            result = result.alu(function, value)
        if self.rest.extent.arg > 1:
            before = UOp(Ops.PREFIX, value.dtype, (whole, self.rest), (function, 0))
            result = before.alu(function, result)
        return result

    def _exchanged(self, total: UOp, function: Ops) -> tuple[UOp, UOp]:
        """The totals of the lanes before each one, and of all lanes."""
        identity = function.definition.identity
        assert identity is not None
        before = UOp.const(total.dtype, identity(total.dtype))
        step = 1
        while step < self.lane.extent.arg:
            other = UOp(Ops.SHUFFLE, total.dtype, (total,), step)
            is_behind = (self.lane // step % 2).eq(1)
            before = is_behind.where(before.alu(function, other), before)
            total = total.alu(function, other)
            step *= 2
        return before, total
