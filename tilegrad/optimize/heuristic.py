"""A good list of Opts without measuring, from static facts of the target."""

from __future__ import annotations

from tilegrad.ir.uop import UOp
from tilegrad.optimize.opt import Opt
from tilegrad.target import Target

__all__ = ["heuristic"]


def heuristic(ast: UOp, target: Target) -> list[Opt]:
    """The Opts for a kernel on `target`."""
    return []
