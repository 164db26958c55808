"""Whether gradients are recorded, and in which dtype products are computed: modes of a thread.

tilegrad's graphs are differentiable wherever nothing says otherwise. So results of a block without
gradients are cut off from their graph when the block ends: until then their gradient is not asked
for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.config import gradients
from tilegrad.base.dtype import DType, dtypes
from tilegrad.capture.modes import add_mode
from tilegrad.ir.op import Ops
from tilegrad.tensor.handle.tracing import front_ends, transforms
from tilegrad.torch.device_names import has_gpu

__all__ = [
    "autocast", "autocast_dtype", "enable_grad", "inference_mode", "is_grad_enabled",
    "is_inference_mode_enabled", "no_grad", "set_grad_enabled", "state",
]  # fmt: skip


class _State(threading.local):
    """The modes of one thread."""

    # References to what this block made, or None where gradients are recorded.
    made: list[weakref.ref[Any]] | None = None
    is_inference = False
    autocast: DType | None = None
    # Whether an optimizer moves its parameters, and computes them itself.
    is_stepping = False


state = _State()
add_mode(lambda: (state.made is None, state.is_inference, state.autocast, state.is_stepping))


def _enabled_in_transform() -> Callable[[], None]:
    """Record gradients while a transform runs a function; what goes back to the mode before."""
    before, state.made = state.made, None

    def restore() -> None:
        state.made = before

    return restore


front_ends.append(_enabled_in_transform)


def is_grad_enabled() -> bool:
    """Whether what is computed now can be differentiated."""
    return state.made is None


def is_inference_mode_enabled() -> bool:
    """Whether this is inside `inference_mode()`."""
    return state.is_inference


def _cut(made: list[weakref.ref[Any]]) -> None:
    """Let no gradient flow to what the tensors in `made` were computed from."""
    for reference in made:
        tensor = reference()
        if tensor is None or not tensor.dtype.is_float or tensor.requires_grad:
            continue
        # Constants and memory stand for themselves.
        if tensor.uop.op not in (Ops.CONST, Ops.BUFFER, Ops.DETACH, Ops.COPY):
            tensor.detach_()


class _Mode(contextlib.ContextDecorator):
    """A block, or a decorator of functions and generators, in one mode."""

    _wanted = True
    _is_inference = False

    def __init__(self) -> None:
        self._before: list[tuple[list[weakref.ref[Any]] | None, bool]] = []

    def __enter__(self) -> Self:
        self._before.append((state.made, state.is_inference))
        _switch(self._wanted)
        if self._is_inference:
            state.is_inference = self._is_inference
        return self

    def __exit__(self, *error: object) -> None:
        made, is_inference = self._before.pop()
        _restore(made)
        state.is_inference = is_inference

    def _recreate_cm(self) -> Self:
        return self

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:  # type: ignore[override]
        if not inspect.isgeneratorfunction(func):
            return super().__call__(func)

        @functools.wraps(func)
        def generate(*args: Any, **options: Any) -> Any:
            items = func(*args, **options)
            while True:
                with self:
                    try:
                        item = next(items)
                    except StopIteration as end:
                        return end.value
                yield item

        return generate


def _switch(is_wanted: bool) -> None:
    if not is_wanted:
        # A block within another adds to what that one has made.
        state.made = [] if state.made is None else state.made
    else:
        state.made = None
    # tilegrad's own mode: its templates are made for one or the other.
    gradients.set(is_wanted)


def _restore(made: list[weakref.ref[Any]] | None) -> None:
    """Go back to what was before: if gradients were recorded, cut off what this block made."""
    mine, state.made = state.made, made
    gradients.set(made is None)
    if mine and mine is not made:
        _cut(mine)


class no_grad(_Mode):
    """A block, or a decorator, in which nothing is recorded for gradients.

    >>> import tilegrad.torch as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    _wanted = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        # `@torch.no_grad` without brackets.
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__()


class enable_grad(no_grad):
    """A block, or a decorator, in which gradients are recorded."""

    _wanted = True


class inference_mode(_Mode):
    """As `no_grad`; with `mode=False` as `enable_grad`."""

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        made = super().__new__(cls)
        if not callable(mode):
            return made
        made.__init__()  # type: ignore[misc]
        return made(mode)

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        super().__init__()
        self._wanted = not mode
        self._is_inference = bool(mode)


class set_grad_enabled(_Mode):
    """Record gradients or not, from here on; as a context until it ends."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._wanted = mode
        self._before.append((state.made, state.is_inference))
        _switch(mode)

    def __enter__(self) -> Self:
        # The mode is on since the object was made.
        if not self._before:
            return super().__enter__()
        return self

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:  # type: ignore[override]
        self.__exit__()
        return super().__call__(func)


def autocast_dtype() -> DType | None:
    """The dtype of products here, or None for that of their operands."""
    return state.autocast


class autocast(contextlib.ContextDecorator):
    """A block in which products of matrices and convolutions are computed in bfloat16 (or `dtype`),
    from float32 operands too; their sums are kept in float32 and rounded once. On "cuda" the dtype
    is float16 unless given; where there is no GPU such a block changes nothing.
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        kind = str(device_type).partition(":")[0]
        if enabled and kind == "cuda" and not has_gpu():
            warnings.warn("autocast: there is no GPU, so it does nothing", stacklevel=2)
            enabled = False
        usual = dtypes.float16 if kind == "cuda" else dtypes.bfloat16
        self.device, self.fast_dtype = kind, dtype or usual
        self._dtype = self.fast_dtype if enabled else None
        self._before: list[DType | None] = []

    def __enter__(self) -> Self:
        self._before.append(state.autocast)
        state.autocast = self._dtype
        transforms.set_mode(self._dtype)
        return self

    def __exit__(self, *error: object) -> None:
        state.autocast = self._before.pop()
        transforms.set_mode(state.autocast)
