"""Calls of `tilegrad.torch` wait as those of `tilegrad` do: equal steps make no nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tests.fresh import forget
from tilegrad import Context
from tilegrad.base.trace import counters
from tilegrad.tensor.handle import waiting
from tilegrad.torch import nn
from tilegrad.torch.nn import functional as F

_random = np.random.default_rng(7)
_A = _random.normal(size=(6, 8)).astype(np.float32)
_B = _random.normal(size=(6, 8)).astype(np.float32)
_IMAGES = _random.normal(size=(2, 4, 8, 8)).astype(np.float32)
_WORDS = _random.normal(size=(2, 5, 8)).astype(np.float32)
_INDEX = _random.integers(0, 5, 6)


class _Asked:
    """How often nodes of calls that wait were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count = 0
        expand, expand_all = waiting.expand, waiting.Pool.expand

        def one(call: Any) -> Any:
            self.count += 1
            return expand(call)

        def every(pool: Any) -> None:
            self.count += pool.has_new
            expand_all(pool)

        monkeypatch.setattr(waiting, "expand", one)
        monkeypatch.setattr(waiting.Pool, "expand", every)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Asked]:
    # What other tests left must not let calls pause, and under TEMPLATES=2 none waits.
    waiting.this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        yield _Asked(monkeypatch)


def _layers() -> dict[str, Any]:
    return {
        "linear": nn.Linear(8, 5), "conv": nn.Conv2d(4, 6, 3, padding=1),
        "group": nn.GroupNorm(2, 4), "layer": nn.LayerNorm(8), "cell": nn.LSTMCell(8, 7),
        "lstm": nn.LSTM(8, 7, batch_first=True), "gru": nn.GRU(8, 7, batch_first=True),
        "attention": nn.MultiheadAttention(8, 2, batch_first=True), "drop": nn.Dropout(0.5),
        "encoder": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        "embedding": nn.Embedding(10, 8), "up": nn.ConvTranspose2d(4, 3, 2, stride=2),
    }  # fmt: skip


# a, b: (6, 8); image: (2, 4, 8, 8); words: (2, 5, 8); index: (6,). Each is the result of a call
# that waits.
_METHODS: dict[str, Callable[..., Any]] = {
    "shapes": lambda a, **_: a.view(3, 16).reshape(a.shape).transpose(0, 1).contiguous().view(-1),
    "split": lambda a, **_: torch.cat([x + 1 for x in a.split(4, dim=1)], 1),
    "chunk": lambda a, **_: a.chunk(2, 1)[1] * 2,
    "unbind": lambda a, **_: torch.stack(a.unbind(0)),
    "pairs": lambda a, **_: a.max(1).values + a.min(dim=1)[0] + a.topk(3).values[:, 0],
    "order": lambda a, **_: a.sort(1).values + a.cumsum(1) + a.cumprod(1),
    "var_mean": lambda a, **_: torch.var_mean(a, 1)[0] + torch.std_mean(a, 1)[1],
    "constants": lambda a, **_: torch.arange(8) + a * torch.ones(6, 8) + torch.zeros(6, 8),
    "scalar": lambda a, **_: torch.tensor(2.0) * a,
    "mask": lambda a, b, **_: torch.where(a > 0, a, 0.0) + a.masked_fill(b > 0, 1.0),
    "logic": lambda a, b, **_: ((a > 0) & (b > 0)).float().mean(),
    "cut": lambda a, **_: a[1:4, 2:].sum() + a[:, -1].sum() + a[None, :, ::2].sum(),
    "picked": lambda a, index, **_: a[index] + a[torch.arange(6), index].unsqueeze(1),
    "list": lambda a, **_: a[:, [-1]] + a[[2]],
    "gather": lambda a, index, **_: a.gather(1, index.unsqueeze(1)),
    "one_hot": lambda index, **_: F.one_hot(index, 5).float(),
    "pad": lambda a, **_: F.pad(a, (1, 1)),
    "clone": lambda a, **_: a.clone() + a.detach(),
    "entropy": lambda a, index, **_: F.cross_entropy(a[:, :5], index, label_smoothing=0.1),
    "losses": lambda a, b, **_: F.mse_loss(a, b) + F.smooth_l1_loss(a, b) + F.l1_loss(a, b),
    "laws": lambda a, index, **_: torch.distributions.Categorical(logits=a).log_prob(index),
    "pools": lambda image, **_: F.max_pool2d(image, 2) + F.avg_pool2d(image, 2),
    "of scalars": lambda a, **_: a.sum().sum() + a.max().max() + a.mean().min() * a.sum().amax(),
    "draws": lambda a, **_: torch.randn_like(a) * a + torch.rand(6, 8),
    "set": lambda a, **_: _with_zeros(a * 2),
    "linear": lambda a, layers, **_: layers["linear"](a) + 1,
    "conv": lambda image, layers, **_: layers["conv"](image),
    "group": lambda image, layers, **_: layers["group"](image),
    "layer": lambda a, layers, **_: layers["layer"](a),
    "up": lambda image, layers, **_: layers["up"](image),
    "lstm": lambda words, layers, **_: layers["lstm"](words)[0],
    "gru": lambda words, layers, **_: layers["gru"](words)[0],
    "cell": lambda a, layers, **_: layers["cell"](a)[0],
    "attention": lambda words, layers, **_: layers["attention"](words, words, words)[0],
    "encoder": lambda words, layers, **_: layers["encoder"](words),
    "embedding": lambda index, layers, **_: layers["embedding"](index),
    "drop": lambda a, layers, **_: layers["drop"](a),
}


# These have none, or draw random numbers.
_WITHOUT_GRADIENTS = "logic", "one_hot", "draws", "drop"


def _with_zeros(x: Any) -> Any:
    x[x < 0] = 0.0
    return x


@pytest.mark.row("M4.1")
@pytest.mark.parametrize("name", _METHODS)
def test_methods_and_layers_ask_for_no_nodes(name: str, asked: _Asked) -> None:
    torch.manual_seed(0)
    memory = {
        "a": torch.tensor(_A), "b": torch.tensor(_B), "image": torch.tensor(_IMAGES),
        "words": torch.tensor(_WORDS),
    }  # fmt: skip
    index, layers = torch.tensor(_INDEX), _layers()
    for _ in range(6):
        asked.count = 0
        given = {each: value * 1.5 for each, value in memory.items()}
        found = _METHODS[name](**given, index=index * 1, layers=layers)
        count = asked.count
        found.sum().item()
    assert count == 0


@pytest.mark.parametrize("name", [each for each in _METHODS if each not in _WITHOUT_GRADIENTS])
def test_gradients_of_equal_steps_are_those_of_pytorch(name: str) -> None:
    theirs = pytest.importorskip("torch")
    layers = _layers()
    method = _METHODS[name]
    names = {**method.__globals__, "torch": theirs, "F": theirs.nn.functional}
    first = _gradients(theirs, FunctionType(method.__code__, names), _layers_of(theirs, layers))
    waiting.this_thread.pool.count_hit()
    for _ in range(5):
        for name_of, value in _gradients(torch, method, layers).items():
            expected = first[name_of]
            assert (value is None) == (expected is None), name_of
            if value is not None:
                np.testing.assert_allclose(value, expected, rtol=2e-4, atol=2e-5, err_msg=name_of)


def _layers_of(theirs: Any, layers: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's layers with the weights of ours."""
    names = {**_layers.__globals__, "nn": theirs.nn}
    found: dict[str, Any] = FunctionType(_layers.__code__, names)()
    for name, layer in layers.items():
        state = layer.state_dict()
        found[name].load_state_dict({key: theirs.tensor(state[key].tolist()) for key in state})
    return found


def _gradients(library: Any, method: Any, layers: dict[str, Any]) -> dict[str, Any]:
    """The gradients of one step to its operands and to all weights."""
    given = {
        "a": library.tensor(_A), "b": library.tensor(_B), "image": library.tensor(_IMAGES),
        "words": library.tensor(_WORDS),
    }  # fmt: skip
    for value in given.values():
        value.requires_grad_()
    for layer in layers.values():
        layer.eval().zero_grad()
    found = method(
        **{name: value * 1.5 for name, value in given.items()},
        index=library.tensor(_INDEX), layers=layers,
    )  # fmt: skip
    # One that is sure to be reached: with none, nodes would tell.
    ((found.exp() * 0.1).sum() + given["a"].square().mean()).backward()
    leaves = {
        **given,
        **{
            f"{name}.{key}": each
            for name, layer in layers.items()
            for key, each in layer.named_parameters()
        },
    }
    return {key: None if each.grad is None else each.grad.numpy() for key, each in leaves.items()}


def _gan() -> Iterator[float]:
    """Two networks with batch normalisation, dropout and draws, two optimizers."""
    maker = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 6))
    judge = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    of_maker, of_judge = (torch.optim.Adam(each.parameters(), 1e-3) for each in (maker, judge))
    criterion = nn.BCEWithLogitsLoss()
    while True:
        real, fake = torch.rand(5, 6), maker(torch.randn(5, 4))
        judged = criterion(judge(real), torch.ones(5, 1))
        judged = judged + criterion(judge(fake.detach()), torch.zeros(5, 1))
        of_judge.zero_grad()
        judged.backward()
        of_judge.step()
        made = criterion(judge(fake), torch.ones(5, 1))
        of_maker.zero_grad()
        made.backward()
        of_maker.step()
        yield judged.item() + made.item()


def _actor() -> Iterator[float]:
    """Actions that are drawn and read within a step."""
    body, critic = nn.Linear(3, 8), nn.Linear(8, 1)
    params = [*body.parameters(), *critic.parameters()]
    optimizer = torch.optim.RMSprop(params, 1e-3)
    while True:
        logs, values = [], []
        for number in range(3):
            hidden = body(torch.tensor(_A[number, :3]))
            law = torch.distributions.Categorical(logits=hidden)
            action = law.sample()
            logs.append(law.log_prob(action) * (1.0 + action.item()))
            values.append(critic(hidden))
        loss = torch.cat(values).square().mean() * 0.5 - torch.stack(logs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def _conv_net() -> Iterator[float]:
    """Convolutions with batch normalisation, a schedule, and a number read beside the loss."""
    net = nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    x, y = torch.tensor(_IMAGES), torch.tensor(_INDEX[:2] % 3)
    while True:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item() + (out.argmax(1) == y).float().mean().item()


def _replay() -> Iterator[float]:
    """Batches of a replay memory, a mask, and a second network that follows by its state."""
    chance = np.random.default_rng(0)
    policy, target = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    states = [torch.tensor(chance.normal(size=(1, 4)), dtype=torch.float32) for _ in range(16)]
    rewards = [torch.tensor([chance.normal()]) for _ in range(16)]
    while True:
        chosen = chance.integers(0, 16, 8)
        mask = torch.tensor([bool(each % 5) for each in range(8)])
        values = policy(torch.cat([states[each] for each in chosen])).max(1).values
        ahead = torch.zeros(8)
        with torch.no_grad():
            ahead[mask] = target(torch.cat([states[each] for each in chosen])[mask]).max(1).values
        wanted = ahead * 0.9 + torch.cat([rewards[each] for each in chosen]).float()
        loss = F.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs, ours = target.state_dict(), policy.state_dict()
        for name in ours:
            theirs[name] = ours[name] * 0.01 + theirs[name] * 0.99
        target.load_state_dict(theirs)
        yield loss.item()


def _by_hand() -> Iterator[float]:
    """Parameters that are written through `.data`, and an average of them."""
    net, average = nn.Linear(8, 2), nn.Linear(8, 2)
    held = net.state_dict()
    while True:
        loss = net(torch.tensor(_A)).square().mean()
        net.zero_grad()
        loss.backward()
        for weight, slow in zip(net.parameters(), average.parameters()):
            weight.data -= 0.01 * weight.grad.data
            weight.data.clamp_(-0.5, 0.5)
            slow.data.mul_(0.9).add_(weight.data, alpha=0.1)
        yield loss.item() + held["bias"].sum().item() + average.bias.sum().item()


def nodes_asked_for() -> dict[str, int]:
    """For each program, how often the twentieth step had nodes of calls made."""
    found: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch, Context(TEMPLATES=1, SEGMENTS=1):
        asked = _Asked(patch)
        for program in (_gan, _actor, _conv_net, _replay, _by_hand):
            torch.manual_seed(0)
            steps = program()
            for _ in range(20):
                asked.count = 0
                assert np.isfinite(next(steps))
            found[program.__name__] = asked.count
    return found


def test_steps_of_training_make_no_nodes() -> None:
    # Threads that other tests left alive would let no assignment wait.
    assert set(in_a_process(nodes_asked_for).values()) == {0}


def test_constants_of_other_values_are_other_operands() -> None:
    x = torch.tensor(_A)
    for number in range(12):
        value = float(number % 4)
        found = (x * 2) * torch.tensor(value) + torch.full((6, 8), value)
        np.testing.assert_allclose(found.numpy(), _A * 2 * value + value, rtol=1e-6)
        zeros = (x * 2) + torch.zeros(6, 8)
        zeros.add_(value)
        np.testing.assert_allclose(zeros.numpy(), _A * 2 + value, rtol=1e-6)
        np.testing.assert_array_equal(x.numpy(), _A)


@pytest.mark.parametrize(
    "key",
    [
        np.s_[:, [-1]], np.s_[:, :, [2]], np.s_[..., [1]], np.s_[:, [-2], None], np.s_[[1], :, [3]],
        np.s_[[0], [1]], np.s_[:, [1], [2]], np.s_[1, [0]],
    ],
    ids=str,
)  # fmt: skip
def test_a_list_of_one_index_picks_a_copy(key: Any) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for _ in range(4):
        x = torch.tensor(values) * 2
        found = x[key]
        np.testing.assert_array_equal(found.numpy(), (values * 2)[key])
        found.zero_()
        np.testing.assert_array_equal(x.numpy(), values * 2)
        with pytest.raises(IndexError):
            x[:, [3]]


def test_slices_of_lengths_that_change_are_as_many_as_there_are() -> None:
    whole = np.arange(40, dtype=np.float32)
    for length in (3, 5, 2, 7, 4, 3, 9):
        rows = (torch.tensor(whole[: length * 2]).view(length, 2) * 2).unbind(0)
        assert len(rows) == length
        np.testing.assert_array_equal(rows[-1].numpy(), whole[length * 2 - 2 : length * 2] * 2)
        parts = (torch.tensor(whole[:length]) + 1).split(2)
        assert [len(part) for part in parts] == [2] * (length // 2) + [1] * (length % 2)
        np.testing.assert_array_equal(torch.cat(parts).numpy(), whole[:length] + 1)


def test_draws_are_those_of_their_seed_in_equal_steps() -> None:
    for seed in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12):
        torch.manual_seed(seed)
        first, second = torch.rand(6, 8).numpy(), torch.rand(6, 8).numpy()
        torch.manual_seed(seed)
        found = (torch.tensor(_A) * 2 + torch.rand(6, 8)) * torch.rand(6, 8)
        np.testing.assert_allclose(found.numpy(), (_A * 2 + first) * second, rtol=1e-6)


def test_results_of_one_call_have_their_values_in_any_order() -> None:
    x = torch.tensor(_A)
    for number in range(8):
        left, right = (x * (number + 2)).split(4, dim=1)
        variance, mean = torch.var_mean(x * (number + 2), 1)
        rows = (x - number).unbind(0)
        wide = _A.astype(np.float64)
        if number % 2:
            np.testing.assert_allclose(mean.numpy(), (wide * (number + 2)).mean(1), atol=1e-5)
        np.testing.assert_allclose(right.numpy(), _A[:, 4:] * (number + 2), rtol=1e-6)
        np.testing.assert_allclose(rows[3].numpy(), _A[3] - number, rtol=1e-6, atol=1e-6)
        left += 1
        np.testing.assert_allclose(left.numpy(), _A[:, :4] * (number + 2) + 1, rtol=1e-5, atol=1e-6)
        expected = (wide * (number + 2)).var(1, ddof=1)
        np.testing.assert_allclose(variance.numpy(), expected, rtol=1e-4)


def test_numbers_in_a_loss_that_change_are_those_of_their_step() -> None:
    for number in range(24):
        share = 0.1 + 0.03 * number if number % 3 else 0.5
        x = torch.tensor(_A, requires_grad=True)
        (share * x.square().mean() + (1 - share) * x.sum()).backward()
        expected = share * 2 * _A / 48 + (1 - share)
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_a_write_by_a_mask_is_seen_by_views_and_by_gradients() -> None:
    for _ in range(6):
        x = torch.tensor(_A)
        y = x * 2
        row = y[0]
        y[y < 0] = -1.0
        expected = np.where(_A * 2 < 0, -1, _A * 2)
        np.testing.assert_allclose(row.numpy(), expected[0], rtol=1e-6)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
        leaf = torch.tensor(_A, requires_grad=True)
        made = leaf * 3
        made[made < 0] = 0.0
        made.sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), np.where(_A < 0, 0, 3), rtol=1e-6)
        with pytest.raises(RuntimeError):
            (x * 2)[0].expand(3, 8).mul_(2.0)


def test_a_view_of_all_of_what_was_written_and_read_is_no_endless_walk() -> None:
    """The view is its leaf's memory, and was noted as the place where that itself is found."""
    values = np.array([1.0, 0.5, -0.3, 2.0], np.float32)
    for number in range(4):
        leaf = torch.tensor(values + number, requires_grad=True)
        with torch.no_grad():
            leaf.clamp_(-1, 1)
        parts = [leaf, leaf[0], leaf.permute(0)]
        for part in parts:
            part.detach().tolist()
        sum((part * part).sum() for part in parts).backward()
        expected = 4 * np.clip(values + number, -1, 1)
        expected[0] *= 1.5
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-6)


def _plans_of_a_text(tokens: int) -> list[int]:
    """How many plans were made up to each word of a text that grows by what a small model says to
    it, unread.
    """
    numbers = np.random.default_rng(3)
    # More elements than the host computes by itself.
    table = numbers.normal(size=(11, 40)).astype(np.float32)
    weights = [numbers.normal(size=(40, 40), scale=0.3).astype(np.float32) for _ in range(8)]
    rows, layers = torch.tensor(table), [torch.tensor(each) for each in weights]
    words, plans = torch.zeros((1, 1), dtype=torch.long), []
    wanted = np.zeros((1, 1), np.int64)
    with torch.no_grad():
        for _ in range(tokens):
            x = rows[words]
            for layer in layers:
                x = torch.relu(x @ layer + x.mean(1, keepdim=True)) * 0.5 + x
            scores = x[:, -1] @ rows.T
            words = torch.cat((words, scores.argmax(-1, keepdim=True)), 1)
            plans.append(counters.schedules)
    for _ in range(tokens):
        y = table[wanted].astype(np.float64)
        for each in weights:
            y = np.maximum(y @ each + y.mean(1, keepdims=True), 0) * 0.5 + y
        best = (y[:, -1] @ table.T.astype(np.float64)).argmax(-1)
        wanted = np.concatenate((wanted, best[:, None]), 1)
    np.testing.assert_array_equal(words.numpy(), wanted)
    return plans


def test_a_text_that_grows_unread_has_one_plan_for_all_its_lengths(tmp_path: Path) -> None:
    """Each step runs before the next one, whose graph would have each length in it."""
    forget()
    # A cache that an earlier run has filled would leave nothing to plan.
    with Context(CACHE=str(tmp_path), TEMPLATES=1, SEGMENTS=1, SIZES=1):
        plans = _plans_of_a_text(30)
    assert plans[-1] > plans[0], "the loop runs before it is read"
    # The first sizes may be those of one program, beside each other.
    assert plans[-1] == plans[23]


def test_the_first_step_over_data_that_was_drawn_is_the_second(tmp_path: Path) -> None:
    """What a program draws by itself is memory when it is made, as parameters are."""
    forget()
    with Context(CACHE=str(tmp_path), TEMPLATES=1, SEGMENTS=1):
        layers = nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 3))
        optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
        x, y = torch.randn(37, 20), torch.randint(0, 3, (37,))
        plans = []
        for _ in range(4):
            loss = F.cross_entropy(layers(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            plans.append(counters.schedules)
    assert plans[-1] == plans[0]


@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 4)])
def test_draws_at_once_are_those_of_a_graph(shape: tuple[int, ...]) -> None:
    def drawn() -> list[np.ndarray[Any, Any]]:
        torch.manual_seed(5)
        like = torch.zeros(*shape)
        made = [
            torch.rand(*shape), torch.randn(*shape), torch.randint(-3, 9, shape),
            torch.rand_like(like), torch.randn_like(like), torch.randint_like(like, 4),
            torch.randn(*shape, dtype=torch.float64), torch.empty(*shape).uniform_(-1, 2),
            nn.Linear(shape[0], 4).weight,
        ]  # fmt: skip
        assert all(each.shape == shape for each in made[:-1])
        return [each.detach().numpy() for each in made]

    with Context(TEMPLATES=1, SEGMENTS=1):
        several = [drawn() for _ in range(3)]
    with Context(SEGMENTS=0):
        plain = drawn()
    for found in several:
        for mine, theirs in zip(found, plain, strict=True):
            np.testing.assert_array_equal(mine, theirs)
