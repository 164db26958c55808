"""How often calls that wait become nodes: a step that templates tell makes none."""

from __future__ import annotations

from typing import Any

from tilegrad.tensor.handle import waiting

__all__ = ["noted_expansions"]


def noted_expansions() -> list[int]:
    """A list that grows by one whenever nodes are made, in what is left of this process."""
    made: list[int] = []
    expand = waiting.Pool.expand

    def every(pool: Any) -> None:
        if pool.has_new:
            made.append(0)
        expand(pool)

    waiting.Pool.expand = every  # type: ignore[method-assign]
    return made
