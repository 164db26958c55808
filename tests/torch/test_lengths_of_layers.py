"""Recurrent layers over batches of other lengths, padded and packed: values beside PyTorch's at
each step of training, no nodes and no plans once a few lengths have come, and flat memory.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, torch
from tilegrad.base.trace import GlobalCounters, counters
from tilegrad.ir.graph_templates import Template

INPUTS, HIDDEN, BATCH, CLASSES = 5, 6, 4, 3
LENGTHS = [9, 7, 12, 9, 8, 2, 31, 1, 22, 40, 3, 6]
LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "bidirectional": {"bidirectional": True},
    "several": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}


def batches(lengths: list[int], *, batch_first: bool) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(3)
    for longest in lengths:
        shape = (BATCH, longest) if batch_first else (longest, BATCH)
        own = rng.integers(1, longest + 1, BATCH)
        own[rng.integers(BATCH)] = longest
        x = rng.standard_normal((*shape, INPUTS)).astype("f4")
        yield x, own, rng.integers(0, CLASSES, BATCH)


class Program:
    """Training of a layer: `step` gives the loss and what the layer gave."""

    def __init__(
        self, torch: ModuleType, kind: str, *, packed: bool, carried: bool, **options: Any
    ):
        self.torch, self.packed, self.carried = torch, packed, carried
        self.batch_first = options.get("batch_first", False)
        rng = np.random.default_rng(1)
        self.layer = getattr(torch.nn, kind)(INPUTS, HIDDEN, **options)
        ways = 2 if options.get("bidirectional") else 1
        self.head = torch.nn.Linear(ways * HIDDEN, CLASSES)
        self.parameters = [*self.layer.parameters(), *self.head.parameters()]
        with torch.no_grad():
            for each in self.parameters:
                each.copy_(torch.tensor(rng.uniform(-0.4, 0.4, tuple(each.shape)).astype("f4")))
        self.optimizer = torch.optim.Adam(self.parameters, lr=0.01)
        self.state: Any = None

    def step(self, x: Any, lengths: Any, labels: Any) -> tuple[float, Any, Any]:
        torch, rnn = self.torch, self.torch.nn.utils.rnn
        x, lengths, labels = map(torch.from_numpy, (x, lengths, labels))
        given = x
        if self.packed:
            given = rnn.pack_padded_sequence(x, lengths, self.batch_first, enforce_sorted=False)
        y, last = self.layer(given, self.state)
        if self.packed:
            y, own = rnn.pad_packed_sequence(y, self.batch_first)
            assert own.tolist() == lengths.tolist()
        states = last if isinstance(last, tuple) else (last,)
        if self.carried:
            kept = tuple([each.detach() for each in states])
            self.state = kept if isinstance(last, tuple) else kept[0]
        pooled = y.sum(1 if self.batch_first else 0) / lengths.unsqueeze(1)
        loss = torch.nn.functional.cross_entropy(self.head(pooled), labels)
        loss = loss + sum([each.square().mean() for each in states])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), y, states


CASES = [
    *[("LSTM", options, packed, at % 2 == packed)
      for at, options in enumerate(LAYERS) for packed in (False, True)],
    ("GRU", "several", True, True), ("GRU", "plain", False, False),
    ("RNN", "bidirectional", True, False), ("RNN", "batch_first", False, True),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "packed", "carried"), CASES)
def test_beside_pytorch(kind: str, options: str, packed: bool, carried: bool) -> None:
    """With first states, or carried from step to step."""
    pytorch = pytest.importorskip("torch")
    given = {"packed": packed, "carried": carried, **LAYERS[options]}
    ours, theirs = Program(torch, kind, **given), Program(pytorch, kind, **given)
    first = LAYERS[options].get("batch_first", False)
    with Context(SIZES=1, SEGMENTS=1, TEMPLATES=1):
        for batch in batches(LENGTHS, batch_first=first):
            (mine, y, states), (its, its_y, its_states) = ours.step(*batch), theirs.step(*batch)
            np.testing.assert_allclose(mine, its, rtol=2e-5, atol=2e-6)
            np.testing.assert_allclose(
                y.detach().numpy(), its_y.detach().numpy(), rtol=1e-3, atol=5e-5
            )
            for one, other in zip(states, its_states, strict=True):
                np.testing.assert_allclose(
                    one.detach().numpy(), other.detach().numpy(), rtol=1e-3, atol=5e-5
                )
    for one, other in zip(ours.parameters, theirs.parameters, strict=True):
        np.testing.assert_allclose(
            one.detach().numpy(), other.detach().numpy(), rtol=1e-3, atol=2e-4
        )


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_new_lengths_make_no_nodes(
    kind: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor plans: the first steps, which are graphs of other kinds, have one or two each."""
    made = [0]
    make = Template.make

    def counted(template: Template, *rest: Any) -> Any:
        made[0] += 1
        return make(template, *rest)

    monkeypatch.setattr(Template, "make", counted)
    with Context(SIZES=1, SEGMENTS=1, TEMPLATES=1):
        program = Program(torch, kind, packed=packed, carried=False)
        plans = counters.schedules
        lengths = [21, 17, 28, 30, 18, 25, 23, 27, 33, 20, 16, 26, 29, 37, 41, 22, 19, 35, 13, 11]
        for at, batch in enumerate(batches(lengths, batch_first=False)):
            if at == 14:
                plans, made[0] = counters.schedules, 0
            program.step(*batch)
    assert not made[0]
    assert counters.schedules == plans


def test_memory_is_flat_over_lengths() -> None:
    program = Program(torch, "LSTM", packed=True, carried=False)
    rng = np.random.default_rng(0)
    used = []
    with Context(SIZES=1, SEGMENTS=1, TEMPLATES=1):
        for at, batch in enumerate(
            batches([int(n) for n in rng.integers(5, 60, 150)], batch_first=False)
        ):
            program.step(*batch)
            if at % 50 == 49:
                gc.collect()
                used.append(GlobalCounters.mem_used)
    assert used[-1] <= used[0] + 100_000
