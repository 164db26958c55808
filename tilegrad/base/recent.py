"""Tables that forget entries, so that a process of many shapes does not grow without end.

A `Recent` forgets those used longest ago, and pays for that at each look-up. A `Bounded` table has
answers that recur, and may forget any, as it can be worked out again: its look-up is as cheap as in
a dictionary.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from tilegrad.base.forks import held_at_fork

__all__ = ["Bounded", "Recent", "SecondTime", "forget_all"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


_tables: weakref.WeakValueDictionary[int, Recent[Any, Any] | Bounded[Any, Any]] = (
    weakref.WeakValueDictionary()
)


def forget_all() -> None:
    """Empty every table of the process: facts of a device that is another one now are in many."""
    for table in list(_tables.values()):
        table.clear()


class Recent(Generic[K, V]):
    """At most `most()` entries: one more, and the one that was used longest ago goes. Several
    threads may share it.
    """

    __slots__ = ("__weakref__", "_entries", "_lock", "_most")

    def __init__(self, most: Callable[[], int]):
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = held_at_fork(threading.Lock(), 78)
        _tables[id(self)] = self

    def get(self, key: K) -> V | None:
        """The entry, which is then the one used last, or None."""
        found = self._entries.get(key)
        if found is not None:
            try:
                self._entries.move_to_end(key)
            except KeyError:
                # Another thread's entry has just pushed it out.
                return found
        return found

    def put(self, key: K, value: V) -> V:
        """Keep `value` under `key`, in place of the old one."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            most = max(self._most(), 1)
            while len(self._entries) > most:
                self._entries.popitem(last=False)
        return value

    def setdefault(self, key: K, value: V) -> V:
        """The entry under `key`, which is `value` unless there was one."""
        found = self.get(key)
        return self.put(key, value) if found is None else found

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def values(self) -> list[V]:
        """All entries, the one used last at the end."""
        with self._lock:
            return list(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries


class Bounded(dict[K, V]):
    """At most `most` entries: before one more, the quarter that came first goes."""

    __slots__ = ("__weakref__", "_most")

    def __init__(self, most: int):
        super().__init__()
        self._most = most
        _tables[id(self)] = self

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
