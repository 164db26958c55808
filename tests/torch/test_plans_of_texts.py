"""Plans of programs that generate texts: three for the first text, one at most for each further
length; more where guessed words are verified. Words are compared with those that NumPy finds in
float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tests.torch.little_texts import LAYERS, SCALE, SIZE, WORDS, Network, continued
from tilegrad import Context
from tilegrad.base.trace import counters

_NEW = 10
_LENGTHS = (6, 9, 7, 11, 8, 5)


def _prompt(length: int) -> list[int]:
    return [(5 * at * at + at + length) % WORDS for at in range(length)]


def _expected(length: int) -> list[int]:
    return continued(_prompt(length), _NEW)


class _Network(Network):
    """Layers with keys and values of (batch, heads, length, size), as most programs have them."""

    def __call__(self, words: Any, places: Any, caches: list[Any]) -> Any:
        return self.states_of(words, places, caches)[:, -1] @ self.table.T

    def states_of(self, words: Any, places: Any, caches: list[Any]) -> Any:
        length = words.shape[1]

        def attended(number: int, *states: Any) -> Any:
            q, k, v = (each[:, None] for each in states)
            k, v = (each.reshape(1, length, 1, SIZE).transpose(1, 2) for each in (k, v))
            k, v = (torch.cat([old, new], dim=-2) for old, new in zip(caches[number], (k, v)))
            caches[number] = k, v
            scores = q @ k.transpose(-1, -2) * SCALE
            if length > 1:
                total = k.shape[-2]
                ones = torch.ones(length, total, dtype=torch.bool)
                later = torch.triu(ones, total - length + 1)
                scores = scores.masked_fill(later, float("-inf"))
            return (torch.softmax(scores, -1) @ v)[:, 0]

        return self.states(self.table[words] + self.places[places], attended)


def _as_a_library(network: _Network, length: int) -> list[int]:
    """A text as `transformers` makes it: a mask and positions that go on from step to step, a flag
    that is read, and caches that begin empty.
    """
    words = torch.tensor([_prompt(length)])
    mask = torch.ones(words.shape, dtype=torch.long)
    position = torch.ones_like(words[0, :], dtype=torch.long).cumsum(0) - 1
    going = torch.ones(1, dtype=torch.long)
    caches: list[Any] = [(torch.tensor([]), torch.tensor([])) for _ in LAYERS]
    for step in range(_NEW):
        places = mask.cumsum(-1) - 1
        places.masked_fill_(mask == 0, 1)
        now = words[:, position].clone() if step else words
        places = places[:, -now.shape[1] :].clone()
        best = network(now, places, caches).argmax(-1)
        best = best * going + 3 * (1 - going)
        words = torch.cat([words, best[:, None]], dim=-1)
        mask = torch.cat([mask, mask.new_ones((1, 1))], dim=-1)
        position = position[-1:] + 1
        going = going & ~torch.isin(words[:, -1], torch.tensor([99]))
        assert not bool(going.max() == 0)
    found: list[int] = words[0].tolist()
    return found


def _by_hand(network: _Network, length: int) -> list[int]:
    """A text with positions from `arange`, a list of caches, and words that the host knows."""
    words = _prompt(length)
    caches: list[Any] = [(torch.tensor([]), torch.tensor([])) for _ in LAYERS]
    now, at = torch.tensor([words]), 0
    for _ in range(_NEW):
        end = at + now.shape[1]
        best = int(network(now, torch.arange(at, end), caches).argmax())
        words.append(best)
        now, at = torch.tensor([[best]]), end
    return words


def _guessed(words: list[int]) -> list[int]:
    """Up to three words that followed the last one where it stood before."""
    for at in range(len(words) - 2, -1, -1):
        if words[at] == words[-1]:
            return words[at + 1 : at + 4]
    return []


def _with_guesses(network: _Network, length: int) -> list[int]:
    """A text whose guessed words are verified several at once; caches are cut behind those that
    are right.
    """
    words, guesses = _prompt(length), list[int]()
    caches: list[Any] = [(torch.tensor([]), torch.tensor([])) for _ in LAYERS]
    now, at = words, 0
    while len(words) < length + _NEW:
        states = network.states_of(torch.tensor([now]), torch.arange(at, at + len(now)), caches)
        behind = states[0, -len(guesses) - 1 :] @ network.table.T
        best: list[int] = behind.argmax(-1).tolist()
        right = next((n for n, guess in enumerate(guesses) if guess != best[n]), len(guesses))
        words = words + best[: right + 1]
        at = len(words) - 1
        caches = [(k[:, :, :at], v[:, :, :at]) for k, v in caches]
        guesses = _guessed(words)
        now = [words[-1], *guesses]
    return words[: length + _NEW]


def _plans_of(text: Any) -> list[tuple[bool, int]]:
    """For each length whether the words are right, and how many plans were made."""
    network, found = _Network(), []
    with torch.no_grad():
        for length in _LENGTHS:
            before = counters.schedules
            words = text(network, length)
            found.append((words == _expected(length), counters.schedules - before))
    return found


def texts_of_a_library() -> list[tuple[bool, int]]:
    return _plans_of(_as_a_library)


def texts_by_hand() -> list[tuple[bool, int]]:
    return _plans_of(_by_hand)


def texts_with_guesses() -> list[tuple[bool, int]]:
    return _plans_of(_with_guesses)


@pytest.mark.row("M4.1")
@pytest.mark.parametrize("texts", [texts_of_a_library, texts_by_hand])
def test_a_text_plans_its_prompt_and_a_step(texts: Any) -> None:
    """The first text plans its prompt, a step at one length and a step at all; the next lengths a
    prompt at all, and what the program sets up when constants become memory.
    """
    found = in_a_process(texts)
    assert all(is_right for is_right, _ in found)
    plans = [count for _, count in found]
    assert plans[0] <= 3
    assert max(plans[1:]) <= 1


@pytest.mark.row("M4.1")
def test_a_text_with_guessed_words_is_right_and_plans_its_kinds_of_steps() -> None:
    """One word or several, after caches that are all of their memory or a slice of it: each kind
    has a plan at one length, one at all, and one more where two lengths part.
    """
    found = in_a_process(texts_with_guesses)
    assert all(is_right for is_right, _ in found)
    plans = [count for _, count in found]
    assert plans[0] <= 6
    assert sum(plans) <= 16


@pytest.mark.parametrize("start", [[5], [3, 7, 11]])
def test_positions_that_go_on_are_memory_after_a_read(start: list[int]) -> None:
    """They are computed by the host, and have the values and the views of any tensor."""
    with Context(TEMPLATES=1, SEGMENTS=1):
        total, wanted = torch.zeros(3), np.zeros(3)
        position, expected = torch.tensor(start), np.array(start)
        for _ in range(6):
            position, expected = position[-1:] * 2 + 1, expected[-1:] * 2 + 1
            counted, also = position.cumsum(0), expected.cumsum(0)
            view = counted[:1]
            counted += 3
            also += 3
            total = torch.sin(total + position)
            wanted = np.sin(wanted + expected)
            np.testing.assert_allclose(total.sum().item(), wanted.sum(), rtol=1e-3, atol=1e-4)
            np.testing.assert_array_equal(position.numpy(), expected)
            np.testing.assert_array_equal(view.numpy(), also[:1])
            np.testing.assert_array_equal(counted.numpy(), also)


def test_a_joined_tensor_is_a_copy_in_its_own_order() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = torch.tensor(values)
    joined = torch.cat([torch.tensor([]), x.T], dim=0)
    x += 1
    joined[0, 0] = 9
    np.testing.assert_array_equal(x.numpy(), values + 1)
    expected = values.T.copy()
    expected[0, 0] = 9
    np.testing.assert_array_equal(joined.numpy(), expected)
    assert joined.is_contiguous()


@pytest.mark.parametrize("sequence", [[1, 2], (3,), "ab", b"x"])
def test_an_integer_repeats_a_sequence(sequence: Any) -> None:
    for times in (torch.tensor(3), torch.tensor([2]), torch.ones(4).sum().long()):
        assert sequence * times == sequence * int(times)
