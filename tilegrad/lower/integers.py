"""Index arithmetic as machine integers: 32 bits where bounds prove that nothing wraps, else 64.

Python's division rounds down and C's toward zero. The two agree where nothing is negative;
divisions by powers of two become shifts and masks, which round down; the other ones are corrected.
A divisor that may be 0 or -1 is guarded, as machines trap. So is a shift amount that may reach the
width, which is undefined in C and LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import UPat
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.rewrite import graph_rewrite, rebuilt
from tilegrad.ir.rules import FOLDING, IDENTITIES, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["choose_integers", "order_sums"]

_INTEGERS = (*dtypes.signed, *dtypes.unsigned)
_UNSIGNED = {dtype.itemsize: dtype for dtype in dtypes.unsigned}


def order_sums(ast: UOp) -> UOp:
    """Index sums with the terms of outer loops first, so that their partial sums are computed
    outside.

    Launch positions come first, in one order everywhere, so that sums share partial sums.

    before   k + (i*64 + j)             i outermost, k innermost
    after    (i*64 + j) + k
    """
    sums = _OrderedSums(ast.arg.order, ast.toposort())

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        is_sum = node.index.op is Ops.ADD
        return node.over((src[0], sums.ordered(node.src[1]), *src[2:])) if is_sum else None

    return rebuilt(ast, change, (Ops.LOAD, Ops.STORE), sums.done)


_Rank = tuple[int, tuple[str, ...], int]


class _OrderedSums:
    """Sums of the indices of a kernel, in the order of its loops.

    Attributes:
        done: the kernel's nodes as they are after this pass, as far as it has come.
    """

    def __init__(self, order: Sequence[int], nodes: Iterable[UOp]):
        self.done: dict[UOp, UOp] = {}
        self._loops = {number: rank for rank, number in enumerate(order)}
        self._position = {node: number for number, node in enumerate(nodes)}
        self._ranks: dict[UOp, _Rank] = {}
        # By sum: its ordered terms, summed without the constant, which many accesses share, and the
        # constant; None for a sum that is left alone.
        self._sums: dict[UOp, tuple[UOp, int] | None] = {}

    def ordered(self, index: UOp) -> UOp:
        """`index` with its terms in order."""
        if index.op is not Ops.ADD:
            return self.done[index]
        left, right = index.src
        if index.dtype.lanes > 1:
            # Lanes that are apart have a beginning in common.
            if left.op is not Ops.VECTORIZE or len(set(left.src)) > 1:
                return self.done[index]
            return self.ordered(left.src[0]).broadcast(index.dtype.lanes) + self.done[right]
        base, constant = (left, right.arg) if right.op is Ops.CONST else (index, 0)
        if base not in self._sums:
            self._sums[base] = self._sum_of(base)
        found = self._sums[base]
        if found is None:
            return self.done[index]
        total, constant = found[0], found[1] + constant
        return total + constant if constant else total

    def _sum_of(self, index: UOp) -> tuple[UOp, int] | None:
        """The sum of the terms of `index`, by rank, and its constant."""
        found = terms_of(index)
        if found is None:
            return None
        total = UOp.const(dtypes.index, 0)
        terms = sorted(found[0].items(), key=lambda item: self._rank(item[0]))
        for number, (factor, scale) in enumerate(terms):
            term = self.done[factor] if scale == 1 else self.done[factor] * scale
            total = UOp(Ops.ADD, dtypes.index, (total, term)) if number else term
        return total, found[1]

    def _rank(self, term: UOp) -> _Rank:
        if term not in self._ranks:
            positions = {node.name for node in nodes_of(term, Ops.SPECIAL)}
            # Terms of one lane number are many, and equal sums may have them in different orders.
            own = tuple(sorted(positions)), self._position[term]
            self._ranks[term] = self._depth(term), *own
        return self._ranks[term]

    def _depth(self, term: UOp) -> int:
        """The position of the innermost loop that `term` depends on; -1 if there is none."""
        known = self._loops
        return max(
            (known.get(loop.number, len(known) + loop.number) for loop in term.ranges), default=-1
        )


def choose_integers(ast: UOp) -> UOp:
    """`ast` without the dtype `index` and without Python's division.

    before   LOAD(a, j*4096 + i//4)                    j: 0..2**20, i: 0..6
    after    LOAD(a, long(j)*4096 + long(i >> 2))      all else int32
    """
    return graph_rewrite(ast, TO_MACHINE, name="lower.integers", remake=_concrete)


def _fits(node: UOp) -> bool:
    return bool(node.vmin >= dtypes.int32.min and node.vmax <= dtypes.int32.max)


def _concrete(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """`node` over `src`, which have machine integers in place of `index`."""
    op, dtype = node.op, node.dtype
    if dtype.scalar is not dtypes.index:
        is_comparison = op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
        if is_comparison and node.src[0].dtype.scalar is dtypes.index:
            src = _together(src, _wider(src))
        return node if src == node.src else UOp(op, dtype, src, node.arg)
    if not src or op is Ops.RANGE or op is Ops.CAST:
        is_narrow = _fits(node) and not (op is Ops.RANGE and not _fits(node.src[0]))
        own = dtypes.int32 if is_narrow else dtypes.int64
        if op is Ops.CAST:
            return src[0].cast(own) if src[0].dtype.scalar is not own else src[0]
        if op is Ops.RANGE:
            src = _together(src, own)
        return UOp(op, own.vec(dtype.lanes), src, node.arg)
    if op is Ops.GEP:
        return UOp(op, src[0].dtype.scalar.vec(dtype.lanes), src, node.arg)
    values = src[1:] if op is Ops.WHERE else src
    own = _wider(values) if _fits(node) else dtypes.int64
    values = _together(values, own)
    return UOp(op, own.vec(dtype.lanes), (src[0], *values) if op is Ops.WHERE else values, node.arg)


def _wider(values: tuple[UOp, ...]) -> DType:
    return (
        dtypes.int64
        if any(value.dtype.scalar is dtypes.int64 for value in values)
        else dtypes.int32
    )


def _together(values: tuple[UOp, ...], dtype: DType) -> tuple[UOp, ...]:
    return tuple(
        value if value.dtype.scalar is dtype
        else UOp(Ops.CONST, dtype.vec(value.dtype.lanes), (), value.arg) if value.op is Ops.CONST
        else value.cast(dtype)
        for value in values
    )  # fmt: skip


DIVIDE = PatternMatcher("divide")


def _power(node: UOp) -> int | None:
    """The exponent where `node` is a constant power of two."""
    if node.op is Ops.CONST and node.arg > 0 and node.arg & (node.arg - 1) == 0:
        return int(node.arg).bit_length() - 1
    return None


@DIVIDE.rule(
    "floordiv-to-machine", UPat(Ops.FLOORDIV, dtype=_INTEGERS, src=(UPat(name="x"), UPat(name="y")))
)
def floordiv_to_machine(x: UOp, y: UOp) -> UOp:
    """Python's quotient by a shift, or by the machine's division."""
    power = _power(y)
    if power is not None:
        return x if power == 0 else x >> power
    if x.vmin >= 0 and y.vmin > 0:
        return x.alu(Ops.IDIV, y)
    safe, quotient = _guarded(x, y)
    remainder = x - quotient * safe
    lower = remainder.ne(0) & ((x < 0) ^ (safe < 0))
    return _unguarded(y, lower.where(quotient - 1, quotient), x * -1)


@DIVIDE.rule(
    "floormod-to-machine", UPat(Ops.FLOORMOD, dtype=_INTEGERS, src=(UPat(name="x"), UPat(name="y")))
)
def floormod_to_machine(x: UOp, y: UOp) -> UOp:
    """Python's remainder by a mask, or by the machine's division."""
    power = _power(y)
    if power is not None:
        return x & (int(y.arg) - 1)
    if x.vmin >= 0 and y.vmin > 0:
        return x.alu(Ops.MOD, y)
    safe, quotient = _guarded(x, y)
    remainder = x - quotient * safe
    wrong = remainder.ne(0) & ((remainder < 0) ^ (safe < 0))
    return _unguarded(y, wrong.where(remainder + safe, remainder), x * 0)


@DIVIDE.rule(
    "idiv-without-traps",
    UPat((Ops.IDIV, Ops.MOD), dtype=_INTEGERS, src=(UPat(name="x"), UPat(name="y")), name="node"),
)
def idiv_without_traps(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """C's quotient and remainder by any divisor, as a kernel may ask for them."""
    if not _traps(y) or _is_safe(y):
        return None
    safe, quotient = _guarded(x, y)
    if node.op is Ops.IDIV:
        return _unguarded(y, quotient, x * -1)
    result = x - quotient * safe
    if y.dtype.scalar.kind == "int":
        result = y.eq(-1).where(0, result)
    return y.eq(0).where(x, result)


def _is_safe(y: UOp) -> bool:
    """Whether a divisor comes from `_guarded`: 1 where it would trap."""
    is_choice = y.op is Ops.WHERE and y.src[1].op is Ops.CONST and y.src[1].arg == 1
    return is_choice and y.src[0].op in (Ops.OR, Ops.CMPEQ) and y.src[2] in y.src[0].toposort()


@DIVIDE.rule(
    "shift-to-machine",
    UPat((Ops.SHL, Ops.SHR), dtype=_INTEGERS, src=(UPat(name="x"), UPat(name="y")), name="shift"),
)
def shift_to_machine(shift: UOp, x: UOp, y: UOp) -> UOp | None:
    """A shift by less than the width; beyond it the result is 0, or all bits of the sign."""
    bits = 8 * x.dtype.itemsize
    if 0 <= y.vmin and y.vmax < bits:
        return None
    amount = y.cast(_UNSIGNED[y.dtype.itemsize].vec(y.dtype.lanes)) if y.vmin < 0 else y
    inside = x.alu(shift.op, y & (bits - 1))
    keeps_sign = shift.op is Ops.SHR and x.dtype.kind == "int"
    beyond = x >> (bits - 1) if keeps_sign else UOp.const(x.dtype, 0)
    return (amount < bits).where(inside, beyond)


def _traps(y: UOp) -> bool:
    return bool(y.vmin <= 0 <= y.vmax or (y.dtype.scalar.kind == "int" and y.vmin <= -1 <= y.vmax))


def _guarded(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    """A divisor that cannot trap, and the machine's quotient by it."""
    safe = (y.eq(0) | y.eq(-1)).where(1, y) if _traps(y) and y.dtype.scalar.kind == "int" else y
    if _traps(y) and y.dtype.scalar.kind == "uint":
        safe = y.eq(0).where(1, y)
    return safe, x.alu(Ops.IDIV, safe)


def _unguarded(y: UOp, result: UOp, by_minus_one: UOp) -> UOp:
    if not _traps(y):
        return result
    if y.dtype.scalar.kind == "int":
        result = y.eq(-1).where(by_minus_one, result)
    return y.eq(0).where(0, result)


TO_MACHINE = DIVIDE + FOLDING + IDENTITIES
