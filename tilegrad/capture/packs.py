"""Weights packed once: copies of a capture's state in the order in which its kernels read it.

Constant memory that a kernel reads need not be packed at each replay. A capture keeps a copy
(engine.build.prepacked_weights) and makes it anew when the memory has been written since: each
write counts up the buffer's version. Captures that read the same memory in the same order share a
copy, which lives as long as one of them does.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilegrad.capture.slots import ReplayStep, is_native
from tilegrad.device.cpu_native import machine_bytes
from tilegrad.device.registry import Device
from tilegrad.engine.build.prepacked_weights import Operand, prepack
from tilegrad.engine.run.run import Launch, run_step
from tilegrad.runtime.buffer import Buffer

__all__ = ["Pack", "pack_steps"]


class Copy:
    """The packed value of some memory, as it was at `version`; -1 before it is made."""

    __slots__ = ("__weakref__", "buffer", "version")

    def __init__(self, buffer: Buffer):
        self.buffer = buffer
        self.version = -1


# All copies together may take so much of the machine's memory.
_MOST = 1 / 8
_copies: weakref.WeakKeyDictionary[Buffer, weakref.WeakValueDictionary[str, Copy]]
_copies = weakref.WeakKeyDictionary()


@dataclass(eq=False)
class Pack:
    """One operand of a capture's kernels: the slot of its memory, and that of its copy."""

    device: str
    operand: Operand
    source: int
    slot: int
    copy: Copy | None = None
    _of: weakref.ref[Buffer] | None = None

    def bind(self, source: Buffer) -> Buffer:
        """The memory of the copy of `source`."""
        if self.copy is None or self._of is None or self._of() is not source:
            # The earlier copy is released first, so that its memory serves again.
            self.copy = None
            shared = _copies.setdefault(source, weakref.WeakValueDictionary())
            found = shared.get(self.operand.kernel.key)
            if found is None:
                memory = Device[self.device].buffer(self.operand.size, self.operand.dtype)
                found = shared[self.operand.kernel.key] = Copy(memory)
            self.copy, self._of = found, weakref.ref(source)
        return self.copy.buffer

    def refresh(self, source: Buffer) -> bool:
        """Make the copy anew if `source`, to which this is bound, was written since, or may have
        been; whether it was made.
        """
        assert self.copy is not None
        if self.copy.version == source.watch(has_copies=True) and source.is_private:
            return False
        kernel = self.operand.kernel
        run_step(Launch(self.device, kernel, (self.copy.buffer, source), (), ()), {}, replay=True)
        self.copy.version = source.version
        return True


def pack_steps(
    steps: Sequence[ReplayStep], steady: Mapping[int, int], first: int
) -> tuple[list[ReplayStep], list[Pack]]:
    """The steps with those of the slots `steady`, of that many bytes, packed beforehand for which
    that pays, as long as there is room; the copies have slots from `first` on.
    """
    packs: dict[tuple[str, int, str], Pack] = {}
    packed: list[ReplayStep] = []
    room = _room()
    used = {slot for step in steps for slot in step.slots if slot in steady}
    weight = sum(steady[slot] for slot in used)
    for step in steps:
        given = frozenset(number for number, slot in enumerate(step.slots) if slot in steady)
        found = None
        if given and is_native(step) and step.kernel is not None:
            is_far = weight > Device[step.device].target.cache_bytes[-1]
            found = prepack(step.device, step.kernel, given, is_far=is_far)
        slots = list(step.slots)
        wanted = {
            (step.device, slots[operand.slot], operand.kernel.key): operand
            for operand in (found.operands if found is not None else ())
        }
        nbytes = sum(each.nbytes for name, each in wanted.items() if name not in packs)
        if found is None or nbytes > room:
            packed.append(step)
            continue
        room -= nbytes
        for name, operand in wanted.items():
            if name not in packs:
                packs[name] = Pack(step.device, operand, name[1], first + len(packs))
            slots[operand.slot] = packs[name].slot
        packed.append(replace(step, kernel=found.kernel, slots=tuple(slots)))
    return packed, list(packs.values())


def _room() -> int:
    """How many bytes copies may take beside those that there are."""
    taken = sum(copy.buffer.nbytes for shared in _copies.values() for copy in shared.values())
    return int(machine_bytes() * _MOST) - taken
