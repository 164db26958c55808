"""`torch.utils.checkpoint`: a call whose inside is computed again for its gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilegrad.func import checkpoint as ours
from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.tensor import with_ours

__all__ = [
    "CheckpointError", "checkpoint", "checkpoint_sequential", "get_device_states",
    "noop_context_fn", "set_device_states",
]  # fmt: skip

_CHOICES = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "context_fn")


class CheckpointError(RuntimeError):
    """PyTorch's error where a second run differs from the first."""


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of `function`; values that it computes in between are not materialised for the
    gradient.
    """
    given = {name: value for name, value in options.items() if name not in _CHOICES}
    return with_ours(ours(function, *args, **given))


def get_device_states(*args: Any) -> tuple[list[Any], list[Any]]:
    """The GPUs that arguments are on, and their generators' states: there is one generator."""
    return [], []


def set_device_states(devices: Any, states: Any, **options: Any) -> None:
    """Nothing: there is one generator, which `torch.set_rng_state` sets."""


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **options: Any
) -> Any:
    """`functions` one after another, in `segments` checkpointed segments."""
    layers = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(1, len(layers) // segments)

    def run(segment: Sequence[Any]) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for layer in segment:
                x = layer(x)
            return x

        return forward

    for start in range(0, size * (segments - 1), size):
        input = checkpoint(run(layers[start : start + size]), input)
    return run(layers[size * (segments - 1) :])(input)


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
