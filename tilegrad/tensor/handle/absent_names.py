"""Attributes that users of other libraries look for and tensors do not have: who asks for one is
told what to write.

Tensors have no `__getattr__` for that: with one, any attribute of theirs takes ten times as long to
read, under Python 3.11 from 9 to 90 nanoseconds. Where a name is misspelt, Python looks for the
nearest one itself.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.absent import absent

__all__ = ["AbsentName", "AbsentNames", "absent_error", "declare_absent", "names_of_class"]

# Names of PyTorch's that are spelled otherwise here.
_INSTEAD = {
    "as_tensor": "Tensor(data)",
    "compile": "the decorator tilegrad.jit",
    "enable_grad": "tilegrad.enable_grad",
    "from_numpy": "Tensor(array), or Tensor.from_dlpack(array) to share memory",
    "inference_mode": "tilegrad.no_grad",
    "load": "nn.state.torch_load(path), or nn.state.safe_load(path)",
    "no_grad": "tilegrad.no_grad",
    "save": "nn.state.safe_save(tensors, path)",
    "tensor": "Tensor(data)",
    "vmap": "tilegrad.func.vmap",
}


class AbsentName:
    """An attribute that is not there: reading it of a tensor raises an error with the spelling to
    use.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str):
        self._name = name

    def __get__(self, tensor: Any, kind: type) -> Any:
        raise absent_error("'Tensor' object", self._name, kind)


class AbsentNames:
    """The attributes that tensors of this class do not have."""

    __slots__ = ()


def declare_absent(names: Any, kind: type) -> None:
    """Let the class `kind`, which has nothing else, say of `names` what to write instead."""
    for name in names:
        setattr(kind, name, AbsentName(name))


def absent_error(what: str, name: str, kind: Any) -> AttributeError:
    """The error for a name that tensors of the class `kind` do not have."""
    text = f"{what} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    hint = kind._hint_of(name)
    if hint:
        found = AttributeError(f"{text}; {hint}", name=name, obj=None)
    else:
        known = (each for each in names_of_class(kind) if each[0] != "_")
        found = absent(what, name, known, _INSTEAD)
    found.is_of_tensor = True  # type: ignore[attr-defined]
    return found


def names_of_class(kind: type) -> set[str]:
    """The names that a class, or one of its bases, has."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found |= vars(each)
    return {name for name, value in found.items() if not isinstance(value, AbsentName)}


declare_absent(_INSTEAD, AbsentNames)
