"""Sums of products: matmul, einsum, attention, losses, against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special

from tests.tensor.helpers import check, close, numbers
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import ConfigError, DeviceError, ShapeError
from tilegrad.ir.op import Ops

SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((1, 1), (1, 1)),
]


@pytest.mark.row("R5.1")
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(lambda x, y: x @ y, None, numbers(*left), numbers(*right, seed=1))
    check(lambda x, y: x.dot(y), lambda x, y: x @ y, numbers(*left), numbers(*right, seed=1))


@pytest.mark.row("R5.1")
def test_matmul_is_the_movement_of_the_notes() -> None:
    a, b = Tensor(numbers(2, 4)), Tensor(numbers(4, 3, seed=1))
    stretched = a.reshape(2, 1, 4).expand(2, 3, 4)
    turned = b.reshape(1, 4, 3).permute(0, 2, 1).expand(2, 3, 4)
    by_hand = (stretched * turned).sum(2)
    assert by_hand.shape == (2, 3)
    close(by_hand, (a @ b).numpy())


@pytest.mark.row("F1.1")
def test_integer_dot_stays_integer() -> None:
    product = Tensor([1, 2]).dot(Tensor([3, 4]))
    assert product.dtype is dtypes.int32
    assert product.numpy() == 11


def test_half_products_are_summed_in_float32() -> None:
    a, b = np.full((1, 4096), 1, np.float16), np.full((4096, 1), 1, np.float16)
    assert (Tensor(a) @ Tensor(b)).item() == 4096
    assert (Tensor(a) @ Tensor(b)).dtype is dtypes.float16
    assert Tensor(a).matmul(Tensor(b), dtype=dtypes.float32).dtype is dtypes.float32
    assert (Tensor(a) @ Tensor(b.astype(np.float32))).dtype is dtypes.float32


def test_linear_outer_sequential() -> None:
    x, w, b = numbers(3, 4), numbers(4, 2, seed=1), numbers(2, seed=2)
    close(Tensor(x).linear(Tensor(w), Tensor(b)), x @ w + b)
    close(Tensor(x).linear(Tensor(x[0])), x * x[0])
    close(Tensor(b).outer(Tensor(x[0])), np.outer(b, x[0]))
    close(Tensor(x).sequential([Tensor.relu, lambda t: t * 2]), np.maximum(x, 0) * 2)


FORMULAS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ij,ij", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("ba,ca", (3, 4), (5, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("i...,i...->...", (3, 2, 4), (3, 2, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
]


@pytest.mark.parametrize("case", FORMULAS, ids=lambda case: case[0])
def test_einsum(case: tuple[str, tuple[int, ...]]) -> None:
    formula, *shapes = case
    arrays = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    close(
        Tensor.einsum(formula, *[Tensor(array) for array in arrays]),
        np.einsum(formula, *arrays),
        atol=1e-5,
    )


def test_attention() -> None:
    q, k, v = (numbers(2, 3, 5, 4, seed=seed) for seed in range(3))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(4)

    def expected(mask: np.ndarray | float) -> np.ndarray:
        return scipy.special.softmax(scores + mask, -1) @ v

    tq, tk, tv = Tensor(q), Tensor(k), Tensor(v)
    close(tq.scaled_dot_product_attention(tk, tv), expected(0), rtol=2e-5)
    causal = np.where(np.tril(np.ones((5, 5), bool)), 0, -np.inf).astype(np.float32)
    close(tq.scaled_dot_product_attention(tk, tv, is_causal=True), expected(causal), rtol=2e-5)
    close(
        tq.scaled_dot_product_attention(tk, tv, attn_mask=Tensor(causal == 0)),
        expected(causal),
        rtol=2e-5,
    )
    added = numbers(5, 5, seed=9)
    close(
        tq.scaled_dot_product_attention(tk, tv, attn_mask=Tensor(added)), expected(added), rtol=2e-5
    )
    shared = tq.scaled_dot_product_attention(tk[:, :1], tv[:, :1], enable_gqa=True)
    repeated = tq.scaled_dot_product_attention(
        tk[:, :1].expand(2, 3, 5, 4), tv[:, :1].expand(2, 3, 5, 4)
    )
    close(shared, repeated.numpy())
    with pytest.raises(ShapeError, match="is_causal and attn_mask are both given"):
        tq.scaled_dot_product_attention(tk, tv, attn_mask=Tensor(added), is_causal=True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1])
def test_smoothed_cross_entropy(weighted: bool, ignored: int | None) -> None:
    """PyTorch's formula; "none" has rows in scratch that lanes read at places of their own."""
    x, y = numbers(4, 3, 15), np.random.default_rng(2).integers(0, 3, (4, 15))
    logs = scipy.special.log_softmax(x.astype(np.float64), 1)
    w = np.array([1.0, 2.0, 4.0]) if weighted else np.ones(3)
    counts = np.where(y == ignored, 0, w[y])
    picked = -np.take_along_axis(logs, y[:, None], 1)[:, 0] * counts
    spread = -(logs * w[:, None]).mean(1) * (y != ignored)
    loss = 0.9 * picked + 0.1 * spread
    expected = {"none": loss, "sum": loss.sum(), "mean": loss.sum() / counts.sum()}
    weight = Tensor(w.astype(np.float32)) if weighted else None
    for reduction, value in expected.items():
        ours = Tensor(x).cross_entropy(Tensor(y), weight, ignored, reduction, 0.1)
        np.testing.assert_allclose(ours.numpy(), value, rtol=1e-5, atol=1e-6)


def test_cross_entropy() -> None:
    x, y = numbers(4, 5), np.array([0, 3, 4, 3])
    logs = scipy.special.log_softmax(x.astype(np.float64), 1)
    picked = -logs[np.arange(4), y]
    ours = Tensor(x)
    assert ours.cross_entropy(Tensor(y)).item() == pytest.approx(picked.mean(), rel=1e-5)
    assert ours.sparse_categorical_crossentropy(Tensor(y)).item() == pytest.approx(
        picked.mean(), rel=1e-5
    )
    close(ours.cross_entropy(Tensor(y), reduction="none"), picked.astype(np.float32))
    assert ours.cross_entropy(Tensor(y), reduction="sum").item() == pytest.approx(
        picked.sum(), rel=1e-5
    )
    smooth = 0.9 * picked.mean() + 0.1 * -logs.mean()
    assert ours.cross_entropy(Tensor(y), label_smoothing=0.1).item() == pytest.approx(
        smooth, rel=1e-5
    )
    kept = picked[y != 3]
    assert ours.cross_entropy(Tensor(y), ignore_index=3).item() == pytest.approx(
        kept.mean(), rel=1e-5
    )
    soft = scipy.special.softmax(numbers(4, 5, seed=1), 1)
    assert ours.cross_entropy(Tensor(soft)).item() == pytest.approx(
        -(logs * soft).sum(1).mean(), rel=1e-5
    )
    weight = np.float32([1, 2, 3, 4, 5])
    expected = (picked * weight[y]).sum() / weight[y].sum()
    assert ours.cross_entropy(Tensor(y), weight=Tensor(weight)).item() == pytest.approx(
        expected, rel=1e-5
    )
    rows = Tensor(x.reshape(2, 2, 5)).sparse_categorical_crossentropy(Tensor(y.reshape(2, 2)))
    assert rows.item() == pytest.approx(picked.mean(), rel=1e-5)


def test_losses() -> None:
    x, t = numbers(3, 4), numbers(3, 4, seed=1)
    p, y = scipy.special.expit(x.astype(np.float64)), (t > 0).astype(np.float32)
    entropy = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    assert Tensor(p.astype(np.float32)).binary_crossentropy(Tensor(y)).item() == pytest.approx(
        entropy.mean(), rel=1e-5
    )
    assert Tensor(x).binary_crossentropy_logits(Tensor(y)).item() == pytest.approx(
        entropy.mean(), rel=1e-5
    )
    close(Tensor(x).mse_loss(Tensor(t), "none"), (x - t) ** 2)
    assert Tensor(x).l1_loss(Tensor(t), "sum").item() == pytest.approx(
        np.abs(x - t).sum(), rel=1e-5
    )
    big = Tensor([1000.0, -1000.0]).binary_crossentropy_logits(Tensor([0.0, 1.0]), "none")
    assert big.tolist() == [1000.0, 1000.0]


def test_probabilities_of_0_and_1() -> None:
    p, t = Tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True), Tensor([0.0, 1.0, 1.0, 0.0])
    for of in (p, p.half()):
        loss = of.binary_crossentropy(t, "none")
        assert loss.tolist() == pytest.approx([0, 0, 100, 100], abs=0.1)
        loss.float().sum().backward()
    assert p.grad is not None
    assert p.grad.isfinite().all().item()


def test_what_does_not_fit_raises() -> None:
    with pytest.raises(ShapeError, match="matmul: inner sizes differ: 784 and 512"):
        Tensor.zeros(32, 784) @ Tensor.zeros(512, 10)
    with pytest.raises(ShapeError, match="dot: both sides need an axis"):
        Tensor(1.0).dot(Tensor([1.0]))
    with pytest.raises(
        ShapeError, match=r"matmul: axes before the last two do not broadcast: \(2,\) and \(5,\)"
    ):
        Tensor.zeros(2, 3, 4) @ Tensor.zeros(5, 4, 6)
    with pytest.raises(DeviceError, match="matmul: operands are on two devices: CPU and CPU:1"):
        Tensor([[1.0]]) @ Tensor([[1.0]], device="CPU:1")
    with pytest.raises(ShapeError, match=r"einsum: 'j' has two sizes: 4 and 5"):
        Tensor.einsum("ij,jk->ik", Tensor.zeros(3, 4), Tensor.zeros(5, 6))
    with pytest.raises(ShapeError, match="einsum: 2 operands in the formula, 1 given"):
        Tensor.einsum("ij,jk->ik", Tensor.zeros(3, 4))
    with pytest.raises(ShapeError, match=r"nll_loss: target \(3,\) does not fit \(2, 5\)"):
        Tensor.zeros(2, 5).cross_entropy(Tensor([1, 2, 3]))
    with pytest.raises(ConfigError, match="mse_loss: unknown reduction 'avg'"):
        Tensor.zeros(2).mse_loss(Tensor.zeros(2), "avg")


def test_products_of_a_given_dtype_are_exact() -> None:
    """-128 * -128 is not a number of 8 bits."""
    a = np.full((3, 70), -128, np.int8)
    expected = a.astype(np.int32) @ a.T.astype(np.int32)
    found = Tensor(a).matmul(Tensor(a).T, dtype="int32")
    assert found.dtype is dtypes.int32
    np.testing.assert_array_equal(found.numpy(), expected)
    image = np.full((1, 2, 4, 4), -128, np.int8)
    kernel = np.full((1, 2, 2, 2), 127, np.int8)
    pixels = Tensor(image).conv2d(Tensor(kernel), dtype="int32")
    np.testing.assert_array_equal(pixels.numpy(), np.full((1, 1, 3, 3), -128 * 127 * 8))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_nothing_gets_zeros(kind: str) -> None:
    """And so do its gradients, as in PyTorch."""
    seen = np.tri(4, dtype=bool) & (np.arange(4) > 0)
    mask = Tensor(seen) if kind == "bool" else Tensor(seen).where(0.0, -math.inf)
    values = np.random.default_rng(3).standard_normal((2, 4, 8), np.float32)
    x = Tensor(values)
    out = x.scaled_dot_product_attention(x, x, mask)
    (grad,) = out.square().sum().gradient(x)
    found = np.asarray(out.numpy())
    assert np.all(found[:, 0] == 0)
    np.testing.assert_allclose(found[:, 1], values[:, 1], rtol=1e-6)
    found = np.asarray(grad.numpy())
    assert np.isfinite(found).all() and np.all(found[:, 0] == 0)


def test_products_of_integers_add_up_in_their_own_lanes() -> None:
    """In int32 as NumPy's `@` and `dot` do, where `sum` would have int64."""
    a, b = Tensor([[1, 2], [3, 4]]), Tensor([[5, 6], [7, 8]])
    images, weight = Tensor.ones(1, 2, 3, 3).int(), Tensor.ones(1, 2, 2, 2).int()
    for made in (a @ b, a.dot(b[0]), images.conv2d(weight)):
        sums = [node for node in made.uop.toposort() if node.op is Ops.REDUCE_AXIS]
        assert made.dtype is dtypes.int32 and {node.dtype for node in sums} == {dtypes.int32}
    assert (a @ b).tolist() == [[19, 22], [43, 50]]
    assert images.conv2d(weight).tolist() == [[[[8, 8], [8, 8]]]]
