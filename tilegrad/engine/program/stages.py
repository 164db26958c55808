"""Kernel graph to program: the part of the pipeline that a warm start never imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilegrad.base.config import config
from tilegrad.base.trace import PassRecord, section, trace, unrecorded
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.rules import terms_of
from tilegrad.ir.shape_tracker import ShapeTracker
from tilegrad.ir.spec import verify
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp
from tilegrad.ir.view import View
from tilegrad.lower.lower import lower
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.generators.heuristic import shape, short_shape
from tilegrad.optimize.model.explain_opts import explain
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.render.names import function_name
from tilegrad.target import Target

__all__ = ["Shaped", "accesses", "lowered", "to_program"]


@dataclass(frozen=True)
class Shaped:
    """A kernel graph after its Opts, and its names. One that `is_short` has a better shape, of more
    text.
    """

    ast: UOp
    names: tuple[str, str]
    is_short: bool = False

    @property
    def function(self) -> str:
        """The name as a C identifier."""
        return function_name(self.names[0])

    @property
    def is_tiled(self) -> bool:
        """Whether it has a tile of two axes, whose operands are copied or could be."""
        names = [opt.op for opt in self.ast.arg.opts]
        return OptOps.STAGE in names or names.count(OptOps.UPCAST) > 1


def accesses(ast: UOp) -> list[str]:
    """A line for each load and store of a kernel graph: how it looks at its buffer over the loops
    of its index, or the index itself where that is no one view.

        data1: ShapeTracker(views=(View(shape=(2,), strides=(1,), offset=0, mask=None),))
    """
    rows: list[str] = []
    for node in ast.toposort():
        if node.op not in (Ops.LOAD, Ops.STORE) or node.src[0].op is not Ops.DEFINE_GLOBAL:
            continue
        pointer, index = node.src[:2]
        found = terms_of(index)
        if found is not None and all(term.op is Ops.RANGE for term in found[0]):
            strides, offset = found
            loops = sorted(strides, key=lambda loop: loop.number)
            sizes = [loop.extent for loop in loops]
            shape = tuple(size.arg if size.op is Ops.CONST else size for size in sizes) or (1,)
            view = View.create(shape, tuple(strides[loop] for loop in loops) or (0,), offset)
            text = repr(ShapeTracker((view,)))
        else:
            text = render(index)
        gate = f" where {render(node.gate)}" if node.is_gated else ""
        rows.append(f"data{pointer.arg}: {text}{gate}")
    return sorted(rows)


# Compilers take minutes for many more: the largest kernel of a ResNet has half as many.
_MOST_INSTRUCTIONS = 7000


def to_program(
    ast: UOp, target: Target, opts: Sequence[Opt] | None = None, *, is_short: bool = False
) -> tuple[Shaped, list[UOp]]:
    """The kernel in its best shape, by `opts` or the heuristic, and its program. With `is_short` in
    one of less text, if there is one.
    """
    if config.DEBUG >= 3:
        print(ast)
        print(*accesses(ast), sep="\n")
    with section("kernel", ast) as entry:
        verify(ast, Stage.KERNEL, "schedule")
        started = start(ast, target)
        if is_short and opts is None and not config.NOOPT:
            short = _short_program(started, target)
            if short is not None:
                return short
        for shaped in _choices(started, target, opts):
            # A kernel that is entered here after its Opts has some.
            chosen = shaped.arg.opts[len(started.arg.opts) :]
            if config.DEBUG >= 3:
                print(*chosen, explain(started, chosen, target), sep="\n")
            if entry is not None:
                shaped = apply_opts(started, chosen, target)
            found = lowered(shaped, target)
            if len(found[1]) <= _MOST_INSTRUCTIONS:
                break
            _forget(entry)
        if entry is not None:
            entry.after = found[0].ast
    return found


def _short_program(started: UOp, target: Target) -> tuple[Shaped, list[UOp]] | None:
    """The kernel in its short shape, if its program is not too long."""
    short, differs = short_shape(started, target)
    shaped, program = lowered(short, target)
    if len(program) > _MOST_INSTRUCTIONS:
        return None
    return replace(shaped, is_short=differs), program


def _choices(started: UOp, target: Target, opts: Sequence[Opt] | None) -> Iterator[UOp]:
    """The kernel after `opts`, or in the heuristic's shape, and in shapes that unroll less. The
    trace does not record the attempts.
    """
    if opts is None and not config.NOOPT:
        for each in (target, replace(target, registers=target.registers // 4)):
            with unrecorded():
                shaped = shape(started, each)
            yield shaped
    with unrecorded():
        shaped = apply_opts(started, opts or (), target)
    yield shaped


def _forget(entry: PassRecord | None) -> None:
    """Take nodes that were too long, and never run, from the record of a kernel."""
    record = trace.get()
    if record is None or entry is None:
        return
    first = record.index(entry) + 1
    record[first:] = [each for each in record[first:] if each.thread != entry.thread]


def lowered(shaped: UOp, target: Target) -> tuple[Shaped, list[UOp]]:
    """A kernel after its Opts, and its program."""
    verify(shaped, Stage.KERNEL, "optimize")
    program = _with_last_slot(lower(shaped, target), shaped)
    return Shaped(shaped, kernel_name(shaped)), program


def _with_last_slot(program: list[UOp], ast: UOp) -> list[UOp]:
    """`program`, which names the last slot of its kernel even where nothing there is used any more:
    a launch passes memory of all slots, and integers behind them.
    """
    if all(node.op is not Ops.DEFINE_VAR for node in program):
        return program
    slots = nodes_of(ast, Ops.DEFINE_GLOBAL)
    last = max(slots, key=lambda node: node.arg)
    used = [node.arg for node in program if node.op is Ops.DEFINE_GLOBAL]
    return program if last.arg in used else [last, *program]
