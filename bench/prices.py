"""The price of a call, of a run and of a read without `jit`, beside their budgets and PyTorch.

    python bench/prices.py

*Methods* is the time of a call whose result nobody reads, in the mean of 25 methods: what a loop
pays in Python before anything runs. *Known graph* is a chain of additions that was realized before,
with segments switched off: a line through its times at several lengths gives the price of a run and
of a node. *Segment* is the same with segments, which run a repeated piece of a loop as one call.
Times are the least of many samples, as other work on the machine only adds to them; PyTorch
computes at once, so that its column contains the kernels. `bench/results/prices.json` keeps the
last run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from common import keep, record_of

# The tensors of the calls, small enough that PyTorch's kernels take little time.
_ROWS, _COLUMNS = 8, 16
_LENGTHS = (10, 20, 40, 80)
_SAMPLES, _CALLS = 60, 50

Call = Callable[[Any, Any], Any]
# Of two matrices of one size.
METHODS: dict[str, Call] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "add number": lambda x, y: x + 1.5,
    "mul number": lambda x, y: x * 0.3,
    "neg": lambda x, y: -x,
    "pow": lambda x, y: x**2,
    "less": lambda x, y: x < y,
    "exp": lambda x, y: x.exp(),
    "tanh": lambda x, y: x.tanh(),
    "relu": lambda x, y: x.relu(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "sqrt": lambda x, y: x.sqrt(),
    "sum": lambda x, y: x.sum(),
    "mean": lambda x, y: x.mean(1),
    "amax": lambda x, y: x.amax(1),
    "reshape": lambda x, y: x.reshape(_COLUMNS, _ROWS),
    "transpose": lambda x, y: x.transpose(0, 1),
    "unsqueeze": lambda x, y: x.unsqueeze(0),
    "slice": lambda x, y: x[2:6],
    "matmul": lambda x, y: x @ y.T,
    "clamp": lambda x, y: x.clamp(-1.0, 1.0),
    "softmax": lambda x, y: x.softmax(1),
    "log_softmax": lambda x, y: x.log_softmax(1),
}
# In microseconds; the issue of each is in docs/decisions/eager.md.
BUDGETS = {
    "methods": 3.0, "softmax": 8.0, "conv2d": 20.0, "item": 2.0,
    "known graph, a run": 15.0, "known graph, a node": 0.5,
    "segment, a run": 10.0, "segment, an op": 0.5,
}  # fmt: skip


def least_us(call: Callable[[], object], calls: int = _CALLS) -> float:
    """The least mean time of a call, in microseconds, over samples of `calls` calls."""
    found = []
    for _ in range(_SAMPLES):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls)
    return min(found) * 1e6


def line(lengths: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """The price of a run and of each op, by least squares."""
    slope, start = np.polyfit(lengths, times, 1)
    return float(start), float(slope)


def of_methods(inputs: Sequence[Any], image: Any, weight: Any, convolve: Call) -> dict[str, float]:
    x, y = inputs
    found = {name: least_us(lambda call=call: call(x, y)) for name, call in METHODS.items()}
    return {
        "methods": float(np.mean(list(found.values()))),
        "softmax": found["softmax"],
        "conv2d": least_us(lambda: convolve(image, weight)),
    }


def chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = x + 1.5
    return x


def tilegrad_prices() -> dict[str, float]:
    from tilegrad import Context, Tensor

    random = np.random.default_rng(0)
    x, y = (Tensor(random.random((_ROWS, _COLUMNS), np.float32)).realize() for _ in range(2))
    image = Tensor(random.random((1, 3, 8, 8), np.float32)).realize()
    weight = Tensor(random.random((4, 3, 3, 3), np.float32)).realize()
    found = of_methods((x, y), image, weight, lambda a, w: a.conv2d(w))
    scalar = Tensor(1.0).realize()
    found["item"] = least_us(scalar.item)
    for name, op, segments in (("known graph", "node", 0), ("segment", "op", 1)):
        with Context(SEGMENTS=segments):
            times = [
                least_us(lambda length=length: chain(x, length).realize(), 10) - called
                for length in _LENGTHS
                for called in [least_us(lambda length=length: chain(x, length), 10)]
            ]
        found[f"{name}, a run"], found[f"{name}, a{'n' * (op == 'op')} {op}"] = line(
            _LENGTHS, times
        )
    return found


def pytorch_prices() -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    x, y = (torch.tensor(random.random((_ROWS, _COLUMNS), np.float32)) for _ in range(2))
    image = torch.tensor(random.random((1, 3, 8, 8), np.float32))
    weight = torch.tensor(random.random((4, 3, 3, 3), np.float32))
    found = of_methods((x, y), image, weight, torch.nn.functional.conv2d)
    found["item"] = least_us(torch.tensor(1.0).item)
    times = [least_us(lambda length=length: chain(x, length), 10) for length in _LENGTHS]
    found["segment, a run"], found["segment, an op"] = line(_LENGTHS, times)
    return found


def main() -> int:
    ours = tilegrad_prices()
    theirs = pytorch_prices()
    print(f"{'price, us':22} {'ours':>8} {'budget':>8} {'torch':>8}")
    for name, budget in BUDGETS.items():
        peer = f"{theirs[name]:8.2f}" if name in theirs else ""
        print(f"{name:22} {ours[name]:8.2f} {budget:8.1f} {peer}")
    keep("prices", record_of({"ours": ours, "pytorch": theirs}, ("numpy", "llvmlite", "torch")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
