"""Copies of operands taken out of kernels: bit for bit what the kernels compute by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.optimize.test_stage import SEED, STAGE, WIDE, correlate, kernel_of, run
from tilegrad import Device, Tensor
from tilegrad.base.dtype import Pointer
from tilegrad.engine.build.pipeline import CompiledKernel, compile_kernel, kernel_key
from tilegrad.engine.build.prepacked_weights import _compiled, prepack
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.generators.prepack import find_packed, take_out, worth_taking_out
from tilegrad.optimize.opts.opts import apply_opts

BACKEND = Device["CPU"]


def launch(kernel: CompiledKernel, *arrays: Any) -> None:
    program = BACKEND.runtime.load(kernel.function, kernel.binary)
    memory = [array.ctypes.data for array in arrays]
    BACKEND.runtime.launch(program, memory, (), kernel.global_size, kernel.local_size, wait=True)


def product(m: int, k: int, n: int, *, is_turned: bool) -> tuple[UOp, Any, Any, Any]:
    a, b = SEED.standard_normal((m, k), np.float32), SEED.standard_normal((k, n), np.float32)
    expected = a.astype(np.float64) @ b
    if is_turned:
        b = np.ascontiguousarray(b.T)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    return kernel_of(x @ (y.T if is_turned else y)), a, b, expected


@pytest.mark.parametrize(
    ("m", "k", "n"), [(8, 128, 160), (24, 100, 203), (64, 513, 96), (33, 1500, 70)]
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_packed_beforehand(m: int, k: int, n: int, is_turned: bool) -> None:
    ast, a, b, expected = product(m, k, n, is_turned=is_turned)
    found = prepack("CPU", compile_kernel(ast, BACKEND), {2})
    opts = heuristic(ast, BACKEND.target, {2})
    plain = run(ast, opts, (m, n), a, b)
    if found is None:
        assert not any(opt.op is STAGE and opt.arg == 2 for opt in opts)
        return
    (operand,) = found.operands
    assert operand.slot == 2 and operand.size >= k * n
    copy = np.full(operand.size, np.nan, np.float32)
    launch(operand.kernel, copy, b)
    result = np.full((m, n), np.nan, np.float32)
    launch(found.kernel, result, a, copy)
    np.testing.assert_array_equal(result, plain)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)


def test_a_convolution_takes_packed_weights_and_packs_its_windows() -> None:
    x = SEED.standard_normal((2, 16, 16, 16), np.float32)
    w = SEED.standard_normal((64, 16, 3, 3), np.float32)
    ast = kernel_of(Tensor(x).realize().conv2d(Tensor(w).realize(), padding=1))
    shaped = apply_opts(ast, heuristic(ast, WIDE, {2}), WIDE)
    assert {each.slot for each in find_packed(shaped)} == {1, 2}
    assert worth_taking_out(shaped, {2}) == [2]
    assert worth_taking_out(shaped, {2}, shaped.arg.opts) == [], "windows are copied anyway"
    main, packing = take_out(shaped, [2])
    assert [*packing] == [2]
    assert [each.slot for each in find_packed(main)] == [1]
    (given,) = {
        node.dtype for node in main.toposort() if node.op is Ops.DEFINE_GLOBAL and node.arg == 2
    }
    assert isinstance(given, Pointer) and given.size == w.size
    kernels = [
        _compiled(each, BACKEND, kernel_key(each, BACKEND), (0, 0)) for each in (packing[2], main)
    ]
    copy, result = np.zeros(w.size, np.float32), np.zeros((2, 64, 16, 16), np.float32)
    launch(kernels[0], copy, w)
    launch(kernels[1], result, x, copy)
    np.testing.assert_allclose(result, correlate(x, w, 1), rtol=1e-4, atol=1e-3)


def test_lanes_are_those_of_the_packed_operand() -> None:
    """Few rows are not lanes, where many weights are ready to be."""
    ast, *_ = product(16, 64, 512, is_turned=True)
    for given, staged in ((set(), 1), ({2}, 2)):
        opts = heuristic(ast, WIDE, given)
        assert [opt.arg for opt in opts if opt.op is STAGE] == [staged]


def test_only_a_measurable_share_is_taken_out() -> None:
    for rows, is_worth in ((64, True), (4096, False)):
        ast, *_ = product(rows, 128, 128, is_turned=True)
        shaped = apply_opts(ast, heuristic(ast, WIDE, {2}), WIDE)
        assert worth_taking_out(shaped, {2}) == [2] * is_worth
    assert prepack("CPU", compile_kernel(ast, BACKEND), {2}) is None
    assert prepack("CPU", compile_kernel(ast, BACKEND), set()) is None


def test_copies_that_read_long_runs_cost_little() -> None:
    """They keep up with memory, where products that read the copy from it first do not."""
    x, w = Tensor.empty(8, 256, 7, 7).realize(), Tensor.empty(64, 256, 3, 3).realize()
    for window, is_worth in ((w, False), (w.permute(1, 0, 2, 3).contiguous().realize(), True)):
        kernel = window if window is w else window.permute(1, 0, 2, 3)
        ast = kernel_of(x.conv2d(kernel, padding=1))
        shaped = apply_opts(ast, heuristic(ast, WIDE, {2}), WIDE)
        assert [each.has_long_runs for each in find_packed(shaped)] == [not is_worth]
        assert worth_taking_out(shaped, {2}) == [2] * is_worth


def test_what_comes_from_memory_for_few_uses_stays() -> None:
    for rows, is_worth in ((32, False), (128, True)):
        ast, *_ = product(rows, 128, 128, is_turned=True)
        shaped = apply_opts(ast, heuristic(ast, WIDE, {2}), WIDE)
        assert worth_taking_out(shaped, {2}) == [2]
        assert worth_taking_out(shaped, {2}, is_far=True) == [2] * is_worth


def test_what_is_read_twice_stays() -> None:
    """The operand is needed as it lies as well."""
    a, b = SEED.standard_normal((2, 96, 96), np.float32)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    ast = kernel_of(x @ y.T + y)
    assert prepack("CPU", compile_kernel(ast, BACKEND), {2}) is None
