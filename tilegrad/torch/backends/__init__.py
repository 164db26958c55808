"""`torch.backends`: switches of other libraries, which change nothing here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from tilegrad.torch.absent import refusing

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]


def _never() -> bool:
    return False


cudnn = SimpleNamespace(
    enabled=False, deterministic=True, benchmark=False, allow_tf32=False, is_available=_never
)
cuda = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False), is_built=_never)
mps = SimpleNamespace(is_available=_never, is_built=_never)
mkl = mkldnn = openmp = SimpleNamespace(is_available=_never)
opt_einsum = SimpleNamespace(enabled=False, strategy=None, is_available=_never)
cpu = SimpleNamespace(get_cpu_capability=lambda: "DEFAULT")


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
