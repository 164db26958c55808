"""`torch.cuda.amp`: `torch.amp` of GPUs, under its former names."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.torch import amp
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.amp import custom_bwd, custom_fwd
from tilegrad.torch.module_aliases import also_known

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """As `torch.autocast("cuda")`."""

    def __init__(
        self, enabled: bool = True, dtype: DType = dtypes.float16, cache_enabled: bool = True
    ):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """As `torch.amp.GradScaler("cuda")`."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        options: tuple[Any, ...] = (growth_factor, backoff_factor, growth_interval, enabled)
        super().__init__("cuda", init_scale, *options)


also_known(__name__, ("autocast_mode", "grad_scaler"))

refuse_others(__name__)
