"""Counters of an optimizer, shared by parameters as long as these have had equal steps.

A parameter counts the steps that it takes part in, as in PyTorch. Nearly always those of a group
are the same ones, and a count of each would be as many tensors to move: so parameters of equal
histories share their counts, and one that rests, begins anew or comes later gets its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.tensor.tensor import Tensor

__all__ = ["begin", "counts_after", "regroup", "restart", "separate"]


def begin(optimizer: Any, at: int, step: int = 0) -> int:
    """Add counters of group number `at`, as they are after `step` steps; their position."""
    group = optimizer._param_groups[at]
    optimizer._counts.append({
        name: Tensor.full_like(group["lr"], value, requires_grad=False)
        for name, value in optimizer._counts_at(group, step).items()
    })  # fmt: skip
    optimizer._group_of_counts.append(at)
    # A count that is a constant so far becomes memory with the next step.
    optimizer._is_settled = False
    return len(optimizer._counts) - 1


def separate(optimizer: Any, trained: Sequence[int]) -> None:
    """Let the parameters that are not among the `trained` ones count by themselves from now on:
    what they count with stays as it is.
    """
    for number, counts in enumerate(optimizer._counts[:]):
        members = [index for index, own in enumerate(optimizer._counts_of) if own == number]
        resting = sorted(set(members).difference(trained))
        if counts and resting and len(resting) < len(members):
            for index in resting:
                optimizer._counts_of[index] = len(optimizer._counts)
            copies = {name: each.detach().clone() for name, each in counts.items()}
            Tensor.realize(*copies.values())
            optimizer._counts.append(copies)
            optimizer._group_of_counts.append(optimizer._group_of_counts[number])


def restart(optimizer: Any, index: int, step: int = 0) -> None:
    """Let parameter number `index` count by itself from `step` on."""
    optimizer._counts_of[index] = begin(optimizer, optimizer._group_of[index], step)
    _drop_unused(optimizer)


def regroup(optimizer: Any, groups: Sequence[Any]) -> None:
    """Let the groups be these, whose lists of parameters may be other ones than before: who stays
    keeps the state and the counts, who is new begins anew.
    """
    known = {id(tensor): index for index, tensor in enumerate(optimizer.params)}
    optimizer._param_groups[:] = groups
    listed = [(at, tensor) for at, group in enumerate(groups) for tensor in group["params"]]
    before = [known.get(id(tensor)) for _, tensor in listed]
    for attribute, _ in optimizer._slots:
        values = getattr(optimizer, attribute)
        found = []
        for (at, tensor), old in zip(listed, before, strict=True):
            if old is None:
                found.append(optimizer._first_state(tensor, groups[at]).get(attribute))
            else:
                found.append(values[old])
        setattr(optimizer, attribute, found)
    counts_of = [None if old is None else optimizer._counts_of[old] for old in before]
    for number, (at, tensor) in zip(counts_of, listed, strict=True):
        if number is None:
            optimizer._prepare(tensor)
        else:
            optimizer._group_of_counts[number] = at
    begun: dict[int, int] = {}
    for position, (at, _) in enumerate(listed):
        if counts_of[position] is None:
            if at not in begun:
                begun[at] = begin(optimizer, at)
            counts_of[position] = begun[at]
    optimizer.params[:] = [tensor for _, tensor in listed]
    optimizer._group_of[:] = [at for at, _ in listed]
    optimizer._counts_of[:] = counts_of
    _drop_unused(optimizer)


def _drop_unused(optimizer: Any) -> None:
    """Forget counts that no parameter has, but for those of groups without parameters."""
    remaining = [
        number
        for number, at in enumerate(optimizer._group_of_counts)
        if number in optimizer._counts_of or at not in optimizer._group_of
    ]
    listed = {number: position for position, number in enumerate(remaining)}
    optimizer._counts[:] = [optimizer._counts[number] for number in remaining]
    optimizer._group_of_counts[:] = [optimizer._group_of_counts[number] for number in remaining]
    optimizer._counts_of[:] = [listed[number] for number in optimizer._counts_of]


def counts_after(
    optimizer: Any, steps: Sequence[int]
) -> tuple[list[dict[str, Tensor]], dict[tuple[int, int], int]]:
    """Counters for parameters with these numbers of `steps`, shared within a group by equal
    numbers; and their positions by group and number of steps.
    """
    counts: list[dict[str, Tensor]] = []
    numbers: dict[tuple[int, int], int] = {}
    for at, step in zip(optimizer._group_of, steps, strict=True):
        if (at, step) not in numbers:
            is_first = all(other != at for other, _ in numbers)
            numbers[at, step] = len(counts)
            # The first of a group stay the tensors that they are.
            number = optimizer._group_of_counts.index(at)
            counts.append(dict(optimizer._counts[number]) if is_first else {})
    return counts, numbers
