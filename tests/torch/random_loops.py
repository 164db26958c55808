"""Random loops over recurrent cells written by hand, for either library: lengths change from step
to step, and the form of the loop from program to program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.torch.random_episodes import RandomProgram

__all__ = ["loops"]

ITEMS, INPUTS, WORDS = 2, 3, 6


class _Network:
    """The cells of one program, by what it reads at each step and how it gathers a loss."""

    def __init__(self, p: RandomProgram):
        self.p, nn = p, p.m.nn
        self.kind = p.choice.choice(["lstm", "gru", "rnn", "cat"])
        self.reads = p.choice.choice(["x[:, t]", "embedded", "embed each", "own words"])
        self.gathers = p.choice.choice(["last", "sum", "mean", "stack", "cat", "attend"])
        self.is_masked, self.is_deep = p.may(0.3), p.may(0.3)
        self.chunk = p.choice.choice([None, None, 18])
        self.hidden = p.choice.choice([4, 5])
        self.embedding = nn.Embedding(WORDS, INPUTS)
        first = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}.get(self.kind)
        self.cell = (
            nn.Linear(INPUTS + self.hidden, self.hidden)
            if first is None
            else first(INPUTS, self.hidden)
        )
        self.upper = nn.GRUCell(self.hidden, self.hidden)
        self.out = nn.Linear(self.hidden, WORDS)
        layers = [self.embedding, self.cell, self.upper, self.out]
        self.parameters = [each for layer in layers for each in layer.parameters()]
        p.fill(self.parameters)

    def zeros(self) -> list[Any]:
        return [self.p.m.zeros(ITEMS, self.hidden) for _ in range(3)]

    def advance(self, given: Any, states: list[Any], mask: Any) -> list[Any]:
        """The states after one step."""
        h, memory, top = states
        if self.kind == "lstm":
            new, memory = self.cell(given, (h, memory))
        elif self.kind == "cat":
            new = self.p.m.tanh(self.cell(self.p.m.cat([given, h], 1)))
        else:
            new = self.cell(given, h)
        h = new if mask is None else mask * new + (1 - mask) * h
        return [h, memory, self.upper(h, top) if self.is_deep else h]


class _Sequence:
    """The data of one step of training."""

    def __init__(self, network: _Network, length: int):
        p = network.p
        values = p.data.normal(size=(ITEMS, length, INPUTS)).astype(np.float32)
        self.network, self.length = network, length
        self.x = p.m.from_numpy(values)
        self.words = p.m.from_numpy(p.data.integers(0, WORDS, (ITEMS, length + 1)))
        ends = p.data.integers(1, length + 1, (ITEMS, 1))
        masks = (np.arange(length)[None] < ends).astype(np.float32)
        self.masks = p.m.from_numpy(masks) if network.is_masked else None
        is_embedded = network.reads == "embedded"
        self.embedded = network.embedding(self.words) if is_embedded else None
        self.said = self.words[:, 0]

    def given(self, t: int) -> Any:
        """The input of step `t`."""
        network = self.network
        if network.reads == "x[:, t]":
            return self.x[:, t]
        if self.embedded is not None:
            return self.embedded[:, t]
        return network.embedding(self.words[:, t] if network.reads == "embed each" else self.said)

    def mask(self, t: int) -> Any:
        return None if self.masks is None else self.masks[:, t].unsqueeze(1)


def _loss(s: _Sequence, states: list[Any], begin: int, end: int) -> tuple[Any, list[Any]]:
    """The loss of the steps from `begin` to `end`, and the states after these."""
    network, p = s.network, s.network.p
    m, functional = p.m, p.functional
    outputs, loss = [], 0.0
    for t in range(begin, end):
        states = network.advance(s.given(t), states, s.mask(t))
        if network.gathers in ("sum", "mean") or network.reads == "own words":
            scores = network.out(states[2])
            loss = loss + functional.cross_entropy(scores, s.words[:, t + 1])
            s.said = scores.detach().argmax(1) if t % 2 else s.words[:, t + 1]
        outputs.append(states[2])
    if network.gathers == "mean":
        return loss / (end - begin), states
    if network.gathers == "sum":
        return loss, states
    wanted = s.words[:, begin + 1 : end + 1]
    if network.gathers == "stack":
        scores = network.out(m.stack(outputs, 1))
        return functional.cross_entropy(scores.reshape(-1, WORDS), wanted.reshape(-1)), states
    if network.gathers == "cat":
        scores = network.out(m.cat(outputs, 0))
        return functional.cross_entropy(scores, wanted.t().reshape(-1)), states
    if network.gathers == "attend":
        memory = m.stack(outputs, 1)
        weights = functional.softmax(m.bmm(memory, states[2].unsqueeze(2)).squeeze(2), 1)
        seen = m.bmm(weights.unsqueeze(1), memory).squeeze(1)
        return functional.cross_entropy(network.out(seen), wanted[:, -1]), states
    return functional.cross_entropy(network.out(states[2]), wanted[:, -1]), states


def loops(library: Any, seed: int) -> list[float]:
    """Losses and gradients of steps over changing lengths, and the sums of what is left."""
    p = RandomProgram(library, seed)
    network = _Network(p)
    make: Callable[..., Any] = p.choice.choice([p.m.optim.SGD, p.m.optim.Adam])
    optimizer = make(network.parameters, lr=0.01)
    is_clipped = p.may(0.3)
    for _ in range(p.choice.randint(4, 7)):
        sequence = _Sequence(network, p.choice.choice([18, 21, 33, 36, 40, 47]))
        states, length = network.zeros(), sequence.length
        chunk = length if network.reads == "embedded" else network.chunk or length
        for begin in range(0, length, chunk):
            states = [each.detach() for each in states]
            loss, states = _loss(sequence, states, begin, min(begin + chunk, length))
            optimizer.zero_grad()
            loss.backward()
            if is_clipped:
                p.read.append(float(p.m.nn.utils.clip_grad_norm_(network.parameters, 1.0)))
            p.note(network.parameters)
            optimizer.step()
            p.read.append(loss.item())
    return p.read + [float(each.detach().abs().sum()) for each in network.parameters]
