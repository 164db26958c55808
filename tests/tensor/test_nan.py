"""NaN in, NaN out: of every function of one number, unless it asks what kind of number it is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tilegrad import Tensor, dtypes, nn
from tilegrad.base.dtype import DType

F = nn.functional
INF, NAN = math.inf, math.nan

METHODS = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "celu",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "elu",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "i0",
    "leaky_relu",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "logsigmoid",
    "mish",
    "neg",
    "quick_gelu",
    "rad2deg",
    "reciprocal",
    "relu",
    "relu6",
    "round",
    "rsqrt",
    "selu",
    "sgn",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "softplus",
    "softshrink",
    "softsign",
    "sqrt",
    "square",
    "swish",
    "tan",
    "tanh",
    "trunc",
]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "Threshold": lambda x: nn.Threshold(0.5, 7.0)(x),
    "Hardshrink": lambda x: nn.Hardshrink()(x),
    "PReLU": lambda x: nn.PReLU()(x),
    "F.hardshrink": lambda x: F.hardshrink(x),
    "F.hardtanh": lambda x: F.hardtanh(x, -2.0, 2.0),
    "tanhshrink": lambda x: F.tanhshrink(x),
    "rrelu": lambda x: F.rrelu(x),
    "clip": lambda x: x.clip(-1, 1),
    "clip-low": lambda x: x.clip(0),
    "maximum": lambda x: x.maximum(0.5),
    "minimum": lambda x: x.minimum(0.5),
    "maximum-of": lambda x: Tensor.full((3,), 0.5).maximum(x),
    "mod": lambda x: x % 3,
    "mod-by": lambda x: Tensor.full((3,), 3.0) % x,
    "fmod": lambda x: x.fmod(3),
    "floordiv": lambda x: x // 3,
    "pow": lambda x: x**2.5,
    "pow-3": lambda x: x**3,
    "lerp": lambda x: x.lerp(Tensor.full((3,), 1.0), 0.25),
    "atan2": lambda x: x.atan2(Tensor.full((3,), 1.0)),
    "hypot": lambda x: x.hypot(1.0),
    "logaddexp": lambda x: x.logaddexp(Tensor.full((3,), 1.0)),
    "heaviside": lambda x: x.heaviside(Tensor.full((3,), 1.0)),
    "nextafter": lambda x: x.nextafter(1.0),
    "ldexp": lambda x: x.ldexp(3),
    "frexp": lambda x: x.frexp().mantissa,
    "copysign": lambda x: x.copysign(-1.0),
    "xlogy": lambda x: x.xlogy(Tensor.full((3,), 2.0)),
    "max_pool": lambda x: F.max_pool1d(x.reshape(1, 1, 3), 1).reshape(3),
    "avg_pool": lambda x: F.avg_pool1d(x.reshape(1, 1, 3), 1).reshape(3),
    "cummax": lambda x: x.reshape(3, 1).cummax(1).values.reshape(3),
    "sort": lambda x: x.reshape(3, 1).sort(1)[0].reshape(3),
    "interpolate": lambda x: F.interpolate(x.reshape(1, 1, 3), 3, mode="linear").reshape(3),
}
FUNCTIONS |= {
    name: lambda x, name=name: getattr(x, name)() for name in METHODS if hasattr(Tensor, name)
}


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(dtypes.float32, id="float32"),
        pytest.param(dtypes.float16, id="float16", marks=pytest.mark.nightly),
    ],
)
def test_nan_stays_nan(dtype: DType) -> None:
    """In one realization, with numbers beside it that are none."""
    x = Tensor([0.5, NAN, 0.25], dtype=dtype).realize()
    found = {name: function(x) for name, function in FUNCTIONS.items()}
    Tensor.realize(*found.values())
    wrong = [name for name, value in found.items() if not math.isnan(value.tolist()[1])]
    assert not wrong
    acosh_and_kin = {"acosh"}
    wrong = [name for name, value in found.items() if math.isnan(value.tolist()[0])]
    assert set(wrong) <= acosh_and_kin


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_place_that_is_no_number(mode: str, padding: str) -> None:
    """Between zeros it lies outside; else it is the first element's, as in PyTorch."""
    x = Tensor([[[[3.0, 1.0], [2.0, 4.0]]]])
    places = Tensor([[[[NAN, NAN], [0.0, NAN], [-0.5, -0.5]]]])
    both, one, known = x.grid_sample(places, mode, padding).flatten().tolist()
    assert known == 3.0
    if padding == "zeros":
        assert (math.isnan(both) and math.isnan(one)) if mode == "bilinear" else both == one == 0
    else:
        assert both == 3.0
        assert not math.isnan(one)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, INF, -INF, NAN]


@pytest.mark.parametrize("name", ["hypot", "atan2", "copysign", "nextafter", "pow", "logaddexp"])
def test_two_special_numbers_as_in_c(name: str) -> None:
    """The infinite, zeros of both signs and NaN, as C's Annex F has them: hypot(inf, NaN) is inf,
    and 1 to the power of NaN is 1.
    """
    theirs = {"pow": np.float_power, "atan2": np.arctan2}.get(name) or getattr(np, name)
    grid = [(a, b) for a in SPECIAL for b in SPECIAL]
    x, y = (np.array(column, np.float32) for column in zip(*grid))
    found = getattr(Tensor(x), name)(Tensor(y)).numpy()
    with np.errstate(all="ignore"):
        if name == "nextafter":
            expected = theirs(x, y)
        else:
            expected = theirs(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=3e-7)
    kept = ~np.isnan(expected) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(found[kept]), np.signbit(expected[kept]))


def test_one_special_number_as_in_c() -> None:
    x = np.array(SPECIAL, np.float32)
    for name in ("log1p", "expm1", "exp", "exp2", "sqrt", "trunc", "rint", "ceil", "floor", "cbrt"):
        method = {"rint": "round"}.get(name, name)
        if not hasattr(Tensor, method):
            continue
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x)
        found = getattr(Tensor(x), method)().numpy()
        np.testing.assert_allclose(found, expected, rtol=3e-7, err_msg=name)
        kept = expected == 0
        np.testing.assert_array_equal(np.signbit(found[kept]), np.signbit(expected[kept]))
    mantissa, exponent = Tensor(x).frexp()
    np.testing.assert_array_equal(mantissa.numpy(), np.frexp(x)[0])
    assert exponent.tolist() == [0, 0, 1, 1, 2, 0, 0, 0]
