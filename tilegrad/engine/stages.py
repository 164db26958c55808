"""Kernel graph to program: the part of the pipeline that a warm start never imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad.base.config import config
from tilegrad.ir.op import Stage
from tilegrad.ir.spec import verify
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.optimize.heuristic import heuristic
from tilegrad.optimize.name import kernel_name
from tilegrad.optimize.opt import Opt
from tilegrad.optimize.opts import apply_opts, start
from tilegrad.render.names import function_name
from tilegrad.target import Target

__all__ = ["Shaped", "to_program"]


@dataclass(frozen=True)
class Shaped:
    """A kernel graph after its Opts, and its names."""

    ast: UOp
    names: tuple[str, str]

    @property
    def function(self) -> str:
        """The name as a C identifier."""
        return function_name(self.names[0])


def to_program(
    ast: UOp, target: Target, opts: Sequence[Opt] | None = None
) -> tuple[Shaped, list[UOp]]:
    """The kernel in its best shape, by `opts` or the heuristic, and its program."""
    checked = bool(config.VERIFY)
    if config.DEBUG >= 3:
        print(ast)
    if checked:
        verify(ast, Stage.KERNEL, "schedule")
    shaped = start(ast, target)
    if opts is None:
        opts = () if config.NOOPT else heuristic(shaped, target)
    shaped = apply_opts(shaped, opts, target)
    if checked:
        verify(shaped, Stage.KERNEL, "optimize")
    if config.DEBUG >= 3 and opts:
        print(*opts, sep="\n")
    program = lower(shaped, target)
    if checked:
        verify(program, Stage.PROGRAM, "lower")
    return Shaped(shaped, kernel_name(shaped)), program
