"""TC: a sum of products runs on a matrix unit."""

from __future__ import annotations

from tilegrad.base.errors import OptError
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opt import Opt
from tilegrad.target import Target

__all__ = ["use_matrix_unit"]


def use_matrix_unit(ast: UOp, opt: Opt, target: Target) -> UOp:
    """Give three axes of a sum of products to a matrix unit of the target."""
    raise OptError(f"tc: {target.name} has no matrix unit for this kernel", opt=opt)
