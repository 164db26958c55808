"""What the training examples share: the network, the captured step, the loop, the picture."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilegrad import GlobalCounters, Tensor, jit, nn
from tilegrad.nn.datasets import Dataset
from tilegrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save
from tilegrad.tools.profile import profile, table


class Network:
    """Two blocks of convolution, batch normalisation and pooling, and a linear head."""

    def __init__(self, side: int, width: int = 32):
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.norm1 = nn.BatchNorm(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm2 = nn.BatchNorm(2 * width)
        self.head = nn.Linear(2 * width * (side // 4) ** 2, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x)).relu().max_pool2d()
        x = self.norm2(self.conv2(x)).relu().max_pool2d()
        return self.head(x.flatten(1))


@dataclass
class History:
    """Loss and accuracy by step; test accuracy where it was measured."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    tests: list[tuple[int, float]] = field(default_factory=list)


class Training:
    """A network, its data on the device, and a captured training step."""

    def __init__(self, data: Dataset, batch: int, lr: float = 2e-3, width: int = 32):
        self.data, self.batch = data, batch
        side = data.x_train.shape[1]
        self.network = Network(side, width)
        self.optimizer = nn.optim.Adam(get_parameters(self.network), lr=lr)
        self.x, self.y = self._load(data.x_train), Tensor(data.y_train)
        self.x_test, self.y_test = self._load(data.x_test), data.y_test
        self.history = History()
        self.step = jit(self.plain_step)
        self.predict = jit(self._predict)

    def _load(self, images: np.ndarray) -> Tensor:
        scaled = images.astype(np.float32)[:, None] / self.data.peak
        return Tensor(scaled).realize()

    def plain_step(self) -> tuple[Tensor, Tensor]:
        """One step on a random batch: the loss, and the share of right answers."""
        with Tensor.train():
            samples = Tensor.randint(self.batch, low=0, high=self.x.shape[0])
            x, y = self.x[samples], self.y[samples]
            self.optimizer.zero_grad()
            scores = self.network(x)
            loss = scores.sparse_categorical_crossentropy(y)
            loss.backward()
            self.optimizer.step()
            return loss.realize(), (scores.argmax(1) == y).mean().realize()

    def _predict(self, x: Tensor) -> Tensor:
        return self.network(x).argmax(1).realize()

    def predictions(self, part: int = 500) -> np.ndarray:
        """The class of every test image."""
        count = len(self.y_test)
        found = []
        for start in range(0, count, part):
            stop = min(start + part, count)
            x = self.x_test[start:stop].contiguous().realize()
            found.append((self.predict if stop - start == part else self._predict)(x).numpy())
        return np.concatenate(found)

    def accuracy(self) -> float:
        """The share of test images that are recognised."""
        return float((self.predictions() == self.y_test).mean())

    def run(self, steps: int, say: Callable[[str], None] | None = None) -> None:
        """Train for `steps` steps; a keyboard interrupt ends the loop between two steps."""
        say = say or _bar
        start = time.perf_counter()
        for number in range(1, steps + 1):
            ops = GlobalCounters.global_ops
            before = time.perf_counter()
            loss, right = self.step()
            self.history.losses.append(float(loss.item()))
            self.history.accuracies.append(float(right.item()))
            seconds = time.perf_counter() - before
            speed = (GlobalCounters.global_ops - ops) / seconds / 1e9
            done = "=" * (24 * number // steps)
            say(
                f"[{done:24s}] {number:4d}/{steps} loss {self.history.losses[-1]:.4f} "
                f"accuracy {self.history.accuracies[-1]:6.1%} {self.batch / seconds:7.0f} images/s "
                f"{speed:6.1f} GFLOP/s {time.perf_counter() - start:5.1f} s"
            )

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        safe_save(get_state_dict(self.network), path)

    def resume(self, path: Path) -> None:
        load_state_dict(self.network, safe_load(path))

    def kernels(self) -> str:
        """The ten dearest kernels of a step."""
        return table(profile(self.plain_step))

    def picture(self, path: Path) -> None:
        """Loss and accuracy, the confusion matrix, and images taken for something else."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        predicted, classes = self.predictions(), self.data.classes
        matrix = np.zeros((len(classes), len(classes)), int)
        np.add.at(matrix, (self.y_test, predicted), 1)
        figure = pyplot.figure(figsize=(14, 8), layout="constrained")
        grid = figure.add_gridspec(2, 12)
        _curves(figure, grid, self.history)
        _matrix(figure.add_subplot(grid[0, 6:]), matrix, [str(name) for name in classes])
        wrong = np.flatnonzero(predicted != self.y_test)[:12]
        for place, index in enumerate(wrong):
            axis = figure.add_subplot(grid[1, place])
            axis.imshow(self.data.x_test[index], cmap="gray_r")
            axis.set_title(f"{classes[self.y_test[index]]}\nas {classes[predicted[index]]}", size=7)
            axis.set_axis_off()
        right = (predicted == self.y_test).mean()
        figure.suptitle(f"{self.data.name}: {right:.2%} of {len(self.y_test)} test images")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _curves(figure: Any, grid: Any, history: History) -> None:
    loss, accuracy = figure.add_subplot(grid[0, :3]), figure.add_subplot(grid[0, 3:6])
    loss.plot(history.losses, linewidth=0.8)
    loss.set(title="loss", xlabel="step", yscale="log")
    accuracy.plot(history.accuracies, linewidth=0.8, label="batch")
    if history.tests:
        accuracy.plot(*zip(*history.tests), "o-", label="test")
    accuracy.set(title="accuracy", xlabel="step")
    accuracy.legend(loc="lower right")


def _matrix(axis: Any, matrix: np.ndarray, names: list[str]) -> None:
    axis.imshow(np.log1p(matrix), cmap="Blues")
    for row, column in np.ndindex(*matrix.shape):
        if matrix[row, column]:
            axis.text(column, row, matrix[row, column], ha="center", va="center", size=6)
    axis.set(title="confusion", xlabel="answer", ylabel="truth")
    axis.set_xticks(range(len(names)), names, size=6, rotation=60)
    axis.set_yticks(range(len(names)), names, size=6)


def _bar(line: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{line}", end="", flush=True)
    elif int(line.split("]")[1].split("/")[0]) % 50 == 0:
        print(line, flush=True)
