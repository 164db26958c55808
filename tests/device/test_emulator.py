"""The emulator: programs written by hand run lane by lane, and broken ones are refused."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

from tests.device.programs import FLOAT, HALF, INT, Program, blank, elements, filled
from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import CompileError, DeviceError, IndexBoundsError, InternalError
from tilegrad.device.emulator import TARGET
from tilegrad.device.registry import Device
from tilegrad.hardware import metal_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.python import render_python
from tilegrad.runtime.protocol import launch_dims, variable_names
from tilegrad.target import MatrixUnit

# blocks and lanes


def test_every_lane_of_every_block_runs_once() -> None:
    p = Program()
    out, given_ = p.data(0, 24), p.data(1, 24)
    block, lane = p.special("gidx0", 6), p.special("lidx0", 4)
    index = p.all(block * 4 + lane)
    p.all(out.store(index, given_.load(index) + 1.0))
    assert launch_dims(p.nodes).global_size == (6, 1, 1)
    assert launch_dims(p.nodes).local_size == (4, 1, 1)
    result = blank(24)
    p.run(result, filled(range(24)))
    assert elements(result) == [float(i + 1) for i in range(24)]


def test_launch_dims_of_three_axes_chunks_and_variables() -> None:
    n = UOp.variable("n", 1, 8)
    p = Program()
    p.special("gidx1", n * 2)
    p.special("lidx2", 3)
    dims = launch_dims(p.nodes, {"n": 5})
    assert (dims.global_size, dims.local_size) == ((1, 10, 1), (1, 1, 3))
    q = Program()
    q.special("chunk", 7)
    assert launch_dims(q.nodes).global_size == (7, 1, 1)


def test_chunks_are_blocks_of_one_lane() -> None:
    p = Program()
    out, chunk = p.data(0, 5, INT), p.special("chunk", 5)
    p.all(out.store(chunk, chunk * 10))
    result = blank(5, INT)
    p.run(result)
    assert elements(result, INT) == [0, 10, 20, 30, 40]


def test_variables_are_parameters() -> None:
    p = Program()
    out = p.data(0, 1, INT)
    n = p.add(Ops.DEFINE_VAR, INT, arg=("n", 1, 8))
    total = p.add(Ops.DEFINE_ACC, INT, p.const(0), arg=0)
    loop = p.loop(n)
    p.add(Ops.ASSIGN, INT, total, p.all(total + loop))
    end = p.end(loop)
    p.all(out.store(p.const(0), total.after(end)))
    assert variable_names(p.nodes) == ("n",)
    for count in (1, 5, 8):
        result = blank(1, INT)
        p.run(result, n=count)
        assert elements(result, INT) == [sum(range(count))]
    with pytest.raises(InternalError, match="n is 9"):
        p.run(blank(1, INT), n=9)


def test_after_reads_an_accumulator_where_it_stands() -> None:
    """A vector accumulator, and a copy of it taken before the second assignment."""
    p = Program()
    out = p.data(0, 4)
    pair = FLOAT.vec(2)
    acc = p.add(Ops.DEFINE_ACC, pair, p.const(1.0, pair), arg=0)
    five, kept = p.const(5.0, FLOAT), p.all(acc.gep(1))
    first = p.add(Ops.ASSIGN, pair, acc, p.add(Ops.VECTORIZE, pair, five, kept))
    old = p.add(Ops.AFTER, pair, acc, first)
    p.add(Ops.ASSIGN, pair, acc, p.const(7.0, pair))
    p.all(out.store(p.const(0), old))
    p.all(out.store(p.const(2), acc))
    result = blank(4)
    p.run(result)
    assert elements(result) == [5.0, 1.0, 7.0, 7.0]


# memory


def test_vectors_move_as_they_are() -> None:
    p = Program()
    out, given_ = p.data(0, 8, HALF), p.data(1, 8, HALF)
    four = HALF.vec(4)
    value = p.add(Ops.LOAD, four, given_, p.const(4))
    swapped = p.add(Ops.GEP, four, value, arg=(3, 2, 1, 0))
    p.all(out.store(p.const(0), swapped + p.const(1.0, four)))
    result = blank(8, HALF)
    p.run(result, filled(range(8), HALF))
    assert elements(result, HALF) == [8.0, 7.0, 6.0, 5.0, 0.0, 0.0, 0.0, 0.0]


def test_gates_keep_lanes_inside() -> None:
    """Nine elements computed as twelve, as PADTO makes them: what lies past the end is not
    touched.
    """
    p = Program()
    out, given_, lane = p.data(0, 9), p.data(1, 9), p.special("lidx0", 12)
    inside = p.all(lane < 9)
    value = p.add(Ops.LOAD, FLOAT, given_, lane, p.const(0.0, FLOAT), inside)
    p.all(out.store(lane, value + 1.0, inside))
    result = blank(12)
    p.run(result, filled(range(9)))
    assert elements(result) == [float(i + 1) for i in range(9)] + [0.0] * 3


def test_a_vector_gate_works_by_lane() -> None:
    p = Program()
    out, given_ = p.data(0, 4), p.data(1, 3)
    gate = p.all(UOp.stack([UOp.const(dtypes.bool, on) for on in (True, True, True, False)]))
    other = p.const(-1.0, FLOAT.vec(4))
    value = p.add(Ops.LOAD, FLOAT.vec(4), given_, p.const(0), other, gate)
    p.all(out.store(p.const(0), value))
    result = blank(4)
    p.run(result, filled([1.0, 2.0, 3.0]))
    assert elements(result) == [1.0, 2.0, 3.0, -1.0]
    q = Program()
    out = q.data(0, 3)
    q.all(out.store(q.const(0), q.const(2.0, FLOAT.vec(4)), q.all(gate)))
    result = blank(3)
    q.run(result)
    assert elements(result) == [2.0, 2.0, 2.0]


def test_a_store_may_combine() -> None:
    p = Program()
    out, rows, lane = p.data(0, 3), p.data(1, 6, INT), p.special("lidx0", 6)
    p.all(out.store(p.all(rows.load(lane)), p.const(1.5, FLOAT), combine=Ops.ADD))
    result = filled([0.0, 0.0, 10.0])
    p.run(result, filled([0, 2, 0, 0, 2, 1], INT))
    assert elements(result) == [4.5, 1.5, 13.0]


def test_scratch_belongs_to_a_lane_and_starts_as_nonsense() -> None:
    p = Program()
    out, lane = p.data(0, 4), p.special("lidx0", 2)
    scratch = p.local(0, 2, place=AddressSpace.SCRATCH)
    written = p.all(scratch.store(p.const(0), lane.cast(FLOAT)))
    late = p.add(Ops.AFTER, scratch.dtype, scratch, written)
    p.all(out.store(p.all(lane * 2), late.load(p.const(0))))
    p.all(out.store(p.all(lane * 2 + 1), late.load(p.const(1))))
    result = blank(4)
    p.run(result)
    assert [str(value) for value in elements(result)] == ["0.0", "nan", "1.0", "nan"]


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("place", [-1, 6, 8])
def test_an_access_outside_is_reported(place: int, vector: bool) -> None:
    dtype = FLOAT.vec(4) if vector else FLOAT
    if place == 6 and not vector:
        place = 9
    for is_store in (False, True):
        p = Program()
        out, given_ = p.data(0, 8), p.data(1, 8)
        p.special("lidx0", 3)
        index, start = p.const(place), p.const(0)
        if is_store:
            p.all(out.store(index, p.const(1.0, dtype)))
        else:
            p.all(out.store(start, p.all(given_.load(index, dtype=dtype))))
        with pytest.raises(IndexBoundsError) as caught:
            p.run(blank(64), blank(64))
        message = str(caught.value)
        assert f"outside data{0 if is_store else 1}, which has 8 elements" in message
        assert message.startswith("r: ")
        assert "instruction:" in message
        assert "lane:" in message


def test_memory_that_does_not_fit_the_program_is_refused() -> None:
    p = Program()
    p.all(p.data(0, 8).store(p.const(7), p.const(1.0, FLOAT)))
    with pytest.raises(IndexBoundsError, match="index 7 is outside data0, which has 7 elements"):
        p.run(blank(7))
    with pytest.raises(InternalError, match="read-only"):
        p.run(memoryview(bytes(32)))
    with pytest.raises(InternalError, match="no buffer is given for data0"):
        p.run()


# barriers


def grouped_sum(with_barrier: bool = True) -> Program:
    """Sixteen numbers by four lanes: each sums four, one lane sums the four sums."""
    p = Program()
    out, given_, lane = p.data(0, 1), p.data(1, 16), p.special("lidx0", 4)
    shared = p.local(1, 4)
    acc = p.add(Ops.DEFINE_ACC, FLOAT, p.const(0.0, FLOAT), arg=0)
    loop = p.loop(4)
    p.add(Ops.ASSIGN, FLOAT, acc, p.all(acc + given_.load(lane * 4 + loop)))
    end = p.end(loop)
    effect = p.all(shared.store(lane, acc.after(end)))
    if with_barrier:
        effect = p.add(Ops.BARRIER, dtypes.void, effect)
    total = p.add(Ops.DEFINE_ACC, FLOAT, p.const(0.0, FLOAT), arg=1)
    second = p.loop(4, 1)
    p.add(Ops.ASSIGN, FLOAT, total, p.all(total + shared.after(effect).load(second)))
    end = p.end(second)
    p.all(out.store(p.const(0), total.after(end), p.all(lane < 1)))
    return p


@pytest.mark.row("S0.4")
def test_a_block_shares_memory_across_a_barrier() -> None:
    result = blank(1)
    grouped_sum().run(result, filled(range(16)))
    assert elements(result) == [120.0]


@pytest.mark.row("S0.4")
def test_a_deleted_barrier_is_reported() -> None:
    with pytest.raises(InternalError) as caught:
        grouped_sum(with_barrier=False).run(blank(1), filled(range(16)))
    text = "lane 1 writes element 1 of shared1, which lane 0 read since the last barrier"
    assert text in str(caught.value)
    assert "shared1.write" in str(caught.value)


def staged_copy(first: bool = True, second: bool = True, again: bool = True) -> Program:
    """Three tiles of four elements, reversed through one shared tile; the flags leave out a
    barrier.
    """
    p = Program()
    out, given_, lane = p.data(0, 12), p.data(1, 12), p.special("lidx0", 4)
    shared = p.local(0, 4)
    loop = p.loop(3)
    effect = p.all(shared.store(lane, given_.load(loop * 4 + lane)))
    if first:
        effect = p.add(Ops.BARRIER, dtypes.void, effect)
    value = p.all(shared.after(effect).load(lane * -1 + 3))
    effect = p.all(out.store(loop * 4 + lane, value))
    if second:
        p.add(Ops.BARRIER, dtypes.void, effect)
    p.end(loop)
    return p


@pytest.mark.row("S0.4")
@pytest.mark.parametrize("missing", ["none", "first", "second"])
def test_a_reused_tile_needs_a_barrier_before_and_after(missing: str) -> None:
    p = staged_copy(first=missing != "first", second=missing != "second")
    result = blank(12)
    if missing == "none":
        p.run(result, filled(range(12)))
        assert elements(result) == [3.0, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]
    else:
        with pytest.raises(
            InternalError, match=r"of shared0, which lane . .* since the last barrier"
        ):
            p.run(result, filled(range(12)))


def test_several_readers_are_remembered() -> None:
    """Lane 2 writes what lanes 0, 1 and itself have read."""
    p = Program()
    out, lane = p.data(0, 3), p.special("lidx0", 3)
    shared = p.local(0, 3)
    stored = p.all(shared.store(lane, p.const(1.0, FLOAT)))
    ready = p.add(Ops.BARRIER, dtypes.void, stored)
    value = p.all(shared.after(ready).load(p.const(0)))
    p.all(out.store(lane, value))
    p.all(shared.store(p.const(0), value, p.all(lane.eq(2))))
    with pytest.raises(
        InternalError, match="lane 2 writes element 0 of shared0, which another lane"
    ):
        p.run(blank(3))


def test_two_writers_of_one_element_are_reported() -> None:
    p = Program()
    p.special("lidx0", 2)
    p.all(p.local(0, 1).store(p.const(0), p.const(1.0, FLOAT)))
    with pytest.raises(
        InternalError, match="lane 1 writes element 0 of shared0, which lane 0 wrote"
    ):
        p.run()


def test_blocks_may_not_touch_what_another_writes() -> None:
    p = Program()
    p.special("gidx0", 2)
    p.all(p.data(0, 1).store(p.const(0), p.const(1.0, FLOAT)))
    with pytest.raises(
        InternalError, match="lane 0 writes element 0 of data0, which another block wrote"
    ):
        p.run(blank(1))
    q = Program()
    chunk, data = q.special("chunk", 3), q.data(0, 4)
    q.all(data.store(chunk, data.load(chunk + 1)))
    with pytest.raises(
        InternalError, match="lane 0 writes element 1 of data0, which another chunk read"
    ):
        q.run(blank(4))


def test_lanes_of_a_block_may_not_race_in_global_memory() -> None:
    """Each lane stores; without a barrier the next may not read what its neighbour stored."""
    for with_barrier in (True, False):
        p = Program()
        out, lane = p.data(0, 5), p.special("lidx0", 4)
        effect = p.all(out.store(lane + 1, p.const(2.0, FLOAT)))
        if with_barrier:
            effect = p.add(Ops.BARRIER, dtypes.void, effect)
        value = p.all(out.after(effect).load(lane))
        if with_barrier:
            p.add(Ops.BARRIER, dtypes.void, value)
        p.all(out.store(lane, value))
        if with_barrier:
            result = blank(5)
            p.run(result)
            assert elements(result) == [0.0, 2.0, 2.0, 2.0, 2.0]
        else:
            with pytest.raises(
                InternalError, match="lane 1 reads element 1 of data0, which lane 0"
            ):
                p.run(blank(5))


def test_lanes_that_wait_at_different_barriers_are_reported() -> None:
    p = Program()
    lane = p.special("lidx0", 4)
    loop = p.loop(lane)
    p.add(Ops.BARRIER)
    p.end(loop)
    with pytest.raises(InternalError) as caught:
        p.run()
    assert "do not meet at the same barrier" in str(caught.value)
    assert "lane 0 at the end; lanes 1-3 at v2" in str(caught.value)


def test_each_block_has_shared_memory_of_its_own() -> None:
    p = Program()
    out, block = p.data(0, 2), p.special("gidx0", 2)
    shared = p.local(0, 1)
    early = p.all(shared.load(p.const(0)))
    p.all(out.store(block, early))
    p.all(shared.store(p.const(0), p.const(3.0, FLOAT)))
    result = blank(2)
    p.run(result)
    assert all(math.isnan(value) for value in elements(result))


# matrix units


def warp_matmul(unit: MatrixUnit, lane_dims: tuple[int, ...]) -> Program:
    """One multiply: each lane gathers its elements from row-major memory and scatters its
    results.
    """
    p = Program()
    out = p.data(0, unit.m * unit.n, unit.dtype_out)
    a, b = p.data(1, unit.m * unit.k, unit.dtype_in), p.data(2, unit.k * unit.n, unit.dtype_in)
    names = [p.special(f"lidx{axis}", extent) for axis, extent in enumerate(lane_dims)]
    lane, step = p.const(0), 1
    for name, extent in zip(names, lane_dims, strict=True):
        lane = p.all(lane + name * step)
        step *= extent

    def places(layout: Any, width: int) -> list[UOp]:
        """A table of the layout in the program itself: which place each lane has for element i."""
        found = []
        for i in range(len(layout[0])):
            value: UOp = UOp.const(INT, 0)
            for number, held in enumerate(layout):
                row, column = held[i]
                value = lane.eq(number).where(UOp.const(INT, row * width + column), value)
            found.append(p.all(value))
        return found

    left = p.all(UOp.stack([a.load(place) for place in places(unit.a_layout, unit.k)]))
    right = p.all(UOp.stack([b.load(place) for place in places(unit.b_layout, unit.n)]))
    kept = places(unit.c_layout, unit.n)
    start = p.const(0.0, unit.dtype_out.vec(len(kept)))
    made = p.add(Ops.WMMA, start.dtype, left, right, start, arg=unit)
    for i, place in enumerate(kept):
        p.all(out.store(place, made.gep(i)))
    return p


def unit_of(dtype_in: DType, dtype_out: DType) -> MatrixUnit:
    """The emulator's matrix unit for these dtypes, 16 x 8 x 16 as on NVIDIA hardware."""
    units = [unit for unit in TARGET.matrix_units if unit.k == 16]
    return next(u for u in units if (u.dtype_in, u.dtype_out) == (dtype_in, dtype_out))


@pytest.mark.row("M9.5")
@pytest.mark.parametrize("dims", [(32,), (8, 2, 2), (2, 4, 4)])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_the_mma_of_a_warp_is_the_product(dtype: DType, dims: tuple[int, ...]) -> None:
    unit = unit_of(dtype, FLOAT)
    rng = np.random.default_rng(1)
    a, b = rng.integers(-8, 8, (16, 16)), rng.integers(-8, 8, (16, 8))
    result = blank(16 * 8)
    warp_matmul(unit, dims).run(
        result, filled(a.ravel().tolist(), dtype), filled(b.ravel().tolist(), dtype)
    )
    assert elements(result) == (a @ b).ravel().tolist()


@pytest.mark.row("M9.5")
def test_the_mma_layout_is_the_one_of_ptx() -> None:
    """The positions that the feature map derives: g = lane / 4, t = lane % 4."""
    unit = unit_of(HALF, FLOAT)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        rows, columns = [g, g, g + 8, g + 8] * 2, [2 * t, 2 * t + 1] * 2
        columns += [column + 8 for column in columns]
        assert list(unit.a_layout[lane]) == list(zip(rows, columns, strict=True))
        assert list(unit.b_layout[lane]) == [
            (2 * t, g),
            (2 * t + 1, g),
            (2 * t + 8, g),
            (2 * t + 9, g),
        ]
        expected = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
        assert list(unit.c_layout[lane]) == expected


@pytest.mark.row("M9.8")
@pytest.mark.parametrize("unit", metal_target().matrix_units, ids=lambda unit: unit.name)
def test_an_emulated_simdgroup_multiply_equals_numpy(unit: MatrixUnit) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-8, 8, (8, 8)), rng.integers(-8, 8, (8, 8))
    assert {len(held) for held in (*unit.a_layout, *unit.b_layout, *unit.c_layout)} == {2}
    result = blank(64, unit.dtype_out)
    given_ = [filled(matrix.ravel().tolist(), unit.dtype_in) for matrix in (a, b)]
    warp_matmul(unit, (32,)).run(result, *given_)
    assert elements(result, unit.dtype_out) == (a @ b).ravel().tolist()


def test_two_warps_of_a_block_multiply_apart() -> None:
    """Each warp of 32 lanes gets its own product; only the first stores, by its gate."""
    unit = unit_of(HALF, FLOAT)
    p = Program()
    out, lane = p.data(0, 64 * 4), p.special("lidx0", 64)
    warp = p.all((lane // 32 + 1).cast(HALF))
    a, b = p.all(warp.broadcast(8)), p.const(1.0, HALF.vec(4))
    made = p.add(Ops.WMMA, FLOAT.vec(4), a, b, p.const(0.5, FLOAT.vec(4)), arg=unit)
    p.all(out.store(lane * 4, made))
    result = blank(256)
    p.run(result)
    assert elements(result) == [16.5] * 128 + [32.5] * 128


def test_a_matrix_unit_needs_whole_warps_that_agree() -> None:
    unit = unit_of(HALF, FLOAT)
    with pytest.raises(InternalError, match="32 lanes exchange values, or use a matrix unit"):
        warp_matmul(unit, (16,)).run(blank(128), blank(256, HALF), blank(128, HALF))
    p = Program()
    lane = p.special("lidx0", 32)
    loop = p.loop(p.all(lane // 31 + 1))
    zero = p.const(0.0, FLOAT.vec(4))
    p.add(
        Ops.WMMA, FLOAT.vec(4), p.const(0.0, HALF.vec(8)), p.const(0.0, HALF.vec(4)), zero, arg=unit
    )
    p.end(loop)
    with pytest.raises(InternalError, match="lanes 0-30 at the end; lane 31 at v"):
        p.run()


def test_lanes_that_hold_one_element_must_agree() -> None:
    unit = MatrixUnit(
        "twice", 1, 1, 1, 2, HALF, HALF, (((0, 0),),) * 2, (((0, 0),),) * 2, (((0, 0),),) * 2
    )
    p = Program()
    lane = p.special("lidx0", 2)
    one, value = p.const(1.0, HALF), p.all(lane.cast(HALF))
    p.add(Ops.WMMA, HALF.vec(2), value, one, one, arg=unit)
    with pytest.raises(InternalError, match=r"twice: lanes disagree on element \(0, 0\) of a"):
        p.run()


# the device


@pytest.mark.row("S0.1")
def test_the_device_runs_a_program_by_hand() -> None:
    device = Device["EMU"]
    runtime = device.runtime
    p = Program()
    out, given_, lane = p.data(0, 4, INT), p.data(1, 4, INT), p.special("lidx0", 4)
    n = p.add(Ops.DEFINE_VAR, INT, arg=("n", 0, 9))
    p.all(out.store(lane, given_.load(lane) * n))
    program = runtime.load("E_4", device.compile(device.render("E_4", p.nodes)))
    handles = [runtime.allocate(16), runtime.allocate(16)]
    runtime.copy_in(handles[1], memoryview(struct.pack("4i", 1, 2, 3, 4)))
    dims = launch_dims(p.nodes)
    seconds = runtime.launch(program, handles, [7], dims.global_size, dims.local_size, wait=True)
    assert seconds is not None
    assert seconds > 0
    result = memoryview(bytearray(16))
    runtime.copy_out(result, handles[0])
    assert struct.unpack("4i", result) == (7, 14, 21, 28)
    assert runtime.launch(program, handles, [7], dims.global_size, dims.local_size) is None


@pytest.mark.row("M7.4")
def test_too_many_lanes_or_too_much_shared_memory_is_refused() -> None:
    device = Device["EMU"]
    p = Program()
    lane = p.special("lidx0", 2048)
    p.all(p.local(0, TARGET.block_bytes // 4 + 1).store(lane, p.const(0.0, FLOAT)))
    program = device.runtime.load("E", device.compile(device.render("E", p.nodes)))
    with pytest.raises(DeviceError) as caught:
        device.runtime.launch(program, [], [], (1, 1, 1), (2048, 1, 1))
    assert "2048 lanes in a block" in str(caught.value)
    assert str(TARGET.block_lanes) in str(caught.value)
    with pytest.raises(DeviceError, match=f"{TARGET.block_bytes + 4} bytes of shared memory"):
        device.runtime.launch(program, [], [], (1, 1, 1), (4, 1, 1))


def test_its_memory_is_out_of_the_hosts_reach() -> None:
    buffer = Device["EMU"].buffer(4, INT)
    assert buffer.host_view() is None


def test_what_cannot_stand_in_a_program_is_refused() -> None:
    with pytest.raises(CompileError, match="RESHAPE node in a program"):
        render_python("E", [UOp(Ops.RESHAPE, FLOAT, (UOp.const(FLOAT, 1.0),), (1,))])
    p = Program()
    for number in range(25):
        p.loop(1, number)
    with pytest.raises(CompileError, match="nested loops"):
        render_python("E", p.nodes)


def test_a_large_unrolled_program_compiles() -> None:
    p = Program()
    out = p.data(0, 1)
    value = p.all(p.data(1, 1).load(p.const(0)))
    for _ in range(3000):
        value = value * 1.0 + 1.0
    p.all(out.store(p.const(0), value))
    result = blank(1)
    p.run(result, filled([0.0]))
    assert elements(result) == [3000.0]
