"""The incomplete gamma functions beside numbers of 40 digits, SciPy, and PyTorch's ends."""

import numpy as np
import pytest
from scipy import special

import tilegrad.torch as torch
from tilegrad import Tensor

# a, x, P(a, x), Q(a, x), by integration with 40 digits; those that are 1 say nothing.
EXACT = [
    (0.001, 1e-05, 0.9891230446957827, 0.01087695530421733),
    (0.001, 0.9, 0.9997395703001782, 0.0002604296998218178),
    (0.5, 1e-08, 0.00011283791633342487, 0.9998871620836666),
    (3.0, 2.5, 0.45618688411667047, 0.5438131158833295),
    (12.0, 11.0, 0.42073323707828797, 0.5792667629217121),
    (18.9, 1.9e-05, 6.489889371792348e-107, 1.0),
    (19.99, 20.01, 0.5315264274768463, 0.46847357252315364),
    (20.0, 20.0, 0.52974273316076, 0.47025726683923996),
    (25.0, 14.0, 0.005019892618627107, 0.9949801073813729),
    (6201.8, 9251.2, 1.0, 6.389861722881242e-250),
    (1937.9, 779.9, 1.138629596575765e-265, 1.0),
    (100000.0, 100000.0, 0.5004205221103651, 0.4995794778896348),
    (100000.0, 99000.0, 0.0007574199211747679, 0.9992425800788253),
    (100000.0, 101500.0, 0.9999988263154863, 1.173684513722169e-06),
    (0.01, 30.0, 1.0, 3.144913227075796e-17),
    (150.0, 400.0, 1.0, 4.0711477635616176e-47),
]
ENDS = np.meshgrid(
    [0, 1e-3, 1, 30, 1e5, 1e8, np.inf, np.nan, -1.0],
    [0, 1e-5, 1, 30.0, 1e5, np.inf, np.nan, -1.0],
)


def wide(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of all sizes, many with x close to a."""
    random = np.random.default_rng(3)
    a = 10 ** random.uniform(-3, 5, count)
    near = np.abs(a + 3 * np.sqrt(a) * random.normal(size=count))
    return a, np.where(random.random(count) < 0.5, near, 10 ** random.uniform(-5, 5, count))


def test_numbers_of_40_digits() -> None:
    a, x, lower, upper = np.array(EXACT).T
    # A part of 1e-250 is the exponential of a number whose last digit is 1e-13.
    np.testing.assert_allclose(Tensor(a).igamma(Tensor(x)).numpy(), lower, rtol=4e-13)
    # Beside 1, Q of a small a is what P lacks to 1.
    np.testing.assert_allclose(Tensor(a).igammac(Tensor(x)).numpy(), upper, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "theirs"), [("igamma", special.gammainc), ("igammac", special.gammaincc)]
)
def test_pairs_of_all_sizes_and_ends(name: str, theirs: np.ufunc) -> None:
    for a, x in (wide(2000), (ENDS[0].ravel(), ENDS[1].ravel())):
        wanted = theirs(a, x)
        found = getattr(Tensor(a), name)(Tensor(x)).numpy()
        # SciPy itself loses some digits of what is below 1e-100.
        kept = ~(wanted < 1e-100)
        np.testing.assert_allclose(found[kept], wanted[kept], rtol=1e-11)
        np.testing.assert_allclose(found[~kept], wanted[~kept], rtol=1e-9, atol=1e-300)


def test_float32_is_rounded_once() -> None:
    a, x = (each.astype(np.float32) for each in wide(2000))
    found = Tensor(a).igamma(Tensor(x)).numpy()
    wanted = special.gammainc(a.astype(float), x.astype(float))
    kept = wanted > 1e-37
    np.testing.assert_allclose(found[kept], wanted[kept], rtol=1.2e-7)


def test_gradients_of_both_arguments() -> None:
    a = np.array([0.3, 2.0, 15.0, 20.0, 60.0, 60.0, 500.0])
    x = np.array([0.1, 5.0, 15.0, 20.0, 60.0, 30.0, 520.0])
    left, right = Tensor(a, requires_grad=True), Tensor(x, requires_grad=True)
    left.igamma(right).sum().backward()
    density = np.exp((a - 1) * np.log(x) - x - special.gammaln(a))
    np.testing.assert_allclose(right.grad.numpy(), density, rtol=1e-11)
    step = 1e-4 * a
    slope = (special.gammainc(a + step, x) - special.gammainc(a - step, x)) / (2 * step)
    np.testing.assert_allclose(left.grad.numpy(), slope, rtol=1e-5)


def test_names_of_pytorch() -> None:
    a, x = torch.tensor([2.0, 0.5]), torch.tensor([1.0, 3.0])
    wanted = special.gammainc([2.0, 0.5], [1.0, 3.0])
    for found in (torch.igamma(a, x), torch.special.gammainc(a, x), a.clone().igamma_(x)):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-7)
    for found in (torch.igammac(a, x), torch.special.gammaincc(a, x), a.clone().igammac_(x)):
        np.testing.assert_allclose(found.numpy(), 1 - wanted, rtol=1e-6)
