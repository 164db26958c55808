"""Matrices of derivatives: Jacobians in forward and in reverse mode, and second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, overload

from tilegrad.base.errors import ShapeError
from tilegrad.func.transformed_calls import (
    Argnums,
    Call,
    Function,
    check_float,
    check_function,
    chosen,
    counted,
    named,
    tensor_of,
)
from tilegrad.grad.backward import pullback
from tilegrad.grad.batch import batched
from tilegrad.grad.forward import pushforward, stand_in
from tilegrad.grad.regions import moved
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.storage.graphs import graphs
from tilegrad.tensor.tensor import Tensor

__all__ = ["hessian", "jacfwd", "jacobian", "jacrev"]

Rest = ParamSpec("Rest")


class _Transform(Protocol):
    """The Jacobian of a tensor by one tensor is a tensor; others are what `func` makes them."""

    @overload
    def __call__(
        self,
        func: Callable[Concatenate[Tensor, Rest], Tensor],
        argnums: Literal[0] = 0,
        *,
        has_aux: Literal[False] = False,
    ) -> Callable[Concatenate[Tensor, Rest], Tensor]: ...

    @overload
    def __call__(
        self, func: Function, argnums: Argnums = 0, *, has_aux: bool = False
    ) -> Function: ...


def _typed(transform: _Transform) -> _Transform:
    """The function itself, of a type that knows both ways to call it."""
    return transform


@_typed
def jacrev(func: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Function that computes the Jacobian of `func` in reverse mode: all derivatives of each number
    of its output by each number of the argument.

    The Jacobian of an output of shape (m, n) by an argument of shape (k,) has shape (m, n, k). For
    an output of several tensors it has their structure, and in each position that of the argument,
    or a tuple for several `argnums`. The gradients of all outputs are one batch: `func` runs once,
    and the work is that of as many gradients as there are numbers in the output. Where the argument
    has fewer numbers, `jacfwd` is cheaper.

    The function raises as that of `grad` does, and ShapeError for a symbolic size.

    Args:
        func: a function of tensors.
        argnums: position of the argument, or a tuple of positions.
        has_aux: `func` gives (output, aux).

    Returns a function that gives the Jacobian, of shape (*output, *argument).

    Raises DTypeError for what is no function; the function raises as that of `grad` does, and
    ShapeError for a symbolic size.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import jacrev
    >>> jacrev(lambda x: x * x)(Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_function("jacrev", func)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        arguments, rebuild, build = chosen("jacrev", argnums, args, kwargs)
        call = Call("jacrev", func, arguments, build, has_aux=has_aux)
        found = []
        for tensor in call.outputs:
            check_float("jacrev", tensor, "the output")
            count = _count("jacrev", tensor)
            seed = stand_in(tensor.shape, tensor.dtype, tensor.device)
            rows = pullback([tensor.uop], [seed], call.leaves, graphs)
            many = _batch_of_units(tensor, seed, rows, count)
            fresh = iter(moved([row for row in many if row is not None], call.back))
            blocks = []
            for argument, row in zip(arguments, rows):
                shape = (*tensor.shape, *argument.shape)
                if row is None:
                    blocks.append(_zeros(argument, shape))
                else:
                    node = shaped(next(fresh), shape)
                    blocks.append(tensor_of(node, argument, call.variables, None))
            found.append(rebuild(blocks))
        result = call.rebuild(found)
        return (result, call.aux) if has_aux else result

    return named(jacobian_of, func)


@_typed
def jacfwd(func: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Function that computes the Jacobian of `func` in forward mode; see `jacrev`.

    The work is that of as many directional derivatives as there are numbers in the argument. Where
    the output has fewer numbers, `jacrev` is cheaper.

    Args:
        func: a function of tensors.
        argnums: position of the argument, or a tuple of positions.
        has_aux: `func` gives (output, aux).

    Returns a function that gives the Jacobian, of shape (*output, *argument).

    Raises DTypeError for what is no function; the function raises as that of `jacrev` does.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import jacfwd
    >>> jacfwd(lambda x: Tensor.stack(x.sum(), x.prod()))(Tensor([2.0, 3.0])).tolist()
    [[1.0, 1.0], [3.0, 2.0]]
    """
    check_function("jacfwd", func)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        arguments, rebuild, build = chosen("jacfwd", argnums, args, kwargs)
        call = Call("jacfwd", func, arguments, build, has_aux=has_aux)
        for tensor in call.outputs:
            check_float("jacfwd", tensor, "the output")
        nodes = [tensor.uop for tensor in call.outputs]
        columns: list[list[Tensor]] = []
        for argument, own in zip(arguments, call.leaves):
            count = _count("jacfwd", argument)
            seed = stand_in(argument.shape, argument.dtype, argument.device)
            moves = pushforward(nodes, {own: seed}, graphs)
            many = _batch_of_units(argument, seed, moves, count)
            fresh = iter(moved([move for move in many if move is not None], call.back))
            column = []
            for tensor, move in zip(call.outputs, moves):
                shape = (*tensor.shape, *argument.shape)
                if move is None:
                    column.append(_zeros(tensor, shape))
                    continue
                node = next(fresh)
                if count > 1:
                    order = (*range(1, len(node.shape)), 0)
                    node = UOp(Ops.PERMUTE, node.dtype, (node,), order)
                column.append(tensor_of(shaped(node, shape), tensor, call.variables, None))
            columns.append(column)
        found = [rebuild([column[at] for column in columns]) for at in range(len(nodes))]
        result = call.rebuild(found)
        return (result, call.aux) if has_aux else result

    return named(jacobian_of, func)


@_typed
def jacobian(func: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Function that computes the Jacobian of `func`: `jacrev`, which is right for every function;
    `jacfwd` is cheaper for few inputs and many outputs.

    Args:
        func: a function of tensors.
        argnums: position of the argument, or a tuple of positions.
        has_aux: `func` gives (output, aux).

    Returns a function that gives the Jacobian, of shape (*output, *argument).

    Raises DTypeError for what is no function; the function raises as that of `jacrev` does.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import jacobian
    >>> jacobian(lambda x, y: x * y, argnums=1)(Tensor([5.0]), Tensor([7.0])).tolist()
    [[5.0]]
    """
    return jacrev(func, argnums, has_aux=has_aux)


if TYPE_CHECKING:

    @overload
    def hessian(
        func: Callable[Concatenate[Tensor, Rest], Tensor], argnums: Literal[0] = 0
    ) -> Callable[Concatenate[Tensor, Rest], Tensor]: ...

    @overload
    def hessian(func: Function, argnums: Argnums = 0) -> Function: ...


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """Function that computes the second derivatives of `func`: forward mode over reverse mode.

    For one number of an argument of shape (n,) it has shape (n, n); for other outputs and several
    arguments it is structured as the Jacobian of a Jacobian. Raises as `jacrev` does.

    Args:
        func: a function of tensors.
        argnums: position of the argument, or a tuple of positions.

    Returns a function that gives the Hessian: of shape (n, n) for one number of an argument of
    shape (n,), else structured as the Jacobian of a Jacobian.

    Raises DTypeError for what is no function; the function raises as that of `jacrev` does.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import hessian
    >>> hessian(lambda x: x[0] * x[0] * x[1])(Tensor([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """
    check_function("hessian", func)
    return named(jacfwd(jacrev(func, argnums), argnums), func)


def _count(name: str, tensor: Tensor) -> int:
    count = prod(tensor.shape)
    if not isinstance(count, int):
        raise ShapeError(
            f"{name}: a matrix of derivatives needs sizes that are numbers, "
            f"not {show_shape(tensor.shape)}"
        )
    return count


def _zeros(like: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return Tensor.zeros(*shape, dtype=like.dtype, device=like.device)


def _batch_of_units(
    tensor: Tensor, seed: UOp, nodes: Sequence[UOp | None], count: int
) -> list[UOp | None]:
    """`nodes`, which depend on `seed`, for each of the `count` unit vectors as its value."""
    found = [node for node in nodes if node is not None]
    base = seed if seed.op is Ops.BUFFER else seed.src[0]
    units = Tensor.eye(count, dtype=tensor.dtype, device=tensor.device).uop
    many = batched(found, {base: units}, count, partial(counted, count))
    made = iter(zip(found, many))
    result: list[UOp | None] = []
    for node in nodes:
        if node is None:
            result.append(None)
            continue
        one, whole = next(made)
        if whole is None:
            shape = (count, *one.shape)
            whole = UOp(Ops.EXPAND, one.dtype, (shaped(one, (1, *one.shape)),), shape)
        result.append(whole)
    return result
