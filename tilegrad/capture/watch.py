"""The tracer of a captured run: every instruction that reads something says so before it runs.

The operands lie on the stack (frames.py), so who is read is known, not guessed: an instruction
takes an attribute, an item, the elements or the truth of an object, or gives it to a function in C,
which is on a list (calls.py). Instructions that only move values are skipped; one that is not known
here makes the function uncovered.
"""

from __future__ import annotations

import builtins
import dis
import linecache
import os
import sys
import types
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tilegrad.base.recent import Bounded
from tilegrad.capture.access_paths import AccessPath
from tilegrad.capture.calls import Calls
from tilegrad.capture.frames import can_watch, cell_at, function_of, slots_of, stack_of
from tilegrad.capture.guards import Check, Guards
from tilegrad.capture.instructions import (
    ELEMENTS,
    KIND,
    QUIET,
    QUIET_INTRINSICS,
    TRUTH,
    WHOLE,
)
from tilegrad.capture.objects import LIBRARY, TILEGRAD, USER, kind_of_file, look_up_class
from tilegrad.capture.reads import Reads
from tilegrad.capture.stack_depths import stack_depths
from tilegrad.ir.uop import UOp
from tilegrad.tensor.indexing.generator import Generator
from tilegrad.tensor.storage.memory import bound

__all__ = ["Watch"]

_WATCHED = (USER, TILEGRAD, LIBRARY)
# Where on the stack a callee is.
_CALLEE_FIRST = sys.version_info >= (3, 13)

Handler = Callable[["Watch", FrameType, dis.Instruction], None]
# Before an instruction: what to do, the instruction, and the slots of the frame that are in use.
Moment = tuple[Handler | None, dis.Instruction, int]
# Code that is made as a program runs must not pile up.
_programs: Bounded[int, tuple[CodeType, dict[int, Moment]]] = Bounded(4096)


class Watch:
    """A tracer (`sys.settrace`) of one run.

    Attributes:
        reads: the objects read, and their guards.
        asked: variables whose bound value Python code has seen.
        is_seeded: whether the random numbers were begun anew.
        line: the line of a read that no guard covers.
    """

    def __init__(self, is_input: Callable[[Any], bool]):
        self.reads = Reads(lambda reads: Guards(is_input, reads.object, reads.container))
        self.guards = self.reads.guards
        self.calls = Calls(self.reads)
        self.asked: set[UOp] = set()
        self.is_seeded = False
        self.line = ""
        self._used = 0
        self._inner: set[CodeType] = set()
        self._cells: dict[int, Any] = {}
        self._kinds: dict[int, tuple[CodeType, str]] = {}
        self._hooks = {
            UOp.unbind.__code__: self._on_unbind,
            bound.__code__: self._on_bound,
            Generator.restart.__code__: self._on_seed,
        }
        if not can_watch():
            self.reads.uncovered("what it reads cannot be seen in this build of Python")

    @property
    def written(self) -> dict[Any, AccessPath]:
        return self.reads.written

    @property
    def reason(self) -> str:
        return self.reads.reason

    def reach(self, value: Any) -> None:
        """The function itself is older than its run."""
        self.reads.reach(value)
        self.calls.outermost(value)

    def is_reached(self, value: Any) -> bool:
        """Whether `value` is older than the run; then who it is counts from here on."""
        if not self.reads.is_old(value):
            return False
        self.reads.identify(value)
        return True

    def release(self) -> None:
        """Let go of every object that was seen, and of itself: its hooks refer to it."""
        self.reads.release()
        self._hooks, self._cells = {}, {}

    # tracing

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function: called at each entry of a Python function."""
        code = frame.f_code
        known = self._kinds.get(id(code))
        if known is None:
            kind = "hook" if code in self._hooks else kind_of_file(code.co_filename)
            if str(frame.f_globals.get("__name__")).startswith("tilegrad.") and kind == USER:
                # Code that the core has made, in no file.
                kind = "core"
            known = self._kinds[id(code)] = (code, kind)
        if known[1] == "hook":
            self._hooks[code](frame)
        if known[1] not in _WATCHED or not can_watch():
            return None
        if known[1] == LIBRARY and (frame.f_back is None or frame.f_back.f_trace is None):
            # The core's, or a logger's, own affair.
            return None
        # Python 3.13 heeds `f_trace_opcodes` only of a frame that has a trace function already.
        frame.f_trace = self._step
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        self._enter(frame, known[1])
        self._note(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Called before each instruction."""
        if event == "opcode":
            code = frame.f_code
            found = _programs.get(id(code))
            if found is None:
                found = _programs.put(id(code), (code, _program(code)))
            handler, step, self._used = found[1][frame.f_lasti]
            if self.calls.waiting:
                self._given(frame)
            if handler is not None:
                handler(self, frame, step)
                self._note(frame)
        return self._step

    def _note(self, frame: FrameType) -> None:
        if self.reads.reason and not self.line:
            self.line = _line(frame)

    def _given(self, frame: FrameType) -> None:
        """Look at the result of a call, as far as someone waits for it."""
        if self.calls.waiting[-1][0] is frame:
            _, then = self.calls.waiting.pop()
            if self._used > len(slots_of(frame.f_code)):
                then(self.stack(frame, 1)[0])

    def stack(self, frame: FrameType, count: int) -> list[Any]:
        return stack_of(frame, count, self._used)

    # entries of functions

    def _enter(self, frame: FrameType, kind: str) -> None:
        code = frame.f_code
        function = function_of(frame)
        is_old = code not in self._inner or id(function) in self.reads._anchors
        self._inner.update(each for each in code.co_consts if isinstance(each, CodeType))
        if not isinstance(function, types.FunctionType):
            return
        if is_old and kind == USER:
            path = AccessPath(function, False, "__code__", f"{function.__name__}.__code__")
            self.guards.hold_object(path, code)
            self._defaults(frame, function)
        if code.co_argcount:
            self._method(frame, code)

    def _defaults(self, frame: FrameType, function: types.FunctionType) -> None:
        """Guard the defaults of parameters that were not given."""
        code, given = frame.f_code, frame.f_locals
        defaults = function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        for number, (name, default) in enumerate(zip(names, defaults, strict=True)):
            if given.get(name, self) is default:
                path = AccessPath(function, False, "__defaults__", function.__name__)
                self.reads.load(AccessPath(path, True, number, name), default)
        for name, default in (function.__kwdefaults__ or {}).items():
            if given.get(name, self) is default:
                path = AccessPath(function, False, "__kwdefaults__", function.__name__)
                self.reads.load(AccessPath(path, True, name, name), default)

    def _method(self, frame: FrameType, code: CodeType) -> None:
        """Guard that the class still has this method: nothing names one that an operator calls."""
        kind = type(frame.f_locals.get(code.co_varnames[0]))
        raw, owner = look_up_class(kind, code.co_name)
        if isinstance(raw, types.FunctionType) and raw.__code__ is code:
            self.reads.class_attribute(kind, code.co_name, raw, owner)

    def _on_unbind(self, frame: FrameType) -> None:
        caller = frame.f_back
        if caller is not None and kind_of_file(caller.f_code.co_filename) in (USER, TILEGRAD):
            self.asked.update(frame.f_locals["self"].src[:1])

    def _on_bound(self, frame: FrameType) -> None:
        size, variables = frame.f_locals["size"], frame.f_locals["variables"]
        if isinstance(size, UOp):
            self.asked.update(node for node in size.toposort() if node in variables)

    def _on_seed(self, frame: FrameType) -> None:
        self.is_seeded = True

    # variables

    def load_name(self, frame: FrameType, step: dis.Instruction) -> None:
        name = step.argval
        if step.opname == "LOAD_NAME" and frame.f_locals is not frame.f_globals:
            if name in frame.f_locals:
                return
        names = frame.f_globals
        kind = kind_of_file(frame.f_code.co_filename)
        path = AccessPath(names, True, name, name)
        if self.reads.is_assigned(names, True, name):
            return
        if name in names:
            value = names[name]
            is_fixed = isinstance(value, types.ModuleType) or callable(value)
            if kind != LIBRARY or not is_fixed:
                self.reads.load(path, value)
        elif kind == USER:
            self.guards.add(Check(path, "absent", None))
            if not hasattr(builtins, name):
                self.guards.add(Check(AccessPath(builtins, False, name, name), "absent", None))

    def store_name(self, frame: FrameType, step: dis.Instruction) -> None:
        if step.opname == "STORE_NAME" and frame.f_locals is not frame.f_globals:
            return
        names = frame.f_globals
        self.reads.assign_path(names, AccessPath(names, True, step.argval, step.argval))

    def _cell(self, frame: FrameType, step: dis.Instruction) -> Any:
        """The cell of a closure's variable; None if the run has made it."""
        name, free, names = step.argval, frame.f_code.co_freevars, slots_of(frame.f_code)
        is_free = name in free
        slot = len(names) - len(free) + free.index(name) if is_free else names.index(name)
        cell = cell_at(frame, slot)
        if not isinstance(cell, types.CellType):
            return None
        if not is_free:
            self._cells[id(cell)] = cell
        return None if id(cell) in self._cells else cell

    def load_cell(self, frame: FrameType, step: dis.Instruction) -> None:
        cell = self._cell(frame, step)
        if cell is None or self.reads.is_assigned(cell, False, "cell_contents"):
            return
        path = AccessPath(cell, False, "cell_contents", step.argval)
        try:
            value = cell.cell_contents
        except ValueError:
            self.guards.add(Check(path, "absent", None))
        else:
            self.reads.load(path, value)

    def store_cell(self, frame: FrameType, step: dis.Instruction) -> None:
        cell = self._cell(frame, step)
        if cell is not None:
            path = AccessPath(cell, False, "cell_contents", step.argval)
            self.reads.assign_path(cell, path)

    def imports(self, frame: FrameType, step: dis.Instruction) -> None:
        name = step.argval
        module = sys.modules.get(name)
        if module is None:
            self.reads.uncovered(f"imports {name}")
        elif kind_of_file(frame.f_code.co_filename) == USER:
            self.reads.load(AccessPath(sys.modules, True, name, name), module)

    # attributes and items

    def load_attribute(self, frame: FrameType, step: dis.Instruction) -> None:
        (value,) = self.stack(frame, 1)
        self.reads.attribute(value, step.argval)
        if step.argval == "__dict__" and isinstance(value, type):
            space = AccessPath(value, False, "__dict__", f"{value.__name__}.__dict__")
            self.calls.wait(frame, space)

    def load_above(self, frame: FrameType, step: dis.Instruction) -> None:
        _, below, value = self.stack(frame, 3)
        self.reads.above(below, value if isinstance(value, type) else type(value), step.argval)

    def store_attribute(self, frame: FrameType, step: dis.Instruction) -> None:
        value = self.stack(frame, 1)[0]
        self.reads.assign(value, step.argval)

    def delete(self, frame: FrameType, step: dis.Instruction) -> None:
        if step.opname in ("DELETE_GLOBAL", "DELETE_DEREF"):
            is_old = True
        else:
            is_old = self.reads.is_old(self.stack(frame, 1 + (step.opname == "DELETE_SUBSCR"))[0])
        if is_old:
            self.reads.uncovered("deletes what was there before, which a replay would not")

    def load_item(self, frame: FrameType, step: dis.Instruction) -> None:
        self._load_item(*self.stack(frame, 2))

    def _load_item(self, value: Any, key: Any) -> None:
        self.reads.whole(key)
        self.reads.item(value, key)

    def store_item(self, frame: FrameType, step: dis.Instruction) -> None:
        value, key = self.stack(frame, 2)
        self.reads.assign_item(value, key)

    def load_slice(self, frame: FrameType, step: dis.Instruction) -> None:
        value, begin, end = self.stack(frame, 3)
        self._load_item(value, slice(begin, end))

    def store_slice(self, frame: FrameType, step: dis.Instruction) -> None:
        value, begin, end = self.stack(frame, 3)
        self.reads.assign_item(value, slice(begin, end))

    # operators

    def whole(self, frame: FrameType, step: dis.Instruction) -> None:
        has_format = step.opname == "FORMAT_VALUE" and (step.arg or 0) & 4
        values = self.stack(frame, WHOLE[step.opname] + bool(has_format))
        if step.opname == "BINARY_OP" and (step.arg or 0) >= 13:
            if isinstance(values[0], (list, dict, set)):
                self.reads.alter(values.pop(0))
        if step.opname.startswith(("FORMAT", "CONVERT")):
            self.reads.shown(values)
        for value in values:
            self.reads.whole(value)

    def compare(self, frame: FrameType, step: dis.Instruction) -> None:
        for value in self.stack(frame, 2):
            self.reads.whole(value)
            if isinstance(value, type) or not self.reads.is_old(value):
                continue
            if step.argval in ("==", "!=") and not isinstance(value, (list, tuple, dict, set)):
                if not self.reads.special(value, "__eq__"):
                    self.reads.identify(value)

    def identity(self, frame: FrameType, step: dis.Instruction) -> None:
        first, second = self.stack(frame, 2)
        for value, other in ((first, second), (second, first)):
            if other is None or isinstance(other, type):
                self.reads.kind_of(value)
            else:
                self.reads.identify(value)

    def contains(self, frame: FrameType, step: dis.Instruction) -> None:
        key, value = self.stack(frame, 2)
        self.reads.whole(key)
        if type(value) is dict:
            self.reads.item(value, key)
        else:
            self.reads.whole(value)

    def top(self, frame: FrameType, step: dis.Instruction) -> None:
        """An instruction that takes something of the value on top of the stack."""
        _OF_TOP[step.opname](self.reads, self.stack(frame, 1)[0])

    def match_class(self, frame: FrameType, step: dis.Instruction) -> None:
        value, kind, names = self.stack(frame, 3)
        self.reads.kind_of(value)
        self.reads.attribute(kind, "__match_args__")
        for name in (*getattr(kind, "__match_args__", ())[: step.arg], *names):
            self.reads.attribute(value, name)

    def match_keys(self, frame: FrameType, step: dis.Instruction) -> None:
        value, keys = self.stack(frame, 2)
        for key in keys:
            self.reads.item(value, key)

    def enter_block(self, frame: FrameType, step: dis.Instruction) -> None:
        (value,) = self.stack(frame, 1)
        for name in ("__enter__", "__exit__"):
            self.calls.method(frame, value, name)

    # calls

    def note_names(self, frame: FrameType, step: dis.Instruction) -> None:
        self.calls.names = step.argval

    def call(self, frame: FrameType, step: dis.Instruction) -> None:
        count = step.arg or 0
        if step.opname == "CALL_KW":
            # The names of the last arguments lie on top.
            first, second, *args, self.calls.names = self.stack(frame, count + 3)
        else:
            first, second, *args = self.stack(frame, count + 2)
        if _CALLEE_FIRST:
            # The callee, then its first argument or nothing.
            callee, bound_to = first, [] if second is None else [second]
        else:
            # Nothing and the callee, or the callee and its first argument.
            callee, bound_to = (second, []) if first is None else (first, [second])
        self.calls.call(frame, callee, [*bound_to, *args])
        self.calls.names = ()

    def call_spread(self, frame: FrameType, step: dis.Instruction) -> None:
        has_names = bool((step.arg or 0) & 1)
        # Nothing lies below the callee, or, from Python 3.13 on, above it.
        function, *values = self.stack(frame, 2 + has_names + _CALLEE_FIRST)
        args, *names = values[_CALLEE_FIRST:]
        self.reads.elements(args)
        spread = list(args) if isinstance(args, (list, tuple)) else [args]
        if has_names:
            self.reads.elements(names[0])
            spread.extend(names[0].values() if isinstance(names[0], dict) else ())
            self.calls.names = ("**",)
        self.calls.call(frame, function, spread)
        self.calls.names = ()

    def intrinsic(self, frame: FrameType, step: dis.Instruction) -> None:
        """A function that the interpreter calls by number: one value, which it takes as an operator
        does.
        """
        if step.argrepr == "INTRINSIC_UNARY_POSITIVE":
            self.reads.whole(self.stack(frame, 1)[0])
        elif step.argrepr not in QUIET_INTRINSICS:
            self.reads.uncovered(f"runs {step.argrepr}, which is not watched")

    def unknown(self, frame: FrameType, step: dis.Instruction) -> None:
        self.reads.uncovered(f"runs {step.opname}, which is not watched")


_OF_TOP: dict[str, Callable[[Reads, Any], None]] = {
    **dict.fromkeys(TRUTH, Reads.truth), **dict.fromkeys(ELEMENTS, Reads.elements),
    **dict.fromkeys(KIND, Reads.kind_of), "GET_LEN": Reads.length,
}  # fmt: skip
_HANDLERS: dict[str, Handler] = {
    "LOAD_GLOBAL": Watch.load_name, "LOAD_NAME": Watch.load_name,
    "LOAD_FROM_DICT_OR_GLOBALS": Watch.load_name,
    "STORE_GLOBAL": Watch.store_name, "STORE_NAME": Watch.store_name,
    "LOAD_DEREF": Watch.load_cell, "LOAD_CLASSDEREF": Watch.load_cell,
    "LOAD_FROM_DICT_OR_DEREF": Watch.load_cell, "LOAD_CLOSURE": Watch._cell,
    "STORE_DEREF": Watch.store_cell,
    "IMPORT_NAME": Watch.imports, "IMPORT_FROM": Watch.load_attribute,
    "LOAD_ATTR": Watch.load_attribute, "LOAD_METHOD": Watch.load_attribute,
    "STORE_ATTR": Watch.store_attribute, "DELETE_ATTR": Watch.delete,
    "DELETE_SUBSCR": Watch.delete, "DELETE_GLOBAL": Watch.delete, "DELETE_DEREF": Watch.delete,
    "BINARY_SUBSCR": Watch.load_item, "STORE_SUBSCR": Watch.store_item,
    "BINARY_SLICE": Watch.load_slice, "STORE_SLICE": Watch.store_slice,
    "COMPARE_OP": Watch.compare, "IS_OP": Watch.identity, "CONTAINS_OP": Watch.contains,
    "MATCH_CLASS": Watch.match_class, "MATCH_KEYS": Watch.match_keys,
    "KW_NAMES": Watch.note_names, "LOAD_SUPER_ATTR": Watch.load_above,
    "BEFORE_WITH": Watch.enter_block, "CALL": Watch.call, "CALL_KW": Watch.call,
    "CALL_FUNCTION_EX": Watch.call_spread, "CALL_INTRINSIC_1": Watch.intrinsic,
    **dict.fromkeys(WHOLE, Watch.whole), **dict.fromkeys(_OF_TOP, Watch.top),
}  # fmt: skip


def _program(code: CodeType) -> dict[int, Moment]:
    """The handler of each watched instruction, by its offset, with the stack depth there."""
    steps = list(dis.get_instructions(code))
    at, below = {step.offset: step for step in steps}, len(slots_of(code))
    found: dict[int, Moment] = {}
    for offset, depth in stack_depths(code, steps).items():
        step = at[offset]
        is_quiet = step.opname in QUIET or step.opname == "DELETE_NAME"
        handler = None if is_quiet else _HANDLERS.get(step.opname, Watch.unknown)
        found[offset] = (handler, step, below + depth)
    return found


def _line(frame: FrameType) -> str:
    """The user's line that leads to `frame`."""
    found: FrameType | None = frame
    while found is not None and kind_of_file(found.f_code.co_filename) != USER:
        found = found.f_back
    found = found or frame
    text = linecache.getline(found.f_code.co_filename, found.f_lineno).strip()
    return f"{text}   {os.path.basename(found.f_code.co_filename)}:{found.f_lineno}".strip()
