"""State that shapes every capture beside the arguments: switches, defaults, and modes of a thread.

A captured function is replayed only in the modes in which it was captured. A front end that has
modes of its own, as `tilegrad.torch` has `autocast`, adds a function that says what they are.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.base.config import Config, config, gradients, training
from tilegrad.base.dtype import dtypes
from tilegrad.device.registry import Device

__all__ = ["CaptureModes", "Modes", "add_mode", "others"]

others: list[Callable[[], object]] = []
"""The modes of front ends."""


def add_mode(mode: Callable[[], object]) -> None:
    """Let captures depend on what `mode` returns, a value that is compared by `==`."""
    others.append(mode)


class Modes:
    """The modes of the running thread, as one value that is quick to compare."""

    def __init__(self) -> None:
        self._config: Config | None = None
        self._switches: tuple[object, ...] = ()

    def now(self, switches: Config) -> tuple[object, ...]:
        """The modes, given the switches of this moment."""
        if switches is not self._config:
            self._config = switches
            self._switches = (config.code_key(), switches.DEVICE)
        found = (
            self._switches, training.get(), gradients.get(), Device._default, Device.renewals,
            dtypes.default_float,
        )  # fmt: skip
        return (*found, *[mode() for mode in others]) if others else found


class CaptureModes:
    """The modes in which a capture was made.

    Attributes:
        switches: known to be those of the capture, so that the same object needs no comparison.
        is_plain: whether steps run without rows and as batches under `switches`.
    """

    __slots__ = ("_shaping", "is_plain", "switches", "values")

    def __init__(self, modes: tuple[object, ...]):
        self._shaping, *values = modes
        self.values = tuple(values)
        self.switches: Config | None = None
        self.is_plain = False

    def admits(self, switches: Config) -> bool:
        """Whether a replay may run under `switches`, those of this moment."""
        if not switches.JIT or switches.CHECK:
            return False
        if (config.code_key(), switches.DEVICE) != self._shaping:
            return False
        # In this order, as another thread may come between.
        self.is_plain = switches.JIT == 1 and switches.DEBUG < 2
        self.switches = switches
        return True
