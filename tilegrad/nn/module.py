"""The base of layers: modes, the tensors below, the tree in print.

A model may be any object, and needs no base: `nn.state` finds its tensors. `Module` adds what
PyTorch's users reach for: `parameters()`, `state_dict()`, `train()`, `eval()`, `to()`, and a
`forward` that a call runs. Nothing has to be declared: attributes are found when they are asked
for, and `super().__init__()` may be left out.

    class Net(nn.Module):
        def __init__(self):
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(x).relu()

A module trains until `eval()` says otherwise, as in PyTorch. A mode that was never set is
`Tensor.training`, the switch of the running thread, which is on by default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError, MissingError
from tilegrad.base.origin import unmarked
from tilegrad.nn.hookable import Hookable
from tilegrad.nn.module_hooks import Hooks, hooked
from tilegrad.nn.state import Unmatched, get_state_dict, load_state_dict
from tilegrad.nn.tree import Paired, children_of, is_tensor, own_holders, own_tensors, walk
from tilegrad.tensor.handle.core import as_dtype, device_of
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.gradient import set_gradient
from tilegrad.tensor.tensor import Tensor

__all__ = ["Module", "NoForwardError", "Parameter", "arguments_of", "shown"]


_PACKAGE = __name__.partition(".")[0] + "."


def Parameter(data: Any, requires_grad: bool = True) -> Tensor:
    """Tensor that is trained: `data` as a tensor of its own.

    Args:
        data: a tensor, or what makes one.
        requires_grad: whether `backward` adds up a gradient for it.

    Returns a tensor of the shape and dtype of `data`.

    Raises DTypeError for a dtype that has no derivative.

    >>> nn.Parameter(Tensor.zeros(3)).requires_grad
    True
    """
    tensor = data.detach().clone() if isinstance(data, Tensor) else Tensor(data)
    made = Tensor(tensor.uop, device=tensor.device)
    made.requires_grad = requires_grad
    return made


class NoForwardError(ConfigError, NotImplementedError):
    """A module was called whose class does not say what a call computes."""


class Module(Hookable):
    """A layer, or a model made of layers: a call runs `forward`.

    Raises ConfigError where a class defines neither `forward` nor `__call__`.

    >>> class Twice(nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Twice()(Tensor([1, 2])).tolist()
    [2, 4]
    """

    # State that is not trained, by attribute; `register_buffer` adds an object's own.
    buffer_names: ClassVar[tuple[str, ...]] = ()
    _mode: bool | None = None
    _own_buffers: tuple[str, ...] = ()
    _transient: tuple[str, ...] = ()
    # Names that `register_parameter` gave before there was a tensor.
    _reserved: tuple[str, ...] = ()

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        # Attributes that the class has without its own methods.
        given: Any = super(cls, cls)
        # A layer computes in `__call__`, and that is its `forward` too. A subclass that gives a new
        # `forward` means it to be what a call runs. But what calls a `forward` that there was, by
        # super().__call__, is no layer, and a call runs it whatever `forward` is.
        is_layer = given.forward in (Module.forward, getattr(given.__call__, "__wrapped__", None))
        if "__call__" in cls.__dict__:
            call = cls.__dict__["__call__"]
            if is_layer and "forward" not in cls.__dict__:
                cls.forward = call  # type: ignore[method-assign]
                cls.__call__ = hooked(call, call)  # type: ignore[method-assign]
        elif is_layer and "forward" in cls.__dict__:
            cls.__call__ = Module.__call__  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        # As in PyTorch the order is that of the first tensor or layer: None holds no position.
        if isinstance(value, (Tensor, Module)) and self.__dict__.get(name, self) is None:
            if name not in self._reserved and name not in self._own_buffers:
                del self.__dict__[name]
        if name == "forward":
            # Set on this object alone: its calls look at it, as they do at hooks.
            object.__setattr__(self, "_hooks", self._hooks or Hooks())
        object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._hooks is None:
            return unmarked(self.forward, *args, **options)
        return unmarked(self._hooks.run, self.forward, self, args, options)

    def forward(self, *args: Any, **options: Any) -> Any:
        """The computation of a call, without the hooks."""
        raise NoForwardError(
            f"{type(self).__name__}: there is no forward to call",
            remedy="define forward(self, ...), or __call__",
        )

    # modes

    @property
    def training(self) -> bool:
        """Whether this layer behaves as in training: what `train` or `eval` said, else
        `Tensor.training`.
        """
        return Tensor.training if self._mode is None else self._mode

    @training.setter
    def training(self, mode: bool | None) -> None:
        self._mode = mode

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module and of all below it, by the `train` of their classes; gives
        this module.

        >>> layer = nn.Dropout().train()
        >>> layer.training, layer.eval().training
        (True, False)
        """
        seen: set[int] = set()
        below: list[Any] = [self]
        while below:
            item = below.pop()
            if id(item) in seen:
                continue
            seen.add(id(item))
            if isinstance(item, Module):
                if item is not self and not type(item).train.__module__.startswith(_PACKAGE):
                    # A class of the user's with a way of its own, as one that stays frozen.
                    item.train(mode)
                    continue
                object.__setattr__(item, "_mode", mode)
            below += own_holders(item)
        return self

    def eval(self) -> Self:
        """`train(False)`: dropout keeps all, batch normalisation uses its running statistics."""
        return self.train(False)

    # what is below

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """This module and each `Module` below it, once, by name."""
        for name, item, _, _, _ in walk(self, prefix, tensors=False):
            if isinstance(item, Module):
                yield name, item

    def modules(self) -> Iterator[Any]:
        """This module and each `Module` below it, once."""
        for _, module in self.named_modules():
            yield module

    def get_submodule(self, target: str) -> Any:
        """The module below this one under a name such as "layers.0"; itself for "".

        Raises MissingError where there is nothing of that name, or no module.
        """
        return self._found(target, "module", lambda item: not isinstance(item, Tensor))

    def get_parameter(self, target: str) -> Tensor:
        """The parameter of a name such as "layers.0.weight".

        Raises MissingError where there is none.

        >>> nn.Sequential(nn.Linear(2, 3)).get_parameter("0.weight").shape
        (3, 2)
        """
        tensor: Tensor = self._found(target, "parameter", lambda item: isinstance(item, Tensor))
        return tensor

    def get_buffer(self, target: str) -> Tensor:
        """The state that is not trained of a name such as "norm.running_mean".

        Raises MissingError where there is none.
        """
        tensor: Tensor = self._found(target, "buffer", lambda item: isinstance(item, Tensor))
        return tensor

    def _found(self, target: str, kind: str, is_fit: Callable[[Any], bool]) -> Any:
        item: Any = self
        for key in target.split(".") if target else ():
            item = {str(name): child for name, child in children_of(item)}.get(key)
        if item is None or not is_fit(item):
            raise MissingError(
                f"{type(self).__name__}: there is no {kind} {target!r}",
                known=", ".join(name for name, _ in children_of(self) if isinstance(name, str)),
            )
        return item

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules that are attributes of this one, each once."""
        seen: set[int] = set()
        for name, child in children_of(self):
            if isinstance(child, Module) and id(child) not in seen:
                seen.add(id(child))
                yield str(name), child

    def children(self) -> Iterator[Any]:
        """The modules that are attributes of this one."""
        for _, child in self.named_children():
            yield child

    def _tensors(
        self, prefix: str, wants_buffers: bool, recurse: bool
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        found = walk(self, prefix) if recurse else own_tensors(self, prefix)
        for name, item, _, _, is_state in found:
            if is_state == wants_buffers and is_tensor(item) and id(item) not in seen:
                seen.add(id(item))
                yield name, item

    def named_parameters(
        self, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are trained, or may be, each once, by name; without `recurse` only this
        module's own.
        """
        return self._tensors(prefix, False, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The tensors that are trained, or may be, each once.

        >>> sum(p.numel() for p in nn.Linear(3, 2).parameters())
        8
        """
        for _, tensor in self.named_parameters(recurse=recurse):
            yield tensor

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are state and never trained, by name: running statistics, integers."""
        return self._tensors(prefix, True, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The tensors that are state and never trained."""
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Hold `tensor` as the attribute `name`, as state that is never trained; without
        `persistent` it stays out of `state_dict()`.
        """
        if tensor is not None:
            tensor.requires_grad = False
        setattr(self, name, tensor)
        self._own_buffers = (*self._own_buffers, name)
        if not persistent:
            self._transient = (*self._transient, name)

    def register_parameter(self, name: str, tensor: Tensor | None) -> None:
        """Hold `tensor` as the attribute `name`, to be trained."""
        if tensor is not None:
            tensor.requires_grad = True
        else:
            self._reserved = (*self._reserved, name)
        setattr(self, name, tensor)

    def _as_parameter(self, tensor: Tensor) -> Tensor:
        """A tensor as one that this module trains."""
        tensor.requires_grad = True
        return tensor

    def add_module(self, name: str, module: Any) -> None:
        """Hold `module` as the attribute `name`."""
        setattr(self, name, module)

    register_module = add_module

    def set_submodule(self, target: str, module: Any) -> None:
        """Let `module` stand under a name such as "layers.0" from now on.

        Raises ConfigError where there is nothing to hold it.

        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> model.set_submodule("1", nn.Tanh())
        >>> type(model[1]).__name__
        'Tanh'
        """
        home, _, key = target.rpartition(".")
        holder = self._found(home, "module", lambda item: not isinstance(item, Tensor))
        if key.isdigit() and hasattr(holder, "__setitem__"):
            holder[int(key)] = module
        elif isinstance(holder, dict):
            holder[key] = module
        else:
            setattr(holder, key, module)

    def type(self, dst_type: DType | str) -> Self:
        """Floats as `dst_type`; gives this module."""
        return self.to(dtype=dst_type)

    def apply(self, function: Callable[[Any], Any]) -> Self:
        """Call `function` on every module below, then on this one; gives this module."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    # tensors

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """The tensors by name, as `nn.state.get_state_dict`."""
        return self._state(list(self.named_modules(prefix)), prefix)

    def _state(self, modules: Sequence[tuple[str, Any]], prefix: str) -> dict[str, Tensor]:
        """As `state_dict`; `modules` are those from this one down, by name."""
        hooked_ones = _with_hooks(modules)
        for module, start in hooked_ones:
            module._hooks.run_state("before", module, start, False)
        made = get_state_dict(self, prefix)
        for module, start in reversed(hooked_ones):
            module._hooks.run_state("after", module, made, start, {})
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Write the tensors or arrays of `state_dict` into those of their names; see
        `nn.state.load_state_dict`.
        """
        return self._load(list(self.named_modules()), state_dict, strict, load_state_dict)

    def _load(
        self,
        modules: Sequence[tuple[str, Any]],
        state_dict: Mapping[str, Any],
        strict: bool,
        load: Callable[[Any, Mapping[str, Any], bool], Unmatched],
    ) -> Unmatched:
        """As `load_state_dict`, where the function `load` writes."""
        hooked_ones = _with_hooks(modules)
        if hooked_ones:
            state_dict = dict(state_dict)
        for module, start in hooked_ones:
            module._hooks.run_state(
                "before load", module, state_dict, start, {}, strict, [], [], []
            )
        found = load(self, state_dict, strict)
        for module, _ in reversed(hooked_ones):
            module._hooks.run_state("after load", module, found)
        return found

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Train all parameters, or none; gives this module."""
        for tensor in self.parameters():
            tensor.requires_grad = wanted
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients; without `set_to_none` those that are there become zeros."""
        for tensor in self.parameters():
            if set_to_none:
                tensor.grad = None
            elif tensor.grad is not None:
                set_gradient(tensor, tensor.grad.zeros_like())

    def to(
        self, device: Any = None, dtype: DType | str | None = None, non_blocking: bool = False
    ) -> Self:
        """Move all tensors to `device`, and floats to `dtype`; gives this module.

        A dtype alone may stand first, or a tensor that has both. Optimizers hold the same tensors
        as before. `non_blocking` is taken and does nothing: lazy values wait for no copy.

        >>> nn.Linear(2, 2).to(dtypes.float16).weight.dtype.name
        'float16'
        """
        if isinstance(device, DType):
            device, dtype = None, device
        elif isinstance(device, Tensor):
            device, dtype = device.device, device.dtype
        wanted = None if dtype is None else as_dtype(dtype)
        target = None if device is None else canonical(device)
        for _, tensor, _, _, _ in list(walk(self)):
            is_pair = isinstance(tensor, Paired)
            if is_pair:
                tensor = tensor.pair
            if not isinstance(tensor, Tensor):
                continue
            kind = wanted if wanted and tensor.dtype.is_float and not is_pair else tensor.dtype
            if tensor.dtype is kind and (target is None or device_of(tensor) == target):
                continue
            moved = tensor.detach() if device is None else tensor.detach().to(device)
            moved = moved.cast(kind)
            if moved.dtype is not tensor.dtype or moved.device != tensor.device:
                tensor.replace(moved.clone())
                tensor.grad = None
        return self

    def cpu(self) -> Self:
        """All tensors on the CPU; gives this module."""
        return self.to("CPU")

    def cuda(self, device: int | str | None = None) -> Self:
        """All tensors on an Nvidia GPU; gives this module."""
        return self.to(f"CUDA:{device}" if isinstance(device, int) and device else device or "CUDA")

    def double(self) -> Self:
        """Floats as float64; gives this module."""
        return self.to(dtype="float64")

    def half(self) -> Self:
        """Floats as float16; gives this module."""
        return self.to(dtype="float16")

    def bfloat16(self) -> Self:
        """Floats as bfloat16; gives this module."""
        return self.to(dtype="bfloat16")

    def float(self) -> Self:
        """Floats as float32; gives this module."""
        return self.to(dtype="float32")

    # print

    def extra_repr(self) -> str:
        """Text in brackets behind the class: the arguments that are attributes too."""
        return ", ".join(_arguments(self, type(self)))

    def __repr__(self) -> str:
        lines = [f"({name}): {_indented(repr(child))}" for name, child in shown(self)]
        head = f"{type(self).__name__}({self.extra_repr()}"
        return head + "".join(f"\n  {line}" for line in lines) + ("\n)" if lines else ")")


def _with_hooks(modules: Sequence[tuple[str, Any]]) -> list[tuple[Any, str]]:
    """The modules that have hooks, each with what its names begin with."""
    return [
        (module, f"{name}." if name else "")
        for name, module in modules
        if module._hooks is not None
    ]


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def shown(item: object) -> Iterator[tuple[str, Any]]:
    """The parts of `item` that are modules, or plain objects and lists that hold tensors."""
    for name, child in children_of(item):
        if isinstance(child, Module) or (
            not isinstance(child, Tensor)
            and any(isinstance(item, (Tensor, Module)) for _, item, _, _, _ in walk(child))
        ):
            yield str(name), child


def arguments_of(module: Any, kind: type) -> str:
    """Text in the brackets of a layer of the class `kind`, or of one below it."""
    return ", ".join(_arguments(module, kind))


def _arguments(module: Any, kind: type) -> Iterator[str]:
    """`name=value` for each argument of the constructor of `kind` that the module keeps."""
    try:
        names = inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return
    for name in names:
        value = getattr(module, name, None)
        if name == "bias" and hasattr(module, name) and not callable(value):
            yield f"bias={value is not None and value is not False}"
        elif isinstance(value, (bool, int, float, str)) or (
            isinstance(value, tuple) and all(isinstance(each, (int, float)) for each in value)
        ):
            yield f"{name}={value!r}"
