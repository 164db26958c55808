"""Objects older than a run: the path to each, and the writes of the run to them."""

from __future__ import annotations

import enum
import types
from typing import Any

from tilegrad.capture.access_paths import AccessPath, name_of
from tilegrad.capture.objects import title

__all__ = ["OLD", "OlderObjects"]

Key = tuple[int, bool, Any]

OLD = (type, types.ModuleType, types.FunctionType, enum.Enum)


class OlderObjects:
    """Facts about older objects.

    Attributes:
        written: paths that are assigned to.
        reason: the first read that no guard covers.
    """

    def __init__(self) -> None:
        self.written: dict[Any, AccessPath] = {}
        self.reason = ""
        self._assigned: set[Key] = set()
        # By the id of an older value: itself, and where it stands, or itself if it is held.
        self._alive: dict[int, Any] = {}
        self._anchors: dict[int, list[Any]] = {}
        self._labels: dict[int, str] = {}
        # Containers that changed in ways that no guard says; containers with a guard for each item.
        self._altered: set[int] = set()
        self._complete: set[int] = set()
        self._deep: set[int] = set()

    def release(self) -> None:
        """Let go of every object that was seen."""
        self.written, self._alive, self._anchors = {}, {}, {}

    def uncovered(self, fact: str) -> None:
        """Note that something was read that no guard covers."""
        self.reason = self.reason or fact

    def is_old(self, value: Any) -> bool:
        """Whether `value` was there before the run."""
        return id(value) in self._anchors or isinstance(value, OLD)

    def anchors(self, value: Any) -> list[Any]:
        """How `value` is reached: paths, or itself."""
        return self._anchors.get(id(value)) or ([value] if isinstance(value, OLD) else [])

    def label(self, value: Any) -> str:
        return self._labels.get(id(value)) or title(value)

    def _anchor(self, value: Any, anchor: Any, label: str) -> bool:
        """Note where an older value stands; whether that is news."""
        found = self._anchors.setdefault(id(value), [])
        self._alive[id(value)] = value
        self._labels.setdefault(id(value), label)
        if any(each is value for each in found):
            return False
        if isinstance(anchor, AccessPath):
            known = [each.identity for each in found]
            if anchor.identity in known:
                return False
        elif found:
            found.clear()
        found.append(anchor)
        return True

    def assign_path(self, holder: Any, path: AccessPath) -> None:
        """Note that a variable is assigned to."""
        self._assigned.add((id(holder), path.is_item, name_of(path.key)))
        self.written.setdefault(path.identity, path)

    def is_assigned(self, holder: Any, is_item: bool, key: Any) -> bool:
        """Whether the run itself put the present object there."""
        return (id(holder), is_item, name_of(key)) in self._assigned

    def alter(self, value: Any) -> None:
        """Note that an older container changes in ways that no guard says."""
        if self.is_old(value) and id(value) not in self._complete:
            self._altered.add(id(value))
