"""Activations as modules, under PyTorch's names and arguments: (any shape) to the same shape.

Those of `nn.functional` and of `Tensor` are the same functions.
"""

from __future__ import annotations

from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "SELU", "Hardsigmoid", "Hardswish", "LogSigmoid", "Mish", "QuickGELU", "ReLU", "ReLU6", "SiLU",
    "Sigmoid", "Softsign", "Tanh", "Tanhshrink",
]  # fmt: skip


class _Activation(Module):
    """Arguments that PyTorch takes and that have no meaning here: a result is a new tensor."""

    def __init__(self, inplace: bool = False):
        del inplace


class ReLU(_Activation):
    """Rectified linear unit: max(x, 0).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape and dtype.

    >>> nn.ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.relu()


class ReLU6(_Activation):
    """Rectified linear unit with a limit: min(max(x, 0), 6) (Krizhevsky 2010).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.ReLU6()(Tensor([-1.0, 8.0])).tolist()
    [0.0, 6.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.relu6()


class SELU(_Activation):
    """Scaled exponential linear unit: scale * (max(x, 0) + min(0, alpha * (exp(x) - 1))), with the
    two constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.SELU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.selu()


class SiLU(_Activation):
    """Sigmoid linear unit, or swish: x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.SiLU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.silu()


class Mish(_Activation):
    """Mish: x * tanh(softplus(x)) (Misra 2019, arXiv:1908.08681).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Mish()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.mish()


class Sigmoid(_Activation):
    """Logistic function: 1 / (1 + exp(-x)).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Sigmoid()(Tensor([0.0])).tolist()
    [0.5]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class LogSigmoid(_Activation):
    """Logarithm of the sigmoid, without overflow.

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.LogSigmoid()(Tensor([-1000.0])).tolist()
    [-1000.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.logsigmoid()


class Hardsigmoid(_Activation):
    """Piecewise linear sigmoid: 0 up to -3, 1 from 3 on, between them x / 6 + 1 / 2.

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Hardsigmoid()(Tensor([0.0, 4.0])).tolist()
    [0.5, 1.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardsigmoid()


class Tanh(_Activation):
    """Hyperbolic tangent.

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Tanh()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.tanh()


class Hardswish(_Activation):
    """Piecewise approximation of SiLU: x * hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Hardswish()(Tensor([3.0, 0.0])).tolist()
    [3.0, 0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardswish()


class Softsign(_Activation):
    """Softsign: x / (1 + |x|), between -1 and 1.

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Softsign()(Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.softsign()


class QuickGELU(_Activation):
    """Approximation of GELU: x * sigmoid(1.702 * x), as CLIP uses it (Hendrycks and Gimpel 2016).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.QuickGELU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.quick_gelu()


class Tanhshrink(_Activation):
    """Tanh shrinkage: x - tanh(x).

    Args:
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Tanhshrink()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x - x.tanh()
