"""What `SIZES=2` looks at: whether a plan for a range of sizes gives what one for the size gives.

Both run, the plan for the size first, on copies of the memory that is overwritten. Sums may be
added up in another order, so floats are compared with a tolerance; all else must be equal.
"""

from __future__ import annotations

import math
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
            self.inputs = {number: self.given[number] for number in self.binding.inputs}
            for number in self.binding.targets:
                self.inputs[number] = _copy(self.inputs[number])
            self.outputs = run_plan(
                self.binding.plan,
                [self.inputs[number] for number in self.binding.inputs],
                dict(self.binding.launch_variables(request)),
            )

    def compare(self, outputs: Sequence[Buffer]) -> None:
        """Raise InternalError if the plan for a range of sizes gave other values."""
        both = zip(self.sized.roots, self.binding.roots, strict=True)
        for number, (ours, theirs) in enumerate(both):
            if ours is None or theirs is None:
                continue
            found = _buffer(self.sized, ours, self.given, outputs)
            wanted = _buffer(self.binding, theirs, self.inputs, self.outputs)
            if (problem := _difference(found, wanted)) is not None:
                node = self.request.nodes[self.request.roots[number]]
                raise InternalError(
                    f"sizes: a plan for many sizes gives {problem}",
                    node=f"{node.op.name} of shape {node.shape}",
                    lengths=dict(self.request.lengths),
                )


@contextmanager
def _unseen() -> Iterator[None]:
    """What is planned and run in the block is neither counted nor recorded nor shown."""
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


def _difference(found: Buffer, wanted: Buffer) -> str | None:
    """What of `found` is not as `wanted`."""
    if found.size != wanted.size:
        return f"{found.size} elements instead of {wanted.size}"
    ours, theirs = found.copy_out(), wanted.copy_out()
    cast = _CASTS.get(found.dtype)
    if cast is None:
        # A float of 16 bits may be rounded the other way.
        is_equal = found.dtype.is_float or bytes(ours) == bytes(theirs)
        return None if is_equal else f"other values of {found.dtype.name}"
    as_floats: Any = memoryview(ours).cast("B").cast
    left = as_floats(cast)[:_MOST]
    right = memoryview(theirs).cast("B").cast(cast)[:_MOST]  # type: ignore[call-overload]
    finite = [abs(number) for number in right if math.isfinite(number)]
    slack = _TOLERANCE * max(finite, default=0.0)
    for position, (a, b) in enumerate(zip(left, right, strict=True)):
        is_same = a == b or (a != a and b != b) or abs(a - b) <= slack + _TOLERANCE * abs(b)
        if not is_same:
            return f"{a} instead of {b} as element {position}"
    return None
