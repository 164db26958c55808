"""Ten times the steps of a graph cost at most 13 times the work of a plan, whatever the steps are,
and whichever of the gradients is asked for first.

Work is counted, not timed: nodes that walks and rewrites went through, kernels, and their nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.scale.test_growing_writes import lines_of
from tests.scale.test_large_graphs import MOST, shallow
from tests.schedule.plans import plan
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters
from tilegrad.ir.uop import UOp
from tilegrad.schedule.inlining import Dominators

Steps = Callable[[Tensor, int], Tensor]


def square() -> Tensor:
    return Tensor(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)).realize()


def fan(x: Tensor, steps: int) -> Tensor:
    parts = [x * (number + 1.5) for number in range(steps)]
    while len(parts) > 1:
        rest = parts[len(parts) // 2 * 2 :]
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + rest
    return parts[0]


def ladder(x: Tensor, steps: int) -> Tensor:
    a, b = x, x * 2
    for _ in range(steps):
        a = a + b.sum(-1, keepdim=True) * 0.01
        b = b - a.max(-1, keepdim=True) * 0.01
    return a + b


def residual_tower(x: Tensor, steps: int) -> Tensor:
    weight = square()
    for _ in range(steps):
        x = x + (x @ weight).relu() * 0.1
    return x


def attention_tower(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x + ((x * 1.1) @ (x * 0.9).T).softmax(-1) @ x
        x = x - x.mean(-1, keepdim=True)
    return x


def normalisations(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x - x.mean() + x.max() * 0.001
    return x


def softmaxes(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x.softmax(-1) + x
    return x


def shifts(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x + x.roll(1, 0) * 0.1
    return x


def picks(x: Tensor, steps: int) -> Tensor:
    rows = Tensor([0, 1, 2, 3, 4, 5, 6, 0]).realize()
    for _ in range(steps):
        x = x[rows] * 0.9
    return x


def scans(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x.cumsum(0) * 0.1
    return x


def growing(x: Tensor, steps: int) -> Tensor:
    rows = x[:1]
    for _ in range(steps):
        rows = rows.cat(rows[-1:] * 0.5, dim=0)
    return rows


def updates(x: Tensor, steps: int) -> Tensor:
    x = (x * 1).contiguous()
    for _ in range(steps):
        x += 1.5
    return x


def diamonds(x: Tensor, steps: int) -> Tensor:
    other = x * 2
    for _ in range(steps):
        x, other = x * 0.8 + other * 0.6, other * 0.8 - x * 0.6
    return x


def reshapes(x: Tensor, steps: int) -> Tensor:
    """Views that do not merge into one."""
    x = x.reshape(64)[:60]
    for _ in range(steps):
        x = x.reshape(10, 6).T.reshape(4, 15).T
    return x


def paddings(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x.reshape(4, 16).T.reshape(8, 8).pad(((1, 0), (0, 0)))[:8]
    return x


def squares(x: Tensor, steps: int) -> Tensor:
    return growing(x, steps).square()


VALUES: list[Steps] = [
    fan, ladder, residual_tower, attention_tower, normalisations, softmaxes, shifts, picks, scans,
    updates, diamonds, reshapes,
]  # fmt: skip
GRADIENTS: list[Steps] = [
    fan, ladder, residual_tower, attention_tower, normalisations, softmaxes, diamonds,
]  # fmt: skip


def work_of(*values: Tensor) -> tuple[int, int, int]:
    """Nodes that making a plan went through, kernels, and their nodes."""
    before = counters.visits
    with shallow(120):
        schedule = plan(*values)
    asts = [item.ast for item in schedule.items if item.ast is not None]
    return counters.visits - before, len(asts), sum(len(ast.toposort()) for ast in asts)


def assert_in_proportion(
    small: tuple[int, int, int], large: tuple[int, int, int], most: float = MOST
) -> None:
    for few, many in zip(small, large, strict=True):
        assert many <= most * few


@pytest.mark.parametrize("steps", VALUES, ids=lambda steps: steps.__name__)
def test_a_plan(steps: Steps) -> None:
    assert_in_proportion(*[work_of(steps(square(), count)) for count in (8, 80)])


@pytest.mark.parametrize("steps", [ladder, normalisations], ids=lambda steps: steps.__name__)
def test_a_plan_of_numbers(steps: Steps) -> None:
    """Nothing is in memory. A reduction that needs no loop is looked for in short expressions only:
    of all, the work would be the cube of the steps.
    """
    few, many = [work_of(steps(Tensor.ones(8, 8), count)) for count in (50, 100)]
    assert_in_proportion(few, many, 2.3)


@pytest.mark.parametrize("steps", [growing, paddings], ids=lambda steps: steps.__name__)
def test_a_plan_of_conditions(steps: Steps) -> None:
    """About ten make a kernel, in which each is beside all others: these kernels do not grow."""
    works = [work_of(steps(square(), count)) for count in (60, 180)]
    assert_in_proportion(*works, most=MOST * 3 / 10)


@pytest.mark.parametrize(
    "order",
    [
        "first",
        pytest.param("last", marks=pytest.mark.nightly),
        pytest.param("all", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("steps", GRADIENTS, ids=lambda steps: steps.__name__)
def test_a_plan_of_gradients(steps: Steps, order: str) -> None:
    """Of the input, of a value half way, or of both. The reductions of up to about 15 steps of a
    ladder fit one kernel: so few say nothing of growth.
    """
    work, small = [], 20 if steps is ladder else 10
    for count in (small, 10 * small):
        x, scale = square().requires_grad_(), Tensor([1.5]).realize().requires_grad_()
        steps(steps(x, count // 2) * scale, count // 2).sum().backward()
        assert x.grad is not None and scale.grad is not None
        gradients = {"first": [x.grad], "last": [scale.grad], "all": [scale.grad, x.grad]}[order]
        work.append(work_of(*gradients))
    assert_in_proportion(*work)


@pytest.mark.parametrize("steps", [growing, squares], ids=lambda steps: steps.__name__)
def test_a_plan_of_the_gradient_of_rows_that_grow(steps: Steps) -> None:
    work = []
    for count in (30, 90):
        x = square().requires_grad_()
        steps(x, count).sum().backward()
        assert x.grad is not None
        work.append(work_of(x.grad))
    assert_in_proportion(*work, most=MOST * 3 / 10)


def tanhs(steps: int) -> Tensor:
    """The gradient of the input of a chain."""
    x = square().requires_grad_()
    value: Tensor = x
    for _ in range(steps):
        value = value.tanh()
    value.sum().backward()
    assert x.grad is not None
    return x.grad


def test_a_gradient_of_many_steps_computes_each_about_twice() -> None:
    """Each kernel on the way back needs values of the way there: some of these are stored, lest
    each computes them all.
    """
    gradients = [tanhs(steps) for steps in (10, 100)]
    (few, *_), (many, _, nodes) = [work_of(gradient) for gradient in gradients]
    assert many <= MOST * few
    assert nodes < 3 * len(gradients[1].uop.toposort())


@pytest.mark.nightly
def test_a_gradient_of_a_thousand_steps() -> None:
    assert_in_proportion(*[work_of(tanhs(steps)) for steps in (100, 1000)])


def test_a_gradient_of_many_steps_has_the_value_of_numpy() -> None:
    value, slope = np.linspace(-1, 1, 64).reshape(8, 8), np.ones((8, 8))
    for _ in range(40):
        value = np.tanh(value)
        slope *= 1 - value**2
    np.testing.assert_allclose(tanhs(40).numpy(), slope, rtol=1e-4)


def test_forty_normalisations_have_the_values_of_numpy() -> None:
    start = np.linspace(-1, 1, 64).reshape(8, 8)
    wanted = start
    for _ in range(40):
        wanted = wanted - wanted.mean() + wanted.max() * 0.001
    np.testing.assert_allclose(normalisations(square(), 40).numpy(), wanted, rtol=1e-4, atol=1e-5)


def of_itself(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = (x > 0.5).where(x * (x + x), x + x)
    return x


def below_the_diagonal(x: Tensor) -> Tensor:
    return (Tensor.ones(8, 8).tril() > 0).where(x, 0)


ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "masked product": lambda x: below_the_diagonal(x) @ square(),
    "softmax": lambda x: (below_the_diagonal(x) - 1).softmax(-1) @ square(),
    "scaled": lambda x: (x * (Tensor.ones(8, 8).tril() > 0)).sum(0),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_kernel_that_uses_each_value_twice(end: str, tmp_path: Path) -> None:
    """Its graph has two paths to the power of its steps; three times the steps are not nine times
    the work.
    """

    def compute(count: int) -> int:
        value = ENDS[end](of_itself(square(), count))
        return lines_of(lambda: value.realize())

    with Context(CACHE=str(tmp_path)):
        compute(1)
        assert compute(21) < 6 * compute(7)


def test_where_all_ways_meet() -> None:
    """Beside a walk over all ways, on random graphs."""
    random = np.random.default_rng(5)
    for _ in range(50):
        nodes = [UOp.variable(f"v{number}", 0, number + 1) for number in range(14)]
        readers = {
            node: {nodes[number] for number in random.integers(place + 1, 14, random.integers(3))}
            if place < 13
            else set()
            for place, node in enumerate(nodes)
        }

        def ends(node: UOp, without: UOp, readers: dict[UOp, set[UOp]] = readers) -> bool:
            """Whether a way from `node` comes to an end that is not behind `without`."""
            if node is without:
                return False
            return not readers[node] or any(ends(each, without) for each in readers[node])

        dominators = Dominators(readers)
        for place, value in enumerate(nodes):
            for kernel in nodes[place + 1 :]:
                assert dominators.is_on_every_way(kernel, value) == (not ends(value, kernel))
