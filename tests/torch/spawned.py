"""What a process that a test starts computes, in a file that imports next to nothing."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_twice"]


def write_twice(number: int, folder: str) -> None:
    """Twice the number, in a file of its name."""
    (Path(folder) / str(number)).write_text(str(number * 2))
