"""Weights packed once: copies of a capture's state in the order in which its kernels read it.

What a kernel reads of memory that stays as it is need not be packed at each replay. A capture keeps
a copy (engine.prepack) and makes it anew when the memory has been written since, by whoever: each
write counts up the buffer's version. Captures that read the same memory in the same order share a
copy, which lives as long as one of them does.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tilegrad.capture.step import Step, is_native
from tilegrad.device.registry import Device
from tilegrad.engine.prepack import Operand, prepack
from tilegrad.engine.run import Launch, run_step
from tilegrad.runtime.buffer import Buffer

__all__ = ["Pack", "pack_steps"]


class Copy:
    """The packed value of some memory, as it was at `version`; -1 before it is made."""

    __slots__ = ("__weakref__", "buffer", "version")

    def __init__(self, buffer: Buffer):
        self.buffer = buffer
        self.version = -1


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

    @property
    def nbytes(self) -> int:
        return self.operand.size * self.operand.dtype.nbytes

    def bind(self, source: Buffer) -> Buffer:
        """The memory of the copy of `source`."""
        if self.copy is None or self._of is None or self._of() is not source:
            # What was copied before goes first, so that its memory serves again.
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
        if self.copy.version == source.watch() and source.is_private:
            return False
        kernel = self.operand.kernel
        run_step(Launch(self.device, kernel, (self.copy.buffer, source), (), ()), {}, replay=True)
        self.copy.version = source.version
        return True


def pack_steps(
    steps: Sequence[Step], steady: Collection[int], first: int
) -> tuple[list[Step], list[Pack]]:
    """The steps with those of the slots `steady` packed beforehand for which that pays; the copies
    have slots from `first` on.
    """
    packs: dict[tuple[str, int, str], Pack] = {}
    packed: list[Step] = []
    for step in steps:
        given = frozenset(place for place, slot in enumerate(step.slots) if slot in steady)
        found = None
        if given and is_native(step) and step.kernel is not None:
            found = prepack(step.device, step.kernel, given)
        if found is None:
            packed.append(step)
            continue
        slots = list(step.slots)
        for operand in found.operands:
            source = slots[operand.slot]
            name = (step.device, source, operand.kernel.key)
            if name not in packs:
                packs[name] = Pack(step.device, operand, source, first + len(packs))
            slots[operand.slot] = packs[name].slot
        packed.append(replace(step, kernel=found.kernel, slots=tuple(slots)))
    return packed, list(packs.values())
