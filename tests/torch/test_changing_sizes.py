"""Loops whose sizes change, as PyTorch users write them: text that is generated token by token, a
cache of keys and values, batches of sentences of every length. The values are NumPy's, no nodes are
made once a few steps have run, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tests.fresh import forget
from tests.torch.nodes_made import noted_expansions
from tilegrad import Context
from tilegrad.base.trace import counters
from tilegrad.torch import nn
from tilegrad.torch.nn import functional as F

WORDS, WIDTH, HEADS, MOST = 11, 8, 2, 40
_random = np.random.default_rng(5)
TABLE = _random.normal(size=(WORDS, WIDTH))
PLACES = _random.normal(size=(MOST, WIDTH))
WEIGHTS = _random.normal(size=(WIDTH, 3 * WIDTH)) * 0.3
LAST = _random.normal(size=(WIDTH, WORDS))


def tensor(array: np.ndarray) -> Any:
    return torch.tensor(array.astype(np.float32))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def expected_scores(words: list[int]) -> np.ndarray:
    """The scores of the next word, in float64."""
    length = len(words)
    x = TABLE[words] + PLACES[:length]
    q, k, v = np.split(x @ WEIGHTS, 3, axis=-1)
    q, k, v = [each.reshape(length, HEADS, -1).transpose(1, 0, 2) for each in (q, k, v)]
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH / HEADS)
    scores = np.where(np.tril(np.ones((length, length))) > 0, scores, -np.inf)
    mixed = (softmax(scores) @ v).transpose(1, 0, 2).reshape(length, WIDTH)
    return ((x + mixed) @ LAST)[-1]


class Model:
    """A network with one layer of attention, with positions and a mask of some kinds."""

    def __init__(self, positions: str, mask: str):
        self.positions, self.mask = positions, mask
        self.table, self.weights, self.last = tensor(TABLE), tensor(WEIGHTS), tensor(LAST)
        self.places = nn.Parameter(tensor(PLACES)[None])
        self.rows = nn.Embedding(MOST, WIDTH)
        with torch.no_grad():
            self.rows.weight.copy_(tensor(PLACES))
        self.triangle = torch.tril(torch.ones(MOST, MOST)).view(1, 1, MOST, MOST)

    def masked(self, scores: Any, length: int) -> Any:
        if self.mask == "buffer":
            seen = self.triangle[:, :, :length, :length]
            return scores.masked_fill(seen == 0, float("-inf"))
        if self.mask == "made":
            seen = torch.tril(torch.ones(length, length))
            return scores.masked_fill(seen == 0, float("-inf"))
        return scores + torch.triu(torch.full((length, length), float("-inf")), diagonal=1)

    def __call__(self, words: Any) -> Any:
        count, length = words.shape
        x = self.table[words]
        if self.positions == "arange":
            x = x + self.rows(torch.arange(length))
        else:
            x = x + self.places[:, :length]
        q, k, v = (x @ self.weights).split(WIDTH, dim=2)
        q, k, v = [
            each.view(count, length, HEADS, WIDTH // HEADS).transpose(1, 2) for each in (q, k, v)
        ]
        scores = (q @ k.transpose(-2, -1)) / (WIDTH / HEADS) ** 0.5
        mixed = F.softmax(self.masked(scores, length), dim=-1) @ v
        mixed = mixed.transpose(1, 2).contiguous().view(count, length, WIDTH)
        return (x + mixed) @ self.last


def generated(model: Model, read: Callable[[int], bool]) -> list[int]:
    """Words, each the most likely one after those before, whose scores are NumPy's."""
    words = torch.tensor([[3, 1]])
    known = [3, 1]
    with torch.no_grad():
        for step in range(30):
            seen = words[:, -MOST:]
            scores = model(seen)[:, -1]
            best = scores.argmax(-1, keepdim=True)
            words = torch.cat((words, best), dim=1)
            if read(step):
                assert seen.shape == (1, step + 2)
                assert seen.tolist() == words[:, :-1].tolist()
                np.testing.assert_allclose(
                    scores[0].numpy(), expected_scores(words[0, :-1].tolist()), rtol=2e-4, atol=2e-4
                )
    found: list[int] = words[0].tolist()
    for _ in range(30):
        known.append(int(expected_scores(known).argmax()))
    assert found == known
    return found


@pytest.mark.row("M4.1")
@pytest.mark.parametrize(
    ("positions", "mask"),
    [
        ("arange", "buffer"),
        ("slice", "made"),
        ("slice", "added"),
        pytest.param("arange", "made", marks=pytest.mark.nightly),
        pytest.param("arange", "added", marks=pytest.mark.nightly),
        pytest.param("slice", "buffer", marks=pytest.mark.nightly),
    ],
)
def test_generated_text(positions: str, mask: str) -> None:
    model = Model(positions, mask)
    first = generated(model, lambda step: True)
    # Other lengths come first, and some steps are not read.
    assert generated(model, lambda step: step % 7 == 3) == first
    assert generated(model, lambda step: False) == first


def made_by_steps(positions: str, mask: str) -> list[int]:
    """How often nodes were made, and the kernels, before and after steps of new lengths."""
    made = noted_expansions()
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1), torch.no_grad():
        model = Model(positions, mask)
        # 8 is the width, 2 the heads, 4 what a head has: equal to others by chance.
        for length in (5, 6, 7, 9, 10, 11, 12, 0, 13, 21, 8, 17, 14, 30, 16, 33):
            if not length:
                before = [len(made), counters.compiles]
                continue
            words = torch.tensor(_random.integers(0, WORDS, (1, length)))
            words = torch.cat((words, words[:, :1]), 1)
            model(words)[:, -1].argmax(-1, keepdim=True).item()
    return [*before, len(made), counters.compiles]


def made_with_rows_and_a_buffer() -> list[int]:
    return made_by_steps("arange", "buffer")


def made_with_rows_and_a_new_mask() -> list[int]:
    return made_by_steps("arange", "made")


def made_with_slices_and_a_buffer() -> list[int]:
    return made_by_steps("slice", "buffer")


def made_with_slices_and_a_new_mask() -> list[int]:
    return made_by_steps("slice", "made")


@pytest.mark.parametrize(
    "steps",
    [
        made_with_rows_and_a_buffer, made_with_rows_and_a_new_mask, made_with_slices_and_a_buffer,
        made_with_slices_and_a_new_mask,
    ],
)  # fmt: skip
def test_steps_make_no_nodes_and_compile_nothing(steps: Callable[[], list[int]]) -> None:
    nodes_before, kernels_before, nodes, kernels = in_a_process(steps)
    assert (nodes, kernels) == (nodes_before, kernels_before)


def plans_of_unread_words() -> list[int]:
    """The kernels made for words that nobody reads: for the first text, and for two more."""
    models = [Model("arange", "made") for _ in range(4)]
    found: list[int] = []
    # What other tests have left on disk is not counted as made.
    alone = Context(TEMPLATES=1, SEGMENTS=1, SIZES=1, DISABLE_COMPILER_CACHE=1)
    with alone, torch.no_grad():
        for _ in range(3):
            words = torch.tensor([[3, 1]])
            for _ in range(MOST - 2):
                scores = sum(model(words[:, -MOST:])[:, -1] for model in models)
                words = torch.cat((words, scores.argmax(-1, keepdim=True)), dim=1)
            assert words[0, -1].item() in range(WORDS)
            found.append(counters.compiles)
    return found


def test_words_that_nobody_reads_on_the_way_take_few_kernels() -> None:
    first, _, last = in_a_process(plans_of_unread_words)
    assert first <= 200
    assert last - first <= 20


def test_a_cache_of_keys_that_grows() -> None:
    wanted_keys = np.zeros((1, HEADS, 0, 4))
    keys = None
    for _ in range(40):
        token = _random.normal(size=(1, 1, WIDTH))
        key = tensor(token).view(1, 1, HEADS, 4).transpose(1, 2)
        keys = key if keys is None else torch.cat((keys, key), 2)
        wanted_keys = np.concatenate(
            [wanted_keys, token.reshape(1, 1, HEADS, 4).transpose(0, 2, 1, 3)], 2
        )
        query = tensor(token).view(1, 1, HEADS, 4).transpose(1, 2)
        mixed = F.softmax(query @ keys.transpose(-2, -1), -1) @ keys
        plain = token.reshape(1, 1, HEADS, 4).transpose(0, 2, 1, 3)
        wanted = softmax(plain @ wanted_keys.transpose(0, 1, 3, 2)) @ wanted_keys
        np.testing.assert_allclose(mixed.numpy(), wanted, rtol=2e-4, atol=2e-5)


def test_training_on_sentences_of_every_length() -> None:
    """Steps of gradient descent on the mean of a sentence's words, as NumPy takes them."""
    table, weights = TABLE.copy(), LAST[:, :1].copy()
    words = nn.Parameter(tensor(table))
    line = nn.Parameter(tensor(weights))
    lengths = [3, 5, 4, 9, 7, 12, 8, 6, 3, 11, 10, 5, 13, 2, 8, 14, 4, 9, 17, 6]
    for number, length in enumerate(lengths):
        count = 3 if number % 4 == 2 else 4
        sentence = _random.integers(0, WORDS, (count, length + 1))
        given = torch.tensor(sentence)
        wanted = sentence[:, -1:].astype(np.float64) / WORDS
        mean = words[given[:, :-1]].mean(1)
        loss = ((torch.tanh(mean) @ line - tensor(wanted)) ** 2).mean()
        for each in (words, line):
            each.grad = None
        loss.backward()
        with torch.no_grad():
            words -= 0.1 * words.grad
            line -= 0.1 * line.grad
        plain = table[sentence[:, :-1]].mean(1)
        bent = np.tanh(plain)
        error = bent @ weights - wanted
        np.testing.assert_allclose(loss.item(), (error**2).mean(), rtol=1e-4)
        pull = 2 * error / count
        down = (pull @ weights.T) * (1 - bent**2) / length
        change = np.zeros_like(table)
        np.add.at(change, sentence[:, :-1].reshape(-1), np.repeat(down, length, 0))
        weights = weights - 0.1 * bent.T @ pull
        table = table - 0.1 * change
    np.testing.assert_allclose(words.detach().numpy(), table, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(line.detach().numpy(), weights, rtol=1e-4, atol=1e-5)


def trained_on_graphs() -> list[int]:
    """Nodes and kernels made by half of the steps over graphs of any size, and by all: messages
    are added up at nodes, and nodes to three graphs.
    """
    r = np.random.default_rng(9)
    expected = r.normal(size=(4, 6)) * 0.3
    weights = nn.Parameter(tensor(expected))
    made, found = noted_expansions(), []
    alone = Context(TEMPLATES=1, SEGMENTS=1, SIZES=1, DISABLE_COMPILER_CACHE=1)
    with alone:
        for step in range(40):
            nodes, edges = (int(each) for each in r.integers((8, 20), (20, 60)))
            x = r.normal(size=(nodes, 4))
            source, target, graph = (
                r.integers(0, most, count)
                for most, count in ((nodes, edges), (nodes, edges), (3, nodes))
            )
            to = torch.tensor(target)
            degrees = torch.zeros(nodes).index_add_(0, to, torch.ones(edges)).clamp(min=1)
            sent = (tensor(x) @ weights)[torch.tensor(source)]
            taken = torch.zeros(nodes, 6).index_add_(0, to, sent) / degrees[:, None]
            rows = torch.tensor(graph)[:, None].expand(-1, 6)
            pooled = torch.zeros(3, 6).scatter_add_(0, rows, taken.relu())
            loss = (pooled * pooled).mean()
            loss.backward()
            adjacent = np.zeros((nodes, nodes))
            np.add.at(adjacent, (target, source), 1.0)
            adjacent /= np.maximum(np.bincount(target, minlength=nodes), 1)[:, None]
            assign = np.eye(3)[graph].T
            before = adjacent @ x @ expected
            together = assign @ np.maximum(before, 0)
            np.testing.assert_allclose(loss.item(), (together**2).mean(), rtol=1e-4)
            down = (assign.T @ together) * (before > 0) * 2 / together.size
            with torch.no_grad():
                weights -= 0.01 * weights.grad
                weights.grad = None
            expected = expected - 0.01 * (adjacent @ x).T @ down
            if step % 20 == 19:
                found += [len(made), counters.compiles]
    return found


def test_training_on_graphs_of_every_size() -> None:
    nodes_before, kernels_before, nodes, kernels = in_a_process(trained_on_graphs)
    assert (nodes, kernels) == (nodes_before, kernels_before)


@pytest.mark.parametrize("kernel", [(1, 2), (2, 1), (3, 2)])
def test_convolutions_of_images_and_channels_of_any_number(kernel: tuple[int, int]) -> None:
    """By kernels in their best shape, which the first runs of a program do not wait for."""
    forget()
    high, wide = kernel
    with Context(SHORT=0):
        for batch, channels, out, size in [(2, 4, 3, 32), (2, 16, 16, 32), (4, 32, 16, 28),
                                           (4, 3, 8, 25), (3, 5, 7, 21)]:  # fmt: skip
            x = _random.normal(size=(batch, channels, size, size))
            weight = _random.normal(size=(out, channels, high, wide))
            padded = np.pad(x, ((0, 0), (0, 0), (high - 1,) * 2, (wide - 1,) * 2))
            windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
            expected = np.einsum("bcijhw,ochw->boij", windows, weight)
            found = F.conv2d(tensor(x), tensor(weight), padding=(high - 1, wide - 1))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_filters_of_single_channels_are_trained_on_images_of_any_size() -> None:
    """A plan for all sizes holds copies of its operands on the stack: no more than there is."""
    forget()
    shapes = [((3, 9, 8, 4), 16), ((17, 15, 33, 22), 8), ((2, 7, 19, 40), 5)]
    with Context(SHORT=0):
        for (batch, channels, high, wide), out in shapes:
            x = _random.normal(size=(batch, channels, high, wide))
            filters = _random.normal(size=(channels, 1, 3, 3))
            weight = _random.normal(size=(out, channels, 1, 1))
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
            found = np.einsum("bchwij,cij->bchw", windows, filters[:, 0])
            kept = np.maximum(found, 0)
            above = 2 * np.einsum("bchw,oc->bohw", kept, weight[:, :, 0, 0])
            below = np.einsum("bohw,oc->bchw", above, weight[:, :, 0, 0]) * (found > 0)
            first, second = (tensor(each).requires_grad_() for each in (filters, weight))
            hidden = F.conv2d(tensor(x), first, padding=1, groups=channels).relu()
            F.conv2d(hidden, second).square().sum().backward()
            expected = np.einsum("bchw,bchwij->cij", below, windows)
            assert_near(first.grad[:, 0], expected)
            assert_near(second.grad[:, :, 0, 0], np.einsum("bohw,bchw->oc", above, kept))


def assert_near(found: Any, expected: np.ndarray) -> None:
    """Equal but for the rounding of sums of terms as large as the largest."""
    assert np.abs(found.numpy() - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_size_that_another_one_has_by_chance() -> None:
    """What a method does may depend on two sizes being equal: a vector or a matrix to solve for."""
    for length in (5, 6, 7, 8, 3, 4, 2, 9, 3):
        a = _random.normal(size=(length, 3, 3)) + 4 * np.eye(3)
        b = _random.normal(size=(length, 3))
        solved = torch.linalg.solve(tensor(a), tensor(b)).numpy()
        np.testing.assert_allclose(
            solved, np.linalg.solve(a, b[..., None])[..., 0], rtol=2e-3, atol=1e-4
        )
        x, y = _random.normal(size=(length, 8)), _random.normal(size=8)
        np.testing.assert_allclose((tensor(x) * tensor(y)).numpy(), x * y, rtol=1e-5)
        crossed = torch.linalg.cross(tensor(a[:, 0]), tensor(a[:, 1])).numpy()
        np.testing.assert_allclose(crossed, np.cross(a[:, 0], a[:, 1]), rtol=1e-4, atol=1e-4)


def test_constants_that_change_keep_their_values() -> None:
    rows = tensor(PLACES)
    for start, end in [(0, 3), (1, 4), (2, 7), (0, 3), (5, 9), (6, 9), (0, 12), (1, 4), (3, 3 + 9)]:
        for _ in range(2):
            picked = rows[torch.arange(start, end)]
            np.testing.assert_array_equal(picked.numpy(), PLACES[start:end].astype(np.float32))
            number = (tensor(np.ones(end - start)) * torch.arange(start, end)).sum().item()
            assert number == sum(range(start, end))


def test_what_is_written_to_a_result_beside_a_changing_constant_stays_there() -> None:
    for length in range(2, 12):
        positions = torch.arange(length)
        x = torch.zeros(length, dtype=torch.int64)
        same, other = torch.broadcast_tensors(positions, x)
        total = torch.where(x > 0, x, positions)
        total += 1
        assert positions.tolist() == same.tolist() == [*range(length)]
        assert other.tolist() == [0] * length


def test_a_slice_that_is_all_is_an_alias() -> None:
    for length in range(2, 9):
        x = torch.zeros(length) + torch.ones(length)
        view = x[-MOST:]
        view[0] = 5.0
        assert x.tolist() == [5.0] + [1.0] * (length - 1)
        x += 1
        assert view.tolist() == x.tolist()


def test_lists_among_the_indices_are_numpys() -> None:
    for length in range(3, 14):
        x = _random.normal(size=(4, length, 3)).astype(np.float32)
        rows = tensor(x) * 1.0
        for key in [
            (slice(None), [-1, 0]), (slice(1, None), [2, 0, 2]), (..., [0, -1, 1]),
            (None, [3, 1]), ([1, 0], slice(2)), (0, [2, -1]), ([0, 2], [1, 1]), (slice(None), [1]),
        ]:  # fmt: skip
            np.testing.assert_array_equal(rows[key].numpy(), x[key])
        with pytest.raises(IndexError):
            rows[:, [0, length]]
        with pytest.raises(IndexError):
            rows[:, [0, 1], [0, 1], [0, 1]]
