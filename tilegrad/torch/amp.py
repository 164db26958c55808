"""`torch.amp`: products in a half type, and the scale of losses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tilegrad.tensor.handle.gradient import set_gradient
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.device_names import has_gpu
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.thread_modes import autocast

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


class GradScaler:
    """A scale of losses that keeps small gradients above 0 in float16: it shrinks where one is
    infinite or NaN, and that step is left out. One for "cuda" scales nothing where there is no
    GPU.
    """

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if enabled and str(device).partition(":")[0] == "cuda" and not has_gpu():
            warnings.warn("GradScaler: there is no GPU, so it scales nothing", stacklevel=2)
            enabled = False
        self._is_enabled, self._scale = enabled, float(init_scale)
        self._growth, self._backoff = growth_factor, backoff_factor
        self._interval, self._steps = growth_interval, 0
        self._unscaled: set[int] = set()
        self._has_bad = False

    def scale(self, outputs: Any) -> Any:
        """`outputs`, or each in a list or tuple, times the scale."""
        if not self._is_enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(each) for each in outputs])
        return outputs * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale.

        Raises RuntimeError where that was done since the last `update`.
        """
        if not self._is_enabled:
            return
        if id(optimizer) in self._unscaled:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        self._unscaled.add(id(optimizer))
        params = [p for group in optimizer.param_groups for p in group["params"]]
        with thread_modes.no_grad():
            for param in params:
                if param.grad is not None:
                    set_gradient(param, param.grad / self._scale)
            finite = [param.grad.isfinite().all() for param in params if param.grad is not None]
            if finite:
                self._has_bad |= not finite[0].stack(*finite[1:]).all().item()

    def step(self, optimizer: Any, *args: Any, **options: Any) -> Any:
        """A step of the optimizer, unless a gradient is infinite or NaN."""
        if self._is_enabled and id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        return None if self._has_bad else optimizer.step(*args, **options)

    def update(self, new_scale: Any = None) -> None:
        """Set the scale, or let it shrink after a step that was left out, and grow after many."""
        if not self._is_enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif self._has_bad:
            self._scale, self._steps = self._scale * self._backoff, 0
        else:
            self._steps += 1
            if self._steps == self._interval:
                self._scale, self._steps = self._scale * self._growth, 0
        self._has_bad = False
        self._unscaled.clear()

    def get_scale(self) -> float:
        """The scale: 1 where there is none."""
        return self._scale if self._is_enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor of the scale after many steps."""
        return self._growth

    def set_growth_factor(self, new_factor: float) -> None:
        """Let the scale be multiplied by another factor after many steps."""
        self._growth = new_factor

    def get_backoff_factor(self) -> float:
        """The factor of the scale after a step that was left out."""
        return self._backoff

    def set_backoff_factor(self, new_factor: float) -> None:
        """Let the scale be multiplied by another factor after a step that was left out."""
        self._backoff = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps the scale grows."""
        return self._interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Let the scale grow after another number of steps."""
        self._interval = new_interval

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._is_enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale, and what it grows by."""
        if not self._is_enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": self._steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        if self._is_enabled:
            self._scale = float(state_dict["scale"])
            self._growth = state_dict["growth_factor"]
            self._backoff = state_dict["backoff_factor"]
            self._interval = state_dict["growth_interval"]
            self._steps = state_dict["_growth_tracker"]


def custom_fwd(fwd: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function itself."""
    return fwd if fwd is not None else custom_fwd


custom_bwd = custom_fwd


def is_autocast_available(device_type: str) -> bool:
    """Whether products on such a device can be computed in a half type."""
    return device_type in ("cpu", "cuda")


also_known(__name__, ("autocast_mode", "grad_scaler"))

refuse_others(__name__)
