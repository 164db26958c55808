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
