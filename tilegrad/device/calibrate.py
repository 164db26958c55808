"""Ceilings of this machine: operations and bytes a second, measured, for reports only.

A time means little beside a number from a data sheet, so kernels are compared with what this
machine does when nothing else is asked of it:

* operations: float32 multiply-adds on registers alone, in as many independent chains as hide their
  latency;
* bytes: copies of several sizes, since each cache has a speed of its own. Past the
  last cache its stores go around the caches, which is the fastest way to memory.

Both are kernels as the CPU device runs them, unrolled by hand, on all threads of the pool. The
best of several runs counts. It is kept on disk if the threads had their cores to themselves. No
plan and no Opt depends on it, so that plans are the same on a busy machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from tilegrad.base import cache
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend
from tilegrad.device.cpu import CpuRuntime
from tilegrad.device.registry import Device

__all__ = ["Ceilings", "ceilings"]

# The version of the figures on disk.
_VERSION = "2"
# Long against a launch, short against the machine's other work.
_LEAST_S = 1e-3
# The most and the least runs of a kernel, and the seconds after which the least are enough.
_RUNS, _LEAST_RUNS, _ENOUGH_S = 12, 3, 0.1
# Size that no cache holds: 8 times the last one, or twice where that is more than 256 MiB, as on
# servers that lend a process some cores and show it the whole cache.
_PAST_CACHES, _PAST_LARGE_CACHES, _LARGE = 8, 2, 1 << 28
# The part of their time that threads spend running on a quiet machine.
_ALONE = 0.9


@dataclass(frozen=True)
class Ceilings:
    """Measured ceilings of a device.

    Attributes:
        flops: float32 operations a second, a multiply-add being two.
        copies: (bytes, bytes a second), the smallest first: a copy that touches as many bytes,
            read and written together, moves as many a second. The last is memory.
    """

    flops: float
    copies: tuple[tuple[int, float], ...]

    @property
    def memory(self) -> float:
        """Bytes a second, read and written together, where no cache helps."""
        return self.copies[-1][1]

    def bandwidth(self, nbytes: int) -> float:
        """Bytes a second for a kernel that touches `nbytes`."""
        return next((rate for size, rate in self.copies if nbytes <= size), self.memory)

    def least_seconds(self, ops: int, nbytes: int) -> float:
        """The time of a kernel that is bound by nothing but arithmetic or bytes."""
        return max(ops / self.flops, nbytes / self.bandwidth(nbytes))


def ceilings(device: str = "", *, renew: bool = False) -> Ceilings:
    """The ceilings of a CPU device, by default the default one: as measured before, or now, which
    takes a second or less. `renew` measures anyway.

    Raises DeviceError for devices of other kinds.
    """
    backend = Device[device or Device.DEFAULT]
    runtime = backend.runtime
    if not isinstance(runtime, CpuRuntime):
        raise DeviceError(
            f"calibrate: {backend.name} has no measured ceilings", rule="only CPU devices have them"
        )
    key = cache.digest(_VERSION, repr(backend.target), backend.compiler, str(runtime.pool.workers))
    known = None if renew else cache.get("ceilings", key)
    if known is not None:
        # An entry that cannot be parsed is measured again.
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            fields = json.loads(known)
            copies = tuple((int(size), float(rate)) for size, rate in fields["copies"])
            return Ceilings(float(fields["flops"]), copies)
    meter = _Meter(runtime, backend)
    found = meter.ceilings()
    if meter.was_alone:
        cache.put("ceilings", key, json.dumps(asdict(found)).encode())
    return found


# args: where to store what was computed, so that it is; steps.
_MULTIPLY_ADD = """
define void @multiply_add(ptr %args, i64 %chunk) nounwind {{
entry:
  %out = load ptr, ptr %args
  %steps_at = getelementptr i64, ptr %args, i64 1
  %steps = load i64, ptr %steps_at
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{carried}
{multiplied}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %end
end:
{added}
  %place = getelementptr {vector}, ptr %out, i64 %chunk
  store {vector} {total}, ptr %place, align 4
  ret void
}}
declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})
"""

# args: to, from, bytes of a chunk, how often a chunk is copied.
_COPY = """
define void @{name}(ptr %args, i64 %chunk) nounwind {{
entry:
  %to_base = load ptr, ptr %args
  %from_at = getelementptr i64, ptr %args, i64 1
  %from_base = load ptr, ptr %from_at
  %bytes_at = getelementptr i64, ptr %args, i64 2
  %bytes = load i64, ptr %bytes_at
  %times_at = getelementptr i64, ptr %args, i64 3
  %times = load i64, ptr %times_at
  %skip = mul i64 %bytes, %chunk
  %to = getelementptr i8, ptr %to_base, i64 %skip
  %from = getelementptr i8, ptr %from_base, i64 %skip
  br label %again
again:
  %t = phi i64 [0, %entry], [%t_next, %done]
  br label %loop
loop:
  %i = phi i64 [0, %again], [%next, %loop]
{moved}
  %next = add i64 %i, {step}
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %loop, label %done
done:
  %t_next = add i64 %t, 1
  %once_more = icmp ult i64 %t_next, %times
  br i1 %once_more, label %again, label %end
end:
  ret void
}}
"""
_UNROLL = 4


def _source(lanes: int, chains: int) -> str:
    """The kernels as one module of LLVM IR, for vectors of `lanes` floats."""
    vector = f"<{lanes} x float>"
    numbers = range(chains)
    # Each chain starts at a value of its own, so that no two are the same computation. A factor
    # below one keeps the values where arithmetic has one speed.
    carried = [
        f"  %c{n} = phi {vector} [splat (float {n}.0), %entry], [%d{n}, %loop]" for n in numbers
    ]
    constants = f"{vector} splat (float 0.5), {vector} splat (float 1.0)"
    multiplied = [
        f"  %d{n} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %c{n}, {constants})"
        for n in numbers
    ]
    sums = ["%d0", *(f"%s{n}" for n in numbers[1:])]
    added = [f"  %s{n} = fadd {vector} {sums[n - 1]}, %d{n}" for n in numbers[1:]]
    first = _MULTIPLY_ADD.format(
        vector=vector,
        lanes=lanes,
        carried="\n".join(carried),
        multiplied="\n".join(multiplied),
        added="\n".join(added),
        total=sums[-1],
    )
    copies = [_copy("copy", lanes, ""), _copy("copy_past", lanes, ", !nontemporal !0")]
    return "\n".join([first, *copies, "!0 = !{i32 1}", ""])


def _copy(name: str, lanes: int, hint: str) -> str:
    vector, size = f"<{lanes} x float>", 4 * lanes
    copies = range(_UNROLL)
    offsets = [f"  %at{n} = add i64 %i, {n * size}" for n in copies]
    loads = [
        f"  %p{n} = getelementptr i8, ptr %from, i64 %at{n}\n"
        f"  %v{n} = load {vector}, ptr %p{n}, align {size}"
        for n in copies
    ]
    stores = [
        f"  %q{n} = getelementptr i8, ptr %to, i64 %at{n}\n"
        f"  store {vector} %v{n}, ptr %q{n}, align {size}{hint}"
        for n in copies
    ]
    return _COPY.format(name=name, moved="\n".join(offsets + loads + stores), step=_UNROLL * size)


class _Meter:
    """Runs the kernels in one chunk a thread.

    Attributes:
        was_alone: whether the threads had their cores to themselves in the runs that counted.
    """

    def __init__(self, runtime: CpuRuntime, backend: Backend):
        target = backend.target
        self.was_alone = True
        self._runtime, self._target = runtime, target
        self._threads = runtime.pool.workers
        self._lanes = max(target.lanes_of(dtypes.float32), 1)
        # The rest of the registers holds the factor and the term.
        self._chains = max(target.registers - 4, 8)
        self._binary = backend.compile(_source(self._lanes, self._chains))

    def ceilings(self) -> Ceilings:
        """Everything, measured."""
        *near, last = self._target.cache_bytes
        past = max(min(_PAST_CACHES * last, _LARGE), _PAST_LARGE_CACHES * last)
        sizes = (last, *(self._threads * size for size in reversed(near)))
        with self._memory(max(past, *sizes) // 2) as memory:
            rate = max(self._copied(name, past, memory) for name in ("copy", "copy_past"))
            copies = [(past, rate)]
            for size in sizes:
                # The rate of a larger copy can be reached by a smaller one by the same means.
                rate = max(rate, self._copied("copy", size // 2, memory))
                copies.insert(0, (size, rate))
        return Ceilings(self._multiplied(), tuple(copies))

    def _multiplied(self) -> float:
        """Operations a second."""
        with self._memory(4 * self._lanes * self._threads) as (result, _):
            steps, seconds = self._best("multiply_add", [result])
        return 2 * self._lanes * self._chains * self._threads * steps / seconds

    def _copied(self, name: str, nbytes: int, memory: tuple[int, int]) -> float:
        """Bytes a second of a copy that touches `nbytes` of two blocks of memory, read and written
        together.
        """
        step = _UNROLL * 4 * self._lanes
        half = max(nbytes // 2 // self._threads // step, 1) * step
        times, seconds = self._best(name, memory, half)
        return 2 * half * self._threads * times / seconds

    def _best(self, name: str, memory: Sequence[int], *values: int) -> tuple[int, float]:
        """How often to repeat for a time that can be measured, and the least time of several runs.
        The last value that the kernel takes is this number.
        """
        program = self._runtime.load(name, self._binary)

        def run(times: int) -> tuple[float, float]:
            before = time.process_time()
            chunks = (self._threads, 1, 1)
            taken = self._runtime.launch(
                program, memory, (*values, times), chunks, (1, 1, 1), wait=True
            )
            assert taken is not None
            return taken, time.process_time() - before

        times = 1
        while run(times)[0] < _LEAST_S:
            times *= 2
        runs = [run(times) for _ in range(_LEAST_RUNS)]
        while len(runs) < _RUNS and sum(seconds for seconds, _ in runs) < _ENOUGH_S:
            runs.append(run(times))
        seconds, worked = min(runs)
        self.was_alone = self.was_alone and worked > _ALONE * seconds * self._threads
        return times, seconds

    @contextmanager
    def _memory(self, nbytes: int) -> Iterator[tuple[int, int]]:
        """Two buffers for a block."""
        with ExitStack() as stack:
            handles = []
            for _ in range(2):
                handle = self._runtime.allocate(nbytes)
                stack.callback(self._runtime.free, handle, nbytes)
                # Pages without a write are all one page of zeros, which is in the cache.
                ctypes.memset(handle, 1, nbytes)
                handles.append(handle)
            yield handles[0], handles[1]
