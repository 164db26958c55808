"""`torch._subclasses`: whether a tensor has a shape alone, for PyTorch's compiler: none has."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.absent_hints import absent, refuse_others
from tilegrad.torch.module_aliases import also_known

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake"]


class FakeTensor:
    """A tensor that stands for others: none does. Making one raises NotImplementedError."""

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError(absent("torch._subclasses", type(self).__name__, ()))


class FakeTensorMode(FakeTensor):
    """A block that makes them. Making one raises NotImplementedError."""


def is_fake(x: Any) -> bool:
    """False."""
    return False


also_known(__name__, ("fake_tensor",))

refuse_others(__name__)
