"""`vmap`: a function of one example becomes one of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError, TransformError
from tilegrad.func.argument_trees import flatten, map_pairs
from tilegrad.func.transformed_calls import OuterValues, check_function, counted, outputs_of
from tilegrad.grad.batch import batched
from tilegrad.grad.forward import stand_in
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import buffer_below
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, merge, same, show_shape
from tilegrad.tensor.handle.tracing import transforming, waits
from tilegrad.tensor.indexing.generator import draw, draws_of
from tilegrad.tensor.storage import memory
from tilegrad.tensor.tensor import Tensor

__all__ = ["vmap"]

_WAYS = ("different", "same", "error")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "different",
    *,
    in_axes: Any = None,
    out_axes: Any = None,
) -> Callable[..., Any]:
    """Function that maps `func` over an axis of its arguments, in one graph and without a loop.

    `func` runs once, on tensors that stand for one example: without the mapped axis, and without a
    value. Its result gets an axis of examples again.

    The function raises ShapeError if mapped sizes differ, nothing is mapped, or an op cannot be
    batched; IndexBoundsError for an axis that is not there; DTypeError if `func` gives what is no
    tensor; TransformError if `func` asks for values, or assigns what differs between examples to a
    tensor from outside.

    Args:
        in_dims: the mapped axis of each argument, one for all or a tuple of one for each, which may
            have the structure of the argument; None where all examples have the same. Numbers, and
            arguments by keyword, are not mapped. `in_axes` is another name for it.
        out_dims: where the axis of examples stands in the outputs, likewise, or None for outputs
            that are the same for all. `out_axes` is another name for it.
        randomness: what `func` draws is "different" for each example or the "same" for all; an
            "error" if there is any.
        func: a function of tensors without the mapped axis.
        in_axes, out_axes: other names of `in_dims` and `out_dims`.

    Returns a function that gives the outputs of `func`, each with the axis of examples.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import vmap
    >>> table = Tensor([[1, 2, 3], [4, 5, 6]])
    >>> vmap(lambda row, position: row[position])(table, Tensor([2, 0])).tolist()
    [3, 4]
    """
    check_function("vmap", func)
    into = in_dims if in_axes is None else in_axes
    out = out_dims if out_axes is None else out_axes
    if randomness not in _WAYS:
        raise TransformError(
            f"vmap: randomness is {randomness!r}", rule=f"one of {', '.join(map(repr, _WAYS))}"
        )

    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _call_for_all(func, into, out, randomness, args, kwargs)

    name = getattr(func, "__name__", type(func).__name__)
    mapped.__qualname__ = f"vmap of {name}"
    return mapped


def _call_for_all(
    func: Callable[..., Any],
    in_dims: Any,
    out_dims: Any,
    randomness: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`func` called once for one example, and what it gives for all of them."""
    leaves, rebuild = flatten(args)
    examples = _examples(leaves, _dims("in_dims", in_dims, args))
    size = _size(examples)
    one = _one_example(examples, size)
    outer = OuterValues()
    with transforming(list(one.wholes)), draws_of() as draws:
        inner = [one.tensors.get(position, leaf) for position, leaf in enumerate(leaves)]
        value = func(*rebuild(inner), **kwargs)
        _check_assigned(outer, one)
    outputs = outputs_of("vmap", value)
    roots = [tensor.uop for tensor in outputs]
    _check_draws(draws, randomness)
    drawn = _drawn_anew(roots, draws, size) if randomness == "different" else {}
    found = batched(roots, one.wholes | drawn, size, partial(counted, size))
    made = [
        _placed(tensor, node, size, axis, one.variables)
        for tensor, node, axis in zip(outputs, found, _dims("out_dims", out_dims, value))
    ]
    return flatten(value)[1](made)


def _dims(name: str, dims: Any, value: Any) -> list[Any]:
    """The axis for each part of `value`."""
    found = map_pairs(list(dims) if isinstance(dims, (list, tuple)) else dims, value)
    if isinstance(dims, (list, tuple)) and not isinstance(value, (list, tuple)):
        found = map_pairs(dims[0], value) if len(dims) == 1 else None
    if found is None:
        raise ShapeError(
            f"vmap: {name} {dims!r} does not fit what is mapped",
            rule="one axis for all, or one for each, in the same tuples, lists and dicts",
        )
    for axis in found:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
            raise DTypeError(f"vmap: {name} holds {axis!r}, which is no axis")
    return found


def _examples(leaves: Sequence[Any], dims: Sequence[Any]) -> dict[int, tuple[Tensor, int]]:
    """The tensors that are mapped, by their position, and the axis of each."""
    found: dict[int, tuple[Tensor, int]] = {}
    for position, (leaf, axis) in enumerate(zip(leaves, dims)):
        if axis is None or not isinstance(leaf, Tensor):
            continue
        if not -leaf.ndim <= axis < leaf.ndim:
            raise IndexBoundsError(
                f"vmap: argument {position} of shape {show_shape(leaf.shape)} has no axis {axis}",
                tensor=describe(leaf.uop),
                remedy="in_dims=None for what all examples share",
            )
        found[position] = leaf, axis % leaf.ndim
    return found


def _size(examples: dict[int, tuple[Tensor, int]]) -> Any:
    """How many examples there are."""
    if not examples:
        raise ShapeError(
            "vmap: nothing is mapped",
            rule="at least one argument is a tensor whose in_dims is an axis",
        )
    sizes = [(position, tensor.shape[axis]) for position, (tensor, axis) in examples.items()]
    first, size = sizes[0]
    for position, other in sizes[1:]:
        if not same(size, other):
            raise ShapeError(
                f"vmap: mapped sizes differ: {show_shape((size,))[1:-2]} and "
                f"{show_shape((other,))[1:-2]}",
                left=f"argument {first}  {describe(examples[first][0].uop)}",
                right=f"argument {position}  {describe(examples[position][0].uop)}",
                remedy="in_dims=None for what all examples share",
            )
    return size


class _Example(NamedTuple):
    """One example: by the position of each mapped argument, a tensor without a value, and its node.

    `wholes` has, for the memory of each node, all the examples; `variables` are theirs.
    """

    tensors: dict[int, Tensor]
    nodes: dict[int, UOp]
    wholes: dict[UOp, UOp]
    variables: Variables


def _one_example(examples: dict[int, tuple[Tensor, int]], size: Any) -> _Example:
    tensors, nodes, wholes = {}, {}, {}
    variables = NO_VARIABLES
    for position, (tensor, axis) in examples.items():
        moved = tensor.movedim(axis, 0) if axis else tensor
        node = nodes[position] = stand_in(moved.shape[1:], tensor.dtype, tensor.device)
        base = buffer_below(node)
        wholes[base] = _flat(moved.uop, size, base)
        own = tensor._variables
        tensors[position] = tensor._of(node, tensor.device, own, tensor._requires_grad)
        variables = merge(variables, own)
    return _Example(tensors, nodes, wholes, variables)


def _flat(node: UOp, size: Any, base: UOp) -> UOp:
    """The examples `node`, each as the memory `base` has it."""
    rest = node.shape[1:]
    largest = tuple(each.vmax if isinstance(each, UOp) else each for each in rest)
    if largest != rest:
        around = tuple((0, most - each) for most, each in zip(largest, rest))
        node = UOp(Ops.PAD, node.dtype, (node,), ((0, 0), *around))
    return shaped(node, (size, *base.shape))


def _check_assigned(outer: OuterValues, one: _Example) -> None:
    """Raise TransformError if the function assigned to its arguments, or what differs between
    examples to others, which are what they were again.
    """
    for position, tensor in one.tensors.items():
        if tensor.uop is not one.nodes[position]:
            raise TransformError(
                "vmap: the function assigns to its argument",
                argument=show_shape(tensor.shape),
                remedy="assign to a copy, x.clone(), and return it",
            )
    refused = [(changed, node) for changed, node in outer.changed() if waits(changed.uop)]
    for changed, node in refused:
        changed.uop = node
        memory.supersede(memory.version_of(node), is_so=False)
    if refused:
        raise TransformError(
            "vmap: the function assigns what differs between examples to a tensor from outside",
            tensor=describe(refused[0][1]),
            remedy="return the new value instead, and choose from or join those of all examples",
        )


def _check_draws(draws: set[UOp], randomness: str) -> None:
    if draws and randomness == "error":
        raise TransformError(
            "vmap: the function draws random numbers",
            remedy='choose randomness="different" or "same"',
        )


def _drawn_anew(roots: Sequence[UOp], draws: set[UOp], size: Any) -> dict[UOp, UOp]:
    """For each draw of the function that is used, one of numbers for all examples."""
    found: dict[UOp, UOp] = {}
    for node in toposort(roots) if draws else ():
        if node not in draws:
            continue
        if not isinstance(size, int):
            raise ShapeError(
                f"vmap: random numbers for {show_shape((size,))[1:-2]} examples",
                rule="a batch of fixed size",
                remedy='randomness="same", or draw outside for the largest size',
            )
        found[node] = draw((size, *node.arg.shape), node.arg.device)
        found[node].origin = node.origin
    return found


def _placed(
    tensor: Tensor, node: UOp | None, size: Any, axis: int | None, variables: Variables
) -> Tensor:
    """An output with its axis of examples at `axis`."""
    variables = merge(variables, tensor._variables)
    if axis is None:
        if node is None:
            return tensor
        raise ShapeError(
            "vmap: an output that differs between examples needs an axis for them",
            output=describe(tensor.uop),
            remedy="out_dims=0",
        )
    if node is None:
        one = shaped(tensor.uop, (1, *tensor.shape))
        node = UOp(Ops.EXPAND, tensor.dtype, (one,), (size, *tensor.shape))
    whole = tensor._of(node, tensor.device, variables, tensor._requires_grad)
    if not -whole.ndim <= axis < whole.ndim:
        raise IndexBoundsError(
            f"vmap: an output of shape {show_shape(tensor.shape)} has no place {axis} for the axis"
        )
    return whole.movedim(0, axis) if axis else whole
