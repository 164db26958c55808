"""Numbers for what calls have in common and are compared by: templates, dtypes with shapes."""

from __future__ import annotations

import itertools
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.recent import Bounded

__all__ = ["kind_of", "known_kind", "next_number"]

next_number = itertools.count(1).__next__
# A number for each dtype and shape that a result had, and the most that are known at a time.
_kinds: Bounded[tuple[DType, tuple[Any, ...]], int] = Bounded(1 << 14)
# A number that `kind_of` has given, without its frame.
known_kind = _kinds.get


def kind_of(dtype: DType, shape: tuple[Any, ...]) -> int:
    """A number that no other dtype and shape have."""
    key = dtype, shape
    found = _kinds.get(key)
    if found is None:
        found = _kinds.put(key, next_number())
    return found
