"""The kernels of a plan: those that are kept are recalled, the others made, on more than one core.

A large graph has helper processes (engine.build.workers). In a small one, a thread compiles and
stores a kernel while this one lowers the next.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from tilegrad.base.config import config
from tilegrad.base.errors import TilegradError, located
from tilegrad.base.origin import Entry, method_names, user_lines
from tilegrad.base.trace import counters, section
from tilegrad.device.backend import Backend
from tilegrad.engine.build.background import BackgroundThread, count_of_helpers
from tilegrad.engine.build.pipeline import (
    CompiledKernel,
    Job,
    Rendered,
    kernel_key,
    make_kernel,
    recall_kernel,
    render_ast,
    store_kernel,
)

if TYPE_CHECKING:
    from tilegrad.ir.uop import UOp

__all__ = ["Helpers", "Progress", "compile_kernels"]


class Helpers(Protocol):
    """Processes that make kernels beside this one (engine.build.workers)."""

    def begin(self, job: Job) -> None: ...

    def are_worth(self, kernels: int) -> bool: ...

    def make(
        self,
        jobs: Sequence[Job],
        here: Callable[[Job], CompiledKernel],
        tell: Callable[[int], None],
    ) -> dict[str, CompiledKernel]: ...


def compile_kernels(
    items: Sequence[tuple[UOp, Backend]],
    helpers: Helpers | None = None,
    origin_of: Callable[[int], tuple[Entry, ...]] = lambda position: (),
    *,
    is_short: bool = False,
) -> list[CompiledKernel]:
    """Each of `items` as a binary; those that are not kept anywhere are shared with `helpers`, and
    lowered while others are compiled. `origin_of` gives the user's calls behind an item, for the
    error of one that fails. With `is_short`, kernels may be in a short shape.
    """
    keys = [kernel_key(ast, backend) for ast, backend in items]
    found: dict[str, CompiledKernel] = {}
    missing: dict[str, tuple[UOp, Backend]] = {}
    # The first item of each key.
    positions: dict[str, int] = {}
    for position, (key, item) in enumerate(zip(keys, items, strict=True)):
        if key in positions:
            continue
        positions[key] = position
        known = recall_kernel(key, is_short=is_short)
        if known is None:
            missing[key] = item
        else:
            found[key] = known
    with Progress(len(positions)) as progress:
        if helpers is not None and helpers.are_worth(len(missing)):
            _make_with(helpers, missing, progress, found, is_short=is_short)
        # Kernels that no helper gave are made here, and fail here.
        left = {key: item for key, item in missing.items() if key not in found}
        _make_here(left, progress, found, lambda key: origin_of(positions[key]), is_short=is_short)
    return [found[key] for key in keys]


def _make_here(
    jobs: Mapping[str, tuple[UOp, Backend]],
    progress: Progress,
    found: dict[str, CompiledKernel],
    origin_of: Callable[[str], tuple[Entry, ...]],
    *,
    is_short: bool,
) -> None:
    """Add the kernels of `jobs` to `found`. With a second core, the next one is lowered while a
    thread compiles.
    """
    has_help = len(jobs) > 1 and count_of_helpers() > 0
    waiting: list[tuple[str, Callable[[], CompiledKernel]]] = []
    with BackgroundThread() as background:
        for key, (ast, backend) in jobs.items():
            with _located(origin_of, key), section("compile", ast) as entry:
                if entry is not None:
                    entry.origin = origin_of(key)
                if has_help and backend.compiles_unlocked:
                    rendered = render_ast(ast, backend, key, is_short=is_short)
                    counters.compiles += 1
                    waiting.append((key, background.begin(partial(_finished, rendered, backend))))
                else:
                    made = make_kernel(ast, backend, key, is_short=is_short)
                    found[key] = store_kernel(made)
            progress.tell(len(found) + len(waiting))
        for key, kernel in waiting:
            with _located(origin_of, key):
                found[key] = kernel()


def _finished(rendered: Rendered, backend: Backend) -> CompiledKernel:
    return store_kernel(replace(rendered.kernel, binary=backend.compile(rendered.source)))


@contextmanager
def _located(origin_of: Callable[[str], tuple[Entry, ...]], key: str) -> Iterator[None]:
    """Errors of the kernel `key` name the user's calls behind it."""
    try:
        yield
    except TilegradError as error:
        raise located(error, origin_of(key)) from error
    except Exception as error:
        # A defect, which keeps its class: it only names the calls, too.
        for name, of in (("call", method_names), ("line", user_lines)):
            if behind := of(origin_of(key)):
                error.add_note(f"  {name}: {', '.join(behind)}")
        raise


def _make_with(
    helpers: Helpers,
    missing: Mapping[str, tuple[UOp, Backend]],
    progress: Progress,
    found: dict[str, CompiledKernel],
    *,
    is_short: bool,
) -> None:
    """Add to `found` those of `missing` that the helpers, and this thread meanwhile, make."""
    jobs = [Job(key, ast, backend.name, is_short) for key, (ast, backend) in missing.items()]

    def here(job: Job) -> CompiledKernel:
        return make_kernel(job.ast, missing[job.key][1], job.key, is_short=is_short)

    made = helpers.make(jobs, here, progress.tell)
    for key in missing:
        if key in made:
            found[key] = store_kernel(made[key])


_PATIENCE_S = 2.0
_PAUSE_S = 0.1


class Progress:
    """How far the compilation of `total` kernels is; to be entered, and told.

    The note stands at a terminal:

        tilegrad: compiling 37 of 120 kernels ...

    It is written to the standard error, after two seconds, and taken back at the end. Where that is
    no terminal nothing is ever written; `PROGRESS=0` is for terminals that are to stay clean.
    """

    def __init__(self, total: int):
        self._total = total
        self._next = time.monotonic() + _PATIENCE_S
        self._is_shown = False
        self._is_wanted = bool(config.PROGRESS) and total > 1

    def tell(self, done: int) -> None:
        """Show that `done` kernels are done. Several threads may do so."""
        now = time.monotonic()
        if not self._is_wanted or now < self._next or not _is_terminal():
            return
        self._next = now + _PAUSE_S
        self._is_shown = True
        _write(f"\rtilegrad: compiling {done} of {self._total} kernels ...")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_shown:
            _write("\r\x1b[K")


def _is_terminal() -> bool:
    # A process may have closed its standard error, or replaced it by anything.
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):
        return False


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
