"""What the training examples share: the network, the captured step, the loop, the picture."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilegrad import GlobalCounters, Tensor, jit, nn
from tilegrad.nn.datasets import Dataset
from tilegrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save
from tilegrad.tools.profile import profile, table
from tilegrad.tools.progress import Progress, interruptible

# Steps at which the learning rate has risen to its full value; from there it falls to zero.
WARM_UP = 10
# How many test images are looked at together.
PART = 500
# How often in a run the whole test set is looked at.
TESTS = 5


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
    """Loss, share of right answers and seconds of each step; test accuracy where it was measured,
    with the step.
    """

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    tests: list[tuple[int, float]] = field(default_factory=list)


class Training:
    """A network, its data on the device, and a captured training step."""

    def __init__(self, data: Dataset, batch: int, lr: float = 4e-3):
        self.data, self.batch, self.lr = data, batch, lr
        self.network = Network(side=data.x_train.shape[1])
        self.optimizer = nn.optim.Adam(get_parameters(self.network), lr=lr)
        self.x, self.y = self._on_device(data.x_train), Tensor(data.y_train)
        self.x_test = self._on_device(data.x_test)
        self.history = History()
        self.step = jit(self.plain_step)
        self.classify = jit(self._classify)

    def _on_device(self, images: np.ndarray) -> Tensor:
        """Images as (number, 1, rows, columns), between 0 and 1."""
        return (Tensor(images).unsqueeze(1).cast("float32") / self.data.peak).realize()

    def plain_step(self) -> tuple[Tensor, Tensor]:
        """One step on a random batch: the loss, and the share of right answers."""
        samples = Tensor.randint(self.batch, low=0, high=self.x.shape[0])
        x, y = self.x[samples], self.y[samples]
        self.optimizer.zero_grad()
        scores = self.network(x)
        loss = scores.sparse_categorical_crossentropy(y)
        loss.backward()
        self.optimizer.step()
        return loss.realize(), (scores.argmax(1) == y).mean().realize()

    @Tensor.train(False)
    def _classify(self, samples: Tensor) -> Tensor:
        return self.network(self.x_test[samples]).argmax(1).realize()

    def predictions(self) -> np.ndarray:
        """The class of every test image."""
        numbers = np.arange(len(self.data.y_test), dtype=np.int32)
        parts = [numbers[start : start + PART] for start in range(0, len(numbers), PART)]
        return np.concatenate([self.classify(Tensor(part)).numpy() for part in parts])

    def test(self) -> float:
        """The share of test images that are recognised."""
        share = float((self.predictions() == self.data.y_test).mean())
        self.history.tests.append((len(self.history.losses), share))
        return share

    def run(self, steps: int) -> bool:
        """Train for `steps` steps; false if Ctrl-C ended it, which it does between two steps."""
        history = self.history
        with interruptible() as interrupted, Progress(steps) as bar:
            for number in range(1, steps + 1):
                self.optimizer.lr = self.lr * _share_of_rate(number, steps)
                ops, start = GlobalCounters.global_ops, time.perf_counter()
                loss, right = self.step()
                history.losses.append(float(loss.item()))
                history.accuracies.append(float(right.item()))
                history.seconds.append(time.perf_counter() - start)
                speed = (GlobalCounters.global_ops - ops) / history.seconds[-1] / 1e9
                rate = self.batch / history.seconds[-1]
                text = f"loss {history.losses[-1]:.4f} accuracy {history.accuracies[-1]:6.1%}"
                bar.show(number, f"{text} {rate:6.0f} images/s {speed:5.1f} GFLOP/s")
                if interrupted:
                    return False
                if number % max(steps // TESTS, 1) == 0 and number < steps:
                    self.test()
        return True

    def images_per_second(self) -> float:
        """The median over the steps, of which the first two compile and capture."""
        return self.batch / float(np.median(self.history.seconds[2:] or self.history.seconds))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        safe_save(get_state_dict(self.network), path)

    def resume(self, path: Path) -> None:
        load_state_dict(self.network, safe_load(path))

    def kernels(self) -> str:
        """The ten dearest kernels of a step; takes a few steps more to time them."""
        return table(profile(self.plain_step))

    def picture(self, path: Path) -> None:
        """Loss and accuracy, the confusion matrix, and images taken for something else."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        answers, truth = self.predictions(), self.data.y_test
        figure = pyplot.figure(figsize=(15, 8), layout="constrained")
        figure.suptitle(f"{self.data.name}: {(answers == truth).mean():.2%} of {len(truth)} right")
        upper, lower = figure.subfigures(2, 1, height_ratios=[2, 1])
        left, middle, right = upper.subplots(1, 3)
        _draw_curves(left, middle, self.history)
        _draw_confusion(right, answers, truth, self.data.classes)
        _draw_mistakes(lower, answers, self.data)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _share_of_rate(number: int, steps: int) -> float:
    """The learning rate of step `number`, as a share of the full one."""
    falling = 0.5 + 0.5 * math.cos(math.pi * (number - 1) / steps)
    return min(number / WARM_UP, 1.0) * falling


def _draw_curves(loss: Any, accuracy: Any, history: History) -> None:
    steps = range(1, len(history.losses) + 1)
    loss.plot(steps, history.losses, linewidth=0.8)
    loss.set(title="loss", xlabel="step")
    if history.losses:
        loss.set_yscale("log")
    accuracy.plot(steps, history.accuracies, linewidth=0.8, label="batch")
    if history.tests:
        accuracy.plot(*zip(*history.tests), "o-", label="test images")
    accuracy.set(title="accuracy", xlabel="step")
    accuracy.legend(loc="lower right")


def _draw_confusion(axis: Any, answers: np.ndarray, truth: np.ndarray, names: Any) -> None:
    matrix = np.zeros((len(names), len(names)), int)
    np.add.at(matrix, (truth, answers), 1)
    axis.imshow(np.log1p(matrix), cmap="Blues")
    for row, column in np.ndindex(*matrix.shape):
        if matrix[row, column]:
            colour = "white" if row == column else "black"
            axis.text(
                column, row, matrix[row, column], ha="center", va="center", size=7, color=colour
            )
    axis.set(title="what is taken for what", xlabel="answer", ylabel="truth")
    axis.set_xticks(range(len(names)), names, size=7, rotation=45, ha="right")
    axis.set_yticks(range(len(names)), names, size=7)


def _draw_mistakes(figure: Any, answers: np.ndarray, data: Dataset) -> None:
    wrong = np.flatnonzero(answers != data.y_test)
    figure.suptitle(f"{len(wrong)} mistakes: truth, answer", size=10)
    for axis, index in zip(figure.subplots(2, 14).flat, [*wrong, *[None] * 28]):
        axis.set_axis_off()
        if index is not None:
            axis.imshow(data.x_test[index], cmap="gray_r")
            names = data.classes[data.y_test[index]], data.classes[answers[index]]
            axis.set_title(", ".join(names), size=7)
