"""State that PyTorch's optimizers hold and tilegrad's work out: so that each reads the other's
files.
"""

from __future__ import annotations

from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.optim.parameter_groups import as_number
from tilegrad.torch.tensor import as_ours

__all__ = ["as_shown", "completed", "steps_in"]

# Optimizers of PyTorch's that count steps, where tilegrad's need no count.
_COUNTING = frozenset(["Adadelta", "Adagrad", "RMSprop"])


def as_shown(value: Any) -> Any:
    """State with its tensors as those of `torch`; numbers and None stay."""
    if isinstance(value, list):
        return [as_shown(each) for each in value]
    return as_ours(value) if isinstance(value, OurTensor) else value


def completed(
    name: str, state: dict[str, Any], counts: dict[str, Any], group: Any, taken: int
) -> dict[str, Any]:
    """The state of one parameter of the optimizer `name` with all of PyTorch's keys, after `taken`
    steps; `counts` are what it counts with.
    """
    if name in _COUNTING and "step" not in state:
        return {"step": tensor(float(taken)), **state}
    if name == "NAdam":
        return {**state, "mu_product": counts["product"].reshape(())}
    if name == "ASGD":
        return {**state, "mu": 1 / (state["step"] - group["t0"]).maximum(1)}
    return state


def steps_in(state_dict: Any) -> int:
    """The number of steps that a state dict is of: that of the parameter that had the most."""
    steps = [each["step"] for each in state_dict["state"].values() if each.get("step") is not None]
    return max((int(as_number(step)) for step in steps), default=0)
