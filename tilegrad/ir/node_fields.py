"""Names of the argument and the sources of some kinds of node: `loop.axis`, `load.gate`."""

from __future__ import annotations

from typing import Any, Self

from tilegrad.ir.op import Axis, Ops

__all__ = ["Fields"]


class Fields:
    """Names of a node's argument and sources, by its op. The caller knows the op: a field of
    another op is not refused.
    """

    __slots__ = ()
    src: tuple[Self, ...]
    arg: Any

    @property
    def number(self) -> int:
        """The number of a RANGE."""
        return self.arg[0]  # type: ignore[no-any-return]

    @property
    def axis(self) -> Axis:
        """The kind of axis that runs a RANGE."""
        return self.arg[1]  # type: ignore[no-any-return]

    @property
    def extent(self) -> Self:
        """The number of iterations of a RANGE."""
        return self.src[0]

    @property
    def name(self) -> str:
        """The name of a DEFINE_VAR or SPECIAL."""
        return self.arg[0]  # type: ignore[no-any-return]

    @property
    def combine(self) -> Ops:
        """The associative op of a REDUCE_AXIS, PREFIX_AXIS or PREFIX."""
        return self.arg[0]  # type: ignore[no-any-return]

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of a REDUCE_AXIS."""
        return self.arg[1]  # type: ignore[no-any-return]

    @property
    def index(self) -> Self:
        """The index of a LOAD or STORE."""
        return self.src[1]

    @property
    def value(self) -> Self:
        """The value that a STORE writes."""
        return self.src[2]

    @property
    def other(self) -> Self:
        """The value of a gated LOAD where its gate is false."""
        return self.src[2]

    @property
    def is_gated(self) -> bool:
        """Whether a LOAD or STORE has a gate."""
        return len(self.src) == 4

    @property
    def gate(self) -> Self:
        """The gate of a LOAD or STORE that is gated."""
        return self.src[3]
