"""The layers of tilegrad as layers of this package: each a subclass with `Module` in front."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from tilegrad import nn as ours
from tilegrad.base.errors import ConfigError, UnsupportedError
from tilegrad.engine.run.run import current_recording
from tilegrad.nn import lazy
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex
from tilegrad.torch.expecting import refused_as_tensor
from tilegrad.torch.indices import refuse_negative
from tilegrad.torch.nn import functional
from tilegrad.torch.nn.adapted import ADAPTED
from tilegrad.torch.nn.attributes import attributes_of
from tilegrad.torch.nn.complex_layers import complex_kind, made_complex
from tilegrad.torch.nn.forwarding import forwarded, taken_by
from tilegrad.torch.nn.module import Module, check_module, counterparts
from tilegrad.torch.nn.parameter import Parameter, is_parameter
from tilegrad.torch.nn.recurrent_autocast import (
    cells_in_autocast,
    layers_in_autocast,
    results_in_autocast,
)
from tilegrad.torch.nn.synchronized import synchronized
from tilegrad.torch.step_names import FUNCTIONS, LAYERS
from tilegrad.torch.steps import note
from tilegrad.torch.tensor import with_ours
from tilegrad.torch.thread_modes import no_grad

__all__ = ["layers"]

_OTHERS = ("Module", "Parameter", "QuickGELU", "LayerNorm2d", "BatchNorm", "InstanceNorm")
# One class of tilegrad's serves several of PyTorch's, which differ in the axes of their inputs.
_AXES = {
    "BatchNorm1d": (2, 3), "BatchNorm2d": (4,), "BatchNorm3d": (5,), "InstanceNorm1d": (2, 3),
    "InstanceNorm2d": (3, 4), "InstanceNorm3d": (4, 5),
    **{
        f"{name}{axes}d": (axes + 1, axes + 2)
        for name in (
            "AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "CircularPad", "LPPool", "MaxPool",
            "ReflectionPad", "ReplicationPad",
        )
        for axes in (1, 2, 3)
    },
}  # fmt: skip
_OLD = {"size_average": None, "reduce": None}
_OF_SOME_AXIS = {
    "LogSoftmax": functional.log_softmax, "Softmax": functional.softmax,
    "Softmin": functional.softmin,
}  # fmt: skip


def _made(name: str, kind: type) -> type:
    space: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": "tilegrad.torch.nn"}
    space |= attributes_of(name)
    if name.endswith("Loss"):
        space["__init__"] = _without_old(kind)
    call: Any = kind.__call__
    if name in _OF_SOME_AXIS:
        space["__init__"], call = _of_some_axis(_OF_SOME_AXIS[name])
    if name in ("AdaptiveLogSoftmaxWithLoss", "CTCLoss", "EmbeddingBag", "LSTM", "GRU", "RNN"):
        call = _own_results(call)
    if name == "LSTM":
        call = results_in_autocast(call)
    if name in ("LSTM", "GRU", "RNN"):
        space["_layers"] = layers_in_autocast(kind._layers)  # type: ignore[attr-defined]
    elif name in ("LSTMCell", "GRUCell", "RNNCell"):
        space["_first_states"] = cells_in_autocast(kind._first_states)  # type: ignore[attr-defined]
    if name.startswith(("MaxPool", "AdaptiveMaxPool", "FractionalMaxPool")):
        call = _with_int64_indices(call)
    if name.startswith("InstanceNorm"):
        call = _of_an_item(call, _AXES[name][0])
    if name in _AXES:
        call = _of_axes(call, *_AXES[name])
    if "inplace" in inspect.signature(kind).parameters:
        call = _in_place(call)
    if name == "AdaptiveLogSoftmaxWithLoss":
        call = _of_classes(call)
    if name in ("Embedding", "EmbeddingBag"):
        call = _asked_by_rows(call)
    if name in LAYERS:
        call = _noting(call, FUNCTIONS[LAYERS[name]])
    if not issubclass(kind, (list, dict)):
        space["__call__"] = _of_tensors(call, name)
    if name in _CONTAINERS:
        space |= _CONTAINERS[name]
    for base in kind.__mro__:
        for key, value in vars(base).items():
            if isinstance(value, staticmethod) and not key.startswith("_"):
                space.setdefault(key, staticmethod(forwarded(value.__func__)))
    if not issubclass(kind, (list, dict)):
        space["__init__"] = _remembering(space.get("__init__", kind.__init__))
    if name.startswith(_WITH_PARAMETERS):
        space["reset_parameters"] = _reset_parameters
    if name in ("MultiheadAttention", "Transformer"):
        space["_reset_parameters"] = _reset_parameters
    return type(name, (Module, kind), space)


# Layers whose parameters begin anew on request.
_WITH_PARAMETERS = (
    "BatchNorm", "Bilinear", "Conv", "Embedding", "GRU", "GroupNorm", "InstanceNorm", "LSTM",
    "LayerNorm", "Linear", "PReLU", "RMSNorm", "RNN", "SyncBatchNorm",
)  # fmt: skip


def _reset_parameters(self: Any) -> None:
    """Draw the parameters anew, and begin running statistics anew."""
    kind = next(each for each in type(self).__mro__ if each.__module__ == "tilegrad.torch.nn")
    own = next(self.parameters(), None)
    dtype = {"dtype": own.dtype} if isinstance(own, Complex) else {}
    fresh = kind(**self.__dict__["_given"], **dtype)
    with no_grad():
        for found, current in (
            (fresh.named_parameters, self.named_parameters),
            (fresh.named_buffers, self.named_buffers),
        ):
            first = dict(found())
            for name, tensor in current():
                if name in first:
                    tensor.copy_(first[name])


def _remembering(make: Any) -> Any:
    """A constructor whose arguments the layer remembers as they were written, for `repr`."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        if complex_kind(options) is None:
            make(self, *args, **options)
        else:
            made_complex(make, self, args, options)
        if "inplace" in signature.parameters:
            self.inplace = bool(signature.bind(self, *args, **options).arguments.get("inplace"))
        if "_given" not in self.__dict__:
            bound = signature.bind(self, *args, **options).arguments
            plain = (bool, int, float, str, tuple, list)
            self.__dict__["_given"] = {
                name: value for name, value in bound.items() if isinstance(value, plain)
            }
        if getattr(type(self), "reset_parameters", _reset_parameters) is not _reset_parameters:
            # A subclass's own way to begin, which PyTorch's constructors call.
            self.reset_parameters()

    return __init__


def _in_place(call: Any) -> Any:
    """A call of a layer whose input takes the result, if the layer is made so."""

    @functools.wraps(call)
    def __call__(self: Any, input: Any, *args: Any, **options: Any) -> Any:
        made = call(self, input, *args, **options)
        return taken_by(input, made) if self.__dict__.get("inplace") else made

    return __call__


def _own_results(call: Any) -> Any:
    """A call of a layer that makes tensors of tilegrad's class, of constants or what is packed."""

    def __call__(self: Any, *args: Any, **options: Any) -> Any:
        return with_ours(call(self, *args, **options))

    return __call__


def _of_some_axis(function: Any) -> tuple[Any, Any]:
    """The constructor and the call of a layer whose axis, without one, depends on the input."""

    def __init__(self: Any, dim: int | None = None) -> None:
        self.dim = dim

    def __call__(self: Any, input: Any) -> Any:
        return function(input, self.dim)

    return __init__, __call__


def _of_tensors(call: Any, name: str) -> Any:
    """A call of a layer, which takes its tensor as `input=`, too, and raises KindError for an
    argument that lacks what tensors have.
    """

    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **options: Any) -> Any:
        if not args and "input" in options:
            args = (options.pop("input"),)
        try:
            return call(self, *args, **options)
        except AttributeError as error:
            raise refused_as_tensor(name, error, args, options) from None

    return __call__


def _of_classes(call: Any) -> Any:
    """A call of a layer whose targets are looked at: they must be classes."""

    @functools.wraps(call)
    def __call__(self: Any, input: Any, target: Any) -> Any:
        if not is_transforming() and current_recording() is None:
            is_class = (target >= 0) & (target < self.n_classes)
            if not is_class.all().item():
                raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}]")
        return call(self, input, target)

    return __call__


def _asked_by_rows(call: Any) -> Any:
    """A call of a table of vectors, which tells an optimizer that only rows asked for move."""

    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **options: Any) -> Any:
        refuse_negative(type(self).__name__, args[0] if args else options.get("input"))
        if self.sparse:
            self.weight._moves_by_rows = True
        return call(self, *args, **options)

    return __call__


def _with_int64_indices(call: Any) -> Any:
    """A call of a pooling, whose indices are int64."""

    def __call__(self: Any, x: Any) -> Any:
        found = call(self, x)
        return (found[0], found[1].long()) if isinstance(found, tuple) else found

    return __call__


def _of_axes(call: Any, *allowed: int) -> Any:
    """A call of a layer whose input has a number of axes that its name says."""

    def __call__(self: Any, x: Any) -> Any:
        if x.ndim not in allowed:
            shown = " or ".join(f"{count}D" for count in allowed)
            raise UnsupportedError(f"expected {shown} input (got {x.ndim}D input)")
        return call(self, x)

    return __call__


def _of_an_item(call: Any, axes: int) -> Any:
    """A call of a layer that takes one item of `axes` axes, too, without an axis of its own."""

    def __call__(self: Any, x: Any) -> Any:
        return call(self, x[None])[0] if x.ndim == axes else call(self, x)

    return __call__


def _noting(call: Any, step: str) -> Any:
    """A call of a layer whose result tells by its `grad_fn` which layer it was."""

    def __call__(self: Any, *args: Any, **options: Any) -> Any:
        found = call(self, *args, **options)
        note(found, step, (*args, *options.values()))
        return found

    return __call__


def _without_old(kind: Any) -> Any:
    """A loss's constructor that takes the arguments which `reduction` stands for since long."""

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        old = {key: options.pop(key) for key in _OLD if key in options}
        if any(value is not None for value in old.values()):
            raise ConfigError(
                f"{kind.__name__}: size_average and reduce are not supported",
                remedy="reduction='mean', 'sum' or 'none'",
            )
        kind.__init__(self, *args, **options)

    return __init__


def _trained(value: Any) -> Any:
    is_plain = isinstance(value, OurTensor) and not is_parameter(value)
    return Parameter(value) if is_plain and value.dtype.is_float else value


class _ModuleList:
    def __init__(self: Any, modules: Any = None) -> None:
        list.__init__(self, _each_module(modules or ()))

    def append(self: Any, module: Any) -> Any:
        """Put `module` at the end; gives this list."""
        check_module(module)
        list.append(self, module)
        return self

    def extend(self: Any, modules: Any) -> Any:
        """Put `modules` at the end; gives this list."""
        list.extend(self, _each_module(modules))
        return self

    def insert(self: Any, index: int, module: Any) -> None:
        """Put `module` before the one at `index`."""
        check_module(module)
        list.insert(self, index, module)

    def __setitem__(self: Any, index: Any, module: Any) -> None:
        if isinstance(index, slice):
            module = _each_module(module)
        else:
            check_module(module)
        list.__setitem__(self, index, module)

    def __add__(self: Any, other: Iterable[Any]) -> Any:
        return counterparts[ours.ModuleList]([*self, *other])

    # Modules among the attributes are among the modules of a list, too.

    def __len__(self: Any) -> int:
        return list.__len__(self) + len(_modules_by_name(self))

    def __iter__(self: Any) -> Iterator[Any]:
        return itertools.chain(list.__iter__(self), _modules_by_name(self))


def _modules_by_name(module: Any) -> list[Any]:
    return [each for each in module.__dict__.values() if isinstance(each, ours.Module)]


def _each_module(modules: Any) -> list[Any]:
    if not isinstance(modules, Iterable):
        shown = type(modules).__name__
        raise TypeError(f"ModuleList.extend should be called with an iterable, but got {shown}")
    listed = list(modules)
    for module in listed:
        check_module(module)
    return listed


class _ModuleDict:
    def __init__(self: Any, modules: Any = None) -> None:
        dict.__init__(self)
        self.update(modules or {})

    def update(self: Any, modules: Any) -> None:
        """Hold `modules`, in place of those that have their names."""
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self: Any, name: str, module: Any) -> None:
        check_module(module)
        self._check_name("module", name, self)
        dict.__setitem__(self, name, module)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        # A module that a subclass holds as an attribute is one of the dict.
        if isinstance(value, ours.Module) or name in self:
            dict.__setitem__(self, name, value)
        else:
            Module.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if name in self:
            dict.__delitem__(self, name)
        else:
            Module.__delattr__(self, name)


class _ParameterList:
    def __init__(self: Any, values: Any = None) -> None:
        list.__init__(self, [_trained(value) for value in values or ()])

    def append(self: Any, value: Any) -> Any:
        list.append(self, _trained(value))
        return self

    def extend(self: Any, values: Any) -> Any:
        list.extend(self, [_trained(value) for value in values])
        return self

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        list.__setitem__(self, index, _trained(value))


class _ParameterDict:
    def __init__(self: Any, parameters: Any = None) -> None:
        dict.__init__(self)
        self.update(parameters or {})

    def update(self: Any, parameters: Any) -> None:
        """Hold `parameters`, in place of those that have their names."""
        given = dict(parameters)
        if isinstance(parameters, dict) and not isinstance(parameters, (Module, OrderedDict)):
            # As in PyTorch, where a plain dict once had no order.
            given = dict(sorted(given.items()))
        for name, value in given.items():
            self[name] = value

    def __setitem__(self: Any, name: str, value: Any) -> None:
        dict.__setitem__(self, name, _trained(value))


def _methods(kind: type) -> dict[str, Any]:
    skipped = ("__dict__", "__weakref__", "__module__", "__doc__")
    return {name: value for name, value in vars(kind).items() if name not in skipped}


_CONTAINERS = {
    "ModuleDict": _methods(_ModuleDict), "ModuleList": _methods(_ModuleList),
    "ParameterDict": _methods(_ParameterDict), "ParameterList": _methods(_ParameterList),
}  # fmt: skip


def layers() -> dict[str, type]:
    """Every layer by name."""
    made: dict[str, type] = {}
    for name in ours.__all__:
        kind = getattr(ours, name)
        if not isinstance(kind, type) or name in _OTHERS:
            continue
        made[name] = _made(name, ADAPTED.get(name, kind))
        counterparts.setdefault(kind, made[name])
    for name in ("BatchNorm", "InstanceNorm"):
        kind = getattr(ours, name)
        # A layer that a layer of tilegrad's makes is of no certain number of axes.
        counterparts[kind] = made[f"{name}2d"]
    made["SyncBatchNorm"] = _made("SyncBatchNorm", synchronized(made))
    for name, made_kind in made.items():
        if name.startswith("Lazy") and issubclass(made_kind, lazy._Lazy):
            made_kind._kind = made[name.removeprefix("Lazy")]
    return made
