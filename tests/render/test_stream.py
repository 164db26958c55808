"""Stores around the caches: which ones, and that values are right at any address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Device, Tensor
from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.engine.program.stages import to_program
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.render.llvm import LLVMRenderer
from tilegrad.render.stream import ahead, read_once, streamed

SIZE = 1 << 12


def program(tensor: Tensor) -> list[UOp]:
    """The program of the one kernel behind `tensor`, whose buffers are numbered in order."""
    target = Device["CPU"].target
    return to_program(kernel_of(tensor, target), target)[1]


def vector_bytes() -> int:
    return Device["CPU"].target.vector_bytes


def rows() -> Tensor:
    return Tensor.empty(SIZE).realize()


def array(misaligned: int) -> Any:
    """Memory that begins so many bytes after a line of the cache."""
    room = np.zeros(SIZE + 64, np.float32)
    start = (misaligned - room.ctypes.data) % 64 // 4
    return room[start : start + SIZE]


def test_a_result_beyond_the_cache_streams() -> None:
    uops = program(rows() * 2)
    assert not streamed(uops, 0, vector_bytes())
    assert not streamed(uops, 4 * SIZE, vector_bytes())
    assert len(streamed(uops, 4 * SIZE - 1, vector_bytes())) >= 1


@pytest.mark.parametrize("misaligned", [0, 4, 16, 32, 60])
def test_values_at_any_address(misaligned: int) -> None:
    uops = program(rows() * 2 + 1)
    backend = Device["CPU"]
    source = LLVMRenderer(vector_bytes(), cache_bytes=64).render("kernel", uops)
    assert "nontemporal" in source
    out, x = array(misaligned), array(0)
    x[:] = np.arange(SIZE)
    loaded = backend.runtime.load("kernel", backend.compile(source))
    chunks = max((node.arg[1] for node in uops if node.op is Ops.SPECIAL), default=1)
    addresses = [out.ctypes.data, x.ctypes.data]
    backend.runtime.launch(loaded, addresses, (), (chunks, 1, 1), (1, 1, 1), wait=True)
    np.testing.assert_array_equal(out, np.arange(SIZE) * 2.0 + 1)


def test_what_is_asked_for() -> None:
    """Of three passes over a row the last; not of one pass, nor of rows that are too long."""

    def passes(count: int, length: int) -> list[UOp]:
        given = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(256 * length), (), 1)
        outer = UOp.range(256)
        found = [given, outer]
        for number in range(1, count + 1):
            inner = UOp.range(length // 4, number)
            index = outer * length + inner * 4
            load = UOp(Ops.LOAD, dtypes.float32.vec(4), (given, index))
            found += [inner, index, load, UOp(Ops.END, dtypes.void, (inner,))]
        return [*found, UOp(Ops.END, dtypes.void, (outer,))]

    assert not ahead(passes(1, 16), 2048)
    uops = passes(3, 16)
    loads = [node for node in uops if node.op is Ops.LOAD]
    assert ahead(uops, 256 * 16 * 4 - 1) == {loads[2]: 16}
    assert not ahead(uops, 256 * 16 * 4)
    assert not ahead(passes(2, 64), 4096)


@pytest.mark.parametrize(("step", "turns", "asks"), [(16, 256, True), (512, 256, False)])
def test_a_copy_asks_for_what_it_reads_next(step: int, turns: int, asks: bool) -> None:
    """Of runs that go on; what is far apart would crowd itself out of a cache."""
    size = step * turns
    given = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(size), (), 0)
    scratch = UOp(Ops.DEFINE_LOCAL, dtypes.float32.ptr(16 * turns, AddressSpace.SCRATCH), (), 0)
    loop = UOp.range(turns, 0, Axis.STAGE)
    load = given.load(loop * step, dtype=dtypes.float32.vec(16))
    store = scratch.store(loop * 16, load)
    uops = [given, scratch, loop, load.src[1], load, store.src[1], store]
    uops.append(UOp(Ops.END, dtypes.void, (loop,)))
    lead = 4096 // 64 * step
    assert ahead(uops, 8 * size) == ({load: lead} if asks else {})
    assert not ahead(uops, 4 * size * 16)


@pytest.mark.parametrize(
    ("length", "apart", "rows", "asks"),
    [(8, 4096, 1, True), (8, 128, 1, False), (2, 4096, 1, False), (8, 512, 4, False)],
)
def test_a_sum_over_short_runs_asks_for_the_next(
    length: int, apart: int, rows: int, asks: bool
) -> None:
    """Not where memory goes on behind the run, or behind the rows beside it, nor for single
    lines.
    """
    count = 64
    given = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(count * apart), (), 0)
    outer, inner = UOp.range(count, 0, Axis.REDUCE), UOp.range(length, 1, Axis.REDUCE)
    uops, loads = [given, outer, inner], []
    for row in range(rows):
        index = outer * apart + inner * 16 + row * 128
        loads.append(given.load(index, dtype=dtypes.float32.vec(16)))
        uops += [*index.src, index, loads[-1]]
    uops += [UOp(Ops.END, dtypes.void, (loop,)) for loop in (inner, outer)]
    assert ahead(uops, 8 * count * apart) == (dict.fromkeys(loads, apart) if asks else {})


def test_a_long_run_is_asked_for_once() -> None:
    """Not what fits into the caches, what is read again, short runs, nor where a loop stores."""

    def found(
        length: int = 1 << 12, turns: int = 1, cache_bytes: int = 1 << 12, **more: bool
    ) -> Any:
        given = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(length * 16), (), 0)
        around, loop = UOp.range(turns, 0), UOp.range(length, 1, Axis.REDUCE)
        load = given.load(loop * 16, dtype=dtypes.float32.vec(16))
        made = [given, *[around] * (turns > 1), loop, load.src[1], load]
        if more.get("stores"):
            made.append(given.store(load.src[1], load))
        if more.get("again"):
            made.append(given.load(load.src[1] + 1, dtype=dtypes.float32.vec(16)))
        ends = [UOp(Ops.END, dtypes.void, (each,)) for each in (loop, *[around] * (turns > 1))]
        asked = read_once([*made, *ends], cache_bytes)
        return {node is load: step for node, step in asked.items()}

    assert found() == {True: 512}
    assert not found(cache_bytes=1 << 18)
    assert not found(turns=2)
    assert not found(length=1 << 9, cache_bytes=1 << 6)
    assert not found(stores=True)
    assert not found(again=True)


def test_a_sum_asks_once() -> None:
    uops = program(Tensor.empty(3, 1 << 19).realize().sum(1))
    source = LLVMRenderer(vector_bytes(), cache_bytes=1 << 12).render("kernel", uops)
    assert source.count("i32 0, i32 0, i32 1") >= 1
    assert "prefetch" not in LLVMRenderer(vector_bytes(), 1 << 30).render("kernel", uops)
