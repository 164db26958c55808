"""What shapes every capture beside the arguments: switches, defaults, and modes of a thread.

A captured function is replayed only in the modes in which it was captured. A front end that has
modes of its own, as `tilegrad.torch` has `autocast`, adds a function that says what they are.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.base.config import Config, config, gradients, training
from tilegrad.base.dtype import dtypes
from tilegrad.device.registry import Device

__all__ = ["Modes", "add_mode"]

_others: list[Callable[[], object]] = []


def add_mode(mode: Callable[[], object]) -> None:
    """Let captures depend on what `mode` returns, a value that is compared by `==`."""
    _others.append(mode)


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
            self._switches, training.get(), gradients.get(), Device._default, dtypes.default_float
        )  # fmt: skip
        return (*found, *[mode() for mode in _others]) if _others else found
