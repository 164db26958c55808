"""States of schedules by PyTorch's keys, where tilegrad has others: so that files go both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["from_pytorch", "shown_in_groups", "to_pytorch"]


# Keys that all schedules have in their state.
_COMMON = (
    "base_lrs", "last_epoch", "_step_count", "_is_initial", "_get_lr_called_within_step",
    "_last_lr",
)  # fmt: skip


def to_pytorch(name: str, state: dict[str, Any], groups: Sequence[Any]) -> dict[str, Any]:
    """The stored form of the schedule `name` of an optimizer with these groups."""
    if name in ("OneCycleLR", "CyclicLR"):
        own = _one_cycle(state) if name == "OneCycleLR" else _cycles(state, len(groups))
        kind = {"use_beta1": "betas" in groups[0]} if state["cycle_momentum"] else {}
        return {**own, **kind, **{key: state[key] for key in _COMMON}}
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


def _one_cycle(state: Mapping[str, Any]) -> dict[str, Any]:
    total = state["total_steps"] or state["epochs"] * state["steps_per_epoch"]
    up = float(state["pct_start"] * total) - 1
    # Where a stage ends, its rates, and its momenta, as keys of a group.
    low, high = "base_momentum", "max_momentum"
    stages = [(up, "initial_lr", "max_lr", high, low)]
    if state["three_phase"]:
        stages.append((2 * up, "max_lr", "initial_lr", low, high))
        stages.append((total - 1, "initial_lr", "min_lr", high, high))
    else:
        stages.append((total - 1, "max_lr", "min_lr", low, high))
    keys = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    return {
        "total_steps": total,
        "_schedule_phases": [dict(zip(keys, stage)) for stage in stages],
        "_anneal_func_type": state["anneal_strategy"],
        "cycle_momentum": state["cycle_momentum"],
    }


def _cycles(state: Mapping[str, Any], count: int) -> dict[str, Any]:
    up = float(state["step_size_up"])
    total = up + float(up if state["step_size_down"] is None else state["step_size_down"])
    is_by_step = state["mode"] == "exp_range" and not state["scale_fn"]
    made = {
        "max_lrs": _of_each(state["max_lr"], count),
        "total_size": total,
        "step_ratio": up / total,
        "mode": state["mode"],
        "gamma": state["gamma"],
        "scale_mode": "iterations" if is_by_step else state["scale_mode"],
        "cycle_momentum": state["cycle_momentum"],
        # A function is the program's own.
        "_scale_fn_custom": None,
    }
    if state["cycle_momentum"]:
        made["base_momentums"] = _of_each(state["base_momentum"], count)
        made["max_momentums"] = _of_each(state["max_momentum"], count)
    return made


def _of_each(value: Any, count: int) -> list[Any]:
    """One number for each group."""
    return list(value) if isinstance(value, (list, tuple)) else [value] * count


def shown_in_groups(
    name: str, options: Mapping[str, Any], groups: Sequence[Any]
) -> tuple[Sequence[Any], list[dict[str, Any]]]:
    """The groups, and what the schedule `name` writes into each for PyTorch to read."""
    shown: list[dict[str, Any]] = [{} for _ in groups]
    count = len(groups)
    if name == "OneCycleLR":
        first = options["div_factor"]
        for own, peak in zip(shown, _of_each(options["max_lr"], count)):
            own |= {"max_lr": peak, "min_lr": peak / first / options["final_div_factor"]}
    if name in ("OneCycleLR", "CyclicLR") and options["cycle_momentum"]:
        for key in ("max_momentum", "base_momentum"):
            for own, value in zip(shown, _of_each(options[key], count)):
                own[key] = value
    return groups, shown


def _from_one_cycle(made: dict[str, Any], groups: Sequence[Any]) -> dict[str, Any]:
    """The options of `_one_cycle`'s state; rates and momenta are what the groups show."""
    stages = made["_schedule_phases"]
    first = made["base_lrs"][0]
    own = {
        **made,
        "pct_start": (stages[0]["end_step"] + 1) / made["total_steps"],
        "three_phase": len(stages) == 3,
        "anneal_strategy": made["_anneal_func_type"],
        "max_lr": [group["max_lr"] for group in groups],
        "div_factor": groups[0]["max_lr"] / first,
        "final_div_factor": first / groups[0]["min_lr"],
    }
    if made["cycle_momentum"]:
        own |= {key: [each[key] for each in groups] for key in ("base_momentum", "max_momentum")}
    return own


def _from_cycles(made: dict[str, Any]) -> dict[str, Any]:
    """The options of `_cycles`'s state."""
    up = round(made["total_size"] * made["step_ratio"])
    names = {"max_lrs": "max_lr", "base_lrs": "base_lr", "base_momentums": "base_momentum"}
    names["max_momentums"] = "max_momentum"
    own = {short: made[key] for key, short in names.items() if key in made}
    return {**made, **own, "step_size_up": up, "step_size_down": round(made["total_size"]) - up}


def from_pytorch(
    name: str, state: Mapping[str, Any], base_lrs: list[float], groups: Sequence[Any]
) -> dict[str, Any]:
    """The state that `to_pytorch` was given, for a schedule whose rates begin at `base_lrs`."""
    made = {"base_lrs": base_lrs, **state}
    if "_schedule_phases" in made:
        return _from_one_cycle(made, groups)
    if "total_size" in made:
        return _from_cycles(made)
    if "_schedulers" in made:
        made["schedulers"] = made.pop("_schedulers")
    if "_milestones" in made:
        made["milestones"] = made.pop("_milestones")
    if name == "ChainedScheduler":
        made.setdefault("last_epoch", made["schedulers"][0]["last_epoch"])
    return made
