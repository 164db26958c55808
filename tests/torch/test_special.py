"""`torch.special`: Bessel functions and quantiles against SciPy, polynomials against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import polynomials

special = pytest.importorskip("scipy.special")

BESSEL = {
    "bessel_j0": special.j0,
    "bessel_j1": special.j1,
    "bessel_y0": special.y0,
    "bessel_y1": special.y1,
    "modified_bessel_i0": special.i0,
    "modified_bessel_i1": special.i1,
    "modified_bessel_k0": special.k0,
    "modified_bessel_k1": special.k1,
    "scaled_modified_bessel_k0": special.k0e,
    "scaled_modified_bessel_k1": special.k1e,
    "spherical_bessel_j0": lambda x: special.spherical_jn(0, x),
}


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions(name: str) -> None:
    x = np.concatenate([np.linspace(0.01, 60, 600), [1e-10, 0.999, 1, 1.001, 25, 25.001, 1e3, 1e4]])
    x = x[x < 600] if "modified" in name else x
    with np.errstate(over="ignore", under="ignore"):
        expected = BESSEL[name](x)
    found = getattr(torch.special, name)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-14, atol=2e-14)
    single = getattr(torch.special, name)(torch.tensor(x[:600], dtype=torch.float32)).numpy()
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, BESSEL[name](x[:600].astype(np.float32)), 1e-6, 1e-6)


@pytest.mark.parametrize("name", [name for name in BESSEL if "modified_bessel_i" not in name])
def test_bessel_functions_at_the_ends(name: str) -> None:
    x = np.array([0.0, -2.5, np.inf, np.nan])
    expected = BESSEL[name](x)
    # The limit, where SciPy has NaN.
    expected[2] = 0
    if "_y" in name or "_k" in name:
        # PyTorch's: no values below 0.
        expected[1] = np.nan
    np.testing.assert_allclose(getattr(torch.special, name)(torch.tensor(x)).numpy(), expected)


def test_quantiles_of_the_normal_distribution() -> None:
    p = np.array([0.0, 1e-300, 1e-20, 1e-5, 0.01, 0.049, 0.051, 0.3, 0.5, 0.9, 0.9999, 1.0, 2.0])
    x = torch.tensor(p, requires_grad=True)
    found = torch.special.ndtri(x)
    np.testing.assert_allclose(found.detach().numpy(), special.ndtri(p), rtol=1e-13, atol=1e-15)
    inner = found[3:11]
    (slope,) = torch.autograd.grad(inner.sum(), x)
    density = np.exp(-(special.ndtri(p[3:11]) ** 2) / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(slope.numpy()[3:11], 1 / density, rtol=1e-10)


@pytest.mark.parametrize("name", polynomials.__all__)
def test_polynomials(name: str) -> None:
    theirs = pytest.importorskip("torch")
    x, n = np.linspace(-0.95, 0.95, 7)[:, None], np.arange(-1, 7)
    found = getattr(torch.special, name)(torch.tensor(x), torch.tensor(n)).numpy()
    expected = getattr(theirs.special, name)(theirs.tensor(x), theirs.tensor(n)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["bessel_j0", "modified_bessel_k1", "ndtri"])
def test_what_is_no_tensor_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        getattr(torch.special, name)("a")


def test_airys_function() -> None:
    x = np.concatenate([np.linspace(-40, 20, 601), [-12.5, 2.5, 0.0, -1e-300, 60.0, 100.0]])
    given = torch.tensor(x, requires_grad=True)
    found = torch.special.airy_ai(given)
    value, slope, *_ = special.airy(x)
    np.testing.assert_allclose(found.detach().numpy(), value, rtol=4e-13, atol=4e-15)
    found.sum().backward()
    assert given.grad is not None
    np.testing.assert_allclose(given.grad.numpy(), slope, rtol=2e-12, atol=2e-13)
    single = torch.special.airy_ai(torch.tensor(x, dtype=torch.float32))
    assert single.dtype is torch.float32
    wide = special.airy(x.astype(np.float32).astype(float))[0]
    np.testing.assert_allclose(single.numpy(), wide, rtol=2e-7, atol=1e-30)
    ends = torch.tensor([np.inf, -np.inf, np.nan, 120.0])
    np.testing.assert_array_equal(torch.special.airy_ai(ends).numpy(), [0, 0, np.nan, 0])


def test_zeta_below_zero() -> None:
    s = np.array([2.0, 3.0, 8.0, 41.0])[:, None]
    q = np.array([-0.5, -1e-5, -1 + 1e-9, -2.25, -7.875, -30.25])
    # Term by term up to the first positive one.
    count = np.ceil(-q).astype(int)
    expected = np.concatenate(
        [
            special.zeta(s, each + n) + sum((each + k) ** -s for k in range(n))
            for each, n in zip(q, count, strict=True)
        ],
        axis=1,
    )
    found = torch.special.zeta(torch.tensor(s), torch.tensor(q)).numpy()
    for row, wanted, power in zip(found, expected, s.flat, strict=True):
        np.testing.assert_allclose(row, wanted, rtol=3e-15 * power)


def test_zeta_at_the_ends() -> None:
    inf, nan = np.inf, np.nan
    s = np.array([inf, inf, inf, 2.0, 2.0, 2.5, 1.0, 0.5, 3.0])
    q = np.array([1.0, 0.5, 2.0, inf, -3.0, -0.5, 7.0, 1.0, nan])
    expected = [1, inf, 0, 0, inf, nan, inf, nan, nan]
    found = torch.special.zeta(torch.tensor(s), torch.tensor(q))
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("name", ["scaled_modified_bessel_k0", "scaled_modified_bessel_k1"])
def test_bessel_functions_of_the_largest_and_the_smallest(name: str) -> None:
    x = np.array([1e301, 1.7e308, 1e-305])
    found = getattr(torch.special, name)(torch.tensor(x)).numpy()
    # SciPy's underflow there: sqrt(pi / (2 x)), and -log(x / 2) - gamma or 1 / x.
    expected = np.sqrt(np.pi / 2 / x)
    expected[2] = 1 / x[2] if name.endswith("1") else -np.log(x[2] / 2) - np.euler_gamma
    np.testing.assert_allclose(found, expected, rtol=1e-14)
