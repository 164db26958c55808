"""What the instructions for sums of narrow products reach: bfloat16 pairs and int8 quadruples.

As `tilegrad.device.calibrate` does for float32: on registers alone, in as many independent chains
as hide their latency, on all threads, the best of several runs. Processors without them have no
such limit; what they reach is that of the wider numbers.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tilegrad import Device
from tilegrad.compile.llvm import host_target

__all__ = ["rates"]

_LANES, _CHAINS = 16, 20
_LEAST_S, _RUNS = 1e-3, 8
# The feature; the instruction, its accumulator and its operands; operations of one of its lanes.
_KINDS = {
    "bfloat16": (
        "+avx512bf16", "llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>", 4
    ),
    "int8": ("+avx512vnni", "llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", 8),
}  # fmt: skip
# args: operands, which nobody knows, and results; steps.
_LOOP = """
define void @{name}(ptr %args, i64 %chunk) nounwind {{
entry:
  %data = load ptr, ptr %args
  %steps_at = getelementptr i64, ptr %args, i64 1
  %steps = load i64, ptr %steps_at
  %f = load {operand}, ptr %data, align 64
  %g_at = getelementptr i8, ptr %data, i64 64
  %g = load {operand}, ptr %g_at, align 64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{carried}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %end
end:
{summed}
  %skip = add i64 %chunk, 2
  %place = getelementptr {sum}, ptr %data, i64 %skip
  store {sum} {total}, ptr %place, align 64
  ret void
}}
declare {sum} @{instruction}({sum}, {operand}, {operand})
"""


def _source(name: str) -> str:
    _, instruction, total, operand, _ = _KINDS[name]
    numbers = range(_CHAINS)
    add = "fadd" if "float" in total else "add"
    sums = ["%d0", *(f"%s{n}" for n in numbers[1:])]
    return _LOOP.format(
        name=name, instruction=instruction, sum=total, operand=operand, total=sums[-1],
        carried="\n".join(
            f"  %c{n} = phi {total} [zeroinitializer, %entry], [%d{n}, %loop]" for n in numbers
        ),
        steps="\n".join(
            f"  %d{n} = call {total} @{instruction}({total} %c{n}, {operand} %f, {operand} %g)"
            for n in numbers
        ),
        summed="\n".join(f"  %s{n} = {add} {total} {sums[n - 1]}, %d{n}" for n in numbers[1:]),
    )  # fmt: skip


def rates() -> dict[str, float]:
    """Operations a second, a multiply-add being two, of those that the processor has."""
    backend = Device["CPU"]
    runtime: Any = backend.runtime
    features = host_target()[2].split(",")
    threads = runtime.pool.workers
    found = {}
    for name, (feature, *_, ops) in _KINDS.items():
        if feature not in features:
            continue
        program = runtime.load(name, backend.compile(_source(name)))
        # From an address that suits vectors on.
        room = np.zeros(64 * (threads + 3), np.uint8)
        data = room[-room.ctypes.data % 64 :]

        def run(steps: int, program: Any = program, data: Any = data) -> float:
            start = time.perf_counter()
            runtime.launch(
                program, [data.ctypes.data], (steps,), (threads, 1, 1), (1, 1, 1), wait=True
            )
            return time.perf_counter() - start

        steps = 1 << 10
        while run(steps) < _LEAST_S:
            steps *= 2
        best = min(run(steps) for _ in range(_RUNS))
        found[name] = ops * _LANES * _CHAINS * threads * steps / best
    return found
