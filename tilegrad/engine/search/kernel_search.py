"""Search on this machine: candidates are compiled and run in children, findings are kept.

`BEAM=n` makes the pipeline ask here for the Opts of a kernel. A finding is kept twice. On disk
beside compiled code, by the kernel, the target, the machine, the heuristic's list, the width and
the strategy: where any of these changes, the search is made again. And, if `TILEGRAD_BEAM_FILE`
    names one, in a text file (optimize.search.findings), by kernel, target and machine: a user's
    entry holds for any width, and without BEAM too, so that a program can ship its findings.

Time of children is this machine's: builds run in all of them at once, launches in one while the
others wait.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.errors import DataError, OptError
from tilegrad.base.forks import held_at_fork
from tilegrad.base.recent import Bounded
from tilegrad.base.trace import counters
from tilegrad.device.backend import Backend
from tilegrad.device.cpu_native import core_count, machine_bytes
from tilegrad.device.registry import Device
from tilegrad.device.trial import parameters_of
from tilegrad.engine.search.children import Child, ChildError, Children
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.optimize.search.findings import Finding, line_of, parse_findings, parse_opts
from tilegrad.optimize.search.search import (
    VERSION,
    Built,
    Found,
    Measure,
    Option,
    Opts,
    Strategy,
    search,
    strategy_of,
)
from tilegrad.target import Target

__all__ = ["InChildren", "best_opts", "compare", "findings_state", "search_kernel"]

_MOST_CHILDREN = 8
_IDLE_SECONDS = 10.0
_BUILD_SECONDS = 20.0
_PREPARE_SECONDS = 90.0
# Time limit of a candidate: seconds, and multiples of the default's time. Then its process is
# killed.
_RUN_SECONDS, _RUN_TIMES = 5.0, 200.0
_SEED = 20
_HEADER = "# tilegrad findings: key, kernel, Opts, microseconds of the default and of these Opts\n"

_lock = held_at_fork(threading.RLock(), 20)
_children: Children | None = None
_files: dict[str, tuple[str, dict[str, Finding]]] = {}
_warned: Bounded[str, None] = Bounded(4096)


class InChildren(Measure):
    """Measures the candidates of one kernel in child processes.

    Raises ChildError where the default itself cannot be built and run, or computes other values
    than the plain kernel.
    """

    def __init__(self, ast: UOp, backend: Backend, default: Sequence[object], children: Children):
        nbytes = sum(each.size * each.dtype.itemsize for each in parameters_of(ast))
        if nbytes > machine_bytes() // 8:
            raise ChildError(f"search: buffers of {nbytes} bytes are too large to try kernels on")
        self._children = children
        opening = {
            "do": "open",
            "ast": str(ast),
            "device": backend.name,
            "threads": backend.target.threads,
            "seed": _SEED,
        }
        preparing = {"do": "prepare", "default": repr(list(default)), "seconds": _PREPARE_SECONDS}
        children.open(opening)
        # One more process, so that a wild kernel's writes to its memory cannot reach a compiler.
        self._runner = Child([opening])
        try:
            found, _ = self._runner.call(preparing, seconds=_PREPARE_SECONDS)
        except BaseException:
            # No process outlives an interrupted search.
            self._runner.kill()
            raise
        if found["wrong"] is not None:
            self._runner.kill()
            raise ChildError(f"search: the default differs from the plain kernel: {found['wrong']}")
        self._runner.add(preparing)
        self._count = 0
        # In which process a kernel is loaded, and how long the rival last took.
        self._loaded: dict[int, int | None] = {}
        self._taken = _RUN_SECONDS

    def expand(self, lists: Sequence[Opts]) -> list[list[Option]]:
        requests = [{"do": "expand", "opts": repr(list(opts))} for opts in lists]
        found: list[list[Option]] = []
        for opts, answer in zip(lists, self._children.map(requests, _BUILD_SECONDS), strict=True):
            if isinstance(answer, ChildError):
                _refused(opts, f"what is around it: {answer.headline}")
                found.append([])
                continue
            found.append(
                [
                    Option(parse_opts(text), bytes.fromhex(key), cycles)
                    for text, key, cycles in answer[0]["options"]
                ]
            )
        return found

    def build(self, lists: Sequence[Opts]) -> list[Built | None]:
        requests = [{"do": "build", "opts": repr(list(opts))} for opts in lists]
        answers = self._children.map(requests, _BUILD_SECONDS)
        found: list[Built | None] = []
        for opts, answer in zip(lists, answers, strict=True):
            if isinstance(answer, ChildError):
                _refused(opts, answer.headline)
                found.append(None)
                continue
            facts, binary = answer
            self._count += 1
            handle = (self._count, facts, binary)
            found.append(Built(opts, facts["text"], facts["spills"], handle))
        return found

    def seconds(self, built: Built, rival: Built | None) -> tuple[float, float] | None:
        counters.timings += 1
        number, facts, binary = built.handle
        request = {**facts, "do": "seconds", "number": number, "rival": None}
        once = _PREPARE_SECONDS
        try:
            if rival is not None:
                self._load(rival)
                request["rival"] = rival.handle[0]
                once = _RUN_TIMES * self._taken
            answer, _ = self._runner.call(request, binary, seconds=_RUN_SECONDS + once)
        except ChildError as error:
            _refused(built.opts, error.headline)
            return None
        if "wrong" in answer:
            _refused(built.opts, answer["wrong"])
            return None
        taken, other = answer["taken"]
        self._taken = other
        return taken, other

    def _load(self, built: Built) -> None:
        """Make sure that the process that runs knows a kernel: it may be a new one."""
        number, facts, binary = built.handle
        if self._loaded.get(number) != self._runner.pid or self._runner.pid is None:
            request = {**facts, "do": "load", "number": number}
            self._runner.call(request, binary, seconds=_RUN_SECONDS + _PREPARE_SECONDS)
            self._loaded[number] = self._runner.pid

    def rounds(self, kernels: Sequence[Built], rounds: int) -> list[list[float]]:
        counters.timings += len(kernels)
        numbers = [each.handle[0] for each in kernels]
        try:
            for each in kernels:
                self._load(each)
            request = {"do": "rounds", "numbers": numbers, "rounds": rounds}
            answer, _ = self._runner.call(request, seconds=_PREPARE_SECONDS)
        except ChildError:
            return [[] for _ in kernels]
        return [list(samples) for samples in answer["samples"]]

    def close(self) -> None:
        """End the process that ran candidates; those that compile are kept."""
        self._runner.kill()


def _refused(opts: Opts, reason: str) -> None:
    if config.DEBUG >= 3:
        print(f"   refused     {list(opts)}: {reason}")


def search_kernel(
    ast: UOp,
    backend: Backend,
    *,
    width: int = 4,
    seconds: float = 60.0,
    strategy: str | Strategy = "beam",
) -> Found:
    """Search the Opts of one kernel graph on a device, and keep nothing.

    Args:
        width: how many lists of Opts are followed at once, as in `BEAM=width`.
        seconds: about how long the search may take.
        strategy: a name that `register_strategy` knows (optimize.search), or the function itself.

    Raises ChildError where the kernel cannot be run in a child, ConfigError for an unknown
    strategy.
    """
    chosen = strategy_of(strategy) if isinstance(strategy, str) else strategy
    kernel = start(ast, backend.target)
    default = heuristic(kernel, backend.target)
    began = time.monotonic()
    with _measuring(ast, backend, default) as measure:
        counters.searches += 1
        found = search(
            kernel,
            backend.target,
            measure,
            default,
            width=width,
            seconds=seconds,
            strategy=chosen,
            report=print if config.DEBUG >= 3 else None,
        )
    if config.DEBUG >= 2:
        name = kernel_name(apply_opts(kernel, found.opts, backend.target))[0]
        print(
            f"search {name}: {found.options} options, {found.built} built, {found.timed} timed, "
            f"{found.refused} refused; {found.default_seconds * 1e6:.1f} -> "
            f"{found.seconds * 1e6:.1f} us ({found.gain:.2f}x) in {time.monotonic() - began:.1f} s"
        )
    return found


def compare(
    ast: UOp, backend: Backend, lists: Sequence[Sequence[Opt]], rounds: int = 15
) -> list[list[float]]:
    """Seconds of a kernel graph under several lists of Opts, launched in turns in a process of
    their own; empty for all where one of them cannot be built and run.

    The first list stands for the default: the others must compute the same.
    """
    with _measuring(ast, backend, lists[0]) as measure:
        built = measure.build([tuple(opts) for opts in lists])
        kernels = [each for each in built if each is not None]
        if len(kernels) < len(lists):
            return [[] for _ in lists]
        return measure.rounds(kernels, rounds)


@contextmanager
def _measuring(ast: UOp, backend: Backend, default: Sequence[Opt]) -> Iterator[InChildren]:
    """The measure of one kernel: one at a time, as they would disturb each other. Children are
    ended where the search is interrupted, and some time after the last one.
    """
    with _lock:
        children = _processes()
        try:
            measure = InChildren(ast, backend, default, children)
            try:
                yield measure
            finally:
                measure.close()
        except BaseException:
            children.rest()
            raise
        _rest_later(children)


def _rest_later(children: Children) -> None:
    stamp = children.used = time.monotonic()

    def rest() -> None:
        with _lock:
            if children.used == stamp:
                children.rest()

    timer = threading.Timer(_IDLE_SECONDS, rest)
    timer.daemon, timer.name = True, "tilegrad search"
    timer.start()


def _processes() -> Children:
    """The compiling children, kept from kernel to kernel; a forked process has its own."""
    global _children
    if _children is None or _children.owner != os.getpid():
        _children = Children(max(1, min(core_count(), _MOST_CHILDREN)))
        atexit.register(_children.close)
    return _children


# findings


def best_opts(ast: UOp, backend: Backend) -> Opts | None:
    """The Opts for a kernel from earlier findings, or from a search now if BEAM asks for one; None
    where there are none, and the heuristic's hold.
    """
    if config.NOOPT:
        return None
    target = backend.target
    kernel = start(ast, target)
    shared = _shared_key(ast, backend)
    if config.BEAM_FILE and not config.IGNORE_BEAM_CACHE:
        finding = _file()[1].get(shared)
        if finding is not None and _is_legal(kernel, finding, target):
            return finding.opts
    if not config.BEAM or not backend.runtime.is_timed or not Device.is_built_in(backend.name):
        return None
    default = heuristic(kernel, target)
    key = cache.digest(shared, repr(default), str(config.BEAM), str(config.SEARCH))
    cached = None if config.IGNORE_BEAM_CACHE else cache.get("findings", key)
    if cached is not None:
        # An entry that cannot be parsed is searched again.
        with contextlib.suppress(DataError, ValueError):
            (finding,) = parse_findings([cached.decode()]).values()
            if _is_legal(kernel, finding, target):
                return finding.opts
    strategy = strategy_of(config.SEARCH)
    try:
        found = search_kernel(
            ast,
            backend,
            width=config.BEAM,
            seconds=config.BEAM_SECONDS or float("inf"),
            strategy=strategy,
        )
    except ChildError as error:
        _warn(shared, f"{error.headline}; the heuristic's Opts are taken")
        return None
    name = kernel_name(apply_opts(kernel, found.opts, target))[0]
    finding = Finding(shared, name, found.opts, found.default_seconds, found.seconds)
    cache.put("findings", key, line_of(finding).encode())
    if config.BEAM_FILE:
        _append(finding)
    return finding.opts


def _shared_key(ast: UOp, backend: Backend) -> str:
    """The key of a kernel in a file of findings: its graph, the target and the machine."""
    from tilegrad.compile.llvm import host_target

    machine = (host_target()[1], backend.compiler, core_count(), config.THREADS)
    return cache.digest(ast.key, repr(backend.target), repr(machine), str(VERSION))


def _is_legal(kernel: UOp, finding: Finding, target: Target) -> bool:
    try:
        apply_opts(kernel, finding.opts, target)
    except OptError as error:
        _warn(
            finding.key,
            f"the Opts found for {finding.name} are not legal any more ({error.headline}); "
            "they are left out",
        )
        return False
    return True


def _warn(key: str, text: str) -> None:
    if key not in _warned:
        _warned.put(key, None)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def findings_state() -> str:
    """The key part that the file of findings adds to compiled code: its content as this process
    first saw it.
    """
    return _file()[0] if config.BEAM_FILE else ""


def _file() -> tuple[str, dict[str, Finding]]:
    """(digest, findings) of the file, read once in a process.

    Raises DataError where a line does not read.
    """
    path = str(config.BEAM_FILE)
    with _lock:
        if path not in _files:
            try:
                text = Path(path).read_text(encoding="utf-8")
            except FileNotFoundError:
                text = ""
            digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
            _files[path] = (digest, parse_findings(text.splitlines()))
        return _files[path]


def _append(finding: Finding) -> None:
    """Add a line to the file; one that cannot be written costs the line only."""
    path = Path(config.BEAM_FILE)
    with _lock:
        _file()[1][finding.key] = finding
        try:
            is_new = not path.exists()
            with path.open("ab", buffering=0) as file:
                text = (_HEADER if is_new else "") + line_of(finding) + "\n"
                file.write(text.encode())
        except OSError as error:
            _warn(str(path), f"{path} cannot be written ({error.strerror}): findings are not added")
