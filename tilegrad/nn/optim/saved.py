"""The state of an optimizer as PyTorch writes it down: read with care, since a file may hold
anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.base.errors import DataError, ShapeError
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["Saved"]


class Saved:
    """A state dict {"state": {number: {name: tensor}}, "param_groups": [{option: value}]} for an
    optimizer with groups of the given sizes.

    Raises DataError unless it has that form and those sizes.
    """

    def __init__(self, optimizer: str, state_dict: Mapping[str, Any], sizes: Sequence[int]):
        self._optimizer = optimizer
        groups = state_dict.get("param_groups") if isinstance(state_dict, Mapping) else None
        state = state_dict.get("state", {}) if isinstance(state_dict, Mapping) else None
        if not isinstance(groups, (list, tuple)) or not isinstance(state, Mapping):
            raise DataError(
                f"{optimizer}.load_state_dict: no state of an optimizer",
                rule='{"state": {...}, "param_groups": [...]}, as state_dict() gives',
                remedy="nn.state.load_state_dict(optimizer, ...) loads flat names",
            )
        found = [len(group.get("params", ())) for group in groups]
        if found != list(sizes):
            raise DataError(
                f"{optimizer}.load_state_dict: groups of {found} parameters, "
                f"the optimizer has {list(sizes)}"
            )
        self._groups = groups
        self._state = state
        # Parameters are numbered in the order of the groups; the file's own numbers may be others.
        self._numbers = [number for group in groups for number in group["params"]]

    def options(self, group: int, known: set[str]) -> dict[str, Any]:
        """The options of a group that the optimizer knows."""
        given = self._groups[group]
        wanted = (known | {"initial_lr"}) - {"params"}
        # A list of a file is a tuple here.
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if name in wanted
        }

    def step(self, index: int) -> int:
        """How many steps parameter number `index` has had; at least 1 where it has state that does
        not count them.
        """
        state = self._state.get(self._numbers[index])
        if not state or state.get("step") is None:
            return int(bool(state))
        count = state["step"]
        return int(count.item() if hasattr(count, "item") else count)

    def state(self, index: int, name: str) -> Any:
        """State of parameter number `index`; None where there is none."""
        return self._state.get(self._numbers[index], {}).get(name)

    def fitted(self, current: Tensor, value: Any) -> Tensor:
        """`value` as a tensor that can be written to `current`."""
        if isinstance(value, (int, float)):
            return Tensor.full_like(current, value)
        tensor = value if isinstance(value, Tensor) else Tensor(value)
        if tensor.shape != current.shape:
            raise ShapeError(
                f"{self._optimizer}.load_state_dict: state of shape {show_shape(tensor.shape)} "
                f"for {show_shape(current.shape)}"
            )
        return tensor.detach().cast(current.dtype).to(current.device).clone()
