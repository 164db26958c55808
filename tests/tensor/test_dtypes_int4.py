"""Integers of 4 bits, two in a byte."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError

BYTES = np.arange(256, dtype=np.uint8)
LOW, HIGH = BYTES & 15, BYTES >> 4


def test_all_bytes() -> None:
    """Every pair of values, both ways, signed and not."""
    pairs = np.stack([LOW, HIGH], 1).astype(np.int16)
    signed = np.where(pairs > 7, pairs - 16, pairs).reshape(-1).astype(np.int8)
    packed = Tensor(BYTES).realize()
    found = packed.unpack_int4()
    assert found.dtype is dtypes.int8 and found.shape == (512,)
    np.testing.assert_array_equal(found.numpy(), signed)
    unsigned = packed.unpack_int4(signed=False)
    assert unsigned.dtype is dtypes.uint8
    np.testing.assert_array_equal(unsigned.numpy(), pairs.reshape(-1))
    for dtype in (np.int8, np.int32, np.int64):
        again = Tensor(signed.astype(dtype)).pack_int4()
        assert again.dtype is dtypes.uint8
        np.testing.assert_array_equal(again.numpy(), BYTES)
    np.testing.assert_array_equal(
        Tensor(pairs.reshape(-1).astype(np.uint8)).pack_int4().numpy(), BYTES
    )


def test_shapes() -> None:
    x = Tensor(np.arange(-8, 8, dtype=np.int8).reshape(2, 2, 4))
    packed = x.pack_int4()
    assert packed.shape == (2, 2, 2) and packed.nbytes() == 8
    np.testing.assert_array_equal(packed.unpack_int4().numpy(), x.numpy())
    assert Tensor.zeros(3, 0, dtype="int8").pack_int4().unpack_int4().shape == (3, 0)
    # What does not fit wraps around.
    assert Tensor([17, -9]).pack_int4().unpack_int4().tolist() == [1, 7]


def test_a_product_reads_the_packed_weights() -> None:
    """Unpacking is part of the kernel that uses each weight once: nothing else is stored."""
    generator = np.random.default_rng(0)
    weight = generator.integers(-8, 8, (6, 8))
    x = generator.standard_normal((1, 8)).astype(np.float32)
    packed, given = Tensor(weight.astype(np.int8)).pack_int4().realize(), Tensor(x).realize()
    before = GlobalCounters.kernel_count
    found = (given @ (packed.unpack_int4().float() * 0.5).T).numpy()
    assert GlobalCounters.kernel_count - before == 1
    np.testing.assert_allclose(found, x @ (weight * 0.5).T, rtol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(DTypeError, match="pack_int4: integers are needed, not float32"):
        Tensor([1.0, 2.0]).pack_int4()
    with pytest.raises(ShapeError, match="pack_int4: the last axis has 3 elements, which are not"):
        Tensor([1, 2, 3]).pack_int4()
    with pytest.raises(DTypeError, match="unpack_int4: bytes are needed, not int8"):
        Tensor([1], dtype="int8").unpack_int4()
    with pytest.raises(ShapeError, match="unpack_int4: a tensor without axes"):
        Tensor(1, dtype="uint8").unpack_int4()
