"""Poolings and their gradients: reductions over few terms for each of many results.

What a result reads lies beside what its neighbours read, so there is little to reuse, and what
costs is waiting and gates. Lanes go along a row of results, and several rows are unrolled, so that
no reduction waits for its own last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.facts import (
    ACCUMULATORS,
    FEW_ROWS,
    has_functions,
    lane_amount,
    stores,
    stride,
)
from tilegrad.optimize.heuristic_tiles import Tiler
from tilegrad.optimize.opt import OptOps

__all__ = ["Pooler"]

# Remainders by a stride that are unrolled.
_MOST_REMAINDERS = 4
# Terms of a filter window; of one that is unrolled as a whole; of one that is where loads have
# gates, each of which is then known.
_MOST_TERMS, _MOST_UNROLLED, _MOST_GATED = 64, 16, 64


class _Interleaved(NamedTuple):
    """Neighbours of a stored row are the `remainders` by a stride; `quotients` runs over the rest,
    and what is read moves by one along it.
    """

    quotients: UOp
    remainders: UOp


class Pooler(Tiler):
    """Vectors of results of few terms each."""

    def shape_pooling(self, reductions: Sequence[UOp], width: int) -> bool:
        """Shape a kernel of a pooling; False where it is none."""
        if not reductions or any(not _is_short(each) for each in reductions):
            return False
        if any(loop.src[0].op is not Ops.CONST for loop in self.outputs()):
            return False
        rows = self.interleaved(reductions)
        if rows is not None:
            self.vectorize_interleaved(rows, reductions, width)
            return True
        if len(reductions) == 2 and all(each.arg is Ops.MAX for each in reductions):
            return self.vectorize_choice(reductions, width)
        return False

    def interleaved(self, reductions: Sequence[UOp]) -> _Interleaved | None:
        """The loops of a row that was split by a stride (schedule.strided), with one reduction."""
        index, outputs = stores(self.ast)[0].src[1], self.outputs()
        inner = next((loop for loop in outputs if stride(index, loop) == 1), None)
        if inner is None or len(reductions) != 1 or inner.vmax >= _MOST_REMAINDERS:
            return None
        step = int(inner.vmax) + 1
        outer = next((loop for loop in outputs if stride(index, loop) == step), None)
        loads = [node for node in reductions[0].toposort() if node.op is Ops.LOAD]
        if step == 1 or outer is None or not all(stride(x.src[1], outer) in (0, 1) for x in loads):
            return None
        is_read = any(stride(load.src[1], outer) == 1 for load in loads)
        return _Interleaved(outer, inner) if is_read else None

    def vectorize_interleaved(
        self, rows: _Interleaved, reductions: Sequence[UOp], width: int
    ) -> None:
        """A vector of each remainder, of some rows that differ in theirs: they are stored together,
        and each is read as it lies.
        """
        index = stores(self.ast)[0].src[1]
        others = [loop for loop in self.outputs() if loop not in rows]
        self.unroll(reductions, _MOST_UNROLLED)
        self.upcast_to(rows.quotients, width, overlaps=True)
        self.move(OptOps.UPCAST, rows.remainders, 0)
        for loop in reversed(others):
            step = stride(index, loop)
            if 0 < loop.vmax < _MOST_REMAINDERS and any(
                stride(index, outer) == (step or 0) * (loop.vmax + 1) for outer in others
            ):
                self.move(OptOps.UPCAST, loop, 0)
                return

    def vectorize_choice(self, reductions: Sequence[UOp], width: int) -> bool:
        """Vectors of the largest element of each filter window, and then of its position."""
        index, outputs = stores(self.ast)[0].src[1], self.outputs()
        lanes = next((loop for loop in outputs if stride(index, loop) == 1), None)
        if lanes is None or (lanes.vmax + 1 < width and not self.target.has_mask):
            return False
        wide = lane_amount(int(lanes.vmax) + 1, width, 4, has_mask=self.target.has_mask)
        if max(map(_terms, reductions)) <= _MOST_UNROLLED and wide > width:
            # Several vectors of a row do as well as one each of several rows.
            return False
        is_gated = any(
            node.op is Ops.LOAD and len(node.src) == 4
            for each in reductions
            for node in each.toposort()
        )
        rows = [loop for loop in outputs if loop is not lanes][-1:]
        self.unroll(reductions, _MOST_GATED if is_gated else _MOST_UNROLLED)
        self.upcast_to(lanes, width, overlaps=True)
        most = FEW_ROWS if is_gated else int(self.target.registers * ACCUMULATORS) // 2
        for loop in rows:
            extent = int(loop.vmax) + 1
            count = next(n for n in range(min(most, extent), 0, -1) if extent % n == 0)
            if 2 * count >= most or count == extent:
                self.move(OptOps.UPCAST, loop, count)
            else:
                self.overlap_to(loop, min(most, FEW_ROWS))
        return True

    def unroll(self, reductions: Sequence[UOp], most: int) -> None:
        """Unroll reductions of up to `most` terms."""
        for reduction in reductions:
            for loop in reduction.src[1:] if _terms(reduction) <= most else ():
                self.move(OptOps.UNROLL, loop, 0)


def _terms(reduction: UOp) -> int:
    return int(prod(loop.vmax + 1 for loop in reduction.src[1:]))


def _is_short(reduction: UOp) -> bool:
    loops = reduction.src[1:]
    return (
        all(loop.op is Ops.RANGE and loop.src[0].op is Ops.CONST for loop in loops)
        and all(loop.arg[1] is Axis.REDUCE for loop in loops)
        and 1 < _terms(reduction) <= _MOST_TERMS
        and not has_functions(reduction)
    )
