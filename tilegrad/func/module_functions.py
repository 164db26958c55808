"""Models as functions of their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilegrad.base.errors import DataError, DTypeError, ShapeError
from tilegrad.nn.state import get_state_dict
from tilegrad.tensor.handle.size_arguments import same_shape, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["functional_call", "stack_module_state"]


def functional_call(
    model: Callable[..., Any],
    weights: Mapping[str, Tensor],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Call a model with other weights: `model(*args, **kwargs)` with `weights` in place of its
    tensors of these names, which are those of `nn.state.get_state_dict`; tensors that are not named
    stay.

    `args` is a tuple, or one argument. Afterwards the model is as it was: what it assigned to a
    tensor that `weights` names, as running statistics, is gone.

    Args:
        model: a module, or what can be called and holds tensors.
        weights: tensors by name, of the shapes and dtypes of the model's.
        args: a tuple of arguments, or one argument.
        kwargs: arguments by name.

    Returns what the model returns.

    Raises DataError for a name that the model has not, ShapeError or DTypeError if a tensor does
    not fit the model's.

    >>> from tilegrad import Tensor, nn
    >>> from tilegrad.func import functional_call
    >>> weights = {"weight": Tensor([[2.0, 3.0]]), "bias": Tensor([1.0])}
    >>> functional_call(nn.Linear(2, 1), weights, Tensor([1.0, 1.0])).tolist()
    [6.0]
    """
    own = get_state_dict(model)
    _check_weights(weights, own)
    named = {id(own[name]): (own[name], given) for name, given in weights.items()}
    before = [
        (tensor, tensor.uop, tensor.device, tensor._variables, tensor._previous, tensor._is_shared,
         tensor._requires_grad, tensor._is_leaf)
        for tensor, _ in named.values()
    ]  # fmt: skip
    try:
        for tensor, given in named.values():
            tensor.replace(given)
            tensor._requires_grad, tensor._is_leaf = given._requires_grad, False
        positional = args if isinstance(args, (tuple, list)) else (args,)
        return model(*positional, **(kwargs or {}))
    finally:
        for tensor, node, device, variables, previous, is_shared, wants, is_leaf in before:
            tensor.uop, tensor.device, tensor._variables = node, device, variables
            tensor._previous, tensor._is_shared = previous, is_shared
            tensor._requires_grad, tensor._is_leaf = wants, is_leaf


def _check_weights(weights: Mapping[str, Any], own: Mapping[str, Tensor]) -> None:
    """Raise unless each of `weights` can stand for the tensor of its name."""
    for name, given in weights.items():
        if name not in own:
            raise DataError(
                f"functional_call: the model has no tensor {name!r}",
                names=", ".join(list(own)[:8]) + (", ..." if len(own) > 8 else ""),
            )
        if not isinstance(given, Tensor) or given.dtype is not own[name].dtype:
            kind = given.dtype.name if isinstance(given, Tensor) else type(given).__name__
            raise DTypeError(f"functional_call: {name!r} is {own[name].dtype.name}, not {kind}")
        if not same_shape(given.shape, own[name].shape):
            raise ShapeError(
                f"functional_call: {name!r} has shape {show_shape(own[name].shape)}, "
                f"not {show_shape(given.shape)}",
                remedy="map it with vmap if it is a stack of several",
            )


def stack_module_state(models: Sequence[object] | Iterable[object]) -> dict[str, Tensor]:
    """Tensors of equal models by name, each stacked along a new first axis: what
    `vmap(functional_call)` runs as one model of many.

    Args:
        models: models of equal structure.

    Returns a dict of tensors of shapes (models, ...), in the dtypes of the models.

    Raises DataError for no models, or if their names differ; ShapeError if shapes do.

    >>> from tilegrad import nn
    >>> from tilegrad.func import stack_module_state
    >>> stack_module_state([nn.Linear(2, 3), nn.Linear(2, 3)])["weight"].shape
    (2, 3, 2)
    """
    states = [get_state_dict(model) for model in models]
    if not states:
        raise DataError("stack_module_state: there is no model")
    for state in states:
        if state.keys() != states[0].keys():
            odd = sorted(state.keys() ^ states[0].keys())
            raise DataError(
                "stack_module_state: the models have different tensors", names=", ".join(odd[:8])
            )
    first, *rest = states
    return {name: tensor.stack(*[state[name] for state in rest]) for name, tensor in first.items()}
