"""`torch.distributions.constraints`: sets of values, each asked by `check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "Constraint", "boolean", "corr_cholesky", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval", "less_than",
    "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer",
    "one_hot", "positive", "positive_definite", "positive_integer", "positive_vector", "real",
    "real_matrix", "real_vector", "simplex", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values."""

    is_discrete = False

    def __init__(
        self,
        name: str,
        check: Callable[[Any], Any],
        event_dim: int = 0,
        bounds: tuple[Any, Any] = (None, None),
        base: Constraint | None = None,
        count: int = 0,
    ):
        self._name, self._check, self.event_dim = name, check, event_dim
        # Of real numbers the bounds; of independent ones what each is, and of how many axes.
        self.lower_bound, self.upper_bound = bounds
        self.base, self.count = base, count

    def check(self, value: Any) -> Any:
        """Whether each value, or each event along the last axes, lies in the set."""
        return self._check(value)

    def __repr__(self) -> str:
        return self._name


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """From one bound to another, both within."""
    name = f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    bounds = (lower_bound, upper_bound)
    return Constraint(name, lambda x: (x >= lower_bound) & (x <= upper_bound), bounds=bounds)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """From one bound, within, to another, outside."""
    name = f"HalfOpenInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    bounds = (lower_bound, upper_bound)
    return Constraint(name, lambda x: (x >= lower_bound) & (x < upper_bound), bounds=bounds)


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Integers from one bound to another, both within."""
    name = f"IntegerInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda x: (x % 1 == 0) & (x >= lower_bound) & (x <= upper_bound))


def greater_than(lower_bound: Any) -> Constraint:
    """Above a bound."""
    name = f"GreaterThan(lower_bound={lower_bound})"
    return Constraint(name, lambda x: x > lower_bound, bounds=(lower_bound, None))


def greater_than_eq(lower_bound: Any) -> Constraint:
    """At least a bound."""
    name = f"GreaterThanEq(lower_bound={lower_bound})"
    return Constraint(name, lambda x: x >= lower_bound, bounds=(lower_bound, None))


def less_than(upper_bound: Any) -> Constraint:
    """Below a bound."""
    name = f"LessThan(upper_bound={upper_bound})"
    return Constraint(name, lambda x: x < upper_bound, bounds=(None, upper_bound))


real = Constraint("Real()", lambda x: x == x)
real_vector = Constraint("IndependentConstraint(Real(), 1)", lambda x: (x == x).all(-1), 1)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1))
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: (x % 1 == 0) & (x >= 0)
)
positive_integer = Constraint(
    "IntegerGreaterThan(lower_bound=1)", lambda x: (x % 1 == 0) & (x >= 1)
)
simplex = Constraint("Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), 1)
positive_definite = Constraint(
    "PositiveDefinite()",
    lambda x: (x - x.mT).abs().amax((-2, -1)).le(1e-6) & (x.double().eigvalsh() > 0).all(-1),
    2,
)


def independent(base_constraint: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Where each element along the last axes lies in a set."""
    count, base = reinterpreted_batch_ndims, base_constraint
    if not count:
        return base
    axes = tuple(range(-count, 0))
    name = f"IndependentConstraint({base!r}, {count})"
    events = base.event_dim + count
    return Constraint(name, lambda x: base.check(x).all(axes), events, base=base, count=count)


def multinomial(upper_bound: Any) -> Constraint:
    """Counts along the last axis with a sum of at most a bound."""
    name = f"Multinomial(upper_bound={upper_bound})"
    return Constraint(name, lambda x: (x >= 0).all(-1) & (x.sum(-1) <= upper_bound), 1)


positive_vector, real_matrix = independent(positive, 1), independent(real, 2)
one_hot = Constraint("OneHot()", lambda x: ((x == 0) | (x == 1)).all(-1) & x.sum(-1).eq(1), 1)
lower_triangular = Constraint("LowerTriangular()", lambda x: x.tril().eq(x).all((-2, -1)), 2)
lower_cholesky = Constraint(
    "LowerCholesky()",
    lambda x: x.tril().eq(x).all((-2, -1)) & (x.diagonal(0, -2, -1) > 0).all(-1),
    2,
)
corr_cholesky = Constraint(
    "CorrCholesky()",
    lambda x: lower_cholesky.check(x) & ((x * x).sum(-1) - 1).abs().le(1e-5).all(-1),
    2,
)
