"""Values in lanes: epilogues of several reductions, and indices that are loaded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.engine.program.stages import to_program
from tilegrad.ir import Ops, UOp

TARGET = replace(Device["CPU"].target, vector_bytes=32, has_mask=True, matrix_units=())


def program(value: Tensor) -> list[UOp]:
    return to_program(kernel_of(value, TARGET), TARGET)[1]


def tensors(rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    weight, vector = Tensor.empty(rows, columns).realize(), Tensor.empty(columns).realize()
    return weight, vector, Tensor.empty(rows).realize()


def test_eight_rows_are_a_vector_of_results() -> None:
    weight, vector, bias = tensors(512, 1024)
    found = program((weight @ vector + bias).exp())
    (store,) = [node for node in found if node.op is Ops.STORE]
    assert store.src[2].dtype is dtypes.float32.vec(8)
    # The exponential is computed for a vector alone.
    assert not any(node.op is Ops.BITCAST and node.dtype.lanes == 1 for node in found)
    assert sum(node.op is Ops.DEFINE_ACC for node in found) == 8


@pytest.mark.parametrize(("rows", "columns"), [(512, 1024), (511, 1024), (12, 40_000)])
@pytest.mark.parametrize("name", ["bias", "tanh", "bfloat16", "both"])
def test_values(rows: int, columns: int, name: str) -> None:
    numbers = np.random.default_rng(0)
    w, v, b = (
        numbers.standard_normal(shape, np.float32) for shape in ((rows, columns), columns, rows)
    )
    w /= np.float32(np.sqrt(columns))
    weight, vector, bias = Tensor(w), Tensor(v), Tensor(b)
    exact = w.astype("d") @ v
    if name == "bias":
        found, expected = (weight @ vector + bias) * 2, (exact + b) * 2
    elif name == "tanh":
        found = (weight @ vector + bias).tanh()
        expected = np.tanh(exact + b)
    elif name == "bfloat16":
        found = (weight.bfloat16() @ vector.bfloat16()).float() + bias
        short = [Tensor(each).bfloat16().float().numpy().astype("d") for each in (w, v)]
        expected = short[0] @ short[1] + b
    else:
        found = (weight @ vector) * (weight * weight).sum(1).sqrt()
        expected = exact * np.sqrt((w.astype("d") ** 2).sum(1))
    bound = 4e-2 if name == "bfloat16" else 3e-5
    np.testing.assert_allclose(found.numpy(), expected, rtol=bound, atol=bound)


def test_a_result_beyond_a_padded_end() -> None:
    """Its reduction is empty, and would share no loop with the others."""
    numbers = np.random.default_rng(0)
    x, w = numbers.standard_normal((2, 3, 5, 6)), numbers.standard_normal((3, 4, 3, 3))
    given, weight = Tensor(x.astype(np.float32)), Tensor(w.astype(np.float32))
    made = given.conv_transpose2d(weight, stride=2)
    steps = numbers.standard_normal(made.shape)
    (found,) = (made * Tensor(steps).cast(made.dtype)).sum().gradient(given)
    expected = np.zeros_like(x)
    for row in range(3):
        for column in range(3):
            there = steps[:, :, row : row + 9 : 2, column : column + 11 : 2]
            expected += np.einsum("bohw,io->bihw", there, w[:, :, row, column])
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-5)


def test_reductions_of_rows_in_scratch() -> None:
    """Each result has a row of its own there, filled just before: they are made one by one."""
    numbers = np.random.default_rng(0)
    x, y = (numbers.standard_normal(shape, np.float32) for shape in ((300, 17), (2, 300, 17)))
    # Computed for the maximum and for its index: stored in between.
    value = (Tensor(y) / (Tensor(x).abs() + 1)).maximum(Tensor(x)).permute(2, 1, 0)
    exact = np.maximum(y / (np.abs(x) + 1), x).transpose(2, 1, 0)
    np.testing.assert_array_equal(value.argmax(2).numpy(), exact.argmax(2))
    picked = value.gather(2, value.argmax(2, keepdim=True))
    np.testing.assert_allclose(picked.numpy()[..., 0], exact.max(2), rtol=1e-6)


def test_indices_of_a_gather_are_tested_as_vectors() -> None:
    table, indices = Tensor.empty(40, 64).realize(), Tensor.zeros(40, 32, dtype=dtypes.int64)
    found = program(table.gather(1, indices.contiguous().realize()))
    tests = [node for node in found if node.op is Ops.CMPLT and node.src[0].op is not Ops.RANGE]
    assert tests
    assert all(node.dtype.lanes == 4 for node in tests)
    # One load of eight bytes for each lane would be as slow as a test of each.
    assert all(
        node.dtype.lanes > 1
        for node in found
        if node.op is Ops.LOAD and node.dtype.scalar is dtypes.int64
    )


@pytest.mark.parametrize("columns", [1, 5, 16, 37])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1"])
def test_values_of_gathers(columns: int, dtype: str) -> None:
    numbers = np.random.default_rng(columns)
    table = (numbers.standard_normal((30, 41)) * 50).astype(dtype)
    indices = numbers.integers(-41, 41, (30, columns))
    found = Tensor(table)[Tensor(np.arange(30)[:, None]), Tensor(indices)]
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(table, indices % 41, 1))
