"""First values, written into a tensor: PyTorch's names and formulas. Each gives its tensor.

fan_in is the number of inputs of one output, size(1) times the kernel; fan_out has size(0).

>>> nn.init.ones_(Tensor.zeros(2)).tolist()
[1.0, 1.0]
"""

from __future__ import annotations

import math

from tilegrad.base.absent import refuse_others
from tilegrad.base.errors import ShapeError, UnsupportedDTypeError, check_choice
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Factor that keeps the variance behind a nonlinearity: 1 for linear maps and sigmoid, 5/3 for
    tanh, sqrt(2) for relu, sqrt(2 / (1 + param^2)) for leaky_relu, 3/4 for selu (the table of
    `torch.nn.init`).

    Args:
        nonlinearity: its name.
        param: the negative slope of leaky_relu, 0.01 by default.

    Returns a float.

    Raises ConfigError for another name.

    >>> nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    linear = ["linear", "sigmoid"]
    linear += [f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)]
    gains = {**dict.fromkeys(linear, 1.0), "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    check_choice("calculate_gain", "nonlinearity", nonlinearity, (*gains, "leaky_relu"))
    return gains[nonlinearity]


def _write(tensor: Tensor, value: Tensor) -> Tensor:
    return tensor.assign(value.cast(tensor.dtype).to(tensor.device)).realize()


def _check_floats(name: str, tensor: Tensor) -> None:
    """Refuse to round random numbers to integers."""
    if not tensor.dtype.is_float:
        raise UnsupportedDTypeError(f"{name}: a float dtype is needed, not {tensor.dtype.name}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Write uniform random numbers, a <= x < b.

    Args:
        tensor: a tensor of any shape.
        a: least value.
        b: end, not included.

    Returns `tensor`.

    Raises UnsupportedDTypeError unless it is of floats.

    >>> nn.init.uniform_(Tensor.empty(2, 3), -0.1, 0.1).shape
    (2, 3)
    """
    _check_floats("uniform_", tensor)
    return _write(tensor, Tensor.uniform(*tensor.shape, low=a, high=b, device=tensor.device))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Write normal random numbers.

    Args:
        tensor: a tensor of any shape.
        mean: the mean.
        std: the standard deviation.

    Returns `tensor`.

    Raises UnsupportedDTypeError unless it is of floats.

    >>> nn.init.normal_(Tensor.empty(2, 3), mean=1.0, std=0.1).shape
    (2, 3)
    """
    _check_floats("normal_", tensor)
    return _write(tensor, Tensor.normal(*tensor.shape, mean=mean, std=std, device=tensor.device))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Write normal random numbers within [a, b].

    They are drawn by inversion: mean + std * sqrt(2) * erfinv(u), u uniform between erf of the
    limits.

    Args:
        tensor: a tensor of any shape.
        mean: mean before the limits.
        std: standard deviation before the limits.
        a: lower limit.
        b: upper limit.

    Returns `tensor`.

    Raises UnsupportedDTypeError unless it is of floats.

    >>> nn.init.trunc_normal_(Tensor.empty(2, 3), a=-1.0, b=1.0).shape
    (2, 3)
    """
    _check_floats("trunc_normal_", tensor)
    low, high = (math.erf((limit - mean) / (std * math.sqrt(2))) for limit in (a, b))
    u = Tensor.uniform(*tensor.shape, low=low, high=high, device=tensor.device)
    left, right = u * 0 + (a - mean) / std, u * 0 + (b - mean) / std
    u.realize()
    # One kernel, which runs once for each bit.
    for _ in range(24):
        middle = (left + right) * 0.5
        is_below = (middle * (1 / math.sqrt(2))).erf() < u
        left, right = is_below.where(middle, left), is_below.where(right, middle)
        Tensor.realize(left, right)
    return _write(tensor, (left + right) * (0.5 * std) + mean)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Write `val` into every element.

    Args:
        tensor: a tensor of any shape.
        val: the number.

    Returns `tensor`.

    >>> nn.init.constant_(Tensor.empty(2), 0.5).tolist()
    [0.5, 0.5]
    """
    return _write(tensor, Tensor.full(tensor.shape, val, device=tensor.device))


def zeros_(tensor: Tensor) -> Tensor:
    """Write 0 into every element.

    Args:
        tensor: a tensor of any shape and dtype.

    Returns `tensor`.

    >>> nn.init.zeros_(Tensor.empty(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Write 1 into every element.

    Args:
        tensor: a tensor of any shape and dtype.

    Returns `tensor`.

    >>> nn.init.ones_(Tensor.empty(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """Write the identity matrix: 1 on the diagonal, else 0.

    Args:
        tensor: (n, m).

    Returns `tensor`.

    Raises ShapeError for another number of axes.

    >>> nn.init.eye_(Tensor.empty(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: {show_shape(tensor.shape)} is no matrix")
    rows, columns = tensor._sizes
    return _write(tensor, Tensor.eye(rows, columns, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Write the weight of a convolution that gives its input: 1 in the middle of kernel i of input
    i.

    Args:
        tensor: (out_channels, in_channels, *kernel).
        groups: number of groups of channels.

    Returns `tensor`.

    Raises ShapeError for other than 3 to 5 axes, or groups that do not divide the channels.

    >>> nn.init.dirac_(Tensor.empty(1, 1, 3)).tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    if tensor.ndim not in (3, 4, 5) or tensor._sizes[0] % groups:
        raise ShapeError(
            f"dirac_: {show_shape(tensor.shape)} is no weight of a convolution in {groups} groups"
        )
    outputs, inputs, *kernel = tensor._sizes
    channels = Tensor.arange(outputs, device=tensor.device) % (outputs // groups)
    hit = channels.unsqueeze(1).eq(Tensor.arange(inputs, device=tensor.device))
    found = hit.reshape(outputs, inputs, *[1] * len(kernel))
    for axis, size in enumerate(kernel, start=2):
        middle = Tensor.arange(size, device=tensor.device).eq(size // 2)
        found = found & middle.reshape([size if at == axis else 1 for at in range(tensor.ndim)])
    return _write(tensor, found)


def _fans(name: str, tensor: Tensor) -> tuple[int, int]:
    check_tensors(name, tensor)
    if tensor.ndim < 2:
        raise ShapeError(f"{name}: {show_shape(tensor.shape)} has no inputs")
    outputs, inputs, *kernel = tensor._sizes
    return inputs * math.prod(kernel), outputs * math.prod(kernel)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Write uniform random numbers within gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio
    2010).

    Args:
        tensor: (outputs, inputs, *kernel).
        gain: factor of the limit.

    Returns `tensor`.

    Raises ShapeError for less than two axes, UnsupportedDTypeError unless it is of floats.

    >>> nn.init.xavier_uniform_(Tensor.empty(2, 3), gain=2.0).shape
    (2, 3)
    """
    bound = gain * math.sqrt(6 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Write normal random numbers of deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and
    Bengio 2010).

    Args:
        tensor: (outputs, inputs, *kernel).
        gain: factor of the deviation.

    Returns `tensor`.

    Raises ShapeError for less than two axes, UnsupportedDTypeError unless it is of floats.

    >>> nn.init.xavier_normal_(Tensor.empty(2, 3)).shape
    (2, 3)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans("xavier_normal_", tensor))))


def _kaiming(name: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    check_choice(name, "mode", mode, ("fan_in", "fan_out"))
    fan = _fans(name, tensor)[mode == "fan_out"]
    gain = calculate_gain(nonlinearity, a)
    return gain / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Write uniform random numbers within gain * sqrt(3 / fan) (He et al. 2015, arXiv:1502.01852).

    Args:
        tensor: (outputs, inputs, *kernel).
        a: negative slope for leaky_relu.
        mode: "fan_in" or "fan_out".
        nonlinearity: name for `calculate_gain`.

    Returns `tensor`.

    Raises ShapeError for less than two axes, ConfigError for another mode or nonlinearity,
    UnsupportedDTypeError unless it is of floats.

    >>> nn.init.kaiming_uniform_(Tensor.empty(2, 3)).shape
    (2, 3)
    """
    bound = math.sqrt(3) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Write normal random numbers of deviation gain / sqrt(fan) (He et al. 2015, arXiv:1502.01852).

    Args:
        tensor: (outputs, inputs, *kernel).
        a: negative slope for leaky_relu.
        mode: "fan_in" or "fan_out".
        nonlinearity: name for `calculate_gain`.

    Returns `tensor`.

    Raises ShapeError for less than two axes, ConfigError for another mode or nonlinearity,
    UnsupportedDTypeError unless it is of floats.

    >>> nn.init.kaiming_normal_(Tensor.empty(2, 3)).shape
    (2, 3)
    """
    return normal_(tensor, 0.0, _kaiming("kaiming_normal_", tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Write a random orthogonal matrix: rows, or columns if they are fewer, at right angles and of
    length `gain` (Saxe et al. 2014, arXiv:1312.6120): the Q of a normal matrix, computed on the
    host.

    Args:
        tensor: (rows, ...), a float tensor; further axes are flattened to columns.
        gain: the length.

    Returns `tensor`.

    Raises ShapeError for less than two axes, UnsupportedDTypeError unless it is of floats.

    >>> w = nn.init.orthogonal_(Tensor.empty(2, 2))
    >>> (w @ w.T).abs().numpy().round(4).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    import numpy as np

    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: {show_shape(tensor.shape)} is no matrix")
    _check_floats("orthogonal_", tensor)
    rows = tensor._sizes[0]
    columns = math.prod(tensor._sizes[1:])
    drawn = Tensor.randn(max(rows, columns), min(rows, columns)).numpy().astype(np.float64)
    q, r = np.linalg.qr(drawn)
    q = q * np.sign(np.diag(r))
    made = (q.T if rows < columns else q).astype(np.float32).reshape(tensor._sizes)
    return _write(tensor, Tensor(np.ascontiguousarray(made * np.float32(gain))))


refuse_others(__name__)  # Last, so that the imports above do not ask it.
