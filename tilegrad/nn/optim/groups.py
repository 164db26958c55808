"""Groups of parameters with options of their own, and options that are memory."""

from __future__ import annotations

from typing import Any, TypedDict

from tilegrad.tensor.results.printing import values_of
from tilegrad.tensor.storage import writes
from tilegrad.tensor.tensor import Tensor

__all__ = ["Common", "ParamGroup", "as_memory", "option_text", "without_name"]


class Common(TypedDict, total=False):
    """Keywords of every optimizer. `maximize` moves along the gradients instead of against them.
    The others choose how PyTorch, or tinygrad, computes a step, which here is one schedule anyway:
    they are taken and do nothing.
    """

    maximize: bool
    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool


class ParamGroup(dict[str, Any]):
    """Parameters with options of their own: `params`, `lr`, and what the optimizer takes.

    `lr` is a tensor of one element; to assign a number is to write it there. So is the momentum, or
    the first of the betas, once a scheduler moves it.

    Shape: `lr` is a float32 tensor of shape (1,).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> group = nn.optim.SGD([w], lr=0.5).param_groups[0]
    >>> group["lr"] = 0.25
    >>> group["lr"].tolist()
    [0.25]
    """

    def __setitem__(self, key: str, value: Any) -> None:
        current = self.get(key)
        if isinstance(current, tuple) and isinstance(value, (tuple, list)):
            value = tuple(_written_to(old, new) for old, new in zip(current, value))
        super().__setitem__(key, _written_to(current, value))

    def numbers(self) -> dict[str, Any]:
        """The options, what is memory as numbers; to ask waits for the device."""
        return {name: _as_numbers(value) for name, value in self.items() if name != "params"}


def _written_to(current: Any, value: Any) -> Any:
    """The value from now on: where the current one is memory, the same memory with the value
    written to it.
    """
    if not isinstance(current, Tensor) or value is current:
        return value
    if isinstance(value, Tensor):
        new = value
    else:
        new = Tensor([value], dtype=current.dtype, device=current.device, requires_grad=False)
        if writes.can_replace(current, new):
            return current.replace(new)
    current.assign(new.detach().reshape(1).cast(current.dtype).to(current.device)).realize()
    return current


def _as_numbers(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_numbers, value))
    return float(value.item()) if isinstance(value, Tensor) else value


def as_memory(value: float | Tensor, like: Tensor) -> Tensor:
    """A number as a tensor of one element in memory; what is one stays itself."""
    if isinstance(value, Tensor):
        return value
    return Tensor.full_like(like, value, requires_grad=False).contiguous().realize()


def without_name(given: Any) -> Any:
    is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    return given[1] if is_pair else given


def option_text(option: Any) -> str:
    """An option as text; of a tensor its number, if it is known."""
    if not isinstance(option, Tensor):
        return repr(option)
    values = values_of(option)
    if values is None:
        return "(pending)"
    return repr(float(f"{values.reshape(-1)[0]:.6g}"))
