"""PTX instructions of each op of a program, on one lane.

Every float instruction says how it rounds: without that `ptxas` may join a product and a sum. Ops
that an architecture lacks for a 16-bit float are done in float32 and rounded, which for a sum,
product, quotient or root gives the same as rounding once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.bounds import combined
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_casts import narrowed, rounded_to, to_float32
from tilegrad.render.ptx_code import Code, kind_of, letter, root

__all__ = ["compute", "free_maxima"]

_SUMS = {Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul"}
_FLOATS = {
    Ops.ADD: "add.rn",
    Ops.SUB: "sub.rn",
    Ops.MUL: "mul.rn",
    Ops.FDIV: "div.rn",
    Ops.SQRT: "sqrt.rn",
    Ops.RECIP: "rcp.rn",
    Ops.MULACC: "fma.rn",
}
_BITS = {Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor"}
_OF_BOOLS = {Ops.ADD: Ops.OR, Ops.SUB: Ops.XOR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}
_COMPARE = {Ops.CMPLT: "lt", Ops.CMPEQ: "eq", Ops.CMPNE: "ne"}
_DIVIDE = {Ops.IDIV: "div", Ops.MOD: "rem"}
# Ops whose results may leave the integers of 8 and 16 bits.
_OVERFLOWING = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL, Ops.IDIV, Ops.MULACC})
_SHORT = (dtypes.float16, dtypes.bfloat16)
_NATIVE_HALF = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.MULACC})
# bfloat16 has sums and products of its own from here on; fused ones are older.
_BFLOAT_SUMS = 90
# From here on `max.NaN`.
_NAN_MAX = 80


def compute(code: Code, node: UOp, operands: Sequence[str]) -> str:
    """One lane of `node`, of one lane of each source."""
    op, dtype, source = node.op, node.dtype.scalar, node.src[-1].dtype.scalar
    if op is Ops.WHERE:
        return _choose(code, dtype, *operands)
    if source is dtypes.bool:
        return _logic(code, op, operands)
    if op in _COMPARE:
        return _compare(code, _COMPARE[op], source, *operands)
    if dtype.is_float:
        return _float(code, node, dtype, operands)
    if op in _DIVIDE:
        return narrowed(code, _divide(code, node, operands), dtype)
    found = _integer(code, op, dtype, source, operands)
    if op in _OVERFLOWING and not _fits(node):
        return narrowed(code, found, dtype)
    return found


def _fits(node: UOp) -> bool:
    """Whether bounds show that no bit of the result has to be dropped."""
    if node.dtype.scalar.itemsize >= 4 or node.op not in _SUMS:
        return False
    left, right = [(int(source.vmin), int(source.vmax)) for source in node.src]
    low, high = combined(node.op, left, right)
    return bool(node.dtype.scalar.min <= low and high <= node.dtype.scalar.max)


def _missing(code: Code, op: Ops, dtype: DType) -> CompileError:
    return CompileError(
        f"render.ptx: {code.target.name} has no {op.name} of {dtype.name}", dtype=dtype
    )


def _choose(code: Code, dtype: DType, gate: str, one: str, other: str) -> str:
    kind = kind_of(dtype)
    if kind != "pred":
        return code.op(kind, f"selp.{kind}", one, other, gate)
    both = code.op("pred", "and.pred", gate, one)
    rest = code.op("pred", "and.pred", code.op("pred", "not.pred", gate), other)
    return code.op("pred", "or.pred", both, rest)


def _logic(code: Code, op: Ops, operands: Sequence[str]) -> str:
    op = _OF_BOOLS.get(op, op)
    if op is Ops.NEG or op is Ops.TRUNC:
        return operands[0]
    if op is Ops.MULACC:
        return code.op("pred", "or.pred", code.op("pred", "and.pred", *operands[:2]), operands[2])
    if op is Ops.CMPLT:
        return code.op("pred", "and.pred", code.op("pred", "not.pred", operands[0]), operands[1])
    if op is Ops.CMPEQ:
        return code.op("pred", "not.pred", code.op("pred", "xor.pred", *operands))
    if op is Ops.CMPNE:
        op = Ops.XOR
    if op not in _BITS:
        raise _missing(code, op, dtypes.bool)
    return code.op("pred", f"{_BITS[op]}.pred", *operands)


def _compare(code: Code, relation: str, dtype: DType, left: str, right: str) -> str:
    if dtype in _SHORT:
        left, right = to_float32(code, left, dtype), to_float32(code, right, dtype)
        dtype = dtypes.float32
    # NaN differs from everything.
    unordered = "u" if dtype.is_float and relation == "ne" else ""
    return code.op("pred", f"setp.{relation}{unordered}.{letter(dtype)}", left, right)


def _integer(code: Code, op: Ops, dtype: DType, amount: DType, operands: Sequence[str]) -> str:
    kind, name = kind_of(dtype), letter(dtype)
    bits = max(dtype.bits, 32)
    if op is Ops.MUL:
        return code.op(kind, f"mul.lo.{name}", *operands)
    if op in _SUMS:
        return code.op(kind, f"{_SUMS[op]}.{name}", *operands)
    if op in _BITS:
        return code.op(kind, f"{_BITS[op]}.b{bits}", *operands)
    if op is Ops.NEG:
        return code.op(kind, f"neg.s{bits}", *operands)
    if op is Ops.TRUNC:
        return operands[0]
    if op is Ops.MAX:
        return code.op(kind, f"max.{name}", *operands)
    if op is Ops.MULACC:
        return code.op(kind, f"mad.lo.{name}", *operands)
    if op in (Ops.SHL, Ops.SHR):
        value, count = operands
        if kind_of(amount) == "b64" and count.startswith("%"):
            count = code.op("b32", "cvt.u32.u64", count)
        instruction = f"shl.b{bits}" if op is Ops.SHL else f"shr.{name}"
        return code.op(kind, instruction, value, count)
    raise _missing(code, op, dtype)


def _divide(code: Code, node: UOp, operands: Sequence[str]) -> str:
    """C's quotient and remainder without the cases that the machine leaves open: by 0 the quotient
    is 0 and the remainder the dividend; by -1 they are the negation and 0.
    """
    left, right = operands
    dtype, divisor = node.dtype.scalar, node.src[1]
    kind, name, is_quotient = kind_of(dtype), letter(dtype), node.op is Ops.IDIV
    may_be_zero = divisor.vmin <= 0 <= divisor.vmax
    may_be_minus_one = dtype.kind == "int" and divisor.vmin <= -1 <= divisor.vmax
    is_zero = is_minus_one = ""
    safe = right
    if may_be_zero:
        is_zero = code.op("pred", f"setp.eq.{name}", right, "0")
        safe = code.op(kind, f"selp.{kind}", "1", safe, is_zero)
    if may_be_minus_one:
        is_minus_one = code.op("pred", f"setp.eq.{name}", right, "-1")
        safe = code.op(kind, f"selp.{kind}", "1", safe, is_minus_one)
    found = code.op(kind, f"{_DIVIDE[node.op]}.{name}", left, safe)
    if is_minus_one and is_quotient:
        negated = code.op(kind, f"neg.{name}", left)
        found = code.op(kind, f"selp.{kind}", negated, found, is_minus_one)
    if is_zero:
        found = code.op(kind, f"selp.{kind}", "0" if is_quotient else left, found, is_zero)
    return found


def _float(code: Code, node: UOp, dtype: DType, operands: Sequence[str]) -> str:
    op = node.op
    if op is Ops.NEG and dtype in _SHORT:
        return code.op("b16", "xor.b16", operands[0], code.in_register("0x8000", "b16"))
    if op is Ops.NEG:
        return code.op(kind_of(dtype), f"neg.{letter(dtype)}", *operands)
    if dtype in _SHORT and not _is_native(code, op, dtype):
        wide = [to_float32(code, operand, dtype) for operand in operands]
        if op is Ops.MAX:
            # One of the operands, so that nothing has to be rounded.
            gate = _larger(code, dtypes.float32, *wide)
            return code.op("b16", "selp.b16", operands[1], operands[0], gate)
        return rounded_to(code, _single(code, op, dtypes.float32, wide), dtype)
    if op is Ops.MAX:
        return _maximum(code, node, dtype, *operands)
    return _single(code, op, dtype, operands)


def _is_native(code: Code, op: Ops, dtype: DType) -> bool:
    if dtype is dtypes.float16:
        return op in _NATIVE_HALF
    return op is Ops.MULACC or (op in _NATIVE_HALF and code.capability >= _BFLOAT_SUMS)


def _single(code: Code, op: Ops, dtype: DType, operands: Sequence[str]) -> str:
    """One instruction of floats."""
    kind, name = kind_of(dtype), letter(dtype)
    if op is Ops.TRUNC:
        return code.op(kind, f"cvt.rzi.{name}.{name}", code.in_register(operands[0], kind))
    if op is Ops.EXP2_APPROX and dtype is dtypes.float32:
        return code.op(kind, "ex2.approx.ftz.f32", *operands)
    if op not in _FLOATS:
        raise _missing(code, op, dtype)
    return code.op(kind, f"{_FLOATS[op]}.{name}", *operands)


def _larger(code: Code, dtype: DType, left: str, right: str) -> str:
    """Whether the right one is the maximum: it is larger, or NaN."""
    name = letter(dtype)
    is_nan = code.op("pred", f"setp.nan.{name}", right, right)
    return code.op("pred", f"setp.gt.or.{name}", right, left, is_nan)


def _maximum(code: Code, node: UOp, dtype: DType, left: str, right: str) -> str:
    """The first of equal ones. Where either zero may come out, the machine's own serves."""
    kind = kind_of(dtype)
    if node in code.free_maxima and dtype is dtypes.float32 and code.capability >= _NAN_MAX:
        return code.op(kind, "max.NaN.f32", left, right)
    return code.op(kind, f"selp.{kind}", right, left, _larger(code, dtype, left, right))


def free_maxima(program: Sequence[UOp]) -> set[UOp]:
    """The maxima that may give either zero: those of a reduction, and those with a number that is
    not zero.

    A reduction is known by its accumulator, or by what another lane gives; what only goes into its
    maxima belongs to it.
    """
    users: dict[UOp, list[UOp]] = {}
    for node in program:
        for source in node.src:
            users.setdefault(source, []).append(node)
    inside: set[UOp] = set()
    for node in reversed(program):
        if node.op is Ops.SHUFFLE or node.op is Ops.MAX:
            reduces = node.op is Ops.MAX and any(
                root(source).op in (Ops.DEFINE_ACC, Ops.SHUFFLE) for source in node.src
            )
            if reduces or all(user in inside for user in users.get(node, ())):
                inside.add(node)
    never_equal = {
        node
        for node in program
        if node.op is Ops.MAX and any(each.op is Ops.CONST and each.arg for each in node.src)
    }
    return inside | never_equal
