"""Trying compiled kernels on memory of their own: random inputs, values compared, time taken.

Nothing of the user's is touched. The memory of each parameter lies between guards, so that a kernel
that writes beside it is found out, and what it may only read is compared with what was put there.

Time is taken on several copies of all buffers in rotation, enough that none is in a core's own
caches when it comes again: a kernel in a program finds its inputs in the last cache or in memory,
seldom nearer. Where the buffers are larger than that, one copy does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.device.backend import Backend
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of, written_memories
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.runtime.protocol import Dims

__all__ = ["Loaded", "Parameter", "Trial", "parameters_of"]

_GUARD = 4096
_MOST_COPIES = 64
_MOST_BYTES = 256 << 20
# An index read from memory where nothing says how large it may be.
_FEW = 8
# Two fills of memory about to be written: what holds both afterwards was not written.
_FILLS = (0x5A, 0xA5)


@dataclass(frozen=True)
class Parameter:
    """A pointer that a kernel takes: its slot, how many elements, and whether it is read and
    written. `below` bounds integers that are used as positions.
    """

    slot: int
    dtype: DType
    size: int
    is_read: bool
    is_written: bool
    below: int = 0


@dataclass
class Loaded:
    """A compiled kernel in the device's memory, with the sizes of its launch."""

    program: Any
    variables: tuple[str, ...]
    global_size: Dims
    local_size: Dims


@dataclass
class _Wanted:
    """Expected contents of a parameter after a run: bytes by element, and which elements were
    written.
    """

    values: Any
    written: Any
    exact: bool = field(default=True)


def parameters_of(ast: UOp) -> list[Parameter]:
    """The pointers of a kernel graph, by slot."""
    nodes = ast.toposort()
    written = written_memories(nodes)
    read = {memory_of(node.src[0]) for node in nodes if node.op is Ops.LOAD}
    found = []
    for node in nodes:
        if node.op is Ops.DEFINE_GLOBAL:
            pointer: Any = node.dtype
            below = 0 if pointer.base.is_float else _bound(node, nodes)
            found.append(
                Parameter(
                    node.arg, pointer.base, pointer.size, node in read, node in written, below
                )
            )
    return sorted(found, key=lambda each: each.slot)


def _bound(pointer: UOp, nodes: Mapping[UOp, None]) -> int:
    """Below which values of `pointer` are positions, by the gates that compare them; 0 where they
    are none.
    """
    depends: set[UOp] = set()
    bounds = []
    is_position = False
    for node in nodes:
        if node.op is Ops.LOAD and memory_of(node.src[0]) is pointer:
            depends.add(node)
        elif any(source in depends for source in node.src):
            if node.op in (Ops.STORE, Ops.SINK, Ops.REDUCE, Ops.END):
                continue
            depends.add(node)
            is_position |= node.dtype.scalar is dtypes.index
            if node.op is Ops.CMPLT and node.src[1].op is Ops.CONST and node.src[1].arg > 1:
                if node.src[0].dtype.scalar is dtypes.index:
                    bounds.append(int(node.src[1].arg))
    return min(bounds, default=_FEW) if is_position else 0


class Trial:
    """Memory for the kernels of one graph, and the values that they must compute.

    `depth` is how many values a reduction adds up, which decides how far two orders of a sum may
    lie apart. Raises OutOfMemoryError where the device has too little memory.
    """

    def __init__(self, backend: Backend, parameters: Sequence[Parameter], depth: int, seed: int):
        self.backend, self.parameters, self.depth = backend, parameters, depth
        nbytes = sum(each.size * each.dtype.itemsize for each in parameters)
        caches = backend.target.cache_bytes
        private = caches[-2] if len(caches) > 1 else 0
        copies = -(-4 * private // max(nbytes, 1))
        most = max(min(_MOST_COPIES, _MOST_BYTES // max(nbytes, 1)), 1)
        self._inputs = {each.slot: _random(each, seed + each.slot) for each in parameters}
        self._blocks = [self._guarded(each) for each in parameters]
        self._sets = [
            [
                block.view(_GUARD, each.size, each.dtype)
                for block, each in zip(self._blocks, parameters)
            ]
        ]
        for _ in range(min(copies, most) - 1):
            self._sets.append([backend.buffer(each.size, each.dtype) for each in parameters])
        for buffers in self._sets:
            self._fill(buffers)
        self._launches = 0
        self._wanted: dict[tuple[tuple[str, int], ...], dict[int, _Wanted]] = {}

    def _guarded(self, each: Parameter) -> Buffer:
        nbytes = each.size * each.dtype.itemsize
        block = self.backend.buffer(nbytes + 2 * _GUARD, dtypes.uint8)
        block.copy_in(bytes([_FILLS[0]]) * (nbytes + 2 * _GUARD))
        return block

    def _fill(self, buffers: Sequence[Buffer], only_written: bool = False) -> None:
        for each, buffer in zip(self.parameters, buffers):
            if each.is_read and (each.is_written or not only_written):
                buffer.copy_in(memoryview(self._inputs[each.slot]).cast("B"))

    # values

    def _run(self, loaded: Loaded, values: Mapping[str, int], fill: int) -> dict[int, Any]:
        """The bytes of every written parameter after a run on fresh inputs."""
        buffers = self._sets[0]
        for each, buffer in zip(self.parameters, buffers):
            if each.is_written and not each.is_read:
                buffer.copy_in(bytes([fill]) * buffer.nbytes)
        self._fill(buffers, only_written=True)
        self._launch(loaded, buffers, values)
        return {
            each.slot: _array(buffer.copy_out(), each.dtype)
            for each, buffer in zip(self.parameters, buffers)
            if each.is_written
        }

    def expect(self, loaded: Loaded, values: Mapping[str, int]) -> None:
        """Take the values that this kernel computes as the wanted ones, for these values of the
        variables.
        """
        first, second = (self._run(loaded, values, fill) for fill in _FILLS)
        wanted = {}
        for each in self.parameters:
            if each.is_written:
                one, other = first[each.slot], second[each.slot]
                wanted[each.slot] = _Wanted(one, _bits(one) == _bits(other))
        self._wanted[tuple(sorted(values.items()))] = wanted

    def difference(
        self, loaded: Loaded, values: Mapping[str, int], *, may_write_more: bool = False
    ) -> str | None:
        """The first fault of this kernel, or None. With `may_write_more` it may write more than is
        wanted.
        """
        found = self._run(loaded, values, _FILLS[0])
        for each in self.parameters:
            if not each.is_written:
                continue
            wanted = self._wanted[tuple(sorted(values.items()))][each.slot]
            got = found[each.slot]
            if not may_write_more and not each.is_read:
                if (_bits(got) != _bits(wanted.values))[~wanted.written].any():
                    return f"data{each.slot} is written where it must not be"
            position = _apart(got, wanted.values, wanted.written, each.dtype, self.depth)
            if position is not None:
                values_there = f"{_number(got, each.dtype, position)} and not "
                values_there += str(_number(wanted.values, each.dtype, position))
                return f"data{each.slot}[{position}] is {values_there}"
        return self._trespass()

    def _trespass(self) -> str | None:
        """Writes beside the memory, or to memory that is only read."""
        for each, block, buffer in zip(self.parameters, self._blocks, self._sets[0]):
            guard = bytes([_FILLS[0]]) * _GUARD
            whole = block.copy_out()
            if whole[:_GUARD] != guard or whole[-_GUARD:] != guard:
                return f"memory beside data{each.slot} was written"
            if not each.is_written and bytes(buffer.copy_out()) != bytes(
                memoryview(self._inputs[each.slot]).cast("B")
            ):
                return f"data{each.slot} was written, which is only read"
        return None

    # time

    def seconds(self, loaded: Loaded, values: Mapping[str, int]) -> float:
        """How long one launch takes, on the next copy of the buffers."""
        buffers = self._sets[self._launches % len(self._sets)]
        self._launches += 1
        taken = self._launch(loaded, buffers, values)
        self._fill(buffers, only_written=True)
        return taken

    def _launch(
        self, loaded: Loaded, buffers: Sequence[Buffer], values: Mapping[str, int]
    ) -> float:
        runtime = self.backend.runtime
        handles = [buffer.handle for buffer in buffers]
        start = time.perf_counter()
        taken = runtime.launch(
            loaded.program,
            handles,
            [values[name] for name in loaded.variables],
            loaded.global_size,
            loaded.local_size,
            wait=True,
        )
        return time.perf_counter() - start if taken is None else taken


# arrays

_FLOATS = {"float16": "f2", "float32": "f4", "float64": "f8"}


def _random(each: Parameter, seed: int) -> Any:
    """Values as programs have them: floats of both signs around one, small integers, positions
    inside the memory that they index.
    """
    import numpy as np

    source = np.random.default_rng(seed)
    size, dtype = each.size, each.dtype
    if dtype is dtypes.bool:
        return source.integers(0, 2, size).astype(np.uint8)
    if dtype.name == "bfloat16":
        return (_floats(source, size).view(np.uint32) >> 16).astype(np.uint16)
    if dtype.name in _FLOATS:
        return _floats(source, size).astype(_FLOATS[dtype.name])
    if dtype.is_float:
        # Narrow floats as bit patterns around one.
        return source.integers(0x30, 0x3C, size * dtype.itemsize).astype(np.uint8)
    signed = dtype.kind == "int" and not each.below
    low, high = (-_FEW if signed else 0), each.below or 2 * _FEW
    code = f"{'i' if dtype.kind == 'int' else 'u'}{dtype.itemsize}"
    most = min(high, 1 << (8 * dtype.itemsize - 1))
    return source.integers(low, max(most, 1), size).astype(code)


def _floats(source: Any, size: int) -> Any:
    """Both signs, away from zero, so that quotients and logarithms stay tame."""
    import numpy as np

    values = source.uniform(0.25, 1.25, size).astype(np.float32)
    values *= np.where(source.random(size) < 0.375, -1, 1).astype(np.float32)
    return values


def _array(data: memoryview, dtype: DType) -> Any:
    """Memory as an array of its dtype, or of its bits where numpy has no such dtype."""
    import numpy as np

    if dtype.name in _FLOATS:
        return np.frombuffer(data, _FLOATS[dtype.name])
    return np.frombuffer(data, f"u{dtype.itemsize}")


def _bits(values: Any) -> Any:
    return values.view(f"u{values.dtype.itemsize}")


def _number(values: Any, dtype: DType, position: int) -> float | int:
    if dtype.is_float:
        return float(_as_double(values[position : position + 1], dtype)[0])
    return int(values[position])


def _as_double(values: Any, dtype: DType) -> Any:
    import numpy as np

    if dtype.name == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


# How far apart neighbouring values around one are.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def _apart(got: Any, wanted: Any, where: Any, dtype: DType, depth: int) -> int | None:
    """The first position of `where` at which two results differ by more than another order of sums
    explains.

    Such an error is relative to the terms, not to their sum, so results near zero are allowed that
    of a typical one.
    """
    import numpy as np

    epsilon = _EPSILON.get(dtype.name)
    if epsilon is None:
        wrong = (_bits(got) != _bits(wanted)) & where
    else:
        with np.errstate(all="ignore"):
            a, b = _as_double(got, dtype), _as_double(wanted, dtype)
            finite = np.isfinite(b) & where
            scale = math.sqrt(float(np.mean(b[finite] ** 2))) if finite.any() else 0.0
            allowed = 4 * epsilon * np.abs(b) + 16 * epsilon * math.sqrt(depth) * scale
            close = (np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b))
            wrong = ~close & where
    positions = np.flatnonzero(wrong)
    return int(positions[0]) if len(positions) else None
