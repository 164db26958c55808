"""A kernel for a target with blocks, and moves on it that may be refused: the base of its
heuristics.
"""

from __future__ import annotations

from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import reductions_of, stores_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of, loop_order, reduce_axes
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.target import Target

__all__ = ["BlockShaper"]

_FROM_REDUCE = (OptOps.UNROLL, OptOps.GROUP, OptOps.GROUPTOP)


class BlockShaper:
    """Applies Opts one by one; a move that is refused is left out."""

    def __init__(self, ast: UOp, target: Target):
        self.ast, self.target = ast, target

    def reductions(self) -> list[UOp]:
        return reductions_of(self.ast)

    def store(self) -> UOp:
        return next(node for node in stores_of(self.ast) if node.src[0].op is Ops.DEFINE_GLOBAL)

    def grid(self) -> list[UOp]:
        """The grid axes of known extent."""
        return [
            axis
            for axis in axes_of(self.ast)
            if axis.axis is Axis.GLOBAL and axis.extent.op is Ops.CONST
        ]

    def axis_numbered(self, number: int) -> UOp | None:
        """The axis of this number, if there is one."""
        return next((axis for axis in loop_order(self.ast) if axis.number == number), None)

    def apply(self, op: OptOps, loop: UOp, arg: object) -> bool:
        """Apply an Opt to `loop`; False where it is not legal."""
        axes = reduce_axes(self.ast) if op in _FROM_REDUCE else axes_of(self.ast)
        if loop not in axes:
            return False
        try:
            self.ast = apply_opt(self.ast, Opt(op, axes.index(loop), arg), self.target)
        except OptError:
            return False
        return True

    def move(self, op: OptOps, loop: UOp, arg: object) -> UOp | None:
        """As `apply`: the rest of `loop` at its position, or None where there is none."""
        if loop.number not in self.ast.arg.order:
            return None
        position = self.ast.arg.order.index(loop.number)
        before = set(self.ast.arg.order)
        if not self.apply(op, loop, arg):
            return None
        order = self.ast.arg.order
        number = (
            order[position] if position < len(order) and order[position] not in before else None
        )
        left = None if number is None else self.axis_numbered(number)
        return left if left is not None and left.axis is loop.axis else None
