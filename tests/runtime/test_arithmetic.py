"""What the arithmetic of programs in Python gives: that of the interpreter, to the bit."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.device.programs import FLOAT, HALF, INT, Program, blank, elements, filled
from tilegrad.base.dtype import DType, dtypes, truncate
from tilegrad.ir.args import BufferArg
from tilegrad.ir.interpret import interpret
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.dtype_arithmetic import arithmetic, decode


def rounded(exact: Fraction, digits: int, smallest: int, largest: Fraction) -> float:
    """`exact` to the nearest float of so many digits, ties to even; `smallest` is the exponent of
    the least bit.
    """
    if exact == 0:
        return 0.0
    exponent = 0
    size = abs(exact)
    while size >= 2 ** (exponent + 1):
        exponent += 1
    while size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, smallest)
    found = round(exact / unit) * unit
    return math.copysign(math.inf, exact) if abs(found) > largest else float(found)


FORMATS = {
    dtypes.float32: (24, -149, Fraction((2 - 2**-23) * 2.0**127)),
    dtypes.float16: (11, -24, Fraction(65504)),
    dtypes.bfloat16: (8, -133, Fraction((2 - 2**-7) * 2.0**127)),
    dtypes.float64: (53, -1074, Fraction((2 - 2**-52) * 2.0**1023)),
}
FUNCTIONS = arithmetic()


def floats_of(dtype: DType) -> st.SearchStrategy[float]:
    bits = st.integers(0, (1 << dtype.bits) - 1)
    values = bits.map(lambda b: decode(b.to_bytes(dtype.itemsize, "little"), dtype)[0])
    near = st.integers(-300, 300).map(lambda i: truncate(i / 16, dtype))
    return (values | near).filter(math.isfinite)


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
@given(data=st.data())
def test_a_fused_multiply_add_rounds_once(dtype: DType, data: st.DataObject) -> None:
    x, y, z = (data.draw(floats_of(dtype)) for _ in range(3))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    found = FUNCTIONS[f"fma_{dtype.name}"](x, y, z)
    assert found == rounded(exact, *FORMATS[dtype])


def test_a_fused_multiply_add_near_a_tie() -> None:
    """Rounding to double first would make these exact ties, which then round the wrong way."""
    fma = FUNCTIONS["fma_float32"]
    tiny = 2.0**-60
    assert fma(1.0 + 2.0**-12, 1.0 + 2.0**-12, tiny) == 1.0 + 2.0**-11 + 2.0**-23
    assert fma(2.0**12 + 1, 2.0**12 + 1, tiny) == float(2**24 + 2**13 + 2)
    assert fma(2.0**12 + 1, 2.0**12 + 1, -tiny) == float(2**24 + 2**13)
    assert math.isnan(fma(math.inf, 0.0, 1.0))
    assert fma(math.inf, 1.0, 1.0) == math.inf
    assert math.copysign(1.0, FUNCTIONS["fma_float64"](-1.0, 0.0, -0.0)) == -1.0


@pytest.mark.parametrize("dtype", [dtypes.float32, HALF, dtypes.bfloat16], ids=lambda d: d.name)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_a_double(dtype: DType, value: float) -> None:
    assert FUNCTIONS[dtype.name](value) == rounded(Fraction(value), *FORMATS[dtype])


@given(value=st.integers(-(2**63), 2**64 - 1))
def test_an_integer_becomes_the_nearest_float(value: int) -> None:
    found = FUNCTIONS["float32"](FUNCTIONS["odd"](value))
    assert found == rounded(Fraction(value), *FORMATS[FLOAT])


_UNARY = (
    Ops.NEG, Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.SQRT, Ops.RECIP, Ops.TRUNC,
)  # fmt: skip
_BINARY = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
_INTEGER = (
    Ops.FLOORDIV,
    Ops.FLOORMOD,
    Ops.IDIV,
    Ops.MOD,
    Ops.AND,
    Ops.OR,
    Ops.XOR,
    Ops.SHL,
    Ops.SHR,
)
SPECIAL_FLOATS = [0.0, -0.0, 1.0, -2.5, 3.0, math.inf, -math.inf, math.nan, 6e4]


def cases() -> list[tuple[Ops, DType]]:
    found = [(op, dtype) for op in (*_UNARY, *_BINARY) for dtype in dtypes.floats]
    integers = (*(op for op in _BINARY if op is not Ops.FDIV), *_INTEGER, Ops.NEG)
    found += [(op, dtype) for op in integers for dtype in (*dtypes.signed, *dtypes.unsigned)]
    logic = (Ops.AND, Ops.OR, Ops.XOR, Ops.CMPNE, Ops.CMPEQ, Ops.CMPLT, Ops.MAX, Ops.ADD, Ops.MUL)
    return found + [(op, dtypes.bool) for op in logic]


def samples(op: Ops, dtype: DType) -> list[Any]:
    if dtype is dtypes.bool:
        return [False, True]
    if dtype.is_float:
        values = (
            [*SPECIAL_FLOATS, 1e18] if dtype is dtypes.bfloat16 else [*SPECIAL_FLOATS, 3e38, 1e-40]
        )
        return [truncate(value, dtype) for value in values]
    if op in (Ops.SHL, Ops.SHR):
        return [0, 1, 5, 7]
    return [dtype.min, dtype.max, 0, 1, 2, 7, 100, *([-1, -7] if dtype.kind == "int" else [])]


def as_text(values: list[Any]) -> list[str]:
    return [repr(value) for value in values]


@pytest.mark.parametrize(
    ("op", "dtype"), cases(), ids=lambda case: getattr(case, "name", str(case))
)
def test_every_op_means_what_the_interpreter_says(op: Ops, dtype: DType) -> None:
    values = samples(op, dtype)
    arity = 1 if op in _UNARY else 2
    rows = [(x,) if arity == 1 else (x, y) for x in values for y in (values if arity == 2 else [0])]
    out_dtype = dtypes.bool if op.is_boolean else dtype
    count = len(rows)

    leaves = [UOp(Ops.BUFFER, dtype, (), BufferArg(i, "CPU", count)) for i in range(arity)]
    columns = {i: [row[i] for row in rows] for i in range(arity)}
    expected = interpret(UOp(op, out_dtype, tuple(leaves)), columns)

    p = Program()
    out = p.data(0, count, out_dtype)
    sources = [p.data(1 + i, count, dtype) for i in range(arity)]
    lane = p.special("lidx0", count)
    loaded = [p.all(source.load(lane)) for source in sources]
    p.all(out.store(lane, p.add(op, out_dtype, *loaded)))
    result = blank(count, out_dtype)
    p.run(result, *[filled(columns[i], dtype) for i in range(arity)])
    assert as_text(elements(result, out_dtype)) == as_text(expected)


@pytest.mark.parametrize("source", dtypes.all, ids=lambda d: d.name)
@pytest.mark.parametrize("target", dtypes.all, ids=lambda d: d.name)
def test_casts_mean_what_the_interpreter_says(source: DType, target: DType) -> None:
    values = samples(Ops.CAST, source)
    if source is dtypes.float64 and target is dtypes.bfloat16:
        values = [value for value in values if abs(value) < 1e30]
    leaf = UOp(Ops.BUFFER, source, (), BufferArg(0, "CPU", len(values)))
    expected = interpret(UOp(Ops.CAST, target, (leaf,)), {0: values})
    p = Program()
    out, given_ = p.data(0, len(values), target), p.data(1, len(values), source)
    lane = p.special("lidx0", len(values))
    p.all(out.store(lane, p.all(given_.load(lane)).cast(target)))
    result = blank(len(values), target)
    p.run(result, filled(values, source))
    assert as_text(elements(result, target)) == as_text(expected)


def test_bitcasts_may_change_the_number_of_lanes() -> None:
    p = Program()
    out, given_ = p.data(0, 2, dtypes.uint16), p.data(1, 1)
    value = p.all(given_.load(p.const(0)))
    p.all(out.store(p.const(0), p.add(Ops.BITCAST, dtypes.uint16.vec(2), value)))
    result = blank(2, dtypes.uint16)
    p.run(result, filled([1.0]))
    assert elements(result, dtypes.uint16) == [0, 0x3F80]


def test_where_and_multiply_add() -> None:
    p = Program()
    out, given_, lane = p.data(0, 3), p.data(1, 3), p.special("lidx0", 3)
    value = p.all(given_.load(lane))
    sums = p.add(Ops.MULACC, FLOAT, value, value, p.const(0.5, FLOAT))
    p.all(out.store(lane, (value < 2.0).where(sums, UOp.const(FLOAT, -1.0))))
    result = blank(3)
    p.run(result, filled([1.0, 2.0, math.nan]))
    assert elements(result) == [1.5, -1.0, -1.0]


def test_integers_wrap_in_the_middle_of_an_expression() -> None:
    p = Program()
    out, given_ = p.data(0, 1, INT), p.data(1, 1, INT)
    value = p.all(given_.load(p.const(0)))
    p.all(out.store(p.const(0), (value * 65537 * 65537) // 3))
    result = blank(1, INT)
    p.run(result, filled([7], INT))
    assert elements(result, INT) == [truncate(7 * 65537 * 65537, INT) // 3]


def test_a_random_word_is_the_same_in_a_program() -> None:
    """Wrap-around, shifts and masks of uint32, as threefry needs them."""
    word = dtypes.uint32
    p = Program()
    out, given_ = p.data(0, 1, word), p.data(1, 1, word)
    x = p.all(given_.load(p.const(0)))
    p.all(out.store(p.const(0), ((x << 13) | (x >> 19)) ^ (x + 0x9E3779B9)))
    result = blank(1, word)
    p.run(result, filled([0xDEADBEEF], word))
    v = 0xDEADBEEF
    rotated = (v << 13 | v >> 19) & (2**32 - 1)
    assert elements(result, word) == [rotated ^ ((v + 0x9E3779B9) & (2**32 - 1))]
