"""tilegrad beside PyTorch: the same work, in turns, on the same machine.

    pip install -e ".[peers]"
    python bench/peers.py

Each library has a process of its own with the same number of threads. They take turns, round by
round, so that both feel the same disturbance; before, their results are compared. A training step
is compared by its loss before and after a step on a batch that both know. A figure is the median
over rounds of a round's median; the ratio is the median of the rounds' ratios, above one where
tilegrad is faster. tilegrad runs captured. PyTorch runs as it is written (eager) in a process as it
starts, and in one whose malloc keeps memory, as large results otherwise come from the system anew
at each call. The latter also has its images channels last where that may help, and compiles by
itself where it finds a compiler for that; a compiled step has the optimizer's fused form too. A
round in which something else ran on the machine is taken again, if a quiet one comes soon enough;
`others` is the most that ran beside the rounds that count, as a share of the machine. A rate counts
the multiply-adds of convolutions and matrix products alone, two operations each, or the bytes of
input and result. `bench/results/peers.json` keeps the last run.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Others, Spread, Taker, environment, in_turns, keep, record_of

# The least time of a sample, and the least number of calls in it.
_SAMPLE_S = 0.15
_SAMPLE_CALLS = 3
# Between two samples: the threads of the one before may wait busily for more work so long.
_PAUSE_S = 0.05
# What else may run in a round, as a share of the machine.
_OTHERS = 0.03
# Of the largest value.
_TOLERANCE = 1e-3
_INSTALL = 'PyTorch is not installed: pip install -e ".[peers]"'

EAGER, KEPT = "torch", "torch, kept memory"
LAST, COMPILED = "torch, channels last", "torch, compiled"
# Nothing by mmap, nothing back to the system.
_KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


@dataclass(frozen=True)
class Work:
    """What is measured.

    Attributes:
        kind: the method of both libraries that makes it.
        flops: operations of its convolutions and matrix products.
        nbytes: of input and result, where those are what it costs.
        peers: the ways in which PyTorch runs it.
    """

    name: str
    kind: str
    sizes: tuple[int, ...]
    flops: float = 0
    nbytes: float = 0
    peers: tuple[str, ...] = (EAGER, KEPT)


@dataclass(frozen=True)
class Made:
    """Work that is ready to run, and how numbers of its result are had."""

    run: Callable[[], Any]
    values: Callable[[], list[float]]


def network_flops(side: int, batch: int, *, is_step: bool) -> float:
    """Of the examples' network; backward each product is there twice, but no image has a
    gradient.
    """
    first, second = 2.0 * 9 * 32 * side**2, 2.0 * 9 * 32 * 64 * (side // 2) ** 2
    head = 2.0 * 10 * 64 * (side // 4) ** 2
    return batch * (2 * first + 3 * (second + head) if is_step else first + second + head)


def works(scale: int) -> list[Work]:
    """All of them, `scale` times smaller along each axis."""
    small, large = 128 // scale, 512 // scale
    wide, vector = 4096 // scale, (1 << 24) // scale**2
    side, length = 56 // scale, 1024 // scale
    every = (EAGER, KEPT, LAST, COMPILED)
    found = []
    for pixels, batch, count in ((8, small, 1500), (28, large, 6000)):
        shape = f"{pixels}x{pixels}, batch {batch}"
        for kind, is_step in (("training step", True), ("inference", False)):
            flops = network_flops(pixels, batch, is_step=is_step)
            sizes = (pixels, count, batch)
            found.append(
                Work(f"{kind}, {shape}", kind.replace(" ", "_"), sizes, flops, peers=every)
            )
    batch = 256 // scale
    flops = 2.0 * batch * (2 * 784 * 512 + 3 * 512 * 10)
    compiled = (EAGER, KEPT, COMPILED)
    found.append(
        Work(f"MLP 784-512-10 step, batch {batch}", "mlp", (batch,), flops, peers=compiled)
    )
    for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 999, 1001)):
        sizes = m, k, n = m // scale, k // scale, n // scale
        found.append(Work(f"matmul {m}x{k}x{n}", "matmul", sizes, 2.0 * m * k * n))
    flops = 2.0 * 32 * 64 * 64 * 9 * side**2
    found += [
        Work(f"convolution 3x3, 64 to 64, {side}x{side}, batch 32", "convolution", (32, 64, side),
             flops, peers=(EAGER, KEPT, LAST)),
        Work(f"softmax {wide}x{wide}", "softmax", (wide,), 0, 8.0 * wide**2, compiled),
        Work(f"layernorm {wide}x{wide}", "layernorm", (wide,), 0, 8.0 * wide**2, compiled),
        Work(f"GELU of {vector:,}", "gelu", (vector,), 0, 8.0 * vector, compiled),
        Work(f"sum of {vector:,}", "sum", (vector,), 0, 4.0 * vector),
        Work(f"attention 8x{length}x64", "attention", (8, length, 64), 4.0 * 8 * length**2 * 64),
    ]  # fmt: skip
    return found


# what both are given


def randn(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def images(side: int, count: int) -> tuple[Any, Any]:
    numbers = np.random.RandomState(1)
    labels = numbers.randint(0, 10, count).astype(np.int32)
    return numbers.randint(0, 256, (count, side, side)).astype(np.uint8), labels


def weights(side: int, width: int = 32) -> dict[str, Any]:
    """Of the examples' network."""
    shapes: dict[str, tuple[int, ...]] = {
        "conv1.weight": (width, 1, 3, 3),
        "conv1.bias": (width,),
        "conv2.weight": (2 * width, width, 3, 3),
        "conv2.bias": (2 * width,),
        "head.weight": (10, 2 * width * (side // 4) ** 2),
        "head.bias": (10,),
    }
    return {
        name: randn(*shape, seed=seed) * 0.05 for seed, (name, shape) in enumerate(shapes.items())
    }


def some(array: Any) -> list[float]:
    """About a thousand values, from everywhere."""
    flat = np.asarray(array, np.float64).ravel()
    return [float(value) for value in flat[:: max(flat.size // 1000, 1)]]


# the libraries


class Tilegrad:
    """The work, as a user of tilegrad writes it."""

    def __init__(self) -> None:
        import tilegrad

        self._tilegrad = tilegrad
        sys.path.insert(0, str(ROOT.parent / "examples"))

    def make(self, work: Work, engine: str) -> Made:
        made: Made = getattr(self, work.kind)(*work.sizes)
        return made

    def _captured(self, function: Callable[..., Any], *arrays: Any) -> Made:
        tensors = [self._tilegrad.Tensor(array).realize() for array in arrays]
        captured = self._tilegrad.jit(lambda *given: function(*given).realize())

        def run() -> Any:
            return captured(*tensors)

        return Made(run, lambda: some(run().numpy()))

    def _training(self, side: int, count: int, batch: int) -> Any:
        from training import Training  # type: ignore[import-not-found]

        from tilegrad.nn.datasets import Dataset
        from tilegrad.nn.state import get_state_dict

        x, y = images(side, count)
        data = Dataset("made", "here", x, y, x[:batch], y[:batch], tuple("0123456789"), 255)
        training = Training(data, batch)
        state = get_state_dict(training.network)
        for name, value in weights(side).items():
            state[name].assign(self._tilegrad.Tensor(value)).realize()
        return training

    def training_step(self, side: int, count: int, batch: int) -> Made:
        training = self._training(side, count, batch)
        optimizer = training.optimizer

        def loss() -> Any:
            scores = training.network(training.x[:batch])
            return scores.sparse_categorical_crossentropy(training.y[:batch])

        def values() -> list[float]:
            with self._tilegrad.Tensor.train():
                optimizer.zero_grad()
                first = loss().backward()
                optimizer.step()
                return [first.item(), loss().item()]

        def run() -> tuple[float, float]:
            loss, right = training.step()
            return loss.item(), right.item()

        return Made(run, values)

    def inference(self, side: int, count: int, batch: int) -> Made:
        training = self._training(side, count, batch)
        return self._captured(training.network, training.x[:batch].numpy())

    def mlp(self, batch: int) -> Made:
        Tensor, nn = self._tilegrad.Tensor, self._tilegrad.nn
        layers = nn.Linear(784, 512), nn.Linear(512, 10)
        for layer, seed in zip(layers, (2, 3)):
            layer.weight.assign(Tensor(randn(*layer.weight.shape, seed=seed) * 0.05)).realize()
            layer.bias.assign(Tensor.zeros(*layer.bias.shape)).realize()
        parameters = [part for each in layers for part in (each.weight, each.bias)]
        optimizer = nn.optim.Adam(parameters, lr=1e-3)
        x = Tensor(randn(batch, 784)).realize()
        y = Tensor(np.arange(batch, dtype=np.int32) % 10).realize()

        def loss() -> Any:
            return layers[1](layers[0](x).relu()).sparse_categorical_crossentropy(y)

        def step() -> Any:
            with Tensor.train():
                optimizer.zero_grad()
                value = loss().backward()
                optimizer.step()
                return value.realize()

        captured = self._tilegrad.jit(step)
        return Made(lambda: captured().item(), lambda: [step().item(), loss().item()])

    def matmul(self, m: int, k: int, n: int) -> Made:
        return self._captured(lambda a, b: a @ b, randn(m, k), randn(k, n, seed=1))

    def convolution(self, batch: int, channels: int, side: int) -> Made:
        x, w = randn(batch, channels, side, side), randn(channels, channels, 3, 3)
        return self._captured(lambda x, w: x.conv2d(w, padding=1), x, w)

    def softmax(self, size: int) -> Made:
        return self._captured(lambda x: x.softmax(1), randn(size, size))

    def layernorm(self, size: int) -> Made:
        return self._captured(lambda x: x.layernorm(), randn(size, size))

    def gelu(self, size: int) -> Made:
        return self._captured(lambda x: x.gelu(approximate="none"), randn(size))

    def sum(self, size: int) -> Made:
        return self._captured(lambda x: x.sum(), np.abs(randn(size)))

    def attention(self, heads: int, length: int, width: int) -> Made:
        qkv = [randn(1, heads, length, width, seed=seed) for seed in range(3)]
        return self._captured(lambda q, k, v: q.scaled_dot_product_attention(k, v), *qkv)


class PyTorch:
    """The same, as a user of PyTorch writes it."""

    def __init__(self, threads: int) -> None:
        import torch

        self._torch = torch
        torch.set_num_threads(threads)
        self._engine = EAGER

    def make(self, work: Work, engine: str) -> Made:
        self._engine = engine
        made: Made = getattr(self, work.kind)(*work.sizes)
        return made

    def _as_chosen(self, function: Any) -> Any:
        """The function or module, compiled if that is wanted."""
        if self._engine != COMPILED:
            return function
        self._torch._dynamo.reset()
        return self._torch.compile(function)

    def _eager(self, function: Callable[..., Any], *arrays: Any) -> Made:
        torch = self._torch
        tensors = [torch.from_numpy(array) for array in arrays]
        if self._engine == LAST:
            tensors = [each.contiguous(memory_format=torch.channels_last) for each in tensors]
        chosen = self._as_chosen(function)

        def run() -> Any:
            with torch.inference_mode():
                return chosen(*tensors)

        return Made(run, lambda: some(run().contiguous().numpy()))

    def _network(self, side: int) -> Any:
        torch = self._torch
        nn = torch.nn

        class Network(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, width: int = 32):
                super().__init__()
                self.conv1 = nn.Conv2d(1, width, 3, padding=1)
                self.norm1 = nn.BatchNorm2d(width)
                self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
                self.norm2 = nn.BatchNorm2d(2 * width)
                self.head = nn.Linear(2 * width * (side // 4) ** 2, 10)

            def forward(self, x: Any) -> Any:
                x = nn.functional.max_pool2d(self.norm1(self.conv1(x)).relu(), 2)
                x = nn.functional.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
                return self.head(x.flatten(1))

        network = Network()
        given = {name: torch.from_numpy(value) for name, value in weights(side).items()}
        network.load_state_dict(given, strict=False)
        if self._engine == LAST:
            network = network.to(memory_format=torch.channels_last)
        return network

    def training_step(self, side: int, count: int, batch: int) -> Made:
        torch = self._torch
        network = self._network(side)
        fused = {"fused": True} if self._engine == COMPILED else {}
        optimizer = torch.optim.Adam(network.parameters(), lr=4e-3, **fused)
        pixels, labels = images(side, count)
        x = torch.from_numpy(pixels).unsqueeze(1).float() / 255
        y = torch.from_numpy(labels).long()

        def forward(x: Any, y: Any) -> Any:
            scores = network(x)
            return torch.nn.functional.cross_entropy(scores, y), scores

        chosen = self._as_chosen(forward)

        def step(samples: Any) -> tuple[float, float]:
            optimizer.zero_grad()
            labels = y[samples]
            loss, scores = chosen(x[samples], labels)
            loss.backward()
            optimizer.step()
            right = (scores.argmax(1) == labels).float().mean()
            return loss.item(), right.item()

        def values() -> list[float]:
            known = torch.arange(batch)
            return [step(known)[0], chosen(x[known], y[known])[0].item()]

        return Made(lambda: step(torch.randint(0, count, (batch,))), values)

    def inference(self, side: int, count: int, batch: int) -> Made:
        network = self._network(side).eval()
        x = images(side, count)[0][:batch, None].astype(np.float32) / np.float32(255)
        return self._eager(network, x)

    def mlp(self, batch: int) -> Made:
        torch = self._torch
        nn = torch.nn
        layers = nn.Linear(784, 512), nn.Linear(512, 10)
        with torch.no_grad():
            for layer, seed in zip(layers, (2, 3)):
                layer.weight.copy_(torch.from_numpy(randn(*layer.weight.shape, seed=seed) * 0.05))
                layer.bias.zero_()
        fused = {"fused": True} if self._engine == COMPILED else {}
        parameters = [part for each in layers for part in each.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=1e-3, **fused)
        x, y = torch.from_numpy(randn(batch, 784)), torch.arange(batch) % 10

        def forward(x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(layers[1](layers[0](x).relu()), y)

        chosen = self._as_chosen(forward)

        def step() -> float:
            optimizer.zero_grad()
            loss = chosen(x, y)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        return Made(step, lambda: [step(), chosen(x, y).item()])

    def matmul(self, m: int, k: int, n: int) -> Made:
        return self._eager(lambda a, b: a @ b, randn(m, k), randn(k, n, seed=1))

    def convolution(self, batch: int, channels: int, side: int) -> Made:
        x, w = randn(batch, channels, side, side), randn(channels, channels, 3, 3)
        return self._eager(lambda x, w: self._torch.nn.functional.conv2d(x, w, padding=1), x, w)

    def softmax(self, size: int) -> Made:
        return self._eager(lambda x: x.softmax(1), randn(size, size))

    def layernorm(self, size: int) -> Made:
        layer_norm = self._torch.nn.functional.layer_norm
        return self._eager(lambda x: layer_norm(x, (size,)), randn(size, size))

    def gelu(self, size: int) -> Made:
        gelu = self._torch.nn.functional.gelu
        return self._eager(lambda x: gelu(x), randn(size))

    def sum(self, size: int) -> Made:
        return self._eager(lambda x: x.sum(), np.abs(randn(size)))

    def attention(self, heads: int, length: int, width: int) -> Made:
        qkv = [randn(1, heads, length, width, seed=seed) for seed in range(3)]
        return self._eager(self._torch.nn.functional.scaled_dot_product_attention, *qkv)


# a process for each


def serve(library_name: str, scale: int, threads: int) -> None:
    """The child: makes the work that a line asks for and gives values of its result, or takes a
    sample.
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    library = Tilegrad() if library_name == "tilegrad" else PyTorch(threads)
    every = {work.name: work for work in works(scale)}
    ready: dict[str, Made] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if "make" in command:
            ready = {}
            gc.collect()
            answer: Any = {}
            for engine in command["engines"]:
                try:
                    made = library.make(every[command["make"]], engine)
                    answer[engine] = made.values()
                    for _ in range(4):
                        made.run()
                    ready[engine] = made
                except Exception as error:
                    if engine != COMPILED:
                        raise
                    answer[engine] = f"{type(error).__name__}: {error}"
        else:
            answer = sample(ready[command["take"]].run)
        print(json.dumps(answer), file=answers, flush=True)


def sample(run: Callable[[], Any]) -> float:
    """The median milliseconds of a call."""
    found: list[float] = []
    while sum(found) < _SAMPLE_S * 1e3 or len(found) < _SAMPLE_CALLS:
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e3)
    return statistics.median(found)


class Child:
    """Runs some of the engines."""

    def __init__(self, library: str, scale: int, threads: int, engines: tuple[str, ...]):
        self.engines = engines
        names = ("TILEGRAD_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        given = environment(**dict.fromkeys(names, str(threads)))
        if KEPT in engines:
            given |= _KEEPING
        command = [sys.executable, str(Path(__file__)), "--serve", library]
        self._process = subprocess.Popen(
            [*command, "--scale", str(scale), "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given,
        )  # fmt: skip

    def ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{command}: the process ended")
        return json.loads(answer)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def taker(self, engine: str) -> Taker:
        return lambda: float(self.ask(take=engine))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def difference(first: list[float], other: list[float]) -> float:
    """The largest, as a share of the largest value."""
    a, b = np.array(first), np.array(other)
    return float(np.abs(a - b).max() / np.abs(a).max())


class Quiet:
    """Takes rounds in which little else runs, as long as its patience lasts."""

    def __init__(self, children: list[Child], patience: float):
        self._others = Others([child.process_id for child in children])
        self._patience = patience

    def rounds(self, takers: dict[str, Taker], count: int) -> tuple[dict[str, list[float]], float]:
        """Samples of the rounds in which least else ran, and the most that ran in one of these."""
        found: list[tuple[float, dict[str, list[float]]]] = []
        quiet = 0
        while len(found) < count or (quiet < count and self._patience > 0):
            start = time.monotonic()
            self._others.wait(_OTHERS, min(self._patience, 10.0))
            begun = time.monotonic()
            taken = in_turns(takers, 1, pause=_PAUSE_S)
            found.append((self._others.share(), taken))
            is_quiet = found[-1][0] < _OTHERS
            quiet += is_quiet
            self._patience -= (begun if is_quiet else time.monotonic()) - start
        found.sort(key=lambda each: each[0])
        best = found[:count]
        return {name: [taken[name][0] for _, taken in best] for name in takers}, best[-1][0]


def measure_one(work: Work, children: list[Child], quiet: Quiet, rounds: int) -> dict[str, Any]:
    takers: dict[str, Taker] = {}
    engines: dict[str, Any] = {}
    own: list[float] = []
    for child in children:
        asked = [each for each in ("tilegrad", *work.peers) if each in child.engines]
        for engine, values in child.ask(make=work.name, engines=asked).items():
            if isinstance(values, str):
                engines[engine] = {"skipped": values.splitlines()[0]}
                continue
            own = own or values
            error = difference(own, values)
            if not error < _TOLERANCE:
                raise SystemExit(f"{work.name}: {engine} differs by {error}")
            takers[engine] = child.taker(engine)
            engines[engine] = {"difference": float(f"{error:.1e}")}
    amount, unit = (work.flops, "GFLOP/s") if work.flops else (work.nbytes, "GB/s")
    samples, others = quiet.rounds(takers, rounds)
    for engine, taken in samples.items():
        spread = Spread(taken)
        engines[engine] |= spread.record("ms", 4)
        engines[engine]["rate"] = round(amount / spread.median / 1e6, 1)
        if engine != "tilegrad":
            ratios = [theirs / ours for ours, theirs in zip(samples["tilegrad"], taken)]
            ratio = Spread(ratios)
            engines[engine]["ratio"] = round(ratio.median, 2)
            engines[engine]["quartiles_ratio"] = [round(ratio.lower, 2), round(ratio.upper, 2)]
    return {"work": work.name, "unit": unit, "others": round(others, 3), "engines": engines}


def show(row: dict[str, Any]) -> None:
    name = row["work"]
    disturbed = f" (others {row['others']:.0%})" if row["others"] >= _OTHERS else ""
    for engine, found in row["engines"].items():
        if "skipped" in found:
            print(f"{name:44} {engine:22} {found['skipped'][:60]}")
        else:
            lower, upper = found["quartiles_ms"]
            text = f"{found['median_ms']:9.3f} ms {lower:9.3f} to {upper:9.3f}"
            text += f" {found['rate']:7.1f} {row['unit']:7}"
            if "ratio" in found:
                text += " ratio {:5.2f}  {:.2f} to {:.2f}".format(
                    found["ratio"], *found["quartiles_ratio"]
                )
            print(f"{name:44} {engine:22} {text}{disturbed}")
        name = ""
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="samples for each figure")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument(
        "--patience", type=float, default=150,
        help="seconds for waiting until nothing else runs, and for rounds in which something did",
    )  # fmt: skip
    parser.add_argument("--only", default="", help="work whose name contains this")
    parser.add_argument("--alone", action="store_true", help="tilegrad without PyTorch")
    parser.add_argument("--scale", type=int, default=1, help="so many times smaller")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.scale, options.threads)
        return
    if not options.alone and find_spec("torch") is None:
        raise SystemExit(_INSTALL)
    served: list[tuple[str, tuple[str, ...]]] = [("tilegrad", ("tilegrad",))]
    if not options.alone:
        served += [("torch", (EAGER,)), ("torch", (KEPT, LAST, COMPILED))]
    children = [
        Child(library, options.scale, options.threads, engines) for library, engines in served
    ]
    quiet = Quiet(children, options.patience)
    rows = []
    for work in works(options.scale):
        if options.only in work.name:
            rows.append(measure_one(work, children, quiet, options.rounds))
            show(rows[-1])
    for child in children:
        child.stop()
    if not (options.print or options.only or options.alone or options.scale > 1):
        record = record_of(rows, ("numpy", "llvmlite", "torch"))
        keep("peers", {"threads": options.threads, "rounds": options.rounds, **record})


if __name__ == "__main__":
    main()
