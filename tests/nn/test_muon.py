"""Muon against NumPy: products of values of bfloat16, summed in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError

Array = npt.NDArray[Any]


def half(x: Array) -> Array:
    """The nearest values with 8 bits of precision, of two as near the even one."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def orthogonal(u: Array) -> Array:
    x = half(u)
    x = half(x / np.maximum(half(np.sqrt(np.square(x).sum())), 1e-7))
    for _ in range(5):
        a = half(x @ x.T)
        x = half(3.4445 * x + half(-4.775 * a + 2.0315 * a @ a) @ x)
    return x


@pytest.mark.parametrize(
    ("shape", "adjust", "scale"),
    [
        ((4, 3), None, math.sqrt(4 / 3)),
        ((3, 5), "original", 1.0),
        ((3, 5), "match_rms_adamw", 0.2 * math.sqrt(5)),
    ],
)
def test_three_steps(shape: tuple[int, int], adjust: str | None, scale: float) -> None:
    rng = np.random.default_rng(3)
    p, m = rng.normal(size=shape).astype(np.float32), np.zeros(shape, np.float32)
    w = Tensor(p)
    optimizer = nn.optim.Muon([w], lr=0.1, adjust_lr_fn=adjust)
    for _ in range(3):
        g = rng.normal(size=shape).astype(np.float32)
        w.grad = Tensor(g)
        with Tensor.train():
            optimizer.step()
        m = 0.95 * m + 0.05 * g
        u = 0.05 * g + 0.95 * m
        step = orthogonal(u.T).T if shape[0] > shape[1] else orthogonal(u)
        p = p * (1 - 0.1 * 0.1) - 0.1 * scale * step
    # Sums in another order may round to a neighbour.
    np.testing.assert_allclose(w.numpy(), p, atol=3 * 0.1 * 2**-7)


def test_singular_values_come_near_one() -> None:
    w = Tensor.zeros(6, 9)
    w.grad = Tensor(np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32))
    with Tensor.train():
        nn.optim.Muon([w], lr=1.0, weight_decay=0.0).step()
    values = np.linalg.svd(w.numpy(), compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.3


def test_an_unknown_adjustment_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown adjust_lr_fn 'rms'"):
        nn.optim.Muon([Tensor.ones(2, 2)], adjust_lr_fn="rms")
