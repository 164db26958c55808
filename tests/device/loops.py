"""Innermost loops of assembly texts, as LLVM prints them for any processor."""

from __future__ import annotations

import re
from collections import Counter

from tilegrad import Context, Device, Tensor
from tilegrad.base.trace import recording

__all__ = ["inner_loops", "listings"]

_LABEL = re.compile(r"\.?L?(BB\d+_\d+):|\s*(?:#|//|;) %bb\.\d+:")
_INSTRUCTION = re.compile(r"\t([a-z][\w.]*)")


def inner_loops(text: str) -> list[Counter[str]]:
    """How often each instruction stands in each innermost loop, in the order of the loops."""
    found: dict[str, Counter[str]] = {}
    label, current = "", None
    for line in text.splitlines():
        head = _LABEL.match(line)
        if head is not None:
            label, current = head[1] or "", None
        if "Inner Loop Header" in line:
            current = found.setdefault(label, Counter())
        inside = re.search(r"in Loop: Header=(BB\d+_\d+)", line)
        if inside is not None:
            current = found.get(inside[1])
        instruction = _INSTRUCTION.match(line)
        if instruction is not None and current is not None:
            current[instruction[1]] += 1
    return list(found.values())


def listings(value: Tensor) -> list[tuple[str, str]]:
    """Of each kernel behind `value`, which is not run before, the source and the instructions."""
    with Context(DISABLE_COMPILER_CACHE=1), recording() as record:
        value.realize()
    assembly = Device[value.device].assembly
    assert assembly is not None
    return [(each.after, assembly(each.after)) for each in record if each.name == "render"]
