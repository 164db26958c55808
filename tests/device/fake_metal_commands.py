"""Indirect command buffers of the GPU that `fake_metal` stands for: what is encoded into them, and
what of it a command buffer executes.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

__all__ = ["IndirectCommands", "Range", "Size", "Thing"]


class Size(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("width", "height", "depth")]


class Range(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("location", "length")]


class Thing:
    """An object: its class, how often it is held, and what it knows."""

    def __init__(self, kind: str, **facts: Any):
        self.kind, self.count, self.facts = kind, 1, facts


class IndirectCommands:
    """The methods of a GPU that are about indirect commands. `indirect` is the most of them that it
    holds in one buffer.
    """

    indirect: int
    things: dict[int, Thing]

    def thing(self, number: int) -> Thing:
        raise NotImplementedError

    def made(self, kind: str, **facts: Any) -> int:
        raise NotImplementedError

    def autoreleased(self, kind: str, **facts: Any) -> int:
        raise NotImplementedError

    def run(self, pipeline: Thing, arguments: list[Any], sizes: list[Any]) -> None:
        raise NotImplementedError

    def do_setCommandTypes_(self, this: int, thing: Thing, types: int) -> None:
        assert thing.kind == "MTLIndirectCommandBufferDescriptor"
        thing.facts["types"] = types

    def do_setInheritPipelineState_(self, this: int, thing: Thing, is_: bool) -> None:
        thing.facts["pipeline"] = is_

    def do_setInheritBuffers_(self, this: int, thing: Thing, is_: bool) -> None:
        thing.facts["buffers"] = is_

    def do_setMaxKernelBufferBindCount_(self, this: int, thing: Thing, count: int) -> None:
        assert count <= 31
        thing.facts["most"] = count

    def do_newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(
        self, this: int, thing: Thing, descriptor: int, count: int, options: int
    ) -> int:
        facts = self.thing(descriptor).facts
        # By default a command inherits both.
        assert facts == {**facts, "pipeline": False, "buffers": False, "types": 1 << 5}
        if count > self.indirect:
            return 0
        commands = [dict[str, Any]() for _ in range(count)]
        return self.made("IndirectCommandBuffer", commands=commands, most=facts["most"])

    def do_indirectComputeCommandAtIndex_(self, this: int, thing: Thing, index: int) -> int:
        return self.autoreleased("IndirectComputeCommand", of=this, index=index)

    def _command(self, thing: Thing) -> dict[str, Any]:
        """What a command has, which nobody may execute while it changes."""
        under_way = [
            each
            for each in [*self.things.values()]
            if each.kind == "CommandBuffer" and each.facts["state"] == "committed"
        ]
        for each in under_way:
            executed = [work[0] for work in each.facts["work"] if isinstance(work[0], int)]
            assert thing.facts["of"] not in executed, "a command changes while it is executed"
        found = self.thing(thing.facts["of"]).facts["commands"][thing.facts["index"]]
        assert isinstance(found, dict)
        return found

    def do_reset(self, this: int, thing: Thing) -> None:
        self._command(thing).clear()

    def do_setBarrier(self, this: int, thing: Thing) -> None:
        command = self._command(thing)
        assert "sizes" not in command, "a barrier is set before the command is encoded"
        command["barrier"] = True

    def do_setKernelBuffer_offset_atIndex_(
        self, this: int, thing: Thing, buffer: int, offset: int, index: int
    ) -> None:
        assert index < self.thing(thing.facts["of"]).facts["most"]
        assert offset < len(self.thing(buffer).facts["memory"])
        self._command(thing).setdefault("arguments", {})[index] = (buffer, offset)

    def do_concurrentDispatchThreadgroups_threadsPerThreadgroup_(
        self, this: int, thing: Thing, blocks: Size, lanes: Size
    ) -> None:
        command = self._command(thing)
        assert "sizes" not in command and "pipeline" in command, "a command is reset before"
        command["sizes"] = [(each.width, each.height, each.depth) for each in (blocks, lanes)]

    def do_useResources_count_usage_(
        self, this: int, thing: Thing, resources: Any, count: int, usage: int
    ) -> None:
        assert usage == 3, "kernels read and write"
        thing.facts.setdefault("resources", set()).update(resources[:count])

    def do_executeCommandsInBuffer_withRange_(
        self, this: int, thing: Thing, indirect: int, part: Range
    ) -> None:
        assert part.location + part.length <= len(self.thing(indirect).facts["commands"])
        work = (indirect, range(part.location, part.location + part.length),
                frozenset(thing.facts.get("resources", ())))  # fmt: skip
        thing.facts["commands"].facts["work"].append(work)

    def run_indirect(self, indirect: int, which: range, resources: frozenset[int]) -> None:
        """Commands between two barriers may come in any order: the last one comes first."""
        groups: list[list[dict[str, Any]]] = [[]]
        for index in which:
            command = self.thing(indirect).facts["commands"][index]
            groups += [[]] if command.get("barrier") else []
            groups[-1].append(command)
        for command in itertools.chain(*(group[::-1] for group in groups)):
            used = [command["arguments"][place] for place in range(len(command["arguments"]))]
            assert resources.issuperset(buffer for buffer, _ in used), "a buffer is not resident"
            memory = [(self.thing(buffer).facts["memory"], offset) for buffer, offset in used]
            pipeline = self.thing(command["pipeline"])
            assert pipeline.facts["indirect"], "a pipeline is not made for indirect commands"
            self.run(pipeline, memory, command["sizes"])
