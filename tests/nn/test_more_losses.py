"""Losses of pairs and distributions, against NumPy; resampling modules."""

from __future__ import annotations

import numpy as np

from tilegrad import Tensor, nn

F = nn.functional


def test_losses() -> None:
    draw = np.random.default_rng(0)
    a, b, c = draw.normal(size=(3, 4, 5))
    p = np.exp(b) / np.exp(b).sum(-1, keepdims=True)
    p[0, 0] = 0
    sign = np.array([1, -1, 1, -1])
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosine = (a * b).sum(1) / lengths
    logs = np.log(np.where(p > 0, p, 1))
    near, far = (np.linalg.norm(a - other + 1e-6, axis=1) for other in (b, c))
    x, y, z, q = (Tensor(each) for each in (a, b, c, p))
    cases = [
        (F.kl_div(x, q, "batchmean"), (p * (logs - a) * (p > 0)).sum() / 4),
        (F.kl_div(x, y, "sum", log_target=True), (np.exp(b) * (b - a)).sum()),
        (F.cosine_similarity(x, y), cosine),
        (
            F.cosine_embedding_loss(x, y, Tensor(sign), 0.1),
            np.where(sign > 0, 1 - cosine, np.maximum(cosine - 0.1, 0)).mean(),
        ),
        (F.triplet_margin_loss(x, y, z), np.maximum(near - far + 1, 0).mean()),
    ]
    Tensor.realize(*[found for found, _ in cases])
    for found, expected in cases:
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_upsampling() -> None:
    x = Tensor([[[[0.0, 2.0]]]])
    assert nn.UpsamplingNearest2d(scale_factor=2)(x).tolist() == [[[[0, 0, 2, 2]] * 2]]
    assert nn.UpsamplingBilinear2d((1, 3))(x).tolist() == [[[[0, 1, 2]]]]
