"""What it costs to start work: launches, graphs of kernels, loading an object.

    python bench/launch.py

The kernels do next to nothing, so that only the way to them is measured. In the `meet` rows every
chunk waits for the others to have begun: a fork and join in which each thread takes part, not one
in which the caller was faster. The figures take turns; each is a median of samples, with quartiles
and the least one beside it. `bench/results/launch.json` keeps the last run.
"""

from __future__ import annotations

import ctypes
import time

from common import Taker, in_turns, measure_and_keep, nanoseconds

from tilegrad.compile.llvm import compile_ir, host_target
from tilegrad.device.cpu_native import NODE, NativePool, this_system
from tilegrad.device.cpu_native_ir import source
from tilegrad.runtime import elf

_KERNELS = """
define void @nothing(ptr %args, i64 %chunk) nounwind {
  ret void
}

; args: a counter, and how many chunks meet
define void @meet(ptr %args, i64 %chunk) nounwind {
  %counter = load ptr, ptr %args
  %place = getelementptr i64, ptr %args, i64 1
  %size = load i64, ptr %place
  %before = atomicrmw add ptr %counter, i64 1 seq_cst
  %rest = urem i64 %before, %size
  %first = sub i64 %before, %rest
  %goal = add i64 %first, %size
  br label %wait
wait:
  %now = load atomic i64, ptr %counter seq_cst, align 8
  %come = icmp uge i64 %now, %goal
  br i1 %come, label %end, label %wait
end:
  ret void
}

define void @add(ptr %args, i64 %chunk) nounwind {
entry:
  %data = load ptr, ptr %args
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %place = getelementptr float, ptr %data, i64 %i
  %a = load <16 x float>, ptr %place, align 4
  %b = fadd <16 x float> %a, %a
  store <16 x float> %b, ptr %place, align 4
  %next = add i64 %i, 16
  %more = icmp ult i64 %next, 256
  br i1 %more, label %loop, label %end
end:
  ret void
}

define void @repeat(ptr %launch, ptr %kernel, ptr %args, i64 %chunks, i64 %times) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  call void %launch(ptr %kernel, ptr %args, i64 %chunks)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def measure(count: int) -> dict[str, list[float]]:
    _, cpu, features = host_target()
    text = source(this_system())
    code = compile_ir(_KERNELS, cpu=cpu, features=features)
    pool_code = compile_ir(text, cpu="generic", features="", opt=0)
    kernels = elf.load(code)
    nothing, meet, add = (kernels.address(name) for name in ("nothing", "meet", "add"))
    data, counter = (ctypes.c_float * 256)(), ctypes.c_int64()
    args = (ctypes.c_void_p * 2)(ctypes.addressof(data))
    meeting = (ctypes.c_void_p * 2)(ctypes.addressof(counter), 2)
    where, meet_where = ctypes.addressof(args), ctypes.addressof(meeting)

    pool = NativePool(pool_code, workers=2)
    repeat = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)(
        kernels.address("repeat")
    )
    launch = pool._object.address("launch")

    def native(kernel: int, arguments: int, chunks: int) -> Taker:
        return nanoseconds(lambda: repeat(launch, kernel, arguments, chunks, 1000), per=1000)

    def from_python(kernel: int, arguments: int, chunks: int) -> Taker:
        def run() -> None:
            for _ in range(1000):
                pool.launch(kernel, arguments, chunks)

        return nanoseconds(run, per=1000)

    nodes = bytearray(NODE.size * 100)
    for number in range(100):
        NODE.pack_into(nodes, number * NODE.size, add, where, 1)
    table = ctypes.addressof(ctypes.c_char.from_buffer(nodes))
    times = (ctypes.c_int64 * 100)()
    at = ctypes.addressof(times)

    def asleep() -> float:
        time.sleep(0.002)
        return nanoseconds(lambda: pool.launch(meet, meet_where, 2))()

    def node_by_node() -> None:
        for _ in range(1000):
            pool.run_node(table)

    launched = from_python(nothing, where, 2)

    def resize() -> None:
        pool.set_workers(2)
        launched()

    found = in_turns(
        {
            "load an object of 4 kernels": nanoseconds(lambda: elf.load(code)),
            "native launch, 1 chunk": native(nothing, where, 1),
            "native launch, 2 chunks": native(nothing, where, 2),
            "native launch, 2 chunks that meet": native(meet, meet_where, 2),
            "python launch, 1 chunk": from_python(nothing, where, 1),
            "python launch, 2 chunks that meet": from_python(meet, meet_where, 2),
            "python run_node, 256 floats": nanoseconds(node_by_node, per=1000),
            "graph of 100, 256 floats: per kernel": nanoseconds(
                lambda: pool.run_graph(table, 100), per=100
            ),
            "timed graph of 100: per kernel": nanoseconds(
                lambda: pool.run_graph_timed(table, 100, at), per=100
            ),
            "python launch, thread asleep, 2 meet": asleep,
            "change the number of threads, 1000 launches": nanoseconds(resize),
        },
        count,
    )
    pool.close()
    compiling = nanoseconds(lambda: compile_ir(text, cpu="generic", features="", opt=0))
    rare = in_turns({"compile pool and graph runner": compiling}, max(count // 8, 1))
    return {**rare, **found}


if __name__ == "__main__":
    measure_and_keep("launch", __doc__, measure, 40)
