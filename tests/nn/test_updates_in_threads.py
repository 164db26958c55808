"""Optimizers that step in several threads, each with a model of its own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context, Tensor, nn
from tilegrad.nn.optim import together
from tilegrad.tensor.storage.memory import is_stored


def _trained(optimizer: type[Any]) -> list[list[float]]:
    """Weights after each of six steps that pull them to 0, from 1 to 3."""
    weight = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = optimizer([weight], lr=0.1)
    seen = []
    with Tensor.train():
        for _ in range(6):
            found.zero_grad()
            (weight * weight).sum().backward()
            found.step()
            seen.append(weight.tolist())
    return seen


def test_an_update_that_cannot_wait_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins that are written to would be seen by the runs of other threads."""
    expected = _trained(nn.optim.Adam)
    recorded: list[Any] = []
    known = together.recorded

    def noted(*args: Any, **options: Any) -> Any:
        recorded.append(threading.current_thread())
        return known(*args, **options)

    monkeypatch.setattr(together, "recorded", noted)
    monkeypatch.setattr(together, "_updates", type(together._updates)(lambda: 1024))
    there: list[Any] = []
    # The main thread has tensors beside the one that trains.
    thread = threading.Thread(target=lambda: there.append(_trained(nn.optim.Adam)))
    thread.start()
    thread.join()
    assert not recorded
    np.testing.assert_allclose(there[0], expected, rtol=1e-6)


def test_a_step_leaves_alone_what_another_thread_has_written() -> None:
    """It may be half of a step of its own: what both threads ran, one of them found overwritten."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    (weight * weight).sum().backward()
    written, stepped = threading.Event(), threading.Event()
    seen: list[Any] = []

    def write() -> None:
        total: Any = torch.ones(3)
        with Context(TEMPLATES=0):
            total.assign(total * (torch.arange(3) + 1.0))
        written.set()
        stepped.wait(30)
        seen.extend([is_stored(total.uop), total.tolist()])

    thread = threading.Thread(target=write)
    thread.start()
    assert written.wait(30)
    optimizer.step()
    assert weight.tolist() == [0.0, 0.0, 0.0]
    stepped.set()
    thread.join()
    assert seen == [False, [1.0, 2.0, 3.0]]
