"""A case that fails, made small while it fails."""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.tools.fuzz.case import Case

__all__ = ["shrink"]


def shrink(case: Case, mode: str, fails: Callable[[Case], bool], most: int = 400) -> Case:
    """The smallest case found that `fails`; it is asked at most `most` times."""
    asked = 0
    improved = True
    seen: set[str] = set()
    while improved and asked < most:
        improved = False
        for smaller in case.smaller():
            try:
                text = "\n".join(smaller.lines(mode))
            except ValueError:
                continue
            if text in seen:
                continue
            seen.add(text)
            asked += 1
            if fails(smaller):
                case, improved = smaller, True
                break
            if asked >= most:
                break
    return case
