"""What a code object reads and writes by name, from its bytecode.

A chain is what stands in the source as `self.layers[0].weight`: a root (a local variable, a global,
a closure's variable) and steps. Only straight runs of instructions are followed: a name, then
attributes and constant items; a loop over a chain carries it on, and so does a local variable that
is set to one. What cannot be followed is listed by attribute name alone (`unknown`), and whoever
asks looks at every object in reach that has such an attribute. So nothing that stands in the source
is missed; some may be listed that a run does not reach.

The instructions of Python 3.11 to 3.14 are known by name; an unknown one ends a chain.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

__all__ = ["ATTRIBUTE", "EACH", "ITEM", "Chain", "Chains", "chains_of"]

EACH = "each"
ATTRIBUTE = "attribute"
ITEM = "item"


@dataclass(frozen=True)
class Chain:
    """`kind` is "local", "global" or "cell"; a step is (ATTRIBUTE, name), (ITEM, constant) or
    (EACH, None): every element.
    """

    kind: str
    name: str
    steps: tuple[tuple[str, Any], ...] = ()

    def then(self, kind: str, key: Any = None) -> Chain:
        return Chain(self.kind, self.name, (*self.steps, (kind, key)))


@dataclass
class Chains:
    """The chains of one code object.

    Attributes:
        used: chains whose value is used as a whole.
        written: chains that are assigned to.
        aliases: for a local variable, the chains it may be.
        unknown: attributes of objects that no chain leads to.
        is_reflective: whether attributes may be read by names that are no constants.
    """

    used: dict[Chain, None] = field(default_factory=dict)
    written: dict[Chain, None] = field(default_factory=dict)
    aliases: dict[str, dict[Chain, None]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    is_reflective: bool = False


_SILENT = frozenset({
    "CACHE", "NOP", "RESUME", "PRECALL", "EXTENDED_ARG", "PUSH_NULL", "COPY_FREE_VARS", "MAKE_CELL",
    "COPY", "NOT_TAKEN",
})  # fmt: skip
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_REFLECTION = frozenset({"attrgetter", "dir", "getattr", "hasattr", "vars"})


class _Reader:
    """A walk over the instructions; `top` is the chain that the topmost value on the stack is, and
    `below` the one under a constant or a single name.
    """

    def __init__(self, code: CodeType):
        self.found = Chains()
        self.cells = frozenset(code.co_cellvars)
        self.top: Chain | None = None
        self.below: Chain | None = None
        self.constant: tuple[Any] | None = None
        # How many of the stores that follow take an element of `top`.
        self.unpacking = 0

    def push(self, chain: Chain | None) -> None:
        self.flush()
        self.below, self.top = self.top, chain

    def flush(self) -> None:
        """The value is used by something that is no step."""
        if self.top is not None:
            self.found.used[self.top] = None

    def end(self) -> None:
        self.flush()
        self.top = self.below = self.constant = None

    def load(self, kind: str, name: str) -> None:
        if kind == "cell" and name in self.cells:
            kind = "local"
        if kind == "global" and name in _REFLECTION:
            self.found.is_reflective = True
        self.constant = None
        self.push(Chain(kind, name))

    def store(self, name: str) -> None:
        aliases = self.found.aliases.setdefault(name, {})
        if self.top is not None:
            aliases[self.top] = None
        else:
            aliases[Chain("unknown", "")] = None
        self.top = self.below = self.constant = None

    def attribute(self, name: str) -> None:
        if name == "__dict__" or name in _REFLECTION:
            self.found.is_reflective = True
        self.constant = None
        if self.top is None:
            self.found.unknown.add(name)
        else:
            self.top = self.top.then(ATTRIBUTE, name)

    def item(self) -> None:
        """Topmost is an index, below it a container."""
        if self.constant is not None:
            chain = self.top
            step: tuple[str, Any] = (ITEM, self.constant[0])
        else:
            chain, step = self.below, (EACH, None)
            self.flush()
        self.below = self.constant = None
        self.top = None if chain is None else chain.then(*step)


def _parts(instruction: dis.Instruction) -> Iterator[tuple[str, Any]]:
    """An instruction of several parts as those parts: LOAD_FAST_LOAD_FAST is two loads."""
    name, value = instruction.opname, instruction.argval
    for suffix in ("_BORROW", "_CHECK", "_AND_CLEAR"):
        name = name.replace(suffix, "")
    if isinstance(value, tuple) and name.count("_FAST") == 2:
        first = name[: name.index("_FAST") + 5]
        yield from ((first, value[0]), (name[len(first) + 1 :], value[1]))
    else:
        yield name, value


def chains_of(code: CodeType) -> Chains:
    """What `code` itself reads and writes; functions inside it have code of their own."""
    reader = _Reader(code)
    for instruction in dis.get_instructions(code):
        for name, value in _parts(instruction):
            _step(reader, name, value, instruction)
    reader.end()
    return reader.found


def _step(reader: _Reader, name: str, value: Any, instruction: dis.Instruction) -> None:
    if name in _SILENT:
        return
    if name == "LOAD_FAST":
        reader.load("local", value)
    elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
        reader.load("global", value)
    elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE", "LOAD_FROM_DICT_OR_DEREF"):
        reader.load("cell", value)
    elif name in ("LOAD_ATTR", "LOAD_METHOD"):
        reader.attribute(value)
    elif name == "LOAD_SUPER_ATTR":
        reader.end()
    elif name in _CONSTANTS:
        reader.constant = (value,)
    elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and "[" in (instruction.argrepr or "")):
        reader.item()
    elif name == "GET_ITER" and reader.top is not None:
        reader.flush()
        reader.top = reader.top.then(EACH)
    elif name == "FOR_ITER":
        pass
    elif name == "UNPACK_SEQUENCE" and reader.top is not None:
        _unpack(reader, value)
    elif name == "STORE_FAST":
        _store_fast(reader, value)
    elif name == "STORE_ATTR":
        if reader.top is not None:
            reader.found.written[reader.top.then(ATTRIBUTE, value)] = None
        reader.end()
    elif name == "STORE_SUBSCR":
        if reader.top is not None and reader.constant is not None:
            reader.found.written[reader.top.then(ITEM, reader.constant[0])] = None
        reader.end()
    elif name in ("STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"):
        kind = "cell" if name == "STORE_DEREF" else "global"
        if kind == "cell" and value in reader.cells:
            _store_fast(reader, value)
        else:
            reader.found.written[Chain(kind, value)] = None
            reader.end()
    else:
        reader.end()


def _unpack(reader: _Reader, count: int) -> None:
    """The next `count` stores take an element each."""
    assert reader.top is not None
    reader.flush()
    reader.top, reader.unpacking = reader.top.then(EACH), count


def _store_fast(reader: _Reader, name: str) -> None:
    kept = reader.top if reader.unpacking > 1 else None
    reader.store(name)
    reader.top, reader.unpacking = kept, max(reader.unpacking - 1, 0)
