"""tilegrad beside PyTorch: the same work, in turns, on the same machine.

    pip install -e ".[demo,peers]"
    python bench/peers.py

Each library has a process of its own with as many threads as there are processors. They take turns,
round by round, so that both feel the same disturbance; before, their results are compared. A figure
is the median over rounds of a round's median; the ratio is the median of the rounds' ratios, above
one where tilegrad is faster. PyTorch runs as it is written (eager), in its own memory layout and,
where that may help, with channels last. `bench/results/peers.json` keeps the last run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent
# The least time of a round's samples together.
_ROUND_S = 0.2
# Between two turns: the threads of the one before may wait busily for more work so long.
_PAUSE_S = 0.25
_TOLERANCE = 2e-3

Work = Callable[[], Any]
# What a round runs, and a few numbers of its result.
Made = tuple[Work, Callable[[], Any]]


def randn(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def images(side: int, count: int) -> tuple[Any, Any]:
    numbers = np.random.RandomState(1)
    labels = numbers.randint(0, 10, count).astype(np.int32)
    return numbers.randint(0, 256, (count, side, side)).astype(np.uint8), labels


def weights(side: int, width: int = 32) -> dict[str, Any]:
    """Of the examples' network."""
    made = {}
    for name, shape in (
        ("conv1.weight", (width, 1, 3, 3)),
        ("conv1.bias", (width,)),
        ("conv2.weight", (2 * width, width, 3, 3)),
        ("conv2.bias", (2 * width,)),
        ("head.weight", (10, 2 * width * (side // 4) ** 2)),
        ("head.bias", (10,)),
    ):
        made[name] = randn(*shape, seed=len(name)) * (0.1 if "weight" in name else 0.0)
    return made


STEPS = {"digits, batch 128": (8, 1500, 128), "28x28, batch 512": (28, 6000, 512)}
MATMULS = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 999, 1001))
MLP_BATCH = 256


class Tilegrad:
    """The work, as a user of tilegrad writes it."""

    def __init__(self) -> None:
        import tilegrad

        self.tilegrad = tilegrad
        sys.path.insert(0, str(ROOT.parent / "examples"))

    def captured(self, function: Callable[..., Any], *arrays: Any) -> Made:
        Tensor, jit = self.tilegrad.Tensor, self.tilegrad.jit
        tensors = [Tensor(array).realize() for array in arrays]
        run = jit(lambda *given: function(*given).realize())
        return lambda: run(*tensors), lambda: run(*tensors).numpy().ravel()[:64]

    def step(self, side: int, count: int, batch: int) -> Made:
        from training import Training  # type: ignore[import-not-found]

        from tilegrad.nn.datasets import Dataset
        from tilegrad.nn.state import get_state_dict

        x, y = images(side, count)
        data = Dataset("made", "here", x, y, x[:batch], y[:batch], tuple("0123456789"), 255)
        training = Training(data, batch)
        state = get_state_dict(training.network)
        for name, value in weights(side).items():
            state[name].assign(self.tilegrad.Tensor(value)).realize()

        def loss() -> Any:
            with self.tilegrad.Tensor.train():
                scores = training.network(training.x[:batch])
                return [scores.sparse_categorical_crossentropy(training.y[:batch]).item()]

        return lambda: training.step()[0].item(), loss

    def mlp(self) -> Made:
        Tensor, nn = self.tilegrad.Tensor, self.tilegrad.nn
        layers = nn.Linear(784, 512), nn.Linear(512, 10)
        for layer, seed in zip(layers, (2, 3)):
            layer.weight.assign(Tensor(randn(*layer.weight.shape, seed=seed) * 0.05)).realize()
            layer.bias.assign(Tensor.zeros(*layer.bias.shape)).realize()
        optimizer = nn.optim.Adam(
            [part for each in layers for part in (each.weight, each.bias)], lr=1e-3
        )
        x = Tensor(randn(MLP_BATCH, 784)).realize()
        y = Tensor(np.arange(MLP_BATCH, dtype=np.int32) % 10).realize()

        def loss() -> Any:
            return layers[1](layers[0](x).relu()).sparse_categorical_crossentropy(y)

        @self.tilegrad.jit
        def step() -> Any:
            with Tensor.train():
                optimizer.zero_grad()
                value = loss().backward()
                optimizer.step()
                return value.realize()

        return lambda: step().item(), lambda: [loss().item()]

    def make(self, name: str) -> Made:
        kind, _, rest = name.partition(": ")
        if kind == "training step":
            return self.step(*STEPS[rest])
        if kind == "matmul":
            m, k, n = map(int, rest.split("x"))
            return self.captured(lambda a, b: a @ b, randn(m, k), randn(k, n, seed=1))
        works: dict[str, Callable[[], Made]] = {
            "convolution": lambda: self.captured(
                lambda x, w: x.conv2d(w, padding=1), randn(32, 64, 56, 56), randn(64, 64, 3, 3)
            ),
            "softmax": lambda: self.captured(lambda x: x.softmax(1), randn(4096, 4096)),
            "layernorm": lambda: self.captured(lambda x: x.layernorm(), randn(4096, 4096)),
            "GELU": lambda: self.captured(lambda x: x.gelu(approximate="none"), randn(1 << 24)),
            "sum": lambda: self.captured(lambda x: x.sum(), randn(1 << 24)),
            "attention": lambda: self.captured(
                lambda q, k, v: q.scaled_dot_product_attention(k, v),
                *(randn(1, 8, 1024, 64, seed=seed) for seed in range(3)),
            ),
            "MLP step": self.mlp,
        }
        return works[kind]()


class PyTorch:
    """The same, as a user of PyTorch writes it."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(os.cpu_count() or 1)

    def eager(self, function: Callable[..., Any], *arrays: Any, last: bool = False) -> Made:
        torch = self.torch
        tensors = [torch.from_numpy(array) for array in arrays]
        if last:
            tensors = [each.contiguous(memory_format=torch.channels_last) for each in tensors]

        def run() -> Any:
            with torch.no_grad():
                return function(*tensors)

        return run, lambda: run().contiguous().numpy().ravel()[:64]

    def step(self, side: int, count: int, batch: int, last: bool) -> Made:
        torch = self.torch
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
        network.load_state_dict(
            {name: torch.from_numpy(value) for name, value in weights(side).items()}, strict=False
        )
        if last:
            network = network.to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(network.parameters(), lr=4e-3)
        pixels, labels = images(side, count)
        x = torch.from_numpy(pixels).unsqueeze(1).float() / 255
        y = torch.from_numpy(labels).long()
        cross_entropy = nn.functional.cross_entropy

        def step() -> Any:
            samples = torch.randint(0, count, (batch,))
            optimizer.zero_grad()
            scores = network(x[samples])
            loss = cross_entropy(scores, y[samples])
            loss.backward()
            optimizer.step()
            right = (scores.argmax(1) == y[samples]).float().mean()
            return loss.item(), right.item()

        return step, lambda: [cross_entropy(network(x[:batch]), y[:batch]).item()]

    def mlp(self) -> Made:
        torch = self.torch
        nn = torch.nn
        layers = nn.Linear(784, 512), nn.Linear(512, 10)
        with torch.no_grad():
            for layer, seed in zip(layers, (2, 3)):
                layer.weight.copy_(torch.from_numpy(randn(*layer.weight.shape, seed=seed) * 0.05))
                layer.bias.zero_()
        optimizer = torch.optim.Adam([p for each in layers for p in each.parameters()], lr=1e-3)
        x, y = torch.from_numpy(randn(MLP_BATCH, 784)), torch.arange(MLP_BATCH) % 10

        def loss() -> Any:
            return nn.functional.cross_entropy(layers[1](layers[0](x).relu()), y)

        def step() -> Any:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            return value.item()

        return step, lambda: [loss().item()]

    def make(self, name: str, last: bool = False) -> Made:
        functional = self.torch.nn.functional
        kind, _, rest = name.partition(": ")
        if kind == "training step":
            return self.step(*STEPS[rest], last=last)
        if kind == "matmul":
            m, k, n = map(int, rest.split("x"))
            return self.eager(lambda a, b: a @ b, randn(m, k), randn(k, n, seed=1))
        works: dict[str, Callable[[], Made]] = {
            "convolution": lambda: self.eager(
                lambda x, w: functional.conv2d(x, w, padding=1),
                randn(32, 64, 56, 56), randn(64, 64, 3, 3), last=last,
            ),
            "softmax": lambda: self.eager(lambda x: x.softmax(1), randn(4096, 4096)),
            "layernorm": lambda: self.eager(
                lambda x: functional.layer_norm(x, (4096,)), randn(4096, 4096)
            ),
            "GELU": lambda: self.eager(functional.gelu, randn(1 << 24)),
            "sum": lambda: self.eager(lambda x: x.sum(), randn(1 << 24)),
            "attention": lambda: self.eager(
                functional.scaled_dot_product_attention,
                *(randn(1, 8, 1024, 64, seed=seed) for seed in range(3)),
            ),
            "MLP step": self.mlp,
        }  # fmt: skip
        return works[kind]()


WORKS = [
    *(f"training step: {name}" for name in STEPS),
    "MLP step: 784-512-10, batch 256, Adam",
    *("matmul: " + "x".join(map(str, sizes)) for sizes in MATMULS),
    "convolution: 3x3, 64 to 64, 56x56, batch 32",
    "softmax: 4096x4096",
    "layernorm: 4096x4096",
    "GELU: 16M",
    "sum: 16M",
    "attention: 8 heads, 1024, 64",
]
# Where the layout of images may help PyTorch.
IMAGES = [name for name in WORKS if name.startswith(("training step", "convolution"))]


def serve(engine: str) -> None:
    """A child: makes what a line names, then samples of it for each further line."""
    library = Tilegrad() if engine == "tilegrad" else PyTorch()
    work: Work | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if "make" in command:
            more = {"last": True} if command.get("last") else {}
            work, values = library.make(command["make"], **more)
            answer: Any = [float(each) for each in values()]
            for _ in range(4):
                work()
        else:
            assert work is not None
            samples: list[float] = []
            while sum(samples) < _ROUND_S or len(samples) < 3:
                start = time.perf_counter()
                work()
                samples.append(time.perf_counter() - start)
            answer = statistics.median(samples)
        print(json.dumps(answer), flush=True)


class Child:
    def __init__(self, engine: str):
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--engine", engine],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
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

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(names: list[str], rounds: int) -> list[dict[str, Any]]:
    found = []
    for name in names:
        engines = {"tilegrad": Child("tilegrad"), "torch": Child("torch")}
        if name in IMAGES:
            engines["torch, channels last"] = Child("torch")
        results = {
            engine: child.ask(make=name, last="last" in engine) for engine, child in engines.items()
        }
        first = np.array(results["tilegrad"])
        for engine, values in results.items():
            error = float(np.abs(first - values).max() / max(1.0, np.abs(first).max()))
            if not error < _TOLERANCE:
                raise SystemExit(f"{name}: {engine} differs by {error}")
        samples: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(rounds):
            for engine, child in engines.items():
                time.sleep(_PAUSE_S)
                samples[engine].append(child.ask())
        for child in engines.values():
            child.stop()
        own = samples.pop("tilegrad")
        row: dict[str, Any] = {"work": name, "tilegrad_ms": round(statistics.median(own) * 1e3, 3)}
        row["tilegrad_quartiles_ms"] = [
            round(each * 1e3, 3) for each in statistics.quantiles(own, n=4)[::2]
        ]
        for engine, theirs in samples.items():
            row[f"{engine} ms"] = round(statistics.median(theirs) * 1e3, 3)
            ratios = [other / mine for mine, other in zip(own, theirs)]
            row[f"{engine} ratio"] = round(statistics.median(ratios), 2)
        found.append(row)
        print(f"{name:45}", *(f"{key} {value}" for key, value in row.items() if key != "work"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=("tilegrad", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7, help="rounds for each figure")
    parser.add_argument("--only", default="", help="works whose name contains this")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    if options.engine:
        serve(options.engine)
        return
    try:
        torch_version = version("torch")
    except ModuleNotFoundError:
        raise SystemExit('PyTorch is not installed: pip install -e ".[demo,peers]"') from None
    rows = measure([name for name in WORKS if options.only in name], options.rounds)
    if options.print or options.only:
        return
    from tilegrad.compile.llvm import host_target

    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    record = {
        "machine": f"{host_target()[1]}, {os.cpu_count()} processors, {platform.machine()}",
        "torch": torch_version,
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "figures": rows,
    }
    (ROOT / "results" / "peers.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
