"""Recurrent layers under `autocast`: dtypes of their states and results, as PyTorch has them on
processors.

The products of such a layer are computed in the dtype of `autocast`. A state that only such a
product makes, h of an RNN or of a projection, has that dtype; a state that gates weigh keeps the
dtype in which it begins, and in an LSTM over padded sequences only the results are rounded.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype_promotion import promote
from tilegrad.torch.tensor import Tensor, with_ours
from tilegrad.torch.thread_modes import autocast_dtype

__all__ = ["results_in_autocast", "states_in_autocast"]


def states_in_autocast(self: Any, states: Any) -> list[Any]:
    """The first states of a layer or cell, in the dtypes that they have under `autocast`."""
    wanted = autocast_dtype()
    if wanted is None:
        return list(states)
    is_product = self.kind == "RNN" or getattr(self, "proj_size", 0)
    return [
        each.cast(wanted if is_product and not at else promote(wanted, each.dtype))
        for at, each in enumerate(with_ours(tuple(states)))
    ]


def layers_in_autocast(method: Any) -> Any:
    """`_layers` of a recurrent layer, whose input and states are tensors of this package."""

    def _layers(self: Any, x: Any, first: Any, is_there: Any) -> Any:
        if first is None:
            if autocast_dtype() is None:
                return method(self, with_ours(x), None, is_there)
            first = self._zero_states(x)
        return method(self, with_ours(x), states_in_autocast(self, first), is_there)

    return _layers


def cells_in_autocast(method: Any) -> Any:
    """`_first_states` of a cell."""

    def _first_states(self: Any, x: Any, state: Any) -> Any:
        return states_in_autocast(self, method(self, x, state))

    return _first_states


def results_in_autocast(call: Any) -> Any:
    """A call of an LSTM, whose results over padded sequences are rounded to the dtype."""

    def __call__(self: Any, input: Any, hx: Any = None) -> Any:
        made = call(self, input, hx)
        wanted = autocast_dtype()
        if wanted is None or self.proj_size or not isinstance(input, Tensor):
            return made
        outputs, (h, c) = made
        return outputs.cast(wanted), (h.cast(wanted), c.cast(wanted))

    return __call__
