"""Text generation as libraries write it: masks, positions and flags of integers are made anew at
each step beside caches that grow, and the next token is taken of sorted probabilities. Whatever the
number of lengths, few plans serve them all.

Expected values come from NumPy in float64, computed in this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tilegrad.base.trace import counters

_random = np.random.default_rng(5)
_WORDS, _WIDTH, _LAYERS, _NEW = 19, 8, 2, 10
_TABLE = _random.normal(size=(_WORDS, _WIDTH)).astype(np.float32)
_PLACES = (_random.normal(size=(64, _WIDTH)) * 0.3).astype(np.float32)
_WEIGHTS = (_random.normal(size=(_LAYERS, _WIDTH, _WIDTH)) * 0.5).astype(np.float32)
# Also the width of a row, which a length may be by chance.
_LENGTHS = (4, 6, 5, 9, 7, 3, 12, 8)
_SHARE, _END = 0.6, 99


def _prompt(length: int) -> list[int]:
    return [(5 * n + length) % _WORDS for n in range(length)]


class _Model:
    def __init__(self) -> None:
        self.table, self.places = torch.tensor(_TABLE), torch.tensor(_PLACES)
        self.weights = [torch.tensor(each) for each in _WEIGHTS]

    def logits(self, words: Any, mask: Any, places: Any, cache: list[Any]) -> Any:
        x = self.table[words] + self.places[places]
        for layer, weight in enumerate(self.weights):
            k = x @ weight
            cache[layer] = k if cache[layer] is None else torch.cat([cache[layer], k], dim=1)
            keys = cache[layer]
            scores = x @ keys.transpose(1, 2) * 0.4
            length, new = keys.shape[1], x.shape[1]
            later = torch.arange(length) > torch.arange(length - new, length)[:, None]
            scores = scores.masked_fill(later | (mask[:, None, :] == 0), float("-inf"))
            x = x + (scores.softmax(-1) @ keys).tanh()
        return x[:, -1].to(copy=True, dtype=torch.float32) @ self.table.T


def _next(logits: Any) -> Any:
    """The least likely token of the most likely ones that have a share of the probability."""
    ordered, order = torch.sort(logits, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    last = (before < _SHARE).sum(-1, keepdim=True) - 1
    return order.gather(-1, last)[:, 0]


def _generated(model: _Model, prompt: list[int]) -> list[int]:
    words = torch.tensor([prompt])
    mask = torch.ones_like(words)
    places = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    cache: list[Any] = [None] * _LAYERS
    unfinished = torch.ones(1, dtype=torch.long)
    while True:
        new = 1 if cache[0] is not None else words.shape[1]
        here, at = words[:, -new:].clone(), places[:, -new:].clone()
        token = _next(model.logits(here, mask, at, cache))
        places = torch.cat([places, torch.arange(1).view(1, -1) + places[..., -1:] + 1], dim=-1)
        mask = torch.cat([mask, mask.new_ones((1, 1))], dim=-1)
        token = token * unfinished
        words = torch.cat([words, token[:, None]], dim=-1)
        is_done = torch.full((1,), False) | torch.full(
            (1,), words.shape[1] >= len(prompt) + _NEW, dtype=torch.bool
        )
        unfinished = unfinished & ~(is_done | (words[:, -1] == _END))
        if bool(unfinished.max() == 0):
            found: list[int] = words[0].tolist()
            return found


def _generated_by_numpy(prompt: list[int]) -> list[int]:
    table, words = _TABLE.astype(np.float64), [*prompt]
    for _ in range(_NEW):
        x = table[words] + _PLACES[: len(words)].astype(np.float64)
        for weight in _WEIGHTS.astype(np.float64):
            keys = x @ weight
            scores = x @ keys.T * 0.4
            scores[np.triu_indices(len(words), 1)] = -np.inf
            e = np.exp(scores - scores.max(-1, keepdims=True))
            x = x + np.tanh(e / e.sum(-1, keepdims=True) @ keys)
        logits = x[-1] @ table.T
        order = np.argsort(-logits, kind="stable")
        e = np.exp(logits[order] - logits.max())
        share = e / e.sum()
        before = np.cumsum(share) - share
        words.append(int(order[(before < _SHARE).sum() - 1]))
    return words


def texts() -> list[tuple[bool, int]]:
    """For each length whether the text is NumPy's, and how many plans it made."""
    model, found = _Model(), []
    with torch.no_grad():
        for length in _LENGTHS:
            before = counters.schedules
            text = _generated(model, _prompt(length))
            is_right = text == _generated_by_numpy(_prompt(length))
            found.append((is_right, counters.schedules - before))
    return found


@pytest.mark.row("M4.1")
def test_sampled_texts_of_all_lengths_have_the_plans_of_the_first_ones() -> None:
    """The sort of a row is a kernel written by hand, whose sizes stay as a text grows."""
    found = in_a_process(texts)
    assert all(is_right for is_right, _ in found)
    plans = [count for _, count in found]
    assert plans[0] <= 9 and plans[1] <= 4 and sum(plans[2:]) <= 4, plans


def scatters() -> list[tuple[bool, int]]:
    """For each count of positions whether NumPy writes the same, and how many plans were made."""
    scores = _random.normal(size=(1, 40)).astype(np.float32)
    row, found = torch.tensor(scores), []
    for count in (5, 9, 6, 31, 12, 63, 7, 40, 64, 65, 130):
        words = _random.integers(0, 40, (1, count))
        before = counters.schedules
        ids = torch.tensor(words)
        theirs = torch.gather(row, 1, ids)
        made = row.scatter(1, ids, torch.where(theirs < 0, theirs * 1.5, theirs / 1.5))
        expected = scores.copy()
        # The same number at each position that comes twice.
        expected[0, words[0]] = np.where(scores < 0, scores * 1.5, scores / 1.5)[0, words[0]]
        is_right = np.allclose(np.array(made.tolist()), expected, rtol=1e-6, atol=0)
        found.append((is_right, counters.schedules - before))
    return found


@pytest.mark.row("M4.1")
def test_scatters_of_all_lengths_have_few_plans() -> None:
    found = in_a_process(scatters)
    assert all(is_right for is_right, _ in found)
    plans = [count for _, count in found]
    assert sum(plans[:9]) <= 4 and sum(plans[3:9]) <= 1, plans


def integers() -> list[tuple[bool, int]]:
    """For each number whether what is made with it is NumPy's, and how many plans were made."""
    values = np.arange(64 * 48).reshape(64, 48) * 37 % 101 - 50
    plain = values.astype(np.float32)
    first, weights = torch.tensor(values), torch.tensor(plain)
    found = []
    for number in (12, 15, 40, -77, 1 << 20, 9, 1 << 40, 13):
        before = counters.schedules
        made = torch.where(first + number > first * 2 + 40, weights, -weights).sum(1)
        kept = np.where(values + number > values * 2 + 40, plain, -plain)
        is_right = np.array_equal(np.array(made.tolist()), kept.sum(1))
        found.append((is_right, counters.schedules - before))
    return found


@pytest.mark.row("M4.1")
def test_an_int64_of_python_is_a_variable_of_the_launch() -> None:
    """All values of 32 bits have one plan; a larger one is a constant, and right."""
    found = in_a_process(integers)
    assert all(is_right for is_right, _ in found)
    small = [count for number, (_, count) in enumerate(found) if number != 6]
    assert sum(small) <= 3, found


def test_integers_joined_and_copied_at_once_are_memory_of_their_own() -> None:
    first, second = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5], [6]])
    joined = torch.cat([first, second * 2 + 1], dim=1)
    copy, part = first.clone(), joined[:, -1:].clone()
    first[0, 0], joined[1, 1], second[0, 0] = 9, -4, 8
    assert joined.tolist() == [[1, 2, 11], [3, -4, 13]]
    assert copy.tolist() == [[1, 2], [3, 4]] and part.tolist() == [[11], [13]]
    assert first.tolist() == [[9, 2], [3, 4]] and second.tolist() == [[8], [6]]
    flags = torch.full((3,), False)
    either = torch.cat([flags, torch.tensor([True, False])])
    flags[1] = True
    assert either.tolist() == [False, False, False, True, False]
    assert flags.tolist() == [False, True, False]
    with pytest.raises(Exception, match="cat"):
        torch.cat([first, torch.tensor([[1, 2, 3]])], dim=1)
