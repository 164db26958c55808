"""What users give, and new tensors: dtypes, shapes, constants without memory, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import GlobalCounters, Tensor, Variable, dtypes
from tilegrad.base.errors import DeviceError, DTypeError, IndexBoundsError, ShapeError
from tilegrad.ir import Ops

INPUTS: list[tuple[Any, str, tuple[int, ...], Any]] = [
    ([True, False], "bool", (2,), [True, False]),
    ([1, 2, 3], "int32", (3,), [1, 2, 3]),
    ([1, True], "int32", (2,), [1, 1]),
    ([1, 2.5], "float32", (2,), [1, 2.5]),
    ([[1, 2], [3, 4]], "int32", (2, 2), [[1, 2], [3, 4]]),
    ([], "float32", (0,), []),
    ([[], []], "float32", (2, 0), [[], []]),
    (((1, 2), (3, 4)), "int32", (2, 2), [[1, 2], [3, 4]]),
    (range(3), "int32", (3,), [0, 1, 2]),
    (b"\x01\xff", "uint8", (2,), [1, 255]),
    (bytearray(b"\x02"), "uint8", (1,), [2]),
    (None, "float32", (0,), []),
    (3, "int32", (), 3),
    (3.5, "float32", (), 3.5),
    (True, "bool", (), True),
    (np.float64(2.5), "float64", (), 2.5),
    (np.array(4, np.int16), "int16", (), 4),
    ([np.float32(1.5), np.float32(2)], "float32", (2,), [1.5, 2]),
    ([np.arange(2), np.arange(2)], "int64", (2, 2), [[0, 1], [0, 1]]),
]


@pytest.mark.row("X.1")
@pytest.mark.parametrize(
    ("data", "dtype", "shape", "values"), INPUTS, ids=lambda part: repr(part)[:24]
)
def test_input_rules(data: Any, dtype: str, shape: tuple[int, ...], values: Any) -> None:
    tensor = Tensor(data)
    assert tensor.dtype.name == dtype
    assert tensor.shape == shape
    assert tensor.tolist() == values


@pytest.mark.row("X.1")
@pytest.mark.parametrize("data", [3, 2.5, True, np.float64(2.5), np.array(7)])
def test_numbers_are_constants_without_memory(data: Any) -> None:
    assert Tensor(data).uop.op is Ops.CONST


@pytest.mark.row("X.1")
def test_bfloat16_lists_go_through_float32() -> None:
    tensor = Tensor([1.0, 1.00390625, 3.14159, -2.5], dtype=dtypes.bfloat16)
    assert tensor.tolist() == [1.0, 1.0, 3.140625, -2.5]
    assert tensor.numpy().dtype == np.float32


FOREIGN = (dtypes.bfloat16, *dtypes.fp8s)


@pytest.mark.row("R8.1")
@pytest.mark.parametrize("dtype", [d.name for d in dtypes.all if d not in FOREIGN])
def test_arrays_of_every_dtype_come_back_the_same(dtype: str) -> None:
    array = (
        (np.arange(12).reshape(3, 4) % 2).astype(dtype)
        if dtype == "bool"
        else np.arange(12).reshape(3, 4).astype(dtype)
    )
    for layout in (array, array.T, array[::-1, ::2], np.asfortranarray(array)):
        found = Tensor(layout).numpy()
        assert found.dtype == layout.dtype
        np.testing.assert_array_equal(found, layout)
    np.testing.assert_array_equal(
        Tensor(array.astype(array.dtype.newbyteorder(">"))).numpy(), array
    )
    assert Tensor(array).tolist() == array.tolist()


@pytest.mark.row("R8.1")
def test_data_is_a_flat_view_of_bytes_underneath() -> None:
    view = Tensor(np.arange(4, dtype=np.int64)).data()
    assert view.format in ("l", "q")
    assert view.cast("B").nbytes == 32
    assert Tensor([[1, 2], [3, 4]]).data().shape == (2, 2)


def test_what_changes_later_does_not_change_the_tensor() -> None:
    array = np.zeros(3, np.float32)
    tensor = Tensor(array)
    array[:] = 7
    assert tensor.tolist() == [0, 0, 0]


def test_tensors_in_lists_are_stacked() -> None:
    assert Tensor([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert Tensor(Tensor([1, 2]), dtype=dtypes.float32).tolist() == [1.0, 2.0]


def test_lists_in_a_dtype_of_choice() -> None:
    assert Tensor([1.7, -1.7], dtype=dtypes.int32).tolist() == [1, -1]
    assert Tensor([1, 0], dtype="bool").tolist() == [True, False]
    assert Tensor([70000.0], dtype=dtypes.float16).tolist() == [math.inf]
    assert Tensor(b"\x00\x00\x80\x3f", dtype=dtypes.float32).tolist() == [1.0]


def test_ragged_and_foreign_input_raises() -> None:
    with pytest.raises(ShapeError, match="a ragged list: 2 and 1 elements side by side") as error:
        Tensor([[1, 2], [3]])
    assert "data[1]" in str(error.value)
    assert "test_creation.py" in str(error.value)
    with pytest.raises(ShapeError, match="a number and a list side by side"):
        Tensor([1, [2]])
    with pytest.raises(DTypeError, match="a list holds a str"):
        Tensor(["a"])
    with pytest.raises(DTypeError, match="cannot make a tensor of a dict"):
        Tensor({})
    with pytest.raises(DTypeError, match="no dtype for an array of complex64"):
        Tensor(np.zeros(2, np.complex64))
    with pytest.raises(DTypeError, match="1099511627776 does not fit int32"):
        Tensor([2**40])
    with pytest.raises(DTypeError, match="-1 does not fit uint8"):
        Tensor([-1], dtype=dtypes.uint8)
    with pytest.raises(DTypeError, match="no dtype is called 'float33'"):
        Tensor([1], dtype="float33")
    with pytest.raises(DTypeError, match="a tensor cannot have dtype"):
        Tensor([1], dtype=dtypes.index)
    with pytest.raises(DeviceError, match="device: 'NOSUCH' is unknown"):
        Tensor([1], device="NOSUCH")
    with pytest.raises(ShapeError, match="3 bytes are no whole number of float32"):
        Tensor(b"abc", dtype=dtypes.float32)


def test_filled_tensors() -> None:
    close(Tensor.zeros(2, 3), np.zeros((2, 3), np.float32))
    close(Tensor.ones((2, 3), dtype=dtypes.int), np.ones((2, 3), np.int32))
    close(Tensor.full((2,), 7), np.full(2, 7, np.int32))
    close(Tensor.full(3, 1.5, dtype=dtypes.float16), np.full(3, 1.5, np.float16))
    close(Tensor.full((2, 2), True), np.full((2, 2), True))
    assert Tensor.zeros().shape == ()
    x = Tensor(numbers(2, 3)).half()
    assert (x.zeros_like().dtype, x.ones_like().shape) == (dtypes.float16, (2, 3))
    close(x.full_like(3), np.full((2, 3), 3, np.float16))
    assert x.empty_like().shape == (2, 3)
    assert Tensor.zeros(2, device="CPU:1").device == "CPU:1"


@pytest.mark.row("R3.4", "R3.5")
@pytest.mark.parametrize(
    "args",
    [
        (15,),
        (5, 50, 3),
        (50, 5, -3),
        (0,),
        (5, 5),
        (3, 4),
        (0.0, 1.0, 0.25),
        (1, 2, 0.3),
        (5, 0.5, -1),
        (-3, 3),
    ],
)
def test_arange(args: tuple[Any, ...]) -> None:
    expected = np.arange(*args)
    close(
        Tensor.arange(*args),
        expected.astype(np.int32 if expected.dtype.kind == "i" else np.float32),
    )


@pytest.mark.row("R3.5")
def test_arange_is_ones_padded_pooled_and_summed() -> None:
    ops = {node.op for node in Tensor.arange(15).uop.toposort()}
    assert {Ops.PAD, Ops.REDUCE_AXIS, Ops.SHRINK, Ops.EXPAND} <= ops
    assert Ops.BUFFER not in ops


def test_counting_in_other_dtypes() -> None:
    close(Tensor.arange(3, dtype=dtypes.float64), np.arange(3, dtype=np.float64))
    close(Tensor.arange(2**40, 2**40 + 3), np.arange(2**40, 2**40 + 3))
    close(Tensor.linspace(0, 1, 7), np.linspace(0, 1, 7, dtype=np.float32))
    close(Tensor.linspace(-3, 5, 2), np.float32([-3, 5]))
    close(Tensor.linspace(2, 5, 1), np.float32([2]))
    assert Tensor.linspace(0, 0.3, 11).tolist()[-1] == np.float32(0.3)


@pytest.mark.parametrize(("n", "m"), [(3, None), (2, 4), (4, 2), (0, 0)])
def test_eye(n: int, m: int | None) -> None:
    close(Tensor.eye(n, m), np.eye(n, m, dtype=np.float32))


def test_identity_matrices_are_apart() -> None:
    """The graph of equal ones is shared, a write to one is not."""
    first, second = Tensor.eye(3).realize(), Tensor.eye(3)
    first += 1
    close(first, np.eye(3, dtype=np.float32) + 1)
    close(second, np.eye(3, dtype=np.float32))
    leaf = Tensor.eye(3, requires_grad=True)
    (leaf * 2).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [[2.0] * 3] * 3
    assert Tensor.eye(3).requires_grad in (None, False)


def test_meshgrid() -> None:
    a, b = np.arange(3), np.arange(2, dtype=np.float32)
    for indexing in ("ij", "xy"):
        for ours, theirs in zip(
            Tensor.meshgrid(Tensor(a), Tensor(b), indexing=indexing),
            np.meshgrid(a, b, indexing=indexing),
        ):
            close(ours, theirs)


def test_sizes_that_do_not_fit_raise() -> None:
    with pytest.raises(ShapeError, match="full: size -1 is negative"):
        Tensor.zeros(2, -1)
    with pytest.raises(ShapeError, match="empty: size -3 is negative"):
        Tensor.empty(-3)
    with pytest.raises(DTypeError, match=r"full: a size must be an integer, not 2\.5"):
        Tensor.ones(2.5)
    with pytest.raises(ShapeError, match="arange: step is 0"):
        Tensor.arange(0, 3, 0)
    with pytest.raises(IndexBoundsError, match="sum: axis 2 is out of range for 2 axes"):
        Tensor.zeros(2, 3).sum(2)
    with pytest.raises(ShapeError, match="sum: an axis is named twice"):
        Tensor.zeros(2, 3).sum((0, -2))
    with pytest.raises(ShapeError, match="max: there is no element to choose from"):
        Tensor.zeros(0).max()


def test_what_a_tensor_says_of_itself() -> None:
    x = Tensor(numbers(2, 3))
    assert (x.ndim, x.dim(), x.numel(), x.nbytes(), x.element_size()) == (2, 2, 6, 24, 4)
    assert (x.size(), x.size(1), len(x), x.is_floating_point()) == ((2, 3), 3, 2, True)
    assert x.device == "CPU"
    assert Tensor([1]).is_floating_point() is False


def test_python_protocols_read_one_value() -> None:
    x = Tensor([[2.5]])
    assert (float(x), int(x), bool(x), x.item()) == (2.5, 2, True, 2.5)
    assert [10, 20, 30][Tensor([1])] == 20
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    np.testing.assert_array_equal(np.asarray(Tensor([1, 2])), [1, 2])
    assert np.asarray(Tensor([1, 2]), np.float64).dtype == np.float64
    with pytest.raises(ShapeError, match=r"item: one element is needed, the shape is \(2,\)"):
        Tensor([1, 2]).item()
    with pytest.raises(TypeError, match=r"len: a tensor without axes"):
        len(Tensor(1))
    with pytest.raises(TypeError, match="iter: a tensor without axes"):
        list(Tensor(1))
    with pytest.raises(DTypeError, match="index: an integer is needed, not float32"):
        [1, 2][Tensor([1.0])]


@pytest.mark.row("S1.2", "S1.1")
def test_printing_says_what_is_pending_and_runs_nothing() -> None:
    before = GlobalCounters.kernel_count
    a, b = Tensor.empty(4, 4), Tensor.empty(4, 4)
    text = repr(a + b)
    number = Ops.ADD.serial
    assert (
        text == f"<Tensor <UOp CPU (4, 4) float (<Ops.ADD: {number}>, None)> on CPU with grad None>"
    )
    assert GlobalCounters.kernel_count == before


@pytest.mark.row("B1.5")
def test_a_variable_is_a_number() -> None:
    length = Variable("length", 4, 8).bind(6)
    assert Tensor(length).item() == 6
    assert (Tensor([3.0, 12.0]) / length).tolist() == [0.5, 2.0]
    assert (Tensor([1, 2]) * length).dtype is dtypes.int32


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    with pytest.raises(ShapeError, match="contains itself"):
        Tensor(loop)
