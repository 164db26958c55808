"""Tiles transposed in registers: right values, and no element stored alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.test_stage import SEED, kernel_of, run
from tilegrad import Context, Device, Tensor, dtypes
from tilegrad.engine.build.pipeline import compile_kernel
from tilegrad.engine.program.stages import to_program
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.ir.args import KernelInfo
from tilegrad.lower.lower import lower
from tilegrad.lower.transpose_accesses import transpose_stores
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.target import Target


def stored_lanes(ast_of: Tensor, opts: list[Opt] | None = None) -> set[int]:
    _, program = to_program(kernel_of(ast_of), Device["CPU"].target, opts)
    return {node.src[2].dtype.lanes for node in program if node.op is Ops.STORE}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8, np.float16])
def test_matrices_of_all_widths(dtype: type) -> None:
    for rows, columns in ((16, 32), (64, 8), (12, 20), (7, 16), (48, 4), (2, 2), (33, 31)):
        a = (SEED.standard_normal((rows, columns)) * 100).astype(dtype)
        np.testing.assert_array_equal(Tensor(a).T.contiguous().numpy(), a.T)


def test_axes_of_images() -> None:
    a = SEED.standard_normal((2, 16, 8, 24), np.float32)
    for order in itertools.permutations(range(4)):
        np.testing.assert_array_equal(
            Tensor(a).permute(order).contiguous().numpy(), a.transpose(order)
        )


def test_computed_tiles_are_transposed_too() -> None:
    a, b = SEED.standard_normal((2, 32, 64), np.float32)
    bias = SEED.standard_normal(64, np.float32)
    found = (Tensor(a) * 2 + Tensor(bias)).T + Tensor(b).T
    np.testing.assert_allclose(found.numpy(), (a * 2 + bias).T + b.T, rtol=1e-6)


def test_no_element_is_stored_alone() -> None:
    lanes = Device["CPU"].target.lanes_of(dtypes.float)
    if lanes < 4:
        pytest.skip("this processor has no vectors")
    x = Tensor.empty(64, 128).realize()
    assert stored_lanes(x.T.contiguous()) == {lanes}


def test_masks_round_up_the_rows() -> None:
    """Seven rows are stored as eight where a mask hides the last."""
    x = Tensor.empty(16, 16, 14).realize()
    w = Tensor.empty(64, 16).realize()
    product = (x.reshape(16, 1, 16, 14) * w.reshape(1, 64, 16, 1)).sum(2)
    data = SEED.standard_normal((16, 16, 14), np.float32)
    weights = SEED.standard_normal((64, 16), np.float32)
    opts = [
        Opt(OptOps.UPCAST, 1, 16),
        Opt(OptOps.UPCAST, 2, 7),
        Opt(OptOps.STAGE, -1, 2),
    ]
    found = run(kernel_of(product), opts, (16, 64, 14), data, weights)
    np.testing.assert_allclose(found, np.einsum("nkx,ok->nox", data, weights), rtol=1e-5, atol=1e-5)
    if Device["CPU"].target.has_mask:
        assert 8 in stored_lanes(product, opts)


@pytest.mark.parametrize("rows", [4, 8, 13])
def test_lanes_of_padding_are_left_out(rows: int) -> None:
    """The last vectors of a padded axis are stored whole or not at all."""
    if not Device["CPU"].target.has_mask:
        pytest.skip("this processor has no masks")
    left, right = (SEED.standard_normal(shape, np.float32) for shape in ((9, 53), (9, rows)))
    product = Tensor(left).realize().T @ Tensor(right).realize()
    opts = [Opt(OptOps.PADTO, 0, 16), Opt(OptOps.UPCAST, 0, 16), Opt(OptOps.UPCAST, 1, 0)]
    found = run(kernel_of(product), opts, (53, rows), left, right)
    np.testing.assert_allclose(found, left.T.astype("d") @ right, rtol=1e-4, atol=1e-5)
    assert 1 not in stored_lanes(product, opts)


def test_tiles_that_are_added_to_memory_are_transposed_too() -> None:
    """The gradient of an image whose pixels were repeated, as `interpolate` repeats them: each
    pixel of the tile is added where its copy came from.
    """
    x = Tensor(SEED.standard_normal((2, 16, 4, 8), np.float32)).realize()
    w = Tensor(SEED.standard_normal((32, 16, 3, 3), np.float32)).realize()
    x.requires_grad = True
    rows = Tensor(np.arange(8) // 2).realize()
    grown = x[:, :, rows]
    seen = SEED.standard_normal((2, 32, 8, 8), np.float32)
    (grown.conv2d(w, padding=1) * Tensor(seen)).sum().backward()
    assert x.grad is not None
    spread = np.zeros((2, 16, 8, 8))
    padded = np.pad(seen.astype("d"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for row, column in itertools.product(range(3), range(3)):
        part = padded[:, :, 2 - row : 10 - row, 2 - column : 10 - column]
        spread += np.einsum("nohw,oi->nihw", part, w.numpy()[:, :, row, column])
    expected = spread.reshape(2, 16, 4, 2, 8).sum(3)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_gated", [False, True])
def test_sums_in_memory_are_stored_as_vectors(is_gated: bool) -> None:
    target = Device["CPU"].target
    lanes = target.lanes_of(dtypes.float)
    if lanes < 4 or not target.has_mask:
        pytest.skip("this processor has no masked vectors")
    k, i = UOp.range(7, 0), UOp.range(lanes, 1, Axis.UPCAST)
    j = UOp.range(8, 2, Axis.UPCAST)
    out, a = (
        UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(size), (), slot)
        for slot, size in ((0, 9 * lanes), (1, 56 * lanes))
    )
    value = a.load(k * (8 * lanes) + j * lanes + i)
    gate = (k < 5,) if is_gated else ()
    store = out.store(i * 9 + j, value, *gate, combine=Ops.ADD)
    ast = UOp.sink(store.end(k), arg=KernelInfo("E", (0, 1, 2)))
    stores = [node for node in lower(ast, target) if node.op is Ops.STORE]
    assert {node.value.dtype.lanes for node in stores} == {8}
    assert {node.arg for node in stores} == {Ops.ADD} and len(stores) % lanes == 0
    data = SEED.standard_normal((7, 8, lanes), np.float32)
    found = np.ones((lanes, 9), np.float32)
    backend = Device["CPU"]
    kernel = compile_kernel(ast, backend, [])
    program = backend.runtime.load(kernel.function, kernel.binary)
    memory = [array.ctypes.data for array in (found, data)]
    backend.runtime.launch(program, memory, (), kernel.global_size, kernel.local_size, wait=True)
    expected = np.ones((lanes, 9))
    expected[:, :8] += data[: 5 if is_gated else 7].astype("d").sum(0).T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_targets_without_vectors_are_left_alone() -> None:
    ast = kernel_of(Tensor.empty(16, 16).realize().T.contiguous())
    assert transpose_stores(ast, Target("plain")) is ast


def test_plain_kernels_agree() -> None:
    a = SEED.standard_normal((48, 32), np.float32)
    with Context(NOOPT=1):
        np.testing.assert_array_equal(Tensor(a).T.contiguous().numpy(), a.T)


def loaded_lanes(ast_of: Tensor, opts: list[Opt]) -> list[int]:
    _, program = to_program(kernel_of(ast_of), Device["CPU"].target, opts)
    return [node.dtype.lanes for node in program if node.op is Ops.LOAD]


@pytest.mark.parametrize("pixels", [4, 7, 8, 12, 14, 16])
def test_what_is_added_to_a_tile_is_loaded_along_its_rows(pixels: int) -> None:
    """A residual lies as the result does: neighbours along the rows of the tile."""
    x, r = Tensor.empty(4, 16, pixels).realize(), Tensor.empty(4, 64, pixels).realize()
    w = Tensor.empty(64, 16).realize()
    total = (x.reshape(4, 1, 16, pixels) * w.reshape(1, 64, 16, 1)).sum(2) + r
    data = SEED.standard_normal((4, 16, pixels), np.float32)
    weights = SEED.standard_normal((64, 16), np.float32)
    residual = SEED.standard_normal((4, 64, pixels), np.float32)
    opts = [Opt(OptOps.UPCAST, 1, 16), Opt(OptOps.UPCAST, 2, pixels), Opt(OptOps.STAGE, -1, 2)]
    found = run(kernel_of(total), opts, (4, 64, pixels), data, weights, residual)
    expected = np.einsum("nkx,ok->nox", data, weights) + residual
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    target = Device["CPU"].target
    if target.has_mask:
        # The tile's elements of x alone: of which each serves all lanes. Where a vector is as long
        # as a row, lanes are pixels, and it is the elements of w that do.
        is_row = pixels == target.lanes_of(dtypes.float)
        assert loaded_lanes(total, opts).count(1) == (16 if is_row else pixels)


def apart() -> tuple[Tensor, np.ndarray]:
    """Products of batches, batch last: neither axis of a register tile is contiguous there."""
    a = SEED.standard_normal((3, 32, 64), np.float32)
    b = SEED.standard_normal((3, 64, 64), np.float32)
    product = Tensor(a).realize() @ Tensor(b).realize()
    return product.permute(2, 1, 0).contiguous(), (a @ b).transpose(2, 1, 0)


def test_lanes_that_stay_apart_are_one_store() -> None:
    if not Device["CPU"].target.has_scatter:
        pytest.skip("this processor has no scatter")
    found, expected = apart()
    _, program = to_program(kernel_of(found), Device["CPU"].target)
    stores = [node for node in program if node.op is Ops.STORE and node.src[1].dtype.lanes > 1]
    assert stores and all(node.src[2].dtype.lanes == 16 for node in stores)
    assert not [node for node in program if node.op is Ops.GEP and len(node.arg) == 1]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.int64])
def test_lanes_of_all_widths_that_stay_apart(dtype: type) -> None:
    a = (SEED.standard_normal((5, 32, 48)) * 100).astype(dtype)
    b = (SEED.standard_normal((5, 48, 32)) * 100).astype(dtype)
    found = (Tensor(a) @ Tensor(b)).permute(2, 1, 0).contiguous()
    np.testing.assert_allclose(found.numpy(), (a @ b).transpose(2, 1, 0), rtol=1e-9)


def test_without_a_scatter_lanes_are_stored_one_by_one() -> None:
    found, _ = apart()
    target = replace(Device["CPU"].target, has_scatter=False)
    _, program = to_program(kernel_of(found), target)
    assert all(node.src[1].dtype.lanes == 1 for node in program if node.op is Ops.STORE)
