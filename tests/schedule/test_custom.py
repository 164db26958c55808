"""A Python function as a step between kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import plan
from tilegrad import Context, Tensor, jit
from tilegrad.base.errors import CaptureError, ShapeError, TilegradError
from tilegrad.schedule.items import Reason


def ranks(x: Any) -> Any:
    return x.argsort().argsort().astype(np.int32)


@pytest.mark.row("F2.11")
def test_it_runs_in_its_place() -> None:
    """Before it what it needs, after it what needs it; with it nothing is fused."""
    x = Tensor.empty(6)
    schedule = plan((x * 2 + 1).apply(np.sort) * 3)
    assert [item.custom for item in schedule.items] == [False, True, False]
    assert not any(item.is_copy for item in schedule.items)
    first, custom, last = schedule.items
    assert custom.buffers[1] == first.buffers[0]
    assert last.buffers[1] == custom.buffers[0]
    assert {edge.reason for edge in schedule.edges} == {Reason.CUSTOM}


@pytest.mark.row("F2.11")
@pytest.mark.parametrize("noopt", [0, 1])
def test_values(noopt: int) -> None:
    x = np.random.RandomState(0).randn(4, 5).astype(np.float32)
    with Context(NOOPT=noopt):
        made = ((Tensor(x) * 2).apply(np.sort) + 1).sum(1)
        np.testing.assert_allclose(made.numpy(), (np.sort(x * 2) + 1).sum(1), rtol=1e-5)
        place = Tensor(x[0]).apply(ranks, dtype="int32")
        assert place.tolist() == ranks(x[0]).tolist()
        both = Tensor(x).T.apply(lambda a, b: a @ b, Tensor.ones(4, 3), shape=(5, 3))
        np.testing.assert_allclose(both.numpy(), x.T @ np.ones((4, 3)), rtol=1e-5)


def test_two_functions_of_one_name() -> None:
    """The plan is that of the first; the function is not."""
    assert Tensor([1.0, 2.0]).apply(lambda x: x * 2).tolist() == [2.0, 4.0]
    assert Tensor([1.0, 2.0]).apply(lambda x: x * 3).tolist() == [3.0, 6.0]


def test_it_runs_once_for_a_value() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return x + 1

    made = Tensor([1.0]).apply(counted)
    assert not calls
    assert (made * 2).tolist() == [4.0]
    made.realize()
    first = len(calls)
    assert (made * 3 + made).tolist() == [8.0]
    assert len(calls) == first


def test_a_wrong_result_is_refused() -> None:
    with pytest.raises(ShapeError, match="apply: <lambda> gave"):
        Tensor([1.0, 2.0]).apply(lambda x: x[:1]).realize()
    with pytest.raises(TilegradError, match="apply: <lambda> gave"):
        Tensor([1.0, 2.0]).apply(lambda x: x.astype(np.float64)).realize()


def test_what_it_raises_comes_out() -> None:
    def fails(x: Any) -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        Tensor([1.0]).apply(fails).realize()
    assert (Tensor([1.0]) + 1).tolist() == [2.0]


def test_no_capture_holds_it() -> None:
    step = jit(lambda x: (x.apply(np.sort) * 2).realize())
    x = Tensor([2.0, 1.0]).realize()
    step(x)
    with pytest.raises(CaptureError, match="apply"):
        step(x)
