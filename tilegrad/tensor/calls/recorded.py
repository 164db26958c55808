"""Templates of methods: the results for stand-ins of the operands, recorded
(`tensor.calls.templates`).

A *stand-in* has the dtype, shape, device and `requires_grad` of an operand and nothing else. A
number that changes from call to call is an example while the method is recorded: the constant that
became of it is an input of the template. A value that depends on a number in another way differs
between two examples, and is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.base.errors import InternalError
from tilegrad.device.registry import Device
from tilegrad.engine.realize.launch_numbers import may_change
from tilegrad.ir.args import CustomArg
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.calls.number_tables import number_tables
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.kinds import kind_of, next_number
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.waiting import this_thread

__all__ = [
    "TELLING", "MethodTemplate", "Result", "WaitingKind", "is_input", "recorded",
    "recorded_with_numbers", "replaced",
]  # fmt: skip

# Ops that methods look for in an operand's graph.
TELLING = frozenset({Ops.CONST, Ops.BITCAST})
# Numbers that no method has, for two recordings: what depends on them differs.
_EXAMPLES = (1361.0, 1367.0, 1373.0, 1381.0), (2879.0, 2887.0, 2897.0, 2903.0)


class Result(NamedTuple):
    """A tensor that a method gives: a node of the template, and what the tensor knows beside it.
    `depth` counts the movement ops on the storage that it is a view of, `view_of` is the operand
    whose storage that is, or None for one of its own.
    """

    slot: int
    requires_grad: bool | None
    depth: int | None
    view_of: int | None
    shape: tuple[Any, ...]
    dtype: DType


class WaitingKind:
    """The common facts of a template's calls while they wait (`tensor.handle.waiting`). `number` is
    that of the template and the kind of result, `slot` to `kind` are of the result; `depth` counts
    its movement ops on a storage, which is that of operand `view_of`, or its own. A view `is_all`
    if it looks at the operand as that is.
    """

    __slots__ = (
        "depth", "dtype", "is_all", "kind", "number", "pattern", "requires_grad", "shape", "size",
        "slot", "template", "view_of",
    )  # fmt: skip

    def __init__(self, template: Template, result: Result, number: int, pattern: Any = None):
        self.template, self.size = template, template.size
        self.number, self.pattern = number, pattern
        self.slot, self.requires_grad = result.slot, result.requires_grad
        self.depth, self.view_of = result.depth, result.view_of
        self.shape, self.dtype = result.shape, result.dtype
        self.kind = kind_of(result.dtype, result.shape)
        self.is_all = result.view_of is not None and all(
            step[0] is Ops.DETACH for step in template.steps
        )

    def at(
        self, template: Template, shape: tuple[Any, ...], number: int, pattern: Any
    ) -> WaitingKind:
        """The same of the template at other sizes."""
        made: WaitingKind = object.__new__(WaitingKind)
        made.template, made.size = template, template.size
        made.number, made.pattern = number, pattern
        made.slot, made.requires_grad = self.slot, self.requires_grad
        made.depth, made.view_of, made.is_all = self.depth, self.view_of, self.is_all
        made.shape, made.dtype = shape, self.dtype
        made.kind = kind_of(self.dtype, shape)
        return made


class MethodTemplate(NamedTuple):
    """The results of a method for operands with one signature.

    Attributes:
        graph: the nodes of the results, above the operands that are no constants.
        results: what the method gives, in order.
        is_one: whether that is one tensor. Else `container` is the class of its results: a tuple,
            or one with names.
        requires_grad: whether a result does.
        has_view: whether a result is a view of an operand; `has_reshape`, whether it may be in
            another shape: of an operand that is a view itself that may be a copy.
        waiting: for each result what its calls have in common while they wait; None if nodes are
            made at once.
        constants: for each Python number that is an input, behind the operands: the dtype of the
            constant that it becomes, and whether it is negated.
        tables: the memory of the method's own numbers, which are inputs behind the operands.
    """

    graph: Template
    results: tuple[Result, ...]
    is_one: bool
    container: type
    requires_grad: bool
    has_view: bool
    has_reshape: bool
    waiting: tuple[WaitingKind, ...] | None
    constants: tuple[tuple[DType, bool], ...] = ()
    tables: tuple[UOp, ...] = ()


def recorded(
    method: Any,
    operands: list[Any],
    args: Any,
    kwargs: Any,
    numbers: Sequence[float] = (),
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> MethodTemplate | None:
    """The template of `method` on stand-ins, of other `shapes` if these are given, with inputs for
    the constants made from `numbers`; None if a template cannot say all of it.
    """
    first = operands[0]
    # A device that can be registered anew can do other things then.
    if not Device.is_built_in(first.device) or not all(_is_plain(each, first) for each in operands):
        return None
    is_of_other_shapes = shapes is not None
    if shapes is None:
        shapes = [operand.shape for operand in operands]
    # Constants stand for themselves.
    are_constant = [not is_input(operand) for operand in operands]
    if all(are_constant):
        return None
    stand_ins = [
        operand if is_constant else _stand_in(operand, number, shape)
        for number, (operand, shape, is_constant) in enumerate(
            zip(operands, shapes, are_constant, strict=True)
        )
    ]
    # The method may assign to them.
    inputs = [each.uop for each, is_known in zip(stand_ins, are_constant) if not is_known]
    made = _made_of(stand_ins, method, operands, args, kwargs)
    several = made if isinstance(made, tuple) else (made,)
    if not all(isinstance(each, Core) for each in several):
        return None
    nodes = [each.uop for each in several]
    changing = _constants_in(nodes, numbers)
    if changing is None:
        return None
    constants, kinds = changing
    tables = _tables_below(nodes, inputs)
    if tables and (numbers or is_of_other_shapes):
        # They may follow from these.
        return None
    graph = record(nodes, [*inputs, *constants, *tables])
    results = None if graph is None else _results(several, graph, stand_ins)
    if graph is None or results is None:
        return None
    return MethodTemplate(
        graph,
        tuple(results),
        is_one=not isinstance(made, tuple),
        container=made.__class__,
        requires_grad=any(each.requires_grad for each in results),
        has_view=any(each.view_of is not None for each in results),
        has_reshape=any(step[0] is Ops.RESHAPE for step in graph.steps),
        waiting=_waiting_kinds(nodes, graph, results),
        constants=kinds,
        tables=tables,
    )


def is_input(operand: Any) -> bool:
    """Whether an operand is an input of a template, and not part of it as constants are: what
    waits is one, though it may take a constant.
    """
    return operand._call is not None or not operand.uop.is_constant


def _made_of(stand_ins: list[Any], method: Any, operands: list[Any], args: Any, kwargs: Any) -> Any:
    """The result of `method` for stand-ins instead of the operands; None if it cannot be called so,
    or asks for values.
    """
    by_identity = {id(operand): each for operand, each in zip(operands, stand_ins, strict=True)}
    outer = this_thread.stand_ins
    this_thread.stand_ins = outer.union(each.uop for each in stand_ins if not each.uop.is_constant)
    try:
        return method(
            stand_ins[0],
            *[replaced(value, by_identity) for value in args],
            **{name: replaced(value, by_identity) for name, value in kwargs.items()},
        )
    except (InternalError, RecursionError):
        raise
    except RuntimeError:
        # A refusal, be it tilegrad's or in PyTorch's way: the method itself says why, of the user's
        # operands.
        return None
    finally:
        this_thread.stand_ins = outer


def _tables_below(nodes: Sequence[UOp], inputs: Sequence[UOp]) -> tuple[UOp, ...]:
    """The number tables of the method that `nodes` read; none where a result shows one."""
    below = toposort(nodes, stop=frozenset(inputs).__contains__)
    found = tuple([node for node in below if node in number_tables])
    # A result that shows one may be written to: `record` refuses memory that is no input.
    return () if any(base_of(node) in found for node in nodes) else found


def _waiting_kinds(
    nodes: Sequence[UOp], graph: Template, results: Sequence[Result]
) -> tuple[WaitingKind, ...] | None:
    """The common facts of the calls of each result while they wait; None if somebody has to look at
    a node of theirs.
    """
    are_views = set()
    for node, result in zip(nodes, results, strict=True):
        if node.op in TELLING or 0 in result.shape:
            return None
        are_views.add(graph.is_view_at(result.slot))
    if len(are_views) != 1:
        return None
    return tuple([WaitingKind(graph, each, next_number()) for each in results])


def replaced(value: Any, stand_ins: dict[int, Any]) -> Any:
    """An argument with the stand-ins of its tensors. No closure: one that calls itself would keep
    the stand-ins alive, among the user's tensors, until garbage is collected.
    """
    if isinstance(value, Core):
        return stand_ins.get(id(value), value)
    kind = value.__class__
    if isinstance(value, (tuple, list)):
        return kind([replaced(each, stand_ins) for each in value])
    return value


def _is_plain(operand: Any, first: Any) -> bool:
    """Whether a tensor is no more than its signature, and of the device of the `first`."""
    is_constant = not is_input(operand)
    if operand.device != first.device or operand._symbols:
        return False
    call = operand._call
    if call is not None and call.node is None and call.pool is this_thread.pool:
        # Calls with such nodes do not wait (`_waiting_kinds`), and none of this one is made.
        return all(type(size) is int and size > 0 for size in call.shape)
    node = operand.uop
    if is_constant:
        # A parameter that nothing has filled yet takes another value later.
        return not operand._requires_grad
    return node.op not in TELLING and all(type(size) is int and size > 0 for size in node.shape)


def _results(several: Sequence[Any], graph: Template, stand_ins: list[Any]) -> list[Result] | None:
    """Facts about the tensors that a method made; None if one is more than a `Result` says."""
    results: list[Result] = []
    for each, slot in zip(several, graph.results, strict=True):
        result = _result(each, slot, stand_ins)
        if result is None:
            return None
        results.append(result)
    return results


def _result(made: Any, slot: int, stand_ins: list[Any]) -> Result | None:
    """Facts about a tensor that a method made from `stand_ins`; None if it is more than a `Result`
    says.
    """
    first = stand_ins[0]
    if (
        any(made is each for each in stand_ins)
        or made.uop.is_constant
        or (made._alias is not None and any(made.uop is each.uop for each in stand_ins))
        or made.__class__ is not first.__class__
        or made.device != first.device
        or made._symbols
        or (made._is_leaf and made._requires_grad)
        or made._gradient is not None
        or made._is_shared
        or hasattr(made, "_stands_for")
    ):
        return None
    depth = view_of = None
    if made._alias is not None:
        storage, depth = made._alias
        if type(depth) is not int:
            return None
        for number, each in enumerate(stand_ins):
            if each._alias is not None and each._alias[0] is storage:
                view_of = number
    node = made.uop
    return Result(slot, made._requires_grad, depth, view_of, node.shape, node.dtype)


def _stand_in(operand: Any, slot: int, shape: tuple[int, ...]) -> Any:
    """A tensor of the same properties, of `shape`, whose node is that of no other operand."""
    made = stand_in(operand, f"operand {slot}", operand.dtype, shape)
    # Whatever a block in which nothing is recorded lets a new tensor require.
    made._requires_grad = operand._requires_grad
    return made


def stand_in(like: Any, name: str, dtype: DType, shape: tuple[int, ...]) -> Any:
    """A tensor of the class and on the device of `like`, which has nothing below its node."""
    alone = UOp(Ops.CUSTOM, dtype, (), CustomArg(name, shape, _no_call))
    return like._of(alone, like.device, NO_VARIABLES)


def _no_call(data: Any) -> memoryview:
    raise InternalError("a stand-in of an operand was run")


def recorded_with_numbers(
    method: Any, operands: list[Any], args: tuple[Any, ...]
) -> MethodTemplate | None:
    """The template of `method` on stand-ins and any numbers; None if numbers become more than a
    constant each.
    """
    made: list[MethodTemplate] = []
    for examples in _EXAMPLES:
        left = iter(examples)
        given = [
            each if each is None or isinstance(each, Core) else each.__class__(next(left))
            for each in args
        ]
        numbers = [each for each in given if each is not None and not isinstance(each, Core)]
        one = recorded(method, operands, given, {}, numbers)
        if one is None:
            return None
        made.append(one)
    # Nothing else may depend on the values.
    is_equal = made[0].graph.is_equal(made[1].graph)
    return made[0] if is_equal and made[0].constants == made[1].constants else None


def _constants_in(
    nodes: Sequence[UOp], numbers: Sequence[float]
) -> tuple[list[UOp], tuple[tuple[DType, bool], ...]] | None:
    """The constants that became of `numbers`, their dtypes, and whether each is negated; None if
    that is not one of a dtype that may change for each.
    """
    found: dict[float, list[UOp]] = {}
    for node in toposort(nodes):
        if node.op is Ops.CONST and not isinstance(node.arg, bool):
            found.setdefault(abs(node.arg), []).append(node)
    constants: list[UOp] = []
    kinds: list[tuple[DType, bool]] = []
    for number in numbers:
        made = found.get(number, ())
        if len(made) != 1 or not may_change(made[0]):
            return None
        constants.append(made[0])
        kinds.append((made[0].dtype, made[0].arg < 0))
    return constants, tuple(kinds)
