"""Temporary buffers of a schedule in one block of memory: those that do not live at the same time
share bytes.

A buffer lives from the first step that writes it to the last that reads it. Large ones are placed
first, each at the lowest offset that is free for its whole life; so the peak is known before
anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.schedule.schedule import Schedule
from tilegrad.target import Target

__all__ = ["MemoryPlan", "plan_memory"]

_ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Where temporaries lie: offsets by buffer, and the size of the block, per device."""

    offsets: dict[int, int]
    blocks: dict[str, int]


def plan_memory(
    schedule: Schedule, keep: Iterable[int], targets: Mapping[str, Target] | None = None
) -> MemoryPlan:
    """Offsets for every buffer that is made by the schedule and not in `keep`, where the devices,
    by name, can have a view begin.
    """
    kept = set(keep) | {
        number for number, spec in enumerate(schedule.buffers) if spec.source is not None
    }
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, item in enumerate(schedule.items):
        for number in item.buffers:
            if number not in kept:
                first.setdefault(number, step)
                last[number] = step
    offsets: dict[int, int] = {}
    blocks: dict[str, int] = {}
    placed: dict[str, list[tuple[int, int, int, int]]] = {}
    for number in sorted(first, key=lambda each: (-schedule.buffers[each].nbytes, first[each])):
        spec = schedule.buffers[number]
        target = (targets or {}).get(spec.device)
        alignment = _ALIGNMENT if target is None else max(target.view_bytes, _ALIGNMENT)
        size = -(-spec.nbytes // alignment) * alignment
        others = placed.setdefault(spec.device, [])
        offset = _lowest(others, first[number], last[number], size)
        offsets[number] = offset
        others.append((offset, size, first[number], last[number]))
        blocks[spec.device] = max(blocks.get(spec.device, 0), offset + size)
    return MemoryPlan(offsets, blocks)


def _lowest(others: Sequence[tuple[int, int, int, int]], first: int, last: int, size: int) -> int:
    """The lowest offset with `size` bytes that nothing alive between `first` and `last` uses."""
    taken = sorted(
        (offset, length) for offset, length, start, end in others if start <= last and first <= end
    )
    place = 0
    for offset, length in taken:
        if place + size <= offset:
            break
        place = max(place, offset + length)
    return place
