"""A kernel between the passes, as text: for a script that is run, or from a graph that was saved.

    kernels = run_recorded("script.py")
    print(kernels[0].after("lower.expand"))

The states in their order: `optimize`, the kernel after its Opts; each pass of `lower.PASSES`;
`linearize`, the instructions in a row; `render`, their source; `assembly`, on a CPU, what the
compiler makes of that. All but the last two are text that parses back, and `replay` takes it up.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tilegrad.base.config import Context
from tilegrad.base.errors import ConfigError, DeviceError
from tilegrad.base.trace import PassRecord, recording
from tilegrad.compile.llvm import assembly, host_target
from tilegrad.device.registry import Device
from tilegrad.engine.stages import to_program
from tilegrad.ir.op import Stage
from tilegrad.ir.spec import verify
from tilegrad.ir.text import dump, parse, parse_program
from tilegrad.ir.uop import UOp
from tilegrad.lower.linearize import linearize
from tilegrad.lower.lower import PASSES
from tilegrad.optimize.name import kernel_name
from tilegrad.render.names import function_name
from tilegrad.schedule.schedule import make_schedule

__all__ = ["STATES", "TracedKernel", "replay", "run_recorded"]

_LOWER = tuple(name for name, _ in PASSES)
STATES = ("optimize", *_LOWER, "linearize", "render", "assembly")


@dataclass
class TracedKernel:
    """One kernel on its way: `graphs` are its states by name, as far as they are graphs.

    Attributes:
        name: its name, empty for a kernel that was taken up within lowering.
        unchanged: the passes that left it as it was.
    """

    name: str = ""
    graphs: dict[str, UOp] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)

    def after(self, state: str) -> str:
        """The text of a state.

        Raises ConfigError for a name that is none, or of a state before the kernel was taken up.
        """
        if state == "linearize":
            return dump(self.program)
        if state == "render":
            return self.source
        if state == "assembly":
            if not Device.DEFAULT.startswith("CPU"):
                raise DeviceError(f"show: {Device.DEFAULT} has no assembly", rule="only CPU has")
            _, cpu, features = host_target()
            return assembly(self.source, cpu=cpu, features=features)
        if state not in self.graphs:
            known = [*self.graphs, *STATES[-3:]]
            raise ConfigError(f"show: there is no state {state!r}", known=", ".join(known))
        return dump(self.graphs[state])

    @cached_property
    def program(self) -> list[UOp]:
        """The instructions in their order."""
        return linearize(self.graphs[_LOWER[-1]])

    @cached_property
    def source(self) -> str:
        """The program as the default device renders it."""
        name = function_name(self.name) if self.name else "kernel"
        return Device[Device.DEFAULT].render(name, self.program)


def run_recorded(path: str, arguments: Sequence[str] = ()) -> list[TracedKernel]:
    """Run a script as Python would; the kernels that it compiles, in order. Nothing is taken from
    the disk cache, or there would be nothing to see.
    """
    before = sys.argv
    sys.argv = [path, *arguments]
    try:
        with (
            Context(DISABLE_COMPILER_CACHE=1),
            recording() as record,
            contextlib.suppress(SystemExit),
        ):
            runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before
    return _kernels(record)


def _kernels(record: Sequence[PassRecord]) -> list[TracedKernel]:
    """The passes of each kernel. Other passes of the record are parts of these."""
    found: list[TracedKernel] = []
    passed: set[str] = set()
    for each in record:
        if each.name == _LOWER[0]:
            found.append(TracedKernel(kernel_name(each.before)[0], {"optimize": each.before}))
            passed = set()
        # Some passes record the rewrites within them under their own name, before themselves.
        if found and each.name in _LOWER and each.after is not None:
            kernel = found[-1]
            kernel.graphs[each.name] = each.after
            passed.add(each.name)
            before = list(kernel.graphs.values())[-2]
            if before is each.after:
                kernel.unchanged.add(each.name)
            else:
                kernel.unchanged.discard(each.name)
    return found


def replay(text: str, after: str) -> list[TracedKernel]:
    """Go on from a graph, by its text, that a pass left: verify it, and run what comes after.

    `after` is a pass of lowering, or a stage: tensor, schedule, optimize, lower. A pass within a
    stage before lowering stands for its stage. Raises InternalError where the graph is not what
    that stage may leave.
    """
    backend = Device[Device.DEFAULT]
    stage = after.split(".")[0]
    if after in _LOWER:
        graph = parse(text)
        kernel = TracedKernel(graphs={after: graph})
        for name, apply in PASSES[_LOWER.index(after) + 1 :]:
            graph = apply(graph, backend.target)
            kernel.graphs[name] = graph
        verify(kernel.program, Stage.PROGRAM, "lower")
        return [kernel]
    if stage == "lower":
        kernel = TracedKernel()
        kernel.program = parse_program(text)
        verify(kernel.program, Stage.PROGRAM, after)
        return [kernel]
    if stage in ("schedule", "optimize"):
        asts = [parse(text)]
        verify(asts[0], Stage.KERNEL, after)
    elif stage == "tensor":
        graph = parse(text)
        verify(graph, Stage.TENSOR, after)
        targets = {Device.DEFAULT: backend.target, "HOST": backend.target}
        schedule = make_schedule(graph, targets, Device.DEFAULT, plain=False)
        asts = [item.ast for item in schedule.items if item.ast is not None]
    else:
        known = ", ".join(["tensor", "schedule", "optimize", "lower", *_LOWER])
        raise ConfigError(f"replay: there is no pass {after!r}", known=known)
    with recording() as record:
        for ast in asts:
            to_program(ast, backend.target, () if stage == "optimize" else None)
    return _kernels(record)
