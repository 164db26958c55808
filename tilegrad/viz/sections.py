"""A record as the page lists it: plans and kernels, each with its passes, each pass with the
rewrites within it.

The record is flat, as passes end in another order than they begin: a pass of a list is recorded
when it is done, behind the rewrites within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilegrad.base.origin import Entry, method_names, user_lines
from tilegrad.base.trace import PassRecord
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import PASSES as LOWERING
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.schedule.finish import PASSES as FINISHING
from tilegrad.schedule.fuse import STEPS
from tilegrad.schedule.graph_passes import PASSES as GRAPHS
from tilegrad.schedule.kernel_items import KernelItems

__all__ = ["Row", "Section", "in_package", "sections_of"]

_PACKAGE = Path(__file__).parents[1]
# The function or rules of a pass, by its name.
_HOMES: dict[str, Any] = dict([*GRAPHS, *STEPS, *FINISHING])
_HOMES |= {step.name: step.apply for step in LOWERING}
_HOMES["schedule.index"] = KernelItems.add_kernel


@dataclass
class Row:
    """A pass, or rewrites by rules within one.

    Attributes:
        record: what was recorded.
        depth: 0 of a pass, 1 of rewrites within it.
    """

    record: PassRecord
    depth: int = 0

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def location(self) -> tuple[str, int]:
        """The file and the line that called it, or that has the function of the pass."""
        home = apply_opt if self.name.startswith("Opt(") else _HOMES.get(self.name)
        code = getattr(home, "__code__", None)
        if self.record.called_at[0] or code is None:
            return self.record.called_at
        return code.co_filename, code.co_firstlineno

    @property
    def is_by_rules(self) -> bool:
        """Whether its rewrites are recorded one by one."""
        return bool(self.record.called_at[0])

    @property
    def changes(self) -> int:
        """How many rewrites there are; of a pass without rules, whether it changed anything."""
        if self.is_by_rules:
            return len(self.record.steps)
        return int(self.record.before != self.record.after)


@dataclass
class Section:
    """A plan, or a kernel; or what was rewritten outside of both.

    Attributes:
        kind: "plan", "kernel" or "other".
        name: of a kernel its name.
        calls: the user's lines behind it, and what was called there.
        source: of a kernel its text, once it is rendered.
    """

    kind: str
    name: str = ""
    calls: str = ""
    source: str = ""
    rows: list[Row] = field(default_factory=list)


def in_package(file: str) -> str:
    """A file of tilegrad by its path in it; any other as it is."""
    try:
        return Path(file).relative_to(_PACKAGE).as_posix()
    except ValueError:
        return file


def sections_of(record: Sequence[PassRecord]) -> list[Section]:
    """The sections of a record, in the order in which they began; what is empty is left out."""
    found: list[Section] = []
    for thread in dict.fromkeys(entry.thread for entry in record):
        found += _Grouping(record, thread).sections
    return [each for each in found if each.rows]


class _Grouping:
    """The sections of one thread."""

    def __init__(self, record: Sequence[PassRecord], thread: int):
        self.sections: list[Section] = []
        # (the end of it in the record, the section that is filled until then)
        self.open: list[tuple[int, Section]] = []
        self.calls = ""
        for position, entry in enumerate(record):
            if entry.thread != thread:
                continue
            while self.open and position >= self.open[-1][0]:
                self.open.pop()
            if entry.end >= 0 or entry.name in ("plan", "compile", "kernel"):
                self._begin(entry, len(record) if entry.end < 0 else entry.end)
            elif entry.name == "render":
                self._render(entry)
            else:
                self._add(entry)
        for section in self.sections:
            section.rows = _in_order(section.rows)

    def _begin(self, entry: PassRecord, end: int) -> None:
        if entry.name == "compile":
            self.calls = _calls(entry.origin)
            return
        section = Section(entry.name, calls=_calls(entry.origin) or self.calls)
        if entry.name == "kernel":
            named = entry.after if isinstance(entry.after, UOp) else entry.before
            section.name = kernel_name(named)[0]
        self.calls = ""
        self.sections.append(section)
        self.open.append((end, section))

    def _render(self, entry: PassRecord) -> None:
        """The text belongs to the kernel that was lowered last."""
        kernels = (each for each in reversed(self.sections) if each.kind == "kernel")
        kernel = next(kernels, None)
        if kernel is not None and not kernel.source:
            kernel.source = str(entry.after)
            kernel.rows.append(Row(entry))

    def _add(self, entry: PassRecord) -> None:
        if not self.open:
            if not self.sections or self.sections[-1].kind != "other":
                self.sections.append(Section("other"))
            self.sections[-1].rows.append(Row(entry))
            return
        self.open[-1][1].rows.append(Row(entry))


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """Each pass before the rewrites within it, which were recorded before it."""
    ordered: list[Row] = []
    within: list[Row] = []
    for row in rows:
        if row.is_by_rules:
            within.append(row)
            continue
        ordered.append(row)
        ordered += [Row(each.record, 1) for each in within]
        within = []
    return ordered + within


def _calls(origin: Iterable[Entry]) -> str:
    """`train.py:12, train.py:14  __add__, softmax`, shortened where there are many."""
    entries = list(origin)
    lines, names = user_lines(entries), method_names(entries)
    shown = ", ".join(lines[:3]) + (", ..." if len(lines) > 3 else "")
    called = ", ".join(name.strip("_") for name in names[:6]) + (", ..." if len(names) > 6 else "")
    return f"{shown}  {called}".strip()
