"""What a live tensor holds, or will need, and a run computes on its way, is memory after the run:
a loop that logs a derived number has one graph for all of its steps.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, jit
from tilegrad.base.trace import counters
from tilegrad.engine.realize.realize import realized
from tilegrad.ir import Ops
from tilegrad.ir.uop import UOp


def _plans_of(step: Callable[[], None], steps: int = 12, after: int = 6) -> int:
    """How many graphs are scheduled in the steps that follow the first `after`.

    Where other tests ran the same graph in other sizes, a size that comes often gets a plan of its
    own, which is not what is counted here: each graph is planned for its sizes.
    """
    with Context(SIZES=0):
        for _ in range(after):
            step()
        before = counters.schedules
        for _ in range(steps - after):
            step()
        return counters.schedules - before


def test_a_loop_that_logs_a_derived_number_has_one_graph() -> None:
    state, expected = Tensor(numbers(4, 4)), numbers(4, 4).astype(np.float64)
    weight = Tensor(numbers(4, 4, seed=1)).realize()

    def step() -> None:
        nonlocal state, expected
        state = (state @ weight).tanh() + 0.5
        expected = np.tanh(expected @ numbers(4, 4, seed=1)) + 0.5
        assert state.sum().item() == pytest.approx(expected.sum(), rel=1e-4)

    assert _plans_of(step) == 0


def test_a_value_that_an_earlier_run_stored_is_not_stored_again() -> None:
    """Two reads of a product: the first run keeps it, and the second has one launch over it."""
    hidden, out = Tensor(numbers(1, 24)).realize(), Tensor(numbers(24, 50, seed=1)).realize()
    expected = numbers(1, 24).astype(np.float64) @ numbers(24, 50, seed=1)
    scores = hidden @ out
    assert scores.argmax(1).item() == expected.argmax()
    before = GlobalCounters.kernel_count
    assert scores.max().item() == pytest.approx(expected.max(), rel=1e-5)
    assert GlobalCounters.kernel_count == before + 1


def test_a_value_that_a_pending_tensor_needs_is_kept_where_it_is_computed() -> None:
    matrix = numbers(6, 6)
    matrix = matrix @ matrix.T
    a, v, expected = Tensor(matrix).realize(), Tensor(np.ones(6, np.float32)), np.ones(6)

    def step() -> None:
        nonlocal v, expected
        v = a @ v
        norm = (v * v).sum().sqrt()
        v = v / norm
        expected = matrix.astype(np.float64) @ expected
        length = np.sqrt((expected * expected).sum())
        expected = expected / length
        assert norm.item() == pytest.approx(length, rel=1e-4)

    assert _plans_of(step) == 0
    close(v, expected, 1e-3)


def test_views_of_a_state_are_views_of_its_memory() -> None:
    flat = Tensor(numbers(12))

    def step() -> None:
        nonlocal flat
        flat = (flat.reshape(3, 4).T * 1.01).reshape(12) if flat.ndim == 1 else flat
        flat.max().item()

    assert _plans_of(step) == 0
    assert realized(flat.uop) is not None


def test_the_history_of_a_loop_is_given_back() -> None:
    state = Tensor(numbers(8, 8))
    log: list[float] = []
    counts = []
    for number in range(24):
        state = (state * 0.9).tanh()
        noise = state - state.mean()
        log.append(noise.abs().sum().item())
        gc.collect()
        if number in (7, 23):
            counts.append(sum(isinstance(each, UOp) for each in gc.get_objects()))
    used = len(state.uop.toposort())
    assert used < 80
    assert len({*log}) == 24
    # UOps have no cycles, so the collector may not track them: then both are 0.
    assert counts[1] <= counts[0] + 20


@pytest.mark.usefixtures("nothing_known")
def test_memory_of_a_logging_loop_is_flat() -> None:
    state = Tensor(numbers(64, 64))

    def step() -> int:
        nonlocal state
        state = (state * 0.9).tanh()
        norm = (state * state).sum().sqrt()
        state = state / norm
        norm.item()
        gc.collect()
        return GlobalCounters.mem_used

    used = [step() for _ in range(20)]
    assert max(used[12:]) <= max(used[4:12])


def test_what_nobody_holds_is_not_stored() -> None:
    x = Tensor(numbers(16, 16)).realize()
    before = GlobalCounters.kernel_count
    # Not in an assert: pytest would hold what stands between.
    total = ((x * 2).exp() + 1).sum().item()
    assert total == pytest.approx((np.exp(numbers(16, 16) * 2) + 1).sum(), rel=1e-4)
    assert GlobalCounters.kernel_count == before + 1


def test_what_is_not_on_the_way_does_not_run() -> None:
    x = Tensor(numbers(16, 16)).realize()
    other = x.exp()
    x.sum().item()
    assert realized(other.uop) is None


@pytest.mark.row("F2.2")
def test_the_plain_plan_keeps_nothing() -> None:
    x = Tensor(numbers(16, 16)).realize()
    with Context(NOOPT=1):
        held = x * 3
        before = GlobalCounters.kernel_count
        held.sum().item()
        assert GlobalCounters.kernel_count == before + 1
        assert realized(held.uop) is None


def test_a_capture_stores_its_results_only() -> None:
    x = Tensor(numbers(16, 16)).realize()
    kept: list[Tensor] = []

    @jit
    def step(x: Tensor) -> Tensor:
        held = x * 3
        kept.append(held)
        return held.sum().realize()

    for _ in range(4):
        step(x)
    before = GlobalCounters.kernel_count
    assert step(x).item() == pytest.approx(3 * numbers(16, 16).sum(), rel=1e-4)
    assert GlobalCounters.kernel_count == before + 1


def test_a_value_that_was_kept_is_still_differentiated() -> None:
    w = Tensor(numbers(4, 4), requires_grad=True)
    x = Tensor(numbers(3, 4, seed=1))
    hidden = x @ w
    loss = (hidden * hidden).sum()
    loss.item()
    assert realized(hidden.uop) is not None
    loss.backward()
    assert w.grad is not None
    a, b = numbers(3, 4, seed=1), numbers(4, 4)
    close(w.grad, 2 * a.T @ (a @ b), 1e-3)
    (gradient,) = hidden.sum().gradient(w)
    close(gradient, a.T @ np.ones((3, 4)), 1e-3)


def test_a_kept_value_is_its_tensors_own_to_write_to() -> None:
    x = Tensor([1.0, 2.0]).realize()
    held = x * 2
    same = x * 2
    held.sum().item()
    held += 1
    assert held.tolist() == [3.0, 5.0]
    assert same.tolist() == [2.0, 4.0]
    assert x.tolist() == [1.0, 2.0]


def test_values_beyond_the_bound_stay_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilegrad.tensor.storage import worth_keeping

    monkeypatch.setattr(worth_keeping, "_MOST_BYTES", 16 * 16 * 4)
    x = Tensor(numbers(16, 16)).realize()
    small = (x * 2).exp()
    large = Tensor.cat(small, small).exp()
    large.sum().item()
    assert realized(small.uop) is not None
    assert realized(large.uop) is None


def test_a_kept_window_reads_no_more_than_it_shows() -> None:
    x = Tensor(numbers(8, 8)).realize()
    row = (x * 2).exp()[2]
    (row + 1).sum().item()
    below = row.uop
    while below.stored is None:
        below = below.src[0]
    below = below.stored
    while below.op is not Ops.BUFFER:
        below = below.src[0]
    assert below.arg.size == 8
    close(row, np.exp(numbers(8, 8) * 2)[2])


@pytest.mark.usefixtures("nothing_known")
def test_the_peak_with_kept_values_is_predicted() -> None:
    x = Tensor(numbers(64, 64)).realize()
    gc.collect()
    before = GlobalCounters.mem_used
    held = (x @ x).exp()
    total = held.sum().realize()
    assert GlobalCounters.mem_used - before == held.nbytes() + total.nbytes()


def test_a_late_reader_is_not_computed_again_from_what_was_overwritten() -> None:
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([10.0, 20.0]).realize()
    early = x * 2 + y.flip(0)
    y.assign(y + 1)
    held = x * 2 + y
    late = x * 2 + y.flip(0)
    assert late.tolist() == [23.0, 15.0]
    assert early.tolist() == [22.0, 14.0]
    assert held.tolist() == [13.0, 25.0]


def test_what_was_made_before_a_read_can_be_differentiated_after_it() -> None:
    x = Tensor(numbers(3))
    middle = x * 3
    above = (middle * middle).exp()
    above.sum().item()
    (gradient,) = above.gradient(x, gradient=Tensor.ones(3))
    close(gradient, 18 * numbers(3) * np.exp(9 * numbers(3) ** 2), 1e-3)


def test_updates_by_hand_of_parameters_keep_no_earlier_steps() -> None:
    """The update of a parameter waits until the next step's loss is read: its graph has a few
    steps, however many there were, and the values are NumPy's.
    """
    start = numbers(6, 3)
    w, expected = Tensor(start, requires_grad=True), start.astype(np.float64)
    sizes = []
    for step in range(16):
        x = numbers(5, 6) + np.float32(step / 16)
        loss = ((Tensor(x) @ w) ** 2).mean()
        loss.backward()
        assert w.grad is not None
        w.assign((w - 0.05 * w.grad).detach())
        w.grad = None
        product = x.astype(np.float64) @ expected
        close(loss, np.mean(product**2), atol=1e-4)
        expected = expected - 0.05 * x.T.astype(np.float64) @ (2 * product / product.size)
        sizes.append(len(w.uop.toposort()))
    close(w, expected, atol=1e-4)
    assert max(sizes[8:]) <= max(sizes[:8])
