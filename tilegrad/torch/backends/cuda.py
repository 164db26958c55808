"""`torch.backends.cuda`: switches of NVIDIA's libraries, which change nothing here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent import refusing

__all__ = [
    "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
    "flash_sdp_enabled", "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
    "sdp_kernel",
]  # fmt: skip

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=False,
    allow_bf16_reduced_precision_reduction=False,
    fp32_precision="none",
)


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


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
