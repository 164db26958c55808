"""Loops over small tensors as PyTorch users write them: elements, rows, masks and indices in and
out, one at a time. Their values are PyTorch's or NumPy's, and a step takes few calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tests.engine.test_price import calls_of, in_a_process
from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.base.errors import IndexBoundsError, TilegradError

_random = np.random.default_rng(3)
_A = _random.normal(size=(6, 8)).astype(np.float32)
_X = _random.normal(size=8).astype(np.float32)


def q_learning(lib: Any, steps: int) -> Any:
    chance = random.Random(0)
    table, state = lib.zeros(16, 4), 0
    for _ in range(steps):
        greedy = table[state].argmax().item()
        action = chance.randrange(4) if chance.random() < 0.2 else greedy
        new = (state * 3 + action * 5 + 1) % 16
        target = (1.0 if new == 15 else -0.01) + 0.9 * table[new].max()
        table[state, action] = table[state, action] + 0.1 * (target - table[state, action])
        state = new
    return table.tolist()


def gauss_seidel(lib: Any, steps: int) -> Any:
    size = 6
    numbers = np.random.default_rng(0).random((size, size)).astype(np.float32)
    matrix = lib.tensor(numbers + size * np.eye(size, dtype=np.float32))
    right, x = lib.tensor(numbers[0].copy()), lib.zeros(size)
    for step in range(steps):
        i = step % size
        x[i] = (right[i] - matrix[i] @ x + matrix[i, i] * x[i]) / matrix[i, i]
    return x.tolist()


def breadth_first(lib: Any, steps: int) -> Any:
    size, depths = 16, []
    edges = lib.tensor(np.random.default_rng(0).random((size, size)) < 0.15)
    for start in range(steps // 6):
        seen = lib.zeros(size, dtype=lib.bool)
        seen[start % size] = True
        frontier, depth = seen.clone(), 0
        while frontier.any().item():
            frontier = edges[frontier].any(dim=0) & ~seen
            seen = seen | frontier
            depth += 1
        depths.append([depth, *seen.tolist()])
    return depths


def nearest(lib: Any, steps: int) -> Any:
    numbers = np.random.default_rng(0)
    points = lib.tensor(numbers.random((64, 8), np.float32))
    classes = lib.tensor(numbers.integers(0, 3, 64))
    asked, found = numbers.random((steps, 8), np.float32), []
    for step in range(steps):
        distances = ((points - lib.tensor(asked[step])) ** 2).sum(dim=1)
        votes = classes[distances.topk(5, largest=False).indices]
        found.append(lib.bincount(votes, minlength=3).argmax().item())
    return found


def clipped(lib: Any, steps: int) -> Any:
    x, kept = lib.tensor(_X.copy()), []
    for step in range(steps):
        x = x * 1.1 + 0.01 * (step % 5)
        x[x > 1.0] = 0.5
        large = x.abs() > 0.3
        x[large] = x[large] * 0.75
        kept.append(x[x < 0].tolist())
    return [[each for one in kept for each in one], x.tolist()]


def rows(lib: Any, steps: int) -> Any:
    x, total = lib.tensor(_X.copy()), []
    for step in range(steps // 3):
        table = lib.zeros(6, 8)
        for row in range(6):
            table[row] = x * float(row + step % 4)
        columns = lib.zeros(8, 3, dtype=lib.float64)
        for column in range(3):
            columns[:, column] = x.double() + column
        total.append([table.sum().item(), columns.tolist()])
        x = table[step % 5 + 1] * 0.3 + x * 0.5
    return [each for first, second in total for each in [[first], *second]]


def positions(lib: Any, steps: int) -> Any:
    x, found = lib.tensor(_X.copy()), []
    for step in range(steps):
        picked = (x.abs() * 2).long().clamp(0, 7)
        counts = lib.zeros(8)
        counts[picked] = 1.0 + step % 3
        table = lib.zeros(8, 8)
        table[lib.arange(8), picked] = x
        table[lib.tensor([1, 3]), :2] = x[:2] * 2
        found.append([counts.tolist(), *table.tolist()])
        x = x * 0.9 + 0.1
    return found


def bandit(lib: Any, steps: int) -> Any:
    chance = random.Random(1)
    means, counts = lib.zeros(5), lib.zeros(5, dtype=lib.int64)
    for _ in range(steps):
        arm = chance.randrange(5) if chance.random() < 0.3 else int(means.argmax())
        counts[arm] += 1
        means[arm] += (chance.gauss(arm, 1) - means[arm]) / counts[arm]
    return [means.tolist(), counts.tolist()]


def parts_updated(lib: Any, steps: int) -> Any:
    x, views = lib.zeros(2, 4), []
    for step in range(steps):
        x[step % 2, 1:3] += 1.5
        x[:, ::2] *= 0.5
        view = x[step % 2]
        view -= 0.25
        x[-1, step % 4] = x[0, step % 4] + view[0]
        x[0][2] = 7.0
        views.append([*view.tolist(), *x.T[1].tolist()])
    return [*views, x.tolist()[0]]


def wave(lib: Any, steps: int) -> Any:
    height, speed, seen = lib.zeros(9), lib.zeros(9), []
    height[4] = 1.0
    for _ in range(steps):
        force = lib.zeros_like(height)
        force[1:-1] = height[2:] - 2 * height[1:-1] + height[:-2]
        speed = speed + 0.1 * force
        height = height + 0.1 * speed
        seen.append(height.abs().max().item())
    return seen


LOOPS: dict[str, Callable[[Any, int], Any]] = {
    "q learning": q_learning, "gauss-seidel": gauss_seidel, "breadth first": breadth_first,
    "nearest": nearest, "clipped": clipped, "rows": rows, "positions": positions,
    "bandit": bandit, "parts updated": parts_updated, "wave": wave,
}  # fmt: skip


@pytest.mark.parametrize("segments", [0, 1, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_values_are_those_of_pytorch(name: str, segments: int) -> None:
    theirs = pytest.importorskip("torch")
    steps = 60
    with Context(SEGMENTS=segments):
        found = LOOPS[name](torch, steps)
    wanted = LOOPS[name](theirs, steps)
    assert len(found) == len(wanted)
    for ours, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, other, 1e-4, 1e-5)


# The calls of Python functions of one step, and those that it took when each of these writes made
# nodes, or each draw was made of seventeen calls.


def rows_written() -> int:
    x = torch.tensor(_X)

    def step() -> None:
        table = torch.zeros(6, 8)
        for row in range(6):
            table[row] = x * float(row)
        table.tolist()

    return calls_of(step)


def rows_of_a_mask_written() -> int:
    x = torch.tensor(_X)

    def step() -> None:
        y = x.clone()
        mask = y > 0
        y[mask] = y[mask] * 2.0
        y.tolist()

    return calls_of(step)


def indices_written() -> int:
    x, index = torch.tensor(_X), torch.tensor([1, 3, 5])

    def step() -> None:
        y = x.clone()
        y[index] = x[:3] * 2.0
        y.tolist()

    return calls_of(step)


def truths_written() -> int:
    def step() -> None:
        seen = torch.zeros(24, dtype=torch.bool)
        seen[3] = True

    return calls_of(step)


def picked_by_a_mask() -> int:
    x = torch.tensor(_X)

    def step() -> None:
        _ = x[x.abs() > 0.5]

    return calls_of(step)


def drawn() -> int:
    def step() -> None:
        torch.randn(8)

    return calls_of(step)


def element_of_a_result() -> int:
    state = [torch.tensor(_X)]

    def step() -> None:
        state[0] = state[0] * 0.75 + 0.25
        state[0][2].item()

    return calls_of(step)


def element_updated() -> int:
    x = torch.zeros(5)

    def step() -> None:
        x[3] += 1

    return calls_of(step)


def resized() -> int:
    x = torch.tensor(_A).reshape(1, 1, 6, 8)

    def step() -> None:
        F.interpolate(x, size=(24, 40), mode="bilinear").sum().item()

    return calls_of(step)


def unread_result_updated() -> int:
    x = torch.tensor(_A) @ torch.tensor(_A).T

    def step() -> None:
        y = x * 2.0
        for _ in range(8):
            y += x
        y.sum().item()

    return calls_of(step)


def corrected_by_a_power() -> int:
    """Adam's correction by 1 - 0.9**step, which is 1 as float32 from step 158 on, and another
    number in Python up to step 349.
    """
    x, state = torch.tensor(_X), [159]

    def step() -> None:
        state[0] += 1
        ((x / (1 - 0.9 ** state[0])).sqrt() + x / (1 - 0.999 ** state[0])).tolist()

    return calls_of(step)


@pytest.mark.parametrize(
    ("count", "most"),
    [
        (rows_written, 900),  # 3,446
        (rows_of_a_mask_written, 380),  # 888
        (indices_written, 260),  # 1,219
        (truths_written, 150),  # 533
        (picked_by_a_mask, 130),  # 207
        (drawn, 125),  # 235
        (element_of_a_result, 100),  # 113
        (element_updated, 140),  # 176
        (resized, 100),  # 900
        (unread_result_updated, 310),  # 349
        (corrected_by_a_power, 105),  # 170
    ],
)
def test_calls_of_python_functions(count: Callable[[], int], most: int) -> None:
    assert in_a_process(count) <= most


# what is written and picked, case by case


def test_numbers_that_are_one_as_float32() -> None:
    array = _X.copy()
    x = torch.tensor(array)
    for step in [1, 2, 3, *range(150, 170), *range(340, 356)]:
        by = 1 - 0.9**step
        found = [x / by, by * x, x + (1 - by), x - by, torch.where(x > by, x, by), x < by]
        one = np.float32(by)
        wanted = [
            array / one, one * array, array + np.float32(1 - by), array - one,
            np.where(array > one, array, one), array < one,
        ]  # fmt: skip
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)
        doubles = x.double() / by
        np.testing.assert_array_equal(doubles.numpy(), array.astype(np.float64) / by)


def test_filled_tensors_of_every_number() -> None:
    for _ in range(2):
        for value in (0, 1, True, False, 0.0, -0.0, 2.5, -7, 1e39, float("inf"), float("nan")):
            found = torch.full((2, 3), value)
            with np.errstate(over="ignore"):
                wanted = np.full((2, 3), value, str(found.dtype).removeprefix("torch."))
            np.testing.assert_array_equal(found.numpy(), wanted)
            np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(wanted))
        with pytest.raises(TilegradError):
            torch.full((2,), 300, dtype=torch.int8)
        first, second = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
        (first * 2 + second * 3).sum().backward()
        assert first.grad.tolist() == [2.0, 2.0] and second.grad.tolist() == [3.0, 3.0]


def test_views_see_what_is_written_by_indices_and_masks() -> None:
    for _ in range(4):
        y = torch.zeros(2, 4)
        flat = y.view(8)
        y[0, 1] = 3.0
        y[torch.tensor([1]), torch.tensor([2])] = 5.0
        y[y == 0] = 7.0
        row = y[1]
        y[torch.tensor([True, False])] = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
        assert flat.tolist() == [1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 5.0, 7.0]
        assert row.tolist() == [7.0, 7.0, 5.0, 7.0]


def test_a_constant_that_is_written_to_is_no_other_tensors() -> None:
    for _ in range(4):
        first, second = torch.zeros(3, 4), torch.zeros(3, 4)
        first[1] = torch.tensor(_X[:4]) * 2.0
        before = first + 0.0
        first[2] = first[1]
        assert second.tolist() == [[0.0] * 4] * 3
        np.testing.assert_array_equal(before.numpy()[1:], [_X[:4] * 2, np.zeros(4, np.float32)])
        np.testing.assert_array_equal(first.numpy()[1:], [_X[:4] * 2] * 2)


def test_what_a_mask_picks_is_a_copy() -> None:
    x = torch.tensor(_X.copy())
    for _ in range(4):
        picked = x[x > 0]
        picked[0] = 100.0
        assert x.max().item() < 100
        x[x > 0] = 0.5
        assert picked[0].item() == 100.0
        x.copy_(torch.tensor(_X))


@pytest.mark.parametrize(
    "kind", ["bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64"]
)
def test_numbers_of_every_kind_are_written(kind: str) -> None:
    for _ in range(3):
        array = np.zeros((3, 5), kind)
        x = torch.zeros(3, 5, dtype=getattr(torch, kind))
        for value in (True, 0, 7, False, -1 if array.dtype.kind in "if" else 1):
            for key in ((0, 2), (1, slice(1, 3)), (slice(None), 4), [0, 2]):
                array[key] = value
                x[torch.tensor(key) if isinstance(key, list) else key] = value
            mask = np.arange(15).reshape(3, 5) % 4 == value % 4
            array[mask] = value
            x[torch.tensor(mask)] = value
        np.testing.assert_array_equal(x.numpy(), array)


def test_numbers_that_are_no_floats_of_these_kinds() -> None:
    x, mask = torch.zeros(4), torch.tensor([True, False, True, False])
    for value in (float("inf"), float("nan"), -float("inf"), 1e39, 1e-46, 1 << 60):
        x[mask] = value
        wanted = np.asarray(value, np.float32) if abs(value) != 1e39 else np.float32(np.inf)
        np.testing.assert_array_equal(x.numpy(), [wanted, 0, wanted, 0])


def test_what_lies_outside_is_an_error_each_time() -> None:
    for _ in range(4):
        x = torch.tensor(_A)
        with pytest.raises(IndexBoundsError, match="setitem: index 6 is out of range"):
            x[torch.tensor([0, 6])] = 1.0
        with pytest.raises(IndexBoundsError, match="getitem: index 6 is out of range"):
            _ = x[torch.tensor([0, 6])]
        with pytest.raises(IndexBoundsError):
            _ = x[torch.zeros(5, dtype=torch.bool) == 0]
        with pytest.raises(TilegradError):
            x[torch.tensor([0, 1])] = torch.tensor([1.0, 2.0])
        with pytest.raises(TilegradError):
            x[x > 0] = torch.tensor([1.0, 2.0])
        np.testing.assert_array_equal(x.numpy(), _A)


@pytest.mark.parametrize("key", ["mask", "index", "pair"])
def test_gradients_go_past_what_is_written(key: str) -> None:
    theirs = pytest.importorskip("torch")
    keys: dict[str, Callable[[Any], Any]] = {
        "mask": lambda lib: lib.tensor(_A > 0.2),
        "index": lambda lib: lib.tensor([4, 1]),
        "pair": lambda lib: (lib.tensor([4, 1]), lib.tensor([0, 3])),
    }
    for _ in range(4):
        grads = []
        for lib in (torch, theirs):
            x = lib.tensor(_A.copy(), requires_grad=True)
            w = lib.tensor(0.75, requires_grad=True)
            y = x * 2.0
            picked = y[keys[key](lib)]
            y[keys[key](lib)] = w * picked.detach() + 0.5
            (y * y).sum().backward()
            grads.append((x.grad.numpy(), w.grad.numpy()))
        for ours, other in zip(*grads, strict=True):
            np.testing.assert_allclose(ours, other, 1e-4, 1e-4)


def test_gradients_of_what_a_mask_picks_of_a_tensor_of_tilegrads() -> None:
    """Which may be asked for of any tensor."""
    for _ in range(4):
        x = Tensor(_A)
        (grad,) = (x[x > 0.2] ** 2).sum().gradient(x)
        np.testing.assert_allclose(grad.numpy(), np.where(_A > 0.2, 2 * _A, 0), 1e-5)


def test_draws_are_the_same_from_a_seed() -> None:
    for _ in range(3):
        torch.manual_seed(11)
        first = [torch.randn(5), torch.rand(2, 3), torch.randn(2, dtype=torch.float64)]
        torch.manual_seed(11)
        again = [torch.randn(5), torch.rand(2, 3), torch.randn(2, dtype=torch.float64)]
        for one, other in zip(first, again, strict=True):
            assert one.tolist() == other.tolist()
    torch.manual_seed(11)
    many = torch.randn(20_000).numpy()
    assert abs(many.mean()) < 0.03 and abs(many.std() - 1) < 0.03


def test_a_loop_of_writes_that_nobody_reads_runs_as_it_goes() -> None:
    x, index = torch.tensor(_X), torch.tensor([1, 3, 5])
    y = torch.tensor(_X)
    for step in range(30):
        y[index] = y[index] * 0.5 + float(step)
    before = GlobalCounters.kernel_count
    found = y.numpy()
    # The last write, and not all of them.
    assert GlobalCounters.kernel_count - before < 6
    wanted = _X.copy()
    for step in range(30):
        wanted[[1, 3, 5]] = wanted[[1, 3, 5]] * np.float32(0.5) + np.float32(step)
    np.testing.assert_allclose(found, wanted, 1e-5)
    np.testing.assert_array_equal(x.numpy(), _X)
