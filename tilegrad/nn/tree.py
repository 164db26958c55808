"""The tensors and layers of a model: the walk over attributes, lists and dicts that all of `nn`
shares.

A model is any object. A `Module` may say that some of its tensors are state and never trained
(`_buffer_names`), or stay out of files (`_transient`). A class that holds tensors in other ways
than as attributes has a method `_children_by_name`; one whose tensors and layers are registered, as
PyTorch's are, has `_is_registering`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self, TypeVar

from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Found", "Paired", "children_of", "is_buffer", "is_tensor", "is_tensor_class", "own_holders",
    "own_tensors", "remembered", "walk",
]  # fmt: skip


T = TypeVar("T")
_MOST = 4096


# An object below a model: the way to it, itself, what holds it by which key, and whether it is a
# tensor that is state and never trained.
Found = tuple[str, Any, Any, str, bool]


class Paired:
    """A tensor to its users that holds its numbers in another one: complex numbers, as pairs along
    a last axis, and the values of sparse tensors.
    """

    pair: Any
    # Whether its class makes it from the pair alone.
    _is_its_pair = False

    @property
    def _is_parameter(self) -> bool:
        """Whether a module of `tilegrad.torch` trains this."""
        return bool(self.pair._is_parameter)

    @property
    def device(self) -> Any:
        """The device of the numbers."""
        return self.pair.device

    @property
    def is_leaf(self) -> bool:
        """Whether nothing above the numbers in their graph has a gradient."""
        return bool(self.pair.is_leaf)

    @property
    def grad_fn(self) -> Any:
        """The step that the numbers came from; None for a leaf."""
        return self.pair.grad_fn

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for a gradient of the numbers; gives this tensor."""
        self.pair.requires_grad_(requires_grad)
        return self

    def _meets(self, name: str, left: Any) -> Any:
        """Result of the tensor's method `name` for this operand."""
        return NotImplemented


def remembered(question: Callable[[Any], T]) -> Callable[[Any], T]:
    """A question about a class, whose answer is remembered."""
    return functools.lru_cache(maxsize=_MOST)(question)


class _Answers(dict[type, Any]):
    """As `remembered`, for walks over many objects: indexed by the class, which takes half the time
    of a call.
    """

    def __init__(self, question: Callable[[type], Any]):
        super().__init__()
        self._question = question

    def __missing__(self, kind: type) -> Any:
        if len(self) >= _MOST:
            self.clear()
        answer = self[kind] = self._question(kind)
        return answer


@remembered
def is_tensor_class(kind: type) -> bool:
    """Whether objects of a class are tensors of a model."""
    return issubclass(kind, (Tensor, Paired))


def is_tensor(item: object) -> bool:
    """Whether `item` is a tensor of a model."""
    return is_tensor_class(type(item))


def _role(kind: type) -> int:
    """The role of a class's objects in a walk."""
    if is_tensor_class(kind):
        return _TENSOR
    if hasattr(kind, "buffer_names"):
        return _MODULE
    holds_none = kind in _PLAIN or issubclass(kind, _NO_CONTAINERS)
    return _NOTHING if holds_none and not issubclass(kind, _CONTAINERS) else _OTHER


def walk(
    obj: object, prefix: str = "", transient: bool = True, tensors: bool = True
) -> Iterator[Found]:
    """Everything below `obj` that may hold a weight, itself first, in PyTorch's order: of an object
    its own tensors, what is trained before what is state, then its other attributes.

    An object that is reached again, by another way or through a cycle, is not walked again; a
    tensor is given once for every way to it. `transient=False` leaves out what stays out of files,
    and gives what a shared layer holds under each of its names, as PyTorch's files do. Without
    `tensors` only what may hold them is given.
    """
    seen: set[int] = set()
    # Objects left to visit, each with the layers above it.
    root = _found(prefix.removesuffix("."), obj, None, "")
    stack: list[tuple[Found, tuple[Any, ...]]] = [(root, ())]
    while stack:
        found, above = stack.pop()
        item = found[1]
        if _role_of[type(item)] == _TENSOR:
            yield found
            continue
        if id(item) in seen and (
            transient or not hasattr(item, "buffer_names") or _stands_in(item, above)
        ):
            continue
        seen.add(id(item))
        yield found
        own, others = _below(found[0], item, transient, tensors)
        yield from own
        if others:
            above = (item, above)
            others.reverse()
            stack += [(each, above) for each in others]


def own_tensors(item: object, prefix: str = "") -> list[Found]:
    """The tensors that are attributes of a module, what is trained before what is state."""
    return _below(prefix.removesuffix("."), item, True, True)[0]


def own_holders(item: object) -> list[Any]:
    """Objects right below an object that may hold tensors."""
    return [found[1] for found in _below("", item, True, False)[1]]


def _below(name: str, item: Any, transient: bool, tensors: bool) -> tuple[list[Found], list[Found]]:
    """Objects right below an object, in the order in which they are given: tensors among its
    attributes, then the rest.
    """
    has_attributes, has_only_attributes, is_registering = _facts_of[type(item)]
    hidden = () if transient else getattr(item, "_transient", ())
    start = f"{name}." if name else ""
    trained: list[Found] = []
    state: list[Found] = []
    others: list[Found] = []
    children = item.__dict__.items() if has_only_attributes else _all_children_of(item)
    for key, child in children:
        role = _role_of[type(child)]
        if role == _NOTHING or (hidden and key in hidden):
            continue
        key = key if type(key) is str else str(key)
        if role == _MODULE or (role == _OTHER and not is_registering):
            others.append((start + key, child, item, key, False))
        elif role == _TENSOR and tensors:
            if is_registering:
                if getattr(child, "_is_parameter", False):
                    trained.append((start + key, child, item, key, False))
                elif is_buffer(item, key):
                    state.append((start + key, child, item, key, True))
                continue
            found = _found(start + key, child, item, key)
            (others if not has_attributes else state if found[4] else trained).append(found)
    trained += state
    return trained, others


def _found(name: str, item: Any, holder: Any, key: str) -> Found:
    return name, item, holder, key, is_tensor(item) and _is_state(item, holder, key)


def _stands_in(item: object, above: tuple[Any, ...]) -> bool:
    """Whether `item` is one of a chain of pairs (object, rest)."""
    while above:
        first, above = above
        if first is item:
            return True
    return False


def is_buffer(holder: Any, key: object) -> bool:
    """Whether what a module holds by `key` is declared as state that is never trained."""
    return key in getattr(holder, "buffer_names", ()) or key in getattr(holder, "_own_buffers", ())


def _is_state(tensor: Any, holder: Any, key: str) -> bool:
    """Whether a tensor that `holder` holds by `key` is state that is never trained."""
    if is_buffer(holder, key):
        return True
    return not (tensor.pair if isinstance(tensor, Paired) else tensor).dtype.is_float


def children_of(item: object) -> Iterator[tuple[object, Any]]:
    """Children of `item`, by key, index or attribute; nothing for an object that cannot hold a
    weight. A list or a dict that is a module holds what it lists, and then its attributes.
    """
    if not _facts_of[type(item)].is_registering:
        yield from _all_children_of(item)
        return
    for key, child in _all_children_of(item):
        role = _role_of[type(child)]
        if role == _MODULE or (
            role == _TENSOR and (getattr(child, "_is_parameter", False) or is_buffer(item, key))
        ):
            yield key, child


def _all_children_of(item: Any) -> Iterator[tuple[object, object]]:
    """As `children_of`, with what a module holds and has not registered."""
    if hasattr(item, "_children_by_name"):
        yield from item._children_by_name()
        return
    kind = type(item)
    if isinstance(item, Mapping):
        yield from item.items()
    elif isinstance(item, tuple) and hasattr(item, "_fields"):
        yield from zip(item._fields, item, strict=True)
    elif isinstance(item, tuple):
        yield from enumerate(item)
    elif isinstance(item, list):
        # A list of modules may iterate over its attributes, too.
        yield from enumerate(list.__iter__(item))
    if _holds_attributes(kind):
        for slot in _slots_of(kind):
            if hasattr(item, slot):
                yield slot, getattr(item, slot)
        yield from getattr(item, "__dict__", {}).items()


class _Facts(NamedTuple):
    """How objects of a class hold what is below them: whether attributes belong to a model, are the
    entries of `__dict__` and all that there is, and have to be registered.
    """

    has_attributes: bool
    has_only_attributes: bool
    is_registering: bool


def _facts(kind: type) -> _Facts:
    has_only_attributes = (
        _holds_attributes(kind)
        and not issubclass(kind, _CONTAINERS)
        and not hasattr(kind, "_children_by_name")
        and not _slots_of(kind)
        and kind.__dictoffset__ != 0
    )
    return _Facts(
        _has_attributes(kind), has_only_attributes, getattr(kind, "_is_registering", False)
    )


@remembered
def _has_attributes(kind: type) -> bool:
    """Whether the attributes of an object belong to a model: a plain container's do not."""
    return not issubclass(kind, _CONTAINERS) or hasattr(kind, "buffer_names")


@remembered
def _holds_attributes(kind: type) -> bool:
    """Whether objects of a class may hold weights as attributes."""
    return (
        _has_attributes(kind) and not issubclass(kind, _NO_CONTAINERS) and not _is_machinery(kind)
    )


@remembered
def _slots_of(kind: type) -> tuple[str, ...]:
    found: list[str] = []
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return tuple([slot for slot in found if slot not in ("__dict__", "__weakref__")])


# Roles of a class's objects in a walk: holding no weights, or one of these.
_NOTHING, _TENSOR, _MODULE, _OTHER = range(4)
_CONTAINERS = (Mapping, list, tuple)
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_NO_CONTAINERS = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    str, bytes, int, float,
)  # fmt: skip


def _is_machinery(kind: type) -> bool:
    """Whether this class is tilegrad's own and no layer: a captured function holds no weights."""
    if not kind.__module__.startswith("tilegrad."):
        return False
    return not any(base.__module__.startswith("tilegrad.nn.") for base in kind.__mro__)


_role_of, _facts_of = _Answers(_role), _Answers(_facts)
