"""Sorting, scattering and searching on a device with blocks, whose emulator reports races."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor
from tilegrad.tensor.ordering import sort


def on(array: Any) -> Tensor:
    return Tensor(array, device="EMU")


def test_a_sorted_row_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "_SHORT", 4)
    monkeypatch.setattr(sort, "_PAIRS", 1)
    monkeypatch.setattr(sort, "_CHUNK_OF_A_LANE", 16)
    array = np.random.default_rng(0).integers(0, 200, (2, 70)).astype(np.uint8)
    close(on(array).argsort(), np.argsort(array, kind="stable").astype(np.int32))


def test_writing_by_index() -> None:
    x, index, values = on([1.0, 2.0, 3.0]), on([0, 0, 2, 1]), on([5.0, 6.0, 7.0, 9.0])
    assert x.scatter(0, index, values).tolist() == [6, 9, 7]
    assert x.scatter_reduce(0, index, values, "mean").tolist() == [4, 5.5, 5]
    x[on([2, 0])] = on([8.0, 4.0])
    assert x.tolist() == [4, 2, 8]
    assert x[x > 3].tolist() == [4, 8]


def test_the_gradient_of_picked_rows() -> None:
    table = on([[1.0, 2.0], [3.0, 4.0]])
    (found,) = table.embedding(on([1, 1, 0])).sum().gradient(table)
    assert found.tolist() == [[1, 1], [2, 2]]


def test_searching() -> None:
    row, values = np.sort(numbers(40)), numbers(9, seed=1)
    close(on(row).searchsorted(on(values)), np.searchsorted(row, values).astype(np.int32))


@pytest.mark.nightly
def test_a_digest() -> None:
    message = bytes(range(150))
    assert on(message).keccak().data().tobytes() == hashlib.sha3_256(message).digest()
