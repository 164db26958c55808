"""`torch.amp`: products in bfloat16. bfloat16 has the range of float32, so no scale is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.torch.modes import autocast

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class GradScaler:
    """A scale of losses that is always 1."""

    def __init__(self, device: Any = "cpu", *args: Any, **options: Any):
        pass

    def scale(self, outputs: Any) -> Any:
        """`outputs` as they are."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: gradients are not scaled."""

    def step(self, optimizer: Any, *args: Any, **options: Any) -> Any:
        """A step of the optimizer."""
        return optimizer.step(*args, **options)

    def update(self, new_scale: Any = None) -> None:
        """Nothing."""

    def get_scale(self) -> float:
        """The scale: 1."""
        return 1.0

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing."""


def custom_fwd(fwd: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function itself."""
    return fwd if fwd is not None else custom_fwd


custom_bwd = custom_fwd
