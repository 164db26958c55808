"""One state of a pass: its graph, its text, and what changed, as the page asks for them."""

from __future__ import annotations

import difflib
import inspect
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.base.origin import user_expression, user_lines
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import replayed
from tilegrad.ir.text import dump
from tilegrad.ir.uop import UOp
from tilegrad.viz.sections import Row, in_package

__all__ = ["Code", "code_at", "count_of_states", "nodes_drawn", "state_of"]

# Lines of a text without a change that are shown around one.
_AROUND = 2
# Letters of an argument that are shown in a node.
_LONGEST = 60
_MEMORY = {
    Ops.BUFFER, Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.DEFINE_ACC, Ops.LOAD, Ops.STORE, Ops.COPY,
    Ops.CONTIGUOUS, Ops.GATHER, Ops.SCATTER_ADD,
}  # fmt: skip
_CONTROL = {Ops.RANGE, Ops.END, Ops.BARRIER, Ops.WAIT, Ops.SPECIAL, Ops.DEFINE_VAR}
_REDUCES = {Ops.REDUCE, Ops.REDUCE_AXIS, Ops.PREFIX, Ops.PREFIX_AXIS}


@dataclass
class Code:
    """A piece of a source file: its path (within tilegrad, where it is there), the number of its
    first line, its text, and the number of the line that is meant.
    """

    file: str
    first: int
    text: str
    line: int


def count_of_states(row: Row) -> int:
    """How many states a row has: the one before it, and one behind each change."""
    return 1 + (len(row.record.steps) if row.is_by_rules else 1)


def state_of(row: Row, number: int) -> dict[str, Any]:
    """State `number` of a row: its graph or its text, the rule that led to it, and what differs
    from the state before.

    Raises IndexError where there is no such state.
    """
    if not 0 <= number < count_of_states(row):
        raise IndexError(f"there is no state {number} of {row.name}")
    value = _value(row, number)
    known: set[UOp] = set()
    found: dict[str, Any] = {"rule": "", "diff": [], "code": None, "calls": []}
    if number:
        before = _value(row, number - 1)
        known = set(_nodes_of(before))
        step = row.record.steps[number - 1] if row.is_by_rules else None
        if step is None:
            found |= {"rule": row.name, "diff": _diff(before, value)}
            found["code"] = code_at(row.location)
        else:
            found |= {"rule": step.rule, "diff": _diff(step.before, step.after)}
            found["code"] = code_at(step.written_at)
            found["calls"] = _calls(step.before)
    nodes = _nodes_of(value)
    if nodes:
        found["nodes"] = nodes_drawn(nodes, known if number else None)
    found["text"] = _text(value)
    return found


def _value(row: Row, number: int) -> Any:
    if not row.is_by_rules:
        return row.record.after if number else row.record.before
    return replayed(row.record, number)


def _nodes_of(value: Any) -> list[UOp]:
    """The nodes of a graph, sources first, or of a program, in its order; of another state none."""
    if isinstance(value, UOp):
        return list(value.toposort())
    return value if _is_program(value) else []


def _is_program(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(node, UOp) for node in value)


def nodes_drawn(nodes: Sequence[UOp], known: set[UOp] | None = None) -> list[dict[str, Any]]:
    """Nodes as the page draws them. A constant stands in the nodes that use it.

    For each node: its number, its lines, its kind, which decides its colour, the numbers of its
        sources with their positions, and whether it is new, that is, none of `known` (None: no node
        is).
    """
    order = [node for node in nodes if node.op is not Ops.CONST or node is nodes[-1]]
    number = {node: position for position, node in enumerate(order)}
    return [
        {
            "id": number[node],
            "lines": _lines(node),
            "kind": _kind(node),
            "sources": [
                [number[source], position]
                for position, source in enumerate(node.src)
                if source in number
            ],
            "isNew": known is not None and node not in known,
        }
        for node in order
    ]


def _lines(node: UOp) -> list[str]:
    found = [node.op.name, repr(node.dtype).removeprefix("dtypes.")]
    if node.arg is not None:
        text = str(node.arg)
        found.append(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")
    found += [
        f"source {position}: {source.arg}"
        for position, source in enumerate(node.src)
        if source.op is Ops.CONST
    ]
    return found


def _kind(node: UOp) -> str:
    op = node.op
    if op.is_movement:
        return "movement"
    for kind, ops in (("memory", _MEMORY), ("control", _CONTROL), ("reduction", _REDUCES)):
        if op in ops:
            return kind
    if op is Ops.SINK:
        return "sink"
    return "arithmetic" if op.definition.evaluate is not None else "other"


def _text(value: Any, names: dict[UOp, str] | None = None) -> str:
    is_known = isinstance(value, UOp) or _is_program(value)
    return dump(value, names) if is_known else str(value)


def _diff(before: Any, after: Any) -> list[str]:
    """Differences of the texts of two states, where a node that is in both has one name: lines that
    begin with `-`, `+` or a space, and `...` between pieces.
    """
    names: dict[UOp, str] = {}
    old, new = (_text(value, names).splitlines() for value in (before, after))
    lines = list(difflib.unified_diff(old, new, n=_AROUND, lineterm=""))[3:]
    return ["..." if line.startswith("@@") else line for line in lines]


def _calls(node: UOp) -> list[str]:
    expression = user_expression(node.origin)
    return [*user_lines(node.origin), *([expression] if expression else [])]


def code_at(location: tuple[str, int]) -> Code | None:
    """The function or the statement that begins at a line, None where its file is not at hand."""
    file, line = location
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return None
    return Code(in_package(file), line, _block(lines[line - 1 :]), line)


def _block(lines: Sequence[str]) -> str:
    """The function at the beginning of `lines`, or its first statement."""
    head = lines[0].lstrip()
    if head.startswith(("def ", "@", "async def ")):
        return "".join(inspect.getblock(lines))
    depth = 0
    for count, line in enumerate(lines, 1):
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if depth <= 0:
            return "".join(lines[:count])
    return lines[0]
