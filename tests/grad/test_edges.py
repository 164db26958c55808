"""Gradients where the chain rule alone would give infinity times 0, or miss a derivative: at 0, at
the ends of a function's domain, at equal points. Expected values are derived by hand: the
subgradient that PyTorch takes, or the limit.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, nn

F = nn.functional
INF = math.inf


def gradients(function: Callable[..., Tensor], *inputs: Any) -> list[Any]:
    """The gradients of the sum of `function`, as arrays."""
    tensors = [Tensor(values, dtype="float64", requires_grad=True) for values in inputs]
    found = function(*tensors).sum().gradient(*tensors)
    return [part.numpy() for part in found]


def second(function: Callable[[Tensor], Tensor], values: Any) -> Any:
    """The gradient of the sum of the gradient."""
    x = Tensor(values, dtype="float64", requires_grad=True)
    (first,) = function(x).sum().gradient(x)
    (found,) = first.sum().gradient(x)
    return found.numpy()


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, 4, INF])
def test_the_norm_of_zeros_has_a_gradient_of_zero(p: float) -> None:
    (found,) = gradients(lambda x: x.norm(p), [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("p", [0.5, 1.5, 2, 3])
def test_a_zero_beside_other_elements_has_no_part_in_the_gradient_of_a_norm(p: float) -> None:
    (found,) = gradients(lambda x: x.norm(p), [0.0, 3.0, 4.0])
    whole = (3**p + 4**p) ** (1 / p - 1)
    np.testing.assert_allclose(found, [0.0, whole * 3 ** (p - 1), whole * 4 ** (p - 1)], rtol=1e-9)


def test_the_second_derivative_of_a_norm_of_zeros_is_zero() -> None:
    np.testing.assert_array_equal(second(lambda x: x.norm(), [0.0, 0.0]), [0.0, 0.0])


@pytest.mark.parametrize("correction", [0, 1])
def test_the_deviation_of_equal_values_has_a_gradient_of_zero(correction: int) -> None:
    (found,) = gradients(lambda x: x.std(correction=correction), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(second(lambda x: x.std(), [2.0, 2.0]), [0.0, 0.0])


@pytest.mark.parametrize(
    "p", [0.5, 1, 2, INF, *(pytest.param(p, marks=pytest.mark.nightly) for p in (1.5, 3))]
)
def test_equal_points_do_not_pull_at_each_other(p: float) -> None:
    rows = [[1.0, 2.0], [1.0, 2.0]]
    for found in (
        *gradients(lambda x, y: x.cdist(y, p), rows, rows),
        *gradients(lambda x: F.pdist(x, p), rows),
        *gradients(lambda x: x.pdist(p), rows),
        *gradients(lambda x, y: F.pairwise_distance(x, y, p, 0.0), rows, rows),
        *gradients(lambda x, y: x.dist(y, p), rows, rows),
    ):
        np.testing.assert_array_equal(found, np.zeros((2, 2)))


def test_equal_points_in_a_triplet_loss_have_a_gradient_of_zero() -> None:
    point = [[1.0, 2.0]]
    for found in gradients(
        lambda a, b, c: F.triplet_margin_loss(a, b, c, eps=0.0), point, point, point
    ):
        np.testing.assert_array_equal(found, [[0.0, 0.0]])


def test_a_row_of_zeros_is_normalised_by_eps() -> None:
    (found,) = gradients(lambda x: F.normalize(x, eps=0.5), [[0.0, 0.0]])
    np.testing.assert_array_equal(found, [[2.0, 2.0]])


def test_renorm_of_zeros_passes_the_gradient_on() -> None:
    (found,) = gradients(lambda x: x.renorm(2, 0, 1.0), [[0.0, 0.0]])
    np.testing.assert_array_equal(found, [[1.0, 1.0]])


def test_the_norm_of_a_window_of_zeros_has_a_gradient_of_zero() -> None:
    (found,) = gradients(lambda x: F.lp_pool1d(x, 2, 2), [[[0.0, 0.0, 3.0, 0.0]]])
    np.testing.assert_array_equal(found, [[[0.0, 0.0, 1.0, 0.0]]])


def test_hypot_at_the_origin_and_on_the_axes() -> None:
    x, y = gradients(lambda x, y: x.hypot(y), [0.0, 0.0, -3.0], [0.0, 3.0, 0.0])
    np.testing.assert_array_equal(x, [0.0, 0.0, -1.0])
    np.testing.assert_array_equal(y, [0.0, 1.0, 0.0])


def test_the_curvature_of_hypot_on_an_axis() -> None:
    np.testing.assert_allclose(second(lambda x: x.hypot(2.0), [0.0]), [0.5])


def test_atan2_on_the_axes() -> None:
    """d/dy = x / (x^2 + y^2), d/dx = -y / (x^2 + y^2); 0 at the origin."""
    y, x = gradients(
        lambda y, x: y.atan2(x), [0.0, 0.0, 2.0, -2.0, 0.0], [2.0, -2.0, 0.0, 0.0, 0.0]
    )
    np.testing.assert_allclose(y, [0.5, -0.5, 0.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(x, [0.0, 0.0, -0.5, 0.5, 0.0], atol=1e-15)


# A function of x, where, and its derivative there.
SLOPES: list[tuple[str, Callable[[Tensor], Tensor], float, float]] = [
    ("asinh at 0", lambda x: x.asinh(), 0.0, 1.0),
    ("i1 at 0", lambda x: x.i1(), 0.0, 0.5),
    ("i1e at 0", lambda x: x.i1e(), 0.0, 0.5),
    ("i0e at 0", lambda x: x.i0e(), 0.0, 0.0),
    ("erfcx at 0", lambda x: x.erfcx(), 0.0, -2 / math.sqrt(math.pi)),
    ("asin at 1", lambda x: x.asin(), 1.0, INF),
    ("asin at -1", lambda x: x.asin(), -1.0, INF),
    ("acos at 1", lambda x: x.acos(), 1.0, -INF),
    ("acos at -1", lambda x: x.acos(), -1.0, -INF),
    ("atanh at 1", lambda x: x.atanh(), 1.0, INF),
    ("atanh at -1", lambda x: x.atanh(), -1.0, INF),
    ("logit at 0", lambda x: x.logit(), 0.0, INF),
    ("logit at 1", lambda x: x.logit(), 1.0, INF),
    ("entr at 0", lambda x: x.entr(), 0.0, INF),
    ("x ** 1.5 at 0", lambda x: x**1.5, 0.0, 0.0),
    ("x ** 1.0 at 0", lambda x: x ** Tensor(1.0, dtype="float64"), 0.0, 1.0),
    ("x ** 0.5 at 0", lambda x: x ** Tensor(0.5, dtype="float64"), 0.0, INF),
    ("x ** 2.5 at 0", lambda x: x**2.5, 0.0, 0.0),
    ("x ** 0 at 0", lambda x: x ** Tensor(0.0, dtype="float64"), 0.0, 0.0),
    ("xlogy(x, 2) at 0", lambda x: x.xlogy(Tensor(2.0, dtype="float64")), 0.0, math.log(2.0)),
    ("xlogy(x, 0) at 0", lambda x: x.xlogy(Tensor(0.0, dtype="float64")), 0.0, 0.0),
    ("xlog1py(x, 1) at 0", lambda x: x.xlog1py(Tensor(1.0, dtype="float64")), 0.0, math.log(2.0)),
    ("clip at its limit", lambda x: x.clip(0.0, 1.0), 1.0, 1.0),
    ("hardtanh at its limit", lambda x: x.hardtanh(), 1.0, 0.0),
    ("relu at 0", lambda x: x.relu(), 0.0, 0.0),
    ("relu at -0.0", lambda x: x.relu(), -0.0, 0.0),
    ("relu at NaN", lambda x: x.relu(), math.nan, 1.0),
    ("relu6 at NaN", lambda x: x.relu6(), math.nan, 1.0),
    ("relu6 at 6", lambda x: x.relu6(), 6.0, 0.0),
    ("hardsigmoid at 3", lambda x: F.hardsigmoid(x), 3.0, 0.0),
    ("hardswish at 3", lambda x: F.hardswish(x), 3.0, 1.0),
    ("softshrink at 1/2", lambda x: F.softshrink(x), 0.5, 0.0),
    ("abs at 0", lambda x: x.abs(), 0.0, 0.0),
    ("softplus at 0", lambda x: x.softplus(), 0.0, 0.5),
    ("logaddexp of equals", lambda x: x.logaddexp(x.detach()), 2.0, 0.5),
    ("logaddexp with inf", lambda x: x.logaddexp(Tensor(INF, dtype="float64")), 2.0, 0.0),
    ("logaddexp at inf", lambda x: x.logaddexp(Tensor(2.0, dtype="float64")), INF, 1.0),
    ("logaddexp with -inf", lambda x: x.logaddexp(Tensor(-INF, dtype="float64")), 2.0, 1.0),
]


@pytest.mark.parametrize(
    ("name", "function", "place", "slope"), SLOPES, ids=[case[0] for case in SLOPES]
)
def test_the_slope_at_an_edge(
    name: str, function: Callable[[Tensor], Tensor], place: float, slope: float
) -> None:
    (found,) = gradients(function, [place])
    np.testing.assert_allclose(found, [slope], rtol=1e-7)


def test_clip_by_tensors_gives_the_gradient_of_a_tie_to_what_is_clipped() -> None:
    x, low = gradients(lambda x, low: x.clip(low), [0.0, 1.0, 2.0], [0.0, 2.0, 1.0])
    np.testing.assert_array_equal(x, [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(low, [0.0, 1.0, 0.0])


def test_clip_by_a_bound_that_is_nan_is_nan() -> None:
    assert math.isnan(Tensor([1.0]).clip(Tensor([math.nan])).item())
    assert math.isnan(Tensor([math.nan]).clip(0.0, 1.0).item())


# A function of x, where, and its second derivative there.
CURVES: list[tuple[str, Callable[[Tensor], Tensor], float, float]] = [
    ("log1p", lambda x: x.log1p(), 0.0, -1.0),
    ("softplus", lambda x: x.softplus(), 0.0, 0.25),
    ("logaddexp of equals", lambda x: x.logaddexp(Tensor(0.0, dtype="float64")), 0.0, 0.25),
    ("atanh", lambda x: x.atanh(), 0.0, 0.0),
    ("asinh", lambda x: x.asinh(), 0.0, 0.0),
    ("i0", lambda x: x.i0(), 0.0, 0.5),
    ("x ** 1.5", lambda x: x**1.5, 4.0, 0.375),
]


@pytest.mark.parametrize(
    ("name", "function", "place", "curve"), CURVES, ids=[case[0] for case in CURVES]
)
def test_the_second_derivative_at_an_edge(
    name: str, function: Callable[[Tensor], Tensor], place: float, curve: float
) -> None:
    np.testing.assert_allclose(second(function, [place]), [curve], rtol=1e-7, atol=1e-12)


def test_a_certain_wrong_probability_still_has_a_gradient() -> None:
    """As in PyTorch 1 / p counts as at most 1e12, so that training can leave p = 0."""
    (found,) = gradients(
        lambda x: F.binary_cross_entropy(x, Tensor([1.0, 0.0], dtype="float64"), reduction="sum"),
        [0.0, 1.0],
    )
    np.testing.assert_allclose(found, [-1e12, 1e12])


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 2.0, 1.0, 3.0, 2.0], [1 / 3, 1 / 3, 0.0, 0.0, 1 / 3]),
        ([5.0, 1.0, 3.0], [0.0, 0.0, 1.0]),
        ([[-INF, -INF], [-INF, 1.0]], [[1 / 3, 1 / 3], [1 / 3, 0.0]]),
        ([INF, INF], [0.5, 0.5]),
    ],
)
def test_equal_elements_share_the_gradient_of_the_median_of_all(
    name: str, values: Any, expected: Any
) -> None:
    """As in PyTorch; along an axis it goes to the one whose position is given."""
    (found,) = gradients(lambda x: getattr(x, name)(), values)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_gradient_of_a_median_that_is_nan_goes_to_the_nan() -> None:
    (found,) = gradients(lambda x: x.median(), [1.0, math.nan, 2.0, math.nan])
    np.testing.assert_array_equal(found, [0.0, 0.5, 0.0, 0.5])


def test_the_second_derivative_of_the_length_of_equal_sides() -> None:
    """Of sqrt(x^2 + y^2) by x: y^2 / sqrt(x^2 + y^2)^3."""
    found = second(lambda x: x.hypot(Tensor([2.0, -3.0, 4.0], dtype="float64")), [2.0, 3.0, 3.0])
    np.testing.assert_allclose(found, [4 / 8**1.5, 9 / 18**1.5, 16 / 125], rtol=1e-9)


@pytest.mark.parametrize("loss", [F.huber_loss, F.smooth_l1_loss])
def test_a_loss_that_is_a_square_near_0_bends_there_as_one(loss: Callable[..., Tensor]) -> None:
    target = Tensor([0.0, 0.0, 0.0], dtype="float64")
    found = second(lambda x: loss(x, target, reduction="sum"), [0.0, -0.5, 3.0])
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.0])


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_a_rounded_quotient_is_a_step(mode: str) -> None:
    """As `floor` and `trunc`: the gradient is 0, and no error where nothing else reaches a leaf."""
    x, y = (Tensor(values, requires_grad=True) for values in ([5.0, -5.0], [2.0, 3.0]))
    x.div(y, rounding_mode=mode).sum().backward()
    for each in (x, y):
        assert each.grad is not None and each.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("power", [0.3, 1.5, 2.5, -1.5])
def test_a_power_that_is_not_there_has_no_derivative(power: float) -> None:
    (found,) = gradients(lambda x: x**power, [-2.0, 4.0])
    np.testing.assert_allclose(found, [math.nan, power * 4.0 ** (power - 1)], rtol=1e-12)


@pytest.mark.parametrize("power", [-2, -3])
def test_the_slope_of_a_negative_whole_power_at_zero_is_infinite(power: int) -> None:
    (found,) = gradients(lambda x: x**power, [0.0, 2.0])
    np.testing.assert_allclose(found, [-INF, power * 2.0 ** (power - 1)], rtol=1e-12)


def test_one_and_a_half_as_a_power_of_signed_zeros_and_infinities() -> None:
    found = (Tensor([-0.0, -INF, INF, 4.0]) ** 1.5).numpy()
    np.testing.assert_array_equal(found, [0.0, INF, INF, 8.0])
    assert not np.signbit(found[0])
