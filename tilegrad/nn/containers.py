"""Modules in rows, in lists and by name. The names of their tensors are PyTorch's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from tilegrad.base.errors import ConfigError, KindError, article
from tilegrad.base.origin import as_users
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = ["Identity", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Identity(Module):
    """Return the input.

    Args:
        args: ignored.
        options: ignored.

    Shape: input of any shape and dtype, output is the input.

    >>> nn.Identity(54)(Tensor([1])).tolist()
    [1]
    """

    def __init__(self, *args: Any, **options: Any):
        pass

    def __call__(self, x: Any) -> Any:
        return x


class Sequential(Module):
    """Apply layers one after another: modules, or any functions of a tensor.

    The names, "0", "1", ... or those of a dict, are attributes, and the names of the tensors begin
    with them.

    Args:
        layers: in order, or one dict that names them.

    Shape: input of the first layer, output of the last.

    Raises KindError for what cannot be called, ConfigError for a name that modules use.

    >>> net = nn.Sequential(nn.Linear(2, 3), Tensor.relu, nn.Linear(3, 1))
    >>> net(Tensor.ones(5, 2)).shape, list(net.state_dict())[-1], len(net)
    ((5, 1), '2.bias', 3)
    """

    # The names of layers that are no modules. Other attributes of a subclass are no layers.
    _functions: tuple[str, ...] = ()

    def __init__(self, *layers: Any):
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            for name, layer in layers[0].items():
                self.add_module(name, layer)
        else:
            self.extend(layers)

    def _layers(self) -> dict[str, Any]:
        """The modules among the attributes, and what was added as a layer and is none."""
        return {
            name: child
            for name, child in self.__dict__.items()
            if isinstance(child, Module) or name in self._functions
        }

    def add_module(self, name: str, module: Any) -> None:
        """Put `module` behind the others, under `name`."""
        if not callable(module):
            raise KindError(
                f"Sequential: {article(type(module).__name__)} cannot be called, at {name!r}",
                rule="layers are modules, or functions of a tensor",
            )
        if hasattr(type(self), name) or name.startswith("_") or "." in name:
            raise ConfigError(f"Sequential: a layer cannot be called {name!r}")
        self._put(name, module)

    def _put(self, name: str, module: Any) -> None:
        others = [each for each in self._functions if each != name]
        self._functions = (*others,) if isinstance(module, Module) else (*others, name)
        setattr(self, name, module)

    def append(self, layer: Any) -> Self:
        """Put `layer` at the end; gives this module."""
        self.add_module(str(len(self)), layer)
        return self

    def extend(self, layers: Iterable[Any]) -> Self:
        """Put `layers` at the end; gives this module."""
        for layer in layers:
            self.append(layer)
        return self

    def insert(self, index: int, layer: Any) -> Self:
        """Put `layer` before the one at `index`; those behind it move up. Gives this module."""
        layers = list(self)
        layers.insert(index, layer)
        self._set(layers)
        return self

    def pop(self, index: int = -1) -> Any:
        """Take out the layer at `index`, and give it."""
        layers = list(self)
        found = layers.pop(index)
        self._set(layers)
        return found

    def _set(self, layers: list[Any]) -> None:
        for name in self._layers():
            delattr(self, name)
        self._functions = ()
        self.extend(layers)

    def __len__(self) -> int:
        return len(self._layers())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._layers().values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(dict(list(self._layers().items())[index]))
        return list(self)[index]

    def __setitem__(self, index: int, layer: Any) -> None:
        name = list(self._layers())[index]
        if not callable(layer):
            raise KindError(
                f"Sequential: {article(type(layer).__name__)} cannot be called, at {name!r}"
            )
        self._put(name, layer)

    def __delitem__(self, index: int) -> None:
        self.pop(index)

    def __call__(self, x: Any) -> Any:
        for layer in self._layers().values():
            x = layer(x) if isinstance(layer, Module) else as_users(layer, x)
        return x


class ModuleList(Module, list[Any]):
    """List of modules that is a module: `train`, `parameters` and the like reach what it holds.

    A plain list serves as well; this one is for programs that call those methods on it.

    Args:
        modules: the modules.

    Shape: it has no forward; its weights keep their shapes.

    >>> layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    >>> len(layers), len(list(layers.parameters())), list(layers.state_dict())[0]
    (3, 6, '0.weight')
    """

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, modules: Iterable[Any] = ()):
        list.__init__(self, modules)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getitem__(self, index: Any) -> Any:
        found = list.__getitem__(self, index)
        return type(self)(found) if isinstance(index, slice) else found

    def extra_repr(self) -> str:
        return ""


class ModuleDict(Module, dict[str, Any]):
    """Dict of modules that is a module: `train`, `parameters` and the like reach what it holds.

    Args:
        modules: the modules by name.

    Shape: it has no forward; its weights keep their shapes.

    >>> parts = nn.ModuleDict({"body": nn.Linear(2, 2), "act": nn.ReLU()})
    >>> list(parts.state_dict()), parts["act"], parts.act
    (['body.weight', 'body.bias'], ReLU(), ReLU())
    """

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()):
        dict.__init__(self, modules)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        # A part that is there is replaced, whichever way it is named.
        if name in self:
            self[name] = value
        else:
            super().__setattr__(name, value)

    def extra_repr(self) -> str:
        return ""


class ParameterList(ModuleList):
    """List of trained tensors, which `parameters` and the like reach.

    Args:
        values: tensors, or what makes one, of any shapes.

    Shape: it has no forward; its tensors keep their shapes and dtypes.

    >>> scales = nn.ParameterList([Tensor.ones(2), Tensor.zeros(3)])
    >>> [p.requires_grad for p in scales], list(scales.state_dict())
    ([True, True], ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] = ()):
        super().__init__(_trained(value) for value in values)

    def append(self, value: Any) -> None:
        """Put a tensor at the end, to be trained."""
        super().append(_trained(value))

    def extend(self, values: Iterable[Any]) -> None:
        """Put tensors at the end, to be trained."""
        super().extend(_trained(value) for value in values)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, _trained(value))


class ParameterDict(ModuleDict):
    """Dict of trained tensors, which `parameters` and the like reach.

    Args:
        values: tensors by name, or what makes one, of any shapes.

    Shape: it has no forward; its tensors keep their shapes and dtypes.

    >>> scales = nn.ParameterDict({"left": Tensor.ones(2)})
    >>> scales["left"].requires_grad, list(scales.state_dict())
    (True, ['left'])
    """

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()):
        if isinstance(values, Mapping) and not isinstance(values, (OrderedDict, ParameterDict)):
            # As in PyTorch, where a plain dict once had no order.
            values = sorted(values.items())
        super().__init__({name: _trained(value) for name, value in dict(values).items()})

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _trained(value))


def _trained(value: Any) -> Any:
    """A tensor that may be trained is marked for it, unless `requires_grad=False` made it."""
    if isinstance(value, Tensor) and value.dtype.is_float and value.requires_grad is None:
        value.requires_grad = True
    return value
