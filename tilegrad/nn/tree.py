"""What a model is made of: the walk over attributes, lists and dicts that all of `nn` shares.

A model is any object. A `Module` may say that some of its tensors are state and never trained
(`_buffer_names`), or stay out of files (`_transient`). What holds its parts otherwise than its
attributes say has a method `_children_by_name`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tilegrad.tensor.tensor import Tensor

__all__ = ["Found", "Paired", "children_of", "is_state", "is_tensor", "walk"]


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


def is_tensor(item: object) -> bool:
    """Whether `item` is a tensor of a model."""
    return isinstance(item, (Tensor, Paired))


def walk(obj: object, prefix: str = "", transient: bool = True) -> Iterator[Found]:
    """Everything below `obj`, itself first, in PyTorch's order: of an object its own tensors, what
    is trained before what is state, then its other attributes.

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
        if is_tensor(found.item):
            yield found
        elif id(found.item) not in seen or (
            not transient
            and hasattr(found.item, "buffer_names")
            and not _stands_in(found.item, above)
        ):
            seen.add(id(found.item))
            yield found
            above = (found.item, above)
            hidden = () if transient else getattr(found.item, "_transient", ())
            below = [
                Found(
                    f"{found.name}.{key}" if found.name else str(key), child, found.item, str(key)
                )
                for key, child in children_of(found.item)
                if key not in hidden
            ]
            if _has_attributes(found.item):
                below.sort(key=_rank)
            stack.extend((child, above) for child in reversed(below))


def _stands_in(item: object, above: tuple[Any, ...]) -> bool:
    """Whether `item` is one of a chain of pairs (object, rest)."""
    while above:
        first, above = above
        if first is item:
            return True
    return False


def _rank(found: Found) -> int:
    """Which attributes come first: 0 what is trained, 1 state, 2 what is no tensor."""
    return int(is_state(found)) if is_tensor(found.item) else 2


def is_state(found: Found) -> bool:
    """Whether a tensor of a model is state that is never trained."""
    holder, key = found.holder, found.key
    numbers = found.item.pair if isinstance(found.item, Paired) else found.item
    return (
        not numbers.dtype.is_float
        or key in getattr(holder, "buffer_names", ())
        or key in getattr(holder, "_own_buffers", ())
    )


def children_of(item: object) -> Iterator[tuple[object, object]]:
    """What `item` holds, by key, index or attribute; nothing for what cannot hold a weight. A list
    or a dict that is a module holds what it lists, and then its attributes.
    """
    if hasattr(item, "_children_by_name"):
        yield from item._children_by_name()
        return
    if isinstance(item, Mapping):
        yield from item.items()
    elif isinstance(item, tuple) and hasattr(item, "_fields"):
        yield from zip(item._fields, item, strict=True)
    elif isinstance(item, (list, tuple)):
        yield from enumerate(item)
    if (
        _has_attributes(item)
        and not isinstance(item, _NO_CONTAINERS)
        and not _is_machinery(type(item))
    ):
        for kind in type(item).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(item, slot) and slot not in ("__dict__", "__weakref__"):
                    yield slot, getattr(item, slot)
        yield from getattr(item, "__dict__", {}).items()


def _has_attributes(item: object) -> bool:
    """Whether the attributes of `item` belong to a model: a plain container's do not."""
    return not isinstance(item, (Mapping, list, tuple)) or hasattr(item, "buffer_names")


_NO_CONTAINERS = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    str, bytes, int, float,
)  # fmt: skip


def _is_machinery(kind: type) -> bool:
    """Whether this class is tilegrad's own and no layer: a captured function holds no weights."""
    if not kind.__module__.startswith("tilegrad."):
        return False
    return not any(base.__module__.startswith("tilegrad.nn.") for base in kind.__mro__)
