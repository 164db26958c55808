"""`torch.special`: functions of mathematics, which are methods of tensors."""

from __future__ import annotations

import math

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.airy import airy_ai
from tilegrad.torch.bessel import (
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
)
from tilegrad.torch.expecting import no_tensor
from tilegrad.torch.polynomials import *
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr",
    "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip

digamma = Tensor.digamma
entr = Tensor.entr
erf = Tensor.erf
erfc = Tensor.erfc
erfcx = Tensor.erfcx
erfinv = Tensor.erfinv
exp2 = Tensor.exp2
expit = Tensor.sigmoid
expm1 = Tensor.expm1
gammainc = Tensor.igamma
gammaincc = Tensor.igammac
gammaln = Tensor.lgamma
i0 = Tensor.i0
i0e = Tensor.i0e
i1 = Tensor.i1
i1e = Tensor.i1e
log1p = Tensor.log1p
log_ndtr = Tensor.log_ndtr
log_softmax = Tensor.log_softmax
logit = Tensor.logit
logsumexp = Tensor.logsumexp
multigammaln = Tensor.mvlgamma
modified_bessel_i0 = Tensor.i0
modified_bessel_i1 = Tensor.i1
ndtr = Tensor.ndtr
psi = Tensor.digamma
round = Tensor.round
sinc = Tensor.sinc
softmax = Tensor.softmax
xlog1py = Tensor.xlog1py
xlogy = Tensor.xlogy
zeta = Tensor.zeta


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of `digamma`."""
    return input.polygamma(n)


def ndtri(input: Tensor) -> Tensor:
    """The quantile of the normal distribution: what `ndtr` gives `input` for."""
    if not isinstance(input, OurTensor):
        raise no_tensor("ndtri", input)
    p = as_ours(input)
    p = p if p.dtype.is_float else p.float()
    wide = p.double() if p.dtype.is_float else p
    tail = (wide < 0.5).where(wide, 1 - wide)
    logarithm = tail.log()
    far = (logarithm * -2).clip(1e-30, 1e300)
    # A start on either side of 0.05, then Newton's steps on the logarithm, which is nearly a
    # parabola in the tail. The last one carries the gradient.
    start = -(far - (far * (2 * math.pi)).log().clip(0, 1e300)).clip(1e-30, 1e300).sqrt()
    found = (tail < 0.05).where(start, (tail * 2 - 1).erfinv() * math.sqrt(2)).detach()
    for step in range(4):
        height = found.log_ndtr()
        slope = (found * found * -0.5 - 0.5 * math.log(2 * math.pi) - height).exp()
        aim = logarithm if step == 3 else logarithm.detach()
        found = found - (height - aim) / slope
    found = (tail > 0).where(found, -math.inf)
    signed = (wide < 0.5).where(found, -found)
    signed = ((wide < 0) | (wide > 1)).where(math.nan, signed)
    made: Tensor = signed.to(p.dtype)
    return made


refuse_others(__name__)
