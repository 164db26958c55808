"""Derivatives of functions of tensors, along one direction: forward and in reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from tilegrad.base.errors import DTypeError, ShapeError, article
from tilegrad.func.argument_trees import flatten, same_tree
from tilegrad.func.transformed_calls import (
    Argnums,
    Call,
    Function,
    check_float,
    check_function,
    chosen,
    named,
    tensor_of,
    wanted,
)
from tilegrad.grad.backward import pullback
from tilegrad.grad.forward import pushforward
from tilegrad.grad.regions import moved
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.size_arguments import merge, show_shape
from tilegrad.tensor.storage.graphs import graphs
from tilegrad.tensor.tensor import Tensor

__all__ = ["grad", "grad_and_value", "jvp", "vjp"]

Given = TypeVar("Given")
Rest = ParamSpec("Rest")


def jvp(
    func: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """Directional derivative of a function, in forward mode, at about the cost of two calls,
    whatever the number of outputs.

    `primals` and `tangents` are tuples of tensors, or of tuples, lists and dicts of tensors, of
    equal shapes and float dtypes; the derivative has the structure, shapes and dtypes of the
    output. With `has_aux`, `func` gives (output, aux), and so a third value is given: aux.

    Args:
        func: a function of tensors.
        primals: its arguments, a tuple of float tensors, or of tuples, lists and dicts of them, of
            any shapes.
        tangents: the direction, of the same structure, shapes and dtypes.
        has_aux: `func` gives (output, aux).

    Returns (output, derivative), the derivative in the structure, shapes and dtypes of the output;
    with `has_aux` also aux.

    Raises DTypeError for what is no float tensor, ShapeError if a tangent has another shape or
    structure than its primal, TransformError if `func` assigns to its argument.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import jvp
    >>> y, dy = jvp(lambda x: x * x, (Tensor([2.0, 3.0]),), (Tensor([1.0, 0.0]),))
    >>> y.tolist(), dy.tolist()
    ([4.0, 9.0], [4.0, 0.0])
    """
    check_function("jvp", func)
    given, directions = _as_tuple("jvp", "primals", primals), _as_tuple("jvp", "tangents", tangents)
    if not same_tree(given, directions):
        raise ShapeError(
            f"jvp: {len(given)} primals and {len(directions)} tangents do not match",
            rule="the tangents have the structure of the primals",
        )
    leaves, rebuild = flatten(given)
    arguments = [check_float("jvp", leaf, f"primal {i}") for i, leaf in enumerate(leaves)]
    seeds = [
        wanted("jvp", f"tangent {i}", leaf, argument)
        for i, (leaf, argument) in enumerate(zip(flatten(directions)[0], arguments))
    ]
    call = Call("jvp", func, arguments, lambda x: (rebuild(x), {}), has_aux=has_aux)
    whole = {own: _whole(seed, own.shape) for own, seed in zip(call.leaves, seeds)}
    found = pushforward([each.uop for each in call.outputs], whole, graphs)
    variables = call.variables
    for leaf in flatten(directions)[0]:
        variables = merge(variables, leaf._variables) if isinstance(leaf, Tensor) else variables
    tangents = []
    for tensor, node in zip(call.outputs, found):
        if node is None:
            tangents.append(tensor.zeros_like())
        else:
            tangents.append(tensor_of(moved([node], call.back)[0], tensor, variables, None))
    result = call.all_given(), call.rebuild(tangents)
    return (*result, call.aux) if has_aux else result


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Value of a function, and a function that computes its gradients (reverse mode).

    Primals are float tensors, or tuples, lists and dicts of them; cotangents have the structure,
    shapes and dtypes of the output. `pull` may be called often: nothing of `func` runs again. With
    `has_aux`, `func` gives (output, aux), and (output, pull, aux) is given.

    Args:
        func: a function of tensors.
        primals: its arguments, float tensors, or tuples, lists and dicts of them, of any shapes.
        has_aux: `func` gives (output, aux).

    Returns (output, pull), with `has_aux` also aux. `pull(cotangents)` takes the gradient of some
    loss with respect to the output, in its structure, shapes and dtypes, and gives a tuple of the
    gradients of the primals.

    Raises DTypeError for what is no float tensor, TransformError if `func` assigns to its
    argument; `pull` raises ShapeError for cotangents of another shape or structure.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import vjp
    >>> y, pull = vjp(lambda x: x.sin(), Tensor([0.0, 0.0]))
    >>> pull(Tensor([1.0, 2.0]))[0].tolist()
    [1.0, 2.0]
    """
    check_function("vjp", func)
    leaves, rebuild = flatten(tuple(primals))
    arguments = [check_float("vjp", leaf, f"primal {i}") for i, leaf in enumerate(leaves)]
    call = Call("vjp", func, arguments, lambda x: (rebuild(x), {}), has_aux=has_aux)
    output = call.all_given()

    def pull(cotangents: Any) -> Any:
        """The gradients of the primals."""
        if not same_tree(output, cotangents):
            raise ShapeError(
                "vjp: the cotangents have another structure than the output",
                rule="a tensor for each tensor of the output, in the same tuples, lists and dicts",
            )
        given = flatten(cotangents)[0]
        seeds = [
            wanted("vjp", f"cotangent {i}", leaf, like)
            for i, (leaf, like) in enumerate(zip(given, call.outputs))
        ]
        variables = call.variables
        for leaf in given:
            variables = merge(variables, leaf._variables) if isinstance(leaf, Tensor) else variables
        found = _pulled(call, call.outputs, seeds)
        return rebuild(
            [
                argument.zeros_like()
                if node is None
                else tensor_of(node, argument, variables, None)
                for argument, node in zip(arguments, found)
            ]
        )

    return (output, pull, call.aux) if has_aux else (output, pull)


if TYPE_CHECKING:

    @overload
    def grad_and_value(
        func: Callable[Concatenate[Given, Rest], Tensor],
        argnums: Literal[0] = 0,
        has_aux: Literal[False] = False,
    ) -> Callable[Concatenate[Given, Rest], tuple[Given, Tensor]]: ...

    @overload
    def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function: ...


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """Function that computes gradient and value of `func`, which gives one number.

    As `grad`; with `has_aux` the value is (value, aux).

    Args:
        func: a function of tensors that gives a float number.
        argnums: position of the argument, or a tuple of positions.
        has_aux: `func` gives (loss, aux).

    Returns a function that gives (gradient, value), the gradient of the shape and dtype of the
    argument; with `has_aux` the value is (value, aux).

    Raises DTypeError for what is no function; the function raises DTypeError for an argument that
    is no float tensor, ShapeError if `func` gives more than one number.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import grad_and_value
    >>> slope, value = grad_and_value(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    >>> slope.tolist(), value.item()
    ([2.0, 4.0], 5.0)
    """
    check_function("grad", func)

    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        arguments, rebuild, build = chosen("grad", argnums, args, kwargs)
        call = Call("grad", func, arguments, build, has_aux=has_aux)
        if len(call.outputs) != 1 or call.outputs[0].shape != ():
            shapes = ", ".join(show_shape(each.shape) for each in call.outputs)
            raise ShapeError(
                f"grad: a loss is one number, the function gave {shapes}",
                remedy="sum() or mean() it, or ask for all derivatives with jacrev",
            )
        (loss,) = call.outputs
        check_float("grad", loss, "the loss")
        found = _pulled(call, [loss], [UOp.const(loss.dtype, 1)])
        gradient = rebuild(
            [
                argument.zeros_like()
                if node is None
                else tensor_of(node, argument, call.variables, None)
                for argument, node in zip(arguments, found)
            ]
        )
        value = call.all_given()
        return gradient, (value, call.aux) if has_aux else value

    return named(gradient_and_value, func)


if TYPE_CHECKING:

    @overload
    def grad(
        func: Callable[Concatenate[Given, Rest], Tensor],
        argnums: Literal[0] = 0,
        has_aux: Literal[False] = False,
    ) -> Callable[Concatenate[Given, Rest], Given]: ...

    @overload
    def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function: ...


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """Function that computes the gradient of `func`, which gives one number.

    The argument is a float tensor, or tuples, lists and dicts of them; the gradient has its
    structure. Other arguments, and those by keyword, are not looked at. With `has_aux`, `func`
    gives (loss, aux), and (gradient, aux) is given.

    The function raises DTypeError for an argument that is no float tensor, ShapeError if `func`
    gives more than one number, TransformError if `func` assigns to its argument.

    Args:
        func: a function of tensors that gives a float number.
        argnums: position of the argument, a float tensor or tuples, lists and dicts of them, or a
            tuple of positions.
        has_aux: `func` gives (loss, aux).

    Returns a function that gives the gradient in the structure, shapes and dtypes of the argument,
    a tuple for several; with `has_aux` (gradient, aux).

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import grad
    >>> grad(grad(lambda x: x**3))(Tensor(2.0)).item()
    12.0
    """
    check_function("grad", func)
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return named(gradient, func)


def _as_tuple(name: str, what: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise DTypeError(
            f"{name}: the {what} are {article(type(value).__name__)}",
            rule="a tuple, one for each argument",
            remedy=f"{name}(f, (x,), (t,))",
        )
    return tuple(value)


def _whole(seed: UOp, shape: tuple[Any, ...]) -> UOp:
    if seed.shape == shape:
        return seed
    return UOp(Ops.RESHAPE, seed.dtype, (seed,), shape)


def _pulled(call: Call, outputs: Sequence[Tensor], seeds: Sequence[UOp]) -> list[UOp | None]:
    """The gradients of a call's arguments."""
    nodes = []
    used = []
    for tensor, seed in zip(outputs, seeds):
        # Integers beside floats, as counts are, pass nothing down.
        if tensor.dtype.is_float:
            nodes.append(tensor.uop)
            used.append(seed)
    found = pullback(nodes, used, call.leaves, graphs)
    fresh = iter(moved([node for node in found if node is not None], call.back))
    return [None if node is None else next(fresh) for node in found]
