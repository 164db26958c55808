"""Poolings and their gradients: reductions over few terms for each of many results.

The inputs of a result lie beside those of its neighbours, so there is little reuse, and the cost is
waiting and gates. Lanes go along a row of results, and several rows are unrolled, so that no
reduction waits for its own last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loops_of, moved_loads, reductions_of, stride_of, trips_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import ROWS, UNROLLED, has_functions, stores
from tilegrad.optimize.generators.choice import choose
from tilegrad.optimize.generators.heuristic_tiles import Tiler
from tilegrad.optimize.opts.opt import OptOps

__all__ = ["Pooler"]


class _Interleaved(NamedTuple):
    """Neighbours of a stored row are the `remainders` by a stride; `quotients` runs over the rest,
    and the load moves by one along it.
    """

    quotients: UOp
    remainders: UOp


class _Sliding(NamedTuple):
    """The loop over rows of results and that along a row."""

    rows: UOp
    lanes: UOp


class Pooler(Tiler):
    """Vectors of results of few terms each."""

    def shape_pooling(self, reductions: Sequence[UOp], width: int) -> bool:
        """Shape a kernel of a pooling; False where it is none."""
        if not reductions or any(not _is_short(each) for each in reductions):
            return False
        if any(loop.extent.op is not Ops.CONST for loop in self.outputs()):
            return False
        interleaved = self.interleaved(reductions)
        if interleaved is not None:
            self.vectorize_interleaved(interleaved, reductions, width)
            return True
        sliding = self.sliding(reductions)
        if sliding is None or _is_unrolled_better(reductions):
            return False
        self.vectorize_sliding(sliding, reductions, width)
        return True

    def interleaved(self, reductions: Sequence[UOp]) -> _Interleaved | None:
        """The loops of a row that was split by a stride (schedule.strided), with one reduction."""
        index, outputs = stores(self.ast)[0].src[1], self.outputs()
        inner = next((loop for loop in outputs if stride_of(index, loop) == 1), None)
        if inner is None or len(reductions) != 1 or inner.vmax >= UNROLLED:
            return None
        step = int(inner.vmax) + 1
        outer = next((loop for loop in outputs if stride_of(index, loop) == step), None)
        loads = moved_loads(reductions[0])
        if (
            step == 1
            or outer is None
            or not all(stride_of(x.index, outer) in (0, 1) for x in loads)
        ):
            return None
        is_read = any(stride_of(load.index, outer) == 1 for load in loads)
        return _Interleaved(outer, inner) if is_read else None

    def vectorize_interleaved(
        self, rows: _Interleaved, reductions: Sequence[UOp], width: int
    ) -> None:
        """A vector of each remainder, of some rows that differ in theirs: they are stored together,
        and each is read as it lies.
        """
        index = stores(self.ast)[0].src[1]
        others = [loop for loop in self.outputs() if loop not in rows]
        self.unroll(reductions, UNROLLED)
        self.upcast_to(rows.quotients, _lanes_of(rows.quotients, width), overlaps=True)
        self.move(OptOps.UPCAST, rows.remainders, 0)
        for loop in reversed(others):
            step = stride_of(index, loop)
            if 0 < loop.vmax < UNROLLED and any(
                stride_of(index, outer) == (step or 0) * (loop.vmax + 1) for outer in others
            ):
                self.move(OptOps.UPCAST, loop, 0)
                return

    def sliding(self, reductions: Sequence[UOp]) -> _Sliding | None:
        """The rows and the lanes of results whose filter windows overlap: of a sum or an extreme,
        or of the largest element and then its position.
        """
        index, outputs = stores(self.ast)[0].src[1], self.outputs()
        lanes = next((loop for loop in outputs if stride_of(index, loop) == 1), None)
        is_choice = len(reductions) == 2 and all(each.arg is Ops.MAX for each in reductions)
        if lanes is None or not (len(reductions) == 1 or is_choice):
            return None
        for rows in reversed([loop for loop in outputs if loop is not lanes]):
            if all(_is_sliding(each, rows, lanes) for each in reductions):
                return _Sliding(rows, lanes)
        return None

    def vectorize_sliding(self, sliding: _Sliding, reductions: Sequence[UOp], width: int) -> None:
        """A vector of each of many rows, which share their loads once the rows of the filter window
        are unrolled.
        """
        rows, lanes = sliding
        for reduction in reductions:
            self.move(OptOps.UNROLL, reduction.src[1], 0)
        self.upcast_to(lanes, _lanes_of(lanes, width), overlaps=True)
        most = self.target.registers // 2
        extent = int(rows.vmax) + 1
        count = next(n for n in range(min(most, extent), 0, -1) if extent % n == 0)
        if 2 * count >= most or count == extent:
            self.move(OptOps.UPCAST, rows, count)
        else:
            # As few rows as the same number of chunks needs.
            self.overlap_to(rows, -(-extent // -(-extent // min(most, ROWS[0]))))
        whole = partial(self.unroll, reductions_of(self.ast), UNROLLED)
        choose(self, [lambda: None, whole])

    def unroll(self, reductions: Sequence[UOp], most: int) -> None:
        """Unroll reductions of up to `most` terms."""
        for reduction in reductions:
            for loop in reduction.src[1:] if trips_of(loops_of(reduction)) <= most else ():
                self.move(OptOps.UNROLL, loop, 0)


def _is_unrolled_better(reductions: Sequence[UOp]) -> bool:
    """Whether a small filter window is unrolled as a whole: each of its gates is known then."""
    first, *others = reductions
    is_gated = any(load.is_gated for load in moved_loads(first))
    return not others and is_gated and trips_of(loops_of(first)) <= UNROLLED


def _lanes_of(loop: UOp, width: int) -> int:
    """A vector, or of a short loop the power of two that holds it."""
    return min(width, 1 << int(loop.vmax).bit_length())


def _is_sliding(reduction: UOp, rows: UOp, lanes: UOp) -> bool:
    """Whether the first of several loops of a reduction passes over elements that other `rows`
    read, too.
    """
    _, first, *others = reduction.src
    for load in moved_loads(reduction):
        step, wide = stride_of(load.index, first), stride_of(load.index, rows)
        if not others or not step or not wide or not stride_of(load.index, lanes):
            return False
        if wide % step or abs(wide) > abs(step) * int(first.vmax):
            return False
    return True


def _is_short(reduction: UOp) -> bool:
    loops = reduction.src[1:]
    return (
        all(loop.op is Ops.RANGE and loop.extent.op is Ops.CONST for loop in loops)
        and all(loop.axis is Axis.REDUCE for loop in loops)
        and all(loop.vmax < UNROLLED for loop in loops)
        and trips_of(loops_of(reduction)) > 1
        and not has_functions(reduction)
    )
