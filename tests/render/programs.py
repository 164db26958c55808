"""Small programs by hand, as lowering would give them, which the tests of the renderers share."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

import pytest

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.hardware import cuda_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.cstyle import ClangRenderer

Program = list[UOp]
INT, FLOAT, HALF, BOOL = dtypes.int, dtypes.float, dtypes.half, dtypes.bool
MMA = cuda_target("sm_80").matrix_units[0]


def const(value: object, dtype: DType = INT) -> UOp:
    return UOp(Ops.CONST, dtype, (), value)


def data(slot: int, dtype: DType = FLOAT, size: int = 16) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), slot)


def special(name: str, extent: int) -> UOp:
    return UOp(Ops.SPECIAL, INT, (), (name, extent))


def loop(extent: int | UOp, number: int = 0, axis: Axis = Axis.REDUCE) -> UOp:
    return UOp(
        Ops.RANGE, INT, (const(extent) if isinstance(extent, int) else extent,), (number, axis)
    )


def end(counter: UOp) -> UOp:
    return UOp(Ops.END, dtypes.void, (counter,))


def load(buffer: UOp, index: UOp, *gate: UOp, lanes: int = 1) -> UOp:
    return UOp(Ops.LOAD, buffer.dtype.base.vec(lanes), (buffer, index, *gate))  # type: ignore[attr-defined]


def accumulator(init: UOp, number: int = 0) -> UOp:
    return UOp(Ops.DEFINE_ACC, init.dtype, (init,), number)


def assign(target: UOp, value: UOp) -> UOp:
    return UOp(Ops.ASSIGN, target.dtype, (target, value))


def fold(counter: UOp, gathered: UOp, value: UOp) -> tuple[Program, UOp]:
    """The tail of a reduction loop, and the accumulator after it."""
    step = assign(gathered, value)
    foot = end(counter)
    return [value, step, foot], gathered.after(step, foot)


# The programs. Each function is one kernel of the notes, or of this test suite.


def one_plus_one() -> Program:
    one = const(1.0, FLOAT)
    return [one, one + one]


def positions() -> Program:
    return [special("gidx0", 16), special("gidx1", 16)]


def empty() -> Program:
    return []


def store_199() -> Program:
    out, value, zero = data(0, INT), const(199), const(0)
    return [out, zero, value, out.store(zero, value)]


def add_16() -> Program:
    out, left, right = data(0), data(1), data(2)
    index = special("gidx0", 16)
    x, y = load(left, index), load(right, index)
    return [out, left, right, index, x, y, x + y, out.store(index, x + y)]


def add_4_4() -> Program:
    out, left, right = data(0), data(1), data(2)
    index = special("lidx0", 4) << 2
    x, y = load(left, index, lanes=4), load(right, index, lanes=4)
    total = UOp.stack([x.gep(lane) + y.gep(lane) for lane in range(4)])
    return [out, left, right, special("lidx0", 4), index, x, y, total, out.store(index, total)]


def add_2_8() -> Program:
    """UPCAST 0,8 of a 16-add: two groups of four lanes."""
    out, left, right = data(0), data(1), data(2)
    index = special("gidx0", 2) << 3
    program = [out, left, right, special("gidx0", 2), index]
    for offset in (index, index + 4):
        x, y = load(left, offset, lanes=4), load(right, offset, lanes=4)
        total = UOp.stack([x.gep(lane) + y.gep(lane) for lane in range(4)])
        program += [offset, x, y, total, out.store(offset, total)]
    return program


def dot_2() -> Program:
    out, left, right = data(0, INT), data(1, INT), data(2, INT)
    gathered, counter = accumulator(const(0)), loop(2)
    x, y = load(left, counter), load(right, counter)
    tail, result = fold(counter, gathered, gathered + x * y)
    store = out.store(const(0), result)
    return [out, left, right, gathered, counter, x, y, *tail, store]


def fill() -> Program:
    """The list of R7.3: a 16-wide fill with 0.5+0.5."""
    half, out, index = const(0.5, FLOAT), data(0), special("gidx0", 16)
    return [half, out, index, half + half, out.store(index, half + half)]


def single_add() -> Program:
    out, left, right, zero = data(0, INT, 1), data(1, INT, 1), data(2, INT, 1), const(0)
    x, y = load(left, zero), load(right, zero)
    return [out, left, right, zero, x, y, x + y, out.store(zero, x + y)]


def single_add_cast() -> Program:
    out, left, right, zero = data(0, FLOAT, 1), data(1, INT, 1), data(2, INT, 1), const(0)
    x, y = load(left, zero), load(right, zero)
    value = (x + y).cast(FLOAT)
    return [out, left, right, zero, x, y, x + y, value, out.store(zero, value)]


def add_seven() -> Program:
    """(a+4)+3 folded, four lanes."""
    out, left = data(0), data(1)
    index = special("lidx0", 4) << 2
    x = load(left, index, lanes=4)
    total = UOp.stack([x.gep(lane) + 7.0 for lane in range(4)])
    return [out, left, special("lidx0", 4), index, x, total, out.store(index, total)]


def row_sum() -> Program:
    out, rows = data(0, size=4), data(1)
    row, counter = special("gidx0", 4), loop(4)
    gathered = accumulator(const(0.0, FLOAT))
    x = load(rows, (row << 2) + counter)
    tail, result = fold(counter, gathered, gathered + x)
    return [out, rows, row, gathered, counter, x, *tail, out.store(row, result)]


def row_sum_unrolled() -> Program:
    """UNROLL 0,4: one load of four lanes, three adds."""
    out, rows = data(0, size=4), data(1)
    row = special("gidx0", 4)
    x = load(rows, row << 2, lanes=4)
    total = ((x.gep(0) + x.gep(1)) + x.gep(2)) + x.gep(3)
    return [out, rows, row, x, total, out.store(row, total)]


def row_sum_unrolled_2() -> Program:
    """UNROLL 0,2: `r_4_2_2`."""
    out, rows = data(0, size=4), data(1)
    row, counter = special("gidx0", 4), loop(2)
    gathered = accumulator(const(0.0, FLOAT))
    x = load(rows, (row << 2) + (counter << 1), lanes=2)
    tail, result = fold(counter, gathered, (gathered + x.gep(0)) + x.gep(1))
    return [out, rows, row, gathered, counter, x, *tail, out.store(row, result)]


def row_sum_upcast() -> Program:
    """UPCAST 0,4: one lane, four accumulators, one store of four lanes."""
    out, rows = data(0, size=4), data(1)
    counter = loop(4)
    gathered = [accumulator(const(0.0, FLOAT), number) for number in range(4)]
    loads = [load(rows, counter + 4 * number if number else counter) for number in range(4)]
    sums = [total + x for total, x in zip(gathered, loads, strict=True)]
    steps = [assign(total, value) for total, value in zip(gathered, sums, strict=True)]
    results = UOp.stack([total.after(*steps, end(counter)) for total in gathered])
    store = out.store(const(0), results)
    return [out, rows, *gathered, counter, *loads, *sums, *steps, end(counter), results, store]


def local_2() -> Program:
    """LOCAL 0,2 of a 16-add: `E_8_2`."""
    out, left, right = data(0), data(1), data(2)
    block, lane = special("gidx0", 8), special("lidx0", 2)
    index = lane + (block << 1)
    x, y = load(left, index), load(right, index)
    return [out, left, right, block, lane, index, x, y, x + y, out.store(index, x + y)]


def group_4() -> Program:
    """GROUP 0,4: lanes gather in shared memory, one of them adds up and writes."""
    out, rows = data(0, size=4), data(1)
    row, lane = special("gidx0", 4), special("lidx0", 4)
    shared = UOp(Ops.DEFINE_LOCAL, FLOAT.ptr(4, AddressSpace.SHARED), (), 0)
    x = load(rows, lane + (row << 2))
    put = shared.store(lane, x)
    meet = UOp(Ops.BARRIER, dtypes.void, (put,))
    gathered, counter = accumulator(const(0.0, FLOAT)), loop(4)
    y = load(shared.after(meet), counter)
    tail, result = fold(counter, gathered, gathered + y)
    store = out.store(row, result, lane.eq(0))
    return [out, rows, shared, row, lane, x, put, meet, gathered, counter, y, *tail, store]


def group_2(is_top: bool = False) -> Program:
    """The loop of GROUP 0,2, in which neighbours read together, or of GROUPTOP 0,2, in which each
    lane reads on.
    """
    rows, row, lane = data(1), special("gidx0", 4), special("lidx0", 2)
    shared = UOp(Ops.DEFINE_LOCAL, FLOAT.ptr(2, AddressSpace.SHARED), (), 0)
    gathered, counter = accumulator(const(0.0, FLOAT)), loop(2)
    near = (row << 2) + (lane << 1) + counter
    index = near if is_top else lane + (row << 2) + (counter << 1)
    x = load(rows, index)
    tail, result = fold(counter, gathered, gathered + x)
    return [rows, row, lane, shared, gathered, counter, index, x, *tail, shared.store(lane, result)]


def grouptop_2() -> Program:
    return group_2(is_top=True)


def padded_9() -> Program:
    """PADTO 0,4 of 9 elements: `E_12`."""
    out, left, right = data(0, size=9), data(1, size=9), data(2, size=9)
    index = special("gidx0", 12)
    gate, zero = index < 9, const(0.0, FLOAT)
    x, y = load(left, index, zero, gate), load(right, index, zero, gate)
    return [out, left, right, index, zero, gate, x, y, x + y, out.store(index, x + y, gate)]


def symbolic() -> Program:
    """A loop up to a variable."""
    out, rows, count = data(0, size=1), data(1), UOp.variable("dim", 1, 16, INT)
    gathered, counter = accumulator(const(0.0, FLOAT)), loop(count)
    x = load(rows, counter)
    tail, result = fold(counter, gathered, gathered + x)
    return [out, rows, count, gathered, counter, x, *tail, out.store(const(0), result)]


def every_value_of_a_variable() -> Program:
    """A variable 0..10 takes 11 values."""
    out, counter = data(0, INT, 11), loop(11)
    return [out, counter, out.store(counter, counter), end(counter)]


def half_cast() -> Program:
    """`E_8_32_4`: float4 to half4."""
    out, rows = data(0, HALF, 1024), data(1, FLOAT, 1024)
    block, lane = special("gidx0", 8), special("lidx0", 32)
    index = (block << 7) + (lane << 2)
    x = load(rows, index, lanes=4)
    value = UOp.stack([x.gep(number).cast(HALF) for number in range(4)])
    return [out, rows, block, lane, index, x, value, out.store(index, value)]


def matrix_unit() -> Program:
    """Two multiplications on one unit, the second onto the first."""
    out, left, right = data(0, FLOAT, 128), data(1, HALF, 256), data(2, HALF, 128)
    lane = special("lidx0", 32)
    four, eight = lane << 2, lane << 3
    a, b = load(left, eight, lanes=8), load(right, four, lanes=4)
    zero = const(0.0, FLOAT).broadcast(4)
    first = UOp(Ops.WMMA, zero.dtype, (a, b, zero), MMA)
    second = UOp(Ops.WMMA, zero.dtype, (a, b, first), MMA)
    return [out, left, right, lane, four, eight, a, b, zero, first, second, out.store(four, second)]


def bitcast() -> Program:
    out, rows, index = data(0, INT), data(1), special("gidx0", 16)
    x = load(rows, index)
    value = (x + 1.0).bitcast(INT)
    return [out, rows, index, x, value, out.store(index, value)]


def scatter_add() -> Program:
    out, rows, index = data(0), data(1), special("gidx0", 16)
    x = load(rows, index)
    return [out, rows, index, x, out.store(index, x, combine=Ops.ADD)]


def scalar_math() -> Program:
    out, rows, index = data(0), data(1), special("gidx0", 16)
    value = load(rows, index)
    functions = (Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.SQRT)
    for op in (*functions, Ops.RECIP, Ops.TRUNC, Ops.NEG):
        value = value.alu(op)
    value = value.alu(Ops.MULACC, load(rows, index), value).maximum(0.0)
    return [out, rows, index, value, out.store(index, value)]


def lane_gates() -> Program:
    """Four lanes of which only those inside nine elements are read and written."""
    out, rows = data(0, size=9), data(1, size=9)
    index = special("gidx0", 3) << 2
    lanes = UOp.stack([const(number) for number in range(4)])
    gate = (index.broadcast(4) + lanes) < const(9).broadcast(4)
    x = load(rows, index, const(0.0, FLOAT).broadcast(4), gate, lanes=4)
    return [out, rows, index, lanes, gate, x, out.store(index, x, gate)]


def vector_arithmetic() -> Program:
    """What only a target with vectors is given."""
    out, left, right = data(0), data(1), data(2)
    counter = loop(4, axis=Axis.LOOP)
    index = counter << 2
    x, y = load(left, index, lanes=4), load(right, index, lanes=4)
    value = (x < y).where(x * y, x.maximum(y)) + x.cast(INT).cast(FLOAT)
    value = value.alu(Ops.SQRT).gep(3, 2, 1, 0)
    return [out, left, right, counter, index, x, y, value, out.store(index, value), end(counter)]


PROGRAMS: dict[str, Callable[[], Program]] = {
    function.__name__: function
    for function in (
        one_plus_one,
        positions,
        empty,
        store_199,
        add_16,
        add_4_4,
        add_2_8,
        dot_2,
        fill,
        single_add,
        single_add_cast,
        add_seven,
        row_sum,
        row_sum_unrolled,
        row_sum_unrolled_2,
        row_sum_upcast,
        local_2,
        group_4,
        group_2,
        grouptop_2,
        padded_9,
        symbolic,
        every_value_of_a_variable,
        half_cast,
        matrix_unit,
        bitcast,
        scatter_add,
        scalar_math,
        lane_gates,
        vector_arithmetic,
    )
}
# The host has neither blocks nor matrix units.
ON_HOST = sorted(PROGRAMS.keys() - {"group_4", "group_2", "grouptop_2", "matrix_unit"})


def body(text: str) -> list[str]:
    """The lines of a kernel between its head and its last brace."""
    lines = text.splitlines()
    head = max(
        number for number, line in enumerate(lines) if line.endswith(") {") and line[0] != " "
    )
    return [line.strip() for line in lines[head + 1 : -1]]


def gcc(*arguments: str, source: str) -> None:
    """Run gcc on C from its standard input; skips the test where there is none."""
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("gcc is not installed")
    command = [found, "-std=gnu17", *ClangRenderer.flags, *arguments, "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{source}"


def check_syntax(sources: Sequence[str]) -> None:
    for source in sources:
        gcc("-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-variable", source=source)
