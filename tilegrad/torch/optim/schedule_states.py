"""States of schedules by PyTorch's keys, where tilegrad has others: so that files go both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["from_pytorch", "to_pytorch"]


def to_pytorch(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """What the schedule `name` is stored as."""
    if name in ("LambdaLR", "MultiplicativeLR"):
        own = {key: value for key, value in state.items() if key != "lr_lambda"}
        # The functions are the program's own: it gives them to the schedule that loads this.
        return {**own, "lr_lambdas": [None] * len(state["base_lrs"])}
    if name == "CosineAnnealingWarmRestarts":
        return {**state, **_cycle(state)}
    if name == "SequentialLR":
        ends = state["milestones"]
        inner = {"_milestones": ends, "_schedulers": _inner(state, [0, *ends], [*ends, None])}
        return {**inner, "last_epoch": state["last_epoch"], "_last_lr": state["_last_lr"]}
    if name == "ChainedScheduler":
        count = len(state["schedulers"])
        inner = {"_schedulers": _inner(state, [0] * count, [None] * count)}
        return {**inner, "_last_lr": state["_last_lr"]}
    return state


def _inner(
    state: Mapping[str, Any], begins: Sequence[int], ends: Sequence[int | None]
) -> list[dict[str, Any]]:
    """The states of the schedules in a schedule with the steps that each has had, between its begin
    and its end: here the outer one counts for all of them.
    """
    made = []
    for each, begin, end in zip(state["schedulers"], begins, ends):
        now = state["last_epoch"] if end is None else min(state["last_epoch"], end - 1)
        epoch = max(now - begin, 0)
        made.append({**each, "last_epoch": epoch, "_step_count": epoch + 1})
    return made


def _cycle(state: Mapping[str, Any]) -> dict[str, int]:
    """The step in its cycle, and the length of that."""
    step, length = state["last_epoch"], state["T_0"]
    while step >= length:
        step -= length
        length *= state["T_mult"]
    return {"T_cur": step, "T_i": length}


def from_pytorch(name: str, state: Mapping[str, Any], base_lrs: list[float]) -> dict[str, Any]:
    """What `to_pytorch` was given, of a schedule whose rates begin at `base_lrs`."""
    made = {"base_lrs": base_lrs, **state}
    if "_schedulers" in made:
        made["schedulers"] = made.pop("_schedulers")
    if "_milestones" in made:
        made["milestones"] = made.pop("_milestones")
    if name == "ChainedScheduler":
        made.setdefault("last_epoch", made["schedulers"][0]["last_epoch"])
    return made
