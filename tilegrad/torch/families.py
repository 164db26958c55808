"""Facts that PyTorch's distributions tell: their parameters, their values, and themselves with a
larger batch.
"""

from __future__ import annotations

from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import constraints as sets
from tilegrad.torch.size import Size
from tilegrad.torch.tensor import as_ours

__all__ = ["attributes_of", "expanded"]

# Parameters whose last axes belong to an event; of the others none does.
_VECTORS = dict.fromkeys(("probs", "logits", "concentration", "loc", "scale", "cov_diag"), 1)
_AXES: dict[str, dict[str, int]] = {
    **dict.fromkeys(
        (
            "Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Multinomial",
            "Dirichlet", "RelaxedOneHotCategorical", "LogisticNormal",
        ),
        _VECTORS,
    ),
    "LowRankMultivariateNormal": {**_VECTORS, "cov_factor": 2},
    "MultivariateNormal": {
        **_VECTORS, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2,
    },
}  # fmt: skip

_REAL = {"loc": sets.real, "scale": sets.positive}
_SHARES = {"probs": sets.unit_interval, "logits": sets.real}
_CLASSES = {"probs": sets.simplex, "logits": sets.real_vector}
_TWO = {"concentration1": sets.positive, "concentration0": sets.positive}
_RATES = {"concentration": sets.positive, "rate": sets.positive}
# The sets of the parameters, and that of the values.
_SETS: dict[str, tuple[dict[str, Any], Any]] = {
    "Bernoulli": (_SHARES, sets.boolean),
    "Beta": (_TWO, sets.unit_interval),
    "Binomial": ({"total_count": sets.nonnegative_integer, **_SHARES}, None),
    "Categorical": (_CLASSES, None),
    "Cauchy": (_REAL, sets.real),
    "Chi2": ({"df": sets.positive}, sets.nonnegative),
    "ContinuousBernoulli": (_SHARES, sets.unit_interval),
    "Dirichlet": ({"concentration": sets.positive_vector}, sets.simplex),
    "Exponential": ({"rate": sets.positive}, sets.nonnegative),
    "FisherSnedecor": ({"df1": sets.positive, "df2": sets.positive}, sets.positive),
    "Gamma": (_RATES, sets.nonnegative),
    "Geometric": (_SHARES, sets.nonnegative_integer),
    "Gumbel": (_REAL, sets.real),
    "HalfCauchy": ({"scale": sets.positive}, sets.nonnegative),
    "HalfNormal": ({"scale": sets.positive}, sets.nonnegative),
    "InverseGamma": (_RATES, sets.positive),
    "Kumaraswamy": (_TWO, sets.unit_interval),
    "LKJCholesky": ({"concentration": sets.positive}, None),
    "Laplace": (_REAL, sets.real),
    "LogNormal": (_REAL, sets.positive),
    "LogisticNormal": (_REAL, sets.simplex),
    "LowRankMultivariateNormal": (
        {"loc": sets.real_vector, "cov_factor": sets.real_matrix, "cov_diag": sets.positive_vector},
        sets.real_vector,
    ),
    "Multinomial": (_CLASSES, None),
    "MultivariateNormal": (
        {
            "loc": sets.real_vector, "covariance_matrix": sets.positive_definite,
            "precision_matrix": sets.positive_definite, "scale_tril": sets.lower_cholesky,
        },
        sets.real_vector,
    ),
    "NegativeBinomial": (
        {
            "total_count": sets.nonnegative, "probs": sets.half_open_interval(0.0, 1.0),
            "logits": sets.real,
        },
        sets.nonnegative_integer,
    ),
    "Normal": (_REAL, sets.real),
    "OneHotCategorical": (_CLASSES, sets.one_hot),
    "OneHotCategoricalStraightThrough": (_CLASSES, sets.one_hot),
    "Pareto": ({"alpha": sets.positive, "scale": sets.positive}, None),
    "Poisson": ({"rate": sets.nonnegative}, sets.nonnegative_integer),
    "RelaxedBernoulli": (_SHARES, sets.unit_interval),
    "RelaxedOneHotCategorical": (_CLASSES, sets.simplex),
    "StudentT": ({"df": sets.positive, **_REAL}, sets.real),
    "Uniform": ({"low": sets.real, "high": sets.real}, None),
    "VonMises": ({"loc": sets.real, "concentration": sets.positive}, sets.real),
    "Weibull": ({"scale": sets.positive, "concentration": sets.positive}, sets.positive),
}  # fmt: skip


# Sets of values that depend on the parameters.
_SUPPORTS: dict[str, Any] = {
    "Binomial": lambda law: sets.integer_interval(0, law.total_count),
    "Categorical": lambda law: sets.integer_interval(0, law.probs.shape[-1] - 1),
    "Independent": lambda law: sets.independent(law.base.support, law.count),
    "LKJCholesky": lambda law: sets.corr_cholesky,
    "MixtureSameFamily": lambda law: sets.MixtureSameFamilyConstraint(
        law.component_distribution.support
    ),
    "Multinomial": lambda law: sets.multinomial(law.total_count),
    "Pareto": lambda law: sets.greater_than_eq(law.scale),
    "TransformedDistribution": lambda law: _moved_set(law),
    "Uniform": lambda law: sets.interval(law.low, law.high),
    "Wishart": lambda law: sets.positive_definite,
}

# Sets of parameters that depend on other parameters.
_PARAMETERS: dict[str, Any] = {
    "Uniform": lambda law: {"low": sets.less_than(law.high), "high": sets.greater_than(law.low)},
    "Wishart": lambda law: {
        "covariance_matrix": sets.positive_definite, "precision_matrix": sets.positive_definite,
        "scale_tril": sets.lower_cholesky, "df": sets.greater_than(law.event_shape[-1] - 1),
    },
}  # fmt: skip


def _moved_set(law: Any) -> Any:
    """The set of values of the last transform."""
    if not law.transforms:
        return law.base_dist.support
    last = law.transforms[-1].codomain
    return sets.independent(last, max(len(law.event_shape) - last.event_dim, 0))


def attributes_of(name: str) -> dict[str, Any]:
    """Attributes of the class of that name: `arg_constraints`, `support`, and for few values all of
    them.
    """
    parameters, support = _SETS.get(name, ({}, None))
    found: dict[str, Any] = {
        "arg_constraints": dict(parameters),
        "has_enumerate_support": name in _ENUMERATED,
        "enumerate_support": _enumerated if name in _ENUMERATED else _not_enumerated,
        "sample_n": lambda self, n: self.sample((n,)),
        "set_default_validate_args": staticmethod(lambda value: None),
        "support": sets.dependent_property(_SUPPORTS[name]) if name in _SUPPORTS else support,
    }
    if name in _PARAMETERS:
        found["arg_constraints"] = property(_PARAMETERS[name])
    if {"probs", "logits"} <= parameters.keys():
        found["param_shape"] = property(lambda self: Size(self.probs.shape))
    if name in _MODES:
        found["mode"] = property(_MODES[name])
    if name == "Independent":
        found["base_dist"] = property(lambda self: self.base)
        found["reinterpreted_batch_ndims"] = property(lambda self: self.count)
    if name == "Categorical":
        found["mean"] = found["variance"] = property(_undefined)
    return found


def _undefined(law: Any) -> Any:
    """Classes have no mean."""
    return as_ours(law.probs.sum(-1) * float("nan"))


def _likeliest_of_two(law: Any) -> Any:
    mode = law.probs.ge(0.5).cast(law.probs.dtype)
    return as_ours(law.probs.eq(0.5).where(float("nan"), mode))


def _likeliest_count(law: Any) -> Any:
    return as_ours(((law.total_count + 1) * law.probs).floor().minimum(law.total_count))


_MODES: dict[str, Any] = {
    "Bernoulli": _likeliest_of_two,
    "Binomial": _likeliest_count,
    "Independent": lambda law: law.base.mode,
    "MultivariateNormal": lambda law: as_ours(law.loc),
    "Poisson": lambda law: as_ours(law.rate.floor()),
    "Uniform": lambda law: as_ours(law.high * float("nan")),
}

_ENUMERATED = (
    "Bernoulli", "Binomial", "Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough",
)  # fmt: skip


def _not_enumerated(law: Any, expand: bool = True) -> Any:
    raise NotImplementedError(f"{type(law).__name__}: the values cannot be enumerated")


def _enumerated(law: Any, expand: bool = True) -> Any:
    """All values, along a new first axis; with `expand` for each element of the batch."""
    name = type(law).__name__
    probs, batch = law.probs, tuple(law.batch_shape)
    if law.event_shape:
        count = probs.shape[-1]
        values = OurTensor.eye(count, dtype=probs.dtype, device=probs.device)
        shaped = values.reshape(count, *(1 for _ in batch), count)
        return as_ours(shaped.expand(count, *batch, count) if expand else shaped)
    kind = "int64" if name == "Categorical" else probs.dtype
    count = 2 if name == "Bernoulli" else 0
    if name == "Categorical":
        count = probs.shape[-1]
    elif not count:
        trials = law.total_count
        if isinstance(trials, OurTensor):
            if not trials.eq(trials.max()).all().item():
                raise NotImplementedError(f"{name}: numbers of trials differ, and so do the values")
            trials = trials.max().item()
        count = int(trials) + 1
    values = OurTensor.arange(count, dtype=kind, device=probs.device)
    shaped = values.reshape(count, *(1 for _ in batch))
    return as_ours(shaped.expand(count, *batch) if expand else shaped)


def expanded(law: Any, kind: type, batch_shape: Any) -> Any:
    """`law`, of the class `kind`, with each parameter expanded to a batch of that shape."""
    shape, given = tuple(batch_shape), dict(law._given)
    if kind.__name__ == "Independent":
        own = tuple(law.base.batch_shape)[len(law.batch_shape) :]
        return kind(law.base.expand((*shape, *own)), law.count)
    if kind.__name__ == "MixtureSameFamily":
        component = law.component_distribution
        return kind(
            law.mixture_distribution.expand(shape),
            component.expand((*shape, component.batch_shape[-1])),
        )
    if kind.__name__ == "TransformedDistribution":
        return kind(law.base_dist.expand(shape), law.transforms)
    axes = _AXES.get(kind.__name__, {})
    for name, value in given.items():
        if isinstance(value, OurTensor) and name != "temperature":
            count = axes.get(name, 0)
            given[name] = value.expand(*shape, *value.shape[value.ndim - count :])
    return kind(**given, validate_args=False)
