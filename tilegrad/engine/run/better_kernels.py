"""Kernels in short shapes are replaced by the same ones in their best shapes, where that pays.

A first call waits for its kernels, and the best shapes of products and convolutions have two or
three times the text of shapes that are hardly slower. So the first ones are short, but for captures
(`optimize.generators.heuristic.short_shape`). Once a plan has run for as long as its better kernels
take to be made, a helper process of low priority (`engine.build.workers.behind`) makes them beside
it, and the next run has them: in the end a program has lost no more than twice the loss by the
better choice. A plan that is given up meanwhile gets none.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Protocol

from tilegrad.base.errors import TilegradError
from tilegrad.device.registry import Device
from tilegrad.engine.build import workers
from tilegrad.engine.build.pipeline import CompiledKernel, Job, recall_kernel, store_kernel
from tilegrad.engine.plans.plan import Plan

__all__ = ["Renewable", "begin", "patience_s"]

# Seconds to lower and compile a line of source (the first step of DDPM's U-Net: 110,000 lines in
# 13.6 s), and how many lines a best shape has for one of a short shape (there 2.4).
_LINE_S, _LONGER = 0.12e-3, 2.4
# Kernels that are made in one go, after which somebody must still want them.
_AT_ONCE = 4

# One plan at a time. A fork does not wait for it.
_one_plan = threading.Lock()


def patience_s(kernels: Sequence[CompiledKernel]) -> float:
    """Seconds to wait for better versions of `kernels`; 0 where all of them are the best."""
    return _LINE_S * _LONGER * sum(each.lines for each in kernels)


class Renewable(Protocol):
    """An object that runs the kernels of a plan."""

    def renew(self) -> None:
        """Run the kernels that the plan has by now."""


def begin(plan: Plan, runner: Renewable) -> None:
    """Let a helper make the better kernels of a plan; `runner` is renewed when the plan has them,
    by another thread.
    """
    threading.Thread(
        target=contextvars.copy_context().run,
        name="tilegrad better kernels",
        args=(_improve, weakref.ref(plan), runner),
        daemon=True,
    ).start()


def _improve(wanted: weakref.ref[Plan], runner: Renewable) -> None:
    one_plan = _one_plan
    # A failure here leaves the plan as it is.
    with one_plan, contextlib.suppress(TilegradError, ImportError, OSError):
        plan = wanted()
        if plan is None:
            return
        short = plan.short_kernels()
        del plan
        made: dict[str, CompiledKernel] = {}
        missing: list[str] = []
        for key in short:
            found = recall_kernel(key)
            if found is not None:
                made[key] = found
            else:
                missing.append(key)
        for at in range(0, len(missing), _AT_ONCE):
            if wanted() is None:
                return
            jobs = [_job(key, *short[key]) for key in missing[at : at + _AT_ONCE]]
            given = workers.behind().make_beside(jobs)
            if not given:
                break
            made |= {key: store_kernel(kernel) for key, kernel in given.items()}
        plan = wanted()
        # Without any it would only wait and ask again.
        if plan is not None and made:
            plan.use(made)
            runner.renew()


def _job(key: str, device: str, kernel: CompiledKernel) -> Job:
    from tilegrad.ir.text import parse

    return Job(key, parse(kernel.graph), Device[device].name)


def _forget() -> None:
    global _one_plan
    _one_plan = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
