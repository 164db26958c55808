"""Weights that are computed from others: a module's `weight` is a function of trained tensors.

A parametrized module is of a class of its own, on which the attribute is a property; the trained
tensors are below `module.parametrizations`, by PyTorch's names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn.containers import ModuleDict
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "ParametrizationList", "cached", "computed", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "stored",
]  # fmt: skip


# Weights that were computed in the block of `cached`.
_cached: ContextVar[dict[Any, Tensor] | None] = ContextVar("cached", default=None)


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A block in which a weight is computed when it is first read, and stays that tensor: what is
    trained must not change in it.

    >>> from tilegrad.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "bias", Tensor.square)
    >>> with parametrize.cached():
    ...     layer.bias is layer.bias
    True
    """
    if _cached.get() is not None:
        yield
        return
    token = _cached.set({})
    try:
        yield
    finally:
        _cached.reset(token)


class ParametrizationList(Module):
    """The functions that make one tensor, applied in order to `original`, or to `original0`,
    `original1`, ... where the first function takes several.
    """

    def __init__(self, original: Tensor, first: Any):
        self._functions: list[Any] = []
        inverse = getattr(first, "right_inverse", None)
        begin = original if inverse is None else inverse(original)
        self._is_one = isinstance(begin, Tensor)
        originals = {"original": begin} if self._is_one else dict(_numbered("original", begin))
        for name, tensor in originals.items():
            if self._is_one and _takes(original, tensor):
                # The tensor itself is what is trained, also by an optimizer that has it already.
                own = original
            else:
                own = tensor.detach().clone().requires_grad_(original.requires_grad is not False)
            setattr(self, name, own)
        self._count = len(originals)

    def add(self, function: Any) -> None:
        """Apply `function` behind the others."""
        self._functions.append(function)

    def assign(self, value: Any) -> None:
        """Train from what makes `value`: each function from the last to the first says by its
        `right_inverse` what gives it.

        Raises ConfigError for a function that has none.
        """
        for function in reversed(self._functions):
            inverse = getattr(function, "right_inverse", None)
            if inverse is None:
                raise ConfigError(
                    f"parametrize: cannot assign, {type(function).__name__} has no right_inverse",
                    remedy="define right_inverse(self, value)",
                )
            value = inverse(value)
        given = (value,) if isinstance(value, Tensor) else value
        for name, each in zip(self._names(), given):
            getattr(self, name).detach().assign(each.detach())

    def __getitem__(self, index: int) -> Any:
        return self._functions[index]

    def __len__(self) -> int:
        return len(self._functions)

    def _children_by_name(self) -> Iterator[tuple[str, Any]]:
        for name in self._names():
            yield name, getattr(self, name)
        for at, function in enumerate(self._functions):
            yield str(at), function

    def _names(self) -> list[str]:
        return ["original"] if self._is_one else [f"original{at}" for at in range(self._count)]

    def __call__(self) -> Tensor:
        cache = _cached.get()
        if cache is not None and self in cache:
            return cache[self]
        value: Any = tuple(getattr(self, name) for name in self._names())
        for function in self._functions:
            value = function(*value) if isinstance(value, tuple) else function(value)
        made: Tensor = value
        if cache is not None:
            cache[self] = made
        return made


def _takes(tensor: Tensor, value: Tensor) -> bool:
    """Let `tensor` have `value`, where it has room for it."""
    if tensor.shape != value.shape or tensor.dtype is not value.dtype:
        return False
    if value is not tensor:
        tensor.detach().assign(value.detach())
    return True


def _numbered(name: str, tensors: Any) -> list[tuple[str, Tensor]]:
    return [(f"{name}{at}", tensor) for at, tensor in enumerate(tensors)]


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Let `module` read its tensor `tensor_name` as `parametrization` of a trained tensor; gives
    the module. With a method `right_inverse` the parametrization gives the trained tensors at
    first, one tensor or a tuple, otherwise that is the tensor as it was. Further ones are applied
    behind. `unsafe`, of PyTorch, is taken and does nothing: a result may have any shape.

    Raises ConfigError where there is no such tensor.

    >>> from tilegrad.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "bias", Tensor.square)
    >>> list(layer.state_dict())
    ['weight', 'parametrizations.bias.original']
    """
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].add(parametrization)
        return module
    tensor = _tensor("register_parametrization", module, tensor_name)
    functions = ParametrizationList(tensor, parametrization)
    functions.add(parametrization)
    if not hasattr(module, "parametrizations"):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = functions
    computed(
        module,
        tensor_name,
        lambda self: self.parametrizations[tensor_name](),
        lambda self, value: self.parametrizations[tensor_name].assign(value),
    )
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a tensor of `module`, or some tensor of it, is parametrized."""
    made = module.__dict__.get("parametrizations", {})
    return bool(made) if tensor_name is None else tensor_name in made


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Hold the tensor itself again: as it was computed last, or what was trained; gives the module.

    Raises ConfigError where nothing is parametrized, or where several tensors were trained and
    none of them can be left.
    """
    if not is_parametrized(module, tensor_name):
        raise ConfigError(
            f"remove_parametrizations: {type(module).__name__}.{tensor_name} is not parametrized"
        )
    functions = module.parametrizations[tensor_name]
    if not leave_parametrized and not functions._is_one:
        raise ConfigError(
            "remove_parametrizations: several tensors are trained, none of them can be left",
            remedy="leave_parametrized=True",
        )
    value = functions() if leave_parametrized else functions.original
    del module.parametrizations[tensor_name]
    if not module.parametrizations:
        del module.parametrizations
    own = functions.original if functions._is_one else None
    stored(module, tensor_name, own if own is not None and _takes(own, value) else value, own)
    return module


def computed(module: Any, name: str, function: Any, setter: Any = None) -> None:
    """Make the attribute `name` of this module alone what `function` of the module gives; to
    assign to it is to call `setter`.
    """
    kind = type(module)
    module.__dict__.pop(name, None)
    label = kind.__name__ if getattr(kind, "_made_of", None) else f"Parametrized{kind.__name__}"
    space = {name: property(function, setter), "_made_of": kind, "__module__": kind.__module__}
    module.__class__ = type(label, (kind,), space)


def stored(module: Any, name: str, value: Tensor, original: Tensor | None = None) -> None:
    """Undo `computed`, which was the last or not: the attribute is `value` again, itself if it is
    the module's `original`.
    """
    others = []
    while name not in type(module).__dict__:
        own = type(module)
        others += [
            (at, item.fget, item.fset)
            for at, item in vars(own).items()
            if isinstance(item, property)
        ]
        module.__class__ = own._made_of
    module.__class__ = type(module)._made_of
    for other, function, setter in reversed(others):
        computed(module, other, function, setter)
    setattr(module, name, value if value is original else value.detach().clone().requires_grad_())


def _tensor(caller: str, module: Any, name: str) -> Tensor:
    tensor = module.__dict__.get(name)
    if not isinstance(tensor, Tensor):
        raise ConfigError(
            f"{caller}: {type(module).__name__} has no tensor {name!r}",
            known=", ".join(at for at, item in vars(module).items() if isinstance(item, Tensor)),
        )
    return tensor
