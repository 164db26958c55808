"""Values and dtypes that PyTorch states, where tilegrad's own differ."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tilegrad.base.errors import DTypeError
from tilegrad.torch import nn
from tilegrad.torch.nn.utils import parametrize


def test_an_integer_beside_bools_is_int64() -> None:
    mask = torch.tensor([True, False])
    for made in (mask * 1, mask + 1, mask.clamp(0, 1), mask & 1, torch.where(mask, 1, 0)):
        assert made.dtype == torch.int64
    assert (mask + 1).tolist() == [2, 1] and (mask * 2.5).dtype == torch.float32


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([np.float32(1), 2], "float32"),
        ([[np.float32(1)], [2.5]], "float32"),
        ([np.uint8(1), 1.5], "float32"),
        ([np.array([1, 2], np.float32), [3, 4]], "float32"),
        ([np.float16(1), np.int64(2)], "float16"),
        ([np.float64(1), 2.0], "float64"),
        ([np.int8(1), np.int32(2)], "int32"),
        ([2, np.int32(3)], "int64"),
    ],
    ids=str,
)
def test_scalars_of_numpy_meet_numbers_as_tensors_do(values: Any, dtype: str) -> None:
    """NumPy itself makes float64 of most of these."""
    for make in (torch.tensor, torch.as_tensor):
        made = make(values)
        assert made.dtype is getattr(torch, dtype)
        assert made.tolist() == np.array(values).tolist()


def test_what_is_filled_keeps_its_dtype() -> None:
    x, mask = torch.tensor([1, 2]), torch.tensor([True, False])
    assert repr(x.masked_fill(mask, 7.5)) == "tensor([7, 2])"
    assert (
        repr(torch.zeros(2, 2, dtype=torch.bool).fill_diagonal_(1)[0]) == "tensor([ True, False])"
    )


def test_elements_repeat_as_often_as_a_tensor_says() -> None:
    x = torch.tensor([[1, 2], [3, 4]])
    assert x.repeat_interleave(torch.tensor([1, 2]), dim=0).tolist() == [[1, 2], [3, 4], [3, 4]]
    assert torch.repeat_interleave(torch.tensor([2, 0, 1])).tolist() == [0, 0, 2]
    with pytest.raises(RuntimeError, match="3 counts for 2 elements"):
        x.repeat_interleave(torch.tensor([1, 2, 3]), dim=0)
    assert x.tile(2).tolist() == [[1, 2, 1, 2], [3, 4, 3, 4]]


def test_counts_and_pairs_are_those_of_pytorch() -> None:
    _, places, counts = torch.unique(
        torch.tensor([3, 1, 3]), return_inverse=True, return_counts=True
    )
    assert places.dtype == counts.dtype == torch.int64
    text = "torch.return_types.aminmax(\nmin=tensor(1.),\nmax=tensor(2.))"
    assert repr(torch.tensor([1.0, 2.0]).aminmax()) == text
    assert torch.ones(3).nbytes == 12 and torch.ones(2).to(float).dtype == torch.float64


def test_a_file_says_what_requires_a_gradient() -> None:
    held = io.BytesIO()
    saved = {"w": torch.ones(2, requires_grad=True), "p": nn.Parameter(torch.ones(1))}
    torch.save({**saved, "d": torch.ones(1)}, held)
    held.seek(0)
    found = torch.load(held)
    assert [each.requires_grad for each in found.values()] == [True, True, False]
    assert isinstance(found["p"], nn.Parameter) and not isinstance(found["w"], nn.Parameter)
    assert found["w"].is_leaf


def test_eigenvalues_of_any_matrix_are_numpys() -> None:
    a = np.random.default_rng(1).normal(size=(4, 4))
    values, vectors = torch.linalg.eig(torch.tensor(a))
    assert values.dtype == torch.complex128
    assert np.allclose(a @ vectors.numpy(), vectors.numpy() * values.numpy())


def test_a_scaler_leaves_out_a_step_that_would_be_infinite() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((weight * 0.5).sum()).backward()
    assert weight.grad is not None and weight.grad.tolist() == [4.0, 4.0]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5] and scaler.get_scale() == 8.0
    weight.grad = torch.tensor([float("inf"), 0.0])
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5] and scaler.get_scale() == 4.0


def test_a_state_dict_that_does_not_fit_is_refused_in_the_words_of_pytorch() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError) as missing:
        layer.load_state_dict({"weight": torch.ones(2, 2), "extra": torch.ones(1)})
    assert str(missing.value) == (
        "Error(s) in loading state_dict for Linear:\n"
        '\tMissing key(s) in state_dict: "bias". \n'
        '\tUnexpected key(s) in state_dict: "extra". '
    )
    with pytest.raises(RuntimeError, match="size mismatch for weight: copying a param with shape"):
        layer.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.ones(2)})


def test_a_module_without_forward_is_not_implemented() -> None:
    with pytest.raises(NotImplementedError):
        nn.Module()(1)


def test_to_assign_to_a_parametrized_weight_trains_what_makes_it() -> None:
    class Double(nn.Module):
        def forward(self, value: Any) -> Any:
            return value * 2

        def right_inverse(self, value: Any) -> Any:
            return value / 2

    layer = nn.Linear(1, 1)
    parametrize.register_parametrization(layer, "weight", Double())
    layer.weight = torch.tensor([[6.0]])
    assert layer.weight.tolist() == [[6.0]]
    assert layer.parametrizations.weight.original.tolist() == [[3.0]]


def test_packed_sequences_pass_through_a_layer_as_tensors_of_this_package() -> None:
    rows = [torch.ones(3, 2), torch.ones(1, 2)]
    packed = nn.utils.rnn.pack_sequence(rows)
    assert packed.batch_sizes.tolist() == [2, 1, 1] and packed.batch_sizes.dtype == torch.int64
    out, (hidden, _) = nn.LSTM(2, 4)(packed)
    assert isinstance(out.data, torch.Tensor) and isinstance(hidden, torch.Tensor)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int32", 2**31), ("int8", -129), ("uint8", 256), ("int16", 1e9), ("int32", float("nan"))],
)
def test_a_number_that_does_not_fit_fills_nothing(dtype: str, value: float) -> None:
    x = torch.zeros(2, dtype=getattr(torch, dtype))
    for fill in (x.masked_fill, x.masked_fill_):
        with pytest.raises(DTypeError, match=rf"does not fit {dtype}"):
            fill(torch.tensor([True, False]), value)
    with pytest.raises(DTypeError, match=f"index_fill: .* does not fit {dtype}"):
        x.index_fill(0, torch.tensor([0]), value)
    assert x.tolist() == [0, 0]


def test_negative_numbers_wrap_in_bytes() -> None:
    bytes_ = torch.zeros(2, dtype=torch.uint8)
    assert bytes_.masked_fill(torch.tensor([True, False]), -255).tolist() == [1, 0]


def test_limits_of_no_axes_give_way() -> None:
    """PyTorch's promotion: a limit without axes is of the dtype of what it limits."""
    half, limit = torch.tensor([1.0, 3.0]).half(), torch.tensor(2.0, dtype=torch.float64)
    for limited in (half.clamp(limit), half.clamp(max=limit), torch.clip(half, limit, limit)):
        assert limited.dtype == torch.float16
    assert half.clamp(limit.expand(1)).dtype == torch.float64
    assert torch.tensor([1, 3]).clamp(limit).dtype == torch.float64


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_powers_of_two_are_of_the_dtype_of_both(dtype: str) -> None:
    exponent = torch.tensor([1, 3]).to(getattr(torch, dtype))
    found = torch.ldexp(torch.tensor([True, False]), exponent)
    assert found.dtype == exponent.dtype and found.tolist() == [2.0, 0.0]


def test_a_tensor_of_no_axes_that_fills_takes_the_dtype() -> None:
    mask = torch.tensor([True, False])
    half = torch.zeros(2, dtype=torch.float16).masked_fill(mask, torch.tensor(2.5))
    assert half.dtype == torch.float16 and half.tolist() == [2.5, 0.0]
    truth = torch.zeros(2, dtype=torch.bool).masked_fill(mask, value=torch.tensor(3))
    assert truth.dtype == torch.bool and truth.tolist() == [True, False]
    assert torch.zeros(2).masked_fill_(mask, torch.tensor(3)).tolist() == [3.0, 0.0]


def test_whole_powers_of_bools_are_int64() -> None:
    assert (torch.tensor([True, False]) ** 3).dtype == torch.int64


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_different_slices_along_an_axis(dim: int) -> None:
    array = np.array([[1, 0, 1, 2], [2, 0, 2, 1], [1, 0, 1, 2]])
    found = torch.unique(torch.tensor(array), dim=dim, return_inverse=True, return_counts=True)
    expected = np.unique(array, axis=dim, return_inverse=True, return_counts=True)
    assert [each.tolist() for each in found] == [each.squeeze().tolist() for each in expected]
    assert torch.unique(torch.tensor(array), dim=dim).tolist() == expected[0].tolist()


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.pt"):
        torch.load(tmp_path / "absent.pt")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_of_a_histogram_have_the_dtype_of_its_values(dtype: Any) -> None:
    counts, edges = torch.histogram(torch.tensor([1.0, 2.0, 1.5, 4.0], dtype=dtype), bins=3)
    assert counts.dtype is edges.dtype is dtype
    assert counts.tolist() == [2.0, 1.0, 1.0]


def test_a_loss_of_words_one_by_one_has_one_count_of_targets() -> None:
    """The targets in reverse: the number of those that count is the same for every row, also where
    a row's target picks the element that its gradient goes to.
    """
    logits = np.random.default_rng(0).standard_normal((8, 5, 20)).astype(np.float32)
    targets = np.arange(40).reshape(8, 5) * 7 % 20
    targets[2, 3] = -100
    words = [torch.tensor(logits[:, i : i + 1], requires_grad=True) for i in range(5)]
    scores = F.log_softmax(torch.cat(words, 1), -1)
    F.nll_loss(scores.view(-1, 20), torch.tensor(targets).flip(1).reshape(-1)).backward()
    ids = targets[:, ::-1].reshape(-1)
    rows = np.exp(logits.reshape(40, 20).astype(np.float64))
    counted = (ids != -100)[:, None]
    wanted = (rows / rows.sum(1, keepdims=True) - np.eye(20)[np.maximum(ids, 0)]) * counted
    found = np.concatenate([word.grad.numpy() for word in words], 1).reshape(40, 20)
    np.testing.assert_allclose(found, wanted / counted.sum(), atol=1e-6)
