"""A little network that says the next word of a text, for tests of programs that generate texts,
and the words that NumPy finds in float64, each computed from all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilegrad.torch as torch

_random = np.random.default_rng(23)
WORDS, SIZE = 17, 8
TABLE = _random.normal(size=(WORDS, SIZE)).astype(np.float32)
PLACES = _random.normal(size=(96, SIZE)).astype(np.float32)
LAYERS = [_random.normal(size=(SIZE, 3 * SIZE)).astype(np.float32) * 0.5 for _ in range(2)]
SCALE = 0.3


def softmax(x: Any) -> Any:
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


def continued(words: Sequence[int], steps: int, *, window: int = 1000) -> list[int]:
    """The `words`, and those that follow; each step sees the last ones in a `window`."""
    found = list(words)
    for _ in range(steps):
        now = found[-window:]
        x = TABLE[now].astype(np.float64) + PLACES[: len(now)]
        for layer in LAYERS:
            q, k, v = np.split(x @ layer.astype(np.float64), 3, axis=-1)
            scores = q @ k.T * SCALE
            scores[np.triu_indices(len(now), 1)] = -np.inf
            x = x + np.tanh(softmax(scores) @ v)
        found.append(int((x[-1] @ TABLE.T).argmax()))
    return found


class Network:
    """The weights as tensors. What its layers attend to, and which memory of keys and values they
    have, the program says.
    """

    def __init__(self) -> None:
        self.table, self.places = torch.tensor(TABLE), torch.tensor(PLACES)
        self.layers = [torch.tensor(each) for each in LAYERS]

    def states(self, x: Any, attended: Callable[[int, Any, Any, Any], Any]) -> Any:
        """The states of all positions of `x`. `attended` gives the values of a layer, by its
        number, queries, keys and values.
        """
        for number, layer in enumerate(self.layers):
            x = x + torch.tanh(attended(number, *(x @ layer).split(SIZE, dim=-1)))
        return x

    def scores(self, x: Any, attended: Callable[[int, Any, Any, Any], Any]) -> Any:
        """The scores of all words behind the last position of `x`."""
        return self.states(x, attended)[:, -1] @ self.table.T
