"""Why a kernel has its shape, in one line: the estimate, its components, and the runner-up's."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import OptError
from tilegrad.ir.uop import UOp
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

__all__ = ["explain"]


def explain(kernel: UOp, opts: Sequence[Opt], target: Target) -> str:
    """The estimate of `kernel` (as `start` left it) under `opts`, and of the best
    legal list with one Opt less: the runner-up.

        estimate 1,090 cycles: issue 1,024, second cache 330; without UPCAST(0, 16) 9,300
    """
    chosen = estimate(apply_opts(kernel, opts, target), target)
    shorter: list[tuple[float, Opt]] = []
    for position, left_out in enumerate(opts):
        try:
            shaped = apply_opts(kernel, (*opts[:position], *opts[position + 1 :]), target)
        except OptError:
            continue
        shorter.append((estimate(shaped, target).cycles, left_out))
    text = f"estimate {chosen}"
    if shorter:
        cycles, opt = min(shorter, key=lambda each: each[0])
        text += f"; without {opt.op.name}({opt.axis}, {opt.arg}) {cycles:,.0f}"
    return text
