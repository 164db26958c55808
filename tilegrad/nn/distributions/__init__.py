"""Probability distributions: draws, densities, entropies and divergences.

Names, arguments and formulas are those of `torch.distributions`. Parameters are tensors, or
numbers, which broadcast; the shape of one draw is that of a batch of independent distributions,
`batch_shape`, and then that of one event, `event_shape`. Nothing is computed until a value is asked
for, so parameters are not checked: a scale that is not positive gives what its formula gives.

    policy = nn.distributions.Categorical(logits=model(state))
    action = policy.sample()
    loss = -(policy.log_prob(action) * advantage).mean()
"""

from tilegrad.nn.distributions.bounded import ContinuousBernoulli, Kumaraswamy, LogisticNormal
from tilegrad.nn.distributions.circular import VonMises
from tilegrad.nn.distributions.continuous import *
from tilegrad.nn.distributions.counts import FisherSnedecor, Multinomial, NegativeBinomial
from tilegrad.nn.distributions.discrete import *
from tilegrad.nn.distributions.distribution import Distribution, Independent
from tilegrad.nn.distributions.divergences import kl_divergence, register_kl
from tilegrad.nn.distributions.gamma import Beta, Chi2, Dirichlet, Gamma, InverseGamma, StudentT
from tilegrad.nn.distributions.low_rank import LowRankMultivariateNormal
from tilegrad.nn.distributions.matrices import LKJCholesky, Wishart
from tilegrad.nn.distributions.mixture import MixtureSameFamily
from tilegrad.nn.distributions.normal import HalfNormal, LogNormal, MultivariateNormal, Normal
from tilegrad.nn.distributions.shaped_transforms import *
from tilegrad.nn.distributions.transforms import *

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
    "kl_divergence", "register_kl",
]  # fmt: skip
