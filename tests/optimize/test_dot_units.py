"""Sums of short products on dot units: which kernels take them, and what they come to.

The values are computed on this machine's processor; where it has no such instruction, the same
kernels run by products, and everything but the instruction is tested.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Device, Tensor, Variable, dtypes
from tilegrad.base.config import Context
from tilegrad.base.dtype import DType
from tilegrad.base.errors import OptError
from tilegrad.engine.build.pipeline import compile_kernel
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.spec import verify
from tilegrad.ir.text import parse
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.matrix_units import dot_unit
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.dots import find_dots
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.render.llvm import LLVMRenderer
from tilegrad.target import Target

HALVES = dot_unit(2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float)
BYTES = dot_unit(4, dtypes.uint8, dtypes.int8, dtypes.int)
# A processor with the units, whatever this one has.
WIDE = Target(
    "cpu", vector_bytes=64, registers=32, threads=8, has_mask=True, matrix_units=(HALVES, BYTES),
    missing_dtypes=frozenset({dtypes.bfloat16}), isa="avx512",
)  # fmt: skip
LIMITS = {
    np.int8: (-128, 127),
    np.uint8: (0, 255),
}


def empty(*shape: int, dtype: DType = dtypes.bfloat16) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


def opts_of(result: Tensor, target: Target = WIDE) -> list[Opt]:
    return heuristic(start(kernel_of(result, WIDE), target), target)


def units_of(result: Tensor, target: Target = WIDE) -> list[str]:
    """The units that the kernel of `result` runs on."""
    return [
        target.matrix_units[opt.arg[0]].name
        for opt in opts_of(result, target)
        if opt.op is OptOps.TC
    ]


def source_of(ast: UOp, opts: list[Opt], target: Target = WIDE) -> str:
    shaped = apply_opts(start(ast, target), opts, target)
    verify(shaped, Stage.KERNEL, "optimize")
    program = lower(shaped, target)
    verify(program, Stage.PROGRAM, "lower")
    return LLVMRenderer(target.vector_bytes).render("example", program)


def numbers(rng: np.random.Generator, dtype: Any, *shape: int) -> Any:
    """Bytes of the whole range, the extremes among them."""
    low, high = LIMITS[dtype]
    values = rng.integers(low, high + 1, shape).astype(dtype)
    values[0] = low if low else high
    return values


def halves(rng: np.random.Generator, *shape: int) -> Tensor:
    return Tensor(rng.normal(size=shape).astype(np.float32)).cast(dtypes.bfloat16).realize()


def check_halves(got: Tensor, left: Any, right: Any) -> None:
    """Within the error of float32 additions, of which there are as many as the inner size."""
    bound = left.shape[-1] * 2.0**-24 * (np.abs(left) @ np.abs(right))
    assert np.all(np.abs(got.double().numpy() - left @ right) <= bound)


@pytest.mark.parametrize(("m", "n", "k"), [(17, 33, 19), (5, 48, 2), (64, 20, 70)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_halves(m: int, n: int, k: int, turned: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(m)
    a, b = (
        halves(rng, *((k, m) if turned[0] else (m, k))),
        halves(rng, *((n, k) if turned[1] else (k, n))),
    )
    left, right = a.T if turned[0] else a, b.T if turned[1] else b
    got = left.matmul(right, dtype=dtypes.float)
    check_halves(got, left.double().numpy(), right.double().numpy())


@pytest.mark.parametrize("left", LIMITS)
@pytest.mark.parametrize("right", LIMITS)
def test_bytes_are_exact(left: Any, right: Any) -> None:
    """Of every pair of kinds, at the extremes, too: nothing saturates on the way."""
    rng = np.random.default_rng(3)
    for m, n, k, is_turned in ((32, 64, 64, True), (9, 33, 131, False), (13, 48, 70, True)):
        a, b = numbers(rng, left, m, k), numbers(rng, right, *((n, k) if is_turned else (k, n)))
        if is_turned:
            b = b.T
        got = Tensor(a).matmul(Tensor(np.ascontiguousarray(b.T)).T if is_turned else Tensor(b),
                               dtype=dtypes.int).numpy()  # fmt: skip
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_the_unit_is_found_by_the_heuristic() -> None:
    """In products of any form, of operands of any order, for results of any dtype."""
    assert units_of(empty(64, 64) @ empty(64, 64)) == [HALVES.name]
    assert units_of(empty(64, 64).matmul(empty(64, 64).T, dtype=dtypes.float)) == [HALVES.name]
    assert units_of(empty(3, 64, 64) @ empty(3, 64, 64)) == [HALVES.name]
    assert units_of((empty(64, 64).relu() @ empty(64, 64)).relu()) == [HALVES.name]
    assert units_of(empty(2, 16, 9, 9).conv2d(empty(32, 16, 3, 3))) == [HALVES.name]
    byte, signed = empty(64, 64, dtype=dtypes.uint8), empty(64, 64, dtype=dtypes.int8)
    assert units_of(byte.matmul(signed, dtype=dtypes.int)) == [BYTES.name]
    assert units_of(signed.matmul(signed.T, dtype=dtypes.int)) == [BYTES.name]


def test_what_has_no_unit() -> None:
    """Another dtype, a target without units, the switch that turns them off, and folds of little
    reuse.
    """
    for dtype in (dtypes.float, dtypes.half, dtypes.int16):
        assert not units_of(empty(64, 64, dtype=dtype) @ empty(64, 64, dtype=dtype))
    product = empty(64, 64) @ empty(64, 64)
    assert not units_of(empty(64, 64) @ empty(64))
    assert not units_of(product, Target("cpu", vector_bytes=32, threads=8, has_mask=True))
    with Context(TC=0):
        assert not units_of(product)


def test_one_instruction_an_operand() -> None:
    """In the inner loop a vector of the panel is a load, and of the rows a number for all lanes."""
    product = empty(48, 64).matmul(empty(64, 64), dtype=dtypes.float)
    text = source_of(kernel_of(product, WIDE), opts_of(product))
    lines = text.split("call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512")
    # Six or eight rows of two vectors, in the loop over the panel.
    assert len(lines) - 1 in (12, 16, 24)
    inner = text[text.rindex("phi i32", 0, text.index("dpbf16ps.512(")) :]
    inner = inner[: inner.index("br i1")]
    assert inner.count("load <32 x i16>") == 2
    assert inner.count("load <2 x i16>") == (len(lines) - 1) // 2
    assert "fpext" not in inner
    assert "fmul" not in inner


def test_a_unit_by_hand() -> None:
    """TC takes what is written out for it, or splits the fold itself; mode 2 splits it only."""
    product = empty(32, 32).matmul(empty(32, 32), dtype=dtypes.float)
    ast = kernel_of(product, WIDE)
    assert len(find_dots(ast, HALVES)) == 2
    assert not find_dots(ast, BYTES)
    lanes = Opt(OptOps.UPCAST, 1, 16)
    for opts in (
        [lanes, Opt(OptOps.TC, 0, (0, 1))],
        [lanes, Opt(OptOps.UNROLL, 0, 2), Opt(OptOps.TC, 0, (0, 1))],
    ):
        assert "dpbf16ps.512" in source_of(ast, opts)
    # Without lanes there is no such instruction.
    assert "dpbf16ps" not in source_of(ast, [Opt(OptOps.TC, 0, (0, 1))])
    assert "dpbf16ps" not in source_of(ast, [lanes, Opt(OptOps.TC, 0, (0, 2))])


def test_units_that_do_not_fit() -> None:
    ast = start(kernel_of(empty(32, 33).matmul(empty(33, 32), dtype=dtypes.float)), WIDE)
    for opt, message in (
        (Opt(OptOps.TC, 0, (0, 1)), r"dot2.bfloat16.* takes 2 at a time, the axis has 33"),
        (Opt(OptOps.TC, 0, (1, 1)), r"0 products fit dot4.uint8.int8.int32, not number 0"),
        (Opt(OptOps.TC, 2, (0, 1)), r"2 products fit dot2.*, not number 2"),
        (Opt(OptOps.TC, 0, (2, 1)), r"cpu has 2 matrix units, not number 2"),
    ):
        with pytest.raises(OptError, match=message):
            apply_opts(ast, [opt], WIDE)


def test_what_wraps_around_at_the_end_may_be_exact_before() -> None:
    """A product of bytes that stays one is a sum of exact products, of which the last bits stay."""
    rng = np.random.default_rng(1)
    a, b = numbers(rng, np.int8, 20, 36), numbers(rng, np.int8, 36, 32)
    assert units_of(Tensor.empty(64, 64, dtype=dtypes.int8) @ empty(64, 64, dtype=dtypes.int8))
    got = (Tensor(a) @ Tensor(b)).numpy()
    np.testing.assert_array_equal(got, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int8))
    # Of a sum that keeps more than the product has, each product wraps around.
    product = (Tensor(a).reshape(20, 36, 1) * Tensor(b)).sum(1, dtype=dtypes.int).numpy()
    wrapped = (a[:, :, None] * b).astype(np.int64)
    np.testing.assert_array_equal(product, wrapped.sum(1))


def test_what_is_too_small_for_a_float() -> None:
    """Operands below 2**-126 may count as 0."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=(2, 32, 32)).astype(np.float32)
    values[0, :, ::3] *= 2.0**-129
    a, b = (Tensor(each).cast(dtypes.bfloat16).realize() for each in values)
    left, right = a.double().numpy(), b.double().numpy()
    apart = np.abs(a.matmul(b, dtype=dtypes.float).double().numpy() - left @ right)
    assert np.all(apart <= 32 * 2.0**-24 * (np.abs(left) @ np.abs(right))
                  + 2.0**-126 * (1 + np.abs(right).sum(0)))  # fmt: skip


@pytest.mark.parametrize(("channels", "stride"), [(6, 1), (5, 2)])
def test_convolutions(channels: int, stride: int) -> None:
    rng = np.random.default_rng(5)
    x, w = halves(rng, 2, channels, 12, 13), halves(rng, 32, channels, 3, 3)
    got = x.conv2d(w, stride=stride, padding=1).double().numpy()
    values = np.pad(x.double().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(values, (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    wanted = np.einsum("nchwij,ocij->nohw", windows, w.double().numpy())
    sizes = np.einsum("nchwij,ocij->nohw", np.abs(windows), np.abs(w.double().numpy()))
    # Rounded once to bfloat16.
    assert np.all(np.abs(got - wanted) <= 2.0**-8 * np.abs(wanted) + 100 * 2.0**-24 * sizes)


def test_panels_are_packed_by_whole_vectors() -> None:
    """From memory of either order, of operands of either side."""
    short, byte = empty(64, 64), empty(64, 64, dtype=dtypes.int8)
    for product in (
        short.matmul(empty(64, 64), dtype=dtypes.float),
        short.T.matmul(empty(64, 64).T, dtype=dtypes.float),
        byte.matmul(byte.T, dtype=dtypes.int),
    ):
        text = source_of(kernel_of(product, WIDE), opts_of(product))
        assert "store i8" not in text
        assert "store i16" not in text
        assert "shufflevector" in text


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_deep_fold_is_cut(dtype: Any) -> None:
    """Where a panel is larger than the cache; the other side's sum then has a part of each cut."""
    rng = np.random.default_rng(6)
    a, b = numbers(rng, dtype, 24, 256), numbers(rng, dtype, 256, 32)
    kind = dtypes.int8 if dtype is np.int8 else dtypes.uint8
    ast = kernel_of(empty(24, 256, dtype=kind).matmul(empty(256, 32, dtype=kind), dtype=dtypes.int))
    opts = heuristic(start(ast, WIDE), replace(WIDE, cache_bytes=(1 << 10, 1 << 12, 1 << 20)))
    kinds = [opt.op for opt in opts]
    assert OptOps.TILE in kinds
    backend = Device["CPU"]
    if len(backend.target.matrix_units) < 2:
        assert "vpdpbusd" in source_of(ast, opts)
        return
    kernel = compile_kernel(ast, backend, opts)
    program = backend.runtime.load(kernel.function, kernel.binary)
    result = np.zeros((24, 32), np.int32)
    memory = [array.ctypes.data for array in (result, a, b)]
    backend.runtime.launch(program, memory, (), kernel.global_size, kernel.local_size, wait=True)
    np.testing.assert_array_equal(result, a.astype(np.int64) @ b.astype(np.int64))


def test_rows_beyond_the_last_are_read_from_the_first() -> None:
    """They are not stored, so the fold has no gate for them; K that is no multiple has one."""
    for inner, gates in ((64, 0), (65, 1)):
        ast = kernel_of(empty(17, inner).matmul(empty(inner, 32), dtype=dtypes.float))
        shaped = apply_opts(start(ast, WIDE), heuristic(start(ast, WIDE), WIDE), WIDE)
        (unit,) = [node for node in shaped.toposort() if node.op is Ops.WMMA]
        loads = [node for node in unit.src[0].toposort() if node.op is Ops.LOAD]
        assert len(loads) == 2
        assert sum(len(load.src) == 4 for load in loads) == gates
        ranges = sorted(loads[0].src[1].ranges, key=lambda part: part.arg[1] is Axis.REDUCE)
        last = {ranges[-1]: UOp.const(dtypes.index, ranges[-1].vmax)}
        rows = [
            simplify(loads[0].src[1].substitute({**last, **dict(zip(ranges, place, strict=False))}))
            for place in itertools.product(
                *(
                    [UOp.const(dtypes.index, at) for at in range(part.vmax + 1)]
                    for part in ranges[:-1]
                )
            )
        ]
        # The first of the last pair of each row, and no others.
        assert {row.arg for row in rows} == {
            row * inner + (inner - 1) // 2 * 2 for row in range(17)
        }
        assert len(rows) > 17


def test_a_kernel_with_a_unit_is_text() -> None:
    """Its printed form is read back, and its cost is that of vectors."""
    for product in (
        empty(64, 64).matmul(empty(64, 64), dtype=dtypes.float),
        empty(64, 64, dtype=dtypes.int8).matmul(empty(64, 64, dtype=dtypes.int8), dtype=dtypes.int),
    ):
        ast = start(kernel_of(product, WIDE), WIDE)
        shaped = apply_opts(ast, heuristic(ast, WIDE), WIDE)
        assert parse(str(shaped)) is shaped
        assert estimate(shaped, WIDE).vector_use > 0.9
        assert estimate(shaped, WIDE).registers <= WIDE.registers


def test_sizes_that_are_known_when_it_runs() -> None:
    """Of rows, or of a batch of turned operands."""
    rng = np.random.default_rng(7)
    rows, other = halves(rng, 40, 64), halves(rng, 64, 32)
    batch, others = halves(rng, 8, 40, 48), halves(rng, 8, 40, 32)
    for count in (3, 8):
        size = Variable("n", 1, 8).bind(count)
        got = rows[:size].matmul(other, dtype=dtypes.float).sum(0)
        left, right = rows.double().numpy()[:count], other.double().numpy()
        np.testing.assert_allclose(got.numpy(), (left @ right).sum(0), atol=1e-3)
        got = batch.permute(0, 2, 1)[:size].matmul(others[:size], dtype=dtypes.float).sum(0)
        left = batch.double().numpy()[:count].transpose(0, 2, 1)
        wanted = (left @ others.double().numpy()[:count]).sum(0)
        np.testing.assert_allclose(got.numpy(), wanted, atol=1e-3)


@pytest.mark.parametrize("lanes", [0, 32])
def test_a_processor_rounds_no_product_before_it_is_added(lanes: int) -> None:
    """Vectors or not: also products that count only inside a border, as in gradients of windows."""
    target = Target("cpu", vector_bytes=lanes)
    x, w = empty(1, 4, 8, dtype=dtypes.half), empty(2, 4, 3, dtype=dtypes.half)
    y = x.conv2d(w, padding=1)
    for result in (y, *y.gradient(x, w, gradient=empty(*y.shape, dtype=dtypes.half))):
        kernel = start(kernel_of(result, WIDE), target)
        products = [node for node in kernel.toposort() if node.op is Ops.MUL]
        assert not any(node.dtype is dtypes.half for node in products)
        assert any(node.dtype is dtypes.float for node in products)
