"""`torch.autograd.graph`: what is kept for backward, which the compiler decides here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilegrad.torch.absent_hints import refuse_others

__all__ = ["disable_saved_tensors_hooks", "save_on_cpu"]


@contextlib.contextmanager
def save_on_cpu(pin_memory: bool = False, device_type: str = "cuda") -> Iterator[None]:
    """A block in which nothing changes: values are computed again or kept where they are."""
    yield


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which nothing changes: there are no such hooks."""
    yield


refuse_others(__name__)
