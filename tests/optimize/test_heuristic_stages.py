"""Kernels of several phases: a block of rows through all of them, and the values that result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import plan
from tilegrad import Device, Tensor, Variable
from tilegrad.device.cpu import cpu_target
from tilegrad.engine.build.pipeline import compile_kernel
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.skip import skip_iterations
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps, Side
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.optimize.opts.stage import name_of_side, operand_of
from tilegrad.target import Target

# Caches so small that little values are worth keeping in scratch.
NEAR = Target("near", vector_bytes=32, threads=2, cache_bytes=(8 << 10, 40 << 10, 64 << 10))
WIDE = Target(
    "wide", vector_bytes=64, registers=32, threads=2, has_mask=True,
    cache_bytes=(32 << 10, 1 << 20, 32 << 20),
)  # fmt: skip
RANDOM = np.random.default_rng(11)
Arrays = list[Any]


def random(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, np.float32)


def one_kernel(compute: Callable[..., Tensor], *inputs: Any) -> tuple[UOp, Arrays]:
    """The one kernel that computes a result of `inputs`, and its parameters: the first is for the
    result.
    """
    tensors = [Tensor(array).realize() for array in inputs]
    result = compute(*tensors)
    schedule = plan(result, target=NEAR)
    (item,) = schedule.items
    assert item.ast is not None
    leaves = normalise(UOp.sink(result.uop)).leaves
    held = {tensor.uop.src[0]: array for tensor, array in zip(tensors, inputs, strict=True)}
    sources = [schedule.buffers[number].source for number in item.buffers[1:]]
    parameters = [held[leaves[source]] for source in sources if source is not None]
    return item.ast, [np.full(result.shape, np.nan, np.float32), *parameters]


def run(ast: UOp, arrays: Arrays, opts: list[Opt]) -> Any:
    backend = Device["CPU"]
    kernel = compile_kernel(ast, backend, opts)
    program = backend.runtime.load(kernel.function, kernel.binary)
    memory = [array.ctypes.data for array in arrays]
    backend.runtime.launch(program, memory, (), kernel.global_size, kernel.local_size, wait=True)
    return arrays[0]


def attention(q: Any, k: Any, v: Any, added: Any = 0.0) -> Any:
    """By its definition, in float64."""
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_a_block_of_rows_goes_through_all_phases() -> None:
    parts = [random(8, 128, 64) for _ in range(3)]
    ast, _ = one_kernel(lambda q, k, v: q.scaled_dot_product_attention(k, v), *parts)
    target = replace(WIDE, threads=8)
    shaped = apply_opts(ast, heuristic(ast, target), target)
    nodes = shaped.toposort()
    folds = [node for node in nodes if node.op is Ops.REDUCE]
    kept = [node for node in nodes if node.op is Ops.DEFINE_LOCAL]
    rows = [part for part in folds[-1].ranges if part.src[0].arg == 8]
    (row,) = [part for part in rows if part.arg[1] is Axis.UPCAST]
    # Eight rows by two vectors for the products, one vector of accumulators for each row else.
    for fold in folds:
        written = {part for part in (*fold.ranges, *fold.src) if part.op is Ops.RANGE}
        assert row in written
        lanes = [part for part in written if part.arg[1] in (Axis.UPCAST, Axis.UNROLL)]
        assert sorted(part.src[0].arg for part in lanes) in ([8, 16], [8, 32])
    # Scratch of the rows lives inside them; keys and values are packed once for each head.
    assert [row in node.src for node in kept].count(True) == 3
    packed = [node for node in kept if row not in node.src]
    assert [math.prod(part.src[0].arg for part in node.src) for node in packed] == [8, 8]
    assert any(opt.op is OptOps.THREAD for opt in shaped.arg.opts)


@pytest.mark.parametrize("limit", ["", "avx2", "sse", "scalar"])
@pytest.mark.parametrize(("length", "keys", "size"), [(48, 48, 16), (37, 53, 20)])
def test_attention_for_any_sizes(length: int, keys: int, size: int, limit: str) -> None:
    q, k, v = random(8, length, size), random(8, keys, size), random(8, keys, size)
    bias = random(length, keys)
    ast, arrays = one_kernel(
        lambda q, k, v, b: q.scaled_dot_product_attention(k, v, b), q, k, v, bias
    )
    found = run(ast, arrays, heuristic(ast, cpu_target(limit)))
    np.testing.assert_allclose(found, attention(q, k, v, bias), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("length", "is_forward"), [(200, False), pytest.param(200, True, marks=pytest.mark.nightly)]
)
def test_attention_that_looks_one_way(length: int, is_forward: bool) -> None:
    q, k, v = (random(8, length, 24) for _ in range(3))
    seen = np.tri(length, dtype=bool)

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not is_forward:
            return q.scaled_dot_product_attention(k, v, is_causal=True)
        rows = Tensor.arange(length)
        return q.scaled_dot_product_attention(k, v, rows.reshape(length, 1) <= rows)

    ast, arrays = one_kernel(compute, q, k, v)
    hidden = np.where(seen.T if is_forward else seen, 0.0, -np.inf)
    opts = heuristic(ast, cpu_target())
    np.testing.assert_allclose(run(ast, arrays, opts), attention(q, k, v, hidden), 1e-4, 1e-5)
    # Products and folds of a long row leave out what all rows of a block cannot see.
    loops = {
        loop
        for node in skip_iterations(apply_opts(ast, opts, cpu_target()), cpu_target()).toposort()
        if node.op in (Ops.REDUCE, Ops.END)
        for loop in node.src[1:]
        if loop.src[0].op is not Ops.CONST
    }
    # Two folds and the product that follow the scores, and what fills these three rows.
    assert len(loops) == (3 if is_forward else 6)


@pytest.mark.parametrize("is_causal", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_length_that_is_known_later(is_causal: bool) -> None:
    """Vectors of a symbolic loop, of which the last is not full."""
    q, k, v = (random(4, 160, 24) for _ in range(3))

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length = Variable("length", 1, 160).bind(160)
        q, k, v = (each[:, :length] for each in (q, k, v))
        return q.scaled_dot_product_attention(k, v, is_causal=is_causal).contiguous()

    (item,) = plan(compute(*(Tensor.empty(4, 160, 24) for _ in range(3))), target=NEAR).items
    assert item.ast is not None
    written = {opt.arg for opt in heuristic(item.ast, WIDE) if opt.op is OptOps.UPCAST}
    assert written >= {8, 16}
    kernel = compile_kernel(item.ast, Device["CPU"], heuristic(item.ast, cpu_target()))
    program = Device["CPU"].runtime.load(kernel.function, kernel.binary)
    for length in (1, 31, 32, 33, 160):
        out = np.full_like(q, np.nan)
        memory = [each.ctypes.data for each in (out, q, k, v)]
        Device["CPU"].runtime.launch(
            program, memory, (length,), kernel.global_size, kernel.local_size, wait=True
        )
        hidden = np.where(np.tri(length, dtype=bool), 0.0, -np.inf) if is_causal else 0.0
        expected = attention(q[:, :length], k[:, :length], v[:, :length], hidden)
        np.testing.assert_allclose(out[:, :length], expected, rtol=1e-4, atol=1e-5)
        assert np.isnan(out[:, length:]).all()


def test_heads_that_lie_side_by_side() -> None:
    """Query, key and value from one matrix, as a network has them."""
    joined = random(48, 3, 4, 32)

    def compute(x: Tensor) -> Tensor:
        q, k, v = (x[:, place].transpose(0, 1) for place in range(3))
        return q.scaled_dot_product_attention(k, v)

    ast, arrays = one_kernel(compute, joined)
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    q, k, v = joined.transpose(1, 2, 0, 3)
    np.testing.assert_allclose(found, attention(q, k, v), rtol=1e-4, atol=1e-5)


def test_what_is_computed_before_a_product_is_packed_as_well() -> None:
    """Sides of several folds have names of their own, also where they are no parameter."""
    a, b, c = random(200, 40), random(96, 40), random(96, 48)

    def compute(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return ((a + 1) @ (b * 2).T).relu() @ (c - 1)

    ast, arrays = one_kernel(compute, a, b, c)
    opts = heuristic(ast, cpu_target())
    assert sum(opt.op is OptOps.STAGE for opt in opts) >= 2
    wide = [each.astype(np.float64) for each in (a, b, c)]
    expected = np.maximum((wide[0] + 1) @ (wide[1] * 2).T, 0) @ (wide[2] - 1)
    np.testing.assert_allclose(run(ast, arrays, opts), expected, rtol=1e-4, atol=1e-3)
    folds = [node for node in ast.toposort() if node.op is Ops.REDUCE]
    for fold in folds:
        for name, side in zip(Side, fold.src[0].src, strict=True):
            is_plain = all(node.op is not Ops.AFTER for node in side.toposort())
            named = operand_of(ast, name_of_side(ast, fold, name))
            assert named is (side if is_plain else None)


def test_three_products_and_a_least_sum() -> None:
    a, b, c = random(264, 16), random(16, 48), random(48, 48)
    ast, arrays = one_kernel(lambda a, b, c: ((a @ b).relu() @ c).relu() @ c, a, b, c)
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    half = np.maximum(np.maximum(a.astype(np.float64) @ b, 0) @ c, 0) @ c
    np.testing.assert_allclose(found, half, rtol=1e-3, atol=1e-3)

    x, y, z = random(8, 64, 16), random(8, 40, 16), random(8, 40, 20)

    def nearest(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        apart = (x.unsqueeze(2) + y.unsqueeze(1)).min(3)
        return (apart / apart.square().sum(2, keepdim=True).sqrt()) @ z

    ast, arrays = one_kernel(nearest, x, y, z)
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    apart = (x[:, :, None].astype(np.float64) + y[:, None]).min(3)
    expected = apart / np.sqrt((apart**2).sum(2, keepdims=True)) @ z
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [70, 12])
def test_lanes_along_what_lies_side_by_side(columns: int) -> None:
    """A softmax over the first axis: a lane for each column through all of its phases."""
    x = random(40, columns)
    ast, arrays = one_kernel(lambda x: x.softmax(0), x)
    opts = heuristic(ast, WIDE)
    assert OptOps.UPCAST in {opt.op for opt in opts}
    assert OptOps.UNROLL not in {opt.op for opt in opts}
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    weights = np.exp(x.astype(np.float64) - x.max(0))
    np.testing.assert_allclose(found, weights / weights.sum(0), rtol=1e-4, atol=1e-6)


def test_folds_that_share_a_range() -> None:
    """Two sums over one range, beside the products that do the work, are given lanes at once."""

    def compute(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Tensor:
        half = (x @ z).relu()
        return (half / (1 + half.sum(1, keepdim=True) + (half * y).sum(1, keepdim=True))) @ w

    x, y, z, w = random(96, 17), np.abs(random(96, 96)), random(17, 96), random(96, 48)
    ast, arrays = one_kernel(compute, x, y, z, w)
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    half = np.maximum(x.astype(np.float64) @ z, 0)
    parts = 1 + half.sum(1, keepdims=True) + (half * y).sum(1, keepdims=True)
    np.testing.assert_allclose(found, half / parts @ w, rtol=1e-4, atol=1e-5)


def test_rows_of_one_block() -> None:
    """So few that all are written out at once: no loop is left to pack anything for."""
    x, w = random(256, 3), random(512, 256)
    given = Tensor(x, requires_grad=True)
    found = given.softmax(0).cat(given) @ given.T
    (slope,) = (found * Tensor(w)).sum().gradient(given)

    def exact(x: Any) -> Any:
        powers = np.exp(x)
        return ((np.concatenate([powers / powers.sum(0), x]) @ x.T) * w).sum()

    way, step = random(256, 3), 1e-6
    wide = x.astype(np.float64)
    wanted = (exact(wide + step * way) - exact(wide - step * way)) / (2 * step)
    np.testing.assert_allclose((slope.numpy() * way).sum(), wanted, rtol=1e-3)
