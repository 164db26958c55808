"""Entries of a state dict beside tensors, given by a module's method `get_extra_state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["NAME", "with_extra_states"]

# The entry's name, behind that of its module.
NAME = "_extra_state"


def with_extra_states(
    made: Mapping[str, Any], modules: Sequence[tuple[str, Any]], extra: Iterable[tuple[str, Any]]
) -> Iterable[tuple[str, Any]]:
    """The items of `made`, and those of `extra`: each behind the tensors that its module holds
    itself, before those of the modules below it.
    """
    order = {name: number for number, (name, _) in enumerate(modules)}
    listed = {name: float(number) for number, name in enumerate(made)}
    own: dict[int, list[float]] = {}
    for name, number in listed.items():
        own.setdefault(order.get(name.rpartition(".")[0], -1), []).append(number)
    # A state at half a number stands between two modules.
    for name, module in extra:
        at = order[name.removesuffix(NAME).removesuffix(".")]
        if at in own:
            listed[name] = max(own[at]) + 0.5
        else:
            later = [min(own[number]) for number in sorted(own) if number > at]
            listed[name] = (later[0] if later else len(made)) - 0.5
        made = {**made, name: module.get_extra_state()}
    return [(name, made[name]) for name in sorted(listed, key=lambda name: listed[name])]
