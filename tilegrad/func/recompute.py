"""`checkpoint`: gradients that compute a function again instead of keeping what it made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import TransformError
from tilegrad.func.argument_trees import flatten
from tilegrad.func.transformed_calls import OuterValues, check_function, outputs_of
from tilegrad.grad.regions import Region, leaf, moved, register
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.handle.tracing import transforming
from tilegrad.tensor.tensor import Tensor

__all__ = ["checkpoint"]


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function whose gradient computes it again from its arguments: its intermediate results
    need no memory between the forward and the backward pass (Chen et al. 2016, arXiv:1604.06174).

    Values and gradients are those of the plain call, also of tensors that the function knows by
    another way, as the weights of a layer. A chain of n such calls needs memory for its n results
    and for the intermediate results of one call; the work is one forward pass more. It is made
    for a forward and a backward pass in one schedule, that of a training step: a loss that is
    realized before `backward()` is computed with nothing kept, checkpoint or not.

    The tensors among the arguments may stand in tuples, lists and dicts, and so may those that
    `func` gives. Random numbers are the same ones the second time. The gradient of a tensor that
    was made inside is not to be had from outside.

    Args:
        func: a function of tensors.
        args: its arguments; tensors may stand in tuples, lists and dicts.
        kwargs: arguments by name.

    Returns what `func` returns, in its shapes and dtypes.

    Raises DTypeError if `func` gives what is no tensor, TransformError if it assigns to its
    argument.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import checkpoint
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: x.exp().log() * x, x).sum().backward().item()
    5.0
    >>> x.grad.tolist()
    [2.0, 4.0]
    """
    check_function("checkpoint", func)
    arguments, rebuild = flatten((args, kwargs))
    # One leaf for a tensor that is given twice: its gradient is one.
    own: dict[UOp, UOp] = {}
    for each in arguments:
        if isinstance(each, Tensor):
            own.setdefault(each.uop, leaf(each.uop))
    inner: list[Any] = [
        _standing_for(each, own[each.uop]) if isinstance(each, Tensor) else each
        for each in arguments
    ]
    outer = OuterValues()
    with transforming(list(own.values())):
        positional, named = rebuild(inner)
        value = func(*positional, **named)
    _check_unassigned(inner, arguments, own)
    outputs = outputs_of("checkpoint", value)
    nodes = _made_again([tensor.uop for tensor in outputs], own, outer)
    return flatten(value)[1](list(map(_standing_for, outputs, nodes)))


def _check_unassigned(inner: list[Any], arguments: list[Any], own: dict[UOp, UOp]) -> None:
    """Raise TransformError if one of the tensors `inner` is not the leaf of its argument."""
    for one, each in zip(inner, arguments):
        if isinstance(each, Tensor) and one.uop is not own[each.uop]:
            raise TransformError(
                "checkpoint: the function assigns to its argument",
                argument=show_shape(each.shape),
                remedy="assign to a copy, x.clone(), and return it",
            )


def _made_again(roots: list[UOp], own: dict[UOp, UOp], outer: OuterValues) -> list[UOp]:
    """`roots`, computed of the arguments in place of their leaves, `own`, and registered as a
    region that the backward pass computes again.
    """
    back = {node: before for before, node in own.items()}
    outer.close(back)
    # Who watches the gradient of an output is told of it by the copy that is computed again.
    nodes = moved(roots, back, unwatched=roots)
    region = Region(tuple(back), tuple(own), _outer(roots, outer.nodes(), back), tuple(roots))
    register(region, nodes)
    return nodes


def _standing_for(tensor: Tensor, node: UOp) -> Tensor:
    """A tensor as `tensor`, whose value is `node`."""
    return tensor._of(node, tensor.device, tensor._variables, tensor._requires_grad)


def _outer(roots: list[UOp], known: set[UOp], leaves: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """Values that the function used besides its arguments: those of tensors that somebody held."""

    def is_outer(node: UOp) -> bool:
        return node in known and node not in leaves and not node.is_constant

    nodes = toposort(roots, stop=lambda node: node in leaves or is_outer(node))
    return tuple(node for node in nodes if node.dtype.is_float and is_outer(node))
