"""Both ends of a range of integers compared at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.render.programs import const, data, load, special
from tilegrad.base.dtype import dtypes
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx import PTXRenderer
from tilegrad.render.ptx_ranges import join_ranges

COUNT = 96
Condition = Callable[[UOp], UOp]
CONDITIONS: dict[str, tuple[Condition, Callable[[int], bool], int]] = {
    # What is asked, what it means, and how many comparisons are left.
    "from 1 to 57": (lambda x: (x < 1).logical_not() & (x < 57), lambda x: 1 <= x < 57, 1),
    "other order": (lambda x: (x < 57) & (x < 1).logical_not(), lambda x: 1 <= x < 57, 1),
    "a number on the left": (
        lambda x: const(4).alu(Ops.CMPLT, x) & (x < 9), lambda x: 4 < x < 9, 1,
    ),
    "of sums": (
        lambda x: (x + -3 < 0).logical_not() & (x + 5 < 40), lambda x: 3 <= x < 35, 1,
    ),
    "beside another": (
        lambda x: (x < 1).logical_not() & (x * 2 < 90) & (x < 57), lambda x: 1 <= x < 45, 2,
    ),
    "two ranges": (
        lambda x: (x < 9).logical_not() & (x * 3 < 30).logical_not() & (x < 80) & (x * 3 < 120),
        lambda x: 10 <= x < 40,
        2,
    ),
    "from 0": (lambda x: (x < 0).logical_not() & (x < 57), lambda x: x < 57, 1),
    "nothing": (lambda x: (x < 57).logical_not() & (x < 57), lambda x: False, 1),
    "no lower end": (lambda x: (x < 60) & (x < 57), lambda x: x < 57, 2),
}  # fmt: skip


def program_of(condition: UOp, x: UOp) -> list[UOp]:
    out, one, none = data(0, dtypes.int32, COUNT), const(1), const(0)
    value = UOp(Ops.WHERE, dtypes.int32, (condition, one, none))
    stored = out.store(x, value)
    return list(UOp.sink(out, stored).toposort())[:-1]


def compared(program: Sequence[UOp]) -> int:
    return sum(node.op is Ops.CMPLT for node in program)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_range_is_one_comparison_and_means_the_same(name: str) -> None:
    condition, meant, left = CONDITIONS[name]
    x = special("lidx0", COUNT)
    program = program_of(condition(x), x)
    joined = join_ranges(program)
    assert compared(joined) == left
    for each in (program, joined):
        found = memoryview(bytearray(4 * COUNT)).cast("i")
        execute(each, [found.cast("B")])
        assert found.tolist() == [int(meant(number)) for number in range(COUNT)]


def test_what_may_wrap_is_compared_twice() -> None:
    x = load(data(1, dtypes.int32, COUNT), special("lidx0", COUNT))
    condition = (x < 1).logical_not() & (x < 57)
    program = program_of(condition, special("lidx0", COUNT))
    assert compared(join_ranges(program)) == 2
    # x - low fits where low is 0, whatever x is.
    program = program_of((x < 0).logical_not() & (x < 57), special("lidx0", COUNT))
    joined = join_ranges(program)
    assert compared(joined) == 1
    values = [-(2**31), -1, 0, 56, 57, 2**31 - 1] * (COUNT // 6)
    out, given = (memoryview(bytearray(4 * COUNT)).cast("i") for _ in range(2))
    for position, value in enumerate(values):
        given[position] = value
    execute(joined, [out.cast("B"), given.cast("B")])
    assert out.tolist() == [int(0 <= value < 57) for value in values]


def test_the_text_compares_unsigned_numbers() -> None:
    x = special("lidx0", COUNT)
    program = program_of((x < 1).logical_not() & (x < 57), x)
    text = PTXRenderer(nv_target("sm_80")).render("range", program)
    assert text.count("setp.lt") == 1 and "setp.lt.u32" in text


def test_a_program_without_ranges_is_what_it_was() -> None:
    x = special("lidx0", COUNT)
    program = program_of((x < 60) & (x < 57), x)
    assert join_ranges(program) == program
