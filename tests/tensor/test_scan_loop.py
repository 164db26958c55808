"""`scan`: against loops in NumPy, by closed forms and finite differences, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Context, GlobalCounters, Tensor, Variable, jit, scan
from tilegrad.base.errors import DTypeError, ShapeError, TransformError
from tilegrad.base.trace import counters
from tilegrad.engine.plans import plans
from tilegrad.engine.plans.plan import Plan, plan_of, text_of
from tilegrad.engine.run import ready_launches, run
from tilegrad.ir.op import Ops

Array = npt.NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def affine(c: Any, x: Any) -> tuple[Any, Any]:
    """A linear recurrence, and what it does to a product."""
    c = c * x + x
    return c, c * c


def by_hand(c: Array, xs: Array, reverse: bool = False) -> tuple[Array, Array]:
    ys = np.zeros_like(xs)
    steps = range(len(xs))
    for t in reversed(steps) if reverse else steps:
        c, ys[t] = affine(c, xs[t])
    return c, ys


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_values(steps: int, reverse: bool) -> None:
    first, rows = numbers(3, seed=1), numbers(steps, 3)
    last, ys = scan(affine, Tensor(first), Tensor(rows), reverse=reverse)
    wanted, stacked = by_hand(first.astype(np.float64), rows.astype(np.float64), reverse)
    assert last.shape == (3,)
    assert ys.shape == (steps, 3)
    np.testing.assert_allclose(ys.numpy(), stacked, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_text_of_a_plan_with_a_loop(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process reads what this one planned."""
    made: list[Plan] = []
    make = plans._make

    def noted(*args: Any, **kwargs: Any) -> Plan:
        made.append(make(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(plans, "_make", noted)
    with Context(DISABLE_COMPILER_CACHE=1):
        _, ys = scan(affine, Tensor(numbers(7)), Tensor(numbers(6, 7)), reverse=reverse)
        ys.numpy()
    with_loops = [plan for plan in made if any(step.loop for step in plan.steps)]
    assert with_loops
    for plan in with_loops:
        assert plan_of(text_of(plan)) == plan


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [2, 5, 8])
def test_a_known_loop_runs_in_one_call(
    steps: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its iterations are launches of the plan, also after addresses are gathered by an expression.
    Those of a loop with more launches than a plan may have run one by one.
    """
    single: list[object] = []
    run_step = run.run_step

    def counted(launch: Any, *args: Any, **rest: Any) -> None:
        single.extend([launch] if launch.kernel is not None else [])
        run_step(launch, *args, **rest)

    monkeypatch.setattr(run, "run_step", counted)

    def loss_and_gradient(seed: int) -> None:
        first, rows = numbers(3, seed=seed), numbers(steps, 3, seed=seed + 1)
        x, xs = Tensor(first, requires_grad=True), Tensor(rows, requires_grad=True)
        last, ys = scan(affine, x, xs, reverse=reverse)
        (last.sum() + ys.sum()).backward()
        wide = first.astype(np.float64), rows.astype(np.float64)
        wanted, stacked = by_hand(*wide, reverse)
        np.testing.assert_allclose(ys.numpy(), stacked, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(last.numpy(), wanted, rtol=1e-5, atol=1e-6)
        for given, mine in zip(wide, (x.grad, xs.grad)):
            assert mine is not None
            for place in np.ndindex(given.shape):
                step = np.zeros_like(given)
                step[place] = 1e-6
                up, down = (
                    sum(each.sum() for each in by_hand(*pair, reverse))
                    for pair in (
                        [each + sign * step if each is given else each for each in wide]
                        for sign in (1, -1)
                    )
                )
                assert abs((up - down) / 2e-6 - mine.numpy()[place]) < 1e-3

    for seed in range(12):
        if seed == 4:
            single.clear()
        loss_and_gradient(seed)
    assert not single
    monkeypatch.setattr(ready_launches, "MOST_LAUNCHES", steps - 1)
    scan(affine, Tensor(numbers(7)), Tensor(numbers(steps, 7)), reverse=reverse)[1].realize()
    assert len(single) >= steps


def test_no_steps_leave_what_was_given() -> None:
    last, ys = scan(affine, Tensor([1.0, 2.0]), Tensor.zeros(0, 2))
    assert last.tolist() == [1.0, 2.0]
    assert ys.shape == (0, 2)


def test_structures_and_dtypes() -> None:
    """Carries of several dtypes; a dict, a tuple, None."""

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        place = state["place"] + 1
        half = state["half"] * 0.5
        return {"place": place, "half": half, "seen": state["seen"] | (x["n"] > 4)}, (place, None)

    first = {
        "seen": Tensor([False, False]),
        "half": Tensor([8.0], dtype="float16"),
        "place": 0,
    }
    last, (places, nothing) = scan(step, first, {"n": Tensor([[1, 2], [3, 9], [4, 4]])})
    assert list(last) == list(first)
    assert last["place"].item() == 3
    assert last["half"].tolist() == [1.0]
    assert last["half"].dtype.name == "float16"
    assert last["seen"].tolist() == [False, True]
    assert places.tolist() == [1, 2, 3]
    assert nothing is None


def test_only_a_length_and_nothing_given() -> None:
    last, ys = scan(lambda c, _: (c * 3, None), Tensor(1.0), length=4)
    assert last.item() == 81.0
    assert ys is None
    nothing, squares = scan(lambda _, x: (None, x * x), None, Tensor([1.0, 2.0]))
    assert nothing is None
    assert squares.tolist() == [1.0, 4.0]


def test_carries_that_change_places() -> None:
    """Each step reads what the step before it wrote, in whatever memory."""
    for steps in (1, 2, 3, 4):
        (a, b), pairs = scan(
            lambda c, x: ((c[1], c[0] + x), c[0]),
            (Tensor(1.0), Tensor(10.0)),
            Tensor.arange(steps).float(),
        )
        p, q, seen = 1.0, 10.0, []
        for step in range(steps):
            seen.append(p)
            p, q = q, p + step
        assert (a.item(), b.item(), pairs.tolist()) == (p, q, seen)


# gradients


def loss_of(c: Array, xs: Array, w: Array) -> float:
    total = 0.0
    for x in xs:
        c = np.tanh(w @ c) + x * w[0]
        total += float((c**3).sum())
    return total + float((c * c).sum())


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients(reverse: bool) -> None:
    """Of what is carried, of the rows, and of a matrix that all steps use, each as it is used."""
    given = [numbers(3, seed=2), numbers(5, 3, seed=3), numbers(3, 3, seed=4)]
    c, xs, w = (Tensor(each, requires_grad=True) for each in given)

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c = (w @ c).tanh() + x * w[0]
        return c, c**3

    last, cubes = scan(step, c, xs, reverse=reverse)
    loss = cubes.sum() + (last * last).sum()
    loss.backward()
    wide = [each.astype(np.float64) for each in given]
    if reverse:
        wide[1] = wide[1][::-1]
    np.testing.assert_allclose(loss.item(), loss_of(*wide), rtol=1e-5)
    for number, tensor in enumerate((c, xs, w)):
        wanted = np.zeros_like(wide[number])
        for place in np.ndindex(wanted.shape):
            sides = []
            for way in (1e-6, -1e-6):
                moved = [each.copy() for each in wide]
                moved[number][place] += way
                sides.append(loss_of(*moved))
            wanted[place] = (sides[0] - sides[1]) / 2e-6
        if reverse and number == 1:
            wanted = wanted[::-1]
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_second_derivative() -> None:
    """c -> x1 x2 x3 c**8 by three squarings: derivatives of every order by closed forms."""
    c = Tensor(1.1, requires_grad=True)
    last, _ = scan(lambda c, x: (c * c * x, None), c, Tensor([2.0, 3.0, 0.5]))
    factor = 2.0**4 * 3.0**2 * 0.5
    (first,) = last.gradient(c)
    (second,) = first.gradient(c)
    np.testing.assert_allclose(last.item(), factor * 1.1**8, rtol=1e-5)
    np.testing.assert_allclose(first.item(), factor * 8 * 1.1**7, rtol=1e-5)
    np.testing.assert_allclose(second.item(), factor * 56 * 1.1**6, rtol=1e-5)


def test_a_weight_in_half_is_summed_in_float() -> None:
    """4,096 steps that add 1 each: half stands still at 2,048."""
    w = Tensor([1.0], dtype="float16", requires_grad=True)
    _, ys = scan(lambda c, x: (c, w * x), None, Tensor.ones(4096, 1, dtype="float16"))
    ys.sum().backward()
    assert w.grad is not None
    assert w.grad.dtype.name == "float16"
    assert w.grad.tolist() == [4096.0]


def test_a_value_that_was_looked_at_has_a_gradient() -> None:
    c, xs = Tensor([2.0], requires_grad=True), Tensor([[3.0], [5.0]])
    last, ys = scan(lambda c, x: (c * x, c), c, xs)
    assert last.tolist() == [30.0]
    assert ys.tolist() == [[2.0], [6.0]]
    (last.sum() + ys.sum()).backward()
    assert c.grad is not None
    assert c.grad.tolist() == [15.0 + 1.0 + 3.0]


# surroundings


def test_under_jit() -> None:
    """A capture holds the launches; memory of inputs and results is each call's own."""
    w = Tensor(numbers(3, seed=5)).realize()

    def run(first: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        last, ys = scan(lambda c, x: (c * x + w, c + x), first, rows)
        return last, ys

    captured = jit(run)
    kept = []
    for seed in range(5):
        first, rows = numbers(3, seed=seed), numbers(4, 3, seed=seed + 50)
        last, ys = captured(Tensor(first), Tensor(rows))
        c, wanted = first, []
        for row in rows:
            wanted.append(c + row)
            c = c * row + w.numpy()
        kept.append((last, ys, c, np.stack(wanted)))
    for last, ys, c, stacked in kept:
        np.testing.assert_allclose(last.numpy(), c, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ys.numpy(), stacked, rtol=1e-5, atol=1e-6)
    assert captured.captures == 1


@pytest.mark.parametrize("noopt", [0, 1])
def test_a_scan_in_a_scan(noopt: int) -> None:
    """The inner loop uses what the outer step finds; with its gradient."""
    rows = numbers(3, 2, seed=6)
    c = Tensor([0.5, -0.25], requires_grad=True)

    def outer(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        inner, seen = scan(lambda d, _: (d * x + 1, d), c, length=2)
        return inner, seen.sum()

    with Context(NOOPT=noopt):
        last, sums = scan(outer, c, Tensor(rows))
        last.sum().backward()
        value, wanted = np.array([0.5, -0.25]), []
        for x in rows.astype(np.float64):
            middle = value * x + 1
            wanted.append((value + middle).sum())
            value = middle * x + 1
        np.testing.assert_allclose(last.numpy(), value, rtol=1e-5)
        np.testing.assert_allclose(sums.numpy(), wanted, rtol=1e-5)
        assert c.grad is not None
        np.testing.assert_allclose(c.grad.numpy(), (rows**2).prod(0), rtol=1e-4)


def test_what_is_used_from_outside_is_computed_once() -> None:
    """No step computes what does not depend on it, and a movement of memory is not stored."""
    w = Tensor(numbers(4, 4)).realize()
    ready = Tensor(numbers(4)).realize()
    last, _ = scan(lambda c, x: (w.T @ c + w.exp().sum() + x, None), ready, Tensor.ones(6, 4))
    GlobalCounters.reset()
    last.realize()
    assert GlobalCounters.kernel_count <= 6 + 3
    c = ready.numpy().astype(np.float64)
    for _ in range(6):
        c = w.numpy().T @ c + np.exp(w.numpy().astype(np.float64)).sum() + 1
    np.testing.assert_allclose(last.numpy(), c, rtol=1e-4)


def test_random_numbers_are_drawn_once() -> None:
    Tensor.manual_seed(3)
    _, ys = scan(lambda c, x: (c, Tensor.rand(2) + x), None, Tensor.zeros(3, 2))
    drawn = ys.numpy()
    assert (drawn == drawn[0]).all()
    assert 0 <= drawn.min() < drawn.max() < 1


def test_old_values_are_read_before_they_are_overwritten() -> None:
    w = Tensor([2.0]).realize()
    last, _ = scan(lambda c, x: (c * w, None), Tensor([1.0]), length=3)
    w.assign(Tensor([5.0]))
    later, _ = scan(lambda c, x: (c * w, None), Tensor([1.0]), length=3)
    assert later.tolist() == [125.0]
    assert last.tolist() == [8.0]


# cost


def work(steps: int) -> tuple[int, int]:
    """(compilations, schedules) of a loop with its gradient."""
    w = Tensor(numbers(5, 5), requires_grad=True).realize()
    xs = Tensor(numbers(steps, 5)).realize()
    before = counters.compiles, counters.schedules
    last, _ = scan(lambda c, x: ((w @ c).tanh() + x, None), Tensor.zeros(5), xs)
    last.sum().backward()
    assert w.grad is not None
    w.grad.realize()
    return counters.compiles - before[0], counters.schedules - before[1]


def test_compilation_does_not_grow_with_the_steps() -> None:
    with Context(DISABLE_COMPILER_CACHE=1):
        # What does not depend on the number of steps is compiled by now.
        work(5)
        with Context(SIZES=0):
            few, many = work(8), work(64)
        assert few == many
        assert few[0] > 0


def test_two_lengths_compile_what_serves_all() -> None:
    with Context(DISABLE_COMPILER_CACHE=1, SIZES=1):
        work(7)
        work(9)
        assert [work(steps) for steps in (12, 8, 65, 2, 300)] == [(0, 0)] * 5


@pytest.mark.parametrize("reverse", [False, True])
def test_all_lengths_of_one_plan(reverse: bool) -> None:
    """Odd and even numbers of steps, one step, and rows that the host has laid out otherwise."""
    w = numbers(4, 4) * 0.3
    with Context(SIZES=1):
        for steps in (5, 8, 9, 1, 2, 31, 3, 8, 40, 64):
            columns = numbers(2, steps, 4)
            h, ys = scan(
                lambda h, x: ((h @ Tensor(w) + x).tanh(), h * x),
                Tensor.zeros(2, 4),
                Tensor(columns).transpose(0, 1),
                reverse=reverse,
            )
            state, stacked = np.zeros((2, 4)), np.zeros((steps, 2, 4))
            for t in reversed(range(steps)) if reverse else range(steps):
                stacked[t] = state * columns[:, t]
                state = np.tanh(state @ w + columns[:, t])
            np.testing.assert_allclose(ys.numpy(), stacked, rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(h.numpy(), state, rtol=2e-5, atol=1e-6)


def test_the_graph_does_not_grow_with_the_steps() -> None:
    sizes = set()
    for steps in (8, 512):
        c = Tensor([1.0], requires_grad=True)
        last, ys = scan(lambda c, x: (c * c * x, c), c, Tensor.zeros(steps, 1))
        (grown,) = (last.sum() + ys.sum()).gradient(c)
        nodes = grown.uop.toposort()
        sizes.add(len(nodes))
        assert sum(node.op is Ops.LOOP for node in nodes) == 2
    assert len(sizes) == 1


def test_kernels_grow_with_the_steps_alone() -> None:
    counts = []
    for steps in (4, 8, 12):
        last, ys = scan(affine, Tensor(numbers(3)).realize(), Tensor(numbers(steps, 3)).realize())
        GlobalCounters.reset()
        Tensor.realize(last, ys)
        counts.append(GlobalCounters.kernel_count)
    assert counts == [4, 8, 12]


# wrong programs


def twice(c: Any, x: Any) -> Any:
    return (c, c), None


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            ShapeError,
            r"the carry changes from float32 \(3,\) to float32 \(1, 3\)",
            lambda c: scan(lambda c, x: (c.reshape(1, 3), None), c, length=2),
        ),
        (
            DTypeError,
            r"the carry changes from float32 \(3,\) to int32 \(3,\)",
            lambda c: scan(lambda c, x: (c.int(), None), c, length=2),
        ),
        (
            ShapeError,
            "the carry changes from a tensor to a tuple of 2",
            lambda c: scan(twice, c, length=2),
        ),
        (
            ShapeError,
            r"the carry\[1\] changes from a dict of 'a' to a dict of 'b'",
            lambda c: scan(lambda s, x: ((s[0], {"b": c}), None), (c, {"a": c}), length=2),
        ),
        (
            ShapeError,
            "xs differ in their number of steps: 3 and 4",
            lambda c: scan(lambda s, x: (s, None), c, (Tensor.ones(3), Tensor.ones(4, 2))),
        ),
        (
            ShapeError,
            "xs have 3 steps, length is 5",
            lambda c: scan(lambda s, x: (s, None), c, Tensor.ones(3), length=5),
        ),
        (ShapeError, "length says how many steps", lambda c: scan(lambda s, x: (s, None), c)),
        (ShapeError, "length -1 is negative", lambda c: scan(twice, c, length=-1)),
        (DTypeError, "length must be an integer, not 2.5", lambda c: scan(twice, c, length=2.5)),
        (
            ShapeError,
            "the function gave a tensor, not a pair",
            lambda c: scan(lambda s, x: s, c, length=2),
        ),
        (
            ShapeError,
            "xs need an axis of steps in front",
            lambda c: scan(lambda s, x: (s, None), c, Tensor(1.0)),
        ),
        (DTypeError, "cannot use a str", lambda c: scan(lambda s, x: (s, None), "c", length=1)),
        (
            TransformError,
            "scan: reading it needs the value of a tensor that stands for every step",
            lambda c: scan(lambda s, x: (s * s.sum().item(), None), c, length=2),
        ),
        (
            DTypeError,
            "the function assigns to a tensor",
            lambda c: scan(lambda s, x: (c.clone().assign(s), None), c, length=2),
        ),
        (
            DTypeError,
            "cannot call the Python function 'sort'",
            lambda c: scan(lambda s, x: (s.apply(np.sort), None), c, length=2),
        ),
        (
            ShapeError,
            "sizes must be numbers",
            lambda c: scan(lambda s, x: (s, None), c[: Variable("n", 1, 3).bind(2)], length=2),
        ),
        (
            ShapeError,
            "an operand without elements",
            lambda c: scan(lambda s, x: (s, None), Tensor.zeros(2, 0), length=2),
        ),
    ],
)
def test_wrong_programs(
    error: type[Exception], message: str, call: Callable[[Tensor], object]
) -> None:
    with pytest.raises(error, match=message):
        call(Tensor([1.0, 2.0, 3.0]))


def test_what_f_keeps_has_no_value() -> None:
    kept = []

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        kept.append(c + 1)
        return c, None

    scan(step, Tensor([1.0]), length=2)
    with pytest.raises(TransformError, match="what stood for a tensor"):
        kept[0].realize()
