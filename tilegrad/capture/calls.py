"""Reads that a call in the captured run may make: Python code is watched itself, C code is on a
list.
"""

from __future__ import annotations

import dis
import functools
import operator
import sys
import types
import typing
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from tilegrad.capture.access_paths import AccessPath
from tilegrad.capture.guards import is_array, is_plain
from tilegrad.capture.objects import (
    CORE,
    NUMPY,
    OPAQUE,
    TILEGRAD,
    is_own_code,
    is_python_class,
    kind_of_file,
    look_up_class,
)
from tilegrad.capture.pure import (
    MUTATORS,
    is_pure_class,
    is_pure_descriptor,
    is_pure_function,
    is_pure_method,
)
from tilegrad.capture.reads import Reads
from tilegrad.tensor.tensor import Tensor

__all__ = ["Calls"]

_CONTAINERS = (list, dict, set, deque, tuple, frozenset, types.MappingProxyType)
_IN_C = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip
_ELEMENTS: tuple[Any, ...] = (
    list, tuple, enumerate, zip, map, filter, reversed, iter, deque, dict, set, frozenset, any,
    all,
)  # fmt: skip
# Parts of tilegrad that look at nothing but what they are given, and at what every capture is
# guarded by: the switches, the defaults, and the modes of capture.modes.
_TRUSTED = (
    "tilegrad.tensor", "tilegrad.ir", "tilegrad.grad", "tilegrad.func", "tilegrad.nn",
    "tilegrad.capture", "tilegrad.compat", "tilegrad.base.dtype", "tilegrad.base.dtype_promotion",
    "tilegrad.base.config", "tilegrad.device.registry", "tilegrad.torch",
)  # fmt: skip
# Parts of these that read or write something else: generators, files, what is printed.
_UNTRUSTED = (
    "tilegrad.torch.configuration", "tilegrad.torch.cuda", "tilegrad.torch.tensor_printing",
    "tilegrad.torch.random", "tilegrad.torch.saving", "tilegrad.torch.storage",
    "tilegrad.torch.utils",
)  # fmt: skip
_cache = type(functools.lru_cache(lambda: None))
Then = Callable[[Any], None]


class Calls:
    """Guards the reads of calls, in `reads`.

    Attributes:
        waiting: frames that wait for the value of a call, with the action to take then.
        names: the names of a call's last arguments.
    """

    def __init__(self, reads: Reads):
        self.reads = reads
        self.waiting: list[tuple[FrameType, Then]] = []
        self.names: tuple[str, ...] = ()
        self._special: dict[int, Callable[[FrameType, Sequence[Any]], None]] = {
            id(getattr): self._getattr,
            id(hasattr): self._getattr,
            id(setattr): self._setattr,
            id(object.__setattr__): self._setattr,
            id(object.__getattribute__): self._getattr,
            id(type.__getattribute__): self._getattr,
            id(delattr): self._delete,
            id(vars): self._vars,
            id(globals): self._globals,
            id(locals): self._nothing,
            id(print): self._nothing,
            id(id): self._id,
            id(len): self._len,
            id(type): self._kind,
            id(isinstance): self._kind,
            id(operator.getitem): self._getitem,
            id(super): self._nothing,
        }

    def wait(self, frame: FrameType, path: AccessPath) -> None:
        """The value that comes next on the stack of `frame` stands at `path`."""
        self.waiting.append((frame, lambda value: self.reads.load(path, value)))

    def call(self, frame: FrameType, callee: Any, args: Sequence[Any]) -> None:
        """Guard the reads of a call."""
        if isinstance(callee, types.MethodType):
            self.call(frame, callee.__func__, [callee.__self__, *args])
        elif id(callee) in self._special:
            self._special[id(callee)](frame, args)
        elif isinstance(callee, types.FunctionType):
            self._function(frame, callee, args)
        elif isinstance(callee, type):
            self._class(frame, callee, args)
        elif isinstance(callee, _IN_C):
            self._in_c(frame, callee, args)
        else:
            self._object(frame, callee, args)

    def method(self, frame: FrameType, value: Any, name: str) -> None:
        """Guard the reads of the method `name` of `value`, which an instruction calls by itself."""
        raw, owner = look_up_class(type(value), name)
        if isinstance(raw, types.FunctionType):
            self.reads.class_attribute(type(value), name, raw, owner)
            self._function(frame, raw, [value])
        else:
            self._refuse(f"{type(value).__name__}.{name}")

    def outermost(self, callee: Any) -> None:
        """Guard the reads of calling the captured function before any of its instructions runs: for
        a function in Python none, as its own entry is seen.
        """
        while isinstance(callee, (types.MethodType, functools.partial)):
            callee = callee.__func__ if isinstance(callee, types.MethodType) else callee.func
        if isinstance(callee, (types.FunctionType, type)):
            return
        if isinstance(look_up_class(type(callee), "__call__")[0], types.FunctionType):
            self.reads.special(callee, "__call__")
        elif isinstance(callee, _IN_C):
            self._functions([callee])
        elif not is_pure_function(callee):
            self._refuse(getattr(callee, "__qualname__", None) or f"a {type(callee).__name__}")

    # kinds of callees

    def _function(
        self, frame: FrameType, function: types.FunctionType, args: Sequence[Any]
    ) -> None:
        kind = kind_of_file(function.__code__.co_filename)
        if kind == NUMPY:
            self._listed(frame, function, args)
        elif kind == OPAQUE:
            is_dropped = self._next(frame).startswith("POP_TOP")
            if "tqdm" not in function.__code__.co_filename and not is_dropped:
                if function.__name__ != "getLogger":
                    self._refuse(function.__qualname__)
            for value in args:
                self.reads.elements(value)
        elif kind == CORE and kind_of_file(frame.f_code.co_filename) != TILEGRAD:
            if not _is_trusted(function.__module__):
                self._refuse(f"{function.__module__}.{function.__name__}")
            for value in args:
                if str(type(value).__module__).startswith(_UNTRUSTED):
                    # A generator of tilegrad.torch: a draw moves it on.
                    self._refuse(f"{function.__name__} with a {type(value).__name__}")
                self.reads.whole(value)
        elif kind == CORE:
            for value in args:
                self.reads.whole(value)

    def _class(self, frame: FrameType, kind: type, args: Sequence[Any]) -> None:
        for base in kind.__mro__:
            if not is_python_class(base) and not is_pure_class(base) and base is not typing.Generic:
                self._refuse(base.__name__)
                return
        if is_python_class(kind):
            file = sys.modules.get(kind.__module__)
            name = getattr(file, "__file__", None) or "<string>"
            if kind_of_file(name) == CORE and kind.__module__ != "tilegrad.base.errors":
                if kind_of_file(frame.f_code.co_filename) != TILEGRAD:
                    if not _is_trusted(kind.__module__):
                        self._refuse(kind.__name__)
                for value in args:
                    self.reads.whole(value)
            for made_by in ("__new__", "__init__"):
                raw, owner = look_up_class(kind, made_by)
                if isinstance(raw, types.FunctionType):
                    self.reads.class_attribute(kind, made_by, raw, owner)
            if any(issubclass(kind, each) for each in (list, dict, set, tuple, deque)):
                for value in args:
                    self.reads.elements(value)
            return
        self._arguments(kind, args)

    def _in_c(self, frame: FrameType, callee: Any, args: Sequence[Any]) -> None:
        owner = getattr(callee, "__self__", None)
        name = callee.__name__
        if owner is None or isinstance(owner, types.ModuleType):
            if isinstance(callee, types.BuiltinFunctionType):
                self._listed(frame, callee, args)
                return
            if not args:
                self._refuse(name)
                return
            owner, args = args[0], args[1:]
        self._bound(frame, owner, name, args)

    def _bound(self, frame: FrameType, owner: Any, name: str, args: Sequence[Any]) -> None:
        """A method in C of `owner`."""
        reads = self.reads
        if name in ("__setattr__", "__getattribute__") and args:
            (self._setattr if name == "__setattr__" else self._getattr)(frame, [owner, *args])
            return
        if name in ("__reduce_ex__", "__reduce__", "__getstate__"):
            reads.all_of(owner)
            return
        if not is_pure_method(owner, name):
            if name in ("write", "flush", "writelines") and self._is_output(owner):
                return
            self._refuse(f"{getattr(owner, '__name__', type(owner).__name__)}.{name}")
            return
        if isinstance(owner, _CONTAINERS):
            self._of_container(owner, name, args)
            return
        if isinstance(owner, str) and name in ("format", "format_map"):
            self._format(owner, name, args)
        if hasattr(type(owner), "__next__") or is_array(owner):
            reads.whole(owner)
        if name in ("__str__", "__repr__", "__format__", "format"):
            reads.shown([owner, *args])
        self._arguments(None, args)

    def _of_container(self, owner: Any, name: str, args: Sequence[Any]) -> None:
        reads = self.reads
        if name in ("get", "__getitem__") and args:
            reads.item(owner, args[0])
        elif name == "setdefault" and args:
            reads.item(owner, args[0])
            if args[0] not in owner:
                reads.assign_item(owner, args[0])
        elif name == "__contains__" and isinstance(owner, dict):
            reads.item(owner, args[0])
        elif name == "__len__":
            reads.length(owner)
        elif name in ("pop", "popitem", "popleft"):
            reads.elements(owner)
            reads.alter(owner)
        elif name in MUTATORS:
            if name in ("sort", "remove", "discard", "difference_update"):
                reads.whole(owner)
            reads.alter(owner)
        elif name in ("keys", "values", "items", "__iter__", "copy", "__init__"):
            reads.elements(owner)
        elif name not in ("__new__", "__init_subclass__", "__class_getitem__", "__setattr__"):
            reads.whole(owner)
        for value in args:
            if name in ("append", "add", "appendleft", "insert", "get", "setdefault", "pop"):
                continue
            reads.elements(value)
        self._functions(args)

    def _object(self, frame: FrameType, callee: Any, args: Sequence[Any]) -> None:
        reads = self.reads
        kind = type(callee)
        if isinstance(callee, functools.partial):
            reads.elements(callee.args)
            reads.elements(callee.keywords)
            self.call(frame, callee.func, [*callee.args, *args])
        elif isinstance(callee, operator.attrgetter):
            for path in callee.__reduce__()[1]:
                value = args[0]
                for name in path.split("."):
                    reads.attribute(value, name)
                    value = getattr(value, name, None)
        elif isinstance(callee, operator.itemgetter):
            for key in callee.__reduce__()[1]:
                reads.item(args[0], key)
        elif isinstance(callee, _cache):
            given = tuple(args)
            own = getattr(callee, "__wrapped__", None)
            if is_own_code(own) and all(isinstance(each, type) for each in given):
                # A cache of tilegrad's about a class, which stays as it is.
                return
            if self.names or not all(map(is_plain, given)):
                self._refuse(f"{callee.__name__}, which has a cache, with such arguments")
            self.waiting.append((frame, lambda value: reads.cached(callee, given, value)))
        elif isinstance(look_up_class(kind, "__call__")[0], types.FunctionType):
            reads.special(callee, "__call__")
            raw, _ = look_up_class(kind, "__call__")
            self._function(frame, raw, [callee, *args])
        elif (kind.__module__ or "").partition(".")[0] in ("numpy", "typing", "types"):
            self._listed(frame, callee, args)
        else:
            name = None if is_python_class(kind) else getattr(callee, "__qualname__", None)
            self._refuse(name or f"a {kind.__name__}")

    def _listed(self, frame: FrameType, function: Any, args: Sequence[Any]) -> None:
        """A function that must be on the list."""
        if is_pure_function(function):
            self._arguments(function, args)
        else:
            module = getattr(function, "__module__", None)
            name = getattr(function, "__qualname__", None) or type(function).__name__
            self._refuse(f"{module}.{name}" if module and module != "builtins" else str(name))

    # arguments

    def _arguments(self, function: Any, args: Sequence[Any]) -> None:
        for value in args:
            if function in _ELEMENTS:
                self.reads.elements(value)
            else:
                self.reads.whole(value)
        if function in (str, repr, format, ascii):
            self.reads.shown(args)
        self._functions(args)

    def _functions(self, args: Sequence[Any]) -> None:
        """Functions that a function in C is given, and may call unobserved."""
        for value in args:
            if isinstance(value, types.MethodType):
                value = value.__func__
            if isinstance(value, functools.partial):
                self._functions([value.func])
            elif isinstance(value, _IN_C):
                owner = getattr(value, "__self__", None)
                if owner is None and not isinstance(value, types.BuiltinFunctionType):
                    is_listed = is_pure_descriptor(value)
                elif owner is None or isinstance(owner, types.ModuleType):
                    is_listed = is_pure_function(value)
                else:
                    is_listed = is_pure_method(owner, value.__name__)
                    self.reads.whole(owner)
                if not is_listed:
                    self._refuse(value.__name__)
            elif isinstance(value, (operator.attrgetter, operator.methodcaller, _cache)):
                self._refuse(f"{type(value).__name__} through a function in C")

    def _format(self, text: str, name: str, args: Sequence[Any]) -> None:
        """A format may name attributes and items of its arguments."""
        if name == "format_map" or "." in text.replace("{:.", "{:") or "[" in text:
            for value in args:
                if self.reads.is_old(value):
                    self._refuse("str.format with fields of an object")

    # special functions

    def _nothing(self, frame: FrameType, args: Sequence[Any]) -> None:
        pass

    def _getattr(self, frame: FrameType, args: Sequence[Any]) -> None:
        if len(args) >= 2 and isinstance(args[1], str):
            self.reads.attribute(args[0], args[1])

    def _setattr(self, frame: FrameType, args: Sequence[Any]) -> None:
        if len(args) >= 2 and isinstance(args[1], str):
            self.reads.assign(args[0], args[1])

    def _delete(self, frame: FrameType, args: Sequence[Any]) -> None:
        if args and self.reads.is_old(args[0]):
            self._refuse("delattr")

    def _vars(self, frame: FrameType, args: Sequence[Any]) -> None:
        if args:
            self.reads.attribute(args[0], "__dict__")
            if isinstance(args[0], type):
                self.wait(frame, AccessPath(args[0], False, "__dict__", "__dict__"))

    def _globals(self, frame: FrameType, args: Sequence[Any]) -> None:
        self.reads.reach(frame.f_globals)

    def _id(self, frame: FrameType, args: Sequence[Any]) -> None:
        if args and isinstance(args[0], Tensor) and self.reads.guards.identify(args[0]):
            return
        if args and self.reads.is_old(args[0]):
            self.reads.identify(args[0])
        else:
            self._refuse("id")

    def _len(self, frame: FrameType, args: Sequence[Any]) -> None:
        if args:
            self.reads.length(args[0])

    def _kind(self, frame: FrameType, args: Sequence[Any]) -> None:
        if args:
            self.reads.kind_of(args[0])

    def _getitem(self, frame: FrameType, args: Sequence[Any]) -> None:
        if len(args) == 2:
            self.reads.item(args[0], args[1])

    # messages

    def _refuse(self, name: str) -> None:
        self.reads.uncovered(f"calls {name}, which may give something else at each call")

    @staticmethod
    def _is_output(value: Any) -> bool:
        return value in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)

    @staticmethod
    def _next(frame: FrameType) -> str:
        """The instruction after the one that runs."""
        code = frame.f_code.co_code
        at = frame.f_lasti + 2
        while at < len(code) and dis.opname[code[at]] == "CACHE":
            at += 2
        return dis.opname[code[at]] if at < len(code) else ""


def _is_trusted(module: str | None) -> bool:
    """Whether what a module of tilegrad defines looks at nothing that captures are not guarded
    by.
    """
    return str(module).startswith(_TRUSTED) and not str(module).startswith(_UNTRUSTED)
