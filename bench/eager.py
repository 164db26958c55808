"""Ordinary programs: loops as PyTorch users write them, without `jit`, beside PyTorch.

    python bench/eager.py                the programs, each in three processes of its own
    python bench/eager.py power k-means  those programs
    python bench/eager.py --steps 40     shorter loops

Each process begins with an empty cache, and finds Python's own compiled files, as an installed
library does (the first of all processes makes them). Both libraries run the same steps,
interleaved, and what a step logs is compared at every step. *steady* is PyTorch's time over
tilegrad's in the median of the last third of the steps, *whole* that of all steps, first calls and
compiles included; *plans* and *kernels* are how many graphs were scheduled and how many kernels
compiled, and *late* those in the last third. `bench/results/eager.json` keeps the last run of all
programs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.random  # NumPy loads it at first use, which is no part of a first step.
from step_loops import Log, main, measured

STEPS = 100
_PATIENCE_S = 600.0
Program = Callable[[Any, int], Iterator[Log]]
PROGRAMS: dict[str, Program] = {}


class Tilegrad:
    """What programs call that the two libraries spell in two ways."""

    def __init__(self) -> None:
        from tilegrad import Tensor

        self.Tensor = Tensor
        self.cat, self.stack = Tensor.cat, Tensor.stack

    def tensor(self, values: Any, *, grad: bool = False) -> Any:
        return self.Tensor(values, requires_grad=True) if grad else self.Tensor(values)

    def update(self, tensor: Any, value: Any) -> None:
        """Give a parameter its next value, in place."""
        tensor.assign(value)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return condition.where(yes, no)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return logits.cross_entropy(labels)

    def adam(self, params: Sequence[Any], rate: float) -> Any:
        from tilegrad import nn

        return nn.optim.Adam(params, lr=rate)

    def set_rate(self, optimizer: Any, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate

    def rows(self, table: Any, numbers: Any) -> Any:
        return table[numbers]

    def conv2d(self, x: Any, weight: Any) -> Any:
        return x.conv2d(weight, padding=1)

    def max_pool(self, x: Any) -> Any:
        return x.max_pool2d((2, 2))


class PyTorch:
    """As `Tilegrad`."""

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def tensor(self, values: Any, *, grad: bool = False) -> Any:
        return self.torch.tensor(values, requires_grad=grad)

    def cat(self, *parts: Any, dim: int = 0) -> Any:
        return self.torch.cat(parts, dim)

    def stack(self, *parts: Any, dim: int = 0) -> Any:
        return self.torch.stack(parts, dim)

    def update(self, tensor: Any, value: Any) -> None:
        with self.torch.no_grad():
            tensor.copy_(value.detach())

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return self.torch.where(condition, yes, no)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.torch.nn.functional.cross_entropy(logits, labels.long())

    def adam(self, params: Sequence[Any], rate: float) -> Any:
        return self.torch.optim.Adam(params, lr=rate)

    def set_rate(self, optimizer: Any, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate

    def rows(self, table: Any, numbers: Any) -> Any:
        return table[numbers.long()]

    def conv2d(self, x: Any, weight: Any) -> Any:
        return self.torch.nn.functional.conv2d(x, weight, padding=1)

    def max_pool(self, x: Any) -> Any:
        return self.torch.nn.functional.max_pool2d(x, 2)


def program(name: str) -> Callable[[Program], Program]:
    def add(function: Program) -> Program:
        PROGRAMS[name] = function
        return function

    return add


def _normal(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


@program("mlp")
def mlp(lib: Any, steps: int) -> Iterator[Log]:
    """A classifier whose parameters are updated by hand."""
    weights = [_normal(1, 64, 128, scale=0.1), _normal(2, 128, 10, scale=0.1)]
    w1, w2 = (lib.tensor(each, grad=True) for each in weights)
    labels = np.arange(32, dtype=np.int32) % 10
    for step in range(steps):
        x, y = lib.tensor(_normal(step, 32, 64)), lib.tensor(labels)
        loss = lib.cross_entropy((x @ w1).relu() @ w2, y)
        loss.backward()
        for each in (w1, w2):
            lib.update(each, each - 0.1 * each.grad)
            each.grad = None
        yield [loss.item()]


@program("graph")
def graph(lib: Any, steps: int) -> Iterator[Log]:
    """Graph convolution, whose weights are new tensors at each step."""
    links = (_normal(3, 100, 100) > 1).astype(np.float32)
    links = links / np.maximum(links.sum(1, keepdims=True), 1)
    a, x = lib.tensor(links), lib.tensor(_normal(4, 100, 16))
    goal = lib.tensor(_normal(5, 100, 4))
    w1, w2 = lib.tensor(_normal(6, 16, 32, scale=0.2)), lib.tensor(_normal(7, 32, 4, scale=0.2))
    for _ in range(steps):
        hidden = (a @ x @ w1).relu()
        out = a @ hidden @ w2
        error = out - goal
        loss = (error * error).mean()
        flow = error * (2.0 / 400)
        back = a.T @ flow
        g2 = hidden.T @ back
        inner = (back @ w2.T) * (hidden > 0)
        g1 = (a @ x).T @ inner
        w1, w2 = w1 - 0.5 * g1, w2 - 0.5 * g2
        yield [loss.item()]


@program("coordinates")
def coordinates(lib: Any, steps: int) -> Iterator[Log]:
    """A network of sines over coordinates, with Adam written by hand."""
    x = lib.tensor(np.linspace(-1, 1, 256, dtype=np.float32).reshape(256, 1))
    goal = (x * 7).sin()
    params = [
        lib.tensor(each, grad=True)
        for each in (
            _normal(8, 1, 32, scale=3.0),
            _normal(9, 32, 32, scale=0.3),
            _normal(10, 32, 1),
        )
    ]
    moments = [(lib.tensor(np.zeros(p.shape, np.float32)),) * 2 for p in params]
    for step in range(1, steps + 1):
        loss = ((((x @ params[0]).sin() @ params[1]).sin() @ params[2] - goal) ** 2).mean()
        loss.backward()
        for place, p in enumerate(params):
            g = p.grad.detach()
            m, v = moments[place]
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            moments[place] = m, v
            root = (v / (1 - 0.99**step)).sqrt() + 1e-8
            lib.update(p, p - 0.01 * (m / (1 - 0.9**step)) / root)
            p.grad = None
        yield [loss.item()]


@program("power")
def power(lib: Any, steps: int) -> Iterator[Log]:
    """Power iteration that prints the eigenvalue."""
    matrix = _normal(11, 100, 100)
    a, v = lib.tensor(matrix @ matrix.T), lib.tensor(np.ones(100, np.float32))
    for _ in range(steps):
        v = a @ v
        norm = (v * v).sum().sqrt()
        v = v / norm
        yield [norm.item()]


@program("k-means")
def k_means(lib: Any, steps: int) -> Iterator[Log]:
    points = np.random.default_rng(12).normal(size=(500, 4)).astype(np.float32)
    x = lib.tensor(points)
    centres = lib.tensor(points[:8].copy())
    names = lib.tensor(np.arange(8, dtype=np.int32))
    for _ in range(steps):
        distances = ((x.reshape(500, 1, 4) - centres.reshape(1, 8, 4)) ** 2).sum(2)
        member = (distances.argmin(1).reshape(500, 1) == names).float()
        counts = member.sum(0).reshape(8, 1)
        centres = (member.T @ x + centres * 0.01) / (counts + 0.01)
        inertia = (distances * member).sum()
        yield [inertia.item()]


@program("bodies")
def bodies(lib: Any, steps: int) -> Iterator[Log]:
    """Twelve bodies that log their energy."""
    position, speed = lib.tensor(_normal(13, 12, 3)), lib.tensor(_normal(14, 12, 3, scale=0.1))
    mass = lib.tensor(np.full((12, 1), 0.1, np.float32))
    for _ in range(steps):
        apart = position.reshape(1, 12, 3) - position.reshape(12, 1, 3)
        square = (apart * apart).sum(2) + 0.1
        pull = (apart * (square.rsqrt() / square).reshape(12, 12, 1) * mass).sum(1)
        speed = speed + 0.01 * pull
        position = position + 0.01 * speed
        moving = (0.5 * mass * speed * speed).sum()
        bound = -0.5 * (mass * mass.T * square.rsqrt()).sum()
        yield [(moving + bound).item()]


@program("decoder")
def decoder(lib: Any, steps: int) -> Iterator[Log]:
    """A decoder whose keys and values grow by one at each step."""
    wq, wk, wv, wo = (lib.tensor(_normal(15 + n, 32, 32, scale=0.2)) for n in range(4))
    x = lib.tensor(_normal(19, 1, 32))
    keys = values = None
    for _ in range(steps):
        q, k, v = x @ wq, x @ wk, x @ wv
        keys = k if keys is None else lib.cat(keys, k, dim=0)
        values = v if values is None else lib.cat(values, v, dim=0)
        x = (((q @ keys.T) * 0.18).softmax(-1) @ values @ wo + x).tanh()
        yield [x.sum().item()]


@program("batches")
def batches(lib: Any, steps: int) -> Iterator[Log]:
    """Batches of every size."""
    random = np.random.default_rng(20)
    w = lib.tensor(_normal(21, 32, 8, scale=0.2))
    for _ in range(steps):
        x = lib.tensor(random.normal(size=(int(random.integers(1, 200)), 32)).astype(np.float32))
        yield [(x @ w).relu().mean().item()]


@program("statistics")
def statistics(lib: Any, steps: int) -> Iterator[Log]:
    """Running statistics in place."""
    mean, square = lib.tensor(np.zeros(64, np.float32)), lib.tensor(np.ones(64, np.float32))
    for step in range(steps):
        x = lib.tensor(_normal(step, 128, 64))
        mean *= 0.9
        mean += 0.1 * x.mean(0)
        square *= 0.9
        square += 0.1 * (x * x).mean(0)
        z = (x - mean) / (square + 1e-5).sqrt()
        yield [z.abs().mean().item()]


@program("masks")
def masks(lib: Any, steps: int) -> Iterator[Log]:
    """Masks with a moving threshold."""
    x = lib.tensor(_normal(22, 200, 50))
    for step in range(steps):
        limit = math.sin(0.1 * step) + 0.013
        kept = lib.where(x > limit, x, x * 0.1)
        yield [kept.clip(-limit - 2.5, 2.5 + 0.01 * step).sum().item()]


@program("conv-net")
def conv_net(lib: Any, steps: int) -> Iterator[Log]:
    """A convolutional network, one image at a time."""
    w1, w2 = (
        lib.tensor(_normal(23, 16, 3, 3, 3, scale=0.2)),
        lib.tensor(_normal(24, 32, 16, 3, 3, scale=0.1)),
    )
    head = lib.tensor(_normal(25, 32 * 64, 10, scale=0.02))
    for step in range(steps):
        x = lib.tensor(_normal(step, 1, 3, 32, 32))
        x = lib.max_pool(lib.conv2d(x, w1).relu())
        x = lib.max_pool(lib.conv2d(x, w2).relu())
        yield (x.reshape(1, -1) @ head).softmax(-1).reshape(-1).tolist()


@program("block")
def block(lib: Any, steps: int) -> Iterator[Log]:
    """A transformer block over states that go through it again and again."""
    x = lib.tensor(_normal(26, 32, 64))
    wqkv, wo = (
        lib.tensor(_normal(27, 64, 192, scale=0.1)),
        lib.tensor(_normal(28, 64, 64, scale=0.1)),
    )
    up, down = (
        lib.tensor(_normal(29, 64, 256, scale=0.1)),
        lib.tensor(_normal(30, 256, 64, scale=0.1)),
    )

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()

    for _ in range(steps):
        qkv = (normed(x) @ wqkv).reshape(32, 3, 4, 16).permute(1, 2, 0, 3)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = (q @ k.transpose(-1, -2) * 0.25).softmax(-1)
        x = x + (weights @ v).transpose(0, 1).reshape(32, 64) @ wo
        x = x + (normed(x) @ up).relu() @ down
        x = normed(x)
        yield [x.abs().mean().item(), x.max().item()]


@program("adam")
def adam(lib: Any, steps: int) -> Iterator[Log]:
    """A classifier under Adam, whose learning rate falls from step to step."""
    shapes = ((64, 128), (128,), (128, 10), (10,))
    params = [
        lib.tensor(_normal(40 + n, *shape, scale=0.1), grad=True) for n, shape in enumerate(shapes)
    ]
    w1, b1, w2, b2 = params
    optimizer = lib.adam(params, 0.01)
    labels = lib.tensor(np.arange(32, dtype=np.int32) % 10)
    for step in range(steps):
        lib.set_rate(optimizer, 0.01 * 0.98**step)
        x = lib.tensor(_normal(step, 32, 64))
        loss = lib.cross_entropy((x @ w1 + b1).relu() @ w2 + b2, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield [loss.item()]


@program("short-batch")
def short_batch(lib: Any, steps: int) -> Iterator[Log]:
    """Epochs of four batches, the last one short; the gradient by hand."""
    data, goal = _normal(50, 110, 24), _normal(51, 110, 4)
    w = lib.tensor(np.zeros((24, 4), np.float32))
    for step in range(steps):
        begin = step % 4 * 32
        x, y = lib.tensor(data[begin : begin + 32]), lib.tensor(goal[begin : begin + 32])
        error = x @ w - y
        w = w - (0.1 / len(x)) * (x.T @ error)
        yield [(error * error).mean().item()]


@program("sentences")
def sentences(lib: Any, steps: int) -> Iterator[Log]:
    """Sentences of every length: an embedding, attention over the words, a gradient."""
    random = np.random.default_rng(52)
    table = lib.tensor(_normal(53, 200, 24, scale=0.5), grad=True)
    head = lib.tensor(_normal(54, 24, 5, scale=0.3), grad=True)
    for step in range(steps):
        words = lib.tensor(random.integers(0, 200, int(random.integers(3, 40))).astype(np.int32))
        x = lib.rows(table, words)
        mixed = ((x @ x.T) * 0.2).softmax(-1) @ x
        logits = (mixed.mean(0) @ head).reshape(1, 5)
        loss = lib.cross_entropy(logits, lib.tensor(np.array([step % 5], np.int32)))
        loss.backward()
        for each in (table, head):
            lib.update(each, each - 0.1 * each.grad)
            each.grad = None
        yield [loss.item()]


@program("recurrent")
def recurrent(lib: Any, steps: int) -> Iterator[Log]:
    """A recurrent network through ten words, and back."""
    wx, wh = (
        lib.tensor(_normal(55, 8, 32, scale=0.3), grad=True),
        lib.tensor(_normal(56, 32, 32, scale=0.15), grad=True),
    )
    wo = lib.tensor(_normal(57, 32, 1, scale=0.3), grad=True)
    for step in range(steps):
        x = lib.tensor(_normal(step, 10, 4, 8))
        h = lib.tensor(np.zeros((4, 32), np.float32))
        for time_step in range(10):
            h = (x[time_step] @ wx + h @ wh).tanh()
        loss = ((h @ wo - x.sum(0).sum(1, keepdim=True) * 0.1) ** 2).mean()
        loss.backward()
        for each in (wx, wh, wo):
            lib.update(each, each - 0.02 * each.grad)
            each.grad = None
        yield [loss.item()]


@program("heat")
def heat(lib: Any, steps: int) -> Iterator[Log]:
    """Heat that spreads over a plate, whose inside is written in place."""
    u = lib.tensor(_normal(58, 64, 64))
    for _ in range(steps):
        flow = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.2 * flow
        yield [u.abs().max().item(), u.sum().item()]


@program("life")
def life(lib: Any, steps: int) -> Iterator[Log]:
    """The game of life on a torus."""
    cells = lib.tensor((_normal(59, 48, 48) > 0.4).astype(np.int32))
    for _ in range(steps):
        near = -cells
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                near = near + cells.roll((dy, dx), (0, 1))
        cells = lib.where((near == 3) | ((near == 2) & (cells == 1)), cells * 0 + 1, cells * 0)
        yield [float(cells.sum().item())]


@program("cache")
def cache(lib: Any, steps: int) -> Iterator[Log]:
    """A decoder that writes keys and values at the next place of memory for all of them."""
    wq, wk, wv = (lib.tensor(_normal(60 + n, 32, 32, scale=0.2)) for n in range(3))
    keys, values = (lib.tensor(np.zeros((128, 32), np.float32)) for _ in range(2))
    places = lib.tensor(np.arange(128, dtype=np.int32))
    x = lib.tensor(_normal(63, 1, 32))
    for step in range(steps):
        keys[step % 128] = (x @ wk)[0]
        values[step % 128] = (x @ wv)[0]
        scores = ((x @ wq) @ keys.T) * 0.18
        scores = lib.where(places <= step, scores, scores * 0 - 1e9)
        x = (scores.softmax(-1) @ values + x).tanh()
        yield [x.sum().item()]


@program("metropolis")
def metropolis(lib: Any, steps: int) -> Iterator[Log]:
    """A random walk that asks Python whether a move is taken."""
    random = np.random.default_rng(64)
    matrix = _normal(65, 16, 16, scale=0.3)
    precision = lib.tensor(matrix @ matrix.T + np.eye(16, dtype=np.float32))
    state = lib.tensor(np.zeros(16, np.float32))
    energy = 0.0
    for _ in range(steps):
        move = state + lib.tensor((random.normal(size=16) * 0.4).astype(np.float32))
        new = 0.5 * float((move @ precision @ move).item())
        if random.random() < math.exp(min(energy - new, 0.0)):
            state, energy = move, new
        yield [energy]


@program("average")
def average(lib: Any, steps: int) -> Iterator[Log]:
    """A linear model with weight decay by a schedule, and the moving average of its weights."""
    w = lib.tensor(_normal(66, 20, 3, scale=0.5), grad=True)
    mean = lib.tensor(np.zeros((20, 3), np.float32))
    for step in range(steps):
        x, y = lib.tensor(_normal(step, 16, 20)), lib.tensor(_normal(step + 500, 16, 3))
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        rate = 0.05 * (1 + math.cos(math.pi * step / steps))
        lib.update(w, (w - rate * w.grad).detach() * (1 - 0.1 * rate))
        w.grad = None
        mean = 0.9 * mean + 0.1 * w.detach()
        yield [loss.item(), mean.abs().sum().item()]


@program("norm-net")
def norm_net(lib: Any, steps: int) -> Iterator[Log]:
    """A convolutional network with normalised batches, trained; at a rate of 0.05 a rounding in the
    last place grows a thousandfold in 40 steps, and its values could not be compared.
    """
    w1 = lib.tensor(_normal(67, 8, 3, 3, 3, scale=0.2), grad=True)
    w2 = lib.tensor(_normal(68, 8 * 64, 10, scale=0.05), grad=True)
    scale = lib.tensor(np.ones((1, 8, 1, 1), np.float32), grad=True)
    labels = lib.tensor(np.arange(8, dtype=np.int32))
    for step in range(steps):
        x = lib.conv2d(lib.tensor(_normal(step, 8, 3, 16, 16)), w1)
        centred = x - x.mean((0, 2, 3), keepdim=True)
        spread = (centred * centred).mean((0, 2, 3), keepdim=True)
        x = lib.max_pool((centred / (spread + 1e-5).sqrt() * scale).relu())
        loss = lib.cross_entropy(x.reshape(8, -1) @ w2, labels)
        loss.backward()
        for each in (w1, w2, scale):
            lib.update(each, each - 0.01 * each.grad)
            each.grad = None
        yield [loss.item()]


@program("rivals")
def rivals(lib: Any, steps: int) -> Iterator[Log]:
    """Two networks that are trained against each other, each by an optimizer of its own."""
    make = [lib.tensor(_normal(70, 4, 16, scale=0.5), grad=True)]
    make.append(lib.tensor(_normal(71, 16, 2, scale=0.5), grad=True))
    judge = [lib.tensor(_normal(72, 2, 16, scale=0.5), grad=True)]
    judge.append(lib.tensor(_normal(73, 16, 1, scale=0.5), grad=True))
    makes, judges = lib.adam(make, 0.002), lib.adam(judge, 0.002)

    def judged(x: Any) -> Any:
        return ((x @ judge[0]).tanh() @ judge[1]).sigmoid()

    for step in range(steps):
        real = lib.tensor(_normal(step, 32, 2) + np.float32(1.5))
        fake = (lib.tensor(_normal(step + 900, 32, 4)) @ make[0]).relu() @ make[1]
        doubt = -(judged(real).log().mean() + (1 - judged(fake.detach())).log().mean())
        judges.zero_grad()
        doubt.backward()
        judges.step()
        wish = -judged(fake).log().mean()
        makes.zero_grad()
        wish.backward()
        makes.step()
        yield [doubt.item(), wish.item()]


@program("windows")
def windows(lib: Any, steps: int) -> Iterator[Log]:
    """A window that moves along a series, and a forecast that is corrected."""
    series = lib.tensor(np.sin(np.arange(400, dtype=np.float32) * 0.1) + _normal(74, 400) * 0.1)
    w = lib.tensor(np.zeros(32, np.float32))
    for step in range(steps):
        seen, comes = series[step : step + 32], series[step + 32]
        error = (seen * w).sum() - comes
        w = w - 0.01 * error * seen
        yield [error.item()]


@program("newton")
def newton(lib: Any, steps: int) -> Iterator[Log]:
    """Newton's method for many roots, again and again until Python sees that it is there."""
    random = np.random.default_rng(75)
    for _ in range(steps):
        a = lib.tensor(random.uniform(1, 9, 50).astype(np.float32))
        x = a * 0.5 + 0.5
        for _ in range(12):
            x = 0.5 * (x + a / x)
            if (x * x - a).abs().max().item() < 1e-3:
                break
        yield [x.sum().item()]


@program("kalman")
def kalman(lib: Any, steps: int) -> Iterator[Log]:
    """A Kalman filter of four states that is given a measurement at each step."""
    random = np.random.default_rng(76)
    motion = lib.tensor((np.eye(4) + 0.1 * np.eye(4, k=2)).astype(np.float32))
    noise = lib.tensor((0.01 * np.eye(4)).astype(np.float32))
    one = lib.tensor(np.eye(1, 4, dtype=np.float32))
    state = lib.tensor(np.zeros((4, 1), np.float32))
    spread = lib.tensor(np.eye(4, dtype=np.float32))
    for step in range(steps):
        seen = lib.tensor(np.full((1, 1), 0.1 * step + random.normal() * 0.1, np.float32))
        state, spread = motion @ state, motion @ spread @ motion.T + noise
        gain = spread @ one.T / (one @ spread @ one.T + 0.05)
        surprise = seen - one @ state
        state, spread = state + gain @ surprise, spread - gain @ one @ spread
        yield [surprise.item()]


@program("sinkhorn")
def sinkhorn(lib: Any, steps: int) -> Iterator[Log]:
    """Plans of transport between point clouds, whose rows and columns are scaled in turn."""
    for step in range(steps):
        x, y = lib.tensor(_normal(step, 20, 1, 2)), lib.tensor(_normal(step + 300, 1, 30, 2))
        cost = ((x - y) ** 2).sum(2)
        kernel = (cost * -0.5).exp()
        rows, columns = kernel.sum(1) * 0 + 0.05, kernel.sum(0) * 0 + 1 / 30
        left, right = rows, columns
        for _ in range(5):
            left = rows / (kernel @ right)
            right = columns / (kernel.T @ left)
        yield [((left.reshape(20, 1) * kernel * right.reshape(1, 30)) * cost).sum().item()]


@program("tokens")
def tokens(lib: Any, steps: int) -> Iterator[Log]:
    """A recurrent language model that says the likeliest token, which Python reads and gives it."""
    table, within = lib.tensor(_normal(77, 50, 24)), lib.tensor(_normal(78, 24, 24, scale=0.3))
    out = lib.tensor(_normal(79, 24, 50))
    hidden = lib.tensor(np.zeros((1, 24), np.float32))
    token = 0
    for step in range(steps):
        hidden = (lib.rows(table, lib.tensor(np.array([token]))) + hidden @ within).tanh()
        scores = hidden @ out
        token = (int(scores.argmax(1).item()) + step) % 50
        yield [token, scores.max().item()]


@program("momentum")
def momentum(lib: Any, steps: int) -> Iterator[Log]:
    """A network trained with momentum and weight decay by lists of tensors, whose rate falls."""
    params = [lib.tensor(_normal(80 + n, *shape, scale=0.2), grad=True)
              for n, shape in enumerate([(12, 32), (32,), (32, 1), (1,)])]  # fmt: skip
    moves = [lib.tensor(np.zeros(p.shape, np.float32)) for p in params]
    for step in range(steps):
        given = _normal(step, 40, 12)
        x, goal = lib.tensor(given), lib.tensor(np.abs(given).mean(1, keepdims=True))
        found = ((x @ params[0] + params[1]).relu()) @ params[2] + params[3]
        loss = (found - goal).abs().mean()
        loss.backward()
        rate = 0.05 * 0.99**step
        for place, p in enumerate(params):
            moves[place] = 0.9 * moves[place] + p.grad.detach() + 1e-4 * p.detach()
            lib.update(p, p - rate * moves[place])
            p.grad = None
        yield [loss.item()]


@program("ising")
def ising(lib: Any, steps: int) -> Iterator[Log]:
    """The Ising model on a torus: both colours of a chessboard are drawn anew at each step."""
    random = np.random.default_rng(84)
    spins = lib.tensor(np.where(random.random((32, 32)) < 0.5, -1, 1).astype(np.float32))
    board = np.indices((32, 32)).sum(0) % 2
    colours = [lib.tensor(board == colour) for colour in (0, 1)]
    for _ in range(steps):
        for colour in colours:
            near = spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1)
            chance = (near * 0.8).sigmoid()
            draw = lib.tensor(random.random((32, 32)).astype(np.float32))
            spins = lib.where(
                colour, lib.where(draw < chance, chance * 0 + 1, chance * 0 - 1), spins
            )
        yield [spins.sum().item()]


def run_program(name: str, steps: int) -> dict[str, float]:
    """Both libraries, interleaved, in this process."""
    return measured(name, [PROGRAMS[name](lib, steps) for lib in (Tilegrad(), PyTorch())], steps)


if __name__ == "__main__":
    sys.exit(main(__file__, __doc__, PROGRAMS, run_program, STEPS, _PATIENCE_S))
