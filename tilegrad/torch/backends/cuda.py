"""`torch.backends.cuda`: switches of NVIDIA's libraries. `matmul.allow_tf32` is the switch TF32;
the others change nothing here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilegrad.base.config import config, set_switches
from tilegrad.base.errors import check_choice
from tilegrad.torch.absent_hints import refuse_others

__all__ = [
    "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
    "flash_sdp_enabled", "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
    "sdp_kernel",
]  # fmt: skip


class _Products:
    """How products are rounded."""

    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may round their factors, on matrix units, in this thread."""
        return bool(config.TF32)

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_switches(TF32=int(allowed))

    @property
    def fp32_precision(self) -> str:
        """ "tf32" where they may, else "ieee"."""
        return "tf32" if config.TF32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        check_choice("fp32_precision", "value", precision, ("none", "ieee", "tf32"))
        set_switches(TF32=int(precision == "tf32"))


matmul = _Products()


def is_built() -> bool:
    """False: kernels are tilegrad's own."""
    return False


def enable_flash_sdp(enabled: bool) -> None:
    """Nothing: attention has one way to be computed, chosen by its sizes."""


enable_math_sdp = enable_mem_efficient_sdp = enable_cudnn_sdp = enable_flash_sdp


def math_sdp_enabled() -> bool:
    """True: attention is computed, in some way."""
    return True


flash_sdp_enabled = mem_efficient_sdp_enabled = math_sdp_enabled


@contextlib.contextmanager
def sdp_kernel(*args: Any, **options: Any) -> Iterator[None]:
    """A block with other switches of attention, which change nothing."""
    yield


refuse_others(__name__)
