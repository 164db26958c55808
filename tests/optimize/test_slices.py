"""SLICE: attention on targets with blocks is one kernel that stores no scores. Its values come from
the emulator, which reports races, and are compared with the definition in float64.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import CUDA, METAL, program
from tests.schedule.plans import kernel_of, kernels, plan
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import OptError
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of
from tilegrad.optimize.opts.opts import apply_opt, start
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count

RANDOM = np.random.default_rng(7)


def sample(*shape: int, dtype: Any = np.float32) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def attention(q: Any, k: Any, v: Any, added: Any = 0.0) -> Any:
    """The definition, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def below(rows: int, columns: int) -> Any:
    return np.where(np.tril(np.ones((rows, columns), bool)), 0.0, -np.inf)


def found_on(device: str, q: Any, k: Any, v: Any, **options: Any) -> Any:
    """What attention gives, by kernels of these sizes alone."""
    options = {
        key: Tensor(value, device=device).realize() if isinstance(value, np.ndarray) else value
        for key, value in options.items()
    }
    q, k, v = (Tensor(x, device=device).realize() for x in (q, k, v))
    with Context(SIZES=0):
        return q.scaled_dot_product_attention(k, v, **options).numpy()


def kernel_for(
    *shape: int, keys: int = 0, dtype: str = "float", target: Target = CUDA, **options: Any
) -> Any:
    """The one kernel of attention with queries of `shape`."""
    q, k, v = (Tensor.empty(*shape[:-2], size, shape[-1], dtype=dtype) for size in
               (shape[-2], keys or shape[-2], keys or shape[-2]))  # fmt: skip
    return kernel_of(q.scaled_dot_product_attention(k, v, **options), target)


@pytest.mark.row("S1.5")
@pytest.mark.parametrize("target", [CUDA, METAL], ids=["CUDA", "METAL"])
@pytest.mark.parametrize("dtype", ["float", "half"])
def test_attention_stores_nothing_but_its_result(target: Target, dtype: str) -> None:
    """One kernel, with one store to global memory for each element of the result."""
    ast = kernel_for(2, 3, 256, 64, dtype=dtype, target=target)
    stores = [node for node in ast.toposort() if node.op is Ops.STORE]
    assert sum(memory_of(store.src[0]).op is Ops.DEFINE_GLOBAL for store in stores) == 1


@pytest.mark.row("M9.1")
@pytest.mark.parametrize(
    ("target", "dtype", "units"),
    [(CUDA, "float", 0), (CUDA, "bfloat16", 32), (METAL, "float", 32)],
    ids=lambda each: getattr(each, "name", each),
)
def test_units_keep_scores_in_registers(target: Target, dtype: str, units: int) -> None:
    """Lanes wait once for each slice, for the keys and values, and else for the scores."""
    made = program(kernel_for(2, 128, 64, dtype=dtype, target=target), None, target)
    count = Counter(node.op for node in made)
    shared = sum(node.op is Ops.DEFINE_LOCAL for node in made)
    if units:
        # Both products of a slice of 32 keys by 16 rows of a group of lanes, or of 16 by 8.
        assert count[Ops.WMMA] == units and count[Ops.BARRIER] == 1 and shared == 2
        # Of two rows a lane: 8 weights and what their sums are rescaled by, where 16 bits are kept.
        assert count[Ops.EXP2_APPROX] == (18 if dtype == "bfloat16" else 0)
    else:
        assert count[Ops.WMMA] == 0 and count[Ops.BARRIER] == 2 and shared > 2
        assert not count[Ops.EXP2_APPROX]


def test_units_add_to_what_was_rescaled() -> None:
    """No sum of a lane but those of exponents and of rows: products go to the accumulators."""
    made = program(kernel_for(2, 128, 64, dtype="half"), None, CUDA)
    (loop,) = [node for node in made if node.op is Ops.RANGE]
    inside = made[made.index(loop) :]
    sums = [node for node in inside if node.op is Ops.ADD and node.dtype is dtypes.float32]
    # Per row: 7 sums of 8 weights, 2 of lanes, 1 with the row before; none of the 32 results.
    assert len(sums) == 2 * (7 + 2 + 1)


@pytest.mark.parametrize(
    ("device", "rows", "keys", "size"),
    [
        ("EMU:CUDA", 64, 64, 16),
        pytest.param("EMU:METAL", 64, 48, 16, marks=pytest.mark.nightly),
        # Neither rows nor slices divide.
        ("EMU:CUDA", 70, 77, 24),
    ],
)
def test_values(device: str, rows: int, keys: int, size: int) -> None:
    q, k, v = sample(2, rows, size), sample(2, keys, size), sample(2, keys, size)
    np.testing.assert_allclose(found_on(device, q, k, v), attention(q, k, v), atol=2e-6)


@functools.cache
def counts(names: str, target: Target, dtype: str) -> Counter[Ops]:
    """What attention has of units, copies and barriers; equal names are one tensor."""
    known = {name: Tensor.empty(8, 256, 64, dtype=dtype) for name in set(names)}
    q, k, v = (known[name] for name in names)
    made = program(kernel_of(q.scaled_dot_product_attention(k, v), target), None, target)
    wanted = (Ops.WMMA, Ops.COPY_ASYNC, Ops.COPY_TILE, Ops.BARRIER, Ops.MULACC)
    return Counter(node.op for node in made if node.op in wanted)


SHARED = {"keys are values": "qkk", "queries are keys": "qqv", "all are one": "qqq"}


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("operands", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize(
    "target",
    [
        # Units and copies of sm_80, as the next has them.
        pytest.param(CUDA, marks=pytest.mark.nightly),
        nv_target("sm_80"),
        nv_target("sm_90a"),
    ],
    ids=["CUDA", "sm_80", "sm_90a"],
)
def test_operands_that_are_one_tensor_are_shared_as_any(
    target: Target, operands: str, dtype: str
) -> None:
    """The same lanes, tiles and units, and copies that go on; a tile is filled for each product."""
    found, wanted = counts(operands, target, dtype), counts("qkv", target, dtype)
    assert found == wanted
    assert found[Ops.WMMA] or (dtype == "float" and found[Ops.MULACC] > 100)


@pytest.mark.parametrize("operands", SHARED.values(), ids=SHARED)
def test_values_of_operands_that_are_one_tensor(operands: str) -> None:
    made = {name: sample(1, 64, 16) for name in "qkv"}
    q, k, v = (made[name] for name in operands)
    known = {id(x): Tensor(x, device="EMU:CUDA").realize() for x in (q, k, v)}
    with Context(SIZES=0):
        found = known[id(q)].scaled_dot_product_attention(known[id(k)], known[id(v)]).numpy()
    np.testing.assert_allclose(found, attention(q, k, v), atol=2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [64, 150])
def test_values_of_half_and_causal(rows: int) -> None:
    q, k, v = (sample(1, rows, 16, dtype=np.float16) for _ in range(3))
    found = found_on("EMU:CUDA", q, k, v, is_causal=True)
    np.testing.assert_allclose(found, attention(q, k, v, below(rows, rows)), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_causal_block_ends_with_the_slice_of_its_last_row(dtype: Any) -> None:
    """What comes later is not even multiplied by zero: it would make the first block's rows NaN."""
    q, k, v = (sample(1, 128, 16, dtype=dtype) for _ in range(3))
    expected = attention(q, k, v, below(128, 128))
    v[:, 70:] = np.nan
    found = found_on("EMU:CUDA", q, k, v, is_causal=True)
    np.testing.assert_allclose(found[:, :64], expected[:, :64], atol=2e-3)
    assert np.isnan(found[:, 70:]).all()


def test_rows_with_large_scores_and_rows_that_see_one_key() -> None:
    """The largest score grows from slice to slice, so all that was summed is rescaled."""
    q, k, v = (sample(1, 64, 16) for _ in range(3))
    k = k * np.linspace(0, 40, 64, dtype=np.float32)[None, :, None]
    added = np.zeros((64, 64), np.float32)
    added[3, :40], added[5, 1:] = -np.inf, -np.inf
    found = found_on("EMU:CUDA", q, k, v, attn_mask=added)
    np.testing.assert_allclose(found, attention(q, k, v, added), atol=2e-5)


def test_without_opts_rows_are_scratch_of_a_lane() -> None:
    q, k, v = (sample(1, 64, 16) for _ in range(3))
    with Context(NOOPT=1):
        found = found_on("EMU:CUDA", q, k, v)
    np.testing.assert_allclose(found, attention(q, k, v), atol=2e-6)


@pytest.mark.parametrize(
    ("rows", "keys", "size"), [(32, 64, 64), (64, 64, 8), (64, 64, 512)],
    ids=["few rows", "little to multiply", "too large for shared memory"],
)  # fmt: skip
def test_what_stays_several_kernels(rows: int, keys: int, size: int) -> None:
    q, k, v = (Tensor.empty(4, count, size) for count in (rows, keys, keys))
    assert len(kernels(plan(q.scaled_dot_product_attention(k, v), target=CUDA))) > 1


@pytest.mark.parametrize("rest", ["max", "sum", "softmax"])
@pytest.mark.parametrize("shape", [(12, 512, 512, 64), (4, 768, 1000, 16)])
def test_results_that_are_reduced_again_are_no_slices(
    shape: tuple[int, int, int, int], rest: str
) -> None:
    """A row of results that one more reduction reads is a row in scratch of its own."""
    heads, rows, keys, size = shape
    q, k, v = (Tensor.empty(heads, n, size, dtype="half") for n in (rows, keys, keys))
    value = getattr(q.scaled_dot_product_attention(k, v), rest)(-1)
    for item in plan(value, target=CUDA).items:
        assert program(item.ast, None, CUDA)


@pytest.mark.parametrize("rest", ["max", "sum", "softmax"])
def test_values_of_results_that_are_reduced_again(rest: str) -> None:
    q, k, v = sample(1, 64, 16), sample(1, 72, 16), sample(1, 72, 16)
    x, y, z = (Tensor(each, device="EMU:CUDA").realize() for each in (q, k, v))
    with Context(SIZES=0):
        found = getattr(x.scaled_dot_product_attention(y, z), rest)(-1).numpy()
    whole = attention(q, k, v)
    powers = np.exp(whole)
    expected = {"max": whole.max(-1), "sum": whole.sum(-1),
                "softmax": powers / powers.sum(-1, keepdims=True)}[rest]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_bad_slices_are_refused() -> None:
    ast = start(kernel_for(2, 64, 24), CUDA)
    loop = next(part for part in axes_of(ast) if part.axis is Axis.REDUCE)
    place = axes_of(ast).index(loop)
    with pytest.raises(OptError, match="5 lanes do not divide a slice of 32"):
        apply_opt(ast, Opt(OptOps.SLICE, place, 5), CUDA)
    with pytest.raises(OptError, match="16 lanes do not divide 24 columns"):
        apply_opt(ast, Opt(OptOps.SLICE, place, 16), CUDA)
    ast = apply_opt(ast, Opt(OptOps.SLICE, place, 8), CUDA)
    place = axes_of(ast).index(next(part for part in axes_of(ast) if part is loop))
    with pytest.raises(OptError, match="no rows in scratch that lanes do not share yet"):
        apply_opt(ast, Opt(OptOps.SLICE, place, 8), CUDA)


def test_an_unfit_matrix_unit_is_refused() -> None:
    ast = start(kernel_for(2, 64, 24, dtype="half"), CUDA)
    loop = next(part for part in axes_of(ast) if part.axis is Axis.REDUCE)
    place = axes_of(ast).index(loop)
    with pytest.raises(OptError, match="takes 16 terms, of 24"):
        apply_opt(ast, Opt(OptOps.SLICE, place, (0,)), CUDA)
    with pytest.raises(OptError, match="no two products that fit mma"):
        apply_opt(ast, Opt(OptOps.SLICE, place, (2,)), CUDA)
    with pytest.raises(OptError, match=r"CUDA has 3 matrix units, not \(3,\)"):
        apply_opt(ast, Opt(OptOps.SLICE, place, (3,)), CUDA)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float", "half"])
def test_lanes_meet_in_no_bank(dtype: str) -> None:
    found = count(program(kernel_for(2, 64, 64, dtype=dtype), None), 1)
    assert found.conflicts == 0
