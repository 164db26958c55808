"""Recurrent layers, with PyTorch's arguments, formulas and names of tensors.

The step is that of the cells (cells.py). The input's share of all steps is one product; the steps
themselves are a loop of the graph (`scan`), compiled once, and cost three kernels each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, overload

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.cells import GATES, STEPS, check_nonlinearity, first_weight
from tilegrad.nn.layer_checks import FactoryOptions, check_size, positive
from tilegrad.nn.module import Module
from tilegrad.nn.utils.rnn import PackedSequence
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.loops import scan
from tilegrad.tensor.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN"]

# Steps up to this many are unrolled, more are a loop.
_MOST_UNROLLED = 1


class RNN(Module):
    """Layers of RNNCell over a sequence. A `PackedSequence` gives one, and the states with which
    each sequence ended.

    Shape: (T, N, input_size) or (T, input_size) and the first states (D * num_layers, N,
    hidden_size), zeros if not given, to the states of the last layer (T, N, D * hidden_size) and
    the last states (D * num_layers, N, hidden_size); D is 2 if `bidirectional`, else 1.

    Args:
        input_size: size of an element of the sequence.
        hidden_size: size of a state.
        num_layers: number of layers.
        nonlinearity: "tanh" or "relu".
        bias: whether there are biases.
        batch_first: axes are (N, T, size), not (T, N, size).
        dropout: share of the elements between two layers that is zero in training.
        bidirectional: a second network goes backward.
        options: `device` and `dtype` of the weights.

    Raises ShapeError for an input or state of another shape, ConfigError for another nonlinearity.

    >>> y, h = nn.RNN(3, 4, num_layers=2)(Tensor.ones(5, 2, 3)); y.shape, h.shape
    ((5, 2, 4), (2, 2, 4))
    """

    kind: ClassVar[str] = "RNN"
    proj_size = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Unpack[FactoryOptions],
    ):
        name = type(self).__name__
        positive(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_nonlinearity(name, nonlinearity)
        if not 0 <= dropout <= 1:
            raise ConfigError(f"{name}: dropout must be between 0 and 1, not {dropout}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.nonlinearity, self.batch_first = nonlinearity, batch_first
        self.dropout, self.bidirectional = dropout, bidirectional
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else directions * self._output_size
            for suffix in self._suffixes(layer):
                self._make_weights(suffix, inputs, bias)
        self.to(**options)

    @property
    def _output_size(self) -> int:
        """The size of the state that a step gives to the next one; the cell of a projected LSTM
        differs from it.
        """
        return self.proj_size or self.hidden_size

    def _make_weights(self, suffix: str, inputs: int, bias: bool) -> None:
        rows = GATES[self.kind] * self.hidden_size
        shapes: dict[str, tuple[int, ...]]
        shapes = {"weight_ih": (rows, inputs), "weight_hh": (rows, self._output_size)}
        if bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            setattr(self, f"{name}{suffix}", first_weight(self.hidden_size, *shape))

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: 2 if self.bidirectional else 1]

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

        @overload
        def __call__(
            self, x: PackedSequence, hx: Tensor | None = None
        ) -> tuple[PackedSequence, Tensor]: ...

    def __call__(self, x: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(x, PackedSequence):
            return self._packed(x, hx)
        name = type(self).__name__
        if x.ndim not in (2, 3):
            raise ShapeError(
                f"{name}: the input has {x.ndim} axes, 2 or 3 are needed", input=describe(x.uop)
            )
        check_size(name, "features", x, -1, self.input_size)
        is_single = x.ndim == 2
        if is_single:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        x, ends = self._layers(x, self._first_states(x, hx, is_single), None)
        if is_single:
            x, ends = x.squeeze(1), [end.squeeze(1) for end in ends]
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, ends[0] if len(ends) == 1 else tuple(ends)

    def flatten_parameters(self) -> None:
        """Nothing: weights have no memory of one library's kernels to be brought into."""

    def _packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Over padded sequences; a state stays where its sequence has ended."""
        check_size(type(self).__name__, "features", packed.data, -1, self.input_size)
        x, is_there = packed.steps()
        made, ends = self._layers(x, self._first_states(x, hx, False), is_there)
        return packed.with_steps(made), ends[0] if len(ends) == 1 else tuple(ends)

    def _layers(
        self, x: Tensor, first: list[Tensor] | None, is_there: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The states of the last layer, (T, N, D * hidden), and the last states of all; `is_there`
        (T, N, 1) tells which steps sequences have.
        """
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                with Tensor.train():
                    x = x.dropout(self.dropout)
            ways = []
            for back, suffix in enumerate(self._suffixes(layer)):
                given = None if first is None else tuple(each[len(last)] for each in first)
                outputs, state = self._run(x, suffix, given, bool(back), is_there)
                ways.append(outputs)
                last.append(state)
            x = ways[0] if len(ways) == 1 else ways[0].cat(ways[1], dim=-1)
        return x, [Tensor.stack(*layers) for layers in zip(*last, strict=True)]

    def _state_shapes(self, x: Tensor) -> list[tuple[int, ...]]:
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self._output_size, self.hidden_size][: 2 if self.kind == "LSTM" else 1]
        return [(count, x.shape[1], size) for size in sizes]

    def _zero_states(self, x: Tensor) -> list[Tensor]:
        return [
            Tensor.zeros(*shape, device=x.device, dtype=x.dtype) for shape in self._state_shapes(x)
        ]

    def _first_states(self, x: Tensor, hx: Any, is_single: bool) -> list[Tensor] | None:
        """The states that are given; None for zeros, which are part of the steps."""
        if hx is None:
            return None
        shapes = self._state_shapes(x)
        given = [hx] if isinstance(hx, Tensor) else list(hx)
        given = [each.unsqueeze(1) if is_single else each for each in given]
        if [tuple(each.shape) for each in given] != shapes:
            raise ShapeError(
                f"{type(self).__name__}: the state does not fit",
                given=", ".join(show_shape(each.shape) for each in given),
                rule=", ".join(show_shape(shape) for shape in shapes),
            )
        return given

    def _run(
        self,
        x: Tensor,
        suffix: str,
        state: tuple[Tensor, ...] | None,
        is_back: bool,
        is_there: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All steps of one layer in one direction: the states (T, N, hidden), and the last."""
        weight_ih, weight_hh = (getattr(self, f"weight_{of}{suffix}") for of in ("ih", "hh"))
        bias_ih, bias_hh = (getattr(self, f"bias_{of}{suffix}", None) for of in ("ih", "hh"))
        projection = getattr(self, f"weight_hr{suffix}") if self.proj_size else None
        gates = x.linear(weight_ih.T, bias_ih)
        if state is None and x.dtype is not weight_hh.dtype:
            state = tuple([each[0] for each in self._zero_states(x)])
        if not gates._has_elements():
            state = state or tuple([each[0] for each in self._zero_states(x)])
            # One step of all times at once has the shape, and hangs on the weights.
            step = _step_of(self.kind, self.nonlinearity, weight_hh, bias_hh, projection)
            return step(gates, state)[0], state
        outputs, *last = _all_steps(
            gates, is_there, state, weight_hh, bias_hh, projection,
            self.kind, self.nonlinearity, is_back,
        )  # fmt: skip
        return outputs, tuple(last)


def _step_of(
    kind: str, nonlinearity: str, weight: Tensor, bias: Tensor | None, projection: Tensor | None
) -> Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """One step: what the gates of its input and a state give, the next state."""

    def step(gate: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = state[0].linear(weight.T, bias)
        made = STEPS[kind](gate, hidden, state, nonlinearity)
        return made if projection is None else (made[0].linear(projection.T), *made[1:])

    return step


@templated
def _all_steps(
    gates: Tensor,
    is_there: Tensor | None,
    state: tuple[Tensor, ...] | None,
    weight: Tensor,
    bias: Tensor | None,
    projection: Tensor | None,
    kind: str,
    nonlinearity: str,
    is_back: bool,
) -> tuple[Tensor, ...]:
    """All steps over the gates of the inputs, (T, N, gates): the states (T, N, hidden), followed by
    the last one. Without a first state it is zeros: as operands these would be constants, with
    which a call has no template for all lengths.
    """
    if state is None:
        count = gates._sizes[1]
        sizes = [weight._sizes[1], gates._sizes[2] // GATES[kind]][: 2 if kind == "LSTM" else 1]
        state = tuple(
            [Tensor.zeros(count, n, device=gates.device, dtype=gates.dtype) for n in sizes]
        )
    step = _step_of(kind, nonlinearity, weight, bias, projection)

    def one(state: tuple[Tensor, ...], row: Any) -> tuple[tuple[Tensor, ...], Tensor]:
        gate, is_open = (row, None) if is_there is None else row
        made = step(gate, state)
        if is_open is not None:
            made = tuple(is_open.where(new, old) for new, old in zip(made, state))
        return made, made[0]

    length = gates._sizes[0]
    if length > _MOST_UNROLLED:
        rows = gates if is_there is None else (gates, is_there)
        state, stacked = scan(one, state, rows, reverse=is_back)
        return stacked, *state
    outputs = []
    for t in reversed(range(length)) if is_back else range(length):
        row = gates[t] if is_there is None else (gates[t], is_there[t])
        state, output = one(state, row)
        outputs.append(output)
    return Tensor.stack(*(reversed(outputs) if is_back else outputs)), *state


class _Gated(RNN):
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Unpack[FactoryOptions],
    ):
        ways = (batch_first, dropout, bidirectional)
        super().__init__(input_size, hidden_size, num_layers, "tanh", bias, *ways, **options)


class GRU(_Gated):
    """Layers of GRUCell over a sequence; arguments as `RNN`, without `nonlinearity`.

    Shape: as `RNN`.

    Raises ShapeError for an input or state of another shape.

    >>> y, h = nn.GRU(3, 4, bidirectional=True)(Tensor.ones(5, 2, 3)); y.shape, h.shape
    ((5, 2, 8), (2, 2, 4))
    """

    kind = "GRU"


class LSTM(_Gated):
    """Layers of LSTMCell over a sequence.

    Args:
        input_size: size of an element of the sequence.
        hidden_size: size of a cell's state c.
        num_layers: number of layers.
        bias: whether there are biases.
        batch_first: axes are (N, T, size), not (T, N, size).
        dropout: share of the elements between two layers that is zero in training.
        bidirectional: a second network goes backward.
        proj_size: size P to which h is projected, h = W_hr o tanh(c') (Sak et al. 2014,
            arXiv:1402.1128), or 0 for none: then P is `hidden_size`.
        options: `device` and `dtype` of the weights.

    Shape: as `RNN`, with P in the place of hidden_size, but a state is a pair (h, c) with c of
        shape (D * num_layers, N, hidden_size).

    Raises ShapeError for an input or state of another shape, ConfigError for a `proj_size` that is
    not below `hidden_size`.

    >>> y, (h, c) = nn.LSTM(3, 4, proj_size=2)(Tensor.ones(5, 2, 3)); y.shape, c.shape
    ((5, 2, 2), (1, 2, 4))
    """

    kind = "LSTM"

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # its state is a pair
        def __call__(
            self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

        @overload
        def __call__(
            self, x: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

        def __call__(self, x: Any, hx: Any = None) -> tuple[Any, Any]: ...

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        **options: Unpack[FactoryOptions],
    ):
        positive("LSTM", hidden_size=hidden_size)
        if not 0 <= proj_size < hidden_size:
            raise ConfigError(
                f"LSTM: proj_size {proj_size} is not between 0 and hidden_size {hidden_size}"
            )
        self.proj_size = proj_size
        ways = (batch_first, dropout, bidirectional)
        super().__init__(input_size, hidden_size, num_layers, bias, *ways, **options)
