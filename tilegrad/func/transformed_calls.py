"""One call of a function that is to be transformed: on leaves that stand for its arguments.

A leaf is a node of its own, so that the graph which the function builds tells what depends on which
argument, even if two arguments are one tensor, or the function knows the tensor by other ways too.
Afterwards the arguments themselves are put in the place of the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError, TransformError, article
from tilegrad.engine.realize.realize import realized
from tilegrad.func.argument_trees import flatten
from tilegrad.grad.regions import leaf, moved
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import Core, describe, live
from tilegrad.tensor.handle.size_arguments import Variables, merge, same_shape, show_shape
from tilegrad.tensor.handle.tracing import transforming
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Argnums", "Call", "Function", "OuterValues", "check_float", "check_function", "chosen",
    "counted", "named", "outputs_of", "tensor_of", "wanted",
]  # fmt: skip

Function = Callable[..., Any]
Argnums = int | Sequence[int]
Build = Callable[[Sequence[Tensor]], tuple[Sequence[Any], dict[str, Any]]]


def tensor_of(node: UOp, like: Tensor, variables: Variables, requires_grad: bool | None) -> Tensor:
    """A tensor around `node` on the device of `like`."""
    return like._of(node, like.device, variables, requires_grad if node.dtype.is_float else None)


def check_function(name: str, function: object) -> None:
    """Raise DTypeError unless `function` can be called."""
    if not callable(function):
        raise DTypeError(
            f"{name}: {article(type(function).__name__)} is no function",
            remedy=f"give the function itself: {name}(f)",
        )


def check_float(name: str, tensor: object, what: str) -> Tensor:
    """`tensor`, if it has derivatives.

    Raises DTypeError otherwise.
    """
    if not isinstance(tensor, Tensor):
        raise DTypeError(
            f"{name}: {what} is {article(type(tensor).__name__)}, not a tensor",
            remedy="make it one: Tensor(value)",
        )
    if not tensor.dtype.is_float:
        raise DTypeError(
            f"{name}: {what} is {tensor.dtype.name}, which has no derivatives",
            tensor=describe(tensor.uop),
            remedy="cast it to a float dtype, or let the function know it by another way",
        )
    return tensor


def outputs_of(name: str, value: Any) -> list[Tensor]:
    """The tensors that a function gave.

    Raises DTypeError if it gave anything else.
    """
    leaves, _ = flatten(value)
    for output in leaves:
        if not isinstance(output, Tensor):
            raise DTypeError(
                f"{name}: the function gave {article(type(output).__name__)}",
                rule="a tensor, or tuples, lists and dicts of tensors",
            )
    return leaves


def counted(size: Any) -> UOp:
    """The vector 0, 1, ... up to `size`, of int32."""
    return Tensor(0)._iota(size).uop


class OuterValues:
    """Values that all living tensors had before a function ran: it may assign to them."""

    def __init__(self) -> None:
        self._before: list[tuple[Core, UOp]] = [(tensor, tensor.uop) for tensor in live()]

    def nodes(self) -> set[UOp]:
        return {node for _, node in self._before}

    def close(self, back: Mapping[UOp, UOp]) -> None:
        """Compute the tensors that the function assigned to, as running statistics, from the values
        that its leaves stand for.
        """
        for tensor, _ in self.changed():
            stored = realized(tensor.uop)
            tensor.uop = tensor.uop.substitute(back) if stored is None else stored

    def changed(self) -> list[tuple[Core, UOp]]:
        """Tensors that are another graph by now, and what they were."""
        return [(tensor, node) for tensor, node in self._before if tensor.uop is not node]


class Call:
    """The call of `function` on leaves for the tensors `arguments`, which are what it is
    differentiated by; `build` makes of leaves what it is called with.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Tensor],
        build: Callable[[Sequence[Tensor]], tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        has_aux: bool = False,
    ):
        self.name = name
        self.leaves = [leaf(argument.uop) for argument in arguments]
        self.back = {own: each.uop for own, each in zip(self.leaves, arguments)}
        inner = [
            tensor_of(node, argument, argument._variables, argument._requires_grad)
            for node, argument in zip(self.leaves, arguments)
        ]
        outer = OuterValues()
        positional, named = build(inner)
        with transforming(self.leaves):
            value = function(*positional, **named)
        self.aux: Any = None
        if has_aux:
            if not isinstance(value, tuple) or len(value) != 2:
                raise DTypeError(
                    f"{name}: with has_aux the function gives (output, aux), "
                    f"not {article(type(value).__name__)}"
                )
            value, aux = value
            leaves, rebuild = flatten(aux)
            self.aux = rebuild([self.given(x) if isinstance(x, Tensor) else x for x in leaves])
        for tensor, node in zip(inner, self.leaves):
            if tensor.uop is not node:
                raise TransformError(
                    f"{name}: the function assigns to its argument",
                    argument=show_shape(tensor.shape),
                    remedy="assign to a copy, x.clone(), and return it",
                )
        outer.close(self.back)
        self.outputs = outputs_of(name, value)
        _, self.rebuild = flatten(value)
        self.variables: Variables = {}
        for each in (*arguments, *self.outputs):
            self.variables = merge(self.variables, each._variables)

    def given(self, tensor: Tensor, node: UOp | None = None) -> Tensor:
        """`node`, by default the value of `tensor`, with the arguments in place of the leaves, as a
        tensor like `tensor`.
        """
        (found,) = moved([tensor.uop if node is None else node], self.back)
        return tensor_of(found, tensor, tensor._variables, tensor._requires_grad)

    def all_given(self) -> Any:
        """Results of the function for its arguments."""
        nodes = moved([tensor.uop for tensor in self.outputs], self.back)
        return self.rebuild(
            [
                tensor_of(node, tensor, tensor._variables, tensor._requires_grad)
                for node, tensor in zip(nodes, self.outputs)
            ]
        )


def wanted(name: str, what: str, given: Any, like: Tensor) -> UOp:
    """The node of `given`, which is to have the shape and dtype of `like`; a number fits any shape.

    Raises DTypeError or ShapeError.
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = like.full_like(given)
    if not isinstance(given, Tensor):
        raise DTypeError(f"{name}: {what} is {article(type(given).__name__)}, not a tensor")
    if not same_shape(given.shape, like.shape):
        raise ShapeError(
            f"{name}: {what} has shape {show_shape(given.shape)}, its value "
            f"{show_shape(like.shape)}",
            rule="one number for each number of the value",
        )
    if given.dtype is not like.dtype:
        raise DTypeError(
            f"{name}: {what} is {given.dtype.name}, its value {like.dtype.name}",
            remedy=f"cast it: .cast({like.dtype!r})",
        )
    return given.uop


def named(made: Function, func: Function) -> Function:
    """`made` under the name of `func`."""
    name = getattr(func, "__name__", type(func).__name__)
    made.__qualname__ = f"{made.__name__} of {name}"
    return made


def chosen(
    name: str, argnums: Argnums, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Tensor], Callable[[Sequence[Any]], Any], Build]:
    """The tensors of the arguments `argnums`, what makes their structure of others, and what makes
    of them the arguments of a call.
    """
    several = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    positions = []
    for number in several:
        if not -len(args) <= number < len(args):
            raise IndexBoundsError(
                f"{name}: there is no argument {number}, {len(args)} are given",
                rule="argnums counts the arguments that are not given by keyword",
            )
        positions.append(number % len(args))
    leaves, whole = flatten(tuple(args[position] for position in positions))
    arguments = [
        check_float(name, leaf, f"argument {positions[0]}" if len(positions) == 1 else f"part {i}")
        for i, leaf in enumerate(leaves)
    ]

    def rebuild(found: Sequence[Any]) -> Any:
        made = whole(found)
        return made[0] if isinstance(argnums, int) else made

    def build(inner: Sequence[Tensor]) -> tuple[Sequence[Any], dict[str, Any]]:
        positional = list(args)
        for position, value in zip(positions, whole(inner)):
            positional[position] = value
        return positional, kwargs

    return arguments, rebuild, build
