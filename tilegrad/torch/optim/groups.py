"""`optimizer.param_groups` as PyTorch shows them: rates are numbers.

tilegrad keeps a rate in memory as float32, so that no step is compiled anew for it. A view reads
the shortest number that is that rate, and writes to the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy

from tilegrad.nn.optim import ParamGroup
from tilegrad.tensor.tensor import Tensor as OurTensor

__all__ = ["GroupView", "as_number", "without_effect"]

_FOREACH: dict[str, Any] = {"foreach": None}
_PLAIN = {**_FOREACH, "maximize": False, "differentiable": False}
_FUSED = {**_PLAIN, "fused": None}
_CAPTURABLE = {**_PLAIN, "capturable": False}
# Options of PyTorch's that choose how it computes, by optimizer: groups show them, and they have no
# effect here.
_WITHOUT_EFFECT: dict[str, dict[str, Any]] = {
    "SGD": _FUSED,
    "Adam": {**_FUSED, "capturable": False, "decoupled_weight_decay": False},
    "AdamW": {**_FUSED, "capturable": False, "decoupled_weight_decay": True},
    "Adagrad": _FUSED,
    "Adadelta": _CAPTURABLE,
    "Adamax": _CAPTURABLE,
    "NAdam": {**_CAPTURABLE, "decoupled_weight_decay": False},
    "RAdam": {**_CAPTURABLE, "decoupled_weight_decay": False},
    "RMSprop": _CAPTURABLE,
    "Rprop": _CAPTURABLE,
    "ASGD": _CAPTURABLE,
    "Adafactor": {**_FOREACH, "maximize": False},
}


def without_effect(optimizer: Any, group: Any) -> dict[str, Any]:
    """The options that `group` of an optimizer shows beside its own."""
    for kind in type(optimizer).__mro__:
        if kind.__module__ == "tilegrad.torch.optim":
            found = _WITHOUT_EFFECT.get(kind.__name__, {})
            return {name: value for name, value in found.items() if name not in group}
    return {}


def as_number(value: Any) -> Any:
    """A tensor of one element as a number: the shortest that is its float32."""
    if isinstance(value, tuple):
        return tuple(as_number(each) for each in value)
    if not isinstance(value, OurTensor):
        return value
    found = value.item()
    return float(str(numpy.float32(found))) if value.dtype.itemsize == 4 else float(found)


class GroupView(MutableMapping[str, Any]):
    """One group of parameters with its options."""

    def __init__(self, group: ParamGroup, extra: dict[str, Any]):
        self._group, self._extra = group, extra

    def __getitem__(self, key: str) -> Any:
        if key in self._extra:
            return self._extra[key]
        return as_number(self._group[key]) if key != "params" else self._group[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._group:
            self._extra[key] = value
        else:
            self._group[key] = float(value) if key == "lr" else value

    def __delitem__(self, key: str) -> None:
        del self._extra[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._group
        yield from self._extra

    def __len__(self) -> int:
        return len(self._group) + len(self._extra)

    def __repr__(self) -> str:
        return repr({key: value for key, value in self.items() if key != "params"})
