"""Beam search as libraries write it: texts in memory of their full length, which each step fills
at one more position, beside caches that grow. Prompts of all lengths run the same segments.

Expected values come from NumPy in float64, computed in this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tilegrad.base.trace import counters

_random = np.random.default_rng(11)
_WORDS, _BEAMS, _NEW = 13, 3, 14
_TABLE = _random.normal(size=(_WORDS, 8)).astype(np.float32)
_WEIGHT = (_random.normal(size=(8, 8)) * 0.5).astype(np.float32)
_END = 99


def _prompt(length: int) -> list[int]:
    return [(5 * n + length) % _WORDS for n in range(length)]


def _chosen(values: Any, index: Any) -> Any:
    """The rows of beams that `index` names."""
    while index.ndim < values.ndim:
        index = index.unsqueeze(-1)
    return torch.take_along_dim(values, index, dim=1)


def _searched(prompt: list[int], table: Any, weight: Any) -> tuple[list[Any], list[int], list[int]]:
    """The texts and where each of their words came from; of each step how many plans it made, and
    how many nodes it looked at.
    """
    first, total = len(prompt), len(prompt) + _NEW
    texts = torch.full((1, _BEAMS, total), 0, dtype=torch.long)
    texts[:, :, :first] = torch.tensor(prompt)
    came_from = torch.full((1, _BEAMS, _NEW), -1, dtype=torch.int32)
    scores = torch.zeros((1, _BEAMS))
    scores[:, 1:] = -1e6
    keys, plans, nodes = None, [], []
    for at in range(first, total):
        before = counters.schedules, counters.visits
        words = texts[:, :, :at].reshape(_BEAMS, at)
        x = table[words if keys is None else words[:, -1:]]
        k = x @ weight
        keys = k if keys is None else torch.cat((keys, k), 1)
        x = x[:, -1:]
        x = x + ((x @ keys.transpose(1, 2) * 0.3).softmax(-1) @ keys).tanh()
        logits = torch.log_softmax(x[:, -1] @ table.T, -1)
        every = (logits.view(1, _BEAMS, _WORDS) + scores[:, :, None]).view(1, -1)
        scores, index = torch.topk(every, _BEAMS)
        beam = torch.div(index, _WORDS, rounding_mode="floor")
        texts, came_from = _chosen(texts, beam), _chosen(came_from, beam)
        texts[:, :, at] = index % _WORDS
        came_from[:, :, at - first] = beam.to(torch.int32)
        keys = keys.index_select(0, beam.view(-1))
        last = texts[:, :, : at + 1].reshape(_BEAMS, at + 1)[:, -1:]
        bool((last == _END).all())
        plans.append(counters.schedules - before[0])
        nodes.append(counters.visits - before[1])
    return [texts.tolist(), came_from.tolist()], plans, nodes


def _searched_by_numpy(prompt: list[int]) -> list[Any]:
    table, weight = _TABLE.astype(np.float64), _WEIGHT.astype(np.float64)
    texts = [[*prompt] for _ in range(_BEAMS)]
    came_from: list[list[int]] = [[] for _ in range(_BEAMS)]
    scores = np.array([0.0] + [-1e6] * (_BEAMS - 1))
    for _ in range(_NEW):
        every = []
        for beam, text in enumerate(texts):
            x = table[text]
            keys = x @ weight
            e = np.exp(x[-1] @ keys.T * 0.3)
            x = x[-1] + np.tanh(e / e.sum() @ keys)
            logits = x @ table.T
            every.append(logits - np.log(np.exp(logits).sum()) + scores[beam])
        flat = np.concatenate(every)
        index = np.argsort(-flat, kind="stable")[:_BEAMS]
        scores = flat[index]
        texts = [[*texts[n // _WORDS], n % _WORDS] for n in index]
        came_from = [[*came_from[n // _WORDS], n // _WORDS] for n in index]
    return [[texts], [came_from]]


_LENGTHS = (5, 8, 6, 9, 7, 11)


def searches() -> list[Any]:
    """For each length: whether it is what NumPy says, the plans, and the nodes of later steps."""
    table, weight = torch.tensor(_TABLE), torch.tensor(_WEIGHT)
    found = []
    with torch.no_grad():
        for length in _LENGTHS:
            result, plans, nodes = _searched(_prompt(length), table, weight)
            is_right = result == _searched_by_numpy(_prompt(length))
            found.append((is_right, sum(plans), sum(nodes[-4:])))
    return found


@pytest.mark.row("M4.1")
def test_prompts_of_all_lengths_run_the_segments_of_the_first() -> None:
    """From the fourth length on one plan is made at most, and later steps make no nodes."""
    found = in_a_process(searches)
    assert all(is_right for is_right, _, _ in found)
    assert max(plans for _, plans, _ in found[3:]) <= 1
    assert [nodes for _, _, nodes in found[1:]] == [0] * (len(_LENGTHS) - 1)
