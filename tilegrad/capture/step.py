"""A step of a capture: a launch over numbered memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tilegrad.base.origin import Entry
from tilegrad.device.cpu import CpuRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import CompiledKernel

__all__ = ["ReplayStep", "Value", "is_native"]

Value = int | Hashable
"""A kernel's integer: a number, or the name under which a replay gives it."""


@dataclass(frozen=True)
class ReplayStep:
    """A launch over numbered memory; a copy of the second into the first where `kernel` is None."""

    device: str
    kernel: CompiledKernel | None
    slots: tuple[int, ...]
    values: tuple[Value, ...]
    origin: tuple[Entry, ...]
    # How many of the slots, the first, it writes.
    written: int = 1

    @property
    def name(self) -> str:
        return "copy" if self.kernel is None else self.kernel.name


def is_native(step: ReplayStep) -> bool:
    """Whether the step is a kernel that the native graph runner calls."""
    return step.kernel is not None and isinstance(Device[step.device].runtime, CpuRuntime)
