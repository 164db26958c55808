"""Lines and pages that an access touches in some loops, by the strides of its address."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of, stride_of
from tilegrad.ir.rules import conjuncts, terms_of
from tilegrad.ir.uop import UOp, element_of

__all__ = ["Footprint", "chunks_of", "distinct", "footprint_of", "step_of"]

Spans = Mapping[UOp, float]


def step_of(index: UOp, loop: UOp) -> int | None:
    """As `stride_of`, where the last chunk of a loop begins earlier (OVERLAP) as of the others."""
    found = terms_of(index)
    if found is None:
        return None
    step = found[0].get(loop, 0)
    for factor, times in found[0].items():
        if factor is loop or loop not in factor.ranges:
            continue
        inner = _chunk_step(factor, loop)
        if inner is None:
            return None
        step += times * inner
    return step


def chunks_of(index: UOp, loop: UOp) -> float:
    """How many iterations of `loop` reach something new: 3.3 of 4 chunks where the last one begins
    earlier (OVERLAP), as min(16c, 37) = -max(-16c, -37) says.
    """
    found = terms_of(index)
    count = float(loop.extent.vmax)
    for factor in () if found is None else found[0]:
        step = _chunk_step(factor, loop) if factor is not loop and loop in factor.ranges else None
        if step is not None and step < 0:
            count = min(count, factor.src[1].arg / step + 1)
    return count


def _chunk_step(factor: UOp, loop: UOp) -> int | None:
    """The step of `loop` in a condition that limits where its last chunk begins; None in another
    one.
    """
    if factor.op is not Ops.MAX or factor.src[1].op is not Ops.CONST:
        return None
    return stride_of(factor.src[0], loop)


def distinct(moves: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Loops as (step, iterations), smallest step first, those that reach the same positions joined:
    a filter window of 3 beside 8 rows is 10 rows.

    >>> distinct([(7, 8), (1, 5), (7, 3)])
    [(1, 5), (7, 10)]
    """
    found: list[tuple[float, float]] = []
    for step, count in sorted(moves):
        if not step or count <= 1:
            continue
        if found and step % found[-1][0] == 0 and step <= found[-1][0] * found[-1][1]:
            first, reached = found[-1]
            found[-1] = first, reached + step // first * (count - 1)
        else:
            found.append((step, count))
    return found


@dataclass(frozen=True)
class Footprint:
    """The memory that one access touches.

    Attributes:
        steps: bytes by which each range moves it.
        scattered: ranges that move it by no constant step, as those of a gather.
        size: bytes of an element.
        whole: bytes of the memory.
        reach: bytes within which `scattered` ranges move it, where a gate says so, else `whole`: a
            gather from a row stays in its row.
    """

    steps: Mapping[UOp, int]
    scattered: frozenset[UOp]
    size: int
    whole: int
    reach: int
    is_store: bool
    is_global: bool

    def units(self, spans: Spans, unit: int) -> float:
        """The lines or pages of `unit` bytes that the iterations `spans` of each range touch."""
        count: float = 1
        length: float = self.size
        for step, span in distinct((self.steps[loop], spans[loop]) for loop in self.steps):
            if step <= max(length, unit):
                length += step * (span - 1)
            else:
                count *= span
        scattered = math.prod(spans[loop] for loop in self.scattered)
        count *= min(scattered, max(self.reach / unit, 1.0))
        begins_units = length % unit == 0 and all(
            step % unit == 0 for step in self.steps.values() if step > length
        )
        touched = count * (length if begins_units else length + unit - self.size) / unit
        return min(touched, max(self.whole / unit, 1.0))


def footprint_of(node: UOp, ranges: Collection[UOp]) -> Footprint:
    """The footprint of the load or store `node` over `ranges`, loops and unrolled axes."""
    memory, index = memory_of(node.src[0]), node.src[1]
    size = element_of(memory).itemsize
    own = index.ranges
    reach, rows = _reach_of(node)
    found = {loop: step_of(index, loop) for loop in ranges if loop in own}
    steps = {loop: rows.get(loop) if step is None else step for loop, step in found.items()}
    whole = memory.dtype.size * size  # type: ignore[attr-defined]
    nbytes = {loop: abs(step) * size for loop, step in steps.items() if step is not None}
    return Footprint(
        nbytes,
        frozenset(loop for loop, step in steps.items() if step is None),
        size,
        whole,
        min(reach * size or whole, whole),
        node.op is Ops.STORE,
        memory.op is Ops.DEFINE_GLOBAL,
    )


def _reach_of(node: UOp) -> tuple[int, Mapping[UOp, int]]:
    """The elements within which a position that was loaded moves `node`, as its gate says, and the
    steps of loops beside that; 0 and none where they are not known.
    """
    terms = _terms_through_casts(node.index) if node.is_gated else {}
    computed = [each for each in terms if each.op is not Ops.RANGE]
    if len(computed) == 1:
        (factor,) = computed
        for test in conjuncts(node.gate):
            if test.op is Ops.CMPLT and test.src[0] is factor and test.src[1].op is Ops.CONST:
                rows = {loop: step for loop, step in terms.items() if loop is not factor}
                return abs(terms[factor]) * int(test.src[1].arg), rows
    return 0, {}


def _terms_through_casts(index: UOp) -> dict[UOp, int]:
    """The factors of a position, of one that was added up in another dtype too; none if unknown."""
    found: dict[UOp, int] = {}
    waiting = [(index, 1)]
    while waiting:
        node, times = waiting.pop()
        inner = terms_of(node)
        for factor, step in ({} if inner is None else inner[0]).items():
            if factor.op is Ops.CAST and factor.src[0].dtype.is_int:
                waiting.append((factor.src[0], times * step))
            else:
                found[factor] = found.get(factor, 0) + times * step
    return found
