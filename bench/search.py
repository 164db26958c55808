"""How much a search still finds: generated kernels under the heuristic's Opts and under BEAM=8.

    python bench/search.py                   40 kernels, about ten minutes
    python bench/search.py --count 4 --seconds 3 --print
    python bench/search.py --threads 1 --seed 7 --print    other kernels, where cores are busy

The kernels are drawn from a seed: matmuls, convolutions, reductions, elementwise chains and
transposes, of even and odd sizes. Each is searched for a given time; then the default and what was
found run in turns in a new process, and the ratio of the default's time to the other's is the
figure. It is above one where the heuristic can be improved. A kernel for which nothing was found
counts as one.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from common import keep, record_of

from tilegrad import Context, Device, Tensor
from tilegrad.base.config import config
from tilegrad.engine.plans.plans import normalise
from tilegrad.engine.program.estimate import estimate
from tilegrad.engine.search.children import ChildError
from tilegrad.engine.search.kernel_search import compare, search_kernel
from tilegrad.ir import UOp
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.schedule.schedule import make_schedule

SEED = 20240607
_KINDS = ("matmul", "convolution", "reduction", "elementwise", "transpose")


@dataclass(frozen=True)
class Case:
    """A drawn kernel."""

    name: str
    ast: UOp


def kernel_of(value: Tensor) -> UOp:
    """The kernel of a value that does most of its work, before any Opt."""
    graph = normalise(UOp.sink(value.uop)).numbered()
    schedule = make_schedule(graph, {"CPU": Device["CPU"].target}, "CPU", plain=False)
    kernels = [item.ast for item in schedule.items if item.ast is not None]
    return max(kernels, key=lambda ast: sum(estimate(ast)))


def size(choice: random.Random, low: int, high: int) -> int:
    """A length between the two, small ones as likely as large ones; half of them whole vectors."""
    drawn = round(math.exp(choice.uniform(math.log(low), math.log(high))))
    return max(16, drawn // 16 * 16) if choice.random() < 0.5 else drawn


def matmul(choice: random.Random) -> tuple[str, Tensor]:
    m, k, n = (size(choice, 24, 700) for _ in range(3))
    batch = choice.choice([0, 0, 0, choice.randint(2, 8)])
    left, right = (m, k), (k, n)
    turned = choice.choice(["", "", "left", "right"])
    shape_left = left[::-1] if turned == "left" else left
    shape_right = right[::-1] if turned == "right" else right
    head = (batch,) if batch else ()
    a, b = Tensor.empty(*head, *shape_left), Tensor.empty(*head, *shape_right)
    a = a.transpose(-1, -2) if turned == "left" else a
    b = b.transpose(-1, -2) if turned == "right" else b
    value = a @ b
    end = choice.choice(["", "relu", "bias"])
    if end == "relu":
        value = value.relu()
    elif end == "bias":
        value = value + Tensor.empty(n)
    text = f"matmul {m}x{k}x{n}" + (f" batch {batch}" if batch else "")
    return " ".join(filter(None, [text, turned and f"{turned} turned", end])), value


def convolution(choice: random.Random) -> tuple[str, Tensor]:
    kind = choice.choice(["3x3", "3x3", "1x1", "depthwise", "5x5"])
    batch, side = choice.randint(1, 4), choice.choice([7, 14, 15, 28, 31, 56])
    inputs, outputs = (choice.choice([3, 16, 24, 32, 48, 64]) for _ in range(2))
    kernel = {"1x1": 1, "5x5": 5}.get(kind, 3)
    stride = choice.choice([1, 1, 2])
    if kind == "depthwise":
        weight, groups, outputs = Tensor.empty(inputs, 1, 3, 3), inputs, inputs
    else:
        weight, groups = Tensor.empty(outputs, inputs, kernel, kernel), 1
    x = Tensor.empty(batch, inputs, side, side)
    value = x.conv2d(weight, groups=groups, stride=stride, padding=kernel // 2)
    if choice.random() < 0.5:
        value = value.relu()
    return f"conv {kind} {batch}x{inputs}x{side}x{side} to {outputs} stride {stride}", value


def reduction(choice: random.Random) -> tuple[str, Tensor]:
    rows, columns = size(choice, 48, 3000), size(choice, 48, 3000)
    x = Tensor.empty(rows, columns)
    kind = choice.choice(["sum", "max", "mean of squares", "softmax", "sum of products", "all"])
    axis = choice.choice([0, 1])
    value = {
        "sum": lambda: x.sum(axis),
        "max": lambda: x.max(axis),
        "mean of squares": lambda: (x * x).mean(axis),
        "softmax": lambda: x.softmax(1),
        "sum of products": lambda: (x * Tensor.empty(rows, columns)).sum(axis),
        "all": lambda: x.exp().sum(),
    }[kind]()
    return f"{kind} {rows}x{columns} axis {axis}", value


def elementwise(choice: random.Random) -> tuple[str, Tensor]:
    rows, columns = size(choice, 64, 2000), size(choice, 64, 2000)
    x, kind = Tensor.empty(rows, columns), choice.choice(["gelu", "exp", "chain", "row", "column"])
    value = {
        "gelu": lambda: x.gelu(),
        "exp": lambda: (x.exp() + 1).log(),
        "chain": lambda: (x * 2 + Tensor.empty(rows, columns)).relu() * x,
        "row": lambda: x * Tensor.empty(columns) + Tensor.empty(columns),
        "column": lambda: (x - Tensor.empty(rows, 1)) * Tensor.empty(rows, 1),
    }[kind]()
    return f"{kind} {rows}x{columns}", value


def transpose(choice: random.Random) -> tuple[str, Tensor]:
    a, b, c = size(choice, 8, 64), size(choice, 32, 500), size(choice, 32, 500)
    order = choice.choice([(0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
    value = Tensor.empty(a, b, c).permute(*order)
    value = value.contiguous() if choice.random() < 0.5 else value.relu() + 1
    return f"permute {order} of {a}x{b}x{c}", value


_MAKERS: dict[str, Callable[[random.Random], tuple[str, Tensor]]] = {
    "matmul": matmul,
    "convolution": convolution,
    "reduction": reduction,
    "elementwise": elementwise,
    "transpose": transpose,
}


def cases(count: int, seed: int = SEED) -> list[Case]:
    """The first `count` kernels of a seed; the kinds take turns, and no kernel comes twice."""
    choice = random.Random(seed)
    found: dict[bytes, Case] = {}
    while len(found) < count:
        name, value = _MAKERS[_KINDS[len(found) % len(_KINDS)]](choice)
        ast = kernel_of(value)
        found.setdefault(ast.key, Case(name, ast))
    return list(found.values())


def measure(case: Case, width: int, seconds: float) -> dict[str, Any]:
    """The row of one kernel."""
    backend = Device["CPU"]
    if config.THREADS == 1:
        # One thread takes all chunks of a launch, so that no shape has any.
        backend = replace(backend, target=replace(backend.target, threads=0))
    kernel = start(case.ast, backend.target)
    default = tuple(heuristic(kernel, backend.target))
    row: dict[str, Any] = {"kernel": case.name, "default_opts": repr(list(default))}
    began = time.monotonic()
    try:
        found = search_kernel(case.ast, backend, width=width, seconds=seconds)
    except ChildError as error:
        return {**row, "error": error.headline, "ratio": 1.0}
    ratio, taken = 1.0, found.default_seconds
    if found.opts != default:
        # Anew, as the fastest of many samples was lucky too.
        base, other = compare(case.ast, backend, [default, found.opts])
        if base and other:
            ratio = statistics.median(one / two for one, two in zip(base, other))
            taken = statistics.median(base)
    return {
        **row,
        "name": kernel_name(apply_opts(kernel, default, backend.target))[0],
        "ratio": round(ratio, 3),
        "default_us": round(taken * 1e6, 1),
        "opts": repr(list(found.opts)),
        "in_search": round(found.gain, 3),
        "timed": found.timed,
        "refused": found.refused,
        "seconds": round(time.monotonic() - began, 1),
    }


def mean(rows: list[dict[str, Any]]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=40, help="kernels")
    parser.add_argument("--width", type=int, default=8, help="as in BEAM=width")
    parser.add_argument("--seconds", type=float, default=9, help="of search for each kernel")
    parser.add_argument("--seed", type=int, default=SEED, help="of other kernels")
    parser.add_argument("--threads", type=int, default=0, help="of a launch; 0: one per core")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    rows = []
    for case in cases(options.count, options.seed):
        # The children, in which all kernels run, take it from here.
        with Context(THREADS=options.threads):
            row = measure(case, options.width, options.seconds)
        rows.append(row)
        text = row.get("error") or f"{row['default_us']:10.1f} us  {row['timed']:4d} timed"
        print(f"{row['ratio']:6.2f}  {case.name:44} {text}", flush=True)
    print(f"\ngeometric mean of {len(rows)}: {mean(rows):.3f}")
    worst = sorted((row for row in rows if row["ratio"] > 1.1), key=lambda row: -row["ratio"])
    for row in worst:
        print(f"\n{row['ratio']:.2f}  {row['kernel']}\n  {row['default_opts']}\n  {row['opts']}")
    if not options.print:
        figures = {
            "seed": options.seed,
            "threads": options.threads,
            "width": options.width,
            "seconds": options.seconds,
            "geometric_mean": round(mean(rows), 3),
            "kernels": rows,
        }
        keep("search", record_of(figures))


if __name__ == "__main__":
    main()
