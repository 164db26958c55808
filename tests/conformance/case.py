"""What a conformance case is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilegrad.base.dtype import DType

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One check: tensors in, a tensor out, compared with the exact result.

    Attributes:
        group: what part of the table it belongs to.
        op, pattern, dtype: what is computed, on arguments of which kind, in which dtype.
        check: computes it on the default device; raises AssertionError if the result is wrong.
        often: whether it belongs to every run, or to the nightly one.
        small: whether it has so few elements that the emulator can run it.
        is_loose: whether its bound is not one of units in the last place of the result.
    """

    group: str
    op: str
    pattern: str
    dtype: DType
    check: Callable[[], None]
    often: bool = True
    small: bool = False
    is_loose: bool = False

    @property
    def name(self) -> str:
        lead = "gradient-" if self.group == "gradients" else ""
        return f"{lead}{self.op}-{self.pattern}-{self.dtype.name}"
