"""One step of recurrent networks: the formulas of their gates, and cells as modules.

Arguments, formulas and names of tensors are PyTorch's. The weights of several gates stand below one
another in one matrix. First values are uniform in (-b, b), b = 1 / sqrt(hidden_size).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Unpack

from tilegrad.base.errors import check_choice
from tilegrad.nn.layer_checks import FactoryOptions, check_size, positive
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "GATES", "STEPS", "GRUCell", "LSTMCell", "RNNCell", "check_nonlinearity", "first_weight",
]  # fmt: skip


def first_weight(hidden_size: int, *shape: int) -> Tensor:
    bound = 1 / math.sqrt(hidden_size)
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


def _rnn(gates: Tensor, hidden: Tensor, state: tuple[Tensor, ...], act: str) -> tuple[Tensor, ...]:
    """h' = act(x W_ih' + b_ih + h W_hh' + b_hh)."""
    total = gates + hidden
    return (total.tanh() if act == "tanh" else total.relu(),)


def _lstm(gates: Tensor, hidden: Tensor, state: tuple[Tensor, ...], act: str) -> tuple[Tensor, ...]:
    """i, f, g, o of the sum of both parts; c' = s(f) c + s(i) tanh(g); h' = s(o) tanh(c')."""
    i, f, g, o = (gates + hidden).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru(gates: Tensor, hidden: Tensor, state: tuple[Tensor, ...], act: str) -> tuple[Tensor, ...]:
    """r, z, n of both parts: n' = tanh(n_x + s(r) n_h); h' = (1 - s(z)) n' + s(z) h."""
    rx, zx, nx = gates.chunk(3, -1)
    rh, zh, nh = hidden.chunk(3, -1)
    update = (zx + zh).sigmoid()
    new = (nx + (rx + rh).sigmoid() * nh).tanh()
    return ((1 - update) * new + update * state[0],)


STEPS = {"RNN": _rnn, "LSTM": _lstm, "GRU": _gru}
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


class _Cell(Module):
    kind: ClassVar[str] = "RNN"
    nonlinearity = "tanh"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        positive(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = GATES[self.kind] * hidden_size
        self.weight_ih = first_weight(hidden_size, rows, input_size)
        self.weight_hh = first_weight(hidden_size, rows, hidden_size)
        self.bias_ih = first_weight(hidden_size, rows) if bias else None
        self.bias_hh = first_weight(hidden_size, rows) if bias else None
        self.to(**options)

    def _first_states(self, x: Tensor, state: tuple[Tensor, ...] | None) -> Sequence[Tensor]:
        """The state that is given, or zeros."""
        if state is not None:
            return state
        zeros = Tensor.zeros(*x.shape[:-1], self.hidden_size, device=x.device, dtype=x.dtype)
        return zeros, zeros

    def _next(self, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        name = type(self).__name__
        check_size(name, "features", x, -1, self.input_size)
        state = tuple(self._first_states(x, state))
        check_size(name, "features of the state", state[0], -1, self.hidden_size)
        gates = x.linear(self.weight_ih.T, self.bias_ih)
        hidden = state[0].linear(self.weight_hh.T, self.bias_hh)
        return STEPS[self.kind](gates, hidden, state, self.nonlinearity)


class RNNCell(_Cell):
    """Step of a recurrent network: h' = act(x W_ih' + b_ih + h W_hh' + b_hh) (Elman 1990).

    Args:
        input_size: size of x.
        hidden_size: size of h.
        bias: whether there are biases.
        nonlinearity: "tanh" or "relu".
        options: `device` and `dtype` of the weights.

    Shape: x (N, input_size) and h (N, hidden_size), zeros if not given, to (N, hidden_size).

    Raises ShapeError for an input or state of another shape, ConfigError for another nonlinearity.

    >>> nn.RNNCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        **options: Unpack[FactoryOptions],
    ):
        check_nonlinearity("RNNCell", nonlinearity)
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, **options)

    def __call__(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._next(x, None if hx is None else (hx,))[0]


class GRUCell(_Cell):
    """Step of a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078): r = s(x W_ir' + b_ir + h
    W_hr' + b_hr), z likewise; n = tanh(x W_in' + b_in + r (h W_hn' + b_hn)); h' = (1 - z) n + z h.

    Args:
        input_size: size of x.
        hidden_size: size of h.
        bias: whether there are biases.
        options: `device` and `dtype` of the weights.

    Shape: x (N, input_size) and h (N, hidden_size), zeros if not given, to (N, hidden_size).

    Raises ShapeError for an input or state of another shape.

    >>> nn.GRUCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    kind = "GRU"

    def __call__(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._next(x, None if hx is None else (hx,))[0]


class LSTMCell(_Cell):
    """Step of a long short-term memory (Hochreiter and Schmidhuber 1997, with the gates of Gers et
    al.): i, f, o = s(x W' + b + h W' + b), g = tanh(...); c' = f c + i g; h' = o tanh(c').

    Args:
        input_size: size of x.
        hidden_size: size of h and c.
        bias: whether there are biases.
        options: `device` and `dtype` of the weights.

    Shape: x (N, input_size) and the state (h, c), each (N, hidden_size), zeros if not given, to
    (h', c').

    Raises ShapeError for an input or state of another shape.

    >>> h, c = nn.LSTMCell(3, 4)(Tensor.ones(2, 3)); h.shape, c.shape
    ((2, 4), (2, 4))
    """

    kind = "LSTM"

    def __call__(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._next(x, hx)
        return h, c


def check_nonlinearity(name: str, given: str) -> None:
    check_choice(name, "nonlinearity", given, ("tanh", "relu"))
