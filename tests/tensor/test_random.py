"""Random tensors: fixed when made, the same in any order and on any device, fairly drawn."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.tensor.helpers import close
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.ir import Ops
from tilegrad.ir.interpret import random_word
from tilegrad.tensor.indexing.generator import generator


@pytest.mark.row("X.3")
def test_the_seed_fixes_the_numbers_on_every_device() -> None:
    Tensor.manual_seed(0)
    first = Tensor.rand(5).tolist()
    Tensor.manual_seed(0)
    assert Tensor.rand(5, device="CPU:1").tolist() == first
    assert Tensor.rand(5).tolist() != first


def test_numbers_are_fixed_when_the_tensor_is_made() -> None:
    Tensor.manual_seed(3)
    a, b = Tensor.rand(4), Tensor.rand(4)
    later = b.tolist()
    Tensor.manual_seed(3)
    c, d = Tensor.rand(4), Tensor.rand(4)
    assert a.tolist() == c.tolist()
    assert d.tolist() == later


def test_a_float_is_the_upper_24_bits_of_a_word() -> None:
    Tensor.manual_seed(7)
    words = [random_word(7, place) for place in range(6)]
    assert Tensor.rand(6).tolist() == [(word >> 8) * 2.0**-24 for word in words]
    assert Tensor.rand(1).tolist() == [(random_word(7, 6) >> 8) * 2.0**-24]


def test_threads_never_share_words() -> None:
    Tensor.manual_seed(0)
    offsets: list[int] = []

    def draw() -> None:
        for _ in range(200):
            node = Tensor.random_bits(3).uop
            assert node.op is Ops.RAND
            offsets.append(node.arg.offset)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(0, 2400, 3))
    assert generator.drawn == 2400


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_never_reaches_one(dtype: str) -> None:
    Tensor.manual_seed(1)
    values = Tensor.rand(500, dtype=dtype)
    assert values.dtype.name == dtype
    array = values.numpy().astype(np.float64)
    assert 0 <= array.min() < 0.05
    assert 0.95 < array.max() < 1
    assert abs(array.mean() - 0.5) < 0.05


def test_distributions() -> None:
    Tensor.manual_seed(2)
    normal = Tensor.randn(600).numpy()
    assert abs(normal.mean()) < 0.12
    assert abs(normal.std() - 1) < 0.1
    shifted = Tensor.normal(400, mean=3, std=0.1).numpy()
    assert abs(shifted.mean() - 3) < 0.03
    between = Tensor.uniform(200, low=-2, high=5).numpy()
    assert -2 <= between.min() < -1.5
    assert 4.5 < between.max() < 5
    limit = (6 / 40) ** 0.5
    for made in (Tensor.glorot_uniform(10, 30), Tensor.kaiming_uniform(10, 40, a=0)):
        assert 0.9 * limit < np.abs(made.numpy()).max() <= limit
    assert np.abs(Tensor.scaled_uniform(4, 25).numpy()).max() <= 0.1
    assert 0.1 < Tensor.kaiming_normal(20, 50, a=0).numpy().std() < 0.3


def test_integers_come_in_both_spellings() -> None:
    Tensor.manual_seed(0)
    ours = Tensor.randint(300, low=-2, high=3)
    assert ours.dtype is dtypes.int32
    assert set(ours.tolist()) == {-2, -1, 0, 1, 2}
    Tensor.manual_seed(0)
    close(Tensor.randint(-2, 3, (300,)), ours.numpy())
    assert Tensor.randint(2, 3).shape == (2, 3)
    assert Tensor.randint(0, 256, (50,), dtype="uint8").numpy().max() > 200
    with pytest.raises(ShapeError, match="randint: no range from 3 to 3"):
        Tensor.randint(3, 3, (2,))
    with pytest.raises(DTypeError, match="randint: 0 to 300 does not fit uint8"):
        Tensor.randint(0, 300, (2,), dtype="uint8")


def test_dropout_scales_what_it_keeps_and_only_in_training() -> None:
    x = Tensor.ones(400)
    with Tensor.train(False):
        assert x.dropout(0.5) is x
    dropped = x.dropout(0.25).numpy()
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.65 < (dropped > 0).mean() < 0.85
    with pytest.raises(ShapeError, match=r"dropout: 1\.5 is no probability"):
        x.dropout(1.5)


def test_likes_take_shape_dtype_and_device() -> None:
    x = Tensor.zeros(2, 3, dtype=dtypes.float16)
    assert x.rand_like().shape == (2, 3)
    assert x.randn_like().dtype is dtypes.float16
    assert x.rand_like(dtype=dtypes.float32).dtype is dtypes.float32
    assert Tensor.rand(0, 3).tolist() == []


def test_rand_needs_a_float_dtype() -> None:
    with pytest.raises(DTypeError, match="rand: a float dtype is needed, not int32"):
        Tensor.rand(2, dtype=dtypes.int32)
    for draw in (Tensor.randn, Tensor.normal):
        with pytest.raises(NotImplementedError, match="randn: a float dtype is needed, not int32"):
            draw(2, dtype=dtypes.int32)
    with pytest.raises(DTypeError, match="randn"):
        Tensor.zeros(2, dtype=dtypes.int64).randn_like()
