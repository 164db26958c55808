"""Writes through `x.detach()`, and to what such an alias looks at, against NumPy's views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.tensor.helpers import close
from tilegrad import Context, Tensor


class _Pair:
    """An alias, and NumPy's view of the same elements."""

    def __init__(self, ours: Any, theirs: Any):
        self.ours, self.theirs = ours, theirs


def _write(random: np.random.Generator, pair: _Pair, pairs: list[_Pair]) -> None:
    array = random.normal(size=pair.theirs.shape).astype(np.float32)
    other = pairs[random.integers(len(pairs))]
    match random.integers(7):
        case 0:
            pair.ours += 1.5
            pair.theirs += 1.5
        case 1:
            pair.ours.assign(Tensor(array) * 2)
            pair.theirs[...] = array * 2
        case 2:
            pair.ours *= Tensor(array)
            pair.theirs *= array
        case 3:
            pair.ours[0] = 3
            pair.theirs[0] = 3
        case 4 if other.theirs.shape == pair.theirs.shape:
            pair.ours.assign(other.ours.flip(0) + 1)
            pair.theirs[...] = other.theirs[::-1].copy() + 1
        case 5:
            pair.ours[pair.ours > 1] = 0.5
            pair.theirs[pair.theirs > 1] = 0.5
        case _:
            pair.ours.assign(pair.ours.detach().tanh())
            pair.theirs[...] = np.tanh(pair.theirs)


@pytest.mark.parametrize("segments", [0, 1])
@pytest.mark.parametrize("seed", range(25))
def test_any_order_of_aliases_writes_and_reads(seed: int, segments: int) -> None:
    random = np.random.default_rng(seed)
    with Context(TEMPLATES=1, SEGMENTS=segments):
        array = random.normal(size=(4, 3)).astype(np.float32)
        pairs = [_Pair(Tensor(array).realize(), array.copy())]
        copies: list[_Pair] = []
        for _ in range(40):
            pair = pairs[random.integers(len(pairs))]
            match random.integers(9):
                case 0 | 1:
                    pairs.append(_Pair(pair.ours.detach(), pair.theirs))
                case 2 if random.random() < 0.4:
                    pairs.append(_Pair(pair.ours[1:], pair.theirs[1:]))
                case 3 if len(pairs) > 1:
                    pairs.remove(pair)
                case 4:
                    copies.append(_Pair(pair.ours * 2, pair.theirs * 2))
                case 5:
                    close(pair.ours, pair.theirs, 1e-4, 1e-5)
                case 6:
                    close(
                        pair.ours.sum(), pair.theirs.sum(dtype=np.float64).astype("f4"), 1e-3, 1e-4
                    )
                case _ if len(pair.theirs):
                    _write(random, pair, pairs)
                case _:
                    pass
            if not len(pair.theirs):
                pairs = [each for each in pairs if len(each.theirs)] or pairs[:1]
        for pair in [*pairs, *copies]:
            close(pair.ours, pair.theirs, 1e-4, 1e-5)


def _step(weight: Any, x: Any) -> Any:
    loss = ((x @ weight) ** 2).sum()
    weight.grad = None
    loss.backward()
    return loss


def test_parameters_written_through_data() -> None:
    array = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    inputs = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    weight, x = torch.nn.Parameter(torch.tensor(array)), torch.tensor(inputs)
    kept, data = array.astype(np.float64), weight.data
    for step in range(8):
        loss = _step(weight, x)
        gradient = 2 * inputs.T.astype(np.float64) @ (inputs @ kept)
        if step % 2:
            weight.data -= 0.01 * weight.grad.data
        else:
            data.sub_(weight.grad, alpha=0.01)
        weight.data.clamp_(-0.6, 0.6)
        expected = ((inputs @ kept) ** 2).sum()
        kept = np.clip(kept - 0.01 * gradient, -0.6, 0.6)
        assert loss.item() == pytest.approx(expected, rel=1e-4)
        for alias in (weight.detach(), data):
            close(alias, kept.astype(np.float32), 1e-4)
        assert weight.requires_grad and weight.is_leaf and not data.requires_grad


def test_gradients_of_what_was_computed_before_a_write_go_to_the_leaf() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    held = weight.detach()
    for _ in range(4):
        weight.grad = None
        before = weight.detach().numpy().copy()
        loss = (weight * torch.tensor([3.0, 4.0])).sum()
        held.mul_(2)
        loss.backward()
        assert weight.grad.tolist() == [3.0, 4.0]
        assert loss.item() == pytest.approx(float(before @ [3.0, 4.0]))
        assert held.tolist() == weight.tolist() == (2 * before).tolist()


def test_a_state_that_is_held_follows_training() -> None:
    torch.manual_seed(1)
    net, slow = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state, average = net.state_dict(), slow.state_dict()
    x = torch.tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    kept = {name: value.numpy().astype(np.float64) for name, value in average.items()}
    for _ in range(6):
        optimizer.zero_grad()
        before = {name: value.numpy().copy() for name, value in state.items()}
        net(x).pow(2).mean().backward()
        gradients = {name: each.grad.numpy() for name, each in net.named_parameters()}
        optimizer.step()
        for name in state:
            close(state[name], before[name] - 0.1 * gradients[name], 1e-4)
            average[name] = average[name] * 0.5 + state[name] * 0.5
            kept[name] = kept[name] * 0.5 + state[name].numpy() * 0.5
        slow.load_state_dict(average)
        average = slow.state_dict()
    for name, value in slow.named_parameters():
        close(value.detach(), kept[name].astype(np.float32), 1e-4)
        assert value.requires_grad


@pytest.mark.parametrize("made", ["an alias", "sorted", "a slice", "joined"])
def test_writes_to_what_has_no_elements(made: str) -> None:
    for _ in range(4):
        x = Tensor(np.ones((2, 3), np.float32)).realize()
        empty = x[2:]
        target = {
            "an alias": empty.detach(), "sorted": empty.sort(0)[0], "a slice": empty[:, 1:],
            "joined": empty.cat(empty),
        }[made]  # fmt: skip
        target /= 2
        target[:1] = 3
        target.assign(target * 2)
        assert target.shape[0] == 0 and target.tolist() == []
        close(x, np.ones((2, 3), np.float32))
