"""What a program changes in `optimizer.state` and in the lists of `param_groups` is what the next
step finds, as in PyTorch.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours


def _clear(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.state.clear()


def _renew(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.state = defaultdict(dict)


def _take_out(torch: Any, optimizer: Any, params: list[Any]) -> None:
    assert len(optimizer.state.pop(params[0])) == len(optimizer.state[params[1]])
    del optimizer.state[params[1]]
    assert len(optimizer.state) == 0


def _empty(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.state[params[0]] = {}
    optimizer.state[params[1]].clear()


def _set_moments(torch: Any, optimizer: Any, params: list[Any]) -> None:
    for name, value in list(optimizer.state[params[0]].items()):
        if name != "step":
            optimizer.state[params[0]][name] = torch.full_like(value, 0.25)
    for name, value in optimizer.state[params[1]].items():
        if name != "step":
            value.mul_(0.5)


def _set_step(torch: Any, optimizer: Any, params: list[Any]) -> None:
    if "step" in optimizer.state[params[0]]:
        optimizer.state[params[0]]["step"] = torch.tensor(1.0)
        optimizer.state[params[1]]["step"].fill_(9)


def _replace(torch: Any, optimizer: Any, params: list[Any]) -> None:
    """As programs do that let a set of points grow: the moments go over to another parameter."""
    group = optimizer.param_groups[0]
    stored = optimizer.state.get(params[0])
    for name, value in list(stored.items()):
        if name != "step":
            stored[name] = torch.cat([value, torch.zeros(1)])
    del optimizer.state[params[0]]
    group["params"][0] = torch.nn.Parameter(torch.cat([params[0].detach(), torch.ones(1)]))
    optimizer.state[group["params"][0]] = stored


def _append(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.ones(3)))


def _remove(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.param_groups[0]["params"].pop(0)


def _list(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.param_groups[0]["params"] = [torch.nn.Parameter(torch.ones(2)), params[1]]


def _groups(torch: Any, optimizer: Any, params: list[Any]) -> None:
    optimizer.param_groups.clear()
    optimizer.state.clear()
    optimizer.add_param_group({"params": [params[1], torch.nn.Parameter(torch.ones(2))]})


_CHANGES = [
    _clear, _renew, _take_out, _empty, _set_moments, _set_step, _replace, _append, _remove, _list,
    _groups,
]  # fmt: skip


def _trained(torch: Any, kind: str, options: Any, change: Callable[..., None]) -> list[Any]:
    first = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    second = torch.nn.Parameter(torch.tensor([0.5, 3.0]))
    optimizer = getattr(torch.optim, kind)([first, second], **options)
    found: list[Any] = []
    for step in range(6):
        params = optimizer.param_groups[0]["params"]
        optimizer.zero_grad()
        sum((each * each).sum() * (at + 1) for at, each in enumerate(params)).backward()
        optimizer.step()
        found += [each.detach().clone() for each in params]
        if step == 2:
            change(torch, optimizer, list(params))
    return found


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("Adam", {"lr": 0.1}), ("SGD", {"lr": 0.05, "momentum": 0.9}), ("Adagrad", {"lr": 0.1})],
)
def test_the_next_step_finds_it(kind: str, options: Any, change: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = (_trained(each, kind, options, change) for each in (ours, torch))
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), 2e-5, 1e-6)


def test_a_parameter_has_state_once_it_moved() -> None:
    torch = pytest.importorskip("torch")

    def told(torch: Any) -> list[Any]:
        moved, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([moved, other])
        found: list[Any] = [len(optimizer.state), moved in optimizer.state]
        (moved * moved).sum().backward()
        optimizer.step()
        found += [len(optimizer.state), moved in optimizer.state, other in optimizer.state]
        found += [sorted(optimizer.state[moved]), list(optimizer.state_dict()["state"])]
        twin = copy.deepcopy(optimizer)
        found += [len(twin.state), twin.state.get(moved) is None]
        return found

    assert told(ours) == told(torch)


def test_a_program_may_keep_its_own_in_the_state() -> None:
    w = ours.nn.Parameter(ours.ones(2))
    optimizer = ours.optim.SGD([w], lr=0.1)
    optimizer.state[w]["seen"] = 3
    assert dict(optimizer.state[w]) == {"seen": 3}
    (w * w).sum().backward()
    optimizer.step()
    assert optimizer.state[w]["seen"] == 3
    with pytest.raises(KeyError):
        optimizer.state[w]["exp_avg"]
