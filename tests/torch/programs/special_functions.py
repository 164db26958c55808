"""Special functions and distributions with gradients: Bessel functions, orthogonal polynomials, gamma family, tails, entropies."""

import torch
from torch import distributions as D
from torch import special

x = torch.linspace(0.1, 12, 25, dtype=torch.float64)
for name in (
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
    "i0",
    "i0e",
    "i1",
    "i1e",
):
    f = getattr(special, name)
    print(
        name,
        f"{f(x).double().sum().item():.8g} {f(x[3]).item():.8g} {f(x.float())[-1].item():.5g} {f(-x[:4]).sum().item() if name not in ('bessel_y0', 'bessel_y1') else 0:.6g}",
    )
n = torch.arange(6.0, dtype=torch.float64)
u = torch.tensor(0.3, dtype=torch.float64)
for name in (
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
):
    print(name, getattr(special, name)(u, n))
print(
    special.log_softmax(x[:3], 0),
    special.ndtri(torch.tensor([0.1, 0.5, 0.99])),
    special.ndtr(x[:2]),
    special.log_ndtr(-x[-2:]),
)
print(
    special.erfcx(x[::8]),
    special.multigammaln(x[5:7], 2),
    special.zeta(x[3:5], 2.0),
    special.xlog1py(x[:2], x[:2]),
    special.entr(x[:2]),
)
print(
    special.gammainc(x[:2], x[1:3]),
    special.gammaincc(x[:2], x[1:3]),
    special.polygamma(2, x[:2]),
    special.digamma(x[:2]),
    special.gammaln(x[:2]),
)
p = torch.tensor([0.4, 1.7, 3.2], dtype=torch.float64, requires_grad=True)
for f in (
    torch.lgamma,
    torch.digamma,
    torch.erf,
    torch.erfinv,
    torch.i0,
    special.i1,
    special.i0e,
    special.i1e,
    special.ndtri,
    special.log_ndtr,
    special.erfcx,
    torch.sinc,
    torch.logit,
    special.entr,
):
    v = f(p * 0.3)
    (g,) = torch.autograd.grad(v.sum(), p)
    print(getattr(f, "__name__", "f").replace("special_", ""), v.detach(), g)
for d in (
    D.Normal(p, 1.5),
    D.Gamma(p, 2.0),
    D.Beta(p, p + 1),
    D.StudentT(p + 2, 0.5, p),
    D.Laplace(p, p),
    D.Gumbel(p, 2.0),
    D.Weibull(p, 1.3),
    D.Pareto(p, 3.0),
    D.Poisson(p),
    D.Exponential(p),
    D.HalfNormal(p),
    D.HalfCauchy(p),
    D.VonMises(p, 2 * p),
    D.InverseGamma(p + 3, p),
    D.LogNormal(p, 0.4),
    D.Geometric(p / 4),
    D.NegativeBinomial(5, p / 4),
    D.Kumaraswamy(p, 2.0),
    D.Chi2(p),
    D.FisherSnedecor(p, p + 5),
    D.ContinuousBernoulli(p / 4),
    D.Cauchy(p, 1.0),
):
    at = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64)
    if isinstance(d, (D.Poisson, D.Geometric, D.NegativeBinomial)):
        at = at + 0.5
    if isinstance(d, D.Pareto):
        at = p.detach() + 1
    lp = d.log_prob(at)
    (g,) = torch.autograd.grad(lp.sum(), p)
    print(type(d).__name__, lp.detach(), g, d.mean.detach().sum(), d.variance.detach().sum())
