"""Which places the captured function reads, found while it runs.

Each Python function that runs is looked at when it is entered: its bytecode says which chains it
reads (chains.py), its frame which objects they begin at. So `self.layers[0].weight` becomes the
places (self, "layers"), (the list, 0) and (the layer, "weight"), each guarded by what stands there
now. Functions of the standard library, of NumPy and of tilegrad's core are not looked at; layers
and optimizers (tilegrad.nn) are, like a user's own.

An object that is made while the function runs is nobody's state. Those with an `__init__` are known
by it; containers count only where a chain leads to them.
"""

from __future__ import annotations

import gc
import operator
import types
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from tilegrad.capture.chains import ATTRIBUTE, EACH, ITEM, Chain, Chains, chains_of
from tilegrad.capture.guards import Guards
from tilegrad.capture.objects import (
    content,
    has_attributes,
    is_library,
    is_looked_at,
    is_users,
    look_up,
    own_names,
    title,
)
from tilegrad.capture.places import Place
from tilegrad.ir.uop import UOp
from tilegrad.tensor.memory import bound
from tilegrad.tensor.random import Generator
from tilegrad.tensor.tensor import Tensor

__all__ = ["Reads"]

_CHANGERS = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "update",
})  # fmt: skip
_ARRAY_FACTS = frozenset({"dtype", "ndim", "shape", "size"})
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, types.SimpleNamespace)
# Code that is made as a program runs must not pile up.
_MOST_CODES = 4096
_chains: dict[CodeType, Chains] = {}


def _is_core(names: dict[str, Any]) -> bool:
    """Whether code with these globals is tilegrad's own: some of it is in no file."""
    name = str(names.get("__name__"))
    return name.startswith("tilegrad.") and not name.startswith("tilegrad.nn")


class Reads:
    """A tracer (`sys.settrace`) that adds to `guards` what the function reads.

    Attributes:
        written: places that are assigned to.
        asked: variables whose bound value Python code has seen.
        is_seeded: whether the random numbers were begun anew.
    """

    def __init__(self, guards: Callable[[Reads], Guards]):
        self.guards = guards(self)
        self.written: dict[Any, Place] = {}
        self.asked: set[UOp] = set()
        self.is_seeded = False
        self._reached: dict[int, Any] = {}
        self._parted: dict[int, Any] = {}
        self._made: dict[int, Any] = {}
        self._reads_all = False
        self._functions: dict[CodeType, list[FunctionType]] = {}
        self._inner: set[CodeType] = set()
        # By number, as a code object's hash takes in all its constants.
        self._seen: dict[int, tuple[CodeType, bool]] = {}
        self._unknown: set[str] = set()
        self._hooks = {
            UOp.unbind.__code__: self._on_unbind,
            bound.__code__: self._on_bound,
            Generator.restart.__code__: self._on_seed,
        }

    # what is reached

    def reach(self, value: Any, is_parted: bool = False) -> None:
        """Attributes of `value` count from here on, and the variables of a function's closure. With
        `is_parted` it may be another object at each call, and is guarded part by part already.
        """
        if is_parted:
            self._parted[id(value)] = value
            return
        if id(value) in self._reached:
            return
        self._reached[id(value)] = value
        if isinstance(value, types.MethodType):
            self.reach(value.__self__)
            value = value.__func__
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, operator.attrgetter):
            self._reads_all = True
        if isinstance(value, FunctionType):
            functions = self._functions.setdefault(value.__code__, [])
            if value not in functions:
                functions.append(value)
                for cell in value.__closure__ or ():
                    inner = content(cell)
                    if isinstance(inner, (FunctionType, types.MethodType)):
                        self.reach(inner)

    def is_reached(self, value: Any) -> bool:
        """Whether `value` is an object that was there before, or came in by a return."""
        return id(value) in self._reached and id(value) not in self._made

    # tracing

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function: called at each entry of a Python function."""
        code = frame.f_code
        known = self._seen.get(id(code))
        if known is None:
            is_wanted = code in self._hooks or (
                is_looked_at(code.co_filename) and not _is_core(frame.f_globals)
            )
            known = self._seen[id(code)] = (code, is_wanted)
        if not known[1]:
            if is_library(code.co_filename):
                self._lend(frame)
            return None
        hook = self._hooks.get(code)
        if hook is not None:
            hook(frame)
            return None
        self._enter(frame)
        frame.f_trace_lines = False
        return self._on_return

    def _on_return(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return" and id(arg) not in self._made and has_attributes(arg):
            self.reach(arg)
        return self._on_return

    def _on_unbind(self, frame: FrameType) -> None:
        caller = frame.f_back
        if caller is not None and is_looked_at(caller.f_code.co_filename):
            self.asked.update(frame.f_locals["self"].src[:1])

    def _on_bound(self, frame: FrameType) -> None:
        size, variables = frame.f_locals["size"], frame.f_locals["variables"]
        if isinstance(size, UOp):
            self.asked.update(node for node in size.toposort() if node in variables)

    def _on_seed(self, frame: FrameType) -> None:
        self.is_seeded = True

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_varnames:
            made = frame.f_locals.get(code.co_varnames[0])
            if id(made) not in self._reached:
                self._made[id(made)] = made
        elif code.co_argcount:
            self._method(code, frame.f_locals.get(code.co_varnames[0]))
        chains = _chains.get(code)
        if chains is None:
            if len(_chains) >= _MOST_CODES:
                _chains.clear()
            chains = _chains[code] = chains_of(code)
        self._inner.update(part for part in code.co_consts if isinstance(part, CodeType))
        look = _Frame(self, frame, chains)
        for chain in chains.used:
            look.values(chain)
        for chain in chains.written:
            look.target(chain)
        if chains.is_reflective:
            look.everything()
        self._unknown |= chains.unknown | look.unknown

    def _lend(self, frame: FrameType) -> None:
        """A library's function may read all of a user's object that it is given."""
        for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
            value = frame.f_locals.get(name)
            if id(value) in self._reached and is_users(value):
                self.all_of(value, title(value))

    def all_of(self, value: Any, label: str) -> None:
        """Guard all attributes that an object itself has."""
        for name in own_names(value):
            self.attribute(value, name, label)

    def _method(self, code: CodeType, first: Any) -> None:
        """Guard that the class still has this method: nothing names one that an operator calls."""
        for kind in type(first).__mro__:
            if has_attributes(kind):
                for name, raw in list(kind.__dict__.items()):
                    if isinstance(raw, FunctionType) and raw.__code__ is code:
                        self.attribute(kind, name, title(kind))

    def finish(self) -> None:
        """Guard the attributes that were read of objects to which no chain leads."""
        for value in list(self._reached.values()):
            if has_attributes(value):
                names = own_names(value)
                for name in names if self._reads_all else names & self._unknown:
                    self.attribute(value, name, title(value))

    def release(self) -> None:
        """Let go of every object that was seen, and of itself: its hooks refer to it."""
        self._hooks, self.written = {}, {}
        self._reached, self._parted, self._made, self._functions = {}, {}, {}, {}

    # places

    def guard(self, place: Place, value: Any, following: tuple[str, Any] | None) -> list[Any]:
        """Guard what stands at a place, as far as the step after it asks for."""
        if following is not None:
            kind, key = following
            if (
                isinstance(value, (list, set, dict, deque))
                and key in _CHANGERS
                and kind == ATTRIBUTE
            ):
                return []
            if kind == ITEM and isinstance(value, (list, dict)):
                self.guards.hold_object(place, value)
                return [value]
            if key in _ARRAY_FACTS and hasattr(type(value), "__array_interface__"):
                self.guards.hold_object(place, value)
                self.guards.expand(
                    Place(value, False, key, f"{place.label}.{key}"), getattr(value, key)
                )
                return []
        self.guards.expand(place, value)
        return [value]

    def attribute(
        self, value: Any, name: str, label: str, following: tuple[str, Any] | None = None
    ) -> list[Any]:
        """Guard the attribute `name` of an object in reach; what stands there."""
        if isinstance(value, Tensor):
            return self._gradient(value) if name == "grad" else []
        if id(value) in self._parted:
            found = getattr(value, name, None)
            return [] if found is None else [found]
        if id(value) in self._made or not has_attributes(value):
            return []
        raw, owner = look_up(value, name)
        if owner is None:
            return []
        if hasattr(type(raw), "__get__") and owner is not value:
            if not isinstance(raw, types.MemberDescriptorType):
                # A method or a property: code, whose frame is looked at when it runs.
                self.reach(raw)
                if isinstance(raw, FunctionType):
                    self.guards.expand(Place(owner, False, name, f"{title(owner)}.{name}"), raw)
                return []
            try:
                raw = raw.__get__(value)
            except AttributeError:
                return []
        if isinstance(raw, (staticmethod, classmethod, property)):
            self.reach(raw)
            return []
        return self.guard(Place(value, False, name, f"{label}.{name}"), raw, following)

    def _gradient(self, tensor: Tensor) -> list[Any]:
        number = self.guards.number_of(tensor)
        if number is None:
            return []
        self.guards.expand(self.guards.places[number][0].attribute("grad"), tensor.grad)
        return [] if tensor.grad is None else [tensor.grad]

    def item(
        self, value: Any, key: Any, label: str, following: tuple[str, Any] | None
    ) -> list[Any]:
        """Guard one item of a container in reach."""
        is_parted = id(value) in self._parted
        is_ours = is_parted or id(value) in self._reached
        if not is_ours or not isinstance(value, (list, tuple, dict)):
            return []
        try:
            found = value[key]
        except (LookupError, TypeError):
            return []
        if isinstance(key, slice):
            return list(found)
        if is_parted:
            return [found]
        return self.guard(Place(value, True, key, f"{label}[{key!r}]"), found, following)

    def elements(self, value: Any) -> list[Any]:
        """The elements of a container in reach, which are guarded with it."""
        is_ours = id(value) in self._parted or id(value) in self._reached
        if not is_ours or not isinstance(value, (list, tuple, dict)):
            return []
        return list(value.values() if isinstance(value, dict) else value)

    def cell(self, code: CodeType, name: str, value: Any) -> Place | None:
        """The variable `name` of a closure with code `code`, where it is older than this run."""
        if code in self._inner:
            return None
        functions = self._functions.get(code)
        if not functions:
            functions = [each for each in gc.get_referrers(code) if isinstance(each, FunctionType)]
            self._functions[code] = functions
        for function in functions:
            cell = (function.__closure__ or ())[code.co_freevars.index(name)]
            if content(cell) is value:
                return Place(cell, False, "cell_contents", name)
        return None

    def is_parted(self, value: Any) -> bool:
        """Whether `value` is guarded part by part."""
        return id(value) in self._parted

    def is_old(self, value: Any) -> bool:
        """Whether `value` may be state: nothing that was made in this run."""
        if id(value) in self._made:
            return False
        is_ours = id(value) in self._parted or id(value) in self._reached
        return is_ours or not isinstance(value, _CONTAINERS)


class _Frame:
    """The chains of one function, followed from the values at its entry."""

    def __init__(self, reads: Reads, frame: FrameType, chains: Chains):
        self.reads = reads
        self.code = frame.f_code
        self.locals = frame.f_locals
        self.globals = frame.f_globals
        self.chains = chains
        self.unknown: set[str] = set()
        self._locals: dict[str, list[Any]] = {}
        flags = bool(self.code.co_flags & 4) + bool(self.code.co_flags & 8)
        count = self.code.co_argcount + self.code.co_kwonlyargcount + flags
        self.parameters = frozenset(self.code.co_varnames[:count])

    def values(self, chain: Chain) -> list[Any]:
        """Guard every place on the chain; the objects that it may lead to."""
        label = chain.name
        steps = chain.steps
        found = self.root(chain, steps[0] if steps else None)
        for number, (kind, key) in enumerate(steps):
            if not found:
                self.unknown.update(name for step, name in steps[number:] if step == ATTRIBUTE)
                return []
            following = steps[number + 1] if number + 1 < len(steps) else None
            values: list[Any] = []
            for value in found:
                values.extend(self.step(value, kind, key, label, following))
            label += f".{key}" if kind == ATTRIBUTE else "[...]" if kind == EACH else f"[{key!r}]"
            found = values
        return found

    def root(self, chain: Chain, following: tuple[str, Any] | None) -> list[Any]:
        name = chain.name
        place: Place | None = None
        if chain.kind == "local":
            return self.local(name)
        if chain.kind == "global" and name in self.globals:
            value = self.globals[name]
            place = Place(self.globals, True, name, name)
        elif chain.kind == "cell" and name in self.locals:
            value = self.locals[name]
            place = self.reads.cell(self.code, name, value)
        return [] if place is None else self.reads.guard(place, value, following)

    def local(self, name: str) -> list[Any]:
        """What a local variable may be: a parameter's value, and what chains give it."""
        known = self._locals.get(name)
        if known is not None:
            return known
        found: list[Any] = []
        self._locals[name] = []
        if name in self.parameters and name in self.locals:
            value = self.locals[name]
            # What an iterator (a comprehension's argument) gives, no chain says.
            is_followed = not isinstance(value, Tensor) and not hasattr(type(value), "__next__")
            if is_followed and self.reads.is_old(value):
                self.reads.reach(value, self.reads.is_parted(value))
                found.append(value)
        for alias in self.chains.aliases.get(name, ()):
            if alias.kind != "unknown":
                found.extend(self.values(alias))
        self._locals[name] = found
        return found

    def step(
        self, value: Any, kind: str, key: Any, label: str, following: tuple[str, Any] | None
    ) -> list[Any]:
        if kind == EACH:
            return self.reads.elements(value)
        if kind == ATTRIBUTE:
            return self.reads.attribute(value, key, label, following)
        return self.reads.item(value, key, label, following)

    def target(self, chain: Chain) -> None:
        """Note a place that is assigned to."""
        reads = self.reads
        if not chain.steps:
            place = None
            if chain.kind == "global":
                place = Place(self.globals, True, chain.name, chain.name)
            elif chain.name in self.locals:
                place = reads.cell(self.code, chain.name, self.locals[chain.name])
            if place is not None:
                reads.written.setdefault(place.identity, place)
            return
        kind, key = chain.steps[-1]
        prefix = "".join(f".{key}" for kind, key in chain.steps[:-1] if kind == ATTRIBUTE)
        for holder in self.values(Chain(chain.kind, chain.name, chain.steps[:-1])):
            if isinstance(holder, Tensor) or not reads.is_old(holder):
                continue
            part = f".{key}" if kind == ATTRIBUTE else f"[{key!r}]"
            place = Place(holder, kind != ATTRIBUTE, key, f"{chain.name}{prefix}{part}")
            reads.written.setdefault(place.identity, place)

    def everything(self) -> None:
        """Guard all attributes of what the function was given or names: it may read any of them."""
        found = [(name, self.locals.get(name)) for name in self.parameters]
        found += [(chain.name, value) for chain in self.chains.used for value in self.values(chain)]
        for name, value in found:
            if self.reads.is_old(value) and has_attributes(value):
                self.reads.all_of(value, name)
