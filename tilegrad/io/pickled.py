"""Reading pickled data without running anything.

A pickle is a program for a stack machine. Python's own machine imports what the program names and
calls it, which is how a file of weights comes to run code. This one has a closed set of
instructions and a closed table of constructors: it makes numbers, texts, lists, tuples, dicts and
sets, and what the caller's table makes of named constructors. It imports nothing, looks up no
attribute, and calls nothing that is not in the table; any other name is refused, and named.

The time and memory it takes are bounded by the bytes it reads. Keys of dicts and members of sets
are plain values, as the hash of tuples that hold each other many times over would take for ever.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Global", "PickleError", "Pickled", "Unknown", "plain_key", "read_pickle"]

_MAX_BYTES = 64 << 20
_MAX_LONG_BYTES = 1024
_LINE, _MAX_LINE = 64, 4096
_MAX_KEY = 64
_PROTOCOL = 5
# Bytes that a call may cost, so that one value in the memo cannot be copied again and again.
_CALL_BYTES = 32
_FREE_BYTES = 1 << 20


class PickleError(Exception):
    """A fault in a pickle; the reader of the file makes a DataError of it."""


class Global:
    """A constructor of the caller's table, by its name; it does nothing until `make` is called."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[..., Any]):
        self.name = name
        self.make = make

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Pickled:
    """Base of values that a constructor makes and that take a state afterwards (BUILD)."""

    __slots__ = ()

    def take_state(self, state: Any) -> None:
        """Raises PickleError for a state that does not fit."""
        raise PickleError(f"a {type(self).__name__} takes no state")

    def take_items(self, items: list[Any]) -> None:
        """Raises PickleError unless this is a kind of list."""
        raise PickleError(f"items for a {type(self).__name__}, which is no list")

    def take_pairs(self, pairs: list[tuple[Any, Any]]) -> None:
        """Raises PickleError unless this is a kind of dict."""
        raise PickleError(f"pairs for a {type(self).__name__}, which is no dict")


class Unknown(Pickled):
    """Stands for an object whose name is outside the table: the name, and all that it was given.
    Nothing of it was looked up or run.

    Attributes:
        name: "module.name".
        arguments: what the call was given; None for a name that was not called.
        state: what was to be restored, often the attributes as a dict.
        items: what was appended, for a kind of list.
        pairs: what was put in, for a kind of dict.
    """

    __slots__ = ("arguments", "items", "name", "pairs", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...] | None = None):
        self.name, self.arguments, self.state = name, arguments, None
        self.items: list[Any] = []
        self.pairs: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.name}, not made>"

    def take_state(self, state: Any) -> None:
        self.state = state

    def take_items(self, items: list[Any]) -> None:
        self.items.extend(items)

    def take_pairs(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs.update(pairs)


class _Mark:
    """The position on the stack where the items of a list begin."""


_MARK = _Mark()
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


def read_pickle(
    data: memoryview,
    table: Mapping[str, Any],
    persistent: Callable[[Any], Any] | None = None,
    start: int = 0,
    keep_unknown: bool = False,
) -> tuple[Any, int]:
    """The value of the pickle that begins at byte `start`, and where it ends.

    `table` has for each name, "module.name", a function that makes a value of the arguments, or a
    value that is no function and stands for itself. `persistent` makes a value of a persistent id.
    Other names are refused, or with `keep_unknown` make an `Unknown`.

    Raises PickleError.
    """
    return _Machine(data, table, persistent, start, keep_unknown).run()


def plain_key(value: Any, depth: int = 0) -> bool:
    """Whether `value` is small and plain enough to be hashed."""
    if type(value) is tuple:
        return depth < 2 and len(value) <= _MAX_KEY and all(plain_key(v, depth + 1) for v in value)
    return value is None or type(value) in (str, int, float, bool, bytes)


class _Machine:
    def __init__(
        self,
        data: memoryview,
        table: Mapping[str, Any],
        persistent: Callable[[Any], Any] | None,
        start: int,
        keep_unknown: bool,
    ):
        self.data = data
        self.keep_unknown = keep_unknown
        self.table = table
        self.persistent = persistent
        self.at = start
        self.end = min(data.nbytes, start + _MAX_BYTES)
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.left = self.end - start + _FREE_BYTES

    def run(self) -> tuple[Any, int]:
        table = _INSTRUCTIONS
        while True:
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                break
            instruction = table.get(code)
            if instruction is None:
                raise PickleError(
                    f"instruction {bytes([code])!r} at byte {self.at - 1} is not one for data"
                )
            instruction(self)
        value = self.pop()
        return value, self.at

    # bytes

    def take(self, count: int) -> bytes:
        begin = self.at
        if count > self.end - begin:
            if self.end < self.data.nbytes:
                raise PickleError(f"it is longer than {_MAX_BYTES} bytes")
            raise PickleError(f"it is truncated at byte {self.end}")
        self.at = begin + count
        return bytes(self.data[begin : self.at])

    def number(self, code: str) -> int:
        (found,) = struct.unpack(code, self.take(struct.calcsize(code)))
        return int(found)

    def line(self) -> bytes:
        for width in (_LINE, _MAX_LINE):
            ahead = bytes(self.data[self.at : min(self.end, self.at + width)])
            length = ahead.find(b"\n")
            if length >= 0:
                self.at += length + 1
                return ahead[:length]
        raise PickleError(f"no end of line after byte {self.at}")

    # stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError(f"the stack is empty at byte {self.at}")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError(f"the stack is empty at byte {self.at}")
        return self.stack[-1]

    def items(self) -> list[Any]:
        """Objects above the last mark."""
        stack, at = self.stack, len(self.stack) - 1
        while at >= 0 and stack[at] is not _MARK:
            at -= 1
        if at < 0:
            raise PickleError(f"no mark on the stack at byte {self.at}")
        found = stack[at + 1 :]
        del stack[at:]
        return found

    def text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise PickleError(f"a text is not UTF-8 before byte {self.at}") from error

    def old_text(self, raw: bytes) -> str:
        """A text of Python 2, whose encoding the file does not say."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw.decode("latin-1")

    # what instructions do

    def add_items(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is list:
            target.extend(items)
        elif isinstance(target, Pickled):
            target.take_items(items)
        else:
            raise PickleError(f"items for a {_kind(target)}, which is no list")

    def set_items(self, items: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, (dict, Pickled)) or len(items) % 2:
            raise PickleError(f"pairs for a {_kind(target)}, which is no dict")
        pairs = list(zip(items[::2], items[1::2], strict=True))
        for key, _ in pairs:
            self.check_key(key)
        if isinstance(target, Pickled):
            target.take_pairs(pairs)
        else:
            target.update(pairs)

    def check_key(self, key: Any) -> None:
        if not plain_key(key):
            raise PickleError(f"a {_kind(key)} as a key")

    def member_set(self, items: Any) -> set[Any]:
        for item in items:
            self.check_key(item)
        return set(items)

    def add_members(self) -> None:
        items = self.items()
        target = self.top()
        if type(target) is not set:
            raise PickleError(f"members for a {_kind(target)}, which is no set")
        target |= self.member_set(items)

    def find(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        try:
            found = self.table[full]
        except KeyError:
            if not self.keep_unknown:
                raise PickleError(
                    f"it wants {full}, which is no data that this reader knows; nothing was run"
                ) from None
            self.push(Global(full, lambda *given: Unknown(full, given)))
            return
        self.push(Global(full, found) if callable(found) else found)

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise PickleError(f"a name that is a {_kind(name)}")
        self.find(module, name)

    def reduce(self) -> None:
        arguments, maker = self.pop(), self.pop()
        if not isinstance(maker, Global) or type(arguments) is not tuple:
            raise PickleError(f"a call of a {_kind(maker)} with a {_kind(arguments)}")
        self.left -= _CALL_BYTES + sum(len(each) for each in arguments if isinstance(each, _SIZED))
        if self.left < 0:
            raise PickleError("its calls make more than the file holds")
        try:
            self.push(maker.make(*arguments))
        except (TypeError, ValueError, OverflowError) as error:
            raise PickleError(f"{maker.name} does not take such arguments: {error}") from error

    def new_with_names(self) -> None:
        """As `reduce`, with arguments by name, which only an `Unknown` has a use for."""
        named = self.pop()
        if type(named) is not dict or (named and not self.keep_unknown):
            raise PickleError("arguments by name")
        self.reduce()
        made = self.top()
        if named and isinstance(made, Unknown):
            made.pairs.update(named)

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if isinstance(target, Pickled):
            target.take_state(state)
        elif not isinstance(target, dict):
            # The attributes of an OrderedDict are of no use; nothing else here has any.
            raise PickleError(f"a state for a {_kind(target)}")

    def load_id(self, given: Any) -> None:
        if self.persistent is None:
            raise PickleError("a persistent id where none is expected")
        self.push(self.persistent(given))

    def get(self, key: int) -> None:
        try:
            self.push(self.memo[key])
        except KeyError:
            raise PickleError(f"nothing is kept under number {key}") from None

    def long(self, length: int) -> None:
        if not 0 <= length <= _MAX_LONG_BYTES:
            raise PickleError(f"an integer of {length} bytes")
        self.push(int.from_bytes(self.take(length), "little", signed=True))

    def written_number(self, make: Callable[[str], Any]) -> None:
        raw = self.line()
        try:
            self.push(make(raw.decode("ascii")))
        except (ValueError, OverflowError) as error:
            raise PickleError(f"no number before byte {self.at}") from error

    def written_text(self) -> None:
        raw = self.line()
        if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
            raise PickleError(f"a text without quotes before byte {self.at}")
        try:
            (found, _) = codecs.escape_decode(raw[1:-1])
        except ValueError as error:
            raise PickleError(f"a text with a wrong escape before byte {self.at}") from error
        self.push(self.old_text(found))

    def written_unicode(self) -> None:
        try:
            self.push(self.line().decode("raw-unicode-escape"))
        except UnicodeDecodeError as error:
            raise PickleError(f"a text with a wrong escape before byte {self.at}") from error

    def protocol(self) -> None:
        number = self.number("<B")
        if number > _PROTOCOL:
            raise PickleError(f"pickle protocol {number}, known are 0 to {_PROTOCOL}")

    def frame(self) -> None:
        length = self.number("<Q")
        if length > self.data.nbytes - self.at:
            raise PickleError(f"it is truncated in a frame at byte {self.at}")

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def named(self) -> None:
        module = self.text(self.line())
        self.find(module, self.text(self.line()))

    def pop_any(self) -> None:
        if not self.stack:
            raise PickleError(f"the stack is empty at byte {self.at}")
        self.stack.pop()

    def append(self) -> None:
        item = self.pop()
        self.add_items([item])

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def dict_of(self) -> None:
        items = self.items()
        self.push({})
        self.set_items(items)

    def put(self, key: int) -> None:
        self.memo[key] = self.top()


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, Global) else type(value).__name__


def _written_int(text: str) -> Any:
    return {"00": False, "01": True}.get(text) if text in ("00", "01") else int(text)


def _written_long(text: str) -> int:
    return int(text.removesuffix("L"))


_INSTRUCTIONS: dict[int, Callable[[_Machine], None]] = {
    ord(code): what
    for code, what in {
        # marks and the stack itself
        "(": lambda m: m.push(_MARK),
        "0": _Machine.pop_any,
        "1": lambda m: m.items() and None,
        "2": lambda m: m.push(m.top()),
        "\x80": _Machine.protocol,
        "\x95": _Machine.frame,
        # single values
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "I": lambda m: m.written_number(_written_int),
        "L": lambda m: m.written_number(_written_long),
        "F": lambda m: m.written_number(float),
        "J": lambda m: m.push(m.number("<i")),
        "K": lambda m: m.push(m.number("<B")),
        "M": lambda m: m.push(m.number("<H")),
        "G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        "\x8a": lambda m: m.long(m.number("<B")),
        "\x8b": lambda m: m.long(m.number("<i")),
        # texts and bytes
        "S": _Machine.written_text,
        "V": _Machine.written_unicode,
        "T": lambda m: m.push(m.old_text(m.take(m.number("<I")))),
        "U": lambda m: m.push(m.old_text(m.take(m.number("<B")))),
        "X": lambda m: m.push(m.text(m.take(m.number("<I")))),
        "\x8c": lambda m: m.push(m.text(m.take(m.number("<B")))),
        "\x8d": lambda m: m.push(m.text(m.take(m.number("<Q")))),
        "B": lambda m: m.push(m.take(m.number("<I"))),
        "C": lambda m: m.push(m.take(m.number("<B"))),
        "\x8e": lambda m: m.push(m.take(m.number("<Q"))),
        "\x96": lambda m: m.push(bytearray(m.take(m.number("<Q")))),
        # containers
        "]": lambda m: m.push([]),
        "}": lambda m: m.push({}),
        ")": lambda m: m.push(()),
        "\x8f": lambda m: m.push(set()),
        "l": lambda m: m.push(m.items()),
        "t": lambda m: m.push(tuple(m.items())),
        "d": _Machine.dict_of,
        "\x85": lambda m: m.tuple_of(1),
        "\x86": lambda m: m.tuple_of(2),
        "\x87": lambda m: m.tuple_of(3),
        "\x91": lambda m: m.push(frozenset(m.member_set(m.items()))),
        "a": _Machine.append,
        "e": lambda m: m.add_items(m.items()),
        "s": _Machine.set_item,
        "u": lambda m: m.set_items(m.items()),
        "\x90": _Machine.add_members,
        # what is kept
        "p": lambda m: m.put(_line_number(m)),
        "q": lambda m: m.put(m.number("<B")),
        "r": lambda m: m.put(m.number("<I")),
        "\x94": lambda m: m.put(len(m.memo)),
        "g": lambda m: m.get(_line_number(m)),
        "h": lambda m: m.get(m.number("<B")),
        "j": lambda m: m.get(m.number("<I")),
        # constructors of the table
        "c": _Machine.named,
        "\x93": _Machine.stack_global,
        "R": _Machine.reduce,
        "\x81": _Machine.reduce,
        "\x92": _Machine.new_with_names,
        "b": _Machine.build,
        "P": lambda m: m.load_id(m.text(m.line())),
        "Q": lambda m: m.load_id(m.pop()),
    }.items()
}


def _line_number(machine: _Machine) -> int:
    try:
        return int(machine.line())
    except ValueError as error:
        raise PickleError(f"no number before byte {machine.at}") from error
