"""`torch.distributions`: tilegrad's distributions, whose draws are tensors of `torch`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from tilegrad.nn import distributions as ours
from tilegrad.nn.distributions.distribution import NoFormulaError
from tilegrad.nn.distributions.divergences import DIVERGENCES
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import constraints, parameters_of_laws
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.families import attributes_of, expanded
from tilegrad.torch.inverse_transforms import Invertible, argument_of
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.naming import called
from tilegrad.torch.size import Size
from tilegrad.torch.tensor import Tensor, as_ours, with_ours

if TYPE_CHECKING:
    from tilegrad.nn.distributions import Distribution, Independent, register_kl
    from tilegrad.nn.distributions.bounded import *
    from tilegrad.nn.distributions.circular import *
    from tilegrad.nn.distributions.continuous import *
    from tilegrad.nn.distributions.counts import *
    from tilegrad.nn.distributions.discrete import *
    from tilegrad.nn.distributions.gamma import *
    from tilegrad.nn.distributions.low_rank import *
    from tilegrad.nn.distributions.matrices import *
    from tilegrad.nn.distributions.mixture import *
    from tilegrad.nn.distributions.normal import *
    from tilegrad.nn.distributions.shaped_transforms import *
    from tilegrad.nn.distributions.transforms import *
else:
    Distribution = ours.Distribution

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform",
    "Categorical", "Cauchy", "Chi2", "ComposeTransform", "ContinuousBernoulli",
    "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet", "Distribution",
    "ExpTransform", "Exponential", "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy",
    "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy",
    "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal",
    "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "PositiveDefiniteTransform", "PowerTransform", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT", "TanhTransform",
    "Transform", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
    "biject_to", "kl_divergence", "register_kl", "transform_to",
]  # fmt: skip

_METHODS = ("sample", "rsample", "log_prob", "entropy", "perplexity", "cdf", "icdf")
_TRANSFORMS = ("__call__", "log_abs_det_jacobian")
# Arguments that must be positive, and those that are probabilities.
_POSITIVE = frozenset([
    "scale", "rate", "concentration", "concentration0", "concentration1", "df", "df1", "df2",
    "alpha",
])  # fmt: skip
_PLAIN = (ours.Independent, ours.MixtureSameFamily, ours.TransformedDistribution)
# Every distribution of PyTorch has these, if only to say that there is no formula.
_MOMENTS = ("mean", "variance", "mode")
_VALUES = ("mean", "variance", "stddev", "mode", "covariance_matrix", "precision_matrix")


def _checked(name: str, value: Any, dtype: Any = None) -> Any:
    """A number that is an argument of a distribution.

    Raises ValueError for one that no such distribution has.
    """
    if name == "dim":
        return value
    if isinstance(value, (int, float)):
        if name in _POSITIVE and not value > 0:
            raise ValueError(f"{name} must be positive, it is {value}")
        if name == "probs" and not 0 <= value <= 1:
            raise ValueError(f"probs must lie between 0 and 1, it is {value}")
    return argument_of(value, dtype)


# A program gives one of these parameters; the others are computed, and not shown.
_ONE_OF = ("probs", "logits", "covariance_matrix", "precision_matrix", "scale_tril")
# Distributions that are made of others and show no parameters, as PyTorch's.
_WITHOUT_PARAMETERS = frozenset([
    "Beta", "Chi2", "HalfCauchy", "HalfNormal", "InverseGamma", "LogNormal", "LogisticNormal",
    "Multinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "TransformedDistribution",
])  # fmt: skip
# Distributions that show their parameters in another order than they take them.
_SHOWN_FIRST = {
    "Pareto": ("alpha", "scale"),
    "Wishart": ("covariance_matrix", "precision_matrix", "scale_tril", "df"),
}


class _Asked:
    """A parameter that an instance holds, which is shown once a program has asked for it: PyTorch
    computes it then.
    """

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or self.name not in instance.__dict__:
            raise AttributeError(self.name)
        instance.__dict__.setdefault("_asked", set()).add(self.name)
        return instance.__dict__[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


def _arguments(kind: Any, given: dict[str, Any], *, is_checked: bool) -> dict[str, Any]:
    """The arguments of a distribution as tensors of one dtype."""
    tensors = [each for each in given.values() if isinstance(each, OurTensor)]
    dtype = next((each.dtype for each in tensors if each.dtype.is_float), None)
    made = {
        name: _checked(name, value, dtype)
        if is_checked or name == "dim"
        else argument_of(value, dtype)
        for name, value in given.items()
    }
    if kind is ours.Multinomial and isinstance(made.get("total_count"), OurTensor):
        made["total_count"] = int(made["total_count"].item())
    return made


def _text_of(self: Any, kind: Any, names: list[str]) -> str:
    """A distribution as PyTorch prints it, with the values of parameters that are numbers."""
    if kind.__name__ in _WITHOUT_PARAMETERS:
        return f"{kind.__name__}()"
    if kind is ours.MixtureSameFamily:
        mixture, component = self._given.values()
        return f"MixtureSameFamily(\n  {mixture},\n  {component})"
    shown = []
    for name in _SHOWN_FIRST.get(kind.__name__, names):
        is_shown = name not in _ONE_OF or self._given.get(name) is not None
        is_shown = is_shown or name in self.__dict__.get("_asked", ())
        value = getattr(self, name, None) if is_shown else None
        if isinstance(value, OurTensor):
            shape = Size(value.shape)
            text = value.item() if not shape else value if value.numel() == 1 else shape
            shown.append(f"{name}: {text}")
    return f"{kind.__name__}({', '.join(shown)})" if shown else str(kind.__repr__(self))


def _made(kind: Any) -> type:
    """A distribution of tilegrad's with tensors of `torch`."""
    make: Any = vars(kind).get("__init__", kind.__init__)
    names = list(inspect.signature(make).parameters)[1:]

    def __init__(self: Any, *args: Any, validate_args: Any = None, **options: Any) -> None:
        given = {**dict(zip(names, args)), **options}
        if kind not in _PLAIN:
            given = _arguments(kind, given, is_checked=validate_args is not False)
        self._given = given
        make(self, **given)
        self.__dict__.pop("_asked", None)
        self.batch_shape, self.event_shape = Size(self.batch_shape), Size(self.event_shape)

    def __repr__(self: Any) -> str:
        return _text_of(self, kind, names)

    space: dict[str, Any] = {
        "__repr__": __repr__, "__init__": __init__, "__doc__": kind.__doc__, "__module__": __name__,
        "has_rsample": kind.rsample is not ours.Distribution.rsample,
    }  # fmt: skip
    for name in ("probs", "logits"):
        if name in names and not hasattr(kind, name):
            space[name] = _Asked(name)
    space |= attributes_of(kind.__name__)
    for name in _METHODS:
        space[name] = _given(getattr(kind, name)) if hasattr(kind, name) else _absent(name)
    for name in _VALUES:
        found = getattr(kind, name, None)
        if isinstance(found, property) and name not in space:
            space[name] = property(_given(found.fget))
        elif found is None and name in _MOMENTS:
            space.setdefault(name, property(_absent(name)))

    def expand(self: Any, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded to a batch of that shape."""
        return expanded(self, made, batch_shape)

    space["expand"] = expand
    made = type(kind.__name__, (kind,), space)
    if kind in DIVERGENCES:
        DIVERGENCES[made] = DIVERGENCES[kind]
    return made


def _absent(name: str) -> Any:
    def refuse(self: Any, *args: Any, **options: Any) -> Any:
        raise NoFormulaError(f"{type(self).__name__}.{name}: there is no formula")

    return called(refuse, name)


def _between(at: int, kind: str) -> Any:
    """The set that a transform takes (`at` 0), or gives (1), where that depends on the instance."""

    def chosen(self: Any) -> Any:
        name = ("domain", "codomain")[at]
        if kind in ("CatTransform", "StackTransform"):
            sets = [getattr(each, name) for each in self.transforms]
            if kind == "StackTransform":
                return constraints.stack(sets, self.dim)
            return constraints.cat(sets, self.dim, self.lengths)
        if kind == "ReshapeTransform":
            return constraints.independent(constraints.real, self.event_dims()[at])
        if kind == "AffineTransform":
            return constraints.independent(constraints.real, self.event_dim)
        if kind == "IndependentTransform":
            found = getattr(self.base_transform, name)
        else:
            found = getattr(self.parts[-at], name) if self.parts else constraints.real
        return constraints.independent(found, self.event_dims()[at] - found.event_dim)

    return property(chosen)


def _undone(self: Any) -> Any:
    """The inverses, the last one first."""
    return type(self)([each.inv for each in reversed(self.parts)], self._cache_size)


# Transforms that depend on others, or on arguments, in what they take and give.
_COMPOSED = (
    "AffineTransform", "CatTransform", "ComposeTransform", "IndependentTransform",
    "ReshapeTransform", "StackTransform",
)  # fmt: skip


def _transform(kind: type) -> type:
    """A transform of tilegrad's with tensors of `torch`."""
    space: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": __name__}
    for name in _TRANSFORMS:
        space[name] = _given(getattr(kind, name))
    domain, codomain = _DOMAINS.get(kind.__name__, (None, None))
    if domain is not None:
        space |= {"domain": domain, "codomain": codomain}
    elif kind.__name__ in _COMPOSED:
        space |= {"domain": _between(0, kind.__name__), "codomain": _between(1, kind.__name__)}
    space["bijective"] = kind.__name__ not in _MANY_TO_ONE
    if kind.__name__ == "ComposeTransform":
        space["inv"] = property(_undone)
    base = globals().get("Transform")
    return type(kind.__name__, (Invertible, kind) if base is None else (kind, base), space)


# From where to where transforms go.
# Several values are made to one.
_MANY_TO_ONE = frozenset([
    "AbsTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "SoftmaxTransform",
])  # fmt: skip
_DOMAINS = {
    "ExpTransform": (constraints.real, constraints.positive),
    "SigmoidTransform": (constraints.real, constraints.unit_interval),
    "TanhTransform": (constraints.real, constraints.interval(-1.0, 1.0)),
    "SoftplusTransform": (constraints.real, constraints.positive),
    "PowerTransform": (constraints.positive, constraints.positive),
    "AbsTransform": (constraints.real, constraints.positive),
    "SoftmaxTransform": (constraints.real_vector, constraints.simplex),
    "StickBreakingTransform": (constraints.real_vector, constraints.simplex),
    "LowerCholeskyTransform": (constraints.real_matrix, constraints.lower_cholesky),
    "PositiveDefiniteTransform": (constraints.real_matrix, constraints.positive_definite),
    "CorrCholeskyTransform": (constraints.real_vector, constraints.corr_cholesky),
    "CumulativeDistributionTransform": (constraints.real, constraints.unit_interval),
}


class ConstraintRegistry:
    """Which transform makes any numbers ones of a constraint."""

    def __init__(self, simplex: str):
        self._simplex = simplex
        self._own: dict[str, Any] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Let `factory(constraint)` make the transform of a constraint."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        self._own[repr(constraint)] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """A transform to a constraint.

        Raises NotImplementedError where none is known.
        """
        kinds = globals()
        own = self._own.get(repr(constraint))
        if own is not None:
            return own(constraint)
        text, low, high = repr(constraint), constraint.lower_bound, constraint.upper_bound
        if text == "Real()":
            return kinds["ComposeTransform"]([])
        if constraint.members:
            kind = kinds["CatTransform" if text == "Cat()" else "StackTransform"]
            return kind([self(each) for each in constraint.members], *constraint.layout)
        if isinstance(constraint.base, constraints.Constraint):
            return kinds["IndependentTransform"](self(constraint.base), constraint.count)
        if low is not None and high is not None:
            spread = kinds["AffineTransform"](low, high - low)
            if (low, high) == (0.0, 1.0):
                return kinds["SigmoidTransform"]()
            return kinds["ComposeTransform"]([kinds["SigmoidTransform"](), spread])
        if low is not None or high is not None:
            bound, sign = (low, 1) if low is not None else (high, -1)
            steps = [kinds["ExpTransform"](), kinds["AffineTransform"](bound, sign)]
            return kinds["ComposeTransform"](steps)
        name = {
            "Simplex()": self._simplex,
            "LowerCholesky()": "LowerCholeskyTransform",
            "PositiveDefinite()": "PositiveDefiniteTransform",
            "CorrCholesky()": "CorrCholeskyTransform",
        }.get(text)
        is_bijection = self._simplex == "StickBreakingTransform"
        if name is None or (is_bijection and name in _MANY_TO_ONE):
            raise NotImplementedError(f"Cannot transform {text} constraints")
        return kinds[name]()


biject_to = ConstraintRegistry("StickBreakingTransform")
transform_to = ConstraintRegistry("SoftmaxTransform")


def _given(function: Any) -> Any:
    @functools.wraps(function)
    def give(self: Any, *args: Any, **options: Any) -> Any:
        named = {name: argument_of(value) for name, value in options.items()}
        return with_ours(function(self, *map(argument_of, args), **named))

    return give


def kl_divergence(p: Any, q: Any) -> Tensor:
    """The mean of log p - log q over draws of p."""
    found: Tensor = as_ours(ours.kl_divergence(p, q))
    return found


if not TYPE_CHECKING:
    for _name in sorted(ours.__all__, key=lambda name: name != "Transform"):
        _kind = getattr(ours, _name)
        if isinstance(_kind, type) and _kind is not ours.Distribution:
            _make = _transform if issubclass(_kind, ours.Transform) else _made
            globals()[_name] = _make(_kind)
    register_kl = ours.register_kl
    identity_transform = globals()["ComposeTransform"]([])


# PyTorch's files of the same names.
_FILES = (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "constraint_registry",
    "continuous_bernoulli", "dirichlet", "distribution", "exponential", "fishersnedecor", "gamma",
    "geometric", "gumbel", "half_cauchy", "half_normal", "independent", "inverse_gamma", "kl",
    "kumaraswamy", "laplace", "lkj_cholesky", "log_normal", "logistic_normal",
    "lowrank_multivariate_normal", "mixture_same_family", "multinomial", "multivariate_normal",
    "negative_binomial", "normal", "one_hot_categorical", "pareto", "poisson", "relaxed_bernoulli",
    "relaxed_categorical", "studentT", "transformed_distribution", "transforms", "uniform",
    "von_mises", "weibull", "wishart",
)  # fmt: skip
also_known(__name__, _FILES)
also_known(__name__, ("constraints",), constraints)
also_known(__name__, ("utils",), parameters_of_laws)
refuse_others(__name__)
