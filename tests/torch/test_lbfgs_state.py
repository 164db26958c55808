"""The state of LBFGS: by PyTorch's keys, read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn

# What PyTorch 2.13 has after one step, of three iterations at most, from [3, -2]; the losses are
# those of its next three steps.
_PLACE = [2.03627347946167, 0.765291690826416]
_LOSSES = [3.378314971923828, 0.5759294629096985, 0.17124928534030914]
_STATE: dict[str, Any] = {
    "func_evals": 3,
    "n_iter": 2,
    "al": [2.459468126296997, None, None, None],
    "d": [-0.7739829421043396, 1.9550352096557617],
    "t": 1,
    "old_dirs": [[-2.3018407821655273, 18.731502532958984]],
    "old_stps": [[-0.18974359333515167, 0.8102564215660095]],
    "ro": [0.0640447586774826],
    "H_diag": 0.04383913055062294,
    "prev_flat_grad": [12.498159408569336, -44.46849822998047],
    "prev_loss": 57.66427230834961,
}
_VECTORS = ("d", "old_dirs", "old_stps", "prev_flat_grad", "ro", "H_diag")


def _made(place: list[float]) -> tuple[Any, Any, Callable[[], Any]]:
    p = nn.Parameter(torch.tensor(place))
    optimizer = torch.optim.LBFGS([p], max_iter=3, history_size=4, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((p - 1) ** 2 * torch.tensor([1.0, 10.0])).sum() + (p**4).sum() * 0.1
        loss.backward()
        return loss

    return p, optimizer, closure


def _as_tensors(value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(each, list) for each in value):
        return [torch.tensor(each) for each in value]
    return torch.tensor(value)


def _as_lists(value: Any) -> Any:
    return [each.tolist() for each in value] if isinstance(value, list) else value.tolist()


def test_a_state_has_pytorchs_keys_and_values() -> None:
    p, optimizer, closure = _made([3.0, -2.0])
    assert optimizer.state_dict()["state"] == {}
    assert float(optimizer.step(closure).detach()) == pytest.approx(103.7)
    assert p.tolist() == pytest.approx(_PLACE, rel=1e-5)
    state = optimizer.state_dict()["state"][0]
    assert state.keys() == _STATE.keys()
    assert len(state["al"]) == 4
    for name in ("func_evals", "n_iter", "t", "prev_loss"):
        assert state[name] == pytest.approx(_STATE[name], rel=1e-5), name
    for name in _VECTORS:
        found, expected = _as_lists(state[name]), _STATE[name]
        if isinstance(expected, list) and isinstance(expected[0], list):
            found, expected = found[0], expected[0]
        assert found == pytest.approx(expected, rel=1e-4), name


def test_a_state_of_pytorchs_goes_on() -> None:
    _, optimizer, closure = _made(_PLACE)
    state = {**_STATE, **{name: _as_tensors(_STATE[name]) for name in _VECTORS if name != "ro"}}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {0: state}, "param_groups": groups})
    found = [float(optimizer.step(closure).detach()) for _ in range(3)]
    assert found == pytest.approx(_LOSSES, rel=1e-4)


def test_a_state_goes_on_where_it_was() -> None:
    p, optimizer, closure = _made([3.0, -2.0])
    for _ in range(3):
        optimizer.step(closure)
    _, other, again = _made(p.tolist())
    other.load_state_dict(optimizer.state_dict())
    losses = [float(optimizer.step(closure).detach()) for _ in range(2)]
    assert [float(other.step(again).detach()) for _ in range(2)] == pytest.approx(losses, rel=1e-5)


def test_a_state_of_another_length_is_refused() -> None:
    _, optimizer, closure = _made([3.0, -2.0])
    optimizer.step(closure)
    other = torch.optim.LBFGS([nn.Parameter(torch.ones(3))])
    with pytest.raises(ValueError, match=r"shape \(2,\) for 3 elements of parameters"):
        other.load_state_dict(optimizer.state_dict())
    assert other.state_dict()["state"] == {}


def test_a_state_that_lacks_a_name_is_refused() -> None:
    _, optimizer, closure = _made([3.0, -2.0])
    optimizer.step(closure)
    state = optimizer.state_dict()
    del state["state"][0]["old_stps"]
    with pytest.raises(RuntimeError, match="the state lacks old_stps"):
        optimizer.load_state_dict(state)
