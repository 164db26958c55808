"""`torch.distributions.constraints`: sets of values, each asked by `check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.torch.absent_hints import refuse_others

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "positive_semidefinite", "positive_vector", "real",
    "real_matrix", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values."""

    is_discrete: Any

    def __init__(
        self,
        name: str,
        check: Callable[[Any], Any],
        event_dim: int = 0,
        bounds: tuple[Any, Any] = (None, None),
        base: Constraint | None = None,
        count: int = 0,
        members: Sequence[Constraint] = (),
        layout: Sequence[Any] = (),
        *,
        is_discrete: bool = False,
    ):
        self._name, self._check, self.event_dim = name, check, event_dim
        self.is_discrete = is_discrete or any(each.is_discrete for each in members)
        # For slices of an axis: the set of each, the axis, and their sizes.
        self.members, self.layout = list(members), tuple(layout)
        # For real numbers, the bounds; for independent ones, the set of each, and the number of
        # axes.
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
    check = lambda x: (x % 1 == 0) & (x >= lower_bound) & (x <= upper_bound)  # noqa: E731
    return Constraint(name, check, is_discrete=True)


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
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: (x % 1 == 0) & (x >= 0), is_discrete=True
)
positive_integer = Constraint(
    "IntegerGreaterThan(lower_bound=1)", lambda x: (x % 1 == 0) & (x >= 1), is_discrete=True
)
simplex = Constraint("Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), 1)


def _is_square(x: Any) -> Any:
    return x.new_full(x.shape[:-2], x.shape[-1] == x.shape[-2], dtype="bool")


def _is_symmetric(x: Any) -> Any:
    if x.shape[-1] != x.shape[-2]:
        return _is_square(x)
    return (x - x.mT).abs().amax((-2, -1)).le(1e-6)


def _where_symmetric(condition: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A condition on the eigenvalues of symmetric matrices."""

    def check(x: Any) -> Any:
        found = _is_symmetric(x)
        if x.shape[-1] != x.shape[-2]:
            return found
        return found & condition(x.double().eigvalsh()).all(-1)

    return check


square = Constraint("Square()", _is_square, 2)
symmetric = Constraint("Symmetric()", _is_symmetric, 2)
positive_semidefinite = Constraint(
    "PositiveSemidefinite()", _where_symmetric(lambda values: values >= -1e-6), 2
)
positive_definite = Constraint("PositiveDefinite()", _where_symmetric(lambda values: values > 0), 2)


def independent(base_constraint: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Where each element along the last axes lies in a set."""
    count, base = reinterpreted_batch_ndims, base_constraint
    if not count:
        return base
    axes = tuple(range(-count, 0))
    name = f"IndependentConstraint({base!r}, {count})"
    events = base.event_dim + count
    return Constraint(
        name,
        lambda x: base.check(x).all(axes),
        events,
        base=base,
        count=count,
        is_discrete=base.is_discrete,
    )


def multinomial(upper_bound: Any) -> Constraint:
    """Counts along the last axis with a sum of at most a bound."""
    return Constraint(
        "Multinomial()",
        lambda x: (x >= 0).all(-1) & (x.sum(-1) <= upper_bound),
        1,
        bounds=(None, upper_bound),
        is_discrete=True,
    )


def cat(
    cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
) -> Constraint:
    """Where slices of an axis, of sizes `lengths` or 1, lie each in a set of its own."""
    sizes = [1] * len(cseq) if lengths is None else list(lengths)

    def check(x: Any) -> Any:
        found = [each.check(slice_) for each, slice_ in zip(cseq, x.split(sizes, dim))]
        return found[0].cat(*found[1:], dim=dim)

    events = max(each.event_dim for each in cseq)
    return Constraint("Cat()", check, events, members=cseq, layout=(dim, sizes))


def stack(cseq: Sequence[Constraint], dim: int = 0) -> Constraint:
    """Where each slice of an axis lies in a set of its own."""

    def check(x: Any) -> Any:
        found = [each.check(x.select(dim, at)) for at, each in enumerate(cseq)]
        return found[0].stack(*found[1:], dim=dim)

    events = max(each.event_dim for each in cseq)
    events += dim + events < 0
    return Constraint("Stack()", check, events, members=cseq, layout=(dim,))


class Dependent(Constraint):
    """A set that depends on other parameters."""

    def __init__(self, name: str = "Dependent()", *, is_discrete: Any = False, event_dim: Any = 0):
        super().__init__(name, self._refused, event_dim, is_discrete=is_discrete)

    def __call__(self, *, is_discrete: Any = False, event_dim: Any = 0) -> Dependent:
        """This constraint with the given properties."""
        return Dependent(is_discrete=is_discrete, event_dim=event_dim)

    @staticmethod
    def _refused(value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, Dependent):
    """A property that is a set, and that says so of its class."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = False, event_dim: Any = 0):
        property.__init__(self, fn)
        Dependent.__init__(
            self, "DependentProperty()", is_discrete=is_discrete, event_dim=event_dim
        )

    def __call__(self, fn: Any = None, **options: Any) -> Any:
        """The decorator of a function."""
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on other parameters."""
    return isinstance(constraint, Dependent)


def MixtureSameFamilyConstraint(base_constraint: Constraint) -> Constraint:
    """The set of values of several distributions of one family."""
    base = base_constraint

    def check(x: Any) -> Any:
        found = base.check(x.unsqueeze(-1 - base.event_dim))
        return found.all(-1)

    name = f"MixtureSameFamilyConstraint({base!r})"
    return Constraint(name, check, base.event_dim, base=base, is_discrete=base.is_discrete)


dependent = Dependent()
real_vector, real_matrix = independent(real, 1), independent(real, 2)
positive_vector = independent(positive, 1)
one_hot = Constraint(
    "OneHot()",
    lambda x: ((x == 0) | (x == 1)).all(-1) & x.sum(-1).eq(1),
    1,
    is_discrete=True,
)
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

refuse_others(__name__)
