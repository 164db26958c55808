"""Random programs of episodes, for either library: what a policy and its critic do, and loops over
sequences by hand. Each gives numbers that were read on the way, gradients, and what is left.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

__all__ = ["RandomProgram", "policy", "sequences"]


class RandomProgram:
    """One program: its choices, its data, and the numbers that it has read."""

    def __init__(self, library: Any, seed: int):
        self.m, self.functional = library, library.nn.functional
        self.choice, self.data = random.Random(seed), np.random.default_rng(seed)
        self.read: list[float] = []

    def may(self, share: float) -> bool:
        return self.choice.random() < share

    def fill(self, parameters: list[Any]) -> None:
        """Give parameters values that are not read."""
        with self.m.no_grad():
            for each in parameters:
                values = self.data.normal(size=tuple(each.shape)) * 0.5
                each.copy_(self.m.from_numpy(values.astype(np.float32)))

    def note(self, parameters: list[Any]) -> None:
        self.read += [float(each.grad.abs().sum()) for each in parameters if each.grad is not None]

    def vector(self, values: Any) -> Any:
        if self.may(0.5):
            return self.m.tensor(values, dtype=self.m.float32)
        return self.m.from_numpy(values.astype(np.float32))


def policy(library: Any, seed: int) -> list[float]:
    """Episodes of changing lengths; values are read between the losses that they are part of."""
    p = RandomProgram(library, seed)
    m, nn = p.m, p.m.nn
    inputs, hidden, actions = p.choice.choice([3, 5]), p.choice.choice([6, 8]), 3
    activation = p.choice.choice([nn.ReLU, nn.Tanh, nn.SiLU])()
    body = nn.Sequential(nn.Linear(inputs, hidden), activation)
    actor, critic = nn.Linear(hidden, actions), nn.Linear(hidden, 1)
    parameters = [each for net in (body, actor, critic) for each in net.parameters()]
    p.fill(parameters)
    momentum = p.choice.choice([0.0, 0.9])
    optimizer = m.optim.SGD(parameters, lr=0.03, momentum=momentum)
    style, loss_of = p.choice.randrange(5), p.choice.randrange(4)
    for _ in range(p.choice.randint(2, 5)):
        logarithms, values, rewards = [], [], []
        state = p.data.normal(size=inputs)
        for _ in range(p.choice.randint(2, 7)):
            found = body(p.vector(state))
            logarithms.append(_logarithm(p, actor(found), style, int(p.data.integers(actions))))
            values.append(critic(found))
            rewards.append(float(p.data.normal()))
            state = state + 0.3 * p.data.normal(size=inputs)
            if p.may(0.2):
                p.read.append(float(logarithms[-1].detach().sum()))
        loss = _loss_of_episode(p, logarithms, values, rewards, loss_of)
        optimizer.zero_grad()
        loss.backward()
        if p.may(0.4):
            p.read.append(float(nn.utils.clip_grad_norm_(parameters, 0.7)))
        if p.may(0.5):
            p.note(parameters)
        optimizer.step()
        p.read.append(float(loss.detach()))
    return p.read + [float(each.detach().abs().sum()) for each in parameters]


def _logarithm(p: RandomProgram, scores: Any, style: int, action: int) -> Any:
    """The logarithm of an action's probability, in one of the ways that people write it."""
    m, functional = p.m, p.functional
    if style == 0:
        return m.distributions.Categorical(logits=scores).log_prob(m.tensor(action))
    if style == 1:
        return functional.log_softmax(scores, -1)[action]
    if style == 2:
        return m.log(functional.softmax(scores, -1)[action])
    if style == 3:
        return functional.log_softmax(scores, -1).gather(-1, m.tensor([action]))
    return -functional.cross_entropy(scores.unsqueeze(0), m.tensor([action]))


def _loss_of_episode(
    p: RandomProgram, logarithms: list[Any], values: list[Any], rewards: list[float], kind: int
) -> Any:
    m, functional = p.m, p.functional
    earned, returns = 0.0, []
    for reward in reversed(rewards):
        earned = reward + 0.9 * earned
        returns.insert(0, earned)
    wanted = m.tensor(returns)
    if kind == 0:
        losses = []
        for each, value, goal in zip(logarithms, values, wanted, strict=True):
            losses.append((-each * (goal - value.item())).sum())
            losses.append(functional.smooth_l1_loss(value, goal.unsqueeze(0)))
        return m.stack(losses).sum()
    if kind == 1:
        loss = 0.0
        for each, value, number in zip(logarithms, values, returns, strict=True):
            loss = loss - each.sum() * (number - float(value.detach().sum()))
            loss = loss + 0.5 * (value.sum() - number) ** 2
        return loss
    seen = m.stack([each.squeeze() for each in values])
    chosen = m.cat([each.reshape(1) for each in logarithms])
    ahead = wanted - seen
    if kind == 2:
        p.read.append(ahead.mean().item())
    return -(chosen * ahead.detach()).mean() + 0.5 * ahead.pow(2).mean()


def sequences(library: Any, seed: int) -> list[float]:
    """Sequences of changing lengths through a cell; views of them are held and written to later."""
    p = RandomProgram(library, seed)
    m, nn = p.m, p.m.nn
    inputs, hidden, items = 3, p.choice.choice([5, 6]), p.choice.choice([1, 3])
    kind, style, loss_of = p.choice.randrange(4), p.choice.randrange(4), p.choice.randrange(4)
    cells = [nn.LSTMCell, nn.GRUCell, nn.RNNCell]
    cell = cells[kind](inputs, hidden) if kind < 3 else nn.Linear(inputs + hidden, hidden)
    out = nn.Linear(hidden, 2)
    parameters = [*cell.parameters(), *out.parameters()]
    p.fill(parameters)
    optimizer = m.optim.SGD(parameters, lr=0.01)
    has_views, is_written, is_read = p.may(0.4), p.may(0.4), p.may(0.3)
    for _ in range(p.choice.randint(3, 6)):
        length = p.choice.choice([17, 20, 33, 40, 41, 64])
        x = m.from_numpy(p.data.normal(size=(items, length, inputs)).astype(np.float32))
        state, memory = m.zeros(items, hidden), m.zeros(items, hidden)
        held, outputs, loss = [], [], 0.0
        for t in range(length):
            row = (x[:, t], x.transpose(0, 1)[t], x.select(1, t), x[:, t : t + 1].squeeze(1))[style]
            if has_views and t % 7 == 0:
                held += [row, row[:, 1:]]
            if kind == 0:
                state, memory = cell(row, (state, memory))
            elif kind < 3:
                state = cell(row, state)
            else:
                state = m.tanh(cell(m.cat([row, state], 1)))
            if loss_of == 1:
                loss = loss + out(state).pow(2).mean()
            elif loss_of > 1:
                outputs.append(out(state) if loss_of == 2 else state)
            if is_read and t % 11 == 5:
                p.read.append(float(state.detach().sum()))
        if loss_of == 0:
            loss = out(state).pow(2).sum()
        elif loss_of == 2:
            loss = (m.stack(outputs) - 0.3).pow(2).mean()
        elif loss_of == 3:
            loss = out(m.stack(outputs, 1)).logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        if is_written:
            x.mul_(2.0)
            x[:, -1] = 1.0
        p.read.append(loss.item())
        p.note(parameters)
        p.read += [float(each.sum()) for each in held]
        optimizer.step()
    return p.read + [float(each.detach().abs().sum()) for each in parameters]
