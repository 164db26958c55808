"""`torch.ao`: the marks of where a model would be quantized, which none is here."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.nn.module import Module

__all__ = ["DeQuantStub", "QuantStub"]


class QuantStub(Module):
    """Where integers would begin: gives its argument."""

    def __init__(self, qconfig: Any = None):
        self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Where integers would end: gives its argument."""


also_known(__name__, ("quantization",))

refuse_others(__name__)
