"""The check of `SIZES=2`: whether a plan for a range of sizes gives the results of one for the
size.

Both run, the plan for the size first, on copies of the memory that is overwritten. Sums may be
added up in another order, so floats are compared with a tolerance; all else must be equal. Sums
that cancel leave nothing but rounding: where values differ, a run of the plan for the size on
inputs that are rounded otherwise shows how much of that there is.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.trace import GlobalCounters, counters
from tilegrad.device.registry import Device
from tilegrad.engine.realize.bindings import NOT_SIZED, Binding, make_binding
from tilegrad.engine.realize.request import Request
from tilegrad.engine.run.run import recording, run_plan
from tilegrad.runtime.buffer import Buffer

__all__ = ["Expected"]

_CASTS = {dtypes.float32: "f", dtypes.float64: "d"}
# Tolerance, relative to the largest number of a value and to the number itself.
_TOLERANCE = 1e-3
# Elements that are looked at.
_MOST = 1 << 16
# Runs on inputs with other rounding, how much of a number that is, and how many times the largest
# difference that these make is allowed.
_DRAWS, _ROUNDING, _ALLOWED = 6, {dtypes.float32: 2.0**-18, dtypes.float64: 2.0**-46}, 8.0


class Expected:
    """The values of `request` by a plan for its sizes, which are variables of `sized`, a plan for a
    range of sizes that is about to run on `inputs`.
    """

    def __init__(
        self,
        request: Request,
        inputs: Sequence[Buffer],
        sized: Binding,
    ):
        self.request, self.sized = request, sized
        self.given = dict(zip(sized.inputs, inputs, strict=True))
        with _unseen():
            self.binding, _ = make_binding(request, (), NOT_SIZED)
            self.before = {number: self.given[number] for number in self.binding.inputs}
            for number in self.binding.targets:
                self.before[number] = _copy(self.before[number])
            self.inputs = dict(self.before)
            for number in self.binding.targets:
                self.inputs[number] = _copy(self.before[number])
            self.outputs = self._run(self.inputs)

    def _run(self, inputs: Mapping[int, Buffer]) -> Sequence[Buffer]:
        """The outputs of the plan for the size."""
        return run_plan(
            self.binding.plan,
            [inputs[number] for number in self.binding.inputs],
            dict(self.binding.launch_variables(self.request)),
        )

    def compare(self, outputs: Sequence[Buffer]) -> None:
        """Raise InternalError if the plan for a range of sizes gave other values."""
        both = zip(self.sized.roots, self.binding.roots, strict=True)
        for number, (ours, theirs) in enumerate(both):
            if ours is None or theirs is None:
                continue
            found = _buffer(self.sized, ours, self.given, outputs)
            wanted = _buffer(self.binding, theirs, self.inputs, self.outputs)
            problem = _difference(found, wanted)
            if problem is not None and wanted.dtype in _CASTS:
                problem = _difference(found, wanted, self._rounding_of(theirs, wanted))
            if problem is not None:
                node = self.request.nodes[self.request.roots[number]]
                raise InternalError(
                    f"sizes: a plan for many sizes gives {problem}",
                    node=f"{node.op.name} of shape {node.shape}",
                    lengths=dict(self.request.lengths),
                )

    def _rounding_of(self, position: int, wanted: Buffer) -> float:
        """How far a value may be from the `wanted` one by rounding alone."""
        chance, most = random.Random(1), 0.0
        with _unseen():
            for _ in range(_DRAWS):
                inputs = {number: _rounded(each, chance) for number, each in self.before.items()}
                other = _buffer(self.binding, position, inputs, self._run(inputs))
                both = zip(_floats(other), _floats(wanted), strict=True)
                most = max(most, *[abs(a - b) for a, b in both if math.isfinite(a - b)], 0.0)
        return _ALLOWED * most


@contextmanager
def _unseen() -> Iterator[None]:
    """Switch off counting, recording and printing of the plans and runs in the block."""
    before, work = dict(vars(counters)), GlobalCounters.counts
    with recording(), Context(DEBUG=0):
        yield
    vars(counters).update(before)
    vars(GlobalCounters).update(work)


def _buffer(
    binding: Binding, position: int, inputs: Mapping[int, Buffer], outputs: Sequence[Buffer]
) -> Buffer:
    value = binding.values[position]
    return inputs[value.source] if value.is_written else outputs[value.source]


def _copy(buffer: Buffer) -> Buffer:
    copy = Device[buffer.device].buffer(buffer.size, buffer.dtype)
    copy.copy_in(buffer.copy_out())
    return copy


def _rounded(buffer: Buffer, chance: random.Random) -> Buffer:
    """A copy whose floats are rounded otherwise."""
    copy = _copy(buffer)
    code, by = _CASTS.get(buffer.dtype), _ROUNDING.get(buffer.dtype)
    if code is not None and by is not None:
        numbers = array(code, bytes(buffer.copy_out()))
        moved = array(code, [x * (1 + by * chance.uniform(-1, 1)) for x in numbers])
        copy.copy_in(moved.tobytes())
    return copy


def _floats(buffer: Buffer) -> Any:
    """The elements that are looked at."""
    code: Any = _CASTS[buffer.dtype]
    return memoryview(buffer.copy_out()).cast("B").cast(code)[:_MOST]


def _difference(found: Buffer, wanted: Buffer, allowed: float = 0.0) -> str | None:
    """The difference of `found` from `wanted`, beyond rounding and the `allowed` one; else none."""
    if found.size != wanted.size:
        return f"{found.size} elements instead of {wanted.size}"
    if found.dtype not in _CASTS:
        # A float of 16 bits may be rounded the other way.
        ours, theirs = found.copy_out(), wanted.copy_out()
        is_equal = found.dtype.is_float or bytes(ours) == bytes(theirs)
        return None if is_equal else f"other values of {found.dtype.name}"
    left, right = _floats(found), _floats(wanted)
    finite = [abs(number) for number in right if math.isfinite(number)]
    slack = allowed + _TOLERANCE * max(finite, default=0.0)
    for position, (a, b) in enumerate(zip(left, right, strict=True)):
        is_same = a == b or (a != a and b != b) or abs(a - b) <= slack + _TOLERANCE * abs(b)
        if not is_same:
            return f"{a} instead of {b} as element {position}"
    return None
