"""`torch.backends`: switches of other libraries, which change nothing here."""

from __future__ import annotations

from types import SimpleNamespace

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.backends import cuda, cudnn, mkldnn, mps
from tilegrad.torch.module_aliases import also_known

__all__ = [
    "cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum",
    "quantized",
]  # fmt: skip


def _never() -> bool:
    return False


opt_einsum = SimpleNamespace(enabled=False, strategy=None, is_available=_never)
cpu = SimpleNamespace(get_cpu_capability=lambda: "DEFAULT")
mha = SimpleNamespace(get_fastpath_enabled=_never, set_fastpath_enabled=lambda value: None)
quantized = SimpleNamespace(engine="none", supported_engines=["none"])
also_known(__name__, ("mkl", "nnpack", "openmp"), mkldnn)

refuse_others(__name__)
