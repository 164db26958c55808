"""One kernel by hand: Opts in, program and source out. No device is needed.

    ast = schedule.items[0].ast
    kernel = Kernel(ast, "CUDA")
    kernel.apply_opt(Opt(OptOps.UNROLL, 0, 4))
    print(kernel.to_program().src)

Step by step the same: `kernel.ast` is the graph after the Opts so far, `to_program().uops` the
instructions, and any renderer turns those to text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.ir.definition import Stage
from tilegrad.ir.spec import verify
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of
from tilegrad.optimize.opts.opts import apply_opt, start
from tilegrad.optimize.search.actions import actions
from tilegrad.render.names import function_name
from tilegrad.runtime.protocol import launch_dims
from tilegrad.target import Target

__all__ = ["Kernel", "Opt", "OptOps", "Program", "Renderer"]


class Renderer(Protocol):
    """A renderer turns a program into source, as the classes of `tilegrad.render` do."""

    @property
    def target(self) -> Target: ...

    def render(self, name: str, uops: Sequence[UOp], /) -> str: ...


@dataclass(frozen=True)
class Program:
    """A kernel's instructions and source.

    Attributes:
        name, display_name: plain, and with the colours of its axes.
        src: the source text.
        uops: the instructions, in order.
        global_size, local_size: blocks, and lanes of a block, at the largest symbolic sizes.
    """

    name: str
    display_name: str
    src: str
    uops: tuple[UOp, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


class Kernel:
    """A kernel graph being shaped.

    `target` is a Target, or the name of a device ("CUDA:sm_90", "CL"), here or not, that brings a
    target and a renderer. A renderer given beside it writes the source; given alone, it brings its
    own target.
    """

    def __init__(
        self, ast: UOp, target: Target | str | None = None, renderer: Renderer | None = None
    ):
        if target is None and renderer is None:
            target = Device.DEFAULT
        self.target, self._render = _described(target, renderer)
        self.ast = start(ast, self.target)

    @property
    def applied_opts(self) -> tuple[Opt, ...]:
        return tuple(self.ast.arg.opts)

    @property
    def name(self) -> str:
        return kernel_name(self.ast)[0]

    @property
    def axes(self) -> list[UOp]:
        """The ranges in the printed order, by which Opts name them."""
        return axes_of(self.ast)

    def apply_opt(self, opt: Opt) -> Kernel:
        """Apply one Opt.

        Raises OptError where it is not legal; the kernel is then as it was.
        """
        self.ast = apply_opt(self.ast, opt, self.target)
        return self

    def apply_opts(self, opts: Sequence[Opt]) -> Kernel:
        """Apply Opts in order."""
        for opt in opts:
            self.apply_opt(opt)
        return self

    def actions(self) -> list[Opt]:
        """Every Opt that may be applied next, of the amounts that make sense."""
        return actions(self.ast, self.target)

    def hand_coded_optimizations(self) -> Kernel:
        """Apply the heuristic's Opts."""
        return self.apply_opts(heuristic(self.ast, self.target))

    def linearize(self) -> list[UOp]:
        """The instructions, in order."""
        verify(self.ast, Stage.KERNEL, "optimize")
        return lower(self.ast, self.target)

    def to_program(self) -> Program:
        """The instructions and their source; without a renderer the source is empty."""
        program = self.linearize()
        name, display = kernel_name(self.ast)
        source = self._render(function_name(name), program) if self._render else ""
        largest = {node.name: node.arg[2] for node in program if node.op.name == "DEFINE_VAR"}
        dims = launch_dims(program, largest)
        return Program(name, display, source, tuple(program), dims.global_size, dims.local_size)


def _described(
    target: Target | str | None, renderer: Renderer | None
) -> tuple[Target, Callable[[str, Sequence[UOp]], str] | None]:
    """The target, and the renderer of the source."""
    if isinstance(target, str):
        described = Device.describe(target, NullRuntime())
        return described.target, renderer.render if renderer is not None else described.render
    if renderer is not None:
        return target or renderer.target, renderer.render
    assert target is not None
    return target, None
