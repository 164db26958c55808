"""`torch.backends`: switches of other libraries, which change nothing here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from tilegrad.torch.absent import refusing

__all__ = ["cuda", "cudnn", "mkl", "mps"]


def _never() -> bool:
    return False


cudnn = SimpleNamespace(
    enabled=False, deterministic=True, benchmark=False, allow_tf32=False, is_available=_never
)
cuda = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False), is_built=_never)
mps = SimpleNamespace(is_available=_never, is_built=_never)
mkl = SimpleNamespace(is_available=_never)


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
