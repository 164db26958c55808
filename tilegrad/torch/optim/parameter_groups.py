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

__all__ = ["GroupView", "as_number", "options_of", "without_effect"]

# Options of PyTorch's that choose how it computes: groups show them, and they have no effect here.
_WITHOUT_EFFECT: dict[str, Any] = {
    "foreach": None,
    "maximize": False,
    "differentiable": False,
    "fused": None,
    "capturable": False,
}
_ADAM = (
    "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused "
    "decoupled_weight_decay"
)
# The options of each optimizer, in PyTorch's order.
_OPTIONS = {
    name: tuple(options.split())
    for name, options in {
        "SGD": "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused",
        "Adam": _ADAM,
        "AdamW": _ADAM,
        "NAdam": (
            "lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize foreach "
            "capturable differentiable"
        ),
        "RAdam": (
            "lr betas eps weight_decay maximize foreach capturable decoupled_weight_decay "
            "differentiable"
        ),
        "Adamax": "lr betas eps weight_decay foreach maximize differentiable capturable",
        "RMSprop": (
            "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable"
        ),
        "Adagrad": (
            "lr lr_decay eps weight_decay initial_accumulator_value foreach maximize "
            "differentiable fused"
        ),
        "Adadelta": "lr rho eps weight_decay maximize capturable foreach differentiable",
        "ASGD": "lr lambd alpha t0 weight_decay foreach maximize differentiable capturable",
        "Rprop": "lr etas step_sizes foreach maximize differentiable capturable",
        "LBFGS": "lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn",
        "Adafactor": "lr beta2_decay eps d weight_decay foreach maximize",
        "SparseAdam": "lr betas eps maximize",
        "Muon": "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn",
    }.items()
}


def options_of(optimizer: Any) -> tuple[str, ...] | None:
    """The options of a group of `optimizer` in PyTorch's order; None for a program's own class."""
    for kind in type(optimizer).__mro__:
        if kind.__module__ == "tilegrad.torch.optim":
            return _OPTIONS.get(kind.__name__)
    return None


def without_effect(optimizer: Any, group: Any) -> dict[str, Any]:
    """The options that `group` of an optimizer shows beside its own."""
    shown = {name for name in options_of(optimizer) or () if name in _WITHOUT_EFFECT}
    options = {**_WITHOUT_EFFECT, **optimizer._common}
    return {name: options[name] for name in shown if name not in group}


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

    def __init__(
        self, group: ParamGroup, extra: dict[str, Any], order: tuple[str, ...] | None = None
    ):
        self._group, self._extra, self._order = group, extra, order

    def __getitem__(self, key: str) -> Any:
        if key in self._extra:
            return self._extra[key]
        return as_number(self._group[key]) if key != "params" else self._group[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._group or (key == "lr" and value is None):
            self._extra[key] = value
        else:
            self._extra.pop(key, None)
            self._group[key] = float(value) if key == "lr" else value

    def __delitem__(self, key: str) -> None:
        del self._extra[key]

    def __iter__(self) -> Iterator[str]:
        yield "params"
        present, order = {**self._group, **self._extra}, self._order or ()
        yield from (name for name in order if name in present)
        # Ours have these, whatever PyTorch's or a program's own has.
        hidden = {"params", *order, *([] if self._order is None else ["lr", "maximize"])}
        yield from (name for name in present if name not in hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr({key: value for key, value in self.items() if key != "params"})
