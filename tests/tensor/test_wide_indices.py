"""More elements than 32 bits count: by shape alone in every run, with memory at night."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.lower.test_results import TARGET
from tests.schedule.plans import plan
from tilegrad import Tensor, dtypes
from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.base.errors import InternalError, ShapeError
from tilegrad.engine.program.stages import to_program
from tilegrad.ir import Ops, UOp
from tilegrad.ir.definition import Stage
from tilegrad.ir.spec import find_narrow, verify

SIZE = 2**31 + 10


def empty() -> Tensor:
    """Nothing of it is allocated: kernels are made, not run."""
    return Tensor.empty(SIZE, dtype=dtypes.uint8)


def programs(value: Tensor) -> list[list[UOp]]:
    items = plan(value, target=TARGET).items
    return [to_program(item.ast, TARGET)[1] for item in items if item.ast is not None]


COMPUTED: dict[str, Callable[[], Tensor]] = {
    "elementwise": lambda: empty() + 1,
    "transposed": lambda: Tensor.empty(2**16, 2**16, dtype=dtypes.uint8).T.contiguous(),
    "reversed": lambda: empty().flip(0) + 1,
    "rows": lambda: Tensor.empty(3, 2**30, dtype=dtypes.uint8).max(1),
    "argmax": lambda: empty().argmax(),
    "argmin": lambda: empty().argmin(),
    "arange": lambda: Tensor.arange(SIZE),
    "picked": lambda: empty()[Tensor([1, 2])],
    "concatenated": lambda: empty().cat(empty()),
    "bytes": lambda: Tensor.empty(2**30 - 5, dtype=dtypes.float64) * 2,
}


def is_wide(program: list[UOp]) -> bool:
    """Whether some access has an index of 64 bits, or nothing but a slice's own position."""
    accesses = [node for node in program if node.op in (Ops.LOAD, Ops.STORE)]
    return any(node.src[1].dtype is dtypes.int64 for node in accesses)


@pytest.mark.parametrize("name", [name for name in COMPUTED if name != "bytes"])
def test_indices_have_64_bits_where_they_must(name: str) -> None:
    """`verify` has proved each index of the programs; some of them must be wide."""
    assert any(is_wide(program) for program in programs(COMPUTED[name]()))


def test_indices_that_fit_stay_narrow() -> None:
    """Elements count, not bytes."""
    assert not any(is_wide(program) for program in programs(COMPUTED["bytes"]()))


@pytest.mark.parametrize("name", ["elementwise", "reversed", "transposed"])
def test_an_index_narrowed_to_32_bits_is_refused(name: str) -> None:
    """The program of more elements than int32 counts, with every int64 made int32."""
    (program,) = programs(COMPUTED[name]())
    made: dict[UOp, UOp] = {}
    for node in program:
        dtype = dtypes.int32 if node.dtype is dtypes.int64 else node.dtype
        made[node] = UOp(node.op, dtype, tuple(made[source] for source in node.src), node.arg)
    verify(program, Stage.PROGRAM, after="lower")
    with pytest.raises(InternalError, match="its index wraps around"):
        verify(list(dict.fromkeys(made.values())), Stage.PROGRAM, after="lower")


def test_a_quotient_times_its_divisor_is_no_more_than_what_was_divided() -> None:
    """Of 2**28 at most, divided by an area of 1 to 2**18 that a launch says, and multiplied by it
    again, by 64 bits: no such index wraps around.
    """
    side = UOp.variable("side", 1, 512, dtypes.int32)
    area = side * side
    position = UOp.variable("position", 0, 1 << 28, dtypes.int32)
    wide = area.cast(dtypes.int64)
    first = UOp(Ops.IDIV, dtypes.int32, (position, area)).cast(dtypes.int64) * wide
    again = UOp(Ops.IDIV, dtypes.int64, (first, wide)) * wide
    memory = UOp(Ops.DEFINE_GLOBAL, Pointer(dtypes.float32, 1 << 29, AddressSpace.GLOBAL), (), 0)
    load = UOp(Ops.LOAD, dtypes.float32, (memory, again))
    assert find_narrow(load.toposort()) is None
    twice = again * wide
    load = UOp(Ops.LOAD, dtypes.float32, (memory, twice * wide))
    assert find_narrow(load.toposort()) is not None


@pytest.mark.parametrize("name", ["argmax", "argmin", "arange"])
def test_positions_beyond_32_bits_are_int64(name: str) -> None:
    assert COMPUTED[name]().dtype is dtypes.int64


def test_positions_among_fewer_are_int32() -> None:
    assert Tensor.empty(2**31 - 1, dtype=dtypes.uint8).argmax().dtype is dtypes.int32
    assert Tensor.arange(10).dtype is dtypes.int32


def test_the_end_of_a_long_range() -> None:
    assert Tensor.arange(SIZE)[-3:].tolist() == [SIZE - 3, SIZE - 2, SIZE - 1]
    assert Tensor.arange(SIZE)[2**31 - 1 : 2**31 + 2].tolist() == [2**31 - 1, 2**31, 2**31 + 1]


@pytest.mark.parametrize("name", ["argsort", "sort"])
def test_what_cannot_be_ordered_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=f"{SIZE} elements along the axis"):
        getattr(empty(), name)()
    with pytest.raises(ShapeError, match=f"topk: {SIZE} elements along the axis"):
        empty().topk(3)


@pytest.mark.nightly
def test_bytes_beyond_32_bits_in_memory() -> None:
    """2.3e9 of them: positions, values and counts behind the 2**31st."""
    size = 2_300_000_000
    array = np.zeros(size, np.uint8)
    array[2_200_000_000], array[-1] = 7, 3
    x = Tensor(array)
    assert x.argmax().item() == 2_200_000_000
    assert (x.max() - x).argmin().item() == 2_200_000_000
    assert x.ne(0).argmax().item() == 2_200_000_000
    assert x[2_200_000_000].item() == 7
    assert x[-2:].tolist() == [0, 3]
    assert x.flip(0)[0].item() == 3
    assert x[Tensor([2_200_000_000, size - 1], dtype=dtypes.int64)].tolist() == [7, 3]
    assert x.cast(dtypes.int64).sum().item() == 10
