"""Reductions run over the iterations that count, with equal results."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad import Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.engine.build.kernel import Kernel, Opt, OptOps
from tilegrad.hardware import cuda_target
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.lower.expand import unroll
from tilegrad.lower.skip import skip_iterations, skip_products
from tilegrad.target import Target

TARGET = Device["CPU"].target
SIZE = 7


def window(places: int, stride: int, dilation: int, before: int, fold: Ops = Ops.ADD) -> UOp:
    """out[y] = sum of a[y * stride + k * dilation - before] * w[k] over k, zeros around a."""
    count = (SIZE + 2 * before - dilation * (places - 1) - 1) // stride + 1
    out, a, w = (
        UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(size), (), slot)
        for slot, size in enumerate((count, SIZE, places))
    )
    y, k = UOp.range(count, 0, Axis.LOOP), UOp.range(places, 1, Axis.REDUCE)
    at = simplify(y * stride + k * dilation - before)
    gate = (at >= 0) & (at < SIZE)
    value = a.load(at, UOp.const(dtypes.float32, 0), gate) * w.load(k)
    total = UOp(Ops.REDUCE, dtypes.float32, (value, k), fold)
    return UOp(Ops.SINK, dtypes.void, (out.store(y, total),), KernelInfo("r", (0, 1)))


def iterations(ast: UOp) -> list[int]:
    """The iterations of the reduce loop, for each y."""
    (fold,) = [node for node in ast.toposort() if node.op is Ops.REDUCE]
    (extent,) = fold.src[1].src
    (y,) = [node for node in ast.toposort() if node.op is Ops.RANGE and node.arg[0] == 0]
    at = [simplify(extent, {y: UOp.const(dtypes.index, row)}) for row in range(y.src[0].arg)]
    return [each.arg for each in at]


def needed(places: int, stride: int, dilation: int, before: int) -> list[int]:
    rows = range((SIZE + 2 * before - dilation * (places - 1) - 1) // stride + 1)
    at = [[y * stride + k * dilation - before for k in range(places)] for y in rows]
    return [sum(0 <= each < SIZE for each in row) for row in at]


SHAPES: list[tuple[int, int, int, int]] = [
    (3, 1, 1, 1),
    (5, 1, 1, 4),
    (3, 2, 1, 1),
    (3, 1, 2, 2),
    (4, 3, 2, 5),
    (2, 1, 1, 9),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_staged", [False, True])
def test_iterations_are_those_that_count(shape: tuple[int, int, int, int], is_staged: bool) -> None:
    ast = window(*shape)
    if is_staged:
        kernel = Kernel(ast, replace(TARGET, has_mask=False)).apply_opts([Opt(OptOps.STAGE, -1, 1)])
        ast = kernel.ast
    assert iterations(skip_iterations(ast, TARGET)) == needed(*shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_that_count(shape: tuple[int, int, int, int]) -> None:
    """A filter window that is unrolled at all of its positions."""
    ast = window(*shape)
    kernel = Kernel(ast, TARGET).apply_opts([Opt(OptOps.UPCAST, 0, 0), Opt(OptOps.UNROLL, 0, 0)])
    ast = skip_products(unroll(kernel.ast), TARGET)
    found = [node for node in ast.toposort() if node.op is Ops.STORE]
    products = [sum(part.op is Ops.MUL for part in store.src[2].src) for store in found]
    assert products == needed(*shape)


def unrolled_window(*, is_choice: bool) -> UOp:
    """out[i, y] = sum of a[i + y + k - 1] * 0.5 over k, zero where y + k - 1 or i is outside: a
    gate of loops and unrolled axes. As a choice, zero stands beside the load instead.
    """
    out, a = (UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(64), (), slot) for slot in (0, 1))
    i, y = UOp.range(9, 0, Axis.LOOP), UOp.range(4, 1, Axis.UPCAST)
    k = UOp.range(3, 2, Axis.UNROLL)
    zero = UOp.const(dtypes.float32, 0)
    at = simplify(y + k - 1)
    gate = (i < 7) & (at >= 0) & (at < 4)
    load = a.load(i + y + k, zero, gate)
    value = gate.where(load, zero) if is_choice else load * 0.5
    total = UOp(Ops.REDUCE, dtypes.float32, (value, k), Ops.ADD)
    return UOp(Ops.SINK, dtypes.void, (out.store(i * 4 + y, total),), KernelInfo("r", (0, 1, 2)))


@pytest.mark.parametrize("is_choice", [False, True])
def test_a_gate_is_closed_where_one_of_its_conditions_is(is_choice: bool) -> None:
    """The others may depend on loops: the first and the last of four rows see padding."""
    ast = skip_products(unroll(unrolled_window(is_choice=is_choice)), TARGET)
    found = [node for node in ast.toposort() if node.op is Ops.STORE]
    assert [len(store.src[2].src) for store in found] == [2, 3, 3, 2]


def test_no_gate_is_left_where_none_is_closed() -> None:
    made = skip_iterations(window(3, 1, 1, 1), TARGET)
    assert [len(node.src) for node in made.toposort() if node.op is Ops.LOAD] == [2, 2]


@pytest.mark.parametrize(
    ("fold", "target"), [(Ops.MAX, TARGET), (Ops.ADD, cuda_target("sm_80"))], ids=["max", "blocks"]
)
def test_what_stays(fold: Ops, target: Target) -> None:
    """A zero counts for a maximum; lanes of a block iterate together."""
    ast = window(3, 1, 1, 1, fold)
    assert skip_iterations(ast, target) is ast


def reference(x: Any, w: Any, stride: int, pad: int) -> Any:
    x = np.pad(x.astype("d"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    view = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwyx,ocyx->nohw", view[:, :, ::stride, ::stride], w)


@pytest.mark.parametrize(("side", "kernel", "stride", "pad"), [(7, 3, 1, 1), (9, 5, 2, 3)])
def test_convolutions_and_their_gradients(side: int, kernel: int, stride: int, pad: int) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((3, 32, side, side), np.float32)
    w = random.standard_normal((48, 32, kernel, kernel), np.float32)
    given, weight = Tensor(x), Tensor(w)
    out = given.conv2d(weight, stride=stride, padding=pad)
    expected = reference(x, w, stride, pad)
    g = random.standard_normal(expected.shape, np.float32)
    (found,) = out.gradient(given, gradient=Tensor(g))
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)
    # The gradient of a linear function, by what it does to directions.
    direction = random.standard_normal(x.shape, np.float32)
    along = (reference(direction, w, stride, pad) * g).sum()
    np.testing.assert_allclose((found.numpy().astype("d") * direction).sum(), along, rtol=1e-4)


_PADDING_ALONE = """
import numpy as np
from tilegrad import Tensor

random = np.random.default_rng(4)
for size, kernel, padding, dilation, stride in (
    ((3, 1, 2, 1), (1, 1, 2, 1), (1, 2), (3, 2), (1, 2)),
    ((1, 2, 1, 1), (3, 2, 1, 2), (2, 1), (2, 2), (1, 1)),
    ((2, 2, 6, 1), (2, 2, 1, 2), (1, 1), (3, 2), (2, 1)),
    ((3, 1, 1, 1), (1, 1, 2, 1), (1, 1), (2, 1), (1, 1)),
):
    x, w = random.normal(size=size), random.normal(size=kernel)
    padded = np.pad(x, ((0, 0), (0, 0), *[(each, each) for each in padding]))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel[2:])]
    rows, columns = ((n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reach, stride))
    expected = np.zeros((size[0], kernel[0], rows, columns))
    for i, j in np.ndindex(rows, columns):
        top, left = i * stride[0], j * stride[1]
        seen = padded[:, :, top : top + reach[0], left : left + reach[1]]
        seen = seen[:, :, :: dilation[0], :: dilation[1]]
        expected[:, :, i, j] = np.einsum("nchw,ochw->no", seen, w)
    image, filters = Tensor(x.astype("f4")).realize(), Tensor(w.astype("f4")).realize()
    found = image.conv2d(filters, padding=padding, dilation=dilation, stride=stride)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
"""


@pytest.mark.parametrize("target", ["scalar", "sse", "avx2"])
def test_a_row_of_the_filter_that_sees_padding_alone(target: str, tmp_path: Path) -> None:
    environment = {"TILEGRAD_CPU_TARGET": target, "TILEGRAD_CACHE": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", _PADDING_ALONE], env={**os.environ, **environment}, check=False
    )
    assert found.returncode == 0
