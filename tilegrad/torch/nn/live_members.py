"""`module._modules`, `_parameters` and `_buffers`: programs that exchange layers write to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.nn import module as ours
from tilegrad.nn.tree import children_of, is_tensor
from tilegrad.torch.nn.parameter import is_parameter, marked

__all__ = ["buffers_of", "modules_of", "parameters_of"]


class Members(dict[str, Any]):
    """Members of a module of one kind, by name. Setting or deleting one here sets or deletes it in
    the module, too.

    >>> import tilegrad.torch as torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> model._modules["1"] = torch.nn.Tanh()
    >>> model[1]
    Tanh()
    """

    __slots__ = ("_module",)

    def __init__(self, module: Any, is_kind: Callable[[Any], bool]):
        super().__init__(
            (str(name), child) for name, child in children_of(module) if is_kind(child)
        )
        self._module = module

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __setitem__(self, name: str, value: Any) -> None:
        module = self._module
        if isinstance(module, list) and name.isdigit():
            list.__setitem__(module, int(name), value)
        elif isinstance(module, dict):
            dict.__setitem__(module, name, value)
        else:
            self._hold(module, name, value)
        super().__setitem__(name, value)

    def _hold(self, module: Any, name: str, value: Any) -> None:
        setattr(module, name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        module = self._module
        if isinstance(module, list) and name.isdigit():
            list.__delitem__(module, int(name))
        elif isinstance(module, dict):
            dict.__delitem__(module, name)
        else:
            delattr(module, name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *args: Any, **names: Any) -> None:
        for name, value in dict(*args, **names).items():
            self[name] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("the module has none")
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]


class _Parameters(Members):
    __slots__ = ()

    def _hold(self, module: Any, name: str, value: Any) -> None:
        is_marked = value is None or is_parameter(value)
        setattr(module, name, value if is_marked else marked(value, value.requires_grad))


class _Buffers(Members):
    __slots__ = ()

    def _hold(self, module: Any, name: str, value: Any) -> None:
        if name in self or value is None:
            setattr(module, name, value)
        else:
            module.register_buffer(name, value)


def modules_of(module: Any) -> Members:
    """The modules that `module` holds, by name."""
    return Members(module, lambda child: isinstance(child, ours.Module))


def parameters_of(module: Any) -> Members:
    """The parameters that `module` holds, by name."""
    return _Parameters(module, is_parameter)


def buffers_of(module: Any) -> Members:
    """The tensors that `module` holds as buffers, by name."""
    return _Buffers(module, lambda child: is_tensor(child) and not is_parameter(child))
