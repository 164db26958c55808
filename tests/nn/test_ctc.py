"""CTC loss against all alignments, one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, DTypeError, ShapeError

Array = npt.NDArray[Any]
ctc_loss = nn.functional.ctc_loss
LOGITS = np.random.default_rng(0).normal(size=(5, 3, 3)).astype(np.float32)
LABELS = np.array([[1, 2], [2, 2], [1, 0]])
TIMES, SIZES = [5, 4, 3], [2, 2, 1]


def softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64))
    return e / e.sum(-1, keepdims=True)


def reading(path: tuple[int, ...], blank: int) -> list[int]:
    """What a path says: repeats are one label, blanks are none."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


def probability(p: Array, labels: list[int], blank: int = 0) -> float:
    """The sum over all paths that read `labels`; p is (T, C)."""
    steps, classes = p.shape
    return float(
        sum(
            np.prod([p[t, label] for t, label in enumerate(path)])
            for path in itertools.product(range(classes), repeat=steps)
            if reading(path, blank) == labels
        )
    )


def expected(logits: Array, blank: int = 0) -> Array:
    return np.array(
        [
            -np.log(
                probability(softmax(logits[: TIMES[n], n]), LABELS[n, : SIZES[n]].tolist(), blank)
            )
            for n in range(3)
        ]
    )


def test_values_and_gradients() -> None:
    """Repeated labels, shorter sequences, shorter labels; the gradient by central differences."""
    x = Tensor(LOGITS, requires_grad=True)
    loss = ctc_loss(x.log_softmax(-1), Tensor(LABELS), TIMES, SIZES, reduction="none")
    np.testing.assert_allclose(loss.numpy(), expected(LOGITS), rtol=1e-5)
    loss.sum().backward()
    assert x.grad is not None
    found = x.grad.numpy()
    assert not found[4, 1].any() and not found[3:, 2].any()
    for place in ((0, 0, 1), (2, 1, 2), (3, 1, 0), (2, 2, 1), (4, 0, 2)):
        step = np.zeros_like(LOGITS, np.float64)
        step[place] = 1e-4
        slope = (expected(LOGITS + step) - expected(LOGITS - step)).sum() / 2e-4
        assert found[place] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_reductions_and_forms_of_targets() -> None:
    """Labels in rows or one after another, lengths as lists or tensors."""
    x, wanted = Tensor(LOGITS).log_softmax(-1), expected(LOGITS)
    joined = Tensor([1, 2, 2, 2, 1])
    for targets, times, sizes in (
        (Tensor(LABELS), Tensor(TIMES), Tensor(SIZES)),
        (joined, TIMES, Tensor(SIZES)),
    ):
        mean = ctc_loss(x, targets, times, sizes)
        assert mean.item() == pytest.approx((wanted / SIZES).mean(), rel=1e-5)
    assert nn.CTCLoss(reduction="sum")(x, joined, TIMES, SIZES).item() == pytest.approx(
        wanted.sum(), rel=1e-5
    )
    one = ctc_loss(x[:, 0], joined[:2], [5], [2], reduction="sum")
    assert one.item() == pytest.approx(wanted[0], rel=1e-5)


def test_another_blank_and_no_labels() -> None:
    x = Tensor(LOGITS[:3, :2]).log_softmax(-1)
    p = softmax(LOGITS[:3])
    loss = ctc_loss(x, Tensor([[0], [1]]), [3, 3], [1, 1], blank=2, reduction="none")
    wanted = [-np.log(probability(p[:, n], [n], 2)) for n in range(2)]
    np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-5)
    loss = ctc_loss(x, Tensor([[1], [1]]), [3, 2], [0, 1], reduction="none")
    wanted = [-np.log(p[:, 0, 0].prod()), -np.log(probability(p[:2, 1], [1]))]
    np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-5)


def test_labels_that_do_not_fit_into_the_steps() -> None:
    """The loss is infinite; or 0, and so is its gradient."""
    x = Tensor(LOGITS, requires_grad=True)
    arguments = Tensor([[1, 2], [2, 2], [1, 1]]), [5, 2, 2], [2, 2, 2]
    logarithms = x.log_softmax(-1)
    assert ctc_loss(logarithms, *arguments, reduction="none").numpy()[1:].tolist() == [np.inf] * 2
    loss = ctc_loss(logarithms, *arguments, reduction="none", zero_infinity=True)
    loss.sum().backward()
    assert x.grad is not None
    assert loss.numpy()[1:].tolist() == [0.0, 0.0]
    assert np.isfinite(x.grad.numpy()).all() and not x.grad.numpy()[:, 1:].any()
    assert x.grad.numpy()[:, 0].any()


def test_probabilities_of_zero() -> None:
    """A logarithm of minus infinity is no NaN."""
    p = Tensor([[[0.0, 1.0]], [[0.5, 0.5]]], requires_grad=True)
    loss = ctc_loss(p.log(), Tensor([[1]]), [2], [1], reduction="sum")
    assert loss.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"blank": 3}, ConfigError, "ctc_loss: blank 3 is none of 3 classes"),
        ({"targets": Tensor.ones(3, 2)}, DTypeError, "labels must be integers, not float32"),
        ({"targets": Tensor([1, 2, 1])}, ShapeError, r"targets \(3,\) do not fit 3 sequences"),
        ({"input_lengths": [5, 6, 3]}, ShapeError, r"input_lengths 6 is not in 0\.\.5"),
        ({"input_lengths": [5]}, ShapeError, "1 lengths for 3 sequences"),
        ({"target_lengths": [2, 2, 3]}, ShapeError, r"target_lengths 3 is not in 0\.\.2"),
        ({"log_probs": Tensor.ones(3)}, ShapeError, r"log-probabilities have shape \(3,\)"),
        ({"reduction": "max"}, ConfigError, "ctc_loss: unknown reduction 'max'"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {
        "log_probs": Tensor(LOGITS),
        "targets": Tensor(LABELS),
        "input_lengths": TIMES,
        "target_lengths": SIZES,
    }
    with pytest.raises(error, match=message):
        ctc_loss(**{**arguments, **change})
