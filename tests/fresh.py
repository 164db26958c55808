"""What the process knows of earlier graphs and calls, and how to forget it: for tests that count
what is planned, compiled or in memory, and would count what other tests have left otherwise.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from typing import Any

import pytest

from tilegrad import Tensor
from tilegrad.base.recent import Recent
from tilegrad.engine.build.pipeline import sources_digest
from tilegrad.engine.realize import bindings, changing_numbers
from tilegrad.grad import derivative_templates as grad_templates
from tilegrad.tensor.calls import gradients, template_table
from tilegrad.tensor.calls.recent_calls import RecentCalls
from tilegrad.tensor.handle import living, waiting
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.spectral import fourier
from tilegrad.tensor.storage import block_runs, running, short_reads

__all__ = ["forget", "forget_loops", "forget_others", "skip_if_edited"]

# Where results of the user's calls are kept, and kernels of their graphs. What the other stages of
# the compiler know of their rules depends on no graph.
_LAYERS = tuple(
    f"tilegrad.{layer}"
    for layer in ("capture", "engine", "grad", "nn", "schedule", "tensor", "torch")
)


def forget_loops() -> None:
    """No loop of the user's is known by its lengths, and no call was in vain, after which calls
    would wait no more.
    """
    this_thread.pool.end()
    this_thread.pool.count_hit()
    for table in (block_runs._lengths, gradients._known, gradients._long):
        table.clear()


def forget() -> None:
    """No plan, kernel or template is known, and memory that only they held has been given back."""
    for table in _tables(len(sys.modules)):
        table.clear()
    for kept in (template_table, grad_templates):
        kept._known.clear()
        kept._came.clear()
    template_table._of_numbers.clear()
    template_table._values.clear()
    for recent in _recent_calls():
        for of_short in (recent.known, recent._of_numbers, recent._of_sizes):
            of_short.clear()
        recent._are_copies.clear()
    bindings._bindings.clear()
    changing_numbers._seen.clear()
    fourier._chirps.clear()
    gc.collect()


@functools.lru_cache(maxsize=1)
def _tables(modules: int) -> list[Recent[Any, Any]]:
    """The tables of the loaded modules; found anew when the number of `modules` changes."""
    return [
        table
        for name, module in list(sys.modules.items())
        if name.startswith(_LAYERS)
        for table in vars(module).values()
        if isinstance(table, Recent)
    ]


@functools.cache
def _recent_calls() -> list[RecentCalls]:
    """Those of all methods of a tensor, which their functions close over."""
    return [
        cell.cell_contents
        for cls in Tensor.__mro__
        for method in vars(cls).values()
        for cell in getattr(getattr(method, "fget", method), "__closure__", None) or ()
        if isinstance(cell.cell_contents, RecentCalls)
    ]


def forget_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no run of this test mind what other tests of the process have left alive: gradients,
    variables and calls that wait take every run the long way.
    """
    gc.collect()
    plain, others = running.gradients, running.gradients()
    monkeypatch.setattr(
        running, "gradients", lambda: [g for g in plain() if all(g is not each for each in others)]
    )
    monkeypatch.setattr(short_reads, "with_variables", living.Some())
    monkeypatch.setattr(running, "_waiting", weakref.WeakKeyDictionary())
    monkeypatch.setattr(waiting.this_thread, "pool", waiting.Pool())


def skip_if_edited() -> None:
    """Leave out a test that asks a helper process, where a file of the compiler was edited since
    this process began: the helper has other sources, and makes nothing for it.
    """
    if sources_digest() != sources_digest.__wrapped__():
        pytest.skip("the sources were edited since this process began")
