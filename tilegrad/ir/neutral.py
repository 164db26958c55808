"""Values that add nothing: always zero, or always minus infinity, whatever other operands are.

Terms that may be left out of a sum of products have a factor that is zero by a closed gate: the
padding is one of the product, so the other factor does not matter. An exponential of minus infinity
is zero, and a maximum is the same without minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.rules.sums import conjuncts, without_negation
from tilegrad.ir.uop import UOp, toposort

__all__ = ["Neutral", "is_always"]

# Ops whose value is that of one source.
_SAME = (Ops.CAST, Ops.GEP, Ops.SHUFFLE)
_EXPONENTIALS = (Ops.EXP, Ops.EXP2, Ops.EXP2_APPROX)
_EFFECTS = (Ops.AFTER, Ops.BARRIER, Ops.END, Ops.STORE)
# No other op is looked through.
_THROUGH = frozenset({
    *_SAME, *_EXPONENTIALS, *_EFFECTS, Ops.ADD, Ops.LOAD, Ops.MAX, Ops.MUL, Ops.REDUCE,
    Ops.VECTORIZE, Ops.WHERE, Ops.WMMA,
})  # fmt: skip


def is_always(value: UOp, nothing: float) -> bool:
    """Whether `value` is `nothing`, which is zero or minus infinity.

    before   MUL(0, LOAD(w, k)), 0
    after    True
    """
    return Neutral().is_always(value, nothing)


class Neutral:
    """Value that is always zero, or minus infinity, where all of `hidden` are minus infinity, and
    where the condition `decided`, if given, is `flag`.
    """

    def __init__(
        self, hidden: Collection[UOp] = (), decided: UOp | None = None, *, flag: bool = False
    ):
        self.hidden, self.decided, self.flag = hidden, decided, flag
        self.known: dict[tuple[UOp, float], bool] = {}

    def is_always(self, root: UOp, nothing: float) -> bool:
        """Whether `root` is `nothing` for any value of the other operands."""
        for node in toposort([root], self._is_leaf):
            for each in (0.0, -math.inf):
                if (node, each) not in self.known:
                    self.known[node, each] = self._is(node, each)
        return self.known[root, nothing]

    def _is_leaf(self, node: UOp) -> bool:
        """Whether nothing below a node is looked at."""
        if node.op is Ops.LOAD:
            return node.src[0].op is not Ops.AFTER or node in self.hidden
        return node.op not in _THROUGH or node in self.hidden

    def _is_closed(self, gate: UOp) -> bool:
        """Whether a gate is false, given the condition `decided`."""
        for each in conjuncts(gate):
            test, is_negated = without_negation(each)
            if test is self.decided and self.flag is is_negated:
                return True
        return False

    def _all(self, nodes: Iterable[UOp], nothing: float) -> bool:
        return all(self.known[node, nothing] for node in nodes)

    def _is(self, node: UOp, nothing: float) -> bool:
        src = node.src
        if node in self.hidden:
            return nothing == -math.inf
        if node.op is Ops.CONST:
            return bool(node.arg == nothing)
        if node.op in _SAME or node.op is Ops.REDUCE:
            is_fit = node.op in _SAME or node.arg is (Ops.MAX if nothing else Ops.ADD)
            is_float = node.dtype.is_float and src[0].dtype.is_float
            return is_fit and is_float and self.known[src[0], nothing]
        if node.op is Ops.VECTORIZE:
            return self._all(src, nothing)
        if node.op is Ops.WHERE:
            return self._all(src[1:], nothing)
        if node.op is Ops.LOAD and self.decided is not None and node.is_gated:
            if self._is_closed(src[3]):
                return src[2].op is Ops.CONST and bool(src[2].arg == nothing)
        if node.op is Ops.LOAD and src[0].op is Ops.AFTER:
            return self._is_stored(src[0], nothing)
        if nothing == 0:
            if node.op in _EXPONENTIALS:
                return self.known[src[0], -math.inf]
            if node.op is Ops.WMMA:
                return any(self.known[each, 0.0] for each in src[:2]) and self.known[src[2], 0.0]
            if node.op is Ops.MUL:
                return any(self.known[each, 0.0] for each in src)
            return node.op is Ops.ADD and self._all(src, 0.0)
        if node.op is Ops.MUL:
            return self.known[src[0], nothing] and src[1].op is Ops.CONST and src[1].arg > 0
        if node.op is Ops.MAX:
            return self._all(src, nothing)
        return node.op is Ops.ADD and any(self.known[each, nothing] for each in src)

    def _is_stored(self, pointer: UOp, nothing: float) -> bool:
        """Whether `nothing` is all that is stored to memory that no iteration reads before."""
        stores: list[UOp] = []
        effects = list(pointer.src[1:])
        while effects:
            effect = effects.pop()
            if effect.op in (Ops.BARRIER, Ops.END):
                effects += effect.src
            elif effect.op is Ops.STORE and memory_of(effect.src[0]) is memory_of(pointer):
                stores.append(effect)
        return bool(stores) and self._all([store.value for store in stores], nothing)
