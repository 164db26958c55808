"""`torch.ao`: the marks of where a model would be quantized, which none is here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent_hints import refusing
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


also_known(sys.modules[__name__], ("quantization",), sys.modules[__name__], {})


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
