"""What a model is made of: the walk over attributes, lists and dicts that all of `nn` shares.

A model is any object. A `Module` may say that some of its tensors are state and never trained
(`_buffer_names`), or stay out of files (`_transient`). What holds its parts otherwise than its
attributes say has a method `_children_by_name`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Found",
    "Paired",
    "children_of",
    "is_state",
    "is_tensor",
    "is_tensor_class",
    "remembered",
    "walk",
]


T = TypeVar("T")


class Found(NamedTuple):
    """An object below a model: the way to it, itself, and what holds it by which key."""

    name: str
    item: Any
    holder: Any
    key: str


class Paired:
    """What is a tensor to its users and holds its numbers in another one: complex numbers, as pairs
    along a last axis, and the values of sparse tensors.
    """

    pair: Any

    def _meets(self, name: str, left: Any) -> Any:
        """What the method `name` of a tensor gives for this operand."""
        return NotImplemented


def remembered(question: Callable[[Any], T]) -> Callable[[Any], T]:
    """A question about a class, whose answer is remembered."""
    return functools.lru_cache(maxsize=4096)(question)


@remembered
def is_tensor_class(kind: type) -> bool:
    """Whether objects of a class are tensors of a model."""
    return issubclass(kind, (Tensor, Paired))


def is_tensor(item: object) -> bool:
    """Whether `item` is a tensor of a model."""
    return is_tensor_class(type(item))


def walk(obj: object, prefix: str = "", transient: bool = True) -> Iterator[Found]:
    """Everything below `obj` but numbers and texts, itself first, in PyTorch's order: of an object
    its own tensors, what is trained before what is state, then its other attributes.

    An object that is reached again, by another way or through a cycle, is not walked again; a
    tensor is given once for every way to it. `transient=False` leaves out what stays out of files,
    and gives what a shared layer holds under each of its names, as PyTorch's files do.
    """
    seen: set[int] = set()
    # What is left to visit, each with the layers above it.
    stack: list[tuple[Found, tuple[Any, ...]]] = [
        (Found(prefix.removesuffix("."), obj, None, ""), ())
    ]
    while stack:
        found, above = stack.pop()
        item = found.item
        if is_tensor_class(type(item)):
            yield found
        elif id(item) not in seen or (
            not transient and hasattr(item, "buffer_names") and not _stands_in(item, above)
        ):
            seen.add(id(item))
            yield found
            above = (item, above)
            stack.extend((child, above) for child in reversed(_below(found, transient)))


def _below(found: Found, transient: bool) -> list[Found]:
    """What is right below an object, in the order in which it is given."""
    item = found.item
    hidden = () if transient else getattr(item, "_transient", ())
    start = f"{found.name}." if found.name else ""
    trained: list[Found] = []
    state: list[Found] = []
    others: list[Found] = []
    has_attributes = _has_attributes(type(item))
    for key, child in children_of(item):
        kind = type(child)
        if kind in _PLAIN or (hidden and key in hidden):
            continue
        name = key if type(key) is str else str(key)
        each = Found(start + name, child, item, name)
        if not (has_attributes and is_tensor_class(kind)):
            others.append(each)
        else:
            (state if is_state(each) else trained).append(each)
    return trained + state + others


def _stands_in(item: object, above: tuple[Any, ...]) -> bool:
    """Whether `item` is one of a chain of pairs (object, rest)."""
    while above:
        first, above = above
        if first is item:
            return True
    return False


def is_state(found: Found) -> bool:
    """Whether a tensor of a model is state that is never trained."""
    _, item, holder, key = found
    if key in getattr(holder, "buffer_names", ()) or key in getattr(holder, "_own_buffers", ()):
        return True
    return not (item.pair if isinstance(item, Paired) else item).dtype.is_float


def children_of(item: object) -> Iterator[tuple[object, object]]:
    """What `item` holds, by key, index or attribute; nothing for what cannot hold a weight. A list
    or a dict that is a module holds what it lists, and then its attributes.
    """
    if hasattr(item, "_children_by_name"):
        yield from item._children_by_name()
        return
    kind = type(item)
    if isinstance(item, Mapping):
        yield from item.items()
    elif isinstance(item, tuple) and hasattr(item, "_fields"):
        yield from zip(item._fields, item, strict=True)
    elif isinstance(item, (list, tuple)):
        yield from enumerate(item)
    if _holds_attributes(kind):
        for slot in _slots_of(kind):
            if hasattr(item, slot):
                yield slot, getattr(item, slot)
        yield from getattr(item, "__dict__", {}).items()


@remembered
def _has_attributes(kind: type) -> bool:
    """Whether the attributes of an object belong to a model: a plain container's do not."""
    return not issubclass(kind, (Mapping, list, tuple)) or hasattr(kind, "buffer_names")


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
