"""CHECK=1 and CHECK=2: wrong indices in data, and the kernel that makes NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tilegrad import Context, GlobalCounters, Tensor, Variable, jit, nn, scan
from tilegrad.base.errors import IndexBoundsError, NotANumberError

TABLE = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.fixture
def x() -> Iterator[Tensor]:
    table = Tensor(TABLE).realize()
    with Context(CHECK=1):
        yield table


def _set(x: Tensor) -> Tensor:
    x[Tensor([0, 3])] = 1.0
    return x


WRONG: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "pick": (lambda x: x[Tensor([[0, 2], [3, -4]])], r"getitem: index 3 .* axis 0 of size 3"),
    "second axis": (lambda x: x[:, Tensor([1, -3])], r"getitem: index -3 .* axis 1 of size 2"),
    "both": (lambda x: x[Tensor([0, 1]), Tensor([0, 2])], r"index 2 .* axis 1 of size 2"),
    "no axes": (lambda x: x[Tensor(7)], r"getitem: index 7 is out of range for axis 0"),
    "write": (_set, r"setitem: index 3 .* axis 0 of size 3"),
    "gather": (lambda x: x.gather(0, Tensor([[0, 9]])), r"gather: index 9 .* axis 0"),
    "scatter": (lambda x: x.scatter(1, Tensor([[2]]), 5.0), r"scatter: index 2 .* axis 1"),
    "add": (
        lambda x: x.scatter_add(1, Tensor([[-3]]), Tensor([[1.0]])),
        r"scatter_add: index -3 .* axis 1 of size 2",
    ),
    "reduce": (
        lambda x: x.scatter_reduce(0, Tensor([[3]]), Tensor([[1.0]]), "amax"),
        r"scatter_reduce: index 3 .* axis 0 of size 3",
    ),
    "embedding": (lambda x: nn.Embedding(3, 2)(Tensor([[3]])), r"index 3 .* axis 0 of size 3"),
    "one hot": (lambda x: Tensor([0, -1]).one_hot(3), r"one_hot: index -1 .* an axis of size 3"),
    "classes": (lambda x: x.cross_entropy(Tensor([0, 1, 2])), r"index 2 .* axis 1 of size 2"),
    "bytes": (lambda x: x[Tensor([255], dtype="uint8")], r"index 255 .* axis 0 of size 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_index_outside_is_named(x: Tensor, name: str) -> None:
    wrong, message = WRONG[name]
    with pytest.raises(IndexBoundsError, match=message):
        wrong(x).realize()


def test_the_message_says_where(x: Tensor) -> None:
    ids = Tensor([[0, 2], [3, -4]])
    with pytest.raises(IndexBoundsError) as caught:
        (x[ids] * 2).realize()
    lines = str(caught.value).splitlines()
    assert lines[0] == "getitem: index 3 is out of range for axis 0 of size 3"
    assert lines[1] == "  found: at [1, 0] of the index, and 1 more"
    assert lines[2].startswith(
        "  index: (2, 2)  int32  Tensor([[0, 2], [3, -4]])  test_checked.py:"
    )
    assert lines[-1] == "  rule:  from -3 to 2"
    assert any(line.startswith("  line:  test_checked.py:") for line in lines)


def test_what_is_inside_has_the_same_value(x: Tensor) -> None:
    weight = Tensor(TABLE, requires_grad=True)
    found = weight[Tensor([2, -3, 2])]
    assert found.tolist() == [[5, 6], [1, 2], [5, 6]]
    found.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [[1, 1], [0, 0], [2, 2]]
    labels = Tensor([0, -100, 1])
    with Context(CHECK=0):
        expected = x.cross_entropy(labels, ignore_index=-100).item()
    assert x.cross_entropy(labels, ignore_index=-100).item() == expected
    assert x.topk(1)[1].tolist() == [[1], [1], [1]]
    count = Variable("count", 1, 3).bind(2)
    assert x[Tensor([0, 1, 2])[:count]].sum().item() == 10


def test_a_captured_function_is_checked(x: Tensor) -> None:
    picked = jit(lambda ids: x[ids] + 1)
    for number in (0, 1, 2):
        assert picked(Tensor([number]).realize()).tolist() == [[v + 1 for v in TABLE[number]]]
    with pytest.raises(IndexBoundsError, match="index 3 is out of range"):
        picked(Tensor([3]).realize()).realize()


def test_without_the_switch_nothing_is_added() -> None:
    x, ids = Tensor(TABLE).realize(), Tensor([0, 1]).realize()
    before = GlobalCounters.kernel_count
    # Not in the assert, which would hold x[ids] alive, so that a kernel stores it.
    total = x[ids].sum().item()
    assert GlobalCounters.kernel_count - before == 1
    assert total == 10


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "fp8e4m3"])
def test_the_first_kernel_that_makes_nan(dtype: str) -> None:
    with Context(CHECK=2):
        x = Tensor([1.0, 0.0, -1.0]).cast(dtype).realize()
        zero = x.relu().realize()
        fine = (zero * 2).realize()
        with pytest.raises(NotANumberError, match=r"check: the kernel .* makes NaN") as caught:
            (fine / zero).contiguous().realize()
        assert f"first: element 1 of 3 of {dtype}" in str(caught.value)
        assert "given: no NaN, no infinite numbers" in str(caught.value)
        assert "test_checked.py:" in str(caught.value)


def test_infinities_and_a_nan_that_was_there_are_no_error() -> None:
    with Context(CHECK=2):
        masked = Tensor([1.0, 2.0]).masked_fill(Tensor([True, False]), float("-inf")).realize()
        assert masked.softmax().tolist() == [0.0, 1.0]
        was = Tensor([float("nan"), 1.0]).realize()
        assert (was + 1).tolist()[1] == 2.0
        with pytest.raises(NotANumberError, match="1 infinite number"):
            (masked - masked).realize()


def test_indices_in_the_steps_of_a_loop(x: Tensor) -> None:
    """No Python runs between the steps: their indices are looked at behind the loop."""
    rows = Tensor([0, 2, 3, 1, 7])
    total, picked = scan(lambda sums, row: (sums + x[row], sums), Tensor.zeros(2), rows)
    for result in (total, picked):
        with pytest.raises(IndexBoundsError) as caught:
            result.realize()
        lines = str(caught.value).splitlines()
        assert lines[0] == "getitem: index 3 is out of range for axis 0 of size 3"
        assert lines[1] == "  found: in step 2, and 1 more"
        assert any(line.startswith("  line:  test_checked.py:") for line in lines)


def test_indices_in_a_loop_in_a_loop(x: Tensor) -> None:
    def outer(total: Tensor, rows: Tensor) -> tuple[Tensor, None]:
        inner, _ = scan(lambda sums, row: (sums + x[row].sum(), None), total, rows)
        return inner, None

    fine, _ = scan(outer, Tensor(0.0), Tensor([[0, 1], [2, 2]]))
    assert fine.item() == 32
    wrong, _ = scan(outer, Tensor(0.0), Tensor([[0, 1], [2, 5]]))
    with pytest.raises(IndexBoundsError, match="found: in step 1, in step 1"):
        wrong.realize()


def test_a_checked_loop_has_the_same_gradient(x: Tensor) -> None:
    weight = Tensor(TABLE, requires_grad=True)
    total, _ = scan(lambda c, row: (c * weight[row], None), Tensor.ones(2), Tensor([0, 2, 0]))
    total.sum().backward()
    assert total.tolist() == [5, 24]
    assert weight.grad is not None and weight.grad.tolist() == [[10, 24], [0, 0], [1, 4]]


def test_nan_in_a_step_of_a_loop() -> None:
    # Each time: the memory of the loop before, which is taken again, holds a NaN.
    for _ in range(4):
        with Context(CHECK=2):
            total, _ = scan(lambda c, y: (c + y.log(), None), Tensor(0.0), Tensor([1.0, -1.0]))
            with pytest.raises(NotANumberError, match="makes NaN"):
                total.realize()
