"""STAGE on targets with blocks: tiles of operands in shared memory, their values and their
accesses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import driver
from tests.device.ptx.device import simulated
from tests.device.ptx.parse import Entry, parse
from tests.optimize.kernels import (
    CUDA,
    buffer,
    conv2d,
    good_opts,
    kernel,
    matmul,
    opt,
    permute,
    program,
    run,
    running,
    shaped,
    softmax,
)
from tilegrad import Context, Tensor
from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.base.errors import InternalError, OptError
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.hardware import cuda_target, opencl_target, webgpu_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side, axes_of
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count

TILE, STAGE, LOCAL, UPCAST, UNROLL, TC = (
    OptOps.TILE, OptOps.STAGE, OptOps.LOCAL, OptOps.UPCAST, OptOps.UNROLL, OptOps.TC,
)  # fmt: skip
nightly = pytest.mark.nightly
LEFT, RIGHT = map(ReduceOperand, Side)
# A block of 8x8 lanes, each with 4x4 results, 8 terms at a time.
OPTS = [
    opt(TILE, 0, 32), opt(TILE, 2, 32), opt(TILE, 4, 8),
    opt(STAGE, 4, (LEFT, (1, 0), 4)), opt(STAGE, 4, (RIGHT, (1, 0), 4)),
    opt(UPCAST, 1, 4), opt(LOCAL, 1, 8), opt(UPCAST, 2, 4), opt(LOCAL, 2, 8), opt(UNROLL, 1, 0),
]  # fmt: skip


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(
    m: int, k: int, n: int, *, left_turned: bool = False, right_turned: bool = False
) -> tuple[UOp, dict[int, Any], Any]:
    """The graph, its inputs and the values."""
    a = normal(*((k, m) if left_turned else (m, k)))
    b = normal(*((n, k) if right_turned else (k, n)), seed=1)
    left, right = buffer(0, *a.shape), buffer(1, *b.shape)
    left = permute(left, 1, 0) if left_turned else left
    right = permute(right, 1, 0) if right_turned else right
    sides = [each.astype(np.float64) for each in (a, b)]
    wanted = (sides[0].T if left_turned else sides[0]) @ (sides[1].T if right_turned else sides[1])
    return matmul(left, right), {0: a, 1: b}, wanted


def is_staged(ast: UOp, target: Target = CUDA) -> bool:
    return any(move.op is STAGE for move in good_opts(ast, target))


def check(value: UOp, inputs: dict[int, Any], wanted: Any, target: Target = CUDA) -> None:
    assert is_staged(kernel(value, target=target), target)
    found = run(value, inputs, None, target).reshape(wanted.shape)
    assert np.abs(found - wanted).max() <= 1e-6 * np.abs(wanted).max() * math.sqrt(64) * 4


@pytest.mark.row("S1.5", "R4.6")
@pytest.mark.parametrize(
    "target",
    [CUDA, *(pytest.param(each, marks=nightly) for each in (opencl_target(), webgpu_target()))],
    ids=lambda target: target.name,
)
@pytest.mark.parametrize("left_turned", [False, pytest.param(True, marks=nightly)])
def test_a_product_of_staged_operands(target: Target, left_turned: bool) -> None:
    check(*product(60, 64, 62, left_turned=left_turned), target)


@nightly
def test_a_transposed_right_side_and_a_batch() -> None:
    check(*product(128, 40, 96, right_turned=True))
    a, b = normal(2, 60, 48), normal(2, 48, 64, seed=1)
    value = matmul(buffer(0, 2, 60, 48), buffer(1, 2, 48, 64))
    check(value, {0: a, 1: b}, a.astype(np.float64) @ b)


@pytest.mark.row("M9.1", "S1.5")
@pytest.mark.parametrize("left_turned", [False, pytest.param(True, marks=nightly)])
@pytest.mark.parametrize("right_turned", [False, pytest.param(True, marks=nightly)])
def test_a_matrix_unit_reads_staged_operands(left_turned: bool, right_turned: bool) -> None:
    """Odd sizes: 61 rows, 90 terms, 63 columns."""
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (90, 61) if left_turned else (61, 90)).astype(np.float16)
    b = rng.integers(-4, 5, (63, 90) if right_turned else (90, 63)).astype(np.float16)
    left, right = buffer(0, *a.shape, dtype=dtypes.half), buffer(1, *b.shape, dtype=dtypes.half)
    left = permute(left, 1, 0) if left_turned else left
    right = permute(right, 1, 0) if right_turned else right
    value = matmul(left, right, total=dtypes.float) * 0.5 + 1.0
    opts = good_opts(kernel(value))
    assert [move.op for move in opts].count(STAGE) == 2 and TC in [move.op for move in opts]
    wide = [each.astype(np.float64) for each in (a, b)]
    wanted = (wide[0].T if left_turned else wide[0]) @ (wide[1].T if right_turned else wide[1])
    found = run(value, {0: a, 1: b}, opts).reshape(61, 63)
    assert np.array_equal(found, wanted * 0.5 + 1)


@pytest.mark.parametrize("left_turned", [False, True])
@pytest.mark.parametrize("right_turned", [False, True])
def test_lanes_load_fragments_together(left_turned: bool, right_turned: bool) -> None:
    """Rows along the sum come as they are, rows across it transposed; no bank is asked twice."""
    target = nv_target("sm_80")
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (64, 32) if left_turned else (32, 64)).astype(np.float16)
    b = rng.integers(-4, 5, (32, 64) if right_turned else (64, 32)).astype(np.float16)
    left, right = buffer(0, *a.shape, dtype=dtypes.half), buffer(1, *b.shape, dtype=dtypes.half)
    left = permute(left, 1, 0) if left_turned else left
    right = permute(right, 1, 0) if right_turned else right
    value = matmul(left, right, total=dtypes.float)
    found = program(kernel(value, target=target), None, target)
    kinds = {node.arg for node in found if node.op is Ops.FRAGMENT}
    # Two operands of the right side, of two matrices each, come with one instruction.
    assert kinds == {(4, left_turned), (4, not right_turned)}
    counts = count(found)
    assert counts.conflicts == 0 and counts.sector_use == 1.0
    out = np.zeros((32, 32), np.float32)
    execute(found, [memoryview(each).cast("B") for each in (out, a, b)])
    sides = [each.astype(np.float32) for each in (a, b)]
    wanted = (sides[0].T if left_turned else sides[0]) @ (sides[1].T if right_turned else sides[1])
    assert np.array_equal(out, wanted)


def test_what_surrounds_a_product_stays_in_its_kernel() -> None:
    _, inputs, _ = product(64, 40, 64)
    value = matmul(buffer(0, 64, 40).maximum(UOp.const(dtypes.float, 0.0)), buffer(1, 40, 64))
    wanted = np.maximum(inputs[0], 0).astype(np.float64) @ inputs[1] * 0.5 + 1
    check(value * 0.5 + 1.0, inputs, wanted)


def test_a_convolution_is_a_product_of_staged_tiles() -> None:
    x, w = normal(1, 32, 3, 34), normal(32, 32, 3, 3, seed=1)
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    wanted = np.einsum("bchwij,ocij->bohw", view, w.astype(np.float64))
    check(conv2d(buffer(0, *x.shape), buffer(1, *w.shape)), {0: x, 1: w}, wanted)


@pytest.mark.parametrize(
    ("channels", "dtype", "target"),
    [
        pytest.param(
            channels,
            dtype,
            target,
            # In each run each number of channels, each dtype and each target.
            marks=[]
            if (channels == 96) == (dtype is dtypes.half) == (target is CUDA)
            else [nightly],
            id=f"{channels}-{dtype.name}-{target.name}",
        )
        for channels in (64, 96)
        for dtype in (dtypes.float, dtypes.half)
        for target in (CUDA, nv_target("sm_80"))
    ],
)
def test_a_convolution_tiles_rows_and_columns_of_its_image_together(
    target: Target, dtype: DType, channels: int
) -> None:
    """Tiles of neighbouring pixels, whichever rows they are in, and tiles of the next tap of the
    filter copied while those of the one before are multiplied.
    """
    rng = np.random.default_rng(0)
    kind = np.float32 if dtype is dtypes.float else np.float16
    x = rng.integers(-3, 4, (1, channels, 6, 10)).astype(kind)
    w = rng.integers(-3, 4, (64, channels, 3, 3)).astype(kind)
    total = None if dtype is dtypes.float else dtypes.float
    sides = [buffer(slot, *each.shape, dtype=dtype) for slot, each in enumerate((x, w))]
    value = conv2d(*sides, padding=1, total=total)
    moves = [move.op for move in good_opts(kernel(value, target=target), target)]
    assert OptOps.MERGE in moves and moves.count(STAGE) == 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = np.einsum("bchwij,ocij->bohw", view, w.astype(np.float64))
    found = run(value, {0: x, 1: w}, None, target).reshape(wanted.shape)
    assert np.array_equal(found, wanted)


def test_what_does_not_merge() -> None:
    ast = shaped(kernel(matmul(buffer(0, 32, 16), buffer(1, 16, 32))), [])
    with pytest.raises(OptError, match="merge: axes 0 and 0 are no two of known size"):
        apply_opt(ast, opt(OptOps.MERGE, 0, 0), CUDA)
    with pytest.raises(OptError, match="merge: axis 2 is a reduce axis"):
        apply_opt(ast, opt(OptOps.MERGE, 0, 2), CUDA)


def test_without_its_barrier_a_tile_is_a_race() -> None:
    value, inputs, _ = product(64, 16, 64)
    found = program(kernel(value), OPTS)
    (barrier,) = (node for node in found if node.op is Ops.BARRIER)
    out = np.zeros((64, 64), np.float32)
    buffers = [memoryview(each).cast("B") for each in (out, inputs[0], inputs[1])]
    execute(found, buffers)
    with pytest.raises(InternalError, match="since the last barrier"):
        execute(_without(found, barrier), buffers)


def _without(found: list[UOp], gone: UOp) -> list[UOp]:
    kept: list[UOp] = []
    mapping: dict[UOp, UOp] = {}
    for node in found:
        if node is gone:
            continue
        src = tuple(mapping.get(source, source) for source in node.src if source is not gone)
        mapping[node] = node.replace(src=src)
        kept.append(mapping[node])
    return kept


@pytest.mark.parametrize("left_turned", [False, True])
@pytest.mark.parametrize("right_turned", [False, True])
def test_a_tile_is_read_from_memory_once_and_no_bank_is_asked_twice(
    left_turned: bool, right_turned: bool
) -> None:
    """Of each operand 32x16 in two tiles, and 32x32 results, for each of 4x4 blocks."""
    value, *_ = product(128, 16, 128, left_turned=left_turned, right_turned=right_turned)
    found = count(program(kernel(value), OPTS), 1)
    assert found.blocks == (1, 16)
    assert found.conflicts == 0
    assert found.sector_use == 1.0
    assert found.touched_bytes == 4 * (2 * 32 * 16 + 32 * 32)
    # The last of two iterations loads one tile of both more, as there is none to come.
    assert found.moved_bytes == found.touched_bytes + 4 * 2 * 32 * 8


def test_the_next_tile_is_loaded_before_this_one_is_multiplied() -> None:
    """And stored after it, so that the loads have an iteration to come, where no copy goes on by
    itself.
    """
    target = cuda_target("sm_75")
    found = program(kernel(product(64, 32, 64)[0], target=target), OPTS, target)
    (start,) = (place for place, node in enumerate(found) if node.op is Ops.RANGE)
    kinds = [_kind(node) for node in found[start:]]
    first, last = kinds.index("multiply"), len(kinds) - 1 - kinds[::-1].index("multiply")
    assert [place < first for place, kind in enumerate(kinds) if kind == "load global"] == [
        True
    ] * 2
    stores = [place for place, kind in enumerate(kinds) if kind == "store shared"]
    assert len(stores) == 5 and all(place > last for place in stores)
    assert kinds.count("barrier") == 1


def _kind(node: UOp) -> str:
    if node.op in (Ops.LOAD, Ops.STORE):
        pointer = memory_of(node.src[0]).dtype
        assert isinstance(pointer, Pointer)
        return f"{node.op.name.lower()} {pointer.space.name.lower()}"
    return {Ops.MULACC: "multiply", Ops.BARRIER: "barrier"}.get(node.op, "")


BARRIERS = [
    (target, dtype, turned, sizes)
    for target in (CUDA, nv_target("sm_80"))
    for dtype in (dtypes.float, dtypes.half)
    for turned in (False, True)
    for sizes in ((64, 64, 64), (60, 90, 62), (32, 64, 96))
]


@nightly
@pytest.mark.parametrize(
    ("target", "dtype", "turned", "sizes"),
    BARRIERS,
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_every_barrier_and_every_wait_is_missed(
    target: Target, dtype: DType, turned: bool, sizes: tuple[int, int, int]
) -> None:
    m, k, n = sizes
    left = buffer(0, k, m, dtype=dtype) if turned else buffer(0, m, k, dtype=dtype)
    value = matmul(
        permute(left, 1, 0) if turned else left,
        buffer(1, k, n, dtype=dtype),
        total=None if dtype is dtypes.float else dtypes.float,
    )
    assert is_staged(kernel(value, target=target), target)
    found = program(kernel(value, target=target), None, target)
    memory = [bytearray(4 * m * n), bytearray(4 * m * k), bytearray(4 * k * n)]
    execute(found, memory)
    needed = [node for node in found if node.op in (Ops.BARRIER, Ops.WAIT)]
    assert any(node.op is Ops.BARRIER for node in needed)
    for each in needed:
        with pytest.raises(InternalError, match=r"since the last barrier|without having waited"):
            execute(_without(found, each), memory)


def half_products() -> tuple[list[UOp], list[memoryview], Any]:
    """A product for sm_80, whose tiles come by asynchronous copies; its buffers and values."""
    target = nv_target("sm_80")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))
    left, right = buffer(0, 64, 64, dtype=dtypes.half), buffer(1, 64, 64, dtype=dtypes.half)
    ast = kernel(matmul(left, right, total=dtypes.float), target=target)
    out = np.zeros((64, 64), np.float32)
    buffers = [memoryview(each).cast("B") for each in (out, a, b)]
    return program(ast, None, target), buffers, (out, a.astype(np.float32) @ b.astype(np.float32))


def test_a_copy_that_nobody_waits_for_is_reported() -> None:
    found, buffers, (out, wanted) = half_products()
    assert [node.op for node in found].count(Ops.COPY_ASYNC) >= 4
    execute(found, buffers)
    assert np.array_equal(out, wanted)
    waits = [node for node in found if node.op is Ops.WAIT]
    assert len(waits) == 2
    for wait in waits:
        with pytest.raises(InternalError, match="copies without having waited"):
            execute(_without(found, wait), buffers)


def test_without_its_barrier_an_asynchronous_copy_is_a_race() -> None:
    found, buffers, _ = half_products()
    barriers = [node for node in found if node.op is Ops.BARRIER]
    assert len(barriers) == 2
    for barrier in barriers:
        with pytest.raises(InternalError, match=r"since the last barrier|without having waited"):
            execute(_without(found, barrier), buffers)


@pytest.mark.parametrize(
    ("gone", "terms"),
    [
        ("", 64), ("cp.async.wait_all;", 96), ("bar.sync 0;", 128), ("", 256),
        ("cp.async.commit_group;", 288), ("cp.async.wait_group 2;", 384), ("bar.sync 0;", 512),
    ],
)  # fmt: skip
def test_the_interpreter_of_ptx_sees_what_is_missing(gone: str, terms: int) -> None:
    """Each in a kernel of its own, as a device keeps what it has loaded."""
    device = simulated("NVSIM80")
    a, b = (x.astype(np.float16) for x in (normal(64, terms), normal(terms, 64, seed=1)))

    def values() -> Any:
        return (Tensor(a, device=device) @ Tensor(b, device=device)).float().numpy()

    def broken(text: str) -> dict[str, Entry]:
        assert gone in text
        return parse(text.replace(f"  {gone}\n", "") if gone else text)

    with pytest.MonkeyPatch.context() as patch, Context(DISABLE_COMPILER_CACHE=1, SIZES=0):
        patch.setattr(driver, "parse", broken)
        if gone:
            with pytest.raises(Exception, match=r"has not brought|since the last barrier"):
                values()
        else:
            assert np.abs(values() - a.astype(np.float64) @ b).max() < 0.02


def test_two_tiles_of_each_operand_stay_in_shared_memory() -> None:
    found = program(kernel(product(64, 32, 64)[0]), OPTS)
    tiles = [node.dtype for node in found if node.op is Ops.DEFINE_LOCAL]
    assert [each.space for each in tiles if isinstance(each, Pointer)] == [AddressSpace.SHARED] * 2
    # Rows of 32 results, padded by a vector, for each of 8 terms.
    assert [each.size for each in tiles if isinstance(each, Pointer)] == [2 * 8 * 36] * 2


def test_tiles_are_as_large_as_the_target_holds() -> None:
    ast = kernel(matmul(buffer(0, 4096, 4096), buffer(1, 4096, 4096)))

    def side(target: Target) -> int:
        tiles = [move.arg for move in good_opts(ast, target) if move.op is TILE]
        return int(tiles[0])

    assert side(CUDA) == 128
    assert side(opencl_target()) == side(webgpu_target()) == 64


def test_lanes_take_no_loop_that_is_no_tile() -> None:
    """A loop that carries a running sum, and one whose iterations share a sum."""
    scan = kernel(running(Ops.ADD, buffer(0, 6, 12), 1))
    rows = kernel(softmax(buffer(0, 4, 64)))
    for ast in (scan, rows):
        axes = axes_of(shaped(ast))
        (place,) = (place for place, axis in enumerate(axes) if axis.arg[1] is Axis.LOOP)
        with pytest.raises(OptError, match="local: each"):
            shaped(ast, [opt(LOCAL, place, 4)])


def refused(opts: list[Opt], message: str) -> None:
    with pytest.raises(OptError, match=message):
        shaped(kernel(product(64, 32, 64)[0]), opts)


def test_what_is_no_tile_is_refused() -> None:
    refused([opt(STAGE, 0, LEFT)], "axis 0 is no reduce loop")
    third = ReduceOperand(Side.LEFT, reduction=2)
    refused([*OPTS[:3], opt(STAGE, 4, third)], r"no one value ReduceOperand\(Side.LEFT, red")
    refused([*OPTS[:3], opt(STAGE, 4, (LEFT, (0, 0), 4))], r"\(0, 0\) does not order the 2")
    refused([*OPTS[:3], opt(STAGE, 4, (LEFT, (1, 0), -1))], "cannot be padded by -1")
    refused([opt(OptOps.GROUP, 0, 4), opt(STAGE, 3, LEFT)], "lanes share the reduction")
    whole = [opt(TILE, 0, 64), opt(TILE, 1, 64), opt(TILE, 2, 16)]
    refused([*whole, opt(STAGE, 2, (LEFT, (1, 0), 9999))], "bytes of shared memory")
