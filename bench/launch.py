"""What it costs to start work: launches, graphs of kernels, loading an object.

    python bench/launch.py

The kernels do next to nothing, so that only the way to them is measured. In the `meet` rows every
chunk waits for the others to have begun: a fork and join in which each thread takes part, not one
in which the caller was faster. Each figure is a median of samples, with the least one beside it;
`bench/results/launch.json` keeps the last run.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tilegrad.compile.llvm import compile_ir, host_target
from tilegrad.device.cpu_native import NODE, NativePool, this_system
from tilegrad.device.cpu_native_ir import source
from tilegrad.runtime import elf

ROOT = Path(__file__).parent
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


def sample(
    run: Callable[[], object], per: int, *, count: int = 40, pause: float = 0
) -> tuple[float, float]:
    """Nanoseconds of one of the `per` things that `run` does: median and least."""
    found = []
    for _ in range(count):
        time.sleep(pause)
        start = time.perf_counter_ns()
        run()
        found.append((time.perf_counter_ns() - start) / per)
    return statistics.median(found), min(found)


def measure() -> dict[str, tuple[float, float]]:
    figures: dict[str, tuple[float, float]] = {}
    _, cpu, features = host_target()
    text = source(this_system())
    figures["compile pool and graph runner"] = sample(
        lambda: compile_ir(text, cpu="generic", features=""), 1, count=5
    )
    code = compile_ir(_KERNELS, cpu=cpu, features=features)
    pool_code = compile_ir(text, cpu="generic", features="")
    figures["load an object of 4 kernels"] = sample(lambda: elf.load(code), 1)
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
    figures["native launch, 1 chunk"] = sample(
        lambda: repeat(launch, nothing, where, 1, 1000), 1000
    )
    figures["native launch, 2 chunks"] = sample(
        lambda: repeat(launch, nothing, where, 2, 1000), 1000
    )
    figures["native launch, 2 chunks that meet"] = sample(
        lambda: repeat(launch, meet, meet_where, 2, 1000), 1000
    )

    def from_python(kernel: int, arguments: int, chunks: int) -> None:
        for _ in range(1000):
            pool.launch(kernel, arguments, chunks)

    figures["python launch, 1 chunk"] = sample(lambda: from_python(nothing, where, 1), 1000)
    figures["python launch, 2 chunks that meet"] = sample(
        lambda: from_python(meet, meet_where, 2), 1000
    )

    nodes = bytearray(NODE.size * 100)
    for number in range(100):
        NODE.pack_into(nodes, number * NODE.size, add, where, 1)
    table = ctypes.addressof(ctypes.c_char.from_buffer(nodes))
    times = (ctypes.c_int64 * 100)()
    at = ctypes.addressof(times)

    def node_by_node() -> None:
        for _ in range(1000):
            pool.run_node(table)

    figures["python run_node, 256 floats"] = sample(node_by_node, 1000)
    figures["graph of 100, 256 floats: per kernel"] = sample(
        lambda: pool.run_graph(table, 100), 100
    )
    figures["timed graph of 100: per kernel"] = sample(
        lambda: pool.run_graph_timed(table, 100, at), 100
    )
    figures["python launch, thread asleep, 2 meet"] = sample(
        lambda: pool.launch(meet, meet_where, 2), 1, count=100, pause=0.002
    )
    figures["change the number of threads"] = sample(
        lambda: (pool.set_workers(2), from_python(nothing, where, 2)), 1
    )
    pool.close()
    return figures


def main() -> None:
    figures = measure()
    for name, (median, least) in figures.items():
        print(f"{name:40} {median:12,.1f} ns   least {least:12,.1f}")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    record = {
        "machine": f"{host_target()[1]}, {platform.machine()}, {platform.system()}",
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "figures": {
            name: {"median_ns": round(m, 1), "least_ns": round(b, 1)}
            for name, (m, b) in figures.items()
        },
    }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "launch.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
