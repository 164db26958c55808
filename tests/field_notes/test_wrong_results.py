"""What users of lazy tensor libraries were given that was wrong, and nobody said so.

Each test is a program that somebody wrote and believed: in other libraries it printed a number that
was not the one asked for, or none. The docstring says what went wrong. Other folders test the same
parts more deeply; here each complaint has a name.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor, Variable, dtypes, jit, nn
from tilegrad.base.errors import CaptureError, IndexBoundsError, InternalError, ShapeError
from tilegrad.ir import Ops, UOp

# random numbers


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_random_numbers_do_not_depend_on_who_asks_first(order: tuple[int, ...]) -> None:
    """Two random tensors, the second of which was read first, were the same numbers."""
    Tensor.manual_seed(11)
    expected = [Tensor.rand(4).tolist() for _ in range(3)]
    Tensor.manual_seed(11)
    drawn = [Tensor.rand(4) for _ in range(3)]
    found = {place: drawn[place].tolist() for place in order}
    assert [found[place] for place in range(3)] == expected
    assert len({tuple(numbers) for numbers in expected}) == 3


def test_a_captured_step_draws_what_the_plain_one_does() -> None:
    """Random numbers in a captured function were repeated, or not those of the seed."""

    def step(x: Tensor) -> Tensor:
        return (x + Tensor.rand(3) * Tensor.randn(3)).realize()

    x, captured = Tensor.ones(3).realize(), jit(step)
    Tensor.manual_seed(5)
    expected = [step(x).tolist() for _ in range(5)]
    Tensor.manual_seed(5)
    assert [captured(x).tolist() for _ in range(5)] == expected
    assert len({tuple(numbers) for numbers in expected}) == 5


# captured functions


def test_a_number_given_to_a_captured_function_is_the_one_of_this_call() -> None:
    """The first call's integer was baked in: 10, 11, 11, 11, 11."""
    add = jit(lambda x, n: (x + n).realize())
    x = Tensor([10]).realize()
    assert [add(x, n).item() for n in range(5)] == [10, 11, 12, 13, 14]


def test_two_instances_do_not_share_what_was_captured() -> None:
    """A captured method used the weights of the instance that called it first."""

    class Model:
        def __init__(self, weight: float):
            self.weight = Tensor([weight]).realize()

        @jit
        def __call__(self, x: Tensor) -> Tensor:
            return (x * self.weight).realize()

    first, second, x = Model(2.0), Model(3.0), Tensor([5.0]).realize()
    for _ in range(4):
        assert (first(x).item(), second(x).item()) == (10.0, 15.0)


def test_a_bound_variable_is_an_argument() -> None:
    """The value that a variable had while it was captured stayed for good."""
    total = jit(lambda x, n: x[:n].sum().realize())
    x, size = Tensor([1.0, 2.0, 3.0, 4.0, 5.0]).realize(), Variable("size", 1, 5)
    assert [total(x, size.bind(n)).item() for n in (2, 3, 5, 1, 4)] == [3, 6, 15, 1, 10]


def test_an_array_given_to_a_captured_function_is_refused_by_name() -> None:
    """An array that is no tensor was taken once and then ignored."""
    captured, x = jit(lambda x, more: (x + Tensor(more)).realize()), Tensor([1.0]).realize()
    with pytest.raises(CaptureError, match="more"):
        _ = [captured(x, np.full(1, np.float32(n))).item() for n in range(4)]


@pytest.mark.parametrize("kind", ["list", "string", "none", "dict"])
def test_no_argument_of_a_captured_function_is_dropped(kind: str) -> None:
    made: dict[str, list[Any]] = {
        "list": [[float(n), float(n)] for n in range(4)],
        "string": ["0", "1", "2", "3"],
        "none": [None, None, None, None],
        "dict": [{"n": n} for n in range(4)],
    }

    def step(x: Tensor, more: Any) -> Tensor:
        if isinstance(more, dict):
            return (x + more["n"]).realize()
        if isinstance(more, str):
            return (x + int(more)).realize()
        return (x * 2 if more is None else x + Tensor(more).float()).realize()

    x, captured = Tensor([1.0, 1.0]).realize(), jit(step)
    for more in made[kind]:
        expected = step(x, more).tolist()
        assert captured(x, more).tolist() == expected


def test_replays_give_the_bits_that_capturing_gave() -> None:
    """Capture and replay gave different results on one device."""
    generator = np.random.default_rng(1)
    w = Tensor(generator.standard_normal((33, 65)).astype(np.float32)).realize()

    def step(x: Tensor) -> Tensor:
        return ((x @ w).softmax().layernorm() @ w.T).exp().sum(0).realize()

    x = Tensor(generator.standard_normal((17, 33)).astype(np.float32)).realize()
    captured = jit(step)
    expected = step(x).numpy().tobytes()
    assert [captured(x).numpy().tobytes() for _ in range(5)] == [expected] * 5


@pytest.mark.parametrize("size", [5, 100_003])
def test_memory_shifted_into_itself(size: int) -> None:
    """What read and wrote overlapping parts of one large buffer saw its own writes."""
    x = Tensor.arange(size).contiguous().realize()

    @jit
    def shift() -> None:
        x[1:] = x[:-1]
        x.realize()

    for _ in range(4):
        shift()
    expected = np.concatenate([np.zeros(4, int), np.arange(size)])[:size]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_an_input_that_is_also_written() -> None:
    """A buffer that was input and output of a captured graph was updated once, or out of order."""
    state, x = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 1.0]).realize()

    @jit
    def step(state: Tensor, x: Tensor) -> Tensor:
        before = (state * 10).realize()
        state.assign(state + x).realize()
        return before

    assert [step(state, x).tolist() for _ in range(4)] == [[10, 20], [20, 30], [30, 40], [40, 50]]
    assert state.tolist() == [5, 6]


def test_gradients_gathered_over_captured_steps() -> None:
    """Gradient accumulation inside a captured function counted the first step only."""
    weight = Tensor([1.0, 2.0], requires_grad=True).realize()
    optimizer = nn.optim.SGD([weight], lr=0.1)
    plain = np.array([1.0, 2.0])

    @jit
    def micro(x: Tensor) -> Tensor:
        loss = (weight * x).square().sum()
        loss.backward()
        weight.grad.realize()
        return loss.realize()

    @jit
    def update() -> None:
        optimizer.step()

    with Tensor.train():
        for turn in range(4):
            weight.grad = Tensor.zeros(2).contiguous().realize()
            total = np.zeros(2)
            for part in range(3):
                x = np.array([1.0 + turn, 2.0 - part])
                micro(Tensor(x.astype(np.float32)).realize())
                total += 2 * plain * x * x
            update()
            plain = plain - 0.1 * total
            np.testing.assert_allclose(weight.numpy(), plain, rtol=1e-4)


def test_surprises_of_capturing_are_right_or_an_error() -> None:
    """Thirty habits of users that a capture silently changed the meaning of; some of them here,
    the others in tests/capture.
    """
    calls: list[int] = []
    x = Tensor([1.0]).realize()

    @jit
    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return (x + len(calls)).realize()

    # State of Python that changes with every call: the function runs anew.
    with pytest.warns(RuntimeWarning, match="reads calls, which it changed before"):
        _ = [counted(x).item() for _ in range(8)]
    # A result is not overwritten by the next call.
    twice = jit(lambda x: (x * 2).realize())
    kept = [twice(Tensor([float(n)]).realize()) for n in range(5)]
    assert [each.item() for each in kept] == [0, 2, 4, 6, 8]
    # The same tensor twice, then two different ones.
    both = jit(lambda a, b: (a - b).realize())
    y = Tensor([4.0]).realize()
    assert [both(p, q).item() for p, q in ((x, x), (x, x), (x, x), (x, y), (y, x))] == [
        0, 0, 0, -3, 3,
    ]  # fmt: skip
    # An argument that is not computed yet, and one that is a view.
    plus = jit(lambda a: (a + 1).realize())
    table = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    assert [plus(table[row] * 1).tolist() for row in (0, 1, 0, 1)] == [[2, 3], [4, 5]] * 2
    # By name and by position; a default.
    named = jit(lambda a, scale=1.0: (a * scale).realize())
    assert [named(x).item(), named(x, 2.0).item(), named(x, scale=3.0).item()] == [1, 2, 3]
    assert [named(x, scale=s).item() for s in (3.0, 4.0, 3.0)] == [3, 4, 3]


# threads


def test_threads_compute_at_the_same_time() -> None:
    """Of four threads each computing on the processor all failed: settings were of the process."""
    results: dict[int, float] = {}
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with Context(NOOPT=number % 2):
                x = Tensor.arange(50 + number).float()
                results[number] = (x * x).sum().item()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
    assert results == {n: float(sum(k * k for k in range(50 + n))) for n in range(4)}


# what is wrong is said where it is written


def test_shapes_that_do_not_fit_are_refused_where_they_meet() -> None:
    """The sum of (4, 8) and (3, 8) was a tensor; an IndexError came later, from elsewhere."""
    with pytest.raises(ShapeError) as caught:
        Tensor.rand(4, 8) + Tensor.rand(3, 8)  # they meet
    assert "(4, 8) and (3, 8)" in str(caught.value)
    assert "test_wrong_results.py" in str(caught.value)


def test_cat_says_which_of_its_arguments_does_not_fit() -> None:
    """An assertion without a text."""
    parts = [Tensor.zeros(2, 3), Tensor.zeros(2, 3), Tensor.zeros(2, 4)]
    with pytest.raises(ShapeError) as caught:
        Tensor.cat(*parts, dim=0)
    text = str(caught.value)
    assert "axis 0" in text and "(2, 3)" in text and "(2, 4)" in text and "argument 3" in text


# indices


def test_indices_outside_are_zero_and_can_be_looked_for() -> None:
    """An embedding or gather beyond its table gave zeros, and nothing could be switched on."""
    table, ids = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize(), Tensor([1, 7]) * 1
    assert table[ids].tolist() == [[3, 4], [0, 0]]
    assert nn.Embedding(2, 2)(ids).numpy()[1].tolist() == [0, 0]
    assert table.gather(0, Tensor([[5, 0]]) * 1).tolist() == [[0, 2]]
    lookups: list[Callable[[], Tensor]] = [
        lambda: table[ids],
        lambda: nn.Embedding(2, 2)(ids),
        lambda: table.gather(0, Tensor([[5, 0]])),
    ]
    with Context(CHECK=1):
        for lookup in lookups:
            with pytest.raises(IndexBoundsError, match=r"index [57] is out of range .* size 2"):
                lookup().realize()
    with pytest.raises(IndexBoundsError, match="index 7 is out of range"):
        table[7]


def test_a_mask_is_an_index() -> None:
    """A boolean index was refused as an index of dtype bool."""
    x = Tensor([[1, -2], [-3, 4]])
    assert x[x > 0].tolist() == [1, 4]
    assert x[Tensor([False, True])].tolist() == [[-3, 4]]
    assert x.masked_select(x > 0, size=3).tolist() == [1, 4, 0]


def test_every_form_of_writing_by_index() -> None:
    """Index assignment that was refused, or wrote elsewhere: masks, bytes as indices, steps,
    reversed and repeated ones, new axes, mixtures.
    """
    keys: list[tuple[Any, Any]] = [
        ((slice(None, None, 2), 1), 9),
        ((slice(None, None, -1), slice(1, 3)), np.arange(8).reshape(4, 2)),
        ((np.array([0, 2], np.uint8), slice(None)), np.array([[7], [8]])),
        ((slice(None), np.array([2, 0])), -1),
        ((np.array([[0], [3]]), np.array([1, 2])), np.array([[1, 2], [3, 4]])),
        ((Ellipsis, -1), np.array([5, 6, 7, 8])),
        ((None, 1), 3),
        ((np.arange(20).reshape(4, 5) % 3 == 0,), 0),
        ((np.array([True, False, False, True]), 2), np.array([40, 41])),
        ((slice(3, 1),), 1),
        ((np.array([-1, -4]), slice(None, None, 3)), 77),
    ]
    for key, value in keys:
        expected = np.arange(20).reshape(4, 5)
        ours = Tensor(expected.astype(np.int32)).realize()
        expected[key] = value
        as_ours = tuple(Tensor(part) if isinstance(part, np.ndarray) else part for part in key)
        ours[as_ours] = Tensor(np.asarray(value, np.int32)) if np.ndim(value) else value
        np.testing.assert_array_equal(ours.numpy(), expected, err_msg=repr(key))


# assignment


def test_assignments_mean_what_they_say_in_order() -> None:
    """A list of in-place updates each of which some order of running got wrong."""
    a, b = Tensor([1.0, 2.0]).realize(), Tensor([10.0, 20.0]).realize()
    a.assign(b)
    b.assign(a + 1)
    assert (a.tolist(), b.tolist()) == ([10, 20], [11, 21])
    # A swap by a graph that was made before.
    old_a, old_b = a * 1, b * 1
    a.assign(old_b)
    b.assign(old_a)
    assert (a.tolist(), b.tolist()) == ([11, 21], [10, 20])
    # Old values asked for after the write, new ones made of both.
    old = a + 0
    a += 5
    both = old + a
    a *= 2
    assert (both.tolist(), old.tolist(), a.tolist()) == ([27, 47], [11, 21], [32, 52])
    # Through a view, transposed, and twice.
    m = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    row = m[0]
    m.assign(m.T)
    m[1] += m[0]
    assert (m.tolist(), row.tolist()) == ([[1, 3], [3, 7]], [1, 3])
    # A loop of dependent ones, read only at the end.
    counter = Tensor([0]).realize()
    for step in range(20):
        counter.assign(counter * 2 + (step % 3))
    value = 0
    for step in range(20):
        value = value * 2 + (step % 3)
    assert counter.item() == value


def test_when_something_is_realized_changes_no_result() -> None:
    """Programs that were right only if a value between was computed early."""

    def program(points: tuple[bool, ...]) -> list[float]:
        x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()

        def at(place: int, tensor: Tensor) -> Tensor:
            return tensor.realize() if points[place] else tensor

        y = at(0, x.reshape(2, 2).T * 3)
        z = at(1, y.sum(0, keepdim=True) + y)
        x += 100
        w = at(2, z.reshape(4)[::-1] * x)
        y2 = at(3, y.pad(((1, 0), (0, 1))) + 1)
        return [*w.tolist(), *y2.flatten().tolist(), *x.tolist()]

    expected = program((False,) * 4)
    for points in itertools.product((False, True), repeat=4):
        assert program(points) == expected


# gradients


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16, dtypes.float32])
def test_the_gradient_of_a_maximum_of_many_equal_numbers(dtype: Any) -> None:
    """70,000 equal halves: their count overflowed, and every gradient was 0."""
    x = Tensor.ones(70_000, dtype=dtype).contiguous()
    gradient = x.max().gradient(x)[0].double().numpy()
    assert gradient.min() > 0
    assert gradient.sum() == pytest.approx(1, rel=2e-2)


def test_gradients_through_writes() -> None:
    """The gradient of a value that was written in parts, with steps, or twice."""
    a = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = Tensor([5.0, 7.0], requires_grad=True)
    x = (a * 2).contiguous()
    x[::2] = b * b
    x[0] = x[1] * b[1]
    loss = (x * Tensor([1.0, 10.0, 100.0])).sum()
    loss.backward()
    # x = [2 a1 b1, 2 a1, b1 b1]
    assert x.tolist() == [28, 4, 49]
    assert a.grad is not None and a.grad.tolist() == [0, 2 * 7 + 20, 0]
    assert b.grad is not None and b.grad.tolist() == [0, 4 + 100 * 14]


# state


def test_running_statistics_are_written_whoever_asks() -> None:
    """A normalisation's running mean and variance were not computed unless they were asked for, or
    were computed late, and the counter of batches stood still in a captured step.
    """
    norm, x = nn.BatchNorm(2), np.random.default_rng(3).standard_normal((8, 2, 3, 3))
    x = x.astype(np.float32) * 3 + 1
    mean, variance = np.zeros(2), np.ones(2)

    @jit
    def step(x: Tensor) -> Tensor:
        return norm(x).sum().realize()

    with Tensor.train():
        for turn in range(5):
            batch = x + turn
            step(Tensor(batch).realize())
            mean = 0.9 * mean + 0.1 * batch.mean((0, 2, 3))
            variance = 0.9 * variance + 0.1 * batch.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), variance, rtol=1e-5)
    assert norm.num_batches_tracked.item() == 5


def test_a_loss_is_of_the_weights_it_was_computed_with() -> None:
    """A loss that was read after the optimizer's step was that of the new weights."""
    weight = Tensor([3.0], requires_grad=True)
    optimizer = nn.optim.SGD([weight], lr=0.5)
    with Tensor.train():
        loss = (weight * weight).sum()
        loss.backward()
        optimizer.step()
    assert (loss.item(), weight.item()) == (9.0, 0.0)


# a graph that no stage accepts


def test_a_graph_that_is_refused_names_the_users_line() -> None:
    """All that was said was that verification failed, with a print of the compiler's insides."""
    node = (Tensor([1.0, 2.0]).realize().double() + 1).uop
    broken = UOp(Ops.ADD, dtypes.int32, node.src)
    broken.origin = node.origin
    with pytest.raises(InternalError, match="int of double and double") as caught:
        Tensor._of(broken, "CPU").realize()
    assert "line:      test_wrong_results.py:" in str(caught.value)
