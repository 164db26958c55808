"""A good list of Opts without measuring, from static facts of the target.

Targets with blocks have a list of their own (heuristic_simt). For a processor with vectors, one
question decides: which data is used again? Where a reduction reads two operands, and one output
axis moves only the first while another moves only the second, a tile of both axes in registers
reads each element once for many uses. Elsewhere memory is the limit, and what counts is that
neighbours in memory are neighbours in a vector.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import iterations_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.choice import choose
from tilegrad.optimize.contraction_tile import find_contraction_tile
from tilegrad.optimize.facts import ROWS, heaviest
from tilegrad.optimize.heuristic_dots import use_dots
from tilegrad.optimize.heuristic_simt import heuristic as heuristic_simt
from tilegrad.optimize.heuristic_stages import StageShaper
from tilegrad.optimize.heuristic_streams import Streamer
from tilegrad.optimize.latency_hiding import hide_waits
from tilegrad.optimize.opt import Opt
from tilegrad.optimize.opts import apply_opts
from tilegrad.optimize.reuse import Reuse, find_reuses
from tilegrad.target import Target

__all__ = ["heuristic", "shape"]


def heuristic(ast: UOp, target: Target, given: Collection[int] = ()) -> list[Opt]:
    """The Opts for a kernel on `target`. Copies of the parameters `given` cost nothing: they will
    be made beforehand (optimize.prepack).
    """
    return list(shape(ast, target, given).arg.opts)


def shape(ast: UOp, target: Target, given: Collection[int] = ()) -> UOp:
    """A kernel after the Opts of `heuristic`, which have been applied to find them."""
    if target.has_locals:
        return apply_opts(ast, heuristic_simt(ast, target), target)
    shaper = _Heuristic(ast, target, given)
    shaper.run()
    return shaper.ast


class _Heuristic(Streamer, StageShaper):
    """Tiles where a reduction uses data again, else vectors along memory; then threads."""

    def run(self) -> None:
        reductions = [node for node in self.ast.toposort() if node.op is Ops.REDUCE]
        if self.shape_stages(reductions):
            self.thread()
            return
        heavy = heaviest(reductions)
        reuses = find_reuses(self.ast, heavy, self.target, self.given) if heavy is not None else []
        if reuses and heavy is not None:
            self.reuse(reuses, heavy)
        else:
            self.stream(reductions)
        hide_waits(self)
        self.thread()

    def reuse(self, reuses: list[Reuse], heavy: UOp) -> None:
        """The tile of a reduction that uses data again: its lanes are those of an output, or of the
        contraction axis.
        """
        if use_dots(self, reuses[0].lanes, reuses[0].rows, heavy):
            return
        # One that promises a third of the first is not worth the estimate.
        worthy = [each for each in reuses if 3 * each.worth >= reuses[0].worth]
        # To leave padding out has to be clearly better: such rows lie further apart in memory.
        worthy.sort(key=lambda each: each.padding is not None)
        tiles = [partial(self.tile, reuse, heavy) for reuse in worthy]
        # All lanes of all vectors add up products all the time.
        share = min([each.padding.share for each in worthy if each.padding], default=1.0)
        least = iterations_of(heavy) / self.target.lanes_of(heavy.dtype) / self.target.timing.ports
        least *= share
        # One vector by a few rows is hardly slower in a small kernel, and much sooner compiled.
        shorter = [partial(self.tile, each, heavy, rows=ROWS[0]) for each in worthy]
        best = partial(choose, self, tiles, least=least, shorter=shorter)
        tile = find_contraction_tile(self.ast, heavy, self.target)
        if tile is None:
            best()
        else:
            choose(self, [best, partial(self.tile_contraction, tile)], share=1.0)
