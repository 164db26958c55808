"""`torch.autograd.graph`: what is kept for backward, which the compiler decides here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilegrad.base.errors import UnsupportedError
from tilegrad.tensor.handle.sizes import here
from tilegrad.torch.absent import absent

__all__ = ["disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


@contextlib.contextmanager
def save_on_cpu(pin_memory: bool = False, device_type: str = "cuda") -> Iterator[None]:
    """A block in which nothing changes: values are computed again or kept where they are."""
    yield


def saved_tensors_hooks(pack_hook: Any, unpack_hook: Any) -> Any:
    """Not there: nothing is saved for backward that a hook could take.

    Raises UnsupportedError, which says what to write.
    """
    raise UnsupportedError(
        "saved_tensors_hooks: no tensor is saved for backward here; what is not kept is computed "
        "again",
        line=here(),
        fix="to use less memory, torch.utils.checkpoint.checkpoint(function, *inputs); to store "
        "values in another form, an autograd.Function that saves that form in its ctx",
    )


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which nothing changes: there are no such hooks."""
    yield


def __getattr__(name: str) -> Any:
    raise AttributeError(absent("torch.autograd.graph", name, __all__), name=name)
