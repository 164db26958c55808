"""Filter windows with much of their input in the padding.

A convolution of 4x4 pixels with a padding of one reads zeros in a third of its iterations, and so
does the gradient of a 5x5 convolution of 24x24. A loop leaves such iterations out (lower.skip), but
unrolled copies have them in common: of neighbours in an image, all take the iterations that any of
them takes. Rows at the same position of several images read the same padding. So they are the
better rows where enough iterations are left out; and no copy of the slice with its zeros is made,
as none of these is read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import stride_of, trips_of
from tilegrad.ir.rules import conjuncts, terms_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.generators.choice import CLEAR

__all__ = ["Padding", "find_padding"]

# Limits of compile time.
# Positions of one axis and its filter window that are counted.
_MOST_POSITIONS = 1 << 11


@dataclass(frozen=True)
class Padding:
    """A padded operand of a reduction.

    Attributes:
        load: the load that reads it.
        share: of all iterations, those that read no padding.
        inner: of the reduce loops that move the load, the one that moves it least in memory.
            Its iterations find the lines that the others have cached.
    """

    load: UOp
    share: float
    inner: UOp


def find_padding(reduction: UOp, loads: list[UOp]) -> Padding | None:
    """The padding of the only one of `loads`, an operand of the reduction, if enough iterations are
    left out.
    """
    if len(loads) != 1 or len(loads[0].src) != 4 or loads[0] not in reduction.src[0].src:
        return None
    (load,) = loads
    gate = load.gate
    loops = gate.ranges & frozenset(reduction.src[1:])
    if not loops or any(loop.axis not in (Axis.LOOP, Axis.REDUCE) for loop in gate.ranges):
        return None
    share = _open_share(gate)
    # With more of the iterations left, a shape is not clearly better.
    if share > CLEAR:
        return None
    steps = {loop: abs(stride_of(load.index, loop) or 0) for loop in loops}
    return Padding(load, share, min(loops, key=lambda loop: (steps[loop], loop.number)))


def _open_share(gate: UOp) -> float:
    """The share of all positions at which a condition holds; 1 where that is not known."""
    groups: list[tuple[set[UOp], list[UOp]]] = []
    for conjunct in conjuncts(gate):
        ranges = set(conjunct.ranges)
        apart = []
        both: tuple[set[UOp], list[UOp]] = (ranges, [conjunct])
        for other in groups:
            if other[0] & ranges:
                both = (both[0] | other[0], [*other[1], *both[1]])
            else:
                apart.append(other)
        groups = [*apart, both]
    return float(prod(_share_of(sorted(ranges, key=lambda loop: loop.number), conditions)
                      for ranges, conditions in groups))  # fmt: skip


def _share_of(ranges: list[UOp], conditions: list[UOp]) -> float:
    """The share of the positions of `ranges` at which all of `conditions` hold."""
    known = [each for condition in conditions if (each := _as_terms(condition)) is not None]
    count = trips_of(ranges)
    if count > _MOST_POSITIONS or len(known) < len(conditions):
        return 1.0
    found = 0
    for indices in itertools.product(*(range(loop.vmax + 1) for loop in ranges)):
        at = dict(zip(ranges, indices, strict=True))
        found += all(
            (sum(at[loop] * times for loop, times in terms.items()) < limit) is is_less
            for terms, limit, is_less in known
        )
    return found / count


def _as_terms(condition: UOp) -> tuple[dict[UOp, int], int, bool] | None:
    """A comparison as a sum of ranges: the factor of each, the limit, and whether the sum is to be
    less.
    """
    is_less = True
    if condition.op is Ops.XOR and condition.src[1].op is Ops.CONST:
        condition, is_less = condition.src[0], not condition.src[1].arg
    if condition.op is not Ops.CMPLT or condition.src[1].op is not Ops.CONST:
        return None
    terms = terms_of(condition.src[0])
    if terms is None or any(each.op is not Ops.RANGE for each in terms[0]):
        return None
    return dict(terms[0]), int(condition.src[1].arg) - int(terms[1]), is_less
