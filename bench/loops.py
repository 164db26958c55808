"""Loops over small tensors, element by element, row by row and by masks, as PyTorch users write
them: run by PyTorch and, with another module in its place, by `tilegrad.torch`.

    python bench/loops.py                the programs, each in three processes of its own
    python bench/loops.py bfs viterbi    those programs
    python bench/loops.py --steps 40     shorter loops

Each process begins with an empty cache, and has both libraries on one thread, whose steps take
turns; what they compute is compared at every step. *steady* is PyTorch's time over tilegrad's in
the median of the last third of the steps, *whole* that of all steps, compiles included.
`bench/results/loops.json` keeps the last run of all programs.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from step_loops import Log, main, measured

STEPS = 100
_PATIENCE_S = 300.0
Program = Callable[[Any, int], Iterator[Log]]
PROGRAMS: dict[str, Program] = {}


def program(step: Program) -> Program:
    """A generator that does one step each time it is asked, of as many as it is told, with the
    module `torch`, or that which takes its place.
    """
    PROGRAMS[step.__name__] = step
    return step


def _numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).random(shape, np.float32)


@program
def q_learning(torch: Any, steps: int) -> Iterator[Log]:
    """A walk on a line of 16 states, whose table is corrected after each step."""
    chance = random.Random(0)
    table, state = torch.zeros(16, 4), 0
    for _ in range(steps):
        for _ in range(5):
            if chance.random() < 0.2:
                action = chance.randrange(4)
            else:
                action = table[state].argmax().item()
            new = (state * 3 + action * 5 + 1) % 16
            reward = 1.0 if new == 15 else -0.01
            target = reward + 0.9 * table[new].max()
            table[state, action] += 0.1 * (target - table[state, action])
            state = new
        yield [state, table[state, 0].item()]


@program
def bfs(torch: Any, steps: int) -> Iterator[Log]:
    """Breadth-first search on an adjacency matrix, from each vertex in turn."""
    edges = torch.tensor(_numbers(1, 24, 24) < 0.1)
    for step in range(steps):
        seen = torch.zeros(24, dtype=torch.bool)
        seen[step % 24] = True
        frontier, depth = seen.clone(), 0
        while frontier.any():
            frontier = edges[frontier].any(dim=0) & ~seen
            seen = seen | frontier
            depth += 1
        yield [depth, seen.sum().item()]


@program
def edit_distance(torch: Any, steps: int) -> Iterator[Log]:
    """A table of distances between two words, filled element by element."""
    words = np.random.default_rng(2).integers(0, 3, (steps, 2, 6)).tolist()
    for first, second in words:
        table = torch.zeros(7, 7, dtype=torch.int64)
        table[:, 0] = torch.arange(7)
        table[0, :] = torch.arange(7)
        for i in range(1, 7):
            for j in range(1, 7):
                cost = 0 if first[i - 1] == second[j - 1] else 1
                table[i, j] = min(
                    table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost
                )
        yield [table[6, 6].item()]


@program
def floyd(torch: Any, steps: int) -> Iterator[Log]:
    """Shortest paths between all pairs, row by row."""
    for step in range(steps):
        far = torch.tensor(_numbers(step, 12, 12) * 10)
        for k in range(12):
            far = torch.minimum(far, far[:, k : k + 1] + far[k : k + 1, :])
        yield [far.sum().item()]


@program
def floyd_rows(torch: Any, steps: int) -> Iterator[Log]:
    """As `floyd`, each row in place."""
    for step in range(steps):
        far = torch.tensor(_numbers(step, 6, 6) * 10)
        for k in range(6):
            for i in range(6):
                far[i] = torch.minimum(far[i], far[i, k] + far[k])
        yield [far.sum().item()]


@program
def life(torch: Any, steps: int) -> Iterator[Log]:
    """The game of life on a torus."""
    board = torch.tensor((_numbers(3, 16, 16) < 0.4).astype(np.int32))
    for _ in range(steps):
        near = torch.zeros_like(board)
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                if down or right:
                    near += torch.roll(board, (down, right), (0, 1))
        board = ((near == 3) | ((board == 1) & (near == 2))).to(torch.int32)
        yield [board.sum().item()]


@program
def gauss_seidel(torch: Any, steps: int) -> Iterator[Log]:
    matrix = _numbers(4, 8, 8) + 8 * np.eye(8, dtype=np.float32)
    a, b, x = torch.tensor(matrix), torch.tensor(_numbers(5, 8)), torch.zeros(8)
    for step in range(steps):
        if step % 10 == 0:
            x = torch.zeros(8)
        for i in range(8):
            x[i] = (b[i] - a[i] @ x + a[i, i] * x[i]) / a[i, i]
        yield [(a @ x - b).abs().max().item()]


@program
def viterbi(torch: Any, steps: int) -> Iterator[Log]:
    """The likeliest states of a chain of twelve observations."""
    moves = torch.log(torch.tensor(_numbers(6, 5, 5) + 0.1))
    for step in range(steps):
        seen = torch.log(torch.tensor(_numbers(step, 12, 5) + 0.1))
        score, back = seen[0], []
        for t in range(1, 12):
            best, where = (score.unsqueeze(1) + moves).max(dim=0)
            score = best + seen[t]
            back.append(where)
        state = score.argmax().item()
        path = [state]
        for where in reversed(back):
            state = where[state].item()
            path.append(state)
        yield path


@program
def bubble_sort(torch: Any, steps: int) -> Iterator[Log]:
    for step in range(steps):
        x = torch.tensor(_numbers(step, 7))
        for end in range(6, 0, -1):
            for i in range(end):
                if x[i] > x[i + 1]:
                    x[i], x[i + 1] = x[i + 1].clone(), x[i].clone()
        yield x.tolist()


@program
def gram_schmidt(torch: Any, steps: int) -> Iterator[Log]:
    for step in range(steps):
        a = torch.tensor(_numbers(step, 5, 8))
        q = torch.zeros(5, 8)
        for i in range(5):
            v = a[i].clone()
            for j in range(i):
                v -= (q[j] @ a[i]) * q[j]
            q[i] = v / v.norm()
        yield [(q @ q.T).sum().item()]


@program
def union(torch: Any, steps: int) -> Iterator[Log]:
    """Greedy suppression of boxes: masks are united until nothing is left."""
    for step in range(steps):
        corners = torch.tensor(_numbers(step, 12, 2) * 10)
        scores = torch.tensor(_numbers(step + 900, 12))
        left = torch.ones(12, dtype=torch.bool)
        kept = 0
        while left.any():
            best = torch.where(left, scores, torch.full_like(scores, -1.0)).argmax()
            near = ((corners - corners[best]) ** 2).sum(dim=1) < 9.0
            left = left & ~near
            kept += 1
        yield [kept]


@program
def running(torch: Any, steps: int) -> Iterator[Log]:
    """Mean and variance of a stream, and those that are far from it."""
    count, mean, square = 0, torch.zeros(()), torch.zeros(())
    strange = 0
    for step in range(steps):
        for value in torch.tensor(_numbers(step, 6)):
            count += 1
            delta = value - mean
            mean = mean + delta / count
            square = square + delta * (value - mean)
            if count > 2 and delta.abs().item() > 1.5 * math.sqrt(square.item() / count):
                strange += 1
        yield [mean.item(), strange]


@program
def simplex(torch: Any, steps: int) -> Iterator[Log]:
    """Elimination with the largest pivot, row by row."""
    for step in range(steps):
        a = torch.tensor(_numbers(step, 5, 6))
        for k in range(5):
            pivot = k + int(a[k:, k].abs().argmax())
            if pivot != k:
                a[[k, pivot]] = a[[pivot, k]]
            for i in range(k + 1, 5):
                a[i, k:] -= a[i, k] / a[k, k] * a[k, k:]
        x = torch.zeros(5)
        for k in range(4, -1, -1):
            x[k] = (a[k, 5] - a[k, :5] @ x) / a[k, k]
        yield [x.sum().item()]


@program
def perceptron(torch: Any, steps: int) -> Iterator[Log]:
    """Corrected where it errs, point by point."""
    points = torch.tensor(_numbers(7, 40, 4) - 0.5)
    labels = torch.tensor(np.where(_numbers(8, 40) < 0.5, -1.0, 1.0).astype(np.float32))
    w, b = torch.zeros(4), torch.zeros(1)
    for step in range(steps):
        wrong = 0
        for i in range(step % 8 * 5, step % 8 * 5 + 5):
            if labels[i] * (w @ points[i] + b) <= 0:
                w += 0.25 * labels[i] * points[i]
                b += 0.25 * labels[i]
                wrong += 1
        yield [wrong, w.sum().item()]


@program
def sieve(torch: Any, steps: int) -> Iterator[Log]:
    for step in range(steps):
        size = 60 + step % 3
        is_prime = torch.ones(size, dtype=torch.bool)
        is_prime[:2] = False
        for i in range(2, 8):
            if is_prime[i]:
                is_prime[i * i :: i] = False
        yield [int(is_prime.sum()), torch.nonzero(is_prime).flatten()[-1].item()]


@program
def prefix(torch: Any, steps: int) -> Iterator[Log]:
    """Running maxima and a histogram, element by element."""
    for step in range(steps):
        x = torch.tensor(_numbers(step, 10))
        counts = torch.zeros(5, dtype=torch.int64)
        high = x[0]
        for i in range(len(x)):
            counts[int(x[i] * 5)] += 1
            if x[i] > high:
                high = x[i]
        yield [*counts.tolist(), high.item()]


def run_program(name: str, steps: int) -> dict[str, float]:
    """Both libraries, whose steps take turns, in this process."""
    import torch

    import tilegrad.torch

    torch.set_num_threads(1)
    return measured(name, [PROGRAMS[name](lib, steps) for lib in (tilegrad.torch, torch)], steps)


if __name__ == "__main__":
    sys.exit(main(__file__, __doc__, PROGRAMS, run_program, STEPS, _PATIENCE_S))
