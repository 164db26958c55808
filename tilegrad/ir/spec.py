"""The contents of a graph at each stage, and `verify`, which checks it between the stages.

The checks of each op's dtypes, argument and sources are in `ir.checks`, `ir.tensor_checks` and
`ir.code_checks`. Here are the properties of
a whole kernel: loops nest and close, a value is used inside the loops it was computed in, no access
leaves its buffer, and no two lanes write different values to one element.

Bounds and lanes are proved by `ir.proof`. A property that cannot be proved is an error only with a
counterexample, so that no correct kernel is refused because the proof is too hard.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.base.errors import InternalError
from tilegrad.base.failed import write_failed
from tilegrad.base.origin import method_names, user_lines
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.bounds import combined, dividend_of
from tilegrad.ir.checks import CHECKS, Check, cut, dtype_text, void
from tilegrad.ir.code_checks import CODE_CHECKS, running
from tilegrad.ir.counterexample import find_collision
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.proof import are_apart, bounds_under
from tilegrad.ir.queries import memory_of
from tilegrad.ir.tensor_checks import TENSOR_CHECKS
from tilegrad.ir.text import dump, render
from tilegrad.ir.uop import UOp

__all__ = ["TABLES", "find_narrow", "verify", "verify_step"]


def _table(stage: Stage) -> dict[Ops, tuple[int | None, Check]]:
    """For each op that is allowed at `stage`: its number of sources, and its check."""
    checks = {**CHECKS, **(TENSOR_CHECKS if stage is Stage.TENSOR else CODE_CHECKS)}
    if stage is Stage.CODE:
        # While a kernel becomes a program, an END may stand for several effects and no loop, such
        # as the scalar stores of a vector.
        checks |= {Ops.END: void, Ops.PREFIX: running}
    return {
        op: (op.definition.arity, checks[op])
        for op in Ops
        if stage & op.definition.stages and op in checks
    }


# By stage: the allowed ops, with their number of sources and their check. Between kernel and
# program the ops of both are allowed.
TABLES = {stage: _table(stage) for stage in (Stage.TENSOR, Stage.KERNEL, Stage.PROGRAM, Stage.CODE)}


class _Problem(Exception):
    """A node, and its fault."""

    def __init__(self, node: UOp, fact: str, **details: object):
        super().__init__(fact)
        self.node, self.fact, self.details = node, fact, details


def verify(graph: UOp | Sequence[UOp], stage: Stage, after: str) -> None:
    """Check that the pass `after` left a legal graph: a root, or a program in its order.

    A PROGRAM given as a root has no order yet, so its loops are not checked.

    Raises InternalError that names the pass, the node, and how to reproduce it.
    """
    if not config.VERIFY:
        return
    try:
        if isinstance(graph, UOp):
            nodes: Iterable[UOp] = graph.toposort()
            _check_nodes(nodes, TABLES[stage])
        else:
            nodes = graph
            _check_nodes(nodes, TABLES[stage])
            _check_program(graph)
            _check_width(graph)
        if stage is not Stage.TENSOR:
            _check_lanes(nodes, _racing(nodes))
    except _Problem as problem:
        raise _error(problem, graph, stage, after) from None


def verify_step(graph: UOp | Sequence[UOp], after: str, known: set[UOp]) -> None:
    """Check the nodes that the pass `after` made between a kernel and its program, and the order of
    a program. Nodes in `known` were checked before; the new ones are added.

    The proofs about a whole kernel, its bounds and lanes, are left to `verify` at both ends.

    Raises InternalError as `verify`.
    """
    if not config.VERIFY:
        return
    nodes = graph.toposort() if isinstance(graph, UOp) else graph
    fresh = [node for node in nodes if node not in known]
    try:
        _check_nodes(fresh, TABLES[Stage.CODE])
        if not isinstance(graph, UOp):
            _check_program(graph)
    except _Problem as problem:
        raise _error(problem, graph, Stage.CODE, after) from None
    known.update(fresh)


def _check_nodes(nodes: Iterable[UOp], table: dict[Ops, tuple[int | None, Check]]) -> None:
    for node in nodes:
        found = table.get(node.op)
        if found is None:
            allowed = node.op.definition.stages.label.replace("|", ", ")
            raise _Problem(node, "", allowed_in=allowed)
        arity, check = found
        if arity is not None and len(node.src) != arity:
            raise _Problem(node, f"it has {len(node.src)} sources, not {arity}")
        wrong = check(node)
        if wrong is not None:
            raise _Problem(node, wrong)


# Inlined wherever they are used, so they are in no loop.
_EVERYWHERE = frozenset(
    {Ops.CONST, Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.DEFINE_VAR, Ops.SPECIAL}
)
# Ops that need the effects of their sources, not their values.
_ORDERING = frozenset({Ops.SINK, Ops.BARRIER})


def _check_program(program: Sequence[UOp]) -> None:
    """Sources come first, loops nest and close, and a value is used inside its loop."""
    loops: list[UOp] = []
    # The innermost loop around each node.
    home: dict[UOp, UOp | None] = {}
    is_done = False
    for node in program:
        op, src = node.op, node.src
        if is_done:
            raise _Problem(node, "it comes after the sink")
        if node in home:
            raise _Problem(node, "it stands in the program twice")
        for number, source in enumerate(src):
            owner = home.get(source, node)
            if owner is node:
                raise _Problem(
                    node, f"it uses a {source.op.name.lower()} that comes later or never"
                )
            if owner is None or owner in loops or op in _ORDERING or (op is Ops.AFTER and number):
                continue
            raise _Problem(
                node, f"it uses a {source.op.name.lower()} outside the loop {render(owner)}"
            )
        if node.dtype.kind == "index":
            raise _Problem(node, "index arithmetic is still unbounded")
        if op is Ops.RANGE:
            loops.append(node)
            home[node] = node
        elif op is Ops.END:
            if len(src) != 1 or src[0].op is not Ops.RANGE:
                raise _Problem(node, "it closes more than one loop")
            if src[0] is not loops[-1]:
                raise _Problem(
                    node, f"it closes the loop {render(src[0])} inside {render(loops[-1])}"
                )
            loops.pop()
            home[node] = None
        elif op in _EVERYWHERE:
            home[node] = None
        elif op is Ops.AFTER or op is Ops.ASSIGN:
            home[node] = home[src[0]]
        else:
            home[node] = loops[-1] if loops else None
        is_done = op is Ops.SINK
    if loops:
        raise _Problem(loops[-1], "nothing closes the loop")


def _check_width(program: Sequence[UOp]) -> None:
    """No index wraps around."""
    found = find_narrow(program)
    if found is not None:
        access, node, (low, high) = found
        raise _Problem(
            access,
            f"its index wraps around: {render(node)} is {low} to {high}, beyond {node.dtype.name}",
        )


# By address space, the axes that run in parallel and may write to the same memory.
_BLOCKS = (Axis.GLOBAL, Axis.THREAD)
_LANES = (Axis.LOCAL, Axis.GROUP)
_BESIDE: dict[AddressSpace, tuple[Axis, ...]] = {
    AddressSpace.GLOBAL: (*_BLOCKS, *_LANES, Axis.UPCAST),
    AddressSpace.SHARED: (*_LANES, Axis.UPCAST),
    AddressSpace.SCRATCH: (Axis.UPCAST,),
    AddressSpace.REGISTER: (Axis.UPCAST,),
}
_REDUCED = (Axis.REDUCE, Axis.UNROLL)
_RUN_BY_LAUNCH = {"gidx": Axis.GLOBAL, "lidx": Axis.LOCAL, "chunk": Axis.THREAD}


def _axis_of(node: UOp) -> Axis:
    """The kind of a range or of a launch position."""
    if node.op is Ops.RANGE:
        return node.axis
    return _RUN_BY_LAUNCH.get(str(node.name).rstrip("0123456789"), Axis.GLOBAL)


def _racing(nodes: Iterable[UOp]) -> dict[AddressSpace, tuple[Axis, ...]]:
    """By address space, the axes that must not write to one element. Where chunks of an axis
    overlap, they do so by design, as chunks or unrolled.
    """
    infos = [node.arg for node in nodes if node.op is Ops.SINK]
    if not any(isinstance(info, KernelInfo) and info.overlaps for info in infos):
        return _BESIDE
    return {
        space: tuple(axis for axis in axes if axis not in (Axis.THREAD, Axis.UPCAST))
        for space, axes in _BESIDE.items()
    }


def _check_lanes(nodes: Iterable[UOp], lanes_of: Mapping[AddressSpace, tuple[Axis, ...]]) -> None:
    """Lanes store different values at different positions, and reduce loops are closed."""
    # Bit i of a node's number: its value may differ along axis i.
    axes: list[UOp] = []
    varies: dict[UOp, int] = {}
    lanes = 0
    for node in nodes:
        op = node.op
        bits = 0
        if op is Ops.RANGE or op is Ops.SPECIAL:
            bits = 1 << len(axes)
            axes.append(node)
            if _axis_of(node) in _LANES:
                lanes |= bits
        elif op is Ops.STORE or op is Ops.COPY_ASYNC:
            for source in node.src[2:]:
                bits |= varies[source]
            _check_store(node, bits, axes, lanes_of)
        else:
            for source in node.src:
                bits |= varies[source]
            if op is Ops.END or op is Ops.REDUCE:
                for source in node.src:
                    if source.op is Ops.RANGE:
                        bits &= ~varies[source]
            elif op is Ops.ASSIGN:
                accumulator = node.src[0]
                varies[accumulator] |= bits
            elif op is Ops.AFTER and _space_of(node) is AddressSpace.SHARED:
                # After a barrier all lanes of the block read the same.
                bits &= ~lanes
            elif op is Ops.SINK:
                _check_closed(node)
        varies[node] = bits


def _space_of(node: UOp) -> AddressSpace | None:
    return node.dtype.space if isinstance(node.dtype, Pointer) else None


def _check_store(
    store: UOp, bits: int, axes: Sequence[UOp], lanes_of: Mapping[AddressSpace, tuple[Axis, ...]]
) -> None:
    pointer, index = store.src[:2]
    others = lanes_of[_space_of(pointer) or AddressSpace.GLOBAL]
    if store.arg is None and not bits:
        return
    memory = memory_of(pointer)
    racing = [
        axis
        for number, axis in enumerate(axes)
        if (store.arg is not None or bits >> number & 1)
        and _axis_of(axis) in others
        # Each value of a range has its own copy of the memory that the range owns.
        and axis not in memory.src
    ]
    width = 1 if index.dtype.lanes > 1 else store.value.dtype.lanes
    # Unrolled copies run in one iteration of all loops.
    at_once = all(_axis_of(axis) is Axis.UPCAST for axis in racing)
    if not racing or are_apart(index, racing, width, at_once=at_once):
        return
    gate = store.gate if store.is_gated else None
    found = _collision(index, gate, tuple(racing), width, at_once)
    if found is not None:
        raise _Problem(store, f"two lanes write to {cut(render(index))}", lanes=found)


@functools.lru_cache(maxsize=4096)
def _collision(
    index: UOp, gate: UOp | None, racing: tuple[UOp, ...], width: int, at_once: bool
) -> str | None:
    if gate is not None:
        # An axis that the gate fixes to one value is no race.
        spans = (
            [(axis, bounds_under(axis, gate)) for axis in racing] if gate.dtype.lanes == 1 else []
        )
        racing = tuple(axis for axis, (low, high) in spans if low < high)
        if not racing or are_apart(index, racing, width, at_once=at_once):
            return None
    return find_collision(index, gate, racing, width, at_once=at_once)


def _check_closed(sink: UOp) -> None:
    """No reduce loop reaches the root, unless a store combines its values."""
    for effect in sink.src:
        if effect.op is Ops.STORE and effect.arg is None:
            for loop in effect.ranges:
                if loop.axis in _REDUCED:
                    raise _Problem(effect, f"nothing closes the reduce loop {render(loop)}")


# the message


def _error(
    problem: _Problem, graph: UOp | Sequence[UOp], stage: Stage, after: str
) -> InternalError:
    node = problem.node
    name = node.op.name.lower()
    article = "an" if name[0] in "aeiou" else "a"
    fact = f": {problem.fact}" if problem.fact else ""
    details = {"node": cut(_described(node)), **problem.details}
    for key, found in (("call", method_names(node.origin)), ("line", user_lines(node.origin))):
        if found:
            details[key] = ", ".join(found)
    saved = _saved(graph)
    details["reproduce"] = f"python -m tilegrad replay {saved} --from {after}"
    return InternalError(f"{after} left {article} {name} in a {stage.label} graph{fact}", **details)


def _described(node: UOp) -> str:
    """The node and the dtypes it takes, on one line."""
    sources = ", ".join(
        f"{source.op.name.lower()}: {dtype_text(source.dtype)}" for source in node.src
    )
    argument = "" if node.arg is None else f" arg={node.arg!r}"
    return " ".join(
        f"{node.op.name.lower()}({sources}): {dtype_text(node.dtype)}{argument}".split()
    )


def _saved(graph: UOp | Sequence[UOp]) -> str:
    """The file that the graph was written to; the usual name for a graph without text."""
    try:
        return write_failed("failed.ir", dump(graph) + "\n")
    except KeyError:
        return "failed.ir"


Bounds = tuple[Any, Any]
_LEAVES = frozenset({Ops.CONST, Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})
_ACCESSES = frozenset({Ops.LOAD, Ops.STORE, Ops.COPY_ASYNC})

# Beyond every dtype.
_BEYOND = 1 << 256


def find_narrow(nodes: Iterable[UOp]) -> tuple[UOp, UOp, Bounds] | None:
    """An access without a gate, a node of its index that may wrap around, and the exact bounds of
    that node; None if there is none. `nodes` come sources first.

    Lowering makes index arithmetic 32 bits where bounds prove that nothing wraps, else 64. Here the
    bounds are computed again over the machine's integers. A sum or product of loop variables,
    launch positions and constants whose exact value may exceed its dtype has wrapped, and a load or
    store there accesses the wrong element. Under a gate it may wrap: a user's own 32-bit integers
    wrap by definition, and a gate tests their value. Without a gate no such expression may be an
    index.
    """
    # The exact bounds of sums of leaves, and the node in each that wraps, if one does.
    exact: dict[UOp, Bounds] = {}
    wraps: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op in _ACCESSES:
            index = node.src[1]
            has_gate = node.is_gated
            if index in wraps and not has_gate:
                return node, wraps[index], exact[wraps[index]]
            continue
        if node.dtype.kind not in ("int", "uint") or node.dtype.lanes > 1:
            continue
        found = _exact(node, exact)
        if found is None:
            continue
        exact[node] = found
        below = [wraps[source] for source in node.src if source in wraps]
        if below:
            wraps[node] = below[0]
        elif found[0] < node.dtype.min or found[1] > node.dtype.max:
            wraps[node] = node
    return None


def _exact(node: UOp, known: dict[UOp, Bounds]) -> Bounds | None:
    """The bounds of a node as if its dtype were unbounded; None where they are unknown."""
    op, src = node.op, node.src
    if op is Ops.RANGE:
        return 0, max(src[0].vmax - 1, 0)
    if op in _LEAVES:
        return node.bounds
    if not all(source in known for source in src) or not src:
        return None
    if op is Ops.CAST:
        return known[src[0]]
    if op not in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.SHL):
        # Quotients, remainders and selects: their bounds, as their sources have not wrapped.
        return node.bounds
    left, right = known[src[0]], known[src[1]]
    if op is Ops.MUL and (dividend := dividend_of(node)) in known:
        return 0, known[dividend][1]
    if op is Ops.SHL:
        if src[1].op is not Ops.CONST:
            return None
        factor = 1 << src[1].arg if 0 <= src[1].arg < node.dtype.bits else 0
        op, right = Ops.MUL, (factor, factor)
    low, high = combined(op, left, right)
    # Bounded, as the digits of a repeated square would double with each product.
    return max(low, -_BEYOND), min(high, _BEYOND)
