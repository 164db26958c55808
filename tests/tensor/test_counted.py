"""Counts and distinct values of small tensors of integers, which the host finds."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.base.errors import IndexBoundsError

# Kernels are counted: the switches that compare two ways run both.
ONCE = Context(TEMPLATES=1, SEGMENTS=1, SIZES=1)
VALUES = np.array([[3, 0, 3], [7, -2, 0], [7, 7, 5]])


@pytest.mark.parametrize("templates", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint16"])
def test_distinct_values_are_numpys(dtype: str, templates: int) -> None:
    """By the host, and by kernels where no call waits."""
    array = VALUES.astype(dtype)
    with Context(TEMPLATES=templates):
        for tensor in (Tensor(array), Tensor(array) + 1):
            expected = np.unique(tensor.numpy(), return_inverse=True, return_counts=True)
            found = tensor.unique(return_inverse=True, return_counts=True)
            np.testing.assert_array_equal(found[0].numpy(), expected[0])
            np.testing.assert_array_equal(found[1].numpy().ravel(), expected[1].ravel())
            np.testing.assert_array_equal(found[2].numpy(), expected[2])
            assert [each.shape for each in found[:2]] == [expected[0].shape, array.shape]
            assert [each.dtype.name for each in found] == [dtype, "int32", "int32"]


@pytest.mark.parametrize("templates", [0, 1])
@pytest.mark.parametrize("minlength", [0, 3, 12])
def test_counts_are_numpys(minlength: int, templates: int) -> None:
    with Context(TEMPLATES=templates):
        for tensor in (Tensor(abs(VALUES)), Tensor(abs(VALUES)) * 2):
            counts = tensor.bincount(minlength=minlength)
            expected = np.bincount(tensor.numpy().ravel(), minlength=minlength)
            np.testing.assert_array_equal(counts.numpy(), expected)
            assert counts.dtype.name == "int32"
        with pytest.raises(IndexBoundsError):
            Tensor(VALUES).bincount()


@ONCE
def test_counting_what_is_in_memory_runs_no_kernel() -> None:
    labels = Tensor(abs(VALUES).astype(np.int32)).realize()
    before = GlobalCounters.kernel_count
    assert labels.bincount().tolist() == [2, 0, 1, 2, 0, 1, 0, 3]
    assert labels.unique().tolist() == [0, 2, 3, 5, 7]
    assert GlobalCounters.kernel_count == before
