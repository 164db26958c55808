"""The stages in their order, for one kernel: optimize, lower, render, compile, with checks in
between.

A compiled kernel is kept by everything that shaped it: its graph, the target, the switches that
shape code, the compiler behind the back end, and tilegrad's own sources. Twin devices (`CPU`,
`CPU:1`) have one target, so they share binaries.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.forks import held_at_fork
from tilegrad.base.recent import Recent
from tilegrad.base.trace import PassRecord, counters, trace
from tilegrad.device.backend import Backend
from tilegrad.engine.program.blocks import blocks_of, size_from
from tilegrad.engine.program.fields import names, numbers, parsed, row, terms, text, whole

if TYPE_CHECKING:
    from tilegrad.engine.program.stages import Shaped
    from tilegrad.ir.lengths import Terms
    from tilegrad.ir.uop import UOp

__all__ = [
    "CompiledKernel", "Job", "Rendered", "best_key", "compile_kernel", "finish_kernel",
    "kernel_from", "kernel_key", "make_kernel", "recall_kernel", "render_ast", "render_kernel",
    "store_kernel",
]  # fmt: skip


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled kernel: everything a launch needs, without the graph it came from.

    Attributes:
        key: under which it is kept.
        name, display: its name, plain and with the colours of its axes.
        function: the symbol in the binary.
        global_size, local_size: blocks, and lanes of a block.
        variables: names of the integers that a launch gives, in order.
        ops, mem: operations, and bytes of distinct memory that it touches, at the largest symbolic
            sizes.
        costs: operations and bytes where these are for a launch to say (`ir.lengths`).
        blocks: the global size where that is for a launch to say (`engine.program.blocks`).
        binary: the compiled code that the device loads.
        graph: where it has a tile of two axes, the graph that it was made of, as text: a capture
            may have operands copied beforehand (engine.build.prepacked_weights), and one in a short
            shape may be made again in its best one.
        lines: where its shape is a short one, the lines of its source; else 0.
    """

    key: str
    name: str
    display: str
    function: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    variables: tuple[str, ...]
    ops: int
    mem: int
    graph: str = ""
    costs: tuple[Terms, Terms] | None = None
    blocks: tuple[Any, ...] | None = None
    lines: int = 0
    binary: bytes = field(default=b"", repr=False, compare=False)

    def fields(self) -> dict[str, Any]:
        """All but the binary."""
        found = dict(vars(self))
        del found["binary"]
        return found


# Kernels live as long as a plan or a capture that has them, or as they are among those used last.
_kernels: Recent[str, CompiledKernel] = Recent(lambda: config.KEEP_KERNELS)
_lock = held_at_fork(threading.Lock(), 40)
# By name, the keys of the kernels of this process that have it, with their numbers.
_named: Recent[str, dict[str, int]] = Recent(lambda: config.KEEP_KERNELS)


# Folders whose code shapes a kernel or a plan. The decisions of the folders above them are in the
# graph.
_COMPILER = (
    "base", "ir", "target.py", "matrix_units.py", "hardware.py", "schedule", "optimize", "lower",
    "render", "compile", "runtime", "device", "engine",
)  # fmt: skip


_PACKAGE = Path(__file__).parents[2]


@functools.cache
def sources_digest() -> str:
    """Changes with any file of the compiler, so that an edited tilegrad does not run stale code."""
    rows: list[str] = []
    for name in _COMPILER:
        for path in _sources(str(_PACKAGE / name)):
            state = os.stat(path)
            rows.append(f"{path[len(str(_PACKAGE)) :]} {state.st_size} {state.st_mtime_ns}")
    return cache.digest(*rows)


def _sources(path: str) -> list[str]:
    """The Python files at and below `path`, in a fixed order."""
    if path.endswith(".py"):
        return [path]
    with os.scandir(path) as entries:
        names = sorted((each.name, each.is_dir()) for each in entries)
    inside = (
        _sources(f"{path}/{name}")
        for name, is_folder in names
        if name.endswith(".py") or (is_folder and name != "__pycache__")
    )
    return [each for files in inside for each in files]


def kernel_key(ast: UOp, backend: Backend) -> str:
    """The digest of everything that shapes the binary of `ast` on `backend`."""
    target = backend_key(backend)
    return cache.digest(ast.key, target)


def backend_key(backend: Backend) -> str:
    """The share of the device, its compiler and the switches in every key."""
    return repr((_code_of(backend), config.code_key(), sources_digest(), _findings_state()))


@functools.lru_cache(maxsize=64)
def _code_of(backend: Backend) -> str:
    """The share of a device and its compiler, which is long."""
    return repr((backend.target, backend.compiler))


def _findings_state() -> str:
    """The file of findings, if there is one, is part of every key."""
    if not config.BEAM_FILE:
        return ""
    from tilegrad.engine.search.kernel_search import findings_state

    return findings_state()


def is_recalled() -> bool:
    """Whether compiled code is taken from disk: not where how it is made is to be shown, nor where
    what was found before is to be left.
    """
    return config.DEBUG < 3 and not (config.BEAM and config.IGNORE_BEAM_CACHE)


# Behind the key of a kernel: its short shape.
_SHORT = "short"


def best_key(key: str) -> str:
    """The key of the same kernel in its best shape."""
    return key.removesuffix(_SHORT)


def recall_kernel(key: str, *, is_short: bool = False) -> CompiledKernel | None:
    """The kernel stored under `key`, in this process or on disk; with `is_short` else the one that
    has a short shape.
    """
    found = _recall(key)
    return _recall(key + _SHORT) if found is None and is_short else found


def _recall(key: str) -> CompiledKernel | None:
    found = _kernels.get(key)
    if found is not None:
        return found
    cached = cache.get("kernels", key) if is_recalled() else None
    if cached is None:
        return None
    head, _, binary = cached.partition(b"\n")
    try:
        kernel = kernel_from(key, parsed(head), binary)
    except ValueError:
        return None
    return None if kernel is None else _remember(kernel)


def kernel_from(key: str, given: dict[str, Any], binary: bytes) -> CompiledKernel | None:
    """The kernel of these fields, as JSON has them; None if it is not one of `key`."""
    try:
        own = text(given["key"])
        if key not in (own, best_key(own)):
            return None
        return CompiledKernel(
            own,
            text(given["name"]),
            text(given["display"]),
            text(given["function"]),
            numbers(given["global_size"]),
            numbers(given["local_size"]),
            names(given["variables"]),
            whole(given["ops"]),
            whole(given["mem"]),
            text(given["graph"]),
            _costs_of(given["costs"]),
            _blocks_of(given["blocks"]),
            whole(given["lines"]),
            binary,
        )
    except (ValueError, KeyError, TypeError):
        return None


def _costs_of(given: Any) -> tuple[Terms, Terms] | None:
    if given is None:
        return None
    ops, mem = map(terms, row(given, 2))
    return None if ops is None or mem is None else (ops, mem)


def _blocks_of(given: Any) -> tuple[Any, ...] | None:
    return None if given is None else tuple(map(size_from, row(given, 3)))


def _remember(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel under its name in this process."""
    known = _kernels.get(kernel.key)
    if known is None:
        suffix = _suffix(kernel.name, kernel.key)
        named = replace(kernel, name=kernel.name + suffix, display=kernel.display + suffix)
        known = _kernels.setdefault(kernel.key, named)
    return known


def _suffix(name: str, key: str) -> str:
    """Suffix for the second and further kernels of one name in this process: "", "n1", "n2", in the
    order in which they are met. On disk names have none, as another process meets other kernels.
    """
    with _lock:
        keys = _named.setdefault(name, {})
        number = keys.setdefault(key, len(keys))
    return f"n{number}" if number else ""


@dataclass(frozen=True)
class Job:
    """A kernel to make: its key, its graph, the name of the device that it is for, and whether a
    short shape will do.
    """

    key: str
    ast: UOp
    device: str
    is_short: bool = False


class Rendered(NamedTuple):
    """A kernel and the source of its binary."""

    kernel: CompiledKernel
    source: str


def make_kernel(
    ast: UOp,
    backend: Backend,
    key: str,
    opts: Sequence[Any] | None = None,
    *,
    is_short: bool = False,
) -> CompiledKernel:
    """`ast` through all stages, by the Opts given or those the heuristic picks; not stored."""
    return _compiled(render_ast(ast, backend, key, opts, is_short=is_short), backend)


def render_ast(
    ast: UOp,
    backend: Backend,
    key: str,
    opts: Sequence[Any] | None = None,
    *,
    is_short: bool = False,
) -> Rendered:
    """`ast` through all stages but the compiler. `key` is that of its best shape."""
    from tilegrad.engine.program.estimate import estimate, estimate_lengths
    from tilegrad.engine.program.stages import to_program

    if opts is None and (config.BEAM or config.BEAM_FILE):
        from tilegrad.engine.search.kernel_search import best_opts

        opts = best_opts(ast, backend)
    shaped, program = to_program(ast, backend.target, opts, is_short=is_short)
    made = render_kernel(shaped, program, backend, key, estimate(ast), str(ast))
    return made._replace(kernel=replace(made.kernel, costs=estimate_lengths(ast)))


def _compiled(rendered: Rendered, backend: Backend) -> CompiledKernel:
    counters.compiles += 1
    return replace(rendered.kernel, binary=backend.compile(rendered.source))


def finish_kernel(
    shaped: Shaped, program: list[UOp], backend: Backend, key: str, costs: tuple[int, int]
) -> CompiledKernel:
    """As `render_kernel`, with the binary."""
    return _compiled(render_kernel(shaped, program, backend, key, costs), backend)


def render_kernel(
    shaped: Shaped,
    program: list[UOp],
    backend: Backend,
    key: str,
    costs: tuple[int, int],
    graph: str = "",
) -> Rendered:
    """The program of a kernel, rendered; its operations and bytes are `costs`."""
    from tilegrad.runtime.protocol import launch_dims, variable_names

    name, display = shaped.names
    function = shaped.function
    counters.renders += 1
    source = backend.render(function, program)
    if shaped.is_short and backend.sooner is not None:
        source = backend.sooner(source)
    record = trace.get()
    if record is not None:
        record.append(PassRecord("render", program, source, device=backend.name))
    if config.DEBUG >= 5:
        print(listing(program))
    if config.DEBUG >= 4:
        print(source)
    largest = {node.name: node.arg[2] for node in program if node.op.name == "DEFINE_VAR"}
    dims = launch_dims(program, largest)
    ops, mem = costs
    kernel = CompiledKernel(
        key + _SHORT if shaped.is_short else key,
        name,
        display,
        function,
        dims.global_size,
        dims.local_size,
        variable_names(program),
        ops,
        mem,
        graph if shaped.is_tiled or shaped.is_short else "",
        lines=source.count("\n") + 1 if shaped.is_short else 0,
        blocks=None if _is_in_rows(dims.global_size, backend) else blocks_of(program),
    )
    return Rendered(kernel, source)


def _is_in_rows(blocks: Sequence[int], backend: Backend) -> bool:
    """Whether the kernel finds its block by the largest grid."""
    target = backend.target
    return not target.has_locals or 0 < target.most_blocks < max(blocks)


def store_kernel(kernel: CompiledKernel) -> CompiledKernel:
    """Store a kernel, in this process and on disk: a line of JSON, then the binary."""
    head = json.dumps(kernel.fields()).encode()
    cache.put("kernels", kernel.key, head + b"\n" + kernel.binary)
    return _remember(kernel)


def compile_kernel(ast: UOp, backend: Backend, opts: Sequence[Any] | None = None) -> CompiledKernel:
    """`ast` as a binary for `backend`, by the Opts given, found by a search (BEAM), or picked by
    the heuristic.
    """
    key = (
        kernel_key(ast, backend)
        if opts is None
        else cache.digest(kernel_key(ast, backend), repr(tuple(opts)))
    )
    found = recall_kernel(key)
    if found is not None:
        return found
    return store_kernel(make_kernel(ast, backend, key, opts))


def listing(program: Sequence[UOp]) -> str:
    """A program as rows: step, op, dtype, the steps it takes, argument."""
    step = {node: number for number, node in enumerate(program)}
    rows = []
    for number, node in enumerate(program):
        src = [step[source] for source in node.src]
        arg = "" if node.arg is None else node.arg
        rows.append(f"{number:4d} {node.op!s:20} {node.dtype!r:22} {src!s:24} {arg}")
    return "\n".join(rows)
