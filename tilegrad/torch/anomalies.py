"""`torch.autograd.detect_anomaly`: gradients that are NaN raise where `backward` made them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from tilegrad.base.config import Context
from tilegrad.tensor.handle.living import with_gradient

__all__ = [
    "check_gradients", "detect_anomaly", "gradients_before", "is_looking", "set_detect_anomaly",
]  # fmt: skip


class _State:
    """The checks of the process: none, or the gradients of each `backward`."""

    is_on = False
    looks_at_values = True


_state = _State()


def is_looking() -> bool:
    """Whether gradients are to be looked at."""
    return _state.is_on and _state.looks_at_values


class set_detect_anomaly:  # a name of PyTorch
    """Look at the gradients of each `backward` from here on, or to the end of a block. They are
    computed there, and each kernel is watched: it is slow.

    >>> import tilegrad.torch as torch
    >>> x = torch.tensor([-1.0], requires_grad=True)
    >>> with torch.autograd.set_detect_anomaly(True):
    ...     try:
    ...         x.sqrt().sum().backward()
    ...     except RuntimeError as error:
    ...         print(str(error).splitlines()[0])
    backward: the gradient of a leaf of shape (1,) has nan values
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._before = _state.is_on, _state.looks_at_values
        _state.is_on, _state.looks_at_values = mode, check_nan

    def __enter__(self) -> None:
        """Look at gradients already."""

    def __exit__(self, *error: object) -> None:
        _state.is_on, _state.looks_at_values = self._before


class detect_anomaly(contextlib.ContextDecorator):  # a name of PyTorch
    """A block in which gradients that are NaN raise, and kernels look for indices out of bounds."""

    def __init__(self, check_nan: bool = True):
        self._check_nan = check_nan
        self._open: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        block = contextlib.ExitStack()
        block.enter_context(set_detect_anomaly(True, self._check_nan))
        block.enter_context(Context(CHECK=1))
        self._open.append(block)

    def __exit__(self, *error: object) -> None:
        self._open.pop().close()


def gradients_before() -> dict[int, Any]:
    """Copies of all gradients that there are, by the identity of their tensors."""
    found = [(id(each), each.grad) for each in list(with_gradient)]
    return {key: grad.detach().clone().realize() for key, grad in found if grad is not None}


def check_gradients(found: Iterable[tuple[str, Any]]) -> None:
    """Compute gradients, each with what it is the gradient of.

    Raises RuntimeError for one that has a NaN, with the first kernel that made one.
    """
    listed = [(what, gradient) for what, gradient in found if gradient is not None]
    cause = None
    for _, gradient in listed:
        try:
            with Context(CHECK=2):
                gradient.realize()
        except FloatingPointError as error:
            # The forward pass may have NaN that reach no gradient.
            cause = cause or error
    for what, gradient in listed:
        if gradient.dtype.is_float and bool(gradient.detach().isnan().any().item()):
            text = f"backward: the gradient of {what} has nan values"
            raise RuntimeError(text if cause is None else f"{text}\n{cause}") from cause
