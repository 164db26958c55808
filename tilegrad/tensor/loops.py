"""`scan`: one function over many steps, as a loop in the graph that is compiled once.

The function is called once, on stand-ins for what a step finds, and what it computes is the body of
a LOOP. Values that it uses from outside are computed before the loop, and shared by all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tilegrad.base.errors import DeviceError, DTypeError, ShapeError
from tilegrad.base.origin import mark
from tilegrad.ir.args import CustomArg
from tilegrad.ir.loop_building import Pair, loop_of, output_of, stand_in
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.tensor.handle.core import Core, check_tensors, describe, live
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, merge, show_shape
from tilegrad.tensor.handle.tracing import transforming
from tilegrad.tensor.storage.checked import Indices, checked_later
from tilegrad.tensor.tensor import Tensor

__all__ = ["scan"]

# The number of terms from which a sum is dearer to compute again than to read.
_MANY_TERMS = 16


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """The last carry of `f` over all steps from `init`, and the outputs of the steps, stacked:
    `carry, ys`, where `carry, y = f(carry, x)` for each row `x` of `xs` in order.

    `init`, `xs`, `ys` are tensors, or tuples, lists, dicts of them, or None. All tensors of `xs`
    have as many rows as there are steps; without `xs`, `length` says how many. `carry` keeps its
    structure, shapes and dtypes from step to step. A number in `init` becomes a tensor. With
    `reverse` the last row comes first, and the rows of `ys` stand where their `x` do.

    `f` is called once, however many steps there are, and its kernels are compiled once. It may use
    tensors from outside; random numbers drawn in it are the same in every step, so pass those that
    differ as `xs`. Nothing runs until a result is needed. Gradients flow to `init`, to `xs` and to
    what `f` uses; they take memory for the carries of all steps.

    Raises ShapeError or DTypeError, with both values, if the carry changes, if `xs` differ in rows
    from each other or from `length`, for a symbolic size or a tensor without elements, DeviceError
    for two devices, and TransformError if `f` asks for a value (`item`, `if`).

    >>> from tilegrad import Tensor, scan
    >>> total, sums = scan(lambda c, x: (c + x, c + x), Tensor(0.0), Tensor([1.0, 2.0, 3.0]))
    >>> total.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    first = [_as_tensor(value) for value in _leaves(init)]
    stacks = list(_leaves(xs))
    check_tensors("scan", *stacks)
    steps = _count_steps(stacks, length)
    outside = [*first, *stacks]
    for number, tensor in enumerate(outside):
        _check_sizes(tensor, is_whole=number < len(first))
    device = _device_of(outside)
    names = _names()
    step = _traced(f, init, xs, first, stacks, device)
    if steps == 0:
        empty = [Tensor.zeros(0, *y._sizes, dtype=y.dtype, device=device) for y in step.given]
        return _like(init, first), _like(step.made, empty)
    loop, count = _loop_over(step, first, stacks, steps, names, device, is_reversed=reverse)
    made_of = (*outside, *step.last, *step.given)
    found = [_output(_marked(output_of(loop, n)), device, made_of) for n in range(count)]
    if step.indices:
        found = _with_checked_indices(found, step.indices)
    return _like(init, found[: len(first)]), _like(step.made, found[len(first) :])


def _loop_over(
    step: _Step,
    first: Sequence[Tensor],
    stacks: Sequence[Tensor],
    steps: int,
    names: set[UOp],
    device: str,
    *,
    is_reversed: bool,
) -> tuple[UOp, int]:
    """The LOOP whose body is a step, from the carries `first` over rows of `stacks`, and the number
    of its outputs: carries, what steps give, and indices to be checked.
    """
    inputs = (*step.carry, *step.rows)
    own = {each.leaf for each in inputs}
    made_there = [*step.last, *step.given, *(each.tensor for each in step.indices)]
    values, shared = _closed([tensor.uop for tensor in made_there], own, names, device)
    room = sum(each.leaf.arg.size for each in inputs)
    loop = loop_of(
        [*values, *_dear_sums(values, own, room)],
        [(each.leaf, tensor.uop) for each, tensor in zip(step.carry, first, strict=True)],
        [(each.leaf, tensor.uop) for each, tensor in zip(step.rows, stacks, strict=True)],
        shared,
        steps,
        device,
        is_reversed=is_reversed,
    )
    return _marked(loop), len(values)


class _Step(NamedTuple):
    """One call of `f`: its arguments, the positions that it picked, and its results, as it gave
    them and as tensors.
    """

    carry: list[_Input]
    rows: list[_Input]
    indices: list[Indices]
    made: Any
    last: list[Tensor]
    given: list[Tensor]


def _traced(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    first: Sequence[Tensor],
    stacks: Sequence[Tensor],
    device: str,
) -> _Step:
    """`f` called with stand-ins for the carries `first` and for rows of `stacks`."""
    carry = [_Input(tensor, tensor._sizes, device) for tensor in first]
    rows = [_Input(tensor, tensor._sizes[1:], device) for tensor in stacks]
    indices: list[Indices] = []
    leaves = [each.leaf for each in (*carry, *rows)]
    with transforming(leaves, "scan", "every step of a loop", indices):
        result = f(
            _like(init, [each.tensor for each in carry]), _like(xs, [x.tensor for x in rows])
        )
    after, made = _pair(result)
    _check_structure(init, after, "carry")
    last = [_as_tensor(value) for value in _leaves(_ordered(init, after))]
    given = [_as_tensor(value) for value in _leaves(made)]
    for before, now in zip(first, last, strict=True):
        _check_carry(before, now)
    for tensor in (*last, *given, *(each.tensor for each in indices)):
        _check_given(tensor, device)
    return _Step(carry, rows, indices, made, last, given)


class _Input:
    """A stand-in for what a step finds of `tensor`: its leaf, and the tensor that `f` is given."""

    def __init__(self, tensor: Tensor, shape: tuple[int, ...], device: str):
        self.leaf = stand_in(tensor.dtype, shape, device)
        self.tensor = tensor._of(shaped(self.leaf, shape), device)
        self.tensor._requires_grad = tensor._requires_grad


def _marked(node: UOp) -> UOp:
    mark(node)
    return node


def _output(node: UOp, device: str, sources: Sequence[Tensor]) -> Tensor:
    variables: Variables = NO_VARIABLES
    for source in sources:
        variables = merge(variables, source._variables)
    needs = True if any(source._requires_grad for source in sources) else None
    # The class of a source that is no plain Tensor, if there is one.
    kind = next((type(each) for each in sources if type(each) is not Tensor), Tensor)
    return kind._of(node, device, variables, needs if node.dtype.is_float else None)


# what f uses


def _with_checked_indices(found: list[Tensor], indices: Sequence[Indices]) -> list[Tensor]:
    """The values in `found`, before the indices of all steps; these are checked when a value is
    read.
    """
    count = len(found) - len(indices)
    stacked = [
        replace(each, tensor=rows, steps=each.steps + 1)
        for each, rows in zip(indices, found[count:], strict=True)
    ]
    return checked_later(found[:count], stacked)


def _names() -> set[UOp]:
    """The nodes of all tensors: with respect to these somebody may ask for a gradient."""
    return {node for tensor in live() for node in (tensor.uop, *tensor._earlier())}


def _closed(
    values: list[UOp], own: set[UOp], names: set[UOp], device: str
) -> tuple[list[UOp], list[Pair]]:
    """The values over stand-ins alone: what depends on none of `own` is cut off, and shared by all
    steps.

    The cut lies below movement, which costs a step nothing, but not below a node of `names`: then
    no gradient would find it.
    """
    depends: set[UOp] = set()
    cuts: dict[UOp, UOp] = {}

    def cut(node: UOp) -> None:
        while node.op.is_movement and node not in names:
            node = node.src[0]
        if not node.is_constant and node not in cuts:
            cuts[node] = shaped(stand_in(node.dtype, node.shape, device), node.shape)

    for node in toposort(values):
        if node in own or any(source in depends for source in node.src):
            depends.add(node)
            _check_node(node)
            for source in node.src:
                if source not in depends and source not in own:
                    cut(source)
    for value in values:
        if value not in depends:
            cut(value)
    closed = list(UOp.sink(*values).substitute(cuts).src)
    for node in toposort(closed):
        if node.op is Ops.DEFINE_VAR or any(isinstance(size, UOp) for size in node.shape):
            raise ShapeError(
                "scan: the steps need sizes that are numbers",
                value=describe(node),
                remedy="compute what has a symbolic size outside, or pad it",
            )
    return closed, [(_base(leaf), value) for value, leaf in cuts.items()]


def _dear_sums(values: list[UOp], own: set[UOp], room: int) -> list[UOp]:
    """Sums of many terms in a step, together of at most `room` elements: the step gives them too,
    so that a gradient may read them where it would have to compute them again. Sums that no one
    asks for are not made.
    """
    depends = set(own)
    found: list[tuple[float, UOp]] = []
    for node in toposort(values):
        if any(source in depends for source in node.src):
            depends.add(node)
            if node.op is Ops.REDUCE_AXIS:
                terms = prod(node.src[0].shape) / prod(node.shape)
                if terms >= _MANY_TERMS:
                    found.append((-terms, node))
    chosen: list[UOp] = []
    for _, node in sorted(found, key=lambda pair: pair[0]):
        size = int(prod(node.shape))
        if size <= room and node not in values:
            chosen.append(node)
            room -= size
    return chosen


def _base(node: UOp) -> UOp:
    return node.src[0] if node.op is Ops.RESHAPE else node


def _check_node(node: UOp) -> None:
    """Raise for what a step cannot do."""
    if node.op in (Ops.ASSIGN, Ops.AFTER):
        raise DTypeError(
            "scan: the function assigns to a tensor, which a step cannot do",
            value=describe(node),
            remedy="carry the tensor, and give its new value",
        )
    if node.op is Ops.CUSTOM and isinstance(node.arg, CustomArg):
        raise DTypeError(
            f"scan: a step cannot call the Python function {node.arg.name!r} by apply",
            remedy="compute with tensors, or apply it before or after",
        )


# what is given to scan, and by a step


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return Tensor(value)
    check_tensors("scan", value)
    raise AssertionError(value)


def _count_steps(stacks: Sequence[Tensor], length: int | None) -> int:
    for tensor in stacks:
        if not tensor.ndim:
            raise ShapeError(
                "scan: xs need an axis of steps in front, a tensor has none",
                tensor=describe(tensor.uop),
            )
    counts = [tensor.shape[0] for tensor in stacks]
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        raise DTypeError(f"scan: length must be an integer, not {length!r}")
    if length is not None and length < 0:
        raise ShapeError(f"scan: length {length} is negative")
    if not counts:
        if length is None:
            raise ShapeError("scan: without xs, length says how many steps there are")
        return length
    for tensor, count in zip(stacks, counts):
        if isinstance(count, int) and count != counts[0]:
            raise ShapeError(
                f"scan: xs differ in their number of steps: {counts[0]} and {count}",
                first=describe(stacks[0].uop),
                other=describe(tensor.uop),
            )
        if isinstance(count, int) and length is not None and count != length:
            raise ShapeError(
                f"scan: xs have {count} steps, length is {length}", tensor=describe(tensor.uop)
            )
    return stacks[0]._sizes[0]


def _check_sizes(tensor: Tensor, *, is_whole: bool = True) -> None:
    sizes = tensor.shape
    if any(not isinstance(size, int) for size in sizes):
        raise ShapeError(
            f"scan: sizes must be numbers, not {show_shape(sizes)}", tensor=describe(tensor.uop)
        )
    if 0 in (sizes if is_whole else sizes[1:]):
        raise ShapeError(
            f"scan: an operand without elements: {show_shape(sizes)}", tensor=describe(tensor.uop)
        )


def _device_of(tensors: Sequence[Tensor]) -> str:
    """The device of all `tensors`; constants are on any."""
    placed = [tensor for tensor in tensors if not tensor.uop.is_constant]
    for tensor in placed:
        if tensor.device != placed[0].device:
            raise DeviceError(
                f"scan: tensors are on two devices: {placed[0].device} and {tensor.device}",
                first=describe(placed[0].uop),
                other=describe(tensor.uop),
                remedy=f"move one with .to({placed[0].device!r})",
            )
    return (placed or tensors or [Tensor(0)])[0].device


def _pair(result: Any) -> tuple[Any, Any]:
    """Result of a step: the carry, and its row of `ys`."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ShapeError(
            f"scan: the function gave {_kind(result)}, not a pair of the carry and what the step "
            "gives",
            remedy="return carry, y; or carry, None",
        )
    return result


def _check_carry(before: Tensor, after: Tensor) -> None:
    if before.shape == after.shape and before.dtype is after.dtype:
        return
    was = f"{before.dtype.name} {show_shape(before.shape)}"
    now = f"{after.dtype.name} {show_shape(after.shape)}"
    raise (DTypeError if before.shape == after.shape else ShapeError)(
        f"scan: the carry changes from {was} to {now}",
        before=describe(before.uop),
        after=describe(after.uop),
        rule="shape and dtype stay from step to step",
        remedy="begin with the dtype and shape that a step gives, or cast what it gives",
    )


def _check_given(tensor: Tensor, device: str) -> None:
    _check_sizes(tensor)
    if not tensor.uop.is_constant and tensor.device != device:
        raise DeviceError(
            f"scan: the function takes from {device} and gives on {tensor.device}",
            tensor=describe(tensor.uop),
            remedy=f"move it back with .to({device!r})",
        )


# structures of tensors


def _leaves(value: Any) -> Iterator[Any]:
    """The values in tuples, lists and dicts that are neither of these nor None."""
    if isinstance(value, dict):
        for key in value:
            yield from _leaves(value[key])
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield value


def _like(structure: Any, leaves: Sequence[Any]) -> Any:
    """`structure` with other leaves."""
    rest = iter(leaves)

    def build(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: build(value[key]) for key in value}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[build(each) for each in value])
        if isinstance(value, (tuple, list)):
            return type(value)([build(each) for each in value])
        return None if value is None else next(rest)

    return build(structure)


def _ordered(structure: Any, value: Any) -> Any:
    """`value`, which has the same structure, with the keys of dicts in the same order."""
    if isinstance(structure, dict):
        return {key: _ordered(structure[key], value[key]) for key in structure}
    if isinstance(structure, (tuple, list)):
        return [_ordered(old, new) for old, new in zip(structure, value, strict=True)]
    return value


def _check_structure(before: Any, after: Any, where: str) -> None:
    """Raise ShapeError unless the two have leaves at the same positions; dicts by their keys."""
    kinds = _kind(before), _kind(after)
    if kinds[0] != kinds[1]:
        raise ShapeError(
            f"scan: the {where} changes from {kinds[0]} to {kinds[1]}",
            rule="the structure of the carry stays from step to step",
        )
    if isinstance(before, dict):
        for key in before:
            _check_structure(before[key], after[key], f"{where}[{key!r}]")
    elif isinstance(before, (tuple, list)):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            _check_structure(old, new, f"{where}[{number}]")


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, dict):
        return f"a dict of {', '.join(sorted(map(repr, value)))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "a tensor" if isinstance(value, (Core, bool, int, float)) else type(value).__name__
