"""Which values older than the run its Python code has read, and the guards for them.

Whatever an instruction takes from an older object is guarded here, or makes the function uncovered:
there is no third way. An object is older if a path that was read leads to it (a global, a closure's
variable, an argument, an attribute or an item of an older object); all else was made by the run, of
guarded values. The identity of an object counts where its path is guarded; an argument may be
another object of the same class, as long as what is read of it is the same.

Containers are followed by path, not by identity: `settings["scale"]` guards one item,
whichever dict stands there.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.capture.access_paths import AccessPath, name_of
from tilegrad.capture.guards import Check, Guards, is_array, is_plain, is_value
from tilegrad.capture.objects import (
    NUMPY,
    OPAQUE,
    has_generic_attributes,
    instance_dict,
    is_own_code,
    is_python_class,
    kind_of_class,
    look_up_class,
    title,
)
from tilegrad.capture.older_objects import OLD, OlderObjects
from tilegrad.capture.pure import is_immutable
from tilegrad.ir.uop import UOp
from tilegrad.tensor.tensor import Tensor

__all__ = ["Reads"]

_INERT = (Tensor, UOp, DType)
_MAPPINGS = (dict, types.MappingProxyType)
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_CONTAINERS = (*_MAPPINGS, *_SEQUENCES, *_SETS)
_FACTS = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_BOUND_IN_C = (types.BuiltinMethodType, types.MethodWrapperType)
_LAZY = object()
# Attributes of tilegrad's own classes that programs exchange, as in PyTorch.
_EXCHANGED = frozenset({"forward"})


class Reads(OlderObjects):
    """Reads of older values in the run."""

    def __init__(self, guards: Callable[[Reads], Guards]):
        super().__init__()
        self.guards = guards(self)

    # older objects

    def reach(self, value: Any) -> None:
        """Take `value`, which is held, as older than the run."""
        self._anchor(value, value, title(value))
        if isinstance(value, types.MethodType):
            self.reach(value.__self__)
            self.reach(value.__func__)
        elif isinstance(value, functools.partial):
            self.reach(value.func)
            for name in ("args", "keywords"):
                content = getattr(value, name)
                self._anchor(content, AccessPath(value, False, name, name), name)
                # Its callers, perhaps the core or C, are given these.
                self.elements(content)
        elif isinstance(value, _BOUND_IN_C) and not isinstance(value.__self__, types.ModuleType):
            self.reach(value.__self__)

    def load(self, path: AccessPath, value: Any) -> None:
        """A value was read at a path: guard it, or its identity; members of a container are guarded
        when they are read.
        """
        if isinstance(value, _INERT) or is_plain(value):
            self.guards.expand(path, value)
            if isinstance(value, enum.Enum):
                self._anchor(value, value, path.label)
        elif isinstance(value, _CONTAINERS) or is_array(value):
            self._anchor(value, path, path.label)
        else:
            self.object(path, value)

    def object(self, path: AccessPath, value: Any) -> None:
        """Guard the object at a path; for an argument, and its members, only the class."""
        kind = type(value)
        is_record = kind is types.SimpleNamespace or is_python_class(kind)
        if path.is_argument and is_record and not isinstance(value, (type, BaseException)):
            if self._anchor(value, path, path.label):
                self.guards.add(Check(path, "class", (kind, None)))
            return
        if not is_own_code(value):
            self.guards.hold_object(path, value)
        if isinstance(value, functools.partial) and path.is_argument:
            self.guards.expand(path, value)
        self.reach(value)
        self._labels[id(value)] = path.label

    def container(self, path: AccessPath, value: Any, is_deep: bool) -> None:
        """The guards have seen all of a container."""
        self._anchor(value, path, path.label)
        self._complete.add(id(value))
        if is_deep:
            self._deep.add(id(value))

    def identify(self, value: Any) -> None:
        """Guard the identity of `value`, where only its path counted so far."""
        for anchor in list(self.anchors(value)):
            if isinstance(anchor, AccessPath):
                self.guards.hold_object(anchor, value)
        if id(value) in self._anchors and not isinstance(value, _CONTAINERS):
            self._anchor(value, value, self.label(value))

    def kind_of(self, value: Any) -> None:
        """Guard the class of an older object."""
        if isinstance(value, (*_INERT, *OLD)) or is_plain(value):
            return
        for anchor in self.anchors(value):
            if isinstance(anchor, AccessPath):
                self.guards.add(Check(anchor, "class", (type(value), None)))
            elif is_python_class(type(value)):
                path = AccessPath(value, False, "__class__", f"type({self.label(value)})")
                self.guards.hold_object(path, type(value))

    # attributes

    def attribute(self, value: Any, name: str) -> None:
        """Guard the value of `value.name`, or that there is none."""
        if isinstance(value, _INERT):
            if name == "grad" and isinstance(value, Tensor):
                self._gradient(value)
        elif isinstance(value, types.ModuleType):
            self._of_module(value, name)
        elif isinstance(value, type):
            self._of_class(value, name)
        elif isinstance(value, super):
            above: Any = value
            if above.__self_class__ is not None and above.__thisclass__ is not None:
                self.above(above.__thisclass__, above.__self_class__, name)
        elif not isinstance(value, types.MethodType):
            self._of_instance(value, name)

    def above(self, below: type, kind: type, name: str) -> None:
        """Guard the attribute of the bases of `kind` after `below` under a name."""
        mro = kind.__mro__
        for each in mro[mro.index(below) + 1 :] if below in mro else mro:
            if name in each.__dict__:
                self.class_attribute(each, name, each.__dict__[name], each)
                return
            self._absent_in(each, name)

    def _gradient(self, tensor: Tensor) -> None:
        number = self.guards.number_of(tensor)
        is_given = tensor.grad is not None and not self.guards.is_input(tensor.grad)
        if (
            number is not None
            and not is_given
            and (id(tensor), False, "grad") not in self._assigned
        ):
            path = self.guards.paths[number][0].attribute("grad")
            self.guards.expand(path, tensor.grad)

    def _of_module(self, module: types.ModuleType, name: str) -> None:
        value = module.__dict__.get(name, _LAZY)
        path = AccessPath(module, False, name, f"{module.__name__}.{name}")
        if (id(module), False, name) in self._assigned:
            return
        if value is not _LAZY:
            self.load(path, value)
        elif module.__name__.partition(".")[0] != "tilegrad":
            absent = AccessPath(module.__dict__, True, name, path.label)
            self.guards.add(Check(absent, "absent", None))

    def _of_class(self, kind: type, name: str) -> None:
        if not is_python_class(kind):
            return
        raw, owner = look_up_class(kind, name)
        meta, meta_owner = look_up_class(type(kind), name)
        if meta_owner is not None and (owner is None or _is_data(meta)):
            self.class_attribute(type(kind), name, meta, meta_owner)
        if owner is None:
            self._absent_in_class(kind, name)
        else:
            self.class_attribute(kind, name, raw, owner)

    def class_attribute(self, kind: type, name: str, raw: Any, owner: type) -> None:
        """Guard a class's attribute under a name, without running code of a descriptor."""
        if not is_python_class(owner) or (id(kind), False, name) in self._assigned:
            return
        label = f"{title(kind)}.{name}"
        if isinstance(raw, types.FunctionType):
            path = AccessPath(kind, False, name, label)
            self.load(path, raw)
            if name in _EXCHANGED and is_own_code(raw):
                self.guards.hold_object(path, raw)
        elif isinstance(raw, (staticmethod, classmethod)):
            self._raw(owner, name, label, raw)
            self.reach(raw.__func__)
        elif isinstance(raw, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            return
        elif hasattr(type(raw), "__get__"):
            self._raw(owner, name, label, raw)
            self.reach(raw)
        elif not is_own_code(kind) or name != "__annotations__":
            self.load(AccessPath(kind, False, name, label), raw)

    def _raw(self, owner: type, name: str, label: str, raw: Any) -> None:
        if not is_own_code(owner):
            space = AccessPath(owner, False, "__dict__", title(owner))
            self.guards.hold_object(AccessPath(space, True, name, label), raw)

    def _absent_in_class(self, kind: type, name: str) -> None:
        for each in kind.__mro__:
            self._absent_in(each, name)

    def _absent_in(self, kind: type, name: str) -> None:
        if is_python_class(kind) and not is_own_code(kind):
            path = AccessPath(kind, False, "__dict__", title(kind))
            self.guards.add(Check(path.item(name), "absent", None))

    def _of_instance(self, value: Any, name: str) -> None:
        kind = type(value)
        is_old = self.is_old(value)
        if is_old and not has_generic_attributes(kind):
            self.uncovered(
                f"reads {self.label(value)}.{name}: a {kind.__name__} says what it likes"
            )
            return
        raw, owner = look_up_class(kind, name)
        if owner is not None:
            self.class_attribute(kind, name, raw, owner)
        if not is_old or (id(value), False, name) in self._assigned:
            return
        anchors = self.anchors(value)
        if owner is not None and not is_own_code(kind):
            self.kind_of(value)
        paths = [AccessPath(each, False, name, f"{self.label(value)}.{name}") for each in anchors]
        own = instance_dict(value)
        if owner is not None and _is_data(raw):
            for path in paths:
                self._described(path, value, name, raw)
        elif own is not None and name in own:
            if id(own) in self._altered:
                self.uncovered(f"reads {self.label(value)}.{name} after its __dict__ was changed")
            for path in paths:
                self.load(path, own[name])
        elif own is not None and not isinstance(value, _FUNCTIONS):
            for anchor in anchors:
                self.guards.without(anchor, name, self.label(value))
            if owner is None and is_python_class(kind):
                self._absent_in_class(kind, name)

    def _described(self, path: AccessPath, value: Any, name: str, raw: Any) -> None:
        """A slot, or something that the class computes: a property's code is watched itself."""
        if isinstance(raw, types.MemberDescriptorType):
            try:
                found = raw.__get__(value)
            except AttributeError:
                self.guards.add(Check(path, "absent", None))
                return
            self.load(path, found)
        elif name == "__dict__":
            self.load(path, instance_dict(value))
        elif name == "__class__":
            self.kind_of(value)
        elif is_array(value):
            if name in _FACTS:
                self.guards.expand(path, getattr(value, name))
            else:
                self.whole(value)
        elif isinstance(raw, types.GetSetDescriptorType) and not isinstance(
            value, (*_CONTAINERS, *_FUNCTIONS)
        ):
            if not is_immutable(value) and not is_plain(value):
                self.uncovered(f"reads {path.label}, which C code computes")
        elif isinstance(value, types.FunctionType):
            self.load(path, getattr(value, name))
        elif isinstance(value, tuple):
            self.elements(value)

    def all_of(self, value: Any) -> None:
        """Guard all attributes that an object itself has."""
        own = instance_dict(value)
        if own is not None and self.is_old(value):
            for anchor in self.anchors(value):
                path = AccessPath(anchor, False, "__dict__", f"{self.label(value)}.__dict__")
                self.load(path, own)
            self.elements(own)
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                if name not in ("__dict__", "__weakref__"):
                    self._of_instance(value, name)

    def special(self, value: Any, *names: str) -> bool:
        """Guard what a class says of itself under names that an operator asks for; whether it says
        anything.
        """
        kind = type(value)
        found = False
        for name in names:
            raw, owner = look_up_class(kind, name)
            if owner is None:
                self._absent_in_class(kind, name)
            else:
                self.class_attribute(kind, name, raw, owner)
                found = found or owner is not object
        return found

    # items

    def item(self, value: Any, key: Any) -> None:
        """Guard the value of `value[key]`, or that there is none."""
        if isinstance(value, _INERT) or is_plain(value):
            return
        kind = type(value)
        if kind not in (list, tuple, dict, types.MappingProxyType) or isinstance(key, slice):
            return self.whole(value) if not isinstance(value, _CONTAINERS) else self.elements(value)
        if id(value) in self._complete or (id(value), True, name_of(key)) in self._assigned:
            return
        if id(value) in self._altered:
            self.uncovered(f"reads {self.label(value)}, which it changed before")
            return
        for anchor in self.anchors(value):
            if isinstance(anchor, AccessPath):
                self.guards.add(Check(anchor, "class", (kind, None)))
            path = AccessPath(anchor, True, key, f"{self.label(value)}[{key!r}]")
            try:
                found = value[key]
            except IndexError:
                self.length(value)
            except KeyError:
                self.guards.add(Check(path, "absent", None))
            except TypeError:
                return
            else:
                self.load(path, found)

    def length(self, value: Any) -> None:
        """Guard how many elements an older container has."""
        if isinstance(value, _CONTAINERS):
            if id(value) in self._complete:
                return
            if id(value) in self._altered:
                self.uncovered(f"reads {self.label(value)}, which it changed before")
            for path in self._paths(value):
                self.guards.add(Check(path, "class", (type(value), len(value))))
        else:
            self.whole(value)

    def _paths(self, value: Any) -> list[AccessPath]:
        """The paths to `value`; one to itself where it is held."""
        return [
            each if isinstance(each, AccessPath) else AccessPath.fixed(value, self.label(value))
            for each in self.anchors(value)
        ]

    def elements(self, value: Any) -> None:
        """Guard which elements an older container has; members of containers in it are not read."""
        if isinstance(value, types.MappingProxyType) and not self.is_old(value):
            self.uncovered("reads the attributes of a class as a whole")
        if not isinstance(value, _CONTAINERS):
            self.whole(value)
            return
        if not self.is_old(value) or id(value) in self._complete:
            return
        if id(value) in self._altered:
            self.uncovered(f"reads {self.label(value)}, which it changed before")
            return
        self._complete.add(id(value))
        known = self._paths(value)
        for path in known:
            self._contents(path, value)
        # It stands in itself.
        for anchor in self.anchors(value)[len(known) :]:
            if isinstance(anchor, AccessPath):
                self.guards.hold_object(anchor, value)

    def _contents(self, path: AccessPath, value: Any) -> None:
        if is_value(value):
            self._deep.add(id(value))
            self.guards.expand(path, value)
            return
        self.guards.add(Check(path, "class", (type(value), len(value))))
        if isinstance(value, _SETS):
            self.guards.hold_object(path, value)
            self.guards.add(Check(path, "members", frozenset(value)))
            return
        if isinstance(value, _MAPPINGS):
            self.guards.add(Check(path, "keys", list(value)))
            contents: Iterable[Any] = list(value.items())
        else:
            contents = list(enumerate(value))
        for key, content in contents:
            if (id(value), True, name_of(key)) not in self._assigned:
                self.load(path.item(key), content)

    def whole(self, value: Any) -> None:
        """Guard all that an operator or a function in C may take from `value`."""
        stack, seen = [value], set()
        while stack:
            value = stack.pop()
            if isinstance(value, _INERT) or is_plain(value) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, _CONTAINERS):
                if id(value) not in self._deep:
                    self.elements(value)
                    stack.extend(value.values() if isinstance(value, _MAPPINGS) else value)
                    stack.extend(value if isinstance(value, _MAPPINGS) else ())
            else:
                self._whole_object(value)

    def _whole_object(self, value: Any) -> None:
        if not self.is_old(value) or is_immutable(value):
            return
        if is_array(value) or hasattr(type(value), "__next__") or type(value) in (
            bytearray, memoryview
        ):  # fmt: skip
            for path in self._paths(value):
                self.guards.expand(path, value)
        elif isinstance(value, types.SimpleNamespace):
            self.all_of(value)
        elif kind_of_class(type(value)) in (OPAQUE, NUMPY):
            self.uncovered(f"reads {self.label(value)}, a {type(value).__name__}")
        elif is_python_class(type(value)) or isinstance(value, (functools.partial, staticmethod)):
            self.kind_of(value)
        elif not (type(value).__module__ or "").startswith("tilegrad."):
            self.uncovered(f"reads {self.label(value)}, a {type(value).__name__}")

    def truth(self, value: Any) -> None:
        """Guard whether `value` is true."""
        if isinstance(value, _INERT) or is_plain(value) or is_immutable(value):
            return
        if isinstance(value, _CONTAINERS):
            self.length(value)
        elif not is_python_class(type(value)) or self.special(value, "__bool__", "__len__"):
            self.whole(value)

    def cached(self, function: Any, args: tuple[Any, ...], value: Any) -> None:
        """A function with a cache has given `value`: it must give the same again."""
        path = AccessPath.fixed(function, f"{title(function)}({', '.join(map(repr, args))})")
        self.guards.checks.append(Check(path, "calls", (args, value)))
        if not is_plain(value) and not isinstance(value, Tensor):
            self.reach(value)

    def shown(self, values: Iterable[Any]) -> None:
        """Values are made text: arrays are so as NumPy's print options say."""
        for value in values:
            if is_array(value) and not is_plain(value):
                self.uncovered("makes text of an array, as numpy's print options say")

    # writes

    def assign(self, value: Any, name: str) -> None:
        """Note that an attribute is assigned to."""
        if isinstance(value, Tensor):
            self._assigned.add((id(value), False, name))
        if isinstance(value, _INERT) or not self.is_old(value):
            return
        raw, owner = look_up_class(type(value), name)
        if owner is not None and _is_data(raw) and not isinstance(raw, types.MemberDescriptorType):
            return
        self.identify(value)
        path = AccessPath(value, False, name, f"{self.label(value)}.{name}")
        self._assigned.add((id(value), False, name))
        self.written.setdefault(path.identity, path)

    def assign_item(self, value: Any, key: Any) -> None:
        """Note that an item is assigned to."""
        if isinstance(value, _INERT) or not isinstance(value, (list, dict, deque)):
            return
        if not self.is_old(value):
            return
        is_known = type(value) is list or (isinstance(value, dict) and key in value)
        if isinstance(key, slice) or (not is_known and id(value) not in self._complete):
            self._altered.add(id(value))
        for anchor in self.anchors(value):
            path = AccessPath(anchor, True, key, f"{self.label(value)}[{key!r}]")
            if path.is_argument:
                self.guards.expand(path, value[key] if is_known else None)
                continue
            self.written.setdefault(path.identity, path)
        self._assigned.add((id(value), True, name_of(key)))


def _is_data(raw: Any) -> bool:
    return hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__")
