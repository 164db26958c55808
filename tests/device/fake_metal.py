"""Metal without Apple's hardware: objects whose methods are Python functions of declared types, and
called through the machine's own calling convention.

`objc_msgSend` is one instruction, a jump to the method: a selector is the address of a callback.
So a caller that takes a method for another type passes its arguments in other registers, and fails
here as it would there. Objects are counted; what is used after its last release, or never given
back, is found. Kernels run in C++ (`tests.device.shim`), where there is a compiler.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import platform
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.device.fake_metal_commands import IndirectCommands, Range, Size, Thing
from tests.device.shim.device import SHIMS, ShimRuntime
from tilegrad.runtime.objective_c import ObjectiveC

__all__ = ["FakeMetal"]

# jmp *%rsi, and br x1: the second argument is the selector.
_JUMPS = {"x86_64": b"\xff\xe6", "arm64": b"\x20\x00\x1f\xd6", "aarch64": b"\x20\x00\x1f\xd6"}
IS_KNOWN = platform.machine() in _JUMPS

_Id, _Count, _Double = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double


# The methods that Apple documents (Metal, Foundation), by what they give and take.
METHODS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "name": (_Id, ()),
    "UTF8String": (_Id, ()),
    "stringWithUTF8String:": (_Id, (ctypes.c_char_p,)),
    "new": (_Id, ()),
    "retain": (_Id, ()),
    "release": (None, ()),
    "newCommandQueue": (_Id, ()),
    "maxBufferLength": (_Count, ()),
    "newBufferWithLength:options:": (_Id, (_Count, _Count)),
    "contents": (_Id, ()),
    "setFastMathEnabled:": (None, (ctypes.c_bool,)),
    "newLibraryWithSource:options:error:": (_Id, (_Id, _Id, ctypes.POINTER(_Id))),
    "newFunctionWithName:": (_Id, (_Id,)),
    "newComputePipelineStateWithFunction:error:": (_Id, (_Id, ctypes.POINTER(_Id))),
    "respondsToSelector:": (ctypes.c_bool, (_Id,)),
    "supportsFamily:": (ctypes.c_bool, (ctypes.c_ssize_t,)),
    "setComputeFunction:": (None, (_Id,)),
    "setSupportIndirectCommandBuffers:": (None, (ctypes.c_bool,)),
    "newComputePipelineStateWithDescriptor:options:reflection:error:": (
        _Id,
        (_Id, _Count, ctypes.POINTER(_Id), ctypes.POINTER(_Id)),
    ),
    "maxTotalThreadsPerThreadgroup": (_Count, ()),
    "setCommandTypes:": (None, (_Count,)),
    "setInheritPipelineState:": (None, (ctypes.c_bool,)),
    "setInheritBuffers:": (None, (ctypes.c_bool,)),
    "setMaxKernelBufferBindCount:": (None, (_Count,)),
    "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:": (_Id, (_Id, _Count, _Count)),
    "indirectComputeCommandAtIndex:": (_Id, (_Count,)),
    "reset": (None, ()),
    "setBarrier": (None, ()),
    "setKernelBuffer:offset:atIndex:": (None, (_Id, _Count, _Count)),
    "concurrentDispatchThreadgroups:threadsPerThreadgroup:": (None, (Size, Size)),
    "useResources:count:usage:": (None, (ctypes.POINTER(_Id), _Count, _Count)),
    "executeCommandsInBuffer:withRange:": (None, (_Id, Range)),
    "commandBuffer": (_Id, ()),
    "computeCommandEncoder": (_Id, ()),
    "setComputePipelineState:": (None, (_Id,)),
    "setBuffer:offset:atIndex:": (None, (_Id, _Count, _Count)),
    "setBytes:length:atIndex:": (None, (_Id, _Count, _Count)),
    "dispatchThreadgroups:threadsPerThreadgroup:": (None, (Size, Size)),
    "endEncoding": (None, ()),
    "commit": (None, ()),
    "waitUntilCompleted": (None, ()),
    "status": (_Count, ()),
    "error": (_Id, ()),
    "code": (_Count, ()),
    "localizedDescription": (_Id, ()),
    "GPUStartTime": (_Double, ()),
    "GPUEndTime": (_Double, ()),
}


class FakeMetal(IndirectCommands):
    """One GPU. `calls` are the messages in their order: class and selector.

    Args:
        has_gpu: whether the system has one.
        lanes: the most of a block of any kernel.
        refuses: what the compiler says against every text.
        fails: description and code of the error of every launch.
        room: bytes of all buffers.
        family: the newest family of the GPU; 0 on a system that knows of none.
        indirect: the most commands of an indirect command buffer; 0 where no kernel can be one.
    """

    def __init__(
        self,
        *,
        has_gpu: bool = True,
        lanes: int = 1024,
        refuses: str = "",
        fails: tuple[str, int] | None = None,
        room: int = 1 << 28,
        family: int = 1009,
        indirect: int = 1 << 14,
    ):
        self.has_gpu, self.lanes, self.refuses, self.fails = has_gpu, lanes, refuses, fails
        self.room, self.family, self.indirect = room, family, indirect
        self.calls: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.things: dict[int, Thing] = {}
        self._pools: list[list[int]] = []
        self._numbers = itertools.count(0x1000, 16)
        self._folder = tempfile.TemporaryDirectory()
        self._shim = ShimRuntime(SHIMS["METAL"], Path(self._folder.name))
        self._callbacks: dict[str, Any] = {}
        self._selectors: dict[int, str] = {}
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=7)
        self._code.write(_JUMPS[platform.machine()])
        self.objc = ObjectiveC(self._runtime(), self)

    # the runtime of the language

    def _runtime(self) -> Any:
        class Runtime:
            objc_getClass = ctypes.CFUNCTYPE(_Id, ctypes.c_char_p)(self._class)
            sel_registerName = ctypes.CFUNCTYPE(_Id, ctypes.c_char_p)(self._selector)
            objc_autoreleasePoolPush = ctypes.CFUNCTYPE(_Id)(self._push)
            objc_autoreleasePoolPop = ctypes.CFUNCTYPE(None, _Id)(self._pop)
            objc_msgSend = ctypes.CFUNCTYPE(None)(
                ctypes.addressof(ctypes.c_char.from_buffer(self._code))
            )

        return Runtime

    @property
    def MTLCreateSystemDefaultDevice(self) -> Any:
        def create() -> int:
            return self.made("Device") if self.has_gpu else 0

        self._create = ctypes.CFUNCTYPE(_Id)(create)
        return self._create

    def _class(self, name: bytes) -> int:
        return next(
            (number for number, each in self._all() if each.kind == f"class {name!r}"),
            0,
        ) or self.made(f"class {name!r}", of=name.decode())

    def _selector(self, name: bytes) -> int | None:
        selector = name.decode()
        if selector not in self._callbacks:
            result, types = METHODS[selector]
            python = selector.replace(":", "_")

            def method(this: int, _: int, *arguments: Any) -> Any:
                try:
                    thing = self.thing(this)
                    self.calls.append((thing.kind, selector))
                    return getattr(self, f"do_{python}")(this, thing, *arguments) or 0
                except Exception as error:
                    self.wrong.append(f"{selector}: {error!r}")
                    return 0

            done = (lambda *all_: (method(*all_), None)[1]) if result is None else method
            self._callbacks[selector] = ctypes.CFUNCTYPE(result, _Id, _Id, *types)(done)
        number = ctypes.cast(self._callbacks[selector], _Id).value
        self._selectors[number or 0] = selector
        return number

    def _push(self) -> int:
        self._pools.append([])
        return len(self._pools)

    def _pop(self, depth: int) -> None:
        if depth != len(self._pools):
            self.wrong.append("a pool ends that is not the innermost")
        for number in self._pools.pop():
            self._drop(number)

    # objects

    def made(self, kind: str, **facts: Any) -> int:
        number = next(self._numbers)
        self.things[number] = Thing(kind, **facts)
        return number

    def autoreleased(self, kind: str, **facts: Any) -> int:
        number = self.made(kind, **facts)
        if not self._pools:
            self.wrong.append(f"a {kind} without a pool is never given back")
        else:
            self._pools[-1].append(number)
        return number

    def thing(self, number: int) -> Thing:
        found = self.things.get(number)
        if found is None:
            raise KeyError(f"message to {number:#x}, which is gone or never was")
        return found

    def _all(self) -> list[tuple[int, Thing]]:
        """All objects now: a collection of garbage gives some back at any moment."""
        return [*self.things.items()]

    def _drop(self, number: int) -> None:
        thing = self.thing(number)
        thing.count -= 1
        if not thing.count:
            if thing.kind == "CommandBuffer" and thing.facts["state"] == "committed":
                self.wrong.append("a command buffer under way was given back")
            if thing.kind == "ComputeCommandEncoder":
                # Apple's framework ends the process.
                if thing.facts["commands"].facts["state"] == "encoding":
                    self.wrong.append("an encoder was given back that was not ended")
            del self.things[number]

    def alive(self) -> Counter[str]:
        """How many objects there are of each class, without classes."""
        return Counter(t.kind for _, t in self._all() if not t.kind.startswith("class"))

    def text(self, number: int) -> str:
        return str(self.thing(number).facts["text"])

    # their methods

    def do_name(self, this: int, thing: Thing) -> int:
        return self.autoreleased("String", text="Apple M9")

    def do_UTF8String(self, this: int, thing: Thing) -> int | None:
        thing.facts["bytes"] = ctypes.create_string_buffer(thing.facts["text"].encode())
        return ctypes.addressof(thing.facts["bytes"])

    def do_stringWithUTF8String_(self, this: int, thing: Thing, text: bytes) -> int:
        assert thing.facts["of"] == "NSString"
        return self.autoreleased("String", text=text.decode())

    def do_new(self, this: int, thing: Thing) -> int:
        return self.made(thing.facts["of"])

    def do_retain(self, this: int, thing: Thing) -> int:
        thing.count += 1
        return this

    def do_release(self, this: int, thing: Thing) -> None:
        self._drop(this)

    def do_newCommandQueue(self, this: int, thing: Thing) -> int:
        return self.made("CommandQueue")

    def do_maxBufferLength(self, this: int, thing: Thing) -> int:
        return 1 << 27

    def do_newBufferWithLength_options_(
        self, this: int, thing: Thing, length: int, options: int
    ) -> int:
        assert options == 0, "memory that the host does not see"
        used = sum(len(t.facts["memory"]) for _, t in self._all() if t.kind == "Buffer")
        if used + length > self.room:
            return 0
        return self.made("Buffer", memory=ctypes.create_string_buffer(length))

    def do_contents(self, this: int, thing: Thing) -> int:
        return ctypes.addressof(thing.facts["memory"])

    def do_setFastMathEnabled_(self, this: int, thing: Thing, is_fast: bool) -> None:
        assert thing.kind == "MTLCompileOptions"
        thing.facts["fast"] = is_fast

    def do_newLibraryWithSource_options_error_(
        self, this: int, thing: Thing, source: int, options: int, error: Any
    ) -> int:
        assert self.thing(options).facts["fast"] is False
        if self.refuses:
            error[0] = self.autoreleased("Error", text=self.refuses, code=3)
            return 0
        return self.made("Library", source=self.text(source))

    def do_newFunctionWithName_(self, this: int, thing: Thing, name: int) -> int:
        source = thing.facts["source"]
        wanted = f"kernel void {self.text(name)}("
        return self.made("Function", source=source) if wanted in source else 0

    def do_newComputePipelineStateWithFunction_error_(
        self, this: int, thing: Thing, function: int, error: Any
    ) -> int:
        return self.made("ComputePipelineState", indirect=False, **self.thing(function).facts)

    def do_respondsToSelector_(self, this: int, thing: Thing, selector: int) -> bool:
        name = self._selectors[selector]
        return name in METHODS and (bool(self.family) or name != "supportsFamily:")

    def do_supportsFamily_(self, this: int, thing: Thing, family: int) -> bool:
        return family <= self.family

    def do_setComputeFunction_(self, this: int, thing: Thing, function: int) -> None:
        assert thing.kind == "MTLComputePipelineDescriptor"
        thing.facts["function"] = self.thing(function)

    def do_setSupportIndirectCommandBuffers_(self, this: int, thing: Thing, is_: bool) -> None:
        thing.facts["indirect"] = is_

    def do_newComputePipelineStateWithDescriptor_options_reflection_error_(
        self, this: int, thing: Thing, descriptor: int, options: int, reflection: Any, error: Any
    ) -> int:
        facts = self.thing(descriptor).facts
        if facts["indirect"] and not self.indirect:
            text = "Compute function cannot be used with indirect command buffers"
            error[0] = self.autoreleased("Error", text=text, code=3)
            return 0
        made: dict[str, Any] = {**facts["function"].facts, "indirect": facts["indirect"]}
        return self.made("ComputePipelineState", **made)

    def do_maxTotalThreadsPerThreadgroup(self, this: int, thing: Thing) -> int:
        return self.lanes

    def do_commandBuffer(self, this: int, thing: Thing) -> int:
        return self.autoreleased("CommandBuffer", state="open", work=[])

    def do_computeCommandEncoder(self, this: int, thing: Thing) -> int:
        assert thing.facts["state"] == "open"
        thing.facts["state"] = "encoding"
        return self.autoreleased("ComputeCommandEncoder", commands=thing, arguments={})

    def do_setComputePipelineState_(self, this: int, thing: Thing, pipeline: int) -> None:
        if thing.kind == "IndirectComputeCommand":
            self._command(thing)["pipeline"] = pipeline
        else:
            thing.facts["pipeline"] = self.thing(pipeline)

    def do_setBuffer_offset_atIndex_(
        self, this: int, thing: Thing, buffer: int, offset: int, index: int
    ) -> None:
        # What a command buffer uses, it holds.
        memory = self.thing(buffer).facts["memory"]
        assert offset < len(memory)
        thing.facts["arguments"][index] = (memory, offset)

    def do_setBytes_length_atIndex_(
        self, this: int, thing: Thing, data: int, length: int, index: int
    ) -> None:
        held = ctypes.create_string_buffer(ctypes.string_at(data, length), length)
        thing.facts["arguments"][index] = (held, 0)

    def do_dispatchThreadgroups_threadsPerThreadgroup_(
        self, this: int, thing: Thing, blocks: Size, lanes: Size
    ) -> None:
        facts = thing.facts
        sizes = [(each.width, each.height, each.depth) for each in (blocks, lanes)]
        assert all(count > 0 for size in sizes for count in size)
        arguments = [facts["arguments"][place] for place in range(len(facts["arguments"]))]
        facts["commands"].facts["work"].append((facts["pipeline"], arguments, sizes))

    def do_endEncoding(self, this: int, thing: Thing) -> None:
        assert thing.facts["commands"].facts["state"] == "encoding"
        thing.facts["commands"].facts["state"] = "encoded"

    def do_commit(self, this: int, thing: Thing) -> None:
        assert thing.facts["state"] == "encoded"
        thing.facts["state"] = "committed"

    def do_waitUntilCompleted(self, this: int, thing: Thing) -> None:
        assert thing.facts["state"] == "committed", thing.facts["state"]
        # As late as the queue allows: what reads too early reads what was there before.
        for each in [*self.things.values()]:
            if each.kind == "CommandBuffer" and each.facts["state"] == "committed":
                each.facts["state"] = "failed" if self.fails else "completed"
                for work in each.facts["work"] if not self.fails else ():
                    run = self.run_indirect if isinstance(work[0], int) else self.run
                    run(*work)
            if each is thing:
                break

    def run(self, pipeline: Thing, arguments: list[Any], sizes: list[Any]) -> None:
        facts = pipeline.facts
        if "program" not in facts:
            text = facts["source"].partition("\n")[2]
            facts["program"] = self._shim.load("", self._shim.compile(text))
        _, function, meets, _ = facts["program"]
        pointers = [ctypes.addressof(memory) + offset for memory, offset in arguments]
        counts = [(ctypes.c_uint * 3)(*size) for size in sizes]
        wrong = function((ctypes.c_void_p * max(len(pointers), 1))(*pointers), *counts, meets)
        assert not wrong, f"lane {wrong - 1} waits where lane 0 does not"

    def do_status(self, this: int, thing: Thing) -> int:
        return {"completed": 4, "failed": 5}.get(thing.facts["state"], 2)

    def do_error(self, this: int, thing: Thing) -> int:
        assert self.fails is not None
        return self.autoreleased("Error", text=self.fails[0], code=self.fails[1])

    def do_code(self, this: int, thing: Thing) -> int:
        return int(thing.facts["code"])

    def do_localizedDescription(self, this: int, thing: Thing) -> int:
        return self.autoreleased("String", text=thing.facts["text"])

    def do_GPUStartTime(self, this: int, thing: Thing) -> float:
        return 10.0

    def do_GPUEndTime(self, this: int, thing: Thing) -> float:
        return 10.25
