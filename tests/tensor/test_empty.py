"""Tensors without elements: an empty batch goes through whatever a full one does, and back.

What is made of nothing and has elements is the identity of its fold: 0 for a sum, -inf for a
logsumexp. What would have to choose an element refuses (tests/error).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilegrad import Context, Tensor, dtypes, nn, scan

NOTHING = Tensor([], dtype=dtypes.int32)
NAN, LEAST = float("nan"), float("-inf")


def rows(width: int = 3) -> Tensor:
    return Tensor.zeros(0, width)


SHAPES: dict[str, tuple[Callable[[], Tensor], tuple[int, ...]]] = {
    "index by nothing": (lambda: Tensor.ones(5, 3)[NOTHING], (0, 3)),
    "index by a mask": (lambda: rows()[rows() > 0], (0,)),
    "gather": (lambda: rows().gather(0, Tensor.zeros(0, 3, dtype=dtypes.int32)), (0, 3)),
    "where": (lambda: (rows() > 0).where(rows(), 1), (0, 3)),
    "sum of rows": (lambda: rows().sum(1), (0,)),
    "max of rows": (lambda: rows().max(1), (0,)),
    "argmax of rows": (lambda: rows().argmax(1), (0,)),
    "cumsum": (lambda: rows().cumsum(0), (0, 3)),
    "sort": (lambda: rows().sort(0)[0], (0, 3)),
    "argsort": (lambda: rows().argsort(1), (0, 3)),
    "topk": (lambda: rows().topk(2, 1)[0], (0, 2)),
    "unique": (lambda: NOTHING.unique(), (0,)),
    "searchsorted": (lambda: Tensor.arange(5).searchsorted(NOTHING), (0,)),
    "softmax along it": (lambda: rows().softmax(0), (0, 3)),
    "log_softmax along it": (lambda: rows().log_softmax(0), (0, 3)),
    "matmul": (lambda: rows() @ Tensor.ones(3, 4), (0, 4)),
    "outer": (lambda: Tensor.zeros(0).outer(Tensor.ones(3)), (0, 3)),
    "conv2d": (lambda: Tensor.zeros(0, 3, 8, 8).conv2d(Tensor.ones(4, 3, 3, 3)), (0, 4, 6, 6)),
    "conv2d to no channels": (
        lambda: Tensor.ones(1, 3, 8, 8).conv2d(Tensor.zeros(0, 3, 3, 3)),
        (1, 0, 6, 6),
    ),
    "max_pool2d": (lambda: Tensor.zeros(0, 3, 8, 8).max_pool2d(2), (0, 3, 4, 4)),
    "adaptive_avg_pool2d": (
        lambda: Tensor.zeros(0, 3, 8, 8).adaptive_avg_pool2d((3, 5)),
        (0, 3, 3, 5),
    ),
    "interpolate": (lambda: Tensor.zeros(0, 3, 8, 8).interpolate((4, 4)), (0, 3, 4, 4)),
    "fft": (lambda: Tensor.zeros(0, 7, 2).fft(), (0, 7, 2)),
    "rfft": (lambda: Tensor.zeros(0, 8).rfft(), (0, 5, 2)),
    "irfft": (lambda: Tensor.zeros(0, 5, 2).irfft(), (0, 8)),
    "stft": (lambda: Tensor.zeros(0, 64).stft(16), (0, 9, 17, 2)),
    "qr": (lambda: Tensor.zeros(0, 3, 3).qr()[0], (0, 3, 3)),
    "solve": (lambda: Tensor.zeros(0, 3, 3).solve(Tensor.zeros(0, 3, 1)), (0, 3, 1)),
    "multinomial": (lambda: rows().multinomial(2, True), (0, 2)),
    "rand": (lambda: Tensor.rand(0, 3), (0, 3)),
    "one_hot": (lambda: NOTHING.one_hot(4), (0, 4)),
    "Embedding": (lambda: nn.Embedding(4, 3)(NOTHING), (0, 3)),
    "BatchNorm": (lambda: nn.BatchNorm(3)(Tensor.zeros(0, 3, 4, 4)), (0, 3, 4, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4)(Tensor.zeros(0, 4, 3)), (0, 4, 3)),
    "LSTM of no steps": (lambda: nn.LSTM(3, 4)(Tensor.zeros(0, 2, 3))[0], (0, 2, 4)),
    "LSTM of no items": (lambda: nn.LSTM(3, 4)(Tensor.zeros(6, 0, 3))[0], (6, 0, 4)),
    "attention over nothing": (
        lambda: Tensor.zeros(1, 2, 0, 8).scaled_dot_product_attention(
            Tensor.zeros(1, 2, 0, 8), Tensor.zeros(1, 2, 0, 8)
        ),
        (1, 2, 0, 8),
    ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8)(Tensor.zeros(0, 3, 4)),
        (0, 3, 4),
    ),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True)(*[Tensor.zeros(0, 3, 4)] * 3)[0],
        (0, 3, 4),
    ),
    "scan": (lambda: scan(lambda c, x: (c + x, c), Tensor.ones(3), rows())[1], (0, 3)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_no_element_in_no_element_out(name: str) -> None:
    make, shape = SHAPES[name]
    result = make()
    assert result.shape == shape
    assert result.numpy().shape == shape


VALUES: dict[str, tuple[Callable[[], Tensor], object]] = {
    "sum": (lambda: rows().sum(), 0.0),
    "sum along it": (lambda: rows().sum(0), [0.0] * 3),
    "prod": (lambda: rows().prod(), 1.0),
    "all": (lambda: (rows() > 0).all(), True),
    "any": (lambda: (rows() > 0).any(), False),
    "mean": (lambda: rows().mean(), NAN),
    "logsumexp": (lambda: rows().logsumexp(0), [LEAST] * 3),
    "matmul over nothing": (lambda: Tensor.zeros(2, 0) @ Tensor.zeros(0, 2), [[0.0] * 2] * 2),
    "conv2d over no channels": (
        lambda: Tensor.zeros(1, 0, 2, 2).conv2d(Tensor.zeros(1, 0, 2, 2)),
        [[[[0.0]]]],
    ),
    "attention to nothing": (
        lambda: Tensor.ones(1, 2).scaled_dot_product_attention(
            Tensor.zeros(0, 2), Tensor.zeros(0, 2)
        ),
        [[0.0, 0.0]],
    ),
    "determinant": (lambda: Tensor.zeros(0, 0).det(), 1.0),
    "cov of no observation": (lambda: Tensor.zeros(1, 0).cov(), NAN),
    "pad": (lambda: rows(1).pad(((1, 1), (0, 0)), value=2), [[2.0], [2.0]]),
    "cat": (lambda: Tensor.cat(rows(1), Tensor.ones(1, 1)), [[1.0]]),
    "index_add": (lambda: Tensor.ones(2).index_add(0, NOTHING, Tensor([])), [1.0, 1.0]),
    "scatter": (lambda: Tensor.ones(2).scatter(0, NOTHING, Tensor([])), [1.0, 1.0]),
    "histogram": (lambda: NOTHING.bincount(minlength=2), [0, 0]),
}


@pytest.mark.parametrize("name", VALUES)
def test_nothing_folds_to_the_identity(name: str) -> None:
    make, value = VALUES[name]
    np.testing.assert_array_equal(make().numpy(), np.array(value))


def test_what_is_set_nowhere_stays() -> None:
    x = Tensor([1.0, 2.0])
    x[NOTHING] = 5
    x[2:] = 5
    x[x > 9] = 5
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("plain", [False, True])
def test_an_empty_batch_gives_gradients_of_zeros(plain: bool) -> None:
    layer = nn.Linear(3, 2)
    with Context(NOOPT=int(plain)):
        loss = layer(rows()).relu().sum()
        loss.backward()
        assert loss.item() == 0
        assert layer.weight.grad.tolist() == [[0.0] * 3] * 2
        assert layer.bias.grad.tolist() == [0.0, 0.0]


BELOW: dict[str, Callable[[Tensor], Tensor]] = {
    "no rows": lambda w: w[0:0].sum(),
    "no picks": lambda w: w[NOTHING].sum(),
    "padded": lambda w: w[0:0].pad(((1, 1), (0, 0)), value=2).sum(),
    "a product of none": lambda w: w[0:0].prod(),
    "sorted": lambda w: w[0:0].sort(0)[0].sum(),
    "running": lambda w: w[0:0].cumsum(0).sum(),
    "the largest of none": lambda w: w[:, 0:0].max(0).sum(),
    "times nothing": lambda w: (Tensor.zeros(0, 2) @ w).sum(),
    "a convolution": lambda w: Tensor.zeros(0, 2, 3).conv2d(w.unsqueeze(0)).sum(),
}


@pytest.mark.parametrize("name", BELOW)
def test_the_gradient_through_nothing_is_zero(name: str) -> None:
    w = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert BELOW[name](w).gradient(w)[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_gradient_of_nothing_is_nothing() -> None:
    x = Tensor.empty(0, 3, requires_grad=True)
    assert (x * 2).sum().gradient(x)[0].shape == (0, 3)
    (x * 2).sum().backward()
    assert x.grad.tolist() == []
    # Also where it does not depend on it: there is no other gradient without elements.
    assert Tensor([1.0]).sum().gradient(Tensor.zeros(0))[0].shape == (0,)
