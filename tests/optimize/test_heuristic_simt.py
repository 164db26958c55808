"""The heuristic for targets with blocks: shapes it should find, and values it must keep."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    HALF,
    INT,
    METAL,
    buffer,
    conv2d,
    expand,
    good_opts,
    kernel,
    matmul,
    name,
    pad,
    permute,
    program,
    reduce,
    reshape,
    run,
    schedule,
    shaped,
    softmax,
)
from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.hardware import opencl_target, webgpu_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import OptOps, axes_of


def lanes(ast: UOp) -> int:
    kinds = (Axis.LOCAL, Axis.GROUP)
    return math.prod(axis.src[0].arg for axis in axes_of(ast) if axis.arg[1] in kinds)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


# shapes


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (buffer(0, 16) + 1.0, "E_4_4"),
        (buffer(0, 32, 32) * 2.0, "E_8_32_4"),
        (buffer(0, 32, 32).cast(HALF), "E_8_32_4"),
        (buffer(0, 1 << 20) + 1.0, "E_1024_256_4"),
        (buffer(0, 3) + 1.0, "E_3"),
        (buffer(0, 1) + 1.0, "E_"),
        (reduce(Ops.ADD, buffer(0, 4), 0), "r_4"),
        (reduce(Ops.ADD, buffer(0, 4096), 0), "r_256_4_4"),
        (reduce(Ops.ADD, buffer(0, 4096, 1024), 1), "r_512_2_4_32_2_4_4"),
        (matmul(buffer(0, 4, 4), buffer(1, 4, 4)), "r_4_4_4"),
        (matmul(buffer(0, 256, 256), buffer(1, 256, 256)), "r_8_8_8_8_16_4_4_16"),
        (softmax(buffer(0, 64, 1024)), "r_64_256_4_4_4"),
    ],
)
def test_names(value: UOp, wanted: str) -> None:
    assert name(kernel(value), None) == wanted


def test_a_register_tile_loads_vectors_for_all_its_products() -> None:
    found = program(kernel(matmul(buffer(0, 256, 256), buffer(1, 256, 256))), None)
    loads = [node for node in found if node.op is Ops.LOAD]
    # A lane copies two vectors of each operand, of the first tile and then of the next, and reads
    # one of each for each of 16 terms.
    assert [node.dtype.lanes for node in loads] == [4] * (2 * 2 * 2 + 2 * 16)
    assert sum(node.op is Ops.MULACC for node in found) == 16 * 4 * 4


def test_blocks_are_no_larger_than_the_target_allows() -> None:
    for target in (CUDA, METAL, opencl_target()):
        for value in (
            buffer(0, 1 << 20) + 1.0,
            softmax(buffer(0, 64, 4096)),
            matmul(buffer(0, 512, 512), buffer(1, 512, 512)),
            reduce(Ops.MAX, buffer(0, 1 << 16), 0),
        ):
            ast = shaped(kernel(value, target=target), None, target)
            assert 32 <= lanes(ast) <= target.block_lanes


def test_neighbouring_lanes_touch_neighbours() -> None:
    """The first axis of a block runs along the rows that are written, in vectors of four."""
    turned = UOp(Ops.CONTIGUOUS, FLOAT, (permute(buffer(0, 64, 96), 1, 0),))
    found = program(kernel(turned), None)
    store, *_ = (node for node in found if node.op is Ops.STORE)
    inside = {node.arg[0]: node for node in store.src[1].toposort() if node.op is Ops.SPECIAL}
    zero = {node: UOp.const(node.dtype, 0) for node in inside.values()}
    moved = {**zero, inside["lidx0"]: UOp.const(dtypes.int32, 1)}

    def at(values: dict[UOp, UOp]) -> Any:
        done: dict[UOp, Any] = {}
        for node in store.src[1].substitute(values).toposort():
            evaluate = node.op.evaluate
            sources = [done[source] for source in node.src]
            done[node] = node.arg if evaluate is None else evaluate(*sources)
        return list(done.values())[-1]

    assert at(moved) - at(zero) == 4


def test_a_filter_window_is_unrolled_where_lanes_share_no_memory() -> None:
    """In a gradient by an image its loops stand outside of that over 64 channels. Unrolled, the
    four positions of a row that a lane has load their neighbours once.
    """
    target = replace(webgpu_target(), shared_bytes=0)
    image = Tensor.empty(128, 32, 4, 4, requires_grad=True)
    scores = image.conv2d(Tensor.empty(64, 32, 3, 3), padding=1)
    (gradient,) = (scores * Tensor.empty(128, 64, 4, 4)).sum().gradient(image)
    ast = plan(gradient, target=target).items[-1].ast
    assert ast is not None
    found = program(ast, None, target)
    assert math.prod(node.extent.arg for node in found if node.op is Ops.RANGE) == 64
    multiplied = sum(node.op is Ops.MUL and node.dtype is FLOAT for node in found)
    assert sum(node.op is Ops.LOAD for node in found) * 2 < multiplied


def test_it_gives_the_same_moves_again() -> None:
    for value in (softmax(buffer(0, 64, 96)), matmul(buffer(0, 33, 65), buffer(1, 65, 129))):
        assert good_opts(kernel(value)) == good_opts(kernel(value))


def test_a_prime_extent_is_padded() -> None:
    ast = kernel(buffer(0, 10007) + 1.0)
    opts = good_opts(ast)
    assert [move.op for move in opts] == [OptOps.PADTO, OptOps.LOCAL]
    assert lanes(shaped(ast, opts)) == 32


# values


SHAPES = [(1, 1), (3, 5), (16, 16), (33, 7), (64, 100), (127, 33), (1, 300), (300, 1), (128, 96)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [CUDA, METAL], ids=["cuda", "metal"])
def test_elementwise_work(shape: tuple[int, int], target: Any) -> None:
    m, n = shape
    x, y, z = numbers(m, n), numbers(n, seed=1), numbers(n, m, seed=2)
    row, column = expand(reshape(buffer(1, n), 1, n), m, n), permute(buffer(2, n, m), 1, 0)
    value = buffer(0, m, n) * 2.0 + row + column
    found = run(value, {0: x, 1: y, 2: z}, None, target)
    assert found.tolist() == (x * 2 + y + z.T).ravel().tolist()
    around = pad(buffer(0, m, n), (1, 2), (0, 3)) + 1.0
    assert run(around, {0: x}).tolist() == (np.pad(x, ((1, 2), (0, 3))) + 1).ravel().tolist()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fold", [Ops.ADD, Ops.MAX])
def test_reductions(shape: tuple[int, int], axis: int, fold: Ops) -> None:
    x = numbers(*shape)
    wanted = x.sum(axis) if fold is Ops.ADD else x.max(axis)
    found = run(reduce(fold, buffer(0, *shape), axis), {0: x})
    assert found.tolist() == wanted.ravel().tolist()


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 64, 64), (64, 64, 1), (5, 7, 9), (32, 33, 34), (64, 48, 40), (127, 65, 33), (2, 512, 3)],
)
def test_products(m: int, k: int, n: int) -> None:
    a, b = numbers(m, k), numbers(k, n, seed=1)
    found = run(matmul(buffer(0, m, k), buffer(1, k, n)), {0: a, 1: b})
    assert found.tolist() == (a @ b).ravel().tolist()


@pytest.mark.parametrize(
    ("batch", "channels", "size", "outputs", "kernel_size", "stride", "padding"),
    [(2, 3, 8, 4, 3, 1, 1), (1, 16, 12, 32, 3, 2, 1), (3, 1, 9, 5, 5, 1, 0), (1, 8, 7, 8, 1, 1, 0)],
)
def test_convolutions(
    batch: int,
    channels: int,
    size: int,
    outputs: int,
    kernel_size: int,
    stride: int,
    padding: int,
) -> None:
    x = numbers(batch, channels, size, size)
    w = numbers(outputs, channels, kernel_size, kernel_size, seed=1)
    value = conv2d(buffer(0, *x.shape), buffer(1, *w.shape), stride=stride, padding=padding)
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    view = np.lib.stride_tricks.sliding_window_view(wide, w.shape[2:], axis=(2, 3))
    wanted = np.einsum("bchwij,ocij->bohw", view[:, :, ::stride, ::stride], w)
    assert run(value, {0: x, 1: w}).tolist() == wanted.ravel().tolist()


@pytest.mark.parametrize(
    ("rows", "size"), list(itertools.product((1, 64, 65), (1, 8, 33, 128, 260)))
)
def test_softmax(rows: int, size: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, size)).astype(np.float32)
    power = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    found = run(schedule(softmax(buffer(0, rows, size))), {0: x})
    assert np.allclose(found, (power / power.sum(1, keepdims=True)).ravel(), rtol=1e-5)


def test_other_dtypes() -> None:
    x = np.arange(-20, 20, dtype=np.int32)
    assert run(buffer(0, 40, dtype=INT) * 3, {0: x}).tolist() == (x * 3).tolist()
    flags = run(buffer(0, 40, dtype=INT) < 3, {0: x})
    assert flags.tolist() == (x < 3).tolist()
    h = np.arange(40, dtype=np.float16)
    assert run(buffer(0, 40, dtype=HALF).cast(FLOAT), {0: h}).tolist() == h.tolist()
