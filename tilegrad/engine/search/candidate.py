"""Child process of a search: reads requests, compiles candidates, runs them.

Started by engine.search.children, with pipes as standard input and output. Everything here may die:
a compiler that aborts or a kernel that runs wild ends this process only.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilegrad.base import cache
from tilegrad.base.errors import CompileError, DeviceError, OptError
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.device.trial import Loaded, Trial, parameters_of
from tilegrad.engine.child import own_pipes, read_message, write_message
from tilegrad.engine.program.estimate import estimate
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import nodes_of, reductions_of, trips_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.text import parse
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import loop_order
from tilegrad.optimize.opts.opts import start
from tilegrad.optimize.search.findings import parse_opts
from tilegrad.optimize.search.search import Opts, Shapes
from tilegrad.runtime.protocol import launch_dims, variable_names

__all__ = ["main"]

# The most operations of a plain kernel, one element at a time, that is run to check a candidate; of
# a larger one only the ends of each axis are checked.
_PLAIN_OPERATIONS = 1 << 27
_LEAST_EXTENT = 16
_FUNCTION = "candidate"
# The largest size of a symbolic kernel that is tried: larger bounds are those of draws' offsets.
_LARGEST = 1 << 16
# Samples of one candidate, within a limit.
_SAMPLES, _SAMPLE_SECONDS = 200, 0.05
# The ratio of times, to its rival's, from which a candidate is given up.
_GIVE_UP = 1.4
_LAUNCHES_SECONDS, _ROUNDS_SECONDS, _LEAST_ROUNDS = 2e-3, 2.5, 5


# Failures of a candidate: its Opts are not legal, a compiler refuses it, or a device has no room.
_EXPECTED = (OptError, CompileError, DeviceError, MemoryError)


class _Bench:
    """One kernel and its candidates."""

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self.trial: Trial | None = None
        self.shapes: Shapes | None = None
        self.values: list[dict[str, int]] = []
        self.loaded: dict[int, Loaded] = {}

    def open(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        """Take a kernel on a device; the one before is forgotten."""
        self.__init__()  # type: ignore[misc]
        self.ast = parse(request["ast"])
        backend = Device[request["device"]]
        # A search for one thread has no chunks.
        target = replace(backend.target, threads=request["threads"])
        self.backend = replace(backend, target=target)
        self.seed = request["seed"]
        return {}

    @property
    def _device(self) -> Backend:
        assert self.backend is not None
        return self.backend

    def expand(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        if self.shapes is None:
            target = self._device.target
            self.shapes = Shapes(start(self.ast, target), target)
        options = self.shapes.expand(parse_opts(request["opts"]))
        return {"options": [[repr(list(o.opts)), o.key.hex(), o.cycles] for o in options]}

    def build(self, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        return self._build(self.ast, parse_opts(request["opts"]), look=True)

    def _build(self, ast: UOp, opts: Opts, *, look: bool = False) -> tuple[dict[str, Any], bytes]:
        backend = self._device
        _, program = to_program(ast, backend.target, opts)
        source = backend.render(_FUNCTION, program)
        largest = {node.name: node.arg[2] for node in program if node.op is Ops.DEFINE_VAR}
        dims = launch_dims(program, largest)
        facts = {
            "variables": variable_names(program),
            "global_size": dims.global_size,
            "local_size": dims.local_size,
            "text": cache.digest(source),
            "spills": backend.spills(source) if look and backend.spills is not None else 0,
        }
        return facts, backend.compile(source)

    def prepare(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        """Take memory, and compute the results that the kernel must give. The default list is
        checked against the plain kernel; where that would take too long, in part.
        """
        backend, ast = self._device, self.ast
        variables = sorted({node.arg for node in nodes_of(ast, Ops.DEFINE_VAR)}, key=repr)
        self.values = [
            {name: min(high, low + _LARGEST) for name, low, high in variables},
            {name: min((low + high) // 2, low + 12345) for name, low, high in variables},
        ]
        if self.values[0] == self.values[1]:
            self.values.pop()
        self.trial = Trial(backend, parameters_of(ast), _depth(ast), self.seed)
        plain, is_whole = _reduced(ast)
        default = self._load(*self._build(ast, parse_opts(request["default"])))
        wrong = None
        if plain is not None:
            reference = self._load(*self._build(plain, ()))
            for values in self.values:
                self.trial.expect(reference, values)
                wrong = wrong or self.trial.difference(default, values, may_write_more=not is_whole)
        if wrong is None and not is_whole:
            for values in self.values:
                self.trial.expect(default, values)
        return {"wrong": wrong}

    def _load(self, facts: dict[str, Any], binary: bytes) -> Loaded:
        return Loaded(
            self._device.runtime.load(_FUNCTION, binary),
            tuple(facts["variables"]),
            tuple(facts["global_size"]),
            tuple(facts["local_size"]),
        )

    def load(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        self.loaded[request["number"]] = self._load(request, data)
        return {}

    def seconds(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        """Whether a candidate computes the wanted values; its time and that of a rival, in
        turns.
        """
        assert self.trial is not None
        loaded = self._load(request, data)
        self.loaded[request["number"]] = loaded
        for values in self.values:
            wrong = self.trial.difference(loaded, values)
            if wrong is not None:
                return {"wrong": wrong}
        rival = loaded if request["rival"] is None else self.loaded[request["rival"]]
        own: list[float] = []
        other: list[float] = []
        end = time.perf_counter() + _SAMPLE_SECONDS
        while len(own) < 3 or (len(own) < _SAMPLES and time.perf_counter() < end):
            other.append(self.trial.seconds(rival, self.values[0]))
            own.append(self.trial.seconds(loaded, self.values[0]))
            if len(own) >= 2 and min(own) > _GIVE_UP * max(other):
                break
        share = statistics.median(a / b for a, b in zip(own, other))
        least = min(other)
        return {"taken": [least * share, least]}

    def rounds(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        """Samples of several candidates, one of each in a round, every second round backwards; of
        short kernels the least of several launches.
        """
        trial, values = self.trial, self.values[0]
        assert trial is not None
        kernels = [self.loaded[number] for number in request["numbers"]]
        once = min(trial.seconds(loaded, values) for loaded in kernels)
        launches = max(1, min(int(_LAUNCHES_SECONDS / max(once, 1e-9)), 50))
        samples: list[list[float]] = [[] for _ in kernels]
        end = time.monotonic() + _ROUNDS_SECONDS
        for count in range(request["rounds"]):
            if count >= _LEAST_ROUNDS and time.monotonic() > end:
                break
            order = range(len(kernels))
            for number in order if count % 2 == 0 else reversed(order):
                taken = [trial.seconds(kernels[number], values) for _ in range(launches)]
                samples[number].append(min(taken))
        return {"samples": samples}

    def close(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        self.__init__()  # type: ignore[misc]
        return {}


def _depth(ast: UOp) -> int:
    """The number of values in the longest reduction."""
    reductions = reductions_of(ast)
    return max((trips_of(each.src[1:]) for each in reductions), default=1)


def _reduced(ast: UOp) -> tuple[UOp | None, bool]:
    """The kernel, or where it does too much for code without vectors, the first and last iterations
    of its longest loops; None where that is still too much. And whether it is the whole.
    """
    whole = ast
    while estimate(ast)[0] + estimate(ast)[1] // 8 > _PLAIN_OPERATIONS:
        loop = max(_cuttable(ast), key=lambda each: int(each.extent.arg), default=None)
        if loop is None or loop.extent.arg <= _LEAST_EXTENT:
            return None, False
        extent = loop.extent.arg
        count = max(_LEAST_EXTENT, extent // 8 // 2 * 2)
        short = UOp.range(count, loop.number, loop.axis)
        iteration = short + short // (count // 2) * (extent - count)
        ast = replace_ranges(ast, {loop: (iteration, (short,))})
    return ast, ast is whole


def _cuttable(ast: UOp) -> list[UOp]:
    """Output loops that nothing but indices depends on."""
    nodes = ast.toposort()
    named = {
        loop for n in nodes if n.op in (Ops.REDUCE, Ops.END, Ops.DEFINE_LOCAL) for loop in n.src
    }
    stores = [
        node for node in nodes if node.op is Ops.STORE and node.src[0].op is Ops.DEFINE_GLOBAL
    ]
    return [
        loop
        for loop in loop_order(ast)
        if loop.axis in (Axis.LOOP, Axis.GLOBAL)
        and loop.extent.op is Ops.CONST
        and loop not in named
        and all(loop in store.index.ranges for store in stores)
    ]


def _limit(seconds: float) -> None:
    """The system ends this process when a request has taken that long, whatever it is doing."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main() -> None:
    """Answer requests until the input ends."""
    source, sink = own_pipes()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bench = _Bench()
    handlers: dict[str, Callable[[dict[str, Any], bytes], Any]] = {
        name: getattr(bench, name)
        for name in ("open", "expand", "build", "prepare", "load", "seconds", "rounds", "close")
    }
    while (message := read_message(source)) is not None:
        request, data = message
        _limit(request["seconds"] + 2)
        try:
            answer = handlers[request["do"]](request, data)
        except Exception as error:
            # The reason travels to the parent, which leaves out refused candidates and raises
            # defects.
            answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
            if not isinstance(error, _EXPECTED):
                answer["defect"] = "".join(traceback.format_exception(error))[-4000:]
        _limit(0)
        fields, binary = answer if isinstance(answer, tuple) else (answer, b"")
        write_message(sink, fields, binary)
