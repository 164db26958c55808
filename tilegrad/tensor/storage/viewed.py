"""Values that the host finds without a run: views of memory within its reach (elements, rows,
columns), and integers computed from such elements.

A loop over the elements of a tensor (`for i in order: x[i : i + 8]`, `table[state, action].item()`)
reads thousands of small views, and numbers made of them. As graphs each would be found and run; the
bytes are there, and only have to be picked. Where what a view looks at is still to be computed, and
a tensor has it, that is computed whole: the loop's next view finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType, as_const
from tilegrad.base.errors import TransformError
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run.leaf_memory import OverwrittenError, buffer_of
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.living import holders_of
from tilegrad.tensor.handle.waiting import Call, Number, this_thread
from tilegrad.tensor.storage import host_memory
from tilegrad.tensor.storage.memory import elements
from tilegrad.tensor.storage.writes import postpones_calls

__all__ = ["bytes_of_view", "element_of"]

# Elements of a view that are picked on the host, and elements that are computed for one.
_MOST = 1 << 14
_MOST_COMPUTED = 1 << 16
# Calls below an integer that is computed on the host. With more, they run, so that a counter is no
# chain of all that was added to it.
_MOST_CALLS = 8
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP, Ops.EXPAND, Ops.DETACH})
_COMPUTED = frozenset({op for op in Ops if op.evaluate is not None} | {Ops.CAST})
_COMPARISONS = frozenset({Ops.CMPLT, Ops.CMPNE})
_Move = tuple[Ops, Any, tuple[Any, ...]]


def bytes_of_view(tensor: Any) -> bytes | None:
    """The elements of a small view, in row-major order; None where it is no view of memory within
    the host's reach, or somebody is to see a run.
    """
    if not _may_look(tensor):
        return None
    with engine.exclusive():
        return _bytes(tensor._call or tensor._node, tensor)


def element_of(tensor: Any) -> Any | None:
    """The value of a tensor of one element that has a call: one that is in memory, or an integer or
    a truth value that is computed on the host from such; None as for `bytes_of_view`, or where that
    is more than a few calls.
    """
    call = tensor._call
    if call is not None and call.value is None:
        if call.dtype.is_float and not call.template.is_view:
            return None
    if not _may_look(tensor):
        return None
    with engine.exclusive():
        if call is not None and call.value is not None:
            # As a rule: of memory of this machine.
            number = _number_in(call.value.buffer, call.moves)
            if number is not None:
                return number
        try:
            return _Evaluation(tensor).of(call or tensor._node)
        except (_UnknownError, ZeroDivisionError):
            return None


def _may_look(tensor: Any) -> bool:
    return not tensor._symbols and postpones_calls() and current_config().DEBUG < 2


def _bytes(each: Call | UOp, tensor: Any) -> bytes | None:
    """The elements of a call's result or a node, for `tensor`, which asks for them."""
    size = elements(each.shape)
    found = _below(each, size, tensor) if 0 < size <= _MOST else None
    if found is None:
        return None
    buffer, moves = found
    data = _data(buffer)
    return None if data is None else _picked(data, buffer.dtype, moves)


def _data(buffer: Buffer) -> bytes | memoryview | None:
    device = buffer.allocator.device
    is_near = device == "CPU" or device == "HOST"
    return buffer.seen() if is_near and buffer.is_allocated else None


def _picked(data: bytes | memoryview, dtype: DType, moves: list[_Move]) -> bytes:
    """Bytes that moves, the last one first, leave of the elements of memory."""
    import numpy

    array: Any = numpy.frombuffer(data, f"u{dtype.itemsize}")
    for op, arg, _ in reversed(moves):
        if op is not Ops.DETACH:
            array = host_memory.moved(array, op, arg)
    made: bytes = array.tobytes()
    return made


def _element(each: Call | UOp, tensor: Any) -> Any:
    """The only element of a call's result or a node.

    Raises _UnknownError where that is no view of memory within the host's reach.
    """
    found = _below(each, 1, tensor)
    if found is None:
        raise _UnknownError
    buffer, moves = found
    number = _number_in(buffer, moves[::-1])
    if number is not None:
        return number
    dtype = buffer.dtype
    position = _position(buffer.size, moves[::-1])
    data = _data(buffer)
    if data is None:
        raise _UnknownError
    if position is None:
        return host_memory.unpack(memoryview(_picked(data, dtype, moves)), dtype, 1)[0]
    start = position * dtype.itemsize
    return host_memory.unpack(memoryview(data)[start : start + dtype.itemsize], dtype, 1)[0]


def _number_in(buffer: Buffer, moves: Sequence[_Move]) -> Any | None:
    """The element of memory of this machine at which `moves` end; None where that takes more than
    to look there.
    """
    allocator, handle, dtype = buffer.allocator, buffer._handle, buffer.dtype
    if handle is None or allocator.device != "CPU":
        return None
    kind = allocator.runtime.number_types.get(dtype)
    position = None if kind is None else _position(buffer.size, moves)
    if kind is None or position is None:
        return None
    return kind.from_address(handle + position * dtype.itemsize).value


def _position(size: int, moves: Sequence[_Move]) -> int | None:
    """Where `moves` of flat memory with `size` elements end that leave one; None if they do more
    than to cut, and to leave out axes.
    """
    start = 0
    shape: tuple[int, ...] = (size,)
    strides: tuple[int, ...] = (1,)
    for op, arg, after in moves:
        if op is Ops.SHRINK:
            count = 1
            for pair, step, length in zip(arg, strides, after):
                start += pair[0] * step
                count *= length
            if count == 1:
                # Later moves leave it where it is.
                return start
        elif op is Ops.RESHAPE:
            longer = [(length, step) for length, step in zip(shape, strides) if length != 1]
            left = [length for length in after if length != 1]
            if left != [length for length, _ in longer]:
                if len(longer) > 1 or (longer and longer[0][1] != 1):
                    return None
                # Strides of a contiguous row.
                steps, step = [], 1
                for length in reversed(after):
                    steps.append(step)
                    step *= length
                strides = tuple(reversed(steps))
            else:
                given = iter(longer)
                strides = tuple([next(given)[1] if length != 1 else 1 for length in after])
        elif op is not Ops.DETACH:
            return None
        shape = after
    return start


def _below(each: Any, size: int, tensor: Any) -> tuple[Buffer, list[_Move]] | None:
    """The memory that a view of `size` elements looks at, and the moves from it down to that."""
    moves: list[_Move] = []
    while True:
        if each.__class__ is Call:
            if each.value is not None:
                moves += reversed(each.moves)
                return each.value.buffer, moves
            if each.node is not None and each.node.stored is not None:
                each = each.node
                continue
            below = _operand(each, moves) if each.template.is_view else None
            if below is None:
                below = _computed(each, each.handle(), size, tensor)
        elif each.__class__ is not UOp:
            return None
        elif each.op is Ops.BUFFER:
            try:
                return buffer_of(each), moves
            except (OverwrittenError, TransformError):
                return None
        elif each.stored is not None and (stored := engine.realized(each)) is not None:
            below = stored
        elif each.op in _MOVES:
            moves.append((each.op, each.arg, each.shape))
            below = each.src[0]
        else:
            holder = next(iter(holders_of(each)), None) if each.holders is not None else None
            below = _computed(each, holder, size, tensor)
        if below is None:
            return None
        each = below


def _operand(call: Call, moves: list[_Move]) -> Any | None:
    """The operand of a waiting view; the moves down to it are added to `moves`."""
    template, slot = call.template, call.slot
    first = template.count + len(template.constants)
    while slot >= first:
        op, _, arg, pick, is_one, _, shape, _ = template.steps[slot - first]
        if op not in _MOVES or not is_one:
            return None
        moves.append((op, arg, shape))
        slot = pick(range(slot))
    return call.inputs[slot] if call.inputs is not None and slot < template.count else None


def _computed(below: Any, holder: Any, size: int, tensor: Any) -> Any | None:
    """The value below a view, computed to memory for the tensor `holder` that has it; None where
    that would be much more than the view, or no tensor has it.
    """
    count = elements(below.shape)
    if holder is None or holder is tensor or not size < count <= _MOST_COMPUTED:
        return None
    call = holder._call
    if below.__class__ is Call and call is not below:
        # It was written to since, and has another value.
        return None
    if holder._symbols or (call is not None and call.pool is not this_thread.pool):
        return None
    holder._become_known()
    made: Any = holder._call or holder._node
    is_known = made.__class__ is Call and made.value is not None
    return None if made is below and not is_known else made


class _UnknownError(Exception):
    """A value that the host does not find."""


class _Evaluation:
    """The integer or truth value of a call, from its operands, for a tensor that asks for it."""

    def __init__(self, tensor: Any):
        self.tensor = tensor
        self.calls = 0

    def of(self, each: Any) -> Any:
        """The value of a call, a number or a node of one element.

        Raises _UnknownError where the host does not find it.
        """
        if each.__class__ is Number:
            return each.value
        if each.__class__ is UOp and each.op is Ops.CONST:
            return each.arg
        if elements(each.shape) != 1:
            raise _UnknownError
        if each.__class__ is Call and each.value is None and not each.template.is_view:
            return self._of_call(each)
        if each.__class__ is UOp and each.op in _COMPUTED and each.stored is None:
            self._count()
            operands = [source.dtype for source in each.src]
            # Constants are folded in the same way.
            if not (each.is_constant or _is_exact(each.op, each.dtype, operands)):
                raise _UnknownError
            return _computed_by(each.op, each.dtype, [self.of(source) for source in each.src])
        return _element(each, self.tensor)

    def _count(self) -> None:
        self.calls += 1
        if self.calls > _MOST_CALLS:
            raise _UnknownError

    def _of_call(self, call: Call) -> Any:
        self._count()
        template, inputs = call.template, call.inputs
        if inputs is None or template.size > _MOST_CALLS:
            raise _UnknownError
        first = template.count + len(template.constants)
        sources = [*inputs, *template.constants]
        kinds: list[DType] = [each.dtype for each in sources]
        # Operands are asked for where a step needs them: those of `where` are not all there is.
        values: list[Any] = [_LAZY] * first
        for step in template.steps[: call.slot - first + 1]:
            op, dtype, _, pick, is_one, _, shape, _ = step
            picked = pick(range(len(values)))
            slots = (picked,) if is_one else picked
            if elements(shape) != 1 or not _is_exact(op, dtype, [kinds[at] for at in slots]):
                raise _UnknownError
            for at in slots:
                if values[at] is _LAZY:
                    values[at] = self.of(sources[at])
            values.append(_computed_by(op, dtype, [values[at] for at in slots]))
            kinds.append(dtype)
        return values[call.slot]


_LAZY = object()


def _computed_by(op: Ops, dtype: DType, values: list[Any]) -> Any:
    """The result of an op on numbers."""
    if op is Ops.CAST or op in _MOVES:
        return as_const(values[0], dtype)
    assert op.evaluate is not None
    return as_const(op.evaluate(*values), dtype)


def _is_exact(op: Ops, dtype: DType, operands: list[DType]) -> bool:
    """Whether Python computes what a kernel does: with integers, and of floats comparisons."""
    if dtype.is_float:
        return False
    if op in _COMPARISONS:
        return all(kind is operands[0] for kind in operands)
    if any(kind.is_float for kind in operands):
        return False
    return op is Ops.CAST or op in _MOVES or op.evaluate is not None
