"""Kernels shaped by hand-written Opts, against what one core can do.

    python bench/limits.py

Each contraction runs on one core by the same four kinds of Opts. Its limit is a loop on registers
alone with the arithmetic of the inner step as it is written, in as many independent chains as hide
the latency: a multiply-add; an addition and a maximum, which tests for no NaN; a multiplication and
two maxima. The limit of the row-wise kernels, which run on all threads as the heuristic shapes
them, is the fastest copy of memory past the caches.

Limit and kernel take turns, and a share is the median over the rounds. Values are checked against
NumPy. `bench/results/limits.json` keeps the last run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import keep, record_of

from tilegrad import Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.device.calibrate import ceilings
from tilegrad.engine.build.pipeline import compile_kernel
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.schedule.schedule import make_schedule

M, K, N = 1000, 999, 1001
# The rows that are compared.
FEW = slice(0, None, 97)
# The inner step of a contraction, from a carried %c and two factors: what gives %d.
_STEPS = {
    "multiply-add": "%d{n} = call {v} @llvm.fmuladd.v{lanes}f32({v} %c{n}, {v} %f, {v} %g)",
    "add, maximum": """%s{n} = fadd {v} %c{n}, %f
  %t{n} = fcmp ogt {v} %s{n}, %g
  %d{n} = select <{lanes} x i1> %t{n}, {v} %s{n}, {v} %g""",
    "multiply, two maxima": """%s{n} = fmul {v} %c{n}, %f
  %t{n} = fcmp ogt {v} %s{n}, %g
  %r{n} = select <{lanes} x i1> %t{n}, {v} %s{n}, {v} %g
  %u{n} = fcmp ogt {v} %r{n}, %h
  %d{n} = select <{lanes} x i1> %u{n}, {v} %r{n}, {v} %h""",
}
# args: where the factors are and the sum goes, and how many steps.
_LOOP = """
define void @limit(ptr %args, i64 %chunk) nounwind {{
entry:
  %data = load ptr, ptr %args
  %steps_at = getelementptr i64, ptr %args, i64 1
  %steps = load i64, ptr %steps_at
  %f = load {v}, ptr %data, align 4
  %g_at = getelementptr {v}, ptr %data, i64 1
  %g = load {v}, ptr %g_at, align 4
  %h_at = getelementptr {v}, ptr %data, i64 2
  %h = load {v}, ptr %h_at, align 4
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
  store {v} {total}, ptr %data, align 4
  ret void
}}
declare {v} @llvm.fmuladd.v{lanes}f32({v}, {v}, {v})
"""


def limit_source(step: str, lanes: int, chains: int) -> str:
    v = f"<{lanes} x float>"
    numbers = range(chains)
    carried = [f"  %c{n} = phi {v} [splat (float {n}.0), %entry], [%d{n}, %loop]" for n in numbers]
    steps = ["  " + _STEPS[step].format(n=n, v=v, lanes=lanes) for n in numbers]
    totals = ["%d0", *(f"%total{n}" for n in numbers[1:])]
    summed = [f"  %total{n} = fadd {v} {totals[n - 1]}, %d{n}" for n in numbers[1:]]
    parts = {name: "\n".join(lines) for name, lines in (("carried", carried), ("steps", steps))}
    return _LOOP.format(v=v, lanes=lanes, summed="\n".join(summed), total=totals[-1], **parts)


class Limit:
    """The loop on registers: inner steps a second on one core."""

    def __init__(self, step: str):
        backend = Device["CPU"]
        lanes = max(backend.target.lanes_of(dtypes.float32), 1)
        chains = max(backend.target.registers - 4, 8)
        self._runtime = backend.runtime
        binary = backend.compile(limit_source(step, lanes, chains))
        self._program = self._runtime.load("limit", binary)
        self._data = np.full(3 * lanes, 0.5, np.float32)
        self._steps = 200_000
        self._work = self._steps * lanes * chains

    def __call__(self) -> float:
        self._data[:] = 0.5
        start = time.perf_counter()
        self._runtime.launch(
            self._program, [self._data.ctypes.data], (self._steps,), (1, 1, 1), (1, 1, 1), wait=True
        )
        return self._work / (time.perf_counter() - start)


@dataclass
class Work:
    """A kernel: its graph, its Opts (None: the heuristic's), its arrays, and what to compare with.

    Attributes:
        steps: inner steps of a contraction, or bytes of a row-wise kernel.
        flops: operations of one inner step, 0 for bytes.
    """

    name: str
    tensor: Tensor
    opts: Sequence[Opt] | None
    arrays: list[Any]
    expected: Callable[[], Any]
    steps: int
    limit: str
    flops: int = 0

    def check(self) -> None:
        """Raise AssertionError unless every 97th row is right."""
        result = self.arrays[0].reshape(-1, self.arrays[0].shape[-1])
        np.testing.assert_allclose(result[FEW], self.expected(), rtol=2e-5, atol=2e-5)


class Launch:
    """A compiled kernel: units of work a second."""

    def __init__(self, work: Work):
        backend = Device["CPU"]
        graph = normalise(UOp.sink(work.tensor.uop)).numbered()
        items = make_schedule(graph, {"CPU": backend.target}, "CPU", plain=False).items
        if len(items) != 1:
            raise SystemExit(f"{work.name}: {len(items)} kernels")
        self._kernel = compile_kernel(items[0].ast, backend, work.opts)
        self._runtime = backend.runtime
        self._program = self._runtime.load(self._kernel.function, self._kernel.binary)
        self._memory = [array.ctypes.data for array in work.arrays]
        self._steps = work.steps

    def __call__(self) -> float:
        kernel = self._kernel
        start = time.perf_counter()
        self._runtime.launch(
            self._program, self._memory, (), kernel.global_size, kernel.local_size, wait=True
        )
        return self._steps / (time.perf_counter() - start)


def tile(lanes_axis: int, rows_axis: int, rows: int) -> list[Opt]:
    """A register tile of two vectors by some rows; the operand the lanes move packed once for all
    rows.
    """
    width = 2 * max(Device["CPU"].target.lanes_of(dtypes.float32), 1)
    return [
        Opt(OptOps.PADTO, lanes_axis, width),
        Opt(OptOps.UPCAST, lanes_axis, width),
        Opt(OptOps.UPCAST, rows_axis, rows),
        Opt(OptOps.SWAP, 0, lanes_axis),
        Opt(OptOps.STAGE, 0, 2),
    ]


def contractions() -> list[Work]:
    numbers = np.random.RandomState(0)

    def made(*shape: int) -> tuple[Tensor, Any]:
        return Tensor.empty(*shape).realize(), numbers.rand(*shape).astype(np.float32)

    (A, a), (B, b) = made(M, K), made(K, N)
    out = np.zeros((M, N), np.float32)
    rows, columns = A.reshape(M, 1, K), B.T.reshape(1, N, K)
    (X, x), (Y, y) = made(10, 27, 100, 37), made(37, N, 27)
    five = X.permute(0, 2, 1, 3).reshape(10, 100, 1, 27, 37)
    five = (five * Y.permute(1, 2, 0).reshape(1, 1, N, 27, 37)).sum((3, 4))

    def pairs(fold: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: np.stack([fold(row[:, None].astype("d")) for row in a[FEW]])

    same = tile(1, 0, 8)
    steps = M * K * N
    return [
        Work("matmul 1000x999x1001", A @ B, same, [out, a, b],
             lambda: a[FEW].astype("d") @ b, steps, "multiply-add", 2),
        Work("min-plus 1000x999x1001", (rows + columns).min(2), same, [out, a, b],
             pairs(lambda row: (row + b).min(0)), steps, "add, maximum", 2),
        Work("relu(a*b).max(k) 1000x999x1001", (rows * columns).relu().max(2), same, [out, a, b],
             pairs(lambda row: np.maximum(row * b, 0).max(0)), steps, "multiply, two maxima", 3),
        Work("five axes: bkil,ljk->bij", five, tile(2, 1, 10),
             [np.zeros((10, 100, N), np.float32), x, y],
             lambda: np.einsum("bkil,ljk->bij", x.astype("d"), y, optimize=True).reshape(M, N)[FEW],
             steps, "multiply-add", 2),
    ]  # fmt: skip


def row_wise() -> list[Work]:
    size = 4096
    numbers = np.random.RandomState(1)
    x = numbers.randn(size, size).astype(np.float32)
    X = Tensor.empty(size, size).realize()

    def softmax() -> Any:
        e = np.exp(x[FEW].astype("d") - x[FEW].max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def layernorm() -> Any:
        wide = x[FEW].astype("d")
        centred = wide - wide.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)

    # As the device's own memory, it begins at an address that suits vectors.
    room = np.zeros(x.size + 16, np.float32)
    first = -room.ctypes.data % 64 // 4
    out = room[first : first + x.size].reshape(x.shape)
    moved = 2 * x.nbytes
    return [
        Work("softmax 4096x4096", X.softmax(1), None, [out, x], softmax, moved, "copy"),
        Work("layernorm 4096x4096", X.layernorm(), None, [out, x], layernorm, moved, "copy"),
    ]


class Copy:
    """Bytes a second, read and written, of the fastest copy past the caches."""

    def __call__(self) -> float:
        return ceilings("CPU", renew=True).memory


def measure(works: list[Work], rounds: int) -> list[dict[str, Any]]:
    found = []
    for work in works:
        launch = Launch(work)
        limit = Copy() if work.limit == "copy" else Limit(work.limit)
        launch()
        work.check()
        limits, rates = [], []
        for _ in range(rounds):
            limits.append(limit())
            rates.append(max(launch() for _ in range(3)))
        shares = [rate / most for rate, most in zip(rates, limits)]
        unit = work.flops or 1
        found.append({
            "kernel": work.name,
            "limit": work.limit,
            "unit": "GFLOP/s" if work.flops else "GB/s",
            "limit_rate": round(statistics.median(limits) * unit / 1e9, 1),
            "rate": round(statistics.median(rates) * unit / 1e9, 1),
            "share": round(statistics.median(shares), 3),
            "shares": [round(share, 3) for share in sorted(shares)],
        })  # fmt: skip
        row = found[-1]
        print(
            f"{work.name:32} {row['rate']:8.1f} of {row['limit_rate']:8.1f} {row['unit']:8}"
            f"{row['share']:7.1%}   {work.limit}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds for each figure")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    rows = measure([*contractions(), *row_wise()], options.rounds)
    if not options.print:
        keep("limits", record_of(rows))


if __name__ == "__main__":
    main()
