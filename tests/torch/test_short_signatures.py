"""What a call was found by for one kind of tensor is not taken for another kind."""

from __future__ import annotations

import numpy as np

import tilegrad.torch as torch
from tilegrad import Context, Tensor, dtypes, no_grad


def test_tensors_of_two_classes_keep_their_class() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Context(TEMPLATES=1, SEGMENTS=1):
        for _ in range(6):
            ours, theirs = Tensor(array), torch.tensor(array)
            for _ in range(3):
                ours, theirs = (ours * 2).relu(), (theirs * 2).relu()
            assert type(ours) is Tensor and isinstance(theirs, torch.Tensor)
            assert type(theirs) is type(torch.tensor(array))
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_gradients_are_recorded_as_the_block_says() -> None:
    array = np.arange(6, dtype=np.float32)
    with Context(TEMPLATES=1, SEGMENTS=1):
        w = Tensor(array, requires_grad=True)
        for step in range(12):
            y = w * 1.5
            with no_grad():
                z = y * y
            assert z.requires_grad is not True
            square = y * y
            assert square.requires_grad
            if step % 3 == 2:
                w.grad = None
                square.sum().backward()
                assert w.grad is not None
                np.testing.assert_allclose(w.grad.numpy(), 4.5 * array, rtol=1e-6)


def test_default_dtypes_count() -> None:
    array = np.arange(6, dtype=np.int32)
    with Context(TEMPLATES=1, SEGMENTS=1):
        for step in range(12):
            x = Tensor(array) + 1
            before = dtypes.default_float
            if step % 2:
                dtypes.default_float = dtypes.float64
            try:
                assert x.sqrt().dtype is dtypes.default_float
                assert (x / 2).dtype is dtypes.default_float
            finally:
                dtypes.default_float = before
