"""Capturing and replaying: who runs when, what goes in, what comes out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Context, GlobalCounters, Tensor, TinyJit, UOp, jit
from tilegrad.capture import Jit


def test_names() -> None:
    assert TinyJit is jit
    assert isinstance(jit(lambda x: x + 1), Jit)


@pytest.mark.row("M4.1", "M4.3")
def test_the_body_runs_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """Call 0 runs, call 1 captures, later ones replay: a print appears twice."""
    count = 0

    @jit
    def double(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        print("body")
        return (x * 2).realize()

    for number in range(5):
        assert double(full(number, 3)).tolist() == [2 * number] * 3
    assert count == 2
    assert capsys.readouterr().out.count("body") == 2


@pytest.mark.parametrize("device", ["NULL", "CPU"])
@pytest.mark.parametrize("segments", [0, 1])
def test_a_function_that_ran_often_before_is_captured(
    device: str, segments: int, recwarn: pytest.WarningsRecorder
) -> None:
    """Code has been written for its graph by then, which is none that the function calls."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x + 1).contiguous()
        return x.realize()

    with Context(DEVICE=device, SEGMENTS=segments):
        x = Tensor.zeros(16).contiguous().realize()
        for _ in range(70):
            chain(x)
        captured = jit(chain)
        for _ in range(5):
            captured(x)
    assert not [str(each.message) for each in recwarn if "jit" in str(each.message)]


@pytest.mark.row("M4.2", "M3.5")
def test_messages_of_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    @jit
    def function(x: Tensor) -> Tensor:
        return (x * 2).contiguous().sum(0)

    shown = []
    for number in range(4):
        x = full(number, 4, 4)
        with Context(DEBUG=2, NOOPT=1):
            result = function(x)
        shown.append(capsys.readouterr().out)
        assert result.tolist() == [8 * number] * 4
    assert "JIT" not in shown[0]
    assert "JIT captured 2 kernels with 1 inputs" in shown[1]
    assert "JIT GRAPHing batch with 2 kernels on device CPU" in shown[2]
    assert "GRAPHing" not in shown[3]
    rows = [line for line in shown[3].splitlines() if "***" in line]
    assert len(rows) == 1 and "<batched 2>" in rows[0] and rows[0].startswith("\x1b[35m")


@pytest.mark.row("M4.4", "M3.5")
def test_one_kernel_is_no_graph(capsys: pytest.CaptureFixture[str]) -> None:
    function = jit(lambda x: x + 1)
    for number in range(3):
        x = full(number, 4)
        capsys.readouterr()
        with Context(DEBUG=2):
            function(x)
    shown = capsys.readouterr().out
    assert "only one kernel doesn't graph" in shown
    (row,) = [line for line in shown.splitlines() if "***" in line]
    assert row.startswith("\x1b[35m") and "E_" in row


@pytest.mark.row("M4.5")
def test_batches_end_at_another_device(capsys: pytest.CaptureFixture[str]) -> None:
    """Two devices in turn: four kernels alone, each with a row of its own."""

    @jit
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        found = []
        for scale in (2, 3):
            found.append((x * scale).realize())
            found.append((y * scale).realize())
        return found

    for number in range(3):
        x, y = full(number, 4), full(number, 4).to("CPU:1").realize()
        capsys.readouterr()
        with Context(DEBUG=2):
            results = function(x, y)
    shown = capsys.readouterr().out
    assert shown.count("only one kernel doesn't graph") == 4
    assert len(re.findall(r"\x1b\[35m\*\*\* CPU", shown)) == 4
    assert [each.tolist()[0] for each in results] == [4, 4, 6, 6]


@pytest.mark.row("M4.11")
def test_jit_0_and_2() -> None:
    calls = []

    @jit
    def function(x: Tensor) -> Tensor:
        calls.append(1)
        return (x * 2).contiguous().sum()

    with Context(JIT=0):
        for number in range(4):
            assert function(full(number, 4)).item() == 8 * number
    assert len(calls) == 4
    for mode in (2, 1, 2):
        with Context(JIT=mode):
            for number in range(4):
                assert function(full(number, 4)).item() == 8 * number
    assert len(calls) == 6


@pytest.mark.row("M4.13")
def test_a_copy_is_captured_too() -> None:
    """A batch ends at a copy to another device, and the copy is replayed."""

    @jit
    def function(x: Tensor) -> Tensor:
        return (x + 1).to("CPU:1") * 2

    for number in range(4):
        result = function(full(number, 4))
        assert result.device == "CPU:1" and result.tolist() == [2 * number + 2] * 4
    assert "copy" in function.explain()


@pytest.mark.row("M4.13")
def test_replays_count_kernels() -> None:
    """In each of the ways that replays take: the call that captures, and code written for later
    ones.
    """
    function = jit(lambda x: (x * 2).contiguous().sum())
    for _ in range(6):
        x = full(1, 4)
        GlobalCounters.reset()
        function(x)
        assert GlobalCounters.kernel_count == 2
        assert GlobalCounters.global_ops > 0


# inputs


def test_arguments_by_name_and_in_containers() -> None:
    @jit
    def function(pair: tuple[Tensor, dict[str, Tensor]], *, extra: list[Tensor]) -> Tensor:
        return pair[0] + pair[1]["b"] * 10 + extra[0] * 100

    for n in range(4):
        result = function((full(n, 2), {"b": full(n + 1, 2)}), extra=[full(n + 2, 2)])
        assert result.tolist() == [n + 10 * (n + 1) + 100 * (n + 2)] * 2
    assert function.captures == 1


def test_one_tensor_twice_is_another_capture() -> None:
    function = jit(lambda x, y: x * 10 + y)
    for n in range(3):
        x = full(n, 2)
        assert function(x, x).tolist() == [11 * n] * 2
    for n in range(3):
        assert function(full(n, 2), full(n + 1, 2)).tolist() == [11 * n + 1] * 2
    x = full(5, 2)
    assert function(x, x).tolist() == [55] * 2
    assert function.captures == 2


def test_windows_of_one_tensor() -> None:
    function = jit(lambda x, y: x * 10 + y)
    base = Tensor([float(n) for n in range(12)]).realize()
    for n in range(5):
        found = function(base[n : n + 2], base[n + 2 : n + 4]).tolist()
        assert found == [10 * n + n + 2, 10 * (n + 1) + n + 3]
    assert function.captures == 1


def test_moved_views_as_inputs() -> None:
    function = jit(lambda x: x + 1)
    base = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    for view in (base.T, base.T, base.T, base.flip(0).T, base.T.contiguous().realize()):
        assert function(view).tolist() == (view + 1).tolist()
    assert function.captures == 1


def test_a_window_that_is_kept_is_copied_anew_after_an_assignment() -> None:
    function = jit(lambda x: x + 1)
    base = Tensor([1.0, 2.0, 3.0]).realize()
    for n in range(4):
        base[0:2] = n
        assert function(base[0:2]).tolist() == [n + 1, n + 1]


def test_lazy_arguments_are_computed_first() -> None:
    function = jit(lambda x: x + 1)
    for n in range(4):
        assert function((full(n, 3) * 2).relu()).tolist() == [2 * n + 1] * 3
    assert function.captures == 1


def test_numbers_as_tensors() -> None:
    """A constant tensor is an input like any other: nothing is compiled for its value."""
    function = jit(lambda x, scale: x * scale)
    for n in range(4):
        assert function(full(n, 3), Tensor(0.5 + n)).tolist() == [n * (0.5 + n)] * 3
    assert function.captures == 1


def test_arguments_still_on_the_host() -> None:
    function = jit(lambda x: x + 1)
    kept = Tensor([7.0, 8.0])
    for n in range(4):
        assert function(Tensor([n, n + 1.0])).tolist() == [n + 1, n + 2]
        assert function(kept).tolist() == [8, 9]
    assert kept.tolist() == [7, 8]


def test_unused_arguments_are_left_alone() -> None:
    function = jit(lambda x, unused: x + 1)
    for n in range(4):
        lazy = full(n, 3) + 1
        assert function(full(n, 3), lazy).tolist() == [n + 1] * 3
    assert function.captures == 1


@pytest.mark.row("M4.6")
def test_another_shape_or_dtype_is_another_capture(capsys: pytest.CaptureFixture[str]) -> None:
    function = jit(lambda x: x + 1)
    for size in (2, 3, 2, 3, 2):
        assert function(full(1, size)).tolist() == [2] * size
    assert function(Tensor([1, 2, 3]).realize()).tolist() == [2, 3, 4]
    assert function.captures == 3
    with Context(DEBUG=1):
        function(full(1, 4))
    assert "x: shape was (3,), is (4,)" in capsys.readouterr().out


def test_an_output_as_the_next_input() -> None:
    function = jit(lambda x: x[::-1] * 2 if False else x.flip(0) + 1)
    x = Tensor([0.0, 10.0]).realize()
    for _ in range(6):
        x = function(x)
    assert x.tolist() == [6.0, 16.0]


# outputs


@pytest.mark.row("M4.9")
def test_outputs_outlive_later_calls() -> None:
    """Where the described system reuses memory under a holder, each call's results stay."""
    function = jit(lambda x: x * 2)
    results = [function(full(n, 2)) for n in range(6)]
    views = [each[0:1] for each in results]
    lazy = results[0] + results[5]
    function(full(9, 2))
    assert [each.tolist() for each in results] == [[2 * n] * 2 for n in range(6)]
    del results
    function(full(9, 2))
    assert [each.tolist() for each in views] == [[2 * n] for n in range(6)]
    assert lazy.tolist() == [10, 10]


@pytest.mark.usefixtures("nothing_known")
def test_memory_of_results_is_used_again() -> None:
    function = jit(lambda x: (x * 2).contiguous())
    x = full(1, 1024)
    for _ in range(4):
        result = function(x)
    before = GlobalCounters.mem_used
    for _ in range(20):
        result = function(x)
    assert GlobalCounters.mem_used <= before
    assert result.tolist()[0] == 2


def test_reuse_outputs() -> None:
    function = jit(lambda x: x * 2, reuse_outputs=True)
    results = [function(full(n, 2)) for n in range(5)]
    assert [each.tolist()[0] for each in results[2:]] == [8, 8, 8]
    x = full(1, 2)
    for _ in range(5):
        x = function(x)
    assert x.tolist() == [32, 32]


def test_structures_of_results() -> None:
    @jit
    def function(x: Tensor) -> dict[str, object]:
        y = x + 1
        return {"sum": y.sum(), "all": (y, [x, y]), "n": 3, "none": None}

    for n in range(4):
        x = full(n, 2)
        found = function(x)
        assert found["sum"].item() == 2 * n + 2
        assert found["all"][1][0] is x
        assert found["all"][0].tolist() == [n + 1] * 2
        assert found["all"][0] is found["all"][1][1]
        assert (found["n"], found["none"]) == (3, None)


@pytest.mark.parametrize("write", ["add_", "mul_", "copy_"])
def test_a_slice_that_is_written_with_what_it_holds(write: str) -> None:
    """Nothing is left of the write, and the slice is still read where it lies, not from a copy."""
    rows = {"add_": 0, "mul_": 1}

    @jit
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        getattr(x, write)(rows.get(write, x))
        return x, x * 3

    for n in range(6):
        row = Tensor(np.array([[100, 100], [n, n + 1]], np.int8)).realize()[1]
        given, tripled = function(row)
        assert given.tolist() == [n, n + 1]
        assert tripled.tolist() == [3 * n, 3 * n + 3]


def test_views_of_an_input_as_results() -> None:
    """They look at the memory of this call's argument, as they would without capture."""

    @jit
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.reshape(2, 2)[0], x + 1

    held = []
    for n in range(4):
        held.append(function(full(n, 4))[0])
    for n in range(4):
        held.append(function(Tensor([float(n)] * 4))[0])
    assert [each.tolist() for each in held] == [[n, n] for n in (0, 1, 2, 3, 0, 1, 2, 3)]


def test_constant_results() -> None:
    @jit
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, Tensor.ones(2)

    for _ in range(4):
        ones = function(full(1, 2))[1]
        assert ones.tolist() == [1, 1]
        ones += 1
        assert ones.realize().tolist() == [2, 2]


def test_results_have_the_shape_of_a_window() -> None:
    function = jit(lambda x: (x + 1).permute(1, 0)[1:])
    for n in range(4):
        assert function(full(n, 2, 3)).shape == (2, 2)


# functions of functions


@pytest.mark.row("M4.7")
def test_a_bound_variable_is_a_run_time_argument(capsys: pytest.CaptureFixture[str]) -> None:
    from tilegrad.base.trace import counters

    @jit
    def function(x: Tensor) -> Tensor:
        return (x * 2).contiguous().sum(0)

    base = Tensor([[float(4 * r + c) for c in range(4)] for r in range(4)]).realize()
    before = counters.compiles
    with Context(NOOPT=1):
        for n in range(4):
            size = UOp.variable("dim", 1, 4).bind(n + 1)
            found = function(base[:size])
            assert found.tolist() == [2 * sum(4 * r + c for r in range(n + 1)) for c in range(4)]
    assert counters.compiles - before <= 3
    assert function.captures == 1


def test_a_variable_among_the_arguments() -> None:
    """U4: its value is not frozen."""

    @jit
    def function(x: Tensor, at: UOp) -> Tensor:
        return x + at

    for n in range(5):
        assert function(full(1, 2), UOp.variable("at", 0, 9).bind(n)).tolist() == [1 + n] * 2
    assert function.captures == 1


def test_a_value_that_python_saw_is_a_guard() -> None:
    @jit
    def function(x: Tensor, at: UOp) -> Tensor:
        return x + at if at.unbind()[1] < 3 else x - at

    for n in range(6):
        expected = 1 + n if n < 3 else 1 - n
        assert function(full(1, 2), UOp.variable("at", 0, 9).bind(n)).tolist() == [expected] * 2


def test_one_variable_with_two_values_is_refused() -> None:
    from tilegrad.base.errors import ShapeError

    function = jit(lambda x, a, b: x + a + b)
    one, two = UOp.variable("n", 0, 9).bind(1), UOp.variable("n", 0, 9).bind(2)
    for _ in range(3):
        assert function(full(1, 2), one, one).tolist() == [3, 3]
    with pytest.raises(ShapeError, match="two values"):
        function(full(1, 2), one, two)
    assert function(full(1, 2), two, two).tolist() == [5, 5]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:3], lambda x: x.T, lambda x: x.reshape(16), lambda x: (x[0], x),
        lambda x: {"a": x.permute(1, 0)[2:]}, lambda x: x.diagonal(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("computes", [False, True])
def test_views_stay_views_of_what_was_given(view: Any, computes: bool) -> None:
    """What is assigned to the argument later is seen in the result, captured or not."""
    function = jit(lambda x: (view(x), x + 1 if computes else None))
    for n in range(6):
        given = np.arange(16, dtype=np.float32).reshape(4, 4)
        x = Tensor(given.copy()).realize()
        found, _ = function(x)
        x[1] = 100.0 + n
        given[1] = 100.0 + n
        expected = view(given) if not isinstance(view(x), dict) else {"a": given.T[2:]}
        for one, other in (
            [(found["a"], expected["a"])]
            if isinstance(found, dict)
            else list(zip(found, expected, strict=True))
            if isinstance(found, tuple)
            else [(found, expected)]
        ):
            np.testing.assert_array_equal(one.numpy(), other)
    assert function.captures == (1 if computes else 0)


def test_a_view_of_state_is_a_view() -> None:
    state = full(0, 4, 4)
    function = jit(lambda x: (state[0:2], x + 1))
    for n in range(6):
        view, _ = function(full(1, 2))
        state[0] = float(n)
        assert view.tolist()[0] == [float(n)] * 4
    assert function.captures == 1
