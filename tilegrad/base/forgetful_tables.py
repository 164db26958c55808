"""Tables of answers that recur, with a look-up as cheap as in a dictionary.

Such a table may forget any answer, as it can be worked out again. A `Recent` (`base.recent`) keeps
used entries, and pays for that at each look-up.
"""

from __future__ import annotations

import itertools
from typing import TypeVar

__all__ = ["Bounded", "SecondTime"]

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """At most `most` entries: before one more, the quarter that came first goes."""

    __slots__ = ("_most",)

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> V:
        """Keep `value` under `key`, in place of the old one."""
        if len(self) >= self._most:
            # Another thread may be at it as well.
            for each in list(itertools.islice(self, max(self._most // 4, 1))):
                self.pop(each, None)
        self[key] = value
        return value


class SecondTime(Bounded[object, None]):
    """Keys that came once: a key that does not come again is not worth an answer that is kept, and
    pushes none out.
    """

    def is_now(self, key: object) -> bool:
        """Whether a key comes for the second time; then it is forgotten."""
        if key in self:
            self.pop(key, None)
            return True
        self.put(key, None)
        return False
