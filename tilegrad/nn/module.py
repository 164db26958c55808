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

A mode that was never set is `Tensor.training`, the switch of the running thread.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError
from tilegrad.nn.state import Unmatched, get_state_dict, load_state_dict
from tilegrad.nn.tree import parts_of, walk
from tilegrad.tensor.core import as_dtype
from tilegrad.tensor.sizes import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["Module", "Parameter", "has_modes", "summary"]

# Whether this thread's program sets modes by module: then nobody waits for `Tensor.training`.
_has_modes: contextvars.ContextVar[bool] = contextvars.ContextVar("tilegrad_modes", default=False)


def has_modes() -> bool:
    """Whether `Module.train` was called in this thread."""
    return _has_modes.get()


def Parameter(data: Any, requires_grad: bool = True) -> Tensor:
    """A tensor that is trained: `data` as a tensor of its own, of the same shape and dtype.

    >>> nn.Parameter(Tensor.zeros(3)).requires_grad
    True
    """
    tensor = data.detach().clone() if isinstance(data, Tensor) else Tensor(data)
    made = Tensor(tensor.uop, device=tensor.device)
    made.requires_grad = requires_grad
    return made


class Module:
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

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        # A subclass of a layer that gives a new `forward` means it to be what a call runs.
        if "forward" in cls.__dict__ and "__call__" not in cls.__dict__:
            cls.__call__ = Module.__call__  # type: ignore[method-assign]

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.forward(*args, **options)

    def forward(self, *args: Any, **options: Any) -> Any:
        """What a call computes."""
        if type(self).__call__ is Module.__call__:
            raise ConfigError(
                f"{type(self).__name__}: there is no forward to call",
                fix="define forward(self, ...), or __call__",
                line=here(),
            )
        return self(*args, **options)

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
        _has_modes.set(True)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module and of all below it; gives this module.

        >>> layer = nn.Dropout().train()
        >>> layer.training, layer.eval().training
        (True, False)
        """
        for module in self.modules():
            if isinstance(module, Module):
                module.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`: dropout keeps all, batch normalisation uses its running statistics."""
        return self.train(False)

    # what is below

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """This module and each `Module` below it, once, by name."""
        for name, item, _, _ in walk(self, prefix):
            if isinstance(item, Module):
                yield name, item

    def modules(self) -> Iterator[Any]:
        """This module and each `Module` below it, once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules that are attributes of this one."""
        for name, part in parts_of(self):
            if isinstance(part, Module):
                yield str(name), part

    def children(self) -> Iterator[Any]:
        """The modules that are attributes of this one."""
        for _, part in self.named_children():
            yield part

    def _tensors(self, prefix: str, wants_buffers: bool) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for name, item, holder, key in walk(self, prefix):
            if isinstance(item, Tensor) and id(item) not in seen:
                is_buffer = not item.dtype.is_float or (
                    isinstance(holder, Module)
                    and (key in holder.buffer_names or key in holder._own_buffers)
                )
                if is_buffer == wants_buffers:
                    seen.add(id(item))
                    yield name, item

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """The tensors that are trained, or may be, each once, by name."""
        return self._tensors(prefix, False)

    def parameters(self) -> Iterator[Tensor]:
        """The tensors that are trained, or may be, each once.

        >>> sum(p.numel() for p in nn.Linear(3, 2).parameters())
        8
        """
        for _, tensor in self.named_parameters():
            yield tensor

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """The tensors that are state and never trained, by name: running statistics, integers."""
        return self._tensors(prefix, True)

    def buffers(self) -> Iterator[Tensor]:
        """The tensors that are state and never trained."""
        for _, tensor in self.named_buffers():
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
        setattr(self, name, tensor)

    def add_module(self, name: str, module: Any) -> None:
        """Hold `module` as the attribute `name`."""
        setattr(self, name, module)

    def apply(self, function: Callable[[Any], Any]) -> Self:
        """Call `function` on every module below, then on this one; gives this module."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    # tensors

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """The tensors by name, as `nn.state.get_state_dict`."""
        return get_state_dict(self, prefix)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Write the tensors or arrays of `state_dict` into those of their names; see
        `nn.state.load_state_dict`.
        """
        return load_state_dict(self, state_dict, strict)

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Train all parameters, or none; gives this module."""
        for tensor in self.parameters():
            tensor.requires_grad = wanted
        return self

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for tensor in self.parameters():
            tensor.grad = None

    def to(self, device: Any = None, dtype: DType | str | None = None) -> Self:
        """Move all tensors to `device`, and floats to `dtype`; gives this module.

        A dtype alone may stand first. Optimizers hold the same tensors as before.

        >>> nn.Linear(2, 2).to(dtypes.float16).weight.dtype.name
        'float16'
        """
        if isinstance(device, DType):
            device, dtype = None, device
        wanted = None if dtype is None else as_dtype(dtype)
        for _, tensor, _, _ in list(walk(self)):
            if not isinstance(tensor, Tensor):
                continue
            moved = tensor.detach() if device is None else tensor.detach().to(device)
            if wanted is not None and tensor.dtype.is_float:
                moved = moved.cast(wanted)
            if moved.dtype is not tensor.dtype or moved.device != tensor.device:
                tensor.replace(moved.clone())
                tensor.grad = None
        return self

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
        """What stands in brackets behind the class: the arguments that are attributes too."""
        return ", ".join(_arguments(self))

    def __repr__(self) -> str:
        lines = [f"({name}): {_indented(repr(part))}" for name, part in _shown(self)]
        head = f"{type(self).__name__}({self.extra_repr()}"
        return head + "".join(f"\n  {line}" for line in lines) + ("\n)" if lines else ")")


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _shown(item: object) -> Iterator[tuple[str, Any]]:
    """The parts of `item` that are modules, or plain objects and lists that hold tensors."""
    for name, part in parts_of(item):
        if isinstance(part, Module) or (
            not isinstance(part, Tensor)
            and any(isinstance(found.item, (Tensor, Module)) for found in walk(part))
        ):
            yield str(name), part


def _arguments(module: Module) -> Iterator[str]:
    """`name=value` for each argument of the constructor that the module keeps."""
    try:
        names = inspect.signature(type(module)).parameters
    except (TypeError, ValueError):
        return
    for name in names:
        value = getattr(module, name, None)
        if name == "bias" and not callable(value):
            yield f"bias={value is not None and value is not False}"
        elif isinstance(value, (bool, int, float, str)) or (
            isinstance(value, tuple) and all(isinstance(part, (int, float)) for part in value)
        ):
            yield f"{name}={value!r}"


def summary(model: object) -> str:
    """The tree of `model`, any object: layers by name, their arguments, and how many parameters
    each holds; below it the sums.

    >>> print(nn.summary([nn.Linear(2, 3), Tensor.relu, nn.BatchNorm(3)]))
    list                                                             15
      0: Linear(in_features=2, out_features=3, bias=True)             9
      2: BatchNorm(num_features=3, eps=1e-05, momentum=0.1)           6
    15 parameters, 15 of them trained; 7 elements of state
    """
    rows = list(_rows("", model, 0))
    width = max(len(text) for text, _ in rows)
    digits = max(len(f"{count:,}") for _, count in rows)
    lines = [f"{text:<{width}}  {count:>{max(digits, 10)},}" for text, count in rows]
    whole, state, trained = _counts(model)
    lines.append(f"{whole:,} parameters, {trained:,} of them trained; {state:,} elements of state")
    return "\n".join(lines)


def _rows(name: str, item: Any, depth: int) -> Iterator[tuple[str, int]]:
    label = type(item).__name__
    if isinstance(item, Module) and (arguments := item.extra_repr()):
        label += f"({arguments})"
    head = f"{name}: {label}" if name else label
    yield "  " * depth + head, _counts(item)[0]
    for key, part in parts_of(item):
        if isinstance(part, Tensor) and not isinstance(item, Module):
            size = f"Tensor {show_shape(part.shape)}"
            yield "  " * (depth + 1) + f"{key}: {size}", _counts([part])[0]
    for key, part in _shown(item):
        yield from _rows(key, part, depth + 1)


def _counts(model: object) -> tuple[int, int, int]:
    """Elements of parameters, of state that is never trained, and of what is trained."""
    whole = state = trained = 0
    seen: set[int] = set()
    for _, item, holder, key in walk(model):
        if isinstance(item, Tensor) and id(item) not in seen:
            seen.add(id(item))
            size = int(item.numel())  # type: ignore[arg-type]
            if not item.dtype.is_float or (
                isinstance(holder, Module)
                and (key in holder.buffer_names or key in holder._own_buffers)
            ):
                state += size
            else:
                whole += size
                trained += size if item.requires_grad is not False else 0
    return whole, state, trained
