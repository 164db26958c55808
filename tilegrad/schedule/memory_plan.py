"""Temporary buffers of a schedule in one block of memory: those that do not live at the same time
share bytes.

A buffer lives from the first step that writes it to the last that reads it. Large ones are placed
first, each at the lowest offset that is free for its whole life; so the peak is known before
anything runs. Those whose sizes a launch says have no offsets: they share slots, each as
large as the largest of its buffers is in that launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilegrad.schedule.items import Schedule
from tilegrad.target import Target

__all__ = ["MemoryPlan", "plan_memory"]

# Limits of compile time.
# Steps.
_SPAN = 32


@dataclass(frozen=True)
class MemoryPlan:
    """Where temporaries lie: offsets by buffer, and the size of the block, per device; the slots of
    those whose sizes a launch says.
    """

    offsets: dict[int, int]
    blocks: dict[str, int]
    slots: dict[int, int]


def plan_memory(
    schedule: Schedule, lasting: Iterable[int], targets: Mapping[str, Target] | None = None
) -> MemoryPlan:
    """Offsets for the buffers that the schedule makes, without those in `lasting`, where the
    devices, by name, can have a view begin.
    """
    apart = set(lasting) | {
        number for number, spec in enumerate(schedule.buffers) if spec.source is not None
    }
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, item in enumerate(schedule.items):
        for number in item.buffers:
            if number not in apart:
                first.setdefault(number, step)
                last[number] = step
    sized = [number for number in first if schedule.buffers[number].extent is not None]
    slots = _slots(schedule, sized, first, last)
    first = {number: step for number, step in first.items() if number not in slots}
    offsets: dict[int, int] = {}
    blocks: dict[str, int] = {}
    placed: dict[str, _Placed] = {}
    for number in sorted(first, key=lambda each: (-schedule.buffers[each].nbytes, first[each])):
        spec = schedule.buffers[number]
        target = (targets or {}).get(spec.device)
        alignment = max(target.view_bytes, target.line_bytes) if target else Target.view_bytes
        size = -(-spec.nbytes // alignment) * alignment
        offset = placed.setdefault(spec.device, _Placed()).add(first[number], last[number], size)
        offsets[number] = offset
        blocks[spec.device] = max(blocks.get(spec.device, 0), offset + size)
    return MemoryPlan(offsets, blocks, slots)


def _slots(
    schedule: Schedule, numbers: Iterable[int], first: Mapping[int, int], last: Mapping[int, int]
) -> dict[int, int]:
    """A slot of its device for each of the buffers `numbers`, for its lifetime; preferably one that
    held a buffer as large.
    """
    slots: dict[int, int] = {}
    free_from: list[tuple[str, int, int]] = []
    for number in sorted(numbers, key=lambda each: (first[each], each)):
        spec = schedule.buffers[number]
        fits = [
            (abs(nbytes - spec.nbytes), slot)
            for slot, (device, nbytes, until) in enumerate(free_from)
            if device == spec.device and until < first[number]
        ]
        slot = min(fits)[1] if fits else len(free_from)
        if not fits:
            free_from.append((spec.device, spec.nbytes, last[number]))
        slots[number] = slot
        free_from[slot] = spec.device, max(free_from[slot][1], spec.nbytes), last[number]
    return slots


class _Placed:
    """The buffers that have an offset, by spans of steps. A buffer that lives shortly is in few
    spans, so few others are compared to place it. One that lives long, as the states of a recurrent
    network for its gradients, is in many spans; then all buffers are compared once.
    """

    def __init__(self) -> None:
        self._spans: dict[int, list[tuple[int, int, int, int]]] = {}
        self._all: list[tuple[int, int, int, int]] = []

    def add(self, first: int, last: int, size: int) -> int:
        """The lowest offset with `size` bytes that nothing alive between `first` and `last` uses,
        which is taken from now on.
        """
        spans = range(first // _SPAN, last // _SPAN + 1)
        near = [found for span in spans if (found := self._spans.get(span))]
        if sum(map(len, near)) > len(self._all):
            near = [self._all]
        taken = sorted(
            {
                (offset, length)
                for placed in near
                for offset, length, start, end in placed
                if start <= last and first <= end
            }
        )
        begin = 0
        for offset, length in taken:
            if begin + size <= offset:
                break
            begin = max(begin, offset + length)
        entry = begin, size, first, last
        self._all.append(entry)
        for span in spans:
            self._spans.setdefault(span, []).append(entry)
        return begin
