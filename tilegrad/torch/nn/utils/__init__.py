"""`torch.nn.utils`: what is done to all gradients or parameters at once, and to one weight."""

from __future__ import annotations

from typing import Any

from tilegrad.nn.utils import clip_grad_norm_ as _clip_grad_norm_
from tilegrad.nn.utils import clip_grad_value_ as _clip_grad_value_
from tilegrad.nn.utils import clip_grads_with_norm_ as _clip_grads_with_norm_
from tilegrad.nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval, reparametrized
from tilegrad.nn.utils import get_total_norm as _get_total_norm
from tilegrad.nn.utils import parameters_to_vector as _parameters_to_vector
from tilegrad.nn.utils import vector_to_parameters as _vector_to_parameters
from tilegrad.nn.utils.fusion import fused_weights
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.nn import init
from tilegrad.torch.nn.parameter import marked
from tilegrad.torch.nn.utils import parametrizations, parametrize, prune, rnn
from tilegrad.torch.nn.utils.marking import marking
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip


weight_norm = marking(reparametrized.weight_norm)
spectral_norm = marking(reparametrized.spectral_norm)
remove_weight_norm = marking(reparametrized.remove_weight_norm)
remove_spectral_norm = marking(reparametrized.remove_spectral_norm)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their norm, taken together, is at most `max_norm`; gives the norm
    that they had.

    Raises RuntimeError for a norm that is no finite number, with `error_if_nonfinite`.
    """
    norm: Tensor = as_ours(_clip_grad_norm_(parameters, float(max_norm), float(norm_type)))
    if error_if_nonfinite and not bool(norm.isfinite().item()):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of all gradients is {norm.item()}; "
            "error_if_nonfinite=False scales them by it nevertheless"
        )
    return norm


clip_grad_norm = clip_grad_norm_


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Cut each element of all gradients to at most `clip_value` in magnitude."""
    _clip_grad_value_(parameters, float(clip_value))


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale all gradients, whose norm is `total_norm`, so that it is at most `max_norm`."""
    _clip_grads_with_norm_(parameters, float(max_norm), total_norm)


def get_total_norm(tensors: Any, norm_type: float = 2.0, *args: Any, **options: Any) -> Tensor:
    """The norm of all tensors taken together."""
    found: Tensor = as_ours(_get_total_norm(tensors, norm_type))
    return found


def parameters_to_vector(parameters: Any) -> Tensor:
    """All parameters as one vector."""
    found: Tensor = as_ours(_parameters_to_vector(parameters))
    return found


def vector_to_parameters(vec: Tensor, parameters: Any) -> None:
    """Write the slices of a vector to parameters."""
    with thread_modes.no_grad():
        _vector_to_parameters(vec, parameters)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """The weight and the bias of a convolution and the normalisation behind it as one layer."""
    norm = (bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    weight, bias = fused_weights(conv_w, conv_b, *norm, 1 if transpose else 0)
    return marked(weight.detach(), True), marked(bias.detach(), True)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Tensor, Tensor]:
    """The weight and the bias of a linear layer and the normalisation behind it as one layer."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A layer as usual: its weights are computed when they are first read, so those that a program
    replaces before cost nothing.
    """
    return module_cls(*args, **kwargs)


# PyTorch's files of the same names.
_FILES = ("clip_grad", "convert_parameters", "fusion", "spectral_norm", "weight_norm")
also_known(__name__, _FILES)
also_known(__name__, ("init",), init)

refuse_others(__name__)
