"""Values that are known where a call is made: those of tensors that look at memory within the
host's reach, whether their nodes are made or their calls wait. To look at them runs nothing.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.base.errors import TransformError
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run.leaf_memory import OverwrittenError, buffer_of
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.waiting import Call
from tilegrad.tensor.storage import host_memory

__all__ = ["Known", "elements_below", "known", "known_elements", "note_uploaded"]

# Elements that are looked at where they are known: of data that came from the host, and of other
# memory.
_MOST_FROM_HOST = 1 << 16
_MOST_IN_MEMORY = 1 << 10
# Up to this number of elements Python finds the ends as fast as NumPy, which takes time to load.
_MOST_IN_PYTHON = 64
_FORMATS: dict[str, Any] = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H",
    "uint32": "I", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
# Ops that give the elements of their source: all of them, or some, zeros, or the same integers.
_ALL = frozenset({
    Ops.COPY, Ops.RESHAPE, Ops.DETACH, Ops.CONTIGUOUS, Ops.ASSIGN, Ops.PERMUTE, Ops.FLIP,
    Ops.EXPAND,
})  # fmt: skip
_MOVES = _ALL | {Ops.SHRINK, Ops.PAD, Ops.CAST}
# Ops that give their source as it is.
_SAME = frozenset({Ops.COPY, Ops.DETACH, Ops.CONTIGUOUS})
# One step down from a tensor: its op, its argument, and its dtype.
_Step = tuple[Ops, Any, DType]
_Down = tuple[UOp | Buffer, list[_Step], tuple[Any, ...]]

# By memory: the version of it that was looked at, its dtype, and the ends that all of its elements
# lie between.
_looked: weakref.WeakKeyDictionary[Buffer, tuple[int, DType, float, float, float | None]]
_looked = weakref.WeakKeyDictionary()
# Memory that a user's data was copied to, and its version then.
_uploaded: weakref.WeakKeyDictionary[Buffer, int] = weakref.WeakKeyDictionary()


def note_uploaded(buffer: Buffer) -> None:
    """Note that memory holds data that came from the host, until something else is written."""
    if buffer.size > _MOST_IN_MEMORY:
        _uploaded[buffer] = buffer.watch()


class KnownNumber(NamedTuple):
    """The value of all elements of a tensor."""

    value: float

    def is_inside(self, least: float, most: float, skip: float | None = None) -> bool:
        """Whether it is from `least` to `most`, or `skip`; NaN is."""
        return not (self.value < least or self.value > most) or self.value == skip

    def array(self) -> Any:
        """The value, as an array without axes."""
        import numpy

        return numpy.asarray(self.value)


class Known(NamedTuple):
    """Memory, its dtype, the shape that it has below the `steps` by which a tensor looks at it, and
    the number of the tensor's elements.
    """

    buffer: Buffer
    dtype: DType
    shape: tuple[int, ...]
    steps: list[_Step]
    size: int

    def is_inside(self, least: float, most: float, skip: float | None = None) -> bool:
        """Whether each value is from `least` to `most`, or `skip`; as far as that is known of many
        that a few were expanded to.
        """
        if self._is_all_inside(least, most, skip):
            return True
        if all(op in _ALL for op, *_ in self.steps):
            return False
        return self._has_more or _is_inside(self.array(), least, most, skip)

    @property
    def _has_more(self) -> bool:
        return self.size > max(_most_of(self.buffer), self.buffer.size)

    def _is_all_inside(self, least: float, most: float, skip: float | None) -> bool:
        """Whether all values in the memory are inside; cached for memory without another writer."""
        buffer = self.buffer
        if buffer.size > _most_of(buffer):
            return False
        for op, _, dtype in self.steps:
            if op is Ops.CAST:
                # A value that does not fit would become another one.
                least, most = max(least, dtype.min), min(most, dtype.max)
                skip = skip if skip is not None and dtype.min <= skip <= dtype.max else None
        found = _looked.get(buffer)
        version = buffer.watch() if found is None else buffer.version
        key = version, self.dtype, least, most, skip
        if found == key and buffer.is_private:
            return True
        if buffer.size <= _MOST_IN_PYTHON:
            values: Any = self._bytes().cast("B").cast(_FORMATS[self.dtype.name])
            is_inside = all(
                not (value < least or value > most) or value == skip for value in values
            )
        else:
            is_inside = _is_inside(self._memory(), least, most, skip)
        if is_inside:
            _looked[buffer] = key
        return is_inside

    def _bytes(self) -> memoryview:
        data = self.buffer.seen()
        assert data is not None, self.buffer.device
        return memoryview(data)

    def _memory(self) -> Any:
        return host_memory.array_from(self._bytes(), self.dtype, self.shape)

    def array(self) -> Any:
        """The values, in the tensor's shape; of many that a few were expanded to, these."""
        array = self._memory()
        if self._has_more:
            return array
        for op, arg, dtype in self.steps:
            if op is Ops.CAST:
                array = array.astype(dtype.name)
            elif op not in (Ops.COPY, Ops.CONTIGUOUS, Ops.ASSIGN):
                array = host_memory.moved(array, op, arg)
        return array


def known(tensor: Any) -> Known | KnownNumber | None:
    """The values of a small tensor; None where they are still to be computed, or are in memory that
    the host cannot reach. Nothing runs.
    """
    call: Call | None = tensor._call
    found = _down(tensor._node if call is None else call)
    if found is None:
        return None
    size = tensor.numel()
    if not isinstance(size, int) or not size:
        return None
    below, steps, shape = found
    if isinstance(below, UOp) and below.op is Ops.CONST:
        has_others = any(op is Ops.PAD or op is Ops.CAST for op, *_ in steps)
        return None if has_others else KnownNumber(below.arg)
    try:
        buffer = buffer_of(below) if isinstance(below, UOp) else below
    except (OverwrittenError, TransformError):
        return None
    dtype = below.dtype
    if (
        (buffer.device != "HOST" and buffer.device != "CPU")
        or min(size, buffer.size) > _most_of(buffer)
        or dtype.name not in _FORMATS
        or any(op is Ops.CAST and not (dtype.is_int and to.is_int) for op, _, to in steps)
        # Memory that was never written to, as in Tensor.empty, holds nothing to look at.
        or not buffer.is_allocated
    ):
        return None
    steps.reverse()
    return Known(buffer, dtype, shape, steps, size)


def known_elements(tensor: Any) -> Any | None:
    """The elements of a tensor that looks at memory within the host's reach, or is a constant, as
    an array of unsigned integers that have their bits; None where they are still to be computed.
    Nothing runs. The array may be a view of the memory, or of a part of it.
    """
    call: Call | None = tensor._call
    return elements_below(tensor._node if call is None else call)


def elements_below(each: Call | UOp) -> Any | None:
    """As `known_elements`, of a node or of a call."""
    import numpy

    if isinstance(each, Call) and each.value is not None:
        below: Any = each.value.buffer
        shape: tuple[int, ...] = (below.size,)
        moves = [(op, arg) for op, arg, _ in each.moves]
    else:
        found = _down(each if isinstance(each, UOp) else _computed(each) or each)
        if found is None:
            return None
        below, steps, shape = found
        moves = [(op, arg) for op, arg, _ in reversed(steps)]
    dtype: DType = below.dtype
    moves = [(op, arg) for op, arg in moves if op not in _SAME]
    if any(op is Ops.ASSIGN or op is Ops.CAST for op, _ in moves):
        return None
    if isinstance(below, UOp) and below.op is Ops.CONST:
        raw: Any = host_memory.pack([below.arg], dtype)
    else:
        try:
            buffer = buffer_of(below) if isinstance(below, UOp) else below
        except (OverwrittenError, TransformError):
            return None
        if (buffer.device != "HOST" and buffer.device != "CPU") or not buffer.is_allocated:
            return None
        raw = buffer.seen()
    array = numpy.frombuffer(raw, f"u{dtype.itemsize}")
    if len(shape) != 1:
        array = array.reshape(shape)
    for op, arg in moves:
        array = host_memory.moved(array, op, arg)
    return array


def moves_below(call: Call) -> list[tuple[Ops, Any]] | None:
    """The movement ops by which a call, a view of a computed one, looks at the memory of that; None
    where it is more than these.
    """
    found = _down(call)
    if found is None or not isinstance(found[0], Buffer):
        return None
    moves = [(op, arg) for op, arg, _ in reversed(found[1]) if op not in _SAME]
    return moves if all(op.is_movement for op, _ in moves) else None


def _computed(call: Call) -> UOp | None:
    """[Movement of] the memory with the value of a call, if a run by nodes has computed it."""
    node = call.node
    return None if node is None or node.stored is None else engine.realized(node)


def _most_of(buffer: Buffer) -> int:
    is_from_host = buffer.device == "HOST" or _uploaded.get(buffer) == buffer.version
    return _MOST_FROM_HOST if is_from_host else _MOST_IN_MEMORY


def _down(each: Any) -> _Down | None:
    """The constant, leaf or memory below a node or a call that waits, the steps down to it, and its
    shape; None where a value is computed.
    """
    steps: list[_Step] = []
    while isinstance(each, Call):
        inputs, value = each.inputs, each.value
        if value is not None:
            moves = [(op, arg, each.dtype) for op, arg, _ in reversed(each.moves)]
            return value.buffer, steps + moves, (value.buffer.size,)
        template, slot = each.template, each.slot
        first = template.count + len(template.constants)
        while slot >= first:
            op, dtype, arg, pick, is_one, *_ = template.steps[slot - first]
            if op not in _MOVES or not is_one:
                return None
            steps.append((op, arg, dtype))
            slot = pick(range(slot))
        assert inputs is not None
        each = inputs[slot] if slot < template.count else template.constants[slot - template.count]
    if not isinstance(each, UOp):
        # A number that is another one in the next step.
        return each.node, steps, ()
    while each.op in _MOVES:
        steps.append((each.op, each.arg, each.dtype))
        each = each.src[-1 if each.op is Ops.ASSIGN else 0]
    return (each, steps, each.shape) if each.op in (Ops.BUFFER, Ops.CONST) else None


def _is_inside(array: Any, least: float, most: float, skip: float | None) -> bool:
    if not array.size or (array.min() >= least and array.max() <= most):
        return True
    is_outside = (array < least) | (array > most)
    return not (is_outside if skip is None else is_outside & (array != skip)).any()
