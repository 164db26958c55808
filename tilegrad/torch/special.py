"""`torch.special`: functions of mathematics, which are methods of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent import absent
from tilegrad.torch.tensor import Tensor

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc",
    "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "multigammaln", "ndtr", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py",
    "xlogy", "zeta",
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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(absent("torch.special", name, __all__), name=name)
