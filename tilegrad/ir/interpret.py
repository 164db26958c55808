"""The meaning of a tensor graph, in plain Python: the oracle of the tests.

Every node has the list of its values in row-major order. Each op rounds to the dtype of its node, a
reduction runs in index order in that dtype, and nothing is fused or reordered. A device that
deviates by more than the rounding of another order of summation, or of its own exp2, log2 and sin,
is wrong.

Random words are threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers:
As Easy as 1, 2, 3; 2011). The key is the seed, low word first. Word number w of a stream is word w
% 2 of the block of counter w // 2, low word first; a draw is the words from its offset on, one for
each element.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import DType, as_const, dtypes, truncate
from tilegrad.base.errors import InternalError
from tilegrad.base.float8 import FORMATS
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort

__all__ = ["evaluate_size", "interpret", "random_word", "threefry"]

Values = list[Any]
Sizes = tuple[int, ...]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_MASK = 2**32 - 1


def interpret(
    u: UOp, buffers: Mapping[int, Sequence[Any]], variables: Mapping[str, int] | None = None
) -> Values:
    """The values of `u`, flat and row-major; `buffers` holds the elements of each BUFFER by slot.

    Raises InternalError for a node that does not belong in a tensor graph, a buffer or variable
    without a value.
    """
    named = variables or {}
    values: dict[UOp, Values] = {}
    for node in toposort([u]):
        values[node] = _Evaluation(node, values, named).evaluate(buffers)
    return values[u]


def evaluate_size(size: int | UOp, variables: Mapping[str, int]) -> int:
    """The value of a size for the given values of its variables.

    Raises InternalError for a variable without a value, or a node that is no size.
    """
    if isinstance(size, int):
        return size
    values: dict[UOp, int] = {}
    for node in toposort([size]):
        if node.op is Ops.CONST:
            values[node] = node.arg
        elif node.op is Ops.DEFINE_VAR:
            values[node] = _variable(node, variables)
        elif node.op is Ops.BIND:
            values[node] = values[node.src[1]]
        elif node.op is Ops.CAST:
            values[node] = truncate(values[node.src[0]], node.dtype)
        elif node.op.evaluate is not None:
            found = node.op.evaluate(*[values[source] for source in node.src])
            values[node] = truncate(found, node.dtype)
        else:
            raise InternalError(f"size: a {node.op} node is no size", node=repr(node)[:200])
    return values[size]


def threefry(counter: tuple[int, int], key: tuple[int, int]) -> tuple[int, int]:
    """The two random words of one block: threefry-2x32 with 20 rounds."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + keys[0]) & _MASK, (counter[1] + keys[1]) & _MASK
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = (x + y) & _MASK
            y = ((y << bits | y >> (32 - bits)) & _MASK) ^ x
        x = (x + keys[(group + 1) % 3]) & _MASK
        y = (y + keys[(group + 2) % 3] + group + 1) & _MASK
    return x, y


def random_word(seed: int, position: int) -> int:
    """Word number `position` of the stream that `seed` starts."""
    block, half = divmod(position, 2)
    return threefry((block & _MASK, block >> 32 & _MASK), (seed & _MASK, seed >> 32 & _MASK))[half]


def _variable(node: UOp, variables: Mapping[str, int]) -> int:
    name = node.name
    if name not in variables:
        known = ", ".join(variables) or "none"
        raise InternalError(f"variable {name!r} has no value", known=known)
    return variables[name]


def _strides(shape: Sizes) -> Sizes:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


def _indices(shape: Sizes) -> Iterable[Sizes]:
    return itertools.product(*map(range, shape))


def _offset(index: Iterable[int], strides: Sizes) -> int:
    return sum(i * stride for i, stride in zip(index, strides, strict=True))


class _Evaluation:
    """One node with the values of its sources at hand."""

    def __init__(self, node: UOp, values: Mapping[UOp, Values], variables: Mapping[str, int]):
        self.node = node
        self.variables = variables
        self.sources = [values[source] for source in node.src]

    def shape(self, node: UOp) -> Sizes:
        return tuple(evaluate_size(size, self.variables) for size in node.shape)

    def evaluate(self, buffers: Mapping[int, Sequence[Any]]) -> Values:
        node, op = self.node, self.node.op
        if op is Ops.CONST:
            return [node.arg]
        if op is Ops.DEFINE_VAR:
            return [_variable(node, self.variables)]
        if op is Ops.BUFFER:
            return self.buffer(buffers)
        if op is Ops.RAND:
            count = len(list(_indices(self.shape(node))))
            return [random_word(node.arg.seed, node.arg.offset + i) for i in range(count)]
        if op in (Ops.RESHAPE, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.SHARD):
            return self.sources[0]
        if op in (Ops.ASSIGN, Ops.BIND):
            return self.sources[1]
        if op.is_movement:
            return self.move()
        if op.evaluate is not None:
            return self.elementwise(op.evaluate)
        if op is Ops.CAST:
            return [as_const(value, node.dtype) for value in self.sources[0]]
        if op is Ops.BITCAST:
            return _bitcast(self.sources[0], node.src[0].dtype, node.dtype)
        if op is Ops.REDUCE_AXIS:
            return self.reduce()
        if op is Ops.PREFIX_AXIS:
            return self.prefix()
        if op is Ops.GATHER:
            return self.gather()
        if op is Ops.SCATTER_ADD:
            return self.scatter_add()
        if op is Ops.AFTER:
            return self.after()
        raise InternalError(f"interpret: a {op} node in a tensor graph", node=repr(node)[:200])

    def after(self) -> Values:
        """Memory with the values of an assignment at their positions."""
        (memory, assign), (old, new) = self.node.src, self.sources
        chain: list[UOp] = []
        view = assign.src[0]
        while view is not memory:
            chain.append(view)
            view = view.src[0]
        positions: Values = list(range(len(old)))
        for step in reversed(chain):
            if step.op is not Ops.RESHAPE:
                positions = _Evaluation(step, {step.src[0]: positions}, self.variables).move()
        found = list(old)
        for position, value in zip(
            positions, new if len(new) == len(positions) else new * len(positions)
        ):
            found[position] = value
        return found

    def buffer(self, buffers: Mapping[int, Sequence[Any]]) -> Values:
        arg = self.node.arg
        if arg.slot not in buffers or len(buffers[arg.slot]) < arg.size:
            given = f"{len(buffers[arg.slot])} elements" if arg.slot in buffers else "nothing"
            headline = f"interpret: buffer {arg.slot} needs {arg.size} elements"
            raise InternalError(headline, given=given)
        return list(buffers[arg.slot][: arg.size])

    def elementwise(self, function: Any) -> Values:
        """The op on each element; a source of shape () goes with any shape."""
        node = self.node
        count = len(list(_indices(self.shape(node))))
        columns = [
            found * count if source.shape == () else found
            for found, source in zip(self.sources, node.src, strict=True)
        ]
        return [truncate(function(*row), node.dtype) for row in zip(*columns, strict=True)]

    def move(self) -> Values:
        """Each element of the result, by its position in the source; elements outside of it are
        zero.
        """
        node, op, arg = self.node, self.node.op, self.node.arg
        inner, outer = self.shape(node.src[0]), self.shape(node)
        if op in (Ops.PAD, Ops.SHRINK):
            arg = [[evaluate_size(edge, self.variables) for edge in pair] for pair in arg]

        def origin(index: Sizes) -> Sizes:
            if op is Ops.PERMUTE:
                return tuple(index[arg.index(axis)] for axis in range(len(arg)))
            if op is Ops.EXPAND:
                return tuple(0 if size == 1 else i for i, size in zip(index, inner, strict=True))
            if op is Ops.FLIP:
                return tuple(
                    size - 1 - i if flipped else i
                    for i, size, flipped in zip(index, inner, arg, strict=True)
                )
            sign = -1 if op is Ops.PAD else 1
            return tuple(i + sign * first for i, (first, _) in zip(index, arg, strict=True))

        strides = _strides(inner)
        result = []
        for index in _indices(outer):
            position = origin(index)
            inside = all(0 <= i < size for i, size in zip(position, inner, strict=True))
            value = self.sources[0][_offset(position, strides)] if inside else 0
            result.append(truncate(value, node.dtype))
        return result

    def reduce(self) -> Values:
        node = self.node
        op, axes = node.arg[:2]
        assert op.definition.identity is not None
        inner, outer = self.shape(node.src[0]), self.shape(node)
        strides = _strides(outer)
        start = truncate(op.definition.identity(node.dtype), node.dtype)
        result = [start for _ in _indices(outer)]
        for index, value in zip(_indices(inner), self.sources[0], strict=True):
            position = _offset((0 if axis in axes else i for axis, i in enumerate(index)), strides)
            result[position] = truncate(op.evaluate(result[position], value), node.dtype)
        return result

    def prefix(self) -> Values:
        node = self.node
        op, axis = node.arg
        shape = self.shape(node)
        strides = _strides(shape)
        result: Values = []
        for index, value in zip(_indices(shape), self.sources[0], strict=True):
            before = result[_offset(index, strides) - strides[axis]] if index[axis] else None
            result.append(
                value if before is None else truncate(op.evaluate(before, value), node.dtype)
            )
        return result

    def rows(self) -> tuple[int, int]:
        """The number of rows of source 0 along axis 0, and the elements of a row."""
        shape = self.shape(self.node.src[0])
        return shape[0], len(list(_indices(shape[1:])))

    def gather(self) -> Values:
        table, index = self.sources
        count, width = self.rows()
        zero = truncate(0, self.node.dtype)
        result: Values = []
        for row in index:
            inside = 0 <= row < count
            result += table[row * width : (row + 1) * width] if inside else [zero] * width
        return result

    def scatter_add(self) -> Values:
        result, index, added = list(self.sources[0]), self.sources[1], self.sources[2]
        count, width = self.rows()
        for number, row in enumerate(index):
            for column in range(width if 0 <= row < count else 0):
                total = result[row * width + column] + added[number * width + column]
                result[row * width + column] = truncate(total, self.node.dtype)
        return result


_CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip


def _to_bytes(values: Values, dtype: DType) -> bytes:
    if dtype in dtypes.fp8s:
        return bytes(FORMATS[dtype.name].to_bits(value) for value in values)
    if dtype is dtypes.bfloat16:
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{_CODES[dtype.name]}", *values)


def _bitcast(values: Values, source: DType, target: DType) -> Values:
    data = _to_bytes(values, source)
    if target in dtypes.fp8s:
        return [FORMATS[target.name].values()[bits] for bits in data]
    if target is dtypes.bfloat16:
        halves = [data[i : i + 2] for i in range(0, len(data), 2)]
        return [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]
    return list(struct.unpack(f"<{len(data) // target.itemsize}{_CODES[target.name]}", data))
