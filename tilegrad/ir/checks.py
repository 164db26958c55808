"""The checks of each op's dtypes, argument and sources, at each stage.

A check takes a node and returns what is wrong with it, or None. `CHECKS` holds those that are the
same at every stage; `TABLES` joins them with a stage's own and with the number of sources from
`ir.op`. `ir.spec.verify` uses it. A new op needs an entry here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.ir.args import BufferArg, CustomArg, KernelArg, LoopArg, RandArg
from tilegrad.ir.op import Axis, Ops, Stage, Ties
from tilegrad.ir.proof import bounds_under, find_outside, lane_of
from tilegrad.ir.queries import base_of, below_reshapes, memory_of
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp, prod

__all__ = ["CHECKS", "TABLES", "Check", "cut", "dtype_text"]

Check = Callable[[UOp], str | None]

_NUMBERS = ("bool", "int", "uint", "float", "index")
_INTEGERS = ("int", "uint", "index")


def _types(nodes: Iterable[UOp]) -> str:
    return " and ".join(dtype_text(node.dtype) for node in nodes)


def _mismatch(node: UOp) -> str:
    """The message where the dtypes of a node and its sources do not go together."""
    return f"{dtype_text(node.dtype)} of {_types(node.src) or 'nothing'}"


def dtype_text(dtype: DType) -> str:
    """`float.vec(4)`: the dtype as a message spells it."""
    return repr(dtype).replace("dtypes.", "")


def _same(node: UOp) -> str | None:
    """All sources have the node's dtype."""
    dtype = node.dtype
    for source in node.src:
        if source.dtype is not dtype:
            return _mismatch(node)
    return None


def _arithmetic(kinds: Sequence[str]) -> Check:
    """All sources have the node's dtype, which is one of `kinds`."""

    def check(node: UOp) -> str | None:
        dtype = node.dtype
        for source in node.src:
            if source.dtype is not dtype:
                return _mismatch(node)
        return None if dtype.kind in kinds else f"it is not defined for {dtype_text(dtype)}"

    return check


def _comparison(node: UOp) -> str | None:
    left, right = node.src
    if left.dtype is not right.dtype:
        return f"of {_types(node.src)}"
    if left.dtype.kind not in _NUMBERS:
        return f"it is not defined for {dtype_text(left.dtype)}"
    wanted = dtypes.bool.vec(left.dtype.lanes)
    return None if node.dtype is wanted else f"{dtype_text(node.dtype)}, not {dtype_text(wanted)}"


def _is_gate(gate: UOp, lanes: int) -> bool:
    return gate.dtype.scalar is dtypes.bool and gate.dtype.lanes in (1, lanes)


def _where(node: UOp) -> str | None:
    condition, yes, no = node.src
    if not _is_gate(condition, node.dtype.lanes):
        return f"its condition is {dtype_text(condition.dtype)}, not bool"
    if yes.dtype is node.dtype and no.dtype is node.dtype:
        return None
    return f"{dtype_text(node.dtype)} of {_types(node.src[1:])}"


def _cast(node: UOp) -> str | None:
    (source,) = node.src
    if source.dtype.kind == node.dtype.kind == "pointer":
        return None
    if source.dtype.lanes != node.dtype.lanes:
        return f"{source.dtype.lanes} lanes to {node.dtype.lanes}"
    kinds = (source.dtype.kind, node.dtype.kind)
    wrong = any(kind not in _NUMBERS for kind in kinds)
    return f"{dtype_text(source.dtype)} to {dtype_text(node.dtype)}" if wrong else None


def _bitcast(node: UOp) -> str | None:
    (source,) = node.src
    if source.dtype.nbytes == node.dtype.nbytes and node.dtype.kind in _NUMBERS[1:4]:
        return None
    return f"{dtype_text(source.dtype)} to {dtype_text(node.dtype)}"


def _const(node: UOp) -> str | None:
    is_number = node.dtype.kind in _NUMBERS
    return None if is_number else f"it is not defined for {dtype_text(node.dtype)}"


def _define_var(node: UOp) -> str | None:
    if node.dtype.kind not in _INTEGERS:
        return f"a size cannot be {dtype_text(node.dtype)}"
    is_range = isinstance(node.arg, tuple) and len(node.arg) == 3 and node.arg[1] <= node.arg[2]
    return None if is_range else f"its argument is {node.arg!r}, not (name, smallest, largest)"


def _define_global(node: UOp) -> str | None:
    if not isinstance(node.dtype, Pointer) or node.dtype.space is not AddressSpace.GLOBAL:
        return f"{dtype_text(node.dtype)} is no pointer to global memory"
    is_slot = isinstance(node.arg, int) and node.arg >= 0
    return None if is_slot else f"its argument is {node.arg!r}, not a slot"


def _define_local(node: UOp) -> str | None:
    dtype = node.dtype
    if not isinstance(dtype, Pointer) or dtype.space is AddressSpace.GLOBAL or dtype.size < 1:
        return f"{dtype_text(dtype)} is no pointer to shared memory or scratch of a known size"
    return _all_ranges(node.src)


def _all_ranges(nodes: Sequence[UOp]) -> str | None:
    for node in nodes:
        if node.op is not Ops.RANGE:
            return f"its sources hold a {node.op.name.lower()} where ranges stand"
    return None


def _define_acc(node: UOp) -> str | None:
    if not node.src or node.src[0].dtype is not node.dtype:
        return f"{dtype_text(node.dtype)} set to {_types(node.src[:1]) or 'nothing'}"
    return _all_ranges(node.src[1:])


def _special(node: UOp) -> str | None:
    if node.dtype.kind not in _INTEGERS:
        return f"a position cannot be {dtype_text(node.dtype)}"
    is_pair = isinstance(node.arg, tuple) and len(node.arg) == 2 and isinstance(node.arg[0], str)
    if is_pair and isinstance(node.arg[1], (int, UOp)):
        return None
    return f"its argument is {node.arg!r}, not (name, extent)"


def _range(node: UOp) -> str | None:
    if node.dtype.kind not in _INTEGERS:
        return f"a loop variable cannot be {dtype_text(node.dtype)}"
    if node.src[0].dtype is not node.dtype:
        return f"{dtype_text(node.dtype)} up to {_types(node.src)}"
    is_pair = isinstance(node.arg, tuple) and len(node.arg) == 2 and isinstance(node.arg[1], Axis)
    return None if is_pair else f"its argument is {node.arg!r}, not (number, axis)"


def _access(node: UOp, dtype: DType, gate: UOp | None) -> str | None:
    """The check of a load's or store's pointer, index and gate, for values of `dtype`."""
    pointer, index = node.src[0].dtype, node.src[1]
    if not isinstance(pointer, Pointer):
        return f"its buffer is {dtype_text(pointer)}, no pointer"
    base = pointer.base
    if dtype.scalar is not base.scalar or dtype.lanes % base.lanes:
        return f"{dtype_text(dtype)} in a buffer of {dtype_text(base)}"
    if index.dtype.kind not in _INTEGERS or index.dtype.lanes not in (1, dtype.lanes):
        return f"its index is {dtype_text(index.dtype)}"
    if gate is not None and not _is_gate(gate, dtype.lanes):
        return f"its gate is {dtype_text(gate.dtype)}, not bool"
    if pointer.size >= 0:
        count = 1 if index.dtype.lanes > 1 else dtype.lanes // base.lanes
        low, high = index.bounds
        if low < 0 or high + count > pointer.size:
            return _outside(index, gate, count, pointer.size)
    return None


@functools.lru_cache(maxsize=4096)
def _outside(index: UOp, gate: UOp | None, count: int, size: int) -> str | None:
    """How an access of `count` elements leaves a buffer of `size`; None if it does not."""
    if index.op is Ops.GEP and index.dtype.lanes == 1:
        index = lane_of(index.src[0], index.arg[0])
    if index.dtype.lanes == 1 and (gate is None or gate.dtype.lanes == 1):
        low, high = bounds_under(index, gate)
        if low > high or (low >= 0 and high + count <= size):
            return None
    unproven: list[tuple[UOp, UOp | None]] = []
    for lane in range(max(count, index.dtype.lanes)):
        position = (
            lane_of(index, lane) if index.dtype.lanes > 1 else index + lane if lane else index
        )
        allowed = gate if gate is None or gate.dtype.lanes == 1 else lane_of(gate, lane)
        low, high = bounds_under(position, allowed)
        if low <= high and (low < 0 or high >= size):
            unproven.append((position, allowed))
    found = find_outside(unproven, size) if unproven else None
    if found is None:
        return None
    return f"its index {cut(render(found[0]))} is not below {size} where {found[1]}"


def cut(text: str) -> str:
    """At most a line or two of `text`, for a message."""
    return text if len(text) <= 200 else f"{text[:200]}..."


def _load(node: UOp) -> str | None:
    src = node.src
    if len(src) not in (2, 4):
        return f"{len(src)} sources, not 2 or 4"
    if len(src) == 4 and src[2].dtype is not node.dtype:
        return f"{dtype_text(node.dtype)}, and its alternative is {dtype_text(src[2].dtype)}"
    return _access(node, node.dtype, src[3] if len(src) == 4 else None)


def _store(node: UOp) -> str | None:
    src = node.src
    if len(src) not in (3, 4):
        return f"{len(src)} sources, not 3 or 4"
    if node.arg is not None and not _reduces(node.arg):
        return f"it combines with {node.arg!r}"
    return _effect(node) or _access(node, src[2].dtype, src[3] if len(src) == 4 else None)


def _custom(node: UOp) -> str | None:
    if not isinstance(node.arg, (CustomArg, KernelArg)):
        return f"{node.arg!r} is no function and no kernel"
    if not node.src:
        return "no input says on which device it is"
    return None


def _loop(node: UOp) -> str | None:
    arg = node.arg
    if not isinstance(arg, LoopArg) or arg.length < 1:
        return f"its argument is {arg!r}"
    if len(node.src) < max(arg.carries + arg.stacks, 1):
        return f"{len(node.src)} sources for {arg.carries} carries and {arg.stacks} stacks"
    for source, value in zip(node.src[: arg.carries], arg.body.src):
        if source.dtype is not value.dtype or _shapes_differ(source.shape, value.shape):
            return f"a carry {source.shape} of {_types((source, value))} becomes {value.shape}"
    for stack in node.src[arg.carries : arg.carries + arg.stacks]:
        if stack.shape[:1] != (arg.length,):
            return f"a stack {stack.shape} for {arg.length} steps"
    return None


def _output(node: UOp) -> str | None:
    (loop,) = node.src
    if loop.op is not Ops.LOOP or not 0 <= node.arg < loop.arg.outputs:
        return f"it has no output {node.arg!r}"
    same = node.dtype is loop.arg.value(node.arg).dtype
    return None if same else f"{dtype_text(node.dtype)} of {_types((loop.arg.value(node.arg),))}"


def _reduces(op: Any) -> bool:
    return isinstance(op, Ops) and op.definition.identity is not None


def _is_reduction(arg: Any) -> bool:
    """Whether an argument is a pair whose first item is an op that reduces."""
    return isinstance(arg, tuple) and len(arg) == 2 and _reduces(arg[0])


def _reduced_values(node: UOp) -> tuple[int, str | None]:
    """The number of values that a REDUCE or PREFIX combines, and what is wrong with them."""
    values = [source for source in node.src if source.op is not Ops.RANGE]
    if values and all(value.dtype is node.dtype for value in values):
        return len(values), None
    return len(values), f"{dtype_text(node.dtype)} of {_types(values) or 'nothing'}"


def _reduce(node: UOp) -> str | None:
    _, wrong = _reduced_values(node)
    return wrong or (None if _reduces(node.arg) else f"it reduces with {node.arg!r}")


def _prefix(node: UOp) -> str | None:
    count, wrong = _reduced_values(node)
    if wrong or count == len(node.src):
        return wrong or "it runs over nothing"
    fits = _is_reduction(node.arg) and 0 <= node.arg[1] <= count
    return None if fits else f"{node.arg!r} of {count} values"


def _vectorize(node: UOp) -> str | None:
    if node.dtype.lanes != len(node.src):
        return f"{len(node.src)} sources for {node.dtype.lanes} lanes"
    scalar = node.dtype.scalar
    wrong = [source for source in node.src if source.dtype is not scalar]
    return f"{dtype_text(node.dtype)} of {_types(wrong)}" if wrong else None


def _gep(node: UOp) -> str | None:
    (source,) = node.src
    lanes = node.arg
    if not isinstance(lanes, tuple) or any(not 0 <= lane < source.dtype.lanes for lane in lanes):
        return f"lanes {lanes!r} of {dtype_text(source.dtype)}"
    wanted = source.dtype.scalar.vec(len(lanes))
    return None if node.dtype is wanted else f"{dtype_text(node.dtype)}, not {dtype_text(wanted)}"


def _after(node: UOp) -> str | None:
    if not node.src:
        return "nothing comes after nothing"
    first = node.src[0].dtype
    return None if node.dtype is first else f"{dtype_text(node.dtype)} of {dtype_text(first)}"


def _effect(node: UOp) -> str | None:
    return None if node.dtype is dtypes.void else f"{dtype_text(node.dtype)}, not void"


def _end(node: UOp) -> str | None:
    is_closing = any(source.op is Ops.RANGE for source in node.src)
    return _effect(node) or (None if is_closing else "it closes no range")


def _running(node: UOp) -> str | None:
    """A PREFIX while a kernel becomes a program: its range may be unrolled."""
    return _prefix(node) if any(source.op is Ops.RANGE for source in node.src) else None


def _wmma(node: UOp) -> str | None:
    a, b, c = node.src
    if c.dtype is not node.dtype or a.dtype.scalar is not b.dtype.scalar:
        return _mismatch(node)
    return None


def _copy_async(node: UOp) -> str | None:
    if len(node.src) not in (3, 4) or node.src[2].op is not Ops.LOAD:
        return f"of {_types(node.src)}"
    return _effect(node)


def _wait(node: UOp) -> str | None:
    """An effect, or the value of its source."""
    if node.dtype is dtypes.void:
        return None
    is_value = len(node.src) == 1 and node.src[0].dtype is node.dtype
    return None if is_value else _mismatch(node)


def _descriptor(node: UOp) -> str | None:
    values, memory, _ = node.src
    if not isinstance(node.arg, tuple) or len(node.arg) != 3:
        return f"{node.arg!r} is no leading, stride, transposed"
    if not isinstance(memory.dtype, Pointer) or memory.dtype.space is not AddressSpace.SHARED:
        return f"in {dtype_text(memory.dtype)}, not shared memory"
    return None if values.dtype is node.dtype else _mismatch(node)


def _fragment(node: UOp) -> str | None:
    (rows,) = node.src
    if not isinstance(node.arg, tuple) or len(node.arg) != 2 or node.arg[0] not in (1, 2, 4):
        return f"{node.arg!r} matrices"
    wanted = rows.dtype.scalar.vec(2 * node.arg[0])
    if rows.dtype.lanes != 8 or rows.dtype.scalar.itemsize != 2 or node.dtype is not wanted:
        return _mismatch(node)
    return None


def _shuffle(node: UOp) -> str | None:
    is_mask = isinstance(node.arg, int) and node.arg >= 1
    return _same(node) or (None if is_mask else f"lanes that differ in the bits of {node.arg!r}")


def _assign_accumulator(node: UOp) -> str | None:
    target = memory_of(node.src[0])
    if target.op is not Ops.DEFINE_ACC:
        return f"its target is a {target.op.name.lower()}, no accumulator"
    return _same(node)


# the tensor graph


def _differ(left: Any, right: Any) -> bool:
    """Whether two sizes are different integers; symbolic sizes are compared elsewhere."""
    return left != right and isinstance(left, int) and isinstance(right, int)


def _shapes_differ(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if left == right:
        return False
    return len(left) != len(right) or any(_differ(a, b) for a, b in zip(left, right))


def _elementwise(check: Check) -> Check:
    """As `check`, and the sources have one shape; constants fit any shape."""

    def with_shapes(node: UOp) -> str | None:
        shape: Any = None
        for source in node.src:
            other = source.shape
            if other == ():
                continue
            if shape is None:
                shape = other
            elif other != shape and _shapes_differ(other, shape):
                return f"of shapes {shape} and {other}"
        return check(node)

    return with_shapes


def _movement(problem: Callable[[UOp, Sequence[Any]], str | None]) -> Check:
    """The dtype is that of the source, and `problem` finds that the argument fits the source's
    shape.
    """

    def check(node: UOp) -> str | None:
        if node.src[0].dtype is not node.dtype:
            return _mismatch(node)
        if not isinstance(node.arg, tuple):
            return f"its argument is {node.arg!r}"
        return problem(node, node.src[0].shape)

    return check


def _reshape(node: UOp, shape: Sequence[Any]) -> str | None:
    old, new = prod(shape), prod(node.arg)
    return f"{shape} has {old} elements, {node.arg} has {new}" if _differ(old, new) else None


def _permute(node: UOp, shape: Sequence[Any]) -> str | None:
    is_order = sorted(node.arg) == list(range(len(shape)))
    return None if is_order else f"{node.arg} does not name each axis of {shape} once"


def _expand(node: UOp, shape: Sequence[Any]) -> str | None:
    fits = len(node.arg) == len(shape) and not any(
        _differ(old, new) and old != 1 for old, new in zip(shape, node.arg)
    )
    return None if fits else f"{shape} to {node.arg}"


def _pad(node: UOp, shape: Sequence[Any]) -> str | None:
    counts = [count for pair in node.arg for count in pair if isinstance(count, int)]
    fits = len(node.arg) == len(shape) and all(count >= 0 for count in counts)
    return None if fits else f"{shape} by {node.arg}"


def _shrink(node: UOp, shape: Sequence[Any]) -> str | None:
    wrong = len(node.arg) != len(shape)
    for size, (start, end) in zip(shape, node.arg):
        numbers = [number for number in (0, start, end, size) if isinstance(number, int)]
        wrong = wrong or numbers != sorted(numbers)
    return f"{shape} to {node.arg}" if wrong else None


def _flip(node: UOp, shape: Sequence[Any]) -> str | None:
    return None if len(node.arg) == len(shape) else f"{shape} by {node.arg}"


def _of_axes(node: UOp) -> str | None:
    """The check of a REDUCE_AXIS, whose argument has several axes, or a PREFIX_AXIS."""
    if node.src[0].dtype is not node.dtype:
        return _mismatch(node)
    shape, arg = node.src[0].shape, node.arg
    if (
        node.op is Ops.REDUCE_AXIS
        and len(arg) == 3
        and arg[0] is Ops.MAX
        and arg[2].__class__ is Ties
    ):
        arg = arg[:2]
    fits = _is_reduction(arg) and all(
        0 <= axis < len(shape) for axis in (arg[1] if node.op is Ops.REDUCE_AXIS else arg[1:])
    )
    return None if fits else f"{arg!r} of {shape}"


def _gather(node: UOp) -> str | None:
    table, rows = node.src[:2]
    if rows.dtype.kind not in _INTEGERS or table.dtype is not node.dtype or not table.shape:
        return _mismatch(node)
    return None


def _scatter_add(node: UOp) -> str | None:
    table, rows, values = node.src
    if values.dtype is not node.dtype:
        return _mismatch(node)
    if _shapes_differ(values.shape, (*rows.shape, *table.shape[1:])):
        return f"rows {rows.shape} of {table.shape} from {values.shape}"
    return _gather(node)


def _buffer(node: UOp) -> str | None:
    is_buffer = isinstance(node.arg, BufferArg) and (
        isinstance(node.arg.size, UOp) or node.arg.size >= 0
    )
    return None if is_buffer else f"its argument is {node.arg!r}"


def _rand(node: UOp) -> str | None:
    is_draw = isinstance(node.arg, RandArg) and node.dtype is dtypes.uint32
    return None if is_draw else f"{dtype_text(node.dtype)} by {node.arg!r}"


def _bind(node: UOp) -> str | None:
    return "a bound value stands beside a graph, never in it"


def _tensor_assign(node: UOp) -> str | None:
    target, value = node.src[0].shape, node.src[1].shape
    if value != () and _shapes_differ(target, value):
        return f"of shapes {target} and {value}"
    return _same(node)


def _tensor_after(node: UOp) -> str | None:
    if len(node.src) != 2 or node.src[1].op is not Ops.ASSIGN:
        return "what has happened is no assignment"
    # The target of an assignment is in memory once it was computed, perhaps with another shape.
    memory, target = below_reshapes(node.src[0]), base_of(node.src[1].src[0])
    return _after(node) if target is memory else "the assignment is to other memory"


_any_number = _arithmetic(_NUMBERS)
_any_integer = _arithmetic(_INTEGERS)
_float_only = _arithmetic(("float",))
_bits_only = _arithmetic(("bool", *_INTEGERS))

_FUNCTIONS = (
    Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.SQRT, Ops.RECIP, Ops.FDIV, Ops.FMOD,
    Ops.EXP2_APPROX, Ops.SCALE,
)  # fmt: skip
# The same at every stage.
CHECKS: dict[Ops, Check] = {
    Ops.CONST: _const,
    Ops.DEFINE_VAR: _define_var,
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    **dict.fromkeys((Ops.NEG, Ops.TRUNC, Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX), _any_number),
    **dict.fromkeys(_FUNCTIONS, _float_only),
    **dict.fromkeys((Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD), _any_integer),
    **dict.fromkeys((Ops.SHL, Ops.SHR), _any_integer),
    **dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR), _bits_only),
    **dict.fromkeys((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), _comparison),
    Ops.MULACC: _any_number,
    Ops.WHERE: _where,
}
_TENSOR_CHECKS: dict[Ops, Check] = {
    **{op: _elementwise(check) for op, check in CHECKS.items() if op.is_alu},
    Ops.BUFFER: _buffer,
    Ops.RAND: _rand,
    Ops.BIND: _bind,
    Ops.RESHAPE: _movement(_reshape),
    Ops.PERMUTE: _movement(_permute),
    Ops.EXPAND: _movement(_expand),
    Ops.PAD: _movement(_pad),
    Ops.SHRINK: _movement(_shrink),
    Ops.FLIP: _movement(_flip),
    **dict.fromkeys((Ops.REDUCE_AXIS, Ops.PREFIX_AXIS), _of_axes),
    Ops.GATHER: _gather,
    Ops.SCATTER_ADD: _scatter_add,
    **dict.fromkeys((Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY), _same),
    Ops.ASSIGN: _tensor_assign,
    Ops.AFTER: _tensor_after,
    Ops.CUSTOM: _custom,
    Ops.LOOP: _loop,
    Ops.LOOP_OUTPUT: _output,
    Ops.SINK: _effect,
}
_CODE_CHECKS: dict[Ops, Check] = {
    Ops.DEFINE_GLOBAL: _define_global,
    Ops.DEFINE_LOCAL: _define_local,
    Ops.DEFINE_ACC: _define_acc,
    Ops.SPECIAL: _special,
    Ops.RANGE: _range,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.REDUCE: _reduce,
    Ops.RESCALED: _any_number,
    Ops.PREFIX: _prefix,
    Ops.VECTORIZE: _vectorize,
    Ops.GEP: _gep,
    Ops.AFTER: _after,
    Ops.END: _end,
    Ops.ASSIGN: _assign_accumulator,
    Ops.BARRIER: _effect,
    Ops.SHUFFLE: _shuffle,
    Ops.WMMA: _wmma,
    Ops.FRAGMENT: _fragment,
    Ops.COPY_ASYNC: _copy_async,
    Ops.WAIT: _wait,
    Ops.DESCRIPTOR: _descriptor,
    Ops.SINK: _effect,
}


def _table(stage: Stage) -> dict[Ops, tuple[int | None, Check]]:
    """For each op that is allowed at `stage`: its number of sources, and its check."""
    checks = {**CHECKS, **(_TENSOR_CHECKS if stage is Stage.TENSOR else _CODE_CHECKS)}
    if stage is Stage.CODE:
        # While a kernel becomes a program, an END may stand for several effects and no loop, such
        # as the scalar stores of a vector.
        checks |= {Ops.END: _effect, Ops.PREFIX: _running}
    return {
        op: (op.definition.arity, checks[op])
        for op in Ops
        if stage & op.definition.stages and op in checks
    }


# By stage: the allowed ops, with their number of sources and their check. Between kernel and
# program the ops of both are allowed.
TABLES = {stage: _table(stage) for stage in (Stage.TENSOR, Stage.KERNEL, Stage.PROGRAM, Stage.CODE)}
