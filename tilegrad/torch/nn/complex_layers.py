"""Layers whose parameters are complex numbers, and first values of complex tensors.

A layer is made twice with real parameters: the second one's are the imaginary parts. Where both are
equal, nothing was drawn, and the parameter is real: the ones of a norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.torch.complex import Complex, as_complex
from tilegrad.torch.complex_dtypes import ComplexDType
from tilegrad.torch.nn.parameter import Parameter, is_parameter
from tilegrad.torch.thread_modes import no_grad

__all__ = ["complex_kind", "drawn_by_component", "in_complex", "in_kind", "made_complex"]


def complex_kind(options: dict[str, Any]) -> ComplexDType | None:
    """The complex dtype among the options of a layer."""
    kind = options.get("dtype")
    return kind if isinstance(kind, ComplexDType) else None


def made_complex(
    make: Callable[..., Any], layer: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """Make a layer, whose `dtype` is complex."""
    kind = options["dtype"]
    own = next(each for each in type(layer).__mro__ if each.__module__ == "tilegrad.torch.nn")
    real = {**options, "dtype": kind.component}
    make(layer, *args, **real)
    imag = dict(own(*args, **real).named_parameters())
    with no_grad():
        for name, tensor in list(layer.named_parameters()):
            other = imag[name]
            if bool((tensor == other).all().item()):
                other = other.zeros_like()
            made = Complex(tensor.detach().stack(other.detach(), dim=-1))
            _put(layer, name, Parameter(made, tensor.requires_grad))


def _put(module: Any, name: str, tensor: Any) -> None:
    *above, last = name.split(".")
    for each in above:
        module = getattr(module, each)
    if is_parameter(tensor):
        # The former tensor is one of another class.
        delattr(module, last)
    setattr(module, last, tensor)


def in_complex(module: Any, kind: ComplexDType) -> None:
    """Floats and complex numbers of a module in a complex dtype: of floats these are new parameters
    and buffers, so an optimizer is to be made afterwards.
    """
    with no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if isinstance(tensor, Complex):
                tensor.data = tensor.detach().to(kind)
            elif tensor.dtype.is_float:
                made = as_complex(tensor.detach()).to(kind)
                wants = tensor.requires_grad
                _put(module, name, Parameter(made, wants) if is_parameter(tensor) else made)


def in_kind(module: Any, kind: DType) -> None:
    """Complex numbers of a module in a float dtype: their real parts."""
    with no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if isinstance(tensor, Complex):
                made: Any = tensor.detach().real.to(kind).clone()
                wants = tensor.requires_grad
                _put(module, name, Parameter(made, wants) if is_parameter(tensor) else made)


# First values that are drawn for each part, and by what each part is scaled.
_DRAWS = {
    "kaiming_normal_": 0.5**0.5, "kaiming_uniform_": 1.0, "normal_": 0.5**0.5, "uniform_": 1.0,
    "xavier_normal_": 0.5**0.5, "xavier_uniform_": 1.0,
}  # fmt: skip


def drawn_by_component(
    name: str, write: Callable[..., Any], tensor: Complex, args: Any, options: Any
) -> Complex:
    """Write first values to complex numbers: to both parts, or a number.

    Raises NotImplementedError for what PyTorch has for real tensors alone.
    """
    if name in ("constant_", "eye_", "ones_", "zeros_", "dirac_"):
        if name == "constant_":
            value = complex(*args, **options) if not options else complex(options["val"])
            return tensor.fill_(value)
        component = tensor.real.detach().clone()
        write(component, *args, **options)
        return tensor.copy_(component)
    if name not in _DRAWS:
        raise NotImplementedError(f"nn.init.{name}: not for complex numbers")
    drawn = []
    for each in (tensor.real, tensor.imag):
        component = each.detach().clone()
        drawn.append(write(component, *args, **options))
    made = drawn[0].stack(drawn[1], dim=-1)
    mean = 0.0
    if name == "normal_":
        mean = options.get("mean", args[0] if args else 0.0)
    scale = _DRAWS[name]
    if not math.isclose(scale, 1.0):
        made = (made - mean) * scale + mean
    tensor.pair.copy_(made)
    return tensor
