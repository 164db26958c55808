"""A graph and its kernels between the passes, as text: for a script that is run, or from a graph
that was saved.

    kernels = run_recorded("script.py")
    print(kernels[0].after("lower.expand"))
    print(run_scheduled("script.py", "schedule.channels")[0])

The states of a graph are the passes of `schedule.graph_passes`, and the steps of `schedule.fuse`,
each with a text that lists the stored values. The states of a kernel in their order: `optimize`,
the kernel after its Opts; each pass of `lower.PASSES`, from `lower.linearize` on as instructions in
a row; `render`, the source of the last; `assembly`, the machine code of a device whose compiler is
LLVM. All but the last two are text that parses back, and `replay` takes it up. A pass may be
named without its stage: `linearize`.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilegrad.base.config import Context
from tilegrad.base.errors import ConfigError, DeviceError
from tilegrad.base.trace import PassRecord, recording
from tilegrad.device.registry import Device
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.definition import Stage
from tilegrad.ir.spec import verify
from tilegrad.ir.text import dump, parse, parse_program
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import PASSES, State, lower
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.model.model import estimate
from tilegrad.render.names import function_name
from tilegrad.schedule import graph_passes
from tilegrad.schedule.fuse import STEPS
from tilegrad.schedule.schedule import make_schedule
from tilegrad.target import Target

__all__ = ["GRAPH_STATES", "STATES", "TracedKernel", "replay", "run_recorded", "run_scheduled"]

_LOWER = tuple(step.name for step in PASSES)
_OF_GRAPHS = _LOWER[: _LOWER.index("lower.linearize")]
STATES = ("optimize", *_LOWER, "render", "assembly")
GRAPH_STATES = tuple(name for name, _ in (*graph_passes.PASSES, *STEPS))


@dataclass
class TracedKernel:
    """One kernel on its way: `graphs` are its states by name, before it is source.

    Attributes:
        name: its name, empty for a kernel that was taken up within lowering.
        unchanged: the passes that left it as it was.
        rendered: its source as the device that runs it rendered it; empty where none did.
        device: that device.
    """

    name: str = ""
    graphs: dict[str, State] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    rendered: str = ""
    device: str = ""

    def after(self, state: str) -> str:
        """The text of a state.

        Raises ConfigError for a name that is none, or of a state before the kernel was taken up.
        """
        if f"lower.{state}" in _LOWER:
            state = f"lower.{state}"
        if state == "render":
            return self.source
        if state == "assembly":
            device = self.device or Device.DEFAULT
            assembly = Device[device].assembly
            if assembly is None:
                raise DeviceError(
                    f"show: {device} has no assembly", rule="only what LLVM makes has"
                )
            return assembly(self.source)
        if state not in self.graphs:
            known = [*self.graphs, *STATES[-2:]]
            raise ConfigError(f"show: there is no state {state!r}", known=", ".join(known))
        return dump(self.graphs[state])

    @property
    def opts(self) -> tuple[Any, ...]:
        """The Opts that shaped it."""
        shaped = self.graphs["optimize"]
        assert isinstance(shaped, UOp)
        return tuple(shaped.arg.opts)

    @property
    def estimate(self) -> str:
        """The model's estimate on the default device, and its parts."""
        shaped = self.graphs["optimize"]
        assert isinstance(shaped, UOp)
        return str(estimate(shaped, Device[Device.DEFAULT].target))

    @property
    def program(self) -> list[UOp]:
        """The instructions that are rendered."""
        found = self.graphs[_LOWER[-1]]
        assert isinstance(found, list)
        return found

    @cached_property
    def source(self) -> str:
        """The program as its device rendered it, or else as the default device does."""
        if self.rendered:
            return self.rendered
        name = function_name(self.name) if self.name else "kernel"
        return Device[Device.DEFAULT].render(name, self.program)


def run_recorded(path: str, arguments: Sequence[str] = ()) -> list[TracedKernel]:
    """Run a script as Python would; the kernels that it compiles, in order."""
    return _kernels(_record_of(path, arguments))


def run_scheduled(path: str, state: str, arguments: Sequence[str] = ()) -> list[str]:
    """Run a script as Python would; the text of each graph that it schedules after the pass or step
    `state`.
    """
    after = [each.after for each in _record_of(path, arguments) if each.name == state]
    return [dump(graph) if isinstance(graph, UOp) else str(graph) for graph in after]


def _record_of(path: str, arguments: Sequence[str]) -> list[PassRecord]:
    """The passes of a script that runs. Nothing is taken from the disk cache, or there would be
    nothing to see.
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
    return record


def _kernels(record: Sequence[PassRecord]) -> list[TracedKernel]:
    """The passes of each kernel. Other passes of the record are parts of these."""
    found: list[TracedKernel] = []
    passed: set[str] = set()
    for each in record:
        if each.name == _LOWER[0]:
            found.append(TracedKernel(kernel_name(each.before)[0], {"optimize": each.before}))
            passed = set()
        if found and each.name == "render":
            found[-1].rendered, found[-1].device = each.after, each.device
        # Some passes record the rewrites within them under their own name, before themselves.
        if found and each.name in _LOWER and each.after is not None:
            kernel = found[-1]
            kernel.graphs[each.name] = each.after
            passed.add(each.name)
            before = list(kernel.graphs.values())[-2]
            # A list is made anew where nothing in it changed.
            if before == each.after:
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
    if f"lower.{after}" in _LOWER:
        after = f"lower.{after}"
    if after in _LOWER or stage == "lower":
        return [_lowered(text, after, backend.target)]
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


def _lowered(text: str, after: str, target: Target) -> TracedKernel:
    """A kernel from what the pass `after` left on, or from its program after the whole stage."""
    state: State = parse(text) if after in _OF_GRAPHS else parse_program(text)
    kernel = TracedKernel(graphs={after if after in _LOWER else _LOWER[-1]: state})
    if after == "lower":
        verify(state, Stage.PROGRAM, after)
    else:
        lower(state, target, lambda found, name: kernel.graphs.update({name: found}), after=after)
    return kernel
