"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Mutant"]


class Mutant(NamedTuple):
    """What is broken, and how: a text of the package, which stands once in its file, and what
    takes its place.
    """

    what: str
    file: str
    before: str
    after: str
