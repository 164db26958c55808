"""Programs that generate text: each step is one segment, at every length, read or unread.

The oracle is NumPy in float64 (`little_texts`).
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tests.torch.little_texts import LAYERS, SCALE, TABLE, WORDS, Network, continued, softmax
from tests.torch.test_waiting import _Asked
from tilegrad import Context
from tilegrad.base.trace import counters
from tilegrad.tensor.handle import waiting

_START = [3, 1, 4]


class _Network(Network):
    def __init__(self) -> None:
        super().__init__()
        self.mask = torch.tril(torch.ones(96, 96))

    def __call__(self, words: Any, places: Any, caches: Any, mask: Any) -> Any:
        def attended(number: int, q: Any, k: Any, v: Any) -> Any:
            cache = caches[number]
            if cache is not None:
                k = torch.cat((cache[0], k), 1) if cache else k
                v = torch.cat((cache[1], v), 1) if cache else v
                cache[:] = [k, v]
            scores = q @ k.transpose(-1, -2) * SCALE
            if mask is not None:
                scores = scores.masked_fill(mask == 0, float("-inf"))
            return torch.softmax(scores, -1) @ v

        x = torch.nn.functional.embedding(words, self.table)
        x = x + torch.nn.functional.embedding(places, self.places)
        return self.scores(x, attended)


def _with_positions(steps: int, *, is_read: bool) -> tuple[Any, list[int]]:
    """A text with keys and values that grow, positions and a mask beside it, and a flag that may be
    read: as text generating libraries have it. How many plans were made up to each step as well.
    """
    network, caches, plans = _Network(), [[], []], []
    words = torch.tensor([_START])
    mask = torch.ones(1, 3, dtype=torch.long)
    places = mask.cumsum(-1) - 1
    going = torch.ones(1, dtype=torch.long)
    with torch.no_grad():
        for step in range(steps):
            now = words[:, -1:].clone() if step else words
            at = places[:, -1:].clone() if step else places
            scores = network(now, at, caches, None if step else network.mask[:3, :3])
            places = torch.cat([places, places[..., -1:] + 1], -1)
            mask = torch.cat([mask, mask.new_ones((1, 1))], -1)
            best = scores.argmax(-1) * going + 7 * (1 - going)
            words = torch.cat([words, best[:, None]], -1)
            going = going & ~torch.isin(words[:, -1], torch.tensor([99]))
            if is_read:
                assert not bool(going.max() == 0)
            plans.append(counters.schedules)
    np.testing.assert_array_equal(words.numpy()[0], continued(_START, steps))
    np.testing.assert_array_equal(places.numpy()[0], np.arange(steps + 3))
    np.testing.assert_array_equal(mask.numpy()[0], np.ones(steps + 3))
    return network, plans


def _in_a_window(steps: int, window: int) -> list[int]:
    """A text whose network sees the last words; each word is read before the next."""
    network, plans = _Network(), []
    words = torch.tensor([_START])
    found: list[int] = []
    with torch.no_grad():
        for _ in range(steps):
            now = words[:, -window:]
            length = now.shape[1]
            causal = network.mask[:length, :length]
            scores = network(now, torch.arange(length), [None, None], causal)
            best = scores.argmax(-1, keepdim=True)
            words = torch.cat((words, best), 1)
            found.append(best.item())
            plans.append(counters.schedules)
    assert [*_START, *found] == continued(_START, steps, window=window)
    return plans


@pytest.mark.parametrize("is_read", [True, False])
def test_positions_and_masks_that_grow_have_one_plan_for_all_lengths(is_read: bool) -> None:
    with Context(TEMPLATES=1, SEGMENTS=1):
        _, plans = _with_positions(36, is_read=is_read)
    assert plans[-1] == plans[16]


def test_a_window_over_a_text_has_one_plan_for_all_lengths() -> None:
    with Context(TEMPLATES=1, SEGMENTS=1):
        plans = _in_a_window(60, 20)
    # The window is full at step 18; what was special until then has come again by step 40.
    assert plans[-1] == plans[40] <= plans[0] + 10


def test_steps_of_a_text_make_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a first text, another one of new lengths makes nodes for its first steps at most."""
    waiting.this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        _with_positions(20, is_read=True)
        _with_positions(20, is_read=True)
        asked = _Asked(monkeypatch)
        _with_positions(30, is_read=True)
        # What is compared at the end has nodes, each once.
        assert asked.count < 20


@pytest.mark.parametrize("sizes", ["1", "2"])
def test_plans_of_all_lengths_are_compared(sizes: str) -> None:
    with Context(TEMPLATES=1, SEGMENTS=int(sizes), SIZES=int(sizes)):
        _with_positions(24, is_read=True)
        _in_a_window(24, 12)


def _unread(steps: int = 60) -> tuple[int, int]:
    """A list that grows beside a number that is read: plans after half of the steps, and at the
    end.
    """
    total, half = torch.zeros(3) + torch.tensor([0.5, 1.0, 2.0]), 0
    found, wanted, state = total[:1], [0.5], np.array([0.5, 1.0, 2.0])
    for step in range(steps):
        total = torch.sin(total) + 0.25
        found = torch.cat((found, total[:1] * 2))
        state = np.sin(state) + 0.25
        wanted.append(2 * state[0])
        np.testing.assert_allclose(total.sum().item(), state.sum(), rtol=1e-4)
        half = counters.schedules if step == steps // 2 else half
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)
    return half, counters.schedules


def test_a_list_that_nobody_reads_is_computed_on_the_way() -> None:
    half, end = in_a_process(_unread)
    assert end == half


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32"])
def test_what_the_host_knows_is_joined_at_once(dtype: str) -> None:
    found = torch.ones(2, 3, dtype=getattr(torch, dtype))
    wanted = np.ones((2, 3), dtype)
    before = counters.schedules
    for step in range(6):
        more = torch.full((2, step + 1), step % 3, dtype=getattr(torch, dtype))
        found = torch.cat([found, more], -1)
        wanted = np.concatenate([wanted, np.full((2, step + 1), step % 3).astype(dtype)], -1)
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert counters.schedules == before


def test_a_clone_of_a_constant_is_memory_of_its_own() -> None:
    flags = torch.tensor([1, 0, 1]).cumsum(0)
    row = torch.arange(5).clone()
    other = torch.arange(5).clone()
    row[2] = 9
    np.testing.assert_array_equal(row.numpy(), [0, 1, 9, 3, 4])
    np.testing.assert_array_equal(other.numpy(), np.arange(5))
    np.testing.assert_array_equal(flags.numpy(), [1, 1, 2])


def _objects() -> tuple[int, int]:
    """Texts of 60 steps, one after the other: what the collector knows after half of the texts,
    and at the end.
    """
    weights, found = torch.tensor(LAYERS[0][:, :8]), []
    with torch.no_grad():
        for text in range(120):
            keys, mask = torch.ones(1, 8) * 0.5, torch.ones(1, 1, dtype=torch.long)
            unread = torch.zeros(1, 2)
            for _ in range(60):
                x = torch.tanh(keys[-1:] @ weights) + keys.mean(0, keepdim=True)
                keys = torch.cat((keys, x))
                mask = torch.cat((mask, mask.new_ones((1, 1))), -1)
                unread = torch.cat((unread, x[:, :2]))
                x.sum().item()
            if text in (59, 119):
                gc.collect()
                found.append(len(gc.get_objects()))
    return found[0], found[1]


def test_many_texts_leave_nothing_behind() -> None:
    first, last = in_a_process(_objects)
    # Sizes that keep coming have plans of their own. A node, a call and a tensor for each of the
    # 3,600 steps in between would be three times as many.
    assert last - first < 2 * 3600


def _searched(steps: int, *, reads: bool) -> tuple[list[list[int]], list[int]]:
    """The words of a beam search whose keys are chosen by an index that waits, and the plans and
    segments of each step.
    """
    table, weight = torch.tensor(TABLE), torch.tensor(LAYERS[0][:, :8].copy())
    words, scores = torch.full((3, 1), 2, dtype=torch.long), torch.tensor([0.0, -1e6, -1e6])
    keys, plans = None, []
    with torch.no_grad():
        for _ in range(steps):
            before = counters.schedules
            x = table[words[:, -1:]]
            k = x @ weight
            keys = k if keys is None else torch.cat((keys, k), 1)
            x = x + ((x @ keys.transpose(1, 2) * SCALE).softmax(-1) @ keys).tanh()
            total = scores[:, None] + torch.log_softmax(x[:, -1] @ table.T, -1)
            scores, index = torch.topk(total.view(-1), 3)
            beam = torch.div(index, WORDS, rounding_mode="floor")
            words = torch.cat((words.index_select(0, beam), (index % WORDS)[:, None]), 1)
            keys = keys.index_select(0, beam)
            if reads:
                bool((words[:, -1] == 99).all())
            plans.append(counters.schedules - before)
    return words.tolist(), plans


def _searched_by_numpy(steps: int) -> list[list[int]]:
    table, weight = TABLE.astype(np.float64), LAYERS[0][:, :8].astype(np.float64)
    words, scores = np.full((3, 1), 2), np.array([0.0, -1e6, -1e6])
    keys = np.zeros((3, 0, 8))
    for _ in range(steps):
        x = table[words[:, -1:]]
        keys = np.concatenate((keys, x @ weight), 1)
        x = x + np.tanh(softmax(x @ keys.transpose(0, 2, 1) * SCALE) @ keys)
        logits = x[:, -1] @ table.T
        total = (scores[:, None] + np.log(softmax(logits))).reshape(-1)
        index = np.argsort(-total, kind="stable")[:3]
        scores, beam = total[index], index // WORDS
        words = np.concatenate((words[beam], (index % WORDS)[:, None]), 1)
        keys = keys[beam]
    return words.tolist()


def beam_search_read() -> list[int]:
    return _searched(24, reads=True)[1][17:]


def beam_search_unread() -> list[int]:
    return _searched(24, reads=False)[1][17:]


@pytest.mark.parametrize("reads", [False, True])
def test_a_beam_search_chooses_caches_by_an_index_that_waits(reads: bool) -> None:
    assert _searched(20, reads=reads)[0] == _searched_by_numpy(20)


@pytest.mark.parametrize("run", [beam_search_read, beam_search_unread])
def test_later_steps_of_a_beam_search_plan_nothing(run: Any) -> None:
    assert in_a_process(run) == [0] * 7
