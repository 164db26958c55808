"""PTX text as instructions, for the interpreter beside. Written from NVIDIA's PTX ISA manual; it
shares nothing with the renderer whose text it reads.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

__all__ = ["MAP", "Entry", "Instruction", "PTXError", "parse"]

# The type of a parameter that is a tensor map.
MAP = "map"
WIDTHS = {"pred": 1, "b16": 16, "b32": 32, "f32": 32, "b64": 64, "f64": 64}
_REGISTERS = re.compile(r"\.reg \.(\w+) %(\w+)<(\d+)>")
_ARRAY = re.compile(r"\.(shared|local) \.align (\d+) \.b8 (\w+)\[(\d+)\]")
_ASKED = re.compile(r"^\.extern \.shared \.align (\d+) \.b8 (\w+)\[\];$", re.M)
_PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.(\w+) (\w+)(?:\[(\d+)\])?")
_LANES = re.compile(r"\.maxntid (\d+), (\d+), (\d+)")
_CLUSTER = re.compile(r"^\.reqnctapercluster (\d+), 1, 1$", re.M)
_PRAGMA = re.compile(r'\.pragma "nounroll"')
_LABEL = re.compile(r"(\$?\w+):")
_INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)")


class PTXError(Exception):
    """The text, or what it does, breaks a rule of PTX."""


@dataclass(frozen=True)
class Instruction:
    """One line: `@{gate} {parts joined by dots} {operands}`."""

    text: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]
    gate: str = ""
    negated: bool = False


@dataclass
class Entry:
    """A kernel."""

    name: str
    version: tuple[int, int]
    target: str
    parameters: list[tuple[str, str]] = field(default_factory=list)
    most_lanes: int = 1
    # Blocks of a cluster, along x.
    together: int = 1
    # Register -> its type.
    registers: dict[str, str] = field(default_factory=dict)
    # Name -> (space, alignment, bytes).
    arrays: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    # The name of shared memory whose size a launch says, or nothing.
    asked: str = ""
    labels: dict[str, int] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)


def _operands(text: str) -> tuple[str, ...]:
    """Split at commas outside of braces."""
    found, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and depth == 0:
            found.append(text[start:position].strip())
            start = position + 1
    rest = text[start:].strip()
    return (*found, rest) if rest else tuple(found)


def parse(text: str) -> dict[str, Entry]:
    """The kernels of a module.

    Raises PTXError for what is no PTX that this interpreter knows.
    """
    version = re.search(r"^\.version (\d+)\.(\d+)$", text, re.M)
    target = re.search(r"^\.target (sm_\d+[af]?)$", text, re.M)
    if version is None or target is None or ".address_size 64" not in text:
        raise PTXError("a module begins with .version, .target and .address_size 64")
    found = {}
    asked = _ASKED.search(text)
    pattern = re.compile(r"\.visible \.entry (\w+)\(\n(.*?)\n?\)\n(.*?)\n?\{\n(.*?)\n\}", re.S)
    for name, parameters, directives, body in pattern.findall(text):
        entry = Entry(name, (int(version[1]), int(version[2])), target[1])
        entry.asked = asked[2] if asked else ""
        entry.parameters = [_parameter(*found) for found in _PARAMETER.findall(parameters)]
        lanes = _LANES.search(directives)
        if lanes is not None:
            entry.most_lanes = int(lanes[1]) * int(lanes[2]) * int(lanes[3])
        cluster = _CLUSTER.search(directives)
        if cluster is not None:
            entry.together = int(cluster[1])
        elif "cluster" in directives:
            raise PTXError(f"clusters that are not written: {directives}")
        for line in body.splitlines():
            _read(entry, line.strip())
        found[name] = entry
    if not found:
        raise PTXError("the module has no kernel")
    return found


def _parameter(alignment: str, kind: str, title: str, count: str) -> tuple[str, str]:
    """The name and the type of a parameter; MAP for bytes that may be a tensor map."""
    if not count:
        return title, kind
    if (alignment, kind, count) != ("128", "b8", "128"):
        raise PTXError(f"a parameter of {count} {kind} at a multiple of {alignment or 1}")
    return title, MAP


def _read(entry: Entry, line: str) -> None:
    if not line:
        return
    if label := _LABEL.fullmatch(line):
        if label[1] in entry.labels:
            raise PTXError(f"the label {label[1]} stands twice")
        entry.labels[label[1]] = len(entry.instructions)
        return
    if not line.endswith(";"):
        raise PTXError(f"no semicolon: {line}")
    line = line[:-1]
    if declared := _REGISTERS.fullmatch(line):
        kind, prefix, count = declared[1], declared[2], int(declared[3])
        if kind not in WIDTHS:
            raise PTXError(f"no type of registers: {line}")
        entry.registers |= {f"%{prefix}{number}": kind for number in range(count)}
        return
    if _PRAGMA.fullmatch(line):
        if entry.labels.get(list(entry.labels)[-1]) != len(entry.instructions):
            raise PTXError("a pragma for a loop stands behind its label")
        return
    if array := _ARRAY.fullmatch(line):
        entry.arrays[array[3]] = (array[1], int(array[2]), int(array[4]))
        return
    entry.instructions.append(_instruction(line))


@functools.cache
def _instruction(line: str) -> Instruction:
    """Texts that differ in a line have the others in common."""
    found = _INSTRUCTION.fullmatch(line)
    if found is None:
        raise PTXError(f"no instruction: {line}")
    negated, gate, name, operands = found.groups()
    return Instruction(line, tuple(name.split(".")), _operands(operands), gate or "", bool(negated))
