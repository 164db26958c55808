"""`nn.Module` with PyTorch's rules: parameters are trained, buffers are kept, and any other tensor
among the attributes is neither.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self, TypeVar

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DataError, KindError, TilegradError
from tilegrad.nn import module as ours
from tilegrad.nn.state import load_cast
from tilegrad.nn.tree import is_buffer, is_tensor
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import Advising
from tilegrad.torch.capturing import compiled
from tilegrad.torch.complex_dtypes import ComplexDType
from tilegrad.torch.device_names import is_meta, name_of
from tilegrad.torch.nn.complex_layers import in_complex, in_kind
from tilegrad.torch.nn.extra_states import NAME, with_extra_states
from tilegrad.torch.nn.live_members import buffers_of, modules_of, parameters_of
from tilegrad.torch.nn.module_printing import arguments_of, text_of
from tilegrad.torch.nn.parameter import is_parameter, marked
from tilegrad.torch.size import Size
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["Module", "adopted", "check_module"]


class IncompatibleKeys(NamedTuple):
    """Names that only the model, or only the dict, has."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys({self.missing_keys=}, {self.unexpected_keys=})".replace(
            "self.", ""
        )


# The class here of each class of tilegrad.nn.
counterparts: dict[type, type] = {}


def check_module(value: object) -> None:
    """Raises KindError for what is neither a module nor None."""
    if value is not None and not isinstance(value, ours.Module):
        raise KindError(f"{type(value).__name__} is not a Module subclass")


def _kind_of(value: Any) -> str:
    return str(value.type()) if isinstance(value, Tensor) else type(value).__name__


def _unheld(value: Any, kind: str, name: str, wanted: str) -> TypeError:
    return TypeError(f"cannot assign '{_kind_of(value)}' object to {kind} '{name}' ({wanted})")


def adopted(module: Any) -> Any:
    """A layer that one of tilegrad's made for itself, with all below it, as a layer of this
    package; what is one stays as it is.
    """
    if isinstance(module, Module) or type(module) not in counterparts:
        return module
    module.__class__ = counterparts[type(module)]
    if isinstance(module, list):
        module[:] = [adopted(each) for each in list.__iter__(module)]
    for name, value in list(module.__dict__.items()):
        if isinstance(value, (OurTensor, ours.Module)):
            module.__dict__[name] = module._own(name, value)
    return module


T_destination = TypeVar("T_destination", bound=dict[str, Any])


class Module(Advising, ours.Module):
    """A layer, or a model made of layers: a call runs `forward`."""

    _advised = "torch.nn.Module"
    # Layers, parameters and buffers are the attributes below a module.
    _is_registering = True
    call_super_init = dump_patches = False
    T_destination = T_destination

    def __init__(self, *args: Any, **options: Any):
        # A class that is beside this one in the bases is not begun, unless it asks for that.
        if self.call_super_init:
            super().__init__(*args, **options)
        elif args or options:
            raise TypeError(
                f"{type(self).__name__}.__init__: torch.nn.Module takes no arguments, given "
                f"{[*args, *options]}"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (OurTensor, ours.Module)):
            value = self._own(name, value)
        if value is not None and name in self.__dict__:
            self._check_kind(name, value)
        super().__setattr__(name, value)

    def _check_kind(self, name: str, value: Any) -> None:
        """Raises TypeError where `value` is none of the kind that stands under this name."""
        current = self.__dict__[name]
        if isinstance(current, ours.Module):
            is_wrong = not isinstance(value, ours.Module)
            kind, wanted = "child module", "torch.nn.Module or None expected"
        elif is_parameter(current):
            is_wrong = not is_parameter(value)
            kind, wanted = "parameter", "torch.nn.Parameter or None expected"
        else:
            is_state = is_tensor(current) and is_buffer(self, name)
            is_wrong = is_state and not is_tensor(value)
            kind, wanted = "buffer", "torch.nn.Buffer, torch.Tensor or None expected"
        if is_wrong:
            raise TypeError(f"cannot assign '{_kind_of(value)}' as {kind} '{name}' ({wanted})")

    def _own(self, name: str, value: Any) -> Any:
        """A value as an attribute: layers of tilegrad's make tensors of its class."""
        if isinstance(value, ours.Module):
            return adopted(value)
        if not isinstance(value, Tensor):
            is_plain = is_buffer(self, name) or not value.dtype.is_float
            wanted = None if is_plain else value._requires_grad
            return marked(value) if wanted else as_ours(value)
        if "_is_persistent" in value.__dict__ and name not in self._own_buffers:
            self._own_buffers = (*self._own_buffers, name)
            if not value._is_persistent:  # type: ignore[attr-defined]
                self._transient = (*self._transient, name)
        return value

    # what is below, as PyTorch keeps it

    @property
    def _modules(self) -> dict[str, Any]:
        return modules_of(self)

    @property
    def _parameters(self) -> dict[str, Any]:
        return parameters_of(self)

    @property
    def _buffers(self) -> dict[str, Any]:
        return buffers_of(self)

    @property
    def _forward_pre_hooks(self) -> dict[int, Any]:
        return {} if self._hooks is None else self._hooks.before

    @property
    def _forward_hooks(self) -> dict[int, Any]:
        return {} if self._hooks is None else self._hooks.after

    def extra_repr(self) -> str:
        """Text in brackets behind the class: the arguments of a layer of this package."""
        return arguments_of(self)

    def __repr__(self) -> str:
        return text_of(self)

    def _get_name(self) -> str:
        return type(self).__name__

    def named_modules(  # type: ignore[override]
        self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and each below it, once or by each of its names."""
        if isinstance(memo, str):
            memo, prefix = None, memo
        if remove_duplicate:
            yield from super().named_modules(prefix)
            return
        stack: list[tuple[str, Any]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            yield name, module
            start = f"{name}." if name else ""
            below = reversed(module._modules.items())
            stack += [(start + key, each) for key, each in below if each is not None]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """The parameters, each once or by each of its names; without `recurse` only this module's
        own.
        """
        if remove_duplicate:
            yield from super().named_parameters(prefix, recurse)
            return
        start = f"{prefix}." if prefix else ""
        for name, tensor in self._parameters.items():
            yield f"{start}{name}", tensor
        if recurse:
            for name, module in self._modules.items():
                yield from module.named_parameters(f"{start}{name}", remove_duplicate=False)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """The buffers, each once or by each of its names; without `recurse` only this module's
        own.
        """
        if remove_duplicate:
            yield from super().named_buffers(prefix, recurse)
            return
        everyone = self.named_modules(prefix=prefix, remove_duplicate=False)
        for name, module in everyone if recurse else [(prefix, self)]:
            for key, tensor in module._buffers.items():
                if tensor is not None:
                    yield (f"{name}.{key}" if name else key), tensor

    def apply(self, fn: Callable[[Any], Any]) -> Self:
        """Call `fn` on every module below, then on this one; gives this module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Hold `tensor` as the attribute `name`, as state that is never trained; without
        `persistent` it stays out of `state_dict()`.
        """
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not is_tensor(tensor):
            raise _unheld(tensor, "buffer", name, "torch Tensor or None required")
        self._own_buffers = (*self._own_buffers, name)
        if not persistent:
            self._transient = (*self._transient, name)
        setattr(self, name, None if tensor is None else as_ours(tensor))

    def register_parameter(self, name: str, param: Any) -> None:
        """Hold a parameter, or None for one that is to come, as the attribute `name`."""
        self._check_name("parameter", name, self._parameters)
        if param is None:
            self._reserved = (*self._reserved, name)
        elif not isinstance(param, OurTensor) or (
            isinstance(param, Tensor) and not is_parameter(param)
        ):
            raise _unheld(param, "parameter", name, "torch.nn.Parameter or None required")
        setattr(self, name, None if param is None else marked(param))

    def _as_parameter(self, tensor: Any) -> Any:
        return marked(tensor, True)

    def add_module(self, name: str, module: Any) -> None:
        """Hold a module, or None for one that is to come, as the attribute `name`."""
        check_module(module)
        self._check_name("module", name, self._modules)
        super().add_module(name, module)

    register_module = add_module

    def _check_name(self, kind: str, name: str, registered: Mapping[str, Any]) -> None:
        """Raises TypeError for what is no name, KeyError for a name that a module cannot have, or
        has for something else.
        """
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' if name else f"{kind} name is empty")
        if name not in registered and getattr(self, name, None) is not None:
            raise KeyError(f"attribute '{name}' already exists")

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module and of all below it; gives this module."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        return super().train(mode)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train all parameters, or none; gives this module."""
        return super().requires_grad_(requires_grad)

    # state

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """The parameters and buffers by name: aliases of them without gradients, or themselves with
        `keep_vars`.
        """
        modules = list(super().named_modules(prefix))
        found = self._state(modules, prefix)
        made: dict[str, Any] = OrderedDict() if destination is None else destination
        state: Any = {
            name: tensor if keep_vars or not is_tensor(tensor) else tensor.detach()
            for name, tensor in found.items()
        }
        extra = _with_extra_state(modules)
        made.update(with_extra_states(state, modules, extra) if extra else state)
        return made

    def get_extra_state(self) -> Any:
        """State of this module in `state_dict` beside tensors: none, unless a class defines it.

        Raises NotImplementedError unless a class does.
        """
        raise NotImplementedError(f"{type(self).__name__} has no extra state: define this method")

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave.

        Raises NotImplementedError unless a class says how.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no extra state: define this method")

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take what a copy or a file holds. It is here for classes that ask another module for
        names that they lack, which a copy without attributes cannot.
        """
        self.__dict__.update(state)

    def _register_load_state_dict_pre_hook(self, hook: Any, with_module: bool = False) -> Any:
        """As `register_load_state_dict_pre_hook`; the module is passed only `with_module`."""
        called = hook if with_module else lambda module, *given: hook(*given)
        return self.register_load_state_dict_pre_hook(called)

    def _register_state_dict_hook(self, hook: Any) -> Any:
        return self.register_state_dict_post_hook(hook)

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Write the tensors of `state_dict` into those of their names; with `assign` let them be
        the module's own, as they are trained or not before.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        given = {name: value for name, value in state_dict.items() if name != "_metadata"}
        modules = list(super().named_modules())
        extra = _with_extra_state(modules)
        states = {name: given.pop(name) for name, _ in extra if name in given}
        lost = [name for name, _ in extra if name not in states]
        try:
            if strict and lost:
                raise DataError("load_state_dict: state beside tensors is missing")
            if assign:
                missing, unexpected = self._assigned(given, strict)
            else:
                missing, unexpected = self._load(modules, given, strict, load_cast)
        except TilegradError as error:
            # As which PyTorch raises all of them, in words that programs know.
            reasons = "".join(
                f"\n\t{reason}" for reason in self._unfit({**given, **states}, strict)
            )
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:{reasons}"
                if reasons
                else str(error)
            ) from error
        for name, module in extra:
            if name in states:
                module.set_extra_state(states[name])
        # Files from before batches were counted are whole.
        lacking = [name for name in missing if not name.endswith("num_batches_tracked")]
        return IncompatibleKeys(lacking + lost, unexpected)

    def _assigned(self, given: Mapping[str, Any], strict: bool) -> tuple[list[str], list[str]]:
        extra = dict.fromkeys(name for name, _ in _with_extra_state(list(self.named_modules())))
        if next(self._unfit({**extra, **given}, strict), None) is not None:
            raise DataError("load_state_dict: the names or shapes differ")
        own = {
            name: each
            for name, each in self.state_dict(keep_vars=True).items()
            if name not in extra
        }
        for name in own.keys() & given.keys():
            path, _, last = name.rpartition(".")
            value, before = as_ours(given[name]), own[name]
            if is_parameter(before):
                value = marked(value.detach(), before.requires_grad)
            setattr(self.get_submodule(path), last, value)
        missing = [name for name in own if name not in given]
        return missing, [name for name in given if name not in own]

    def _unfit(self, given: Mapping[str, Any], strict: bool) -> Iterator[str]:
        """Lines about entries of a state dict that do not fit this module."""
        extra = {name for name, _ in _with_extra_state(list(self.named_modules()))}
        own = {name: each for name, each in self.state_dict().items() if name not in extra}
        missing = [f'"{name}"' for name in (*own, *extra) if name not in given]
        unexpected = [f'"{name}"' for name in given if name not in own and name not in extra]
        if strict and missing:
            yield f"Missing key(s) in state_dict: {', '.join(missing)}. "
        if strict and unexpected:
            yield f"Unexpected key(s) in state_dict: {', '.join(unexpected)}. "
        for name, tensor in own.items():
            value = given.get(name, tensor)
            shape = tuple(getattr(value, "shape", ()))
            if not hasattr(value, "shape"):
                yield (
                    f'While copying the parameter named "{name}", expected torch.Tensor or '
                    f"Tensor-like object from checkpoint but received {type(value)}"
                )
            elif shape != tuple(tensor.shape):
                yield (
                    f"size mismatch for {name}: copying a param with shape {Size(shape)} from "
                    f"checkpoint, the shape in current model is {Size(tensor.shape)}."
                )

    # devices and dtypes

    def to(self, *args: Any, **options: Any) -> Self:
        """Move all tensors to a device, and floats to a dtype; gives this module."""
        device, dtype = options.pop("device", None), options.pop("dtype", None)
        for name in options:
            if name not in ("non_blocking", "memory_format", "copy"):
                raise TypeError(f"{type(self).__name__}: unexpected keyword argument {name!r}")
        for given in args[:2]:
            if isinstance(given, (DType, ComplexDType)):
                dtype = given
            elif isinstance(given, OurTensor):
                device, dtype = given.device, given.dtype
            elif isinstance(given, (str, int)) and not isinstance(given, bool):
                device = given
        if isinstance(dtype, DType) and not dtype.is_float:
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype=torch.{dtype.name}"
            )
        target = None if device is None else name_of(device)
        if target is not None and not is_meta(target):
            self._refuse_meta()
        if isinstance(dtype, ComplexDType):
            in_complex(self, dtype)
            return super().to(target)
        if isinstance(dtype, DType):
            in_kind(self, dtype)
        return super().to(target, dtype)

    def _refuse_meta(self) -> None:
        tensors = [*self.parameters(), *self.buffers()]
        if any(isinstance(each, Tensor) and each.is_meta for each in tensors):
            raise NotImplementedError(
                "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() "
                "instead of torch.nn.Module.to() when moving module from meta to a different "
                "device."
            )

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """All tensors on a device, in memory with whatever values it holds; gives this module."""
        device_name = name_of(device)
        for tensors in (self.parameters(recurse), self.buffers(recurse)):
            for tensor in list(tensors):
                made = OurTensor.empty(*tensor.shape, dtype=tensor.dtype, device=device_name)
                setattr(tensor, "data", made)  # noqa: B010  # a property, but for its base class
        return self

    def cpu(self) -> Self:
        """All tensors on the CPU; gives this module."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        """All tensors on a GPU; gives this module.

        Raises DeviceError where there is none.
        """
        return self.to("cuda" if device is None else device)

    def xpu(self, device: Any = None) -> Self:
        """Raises DeviceError: there is no such device."""
        return self.to("xpu" if device is None else device)

    def ipu(self, device: Any = None) -> Self:
        """Raises DeviceError: there is no such device."""
        return self.to("ipu" if device is None else device)

    def mtia(self, device: Any = None) -> Self:
        """Raises DeviceError: there is no such device."""
        return self.to("mtia" if device is None else device)

    def share_memory(self) -> Self:
        """Nothing: threads share memory as it is."""
        return self

    def compile(self, *args: Any, **options: Any) -> None:
        """Run calls of this module as `torch.compile` does."""
        self.forward = compiled(self.forward)  # type: ignore[method-assign]


def _with_extra_state(modules: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Those of `modules`, by name, that have state of their own, by its name."""
    return [
        (f"{name}.{NAME}" if name else NAME, module)
        for name, module in modules
        if getattr(type(module), "get_extra_state", Module.get_extra_state)
        is not Module.get_extra_state
    ]
