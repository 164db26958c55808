"""What programs of many kinds met: each beside PyTorch itself."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])
pytestmark = pytest.mark.filterwarnings("ignore")


@BOTH
def test_bytes_as_an_index_are_a_mask(torch: Any) -> None:
    x = torch.arange(6.0).view(2, 3)
    rows = torch.tensor([1, 0], dtype=torch.uint8)
    mask = torch.tensor([[1, 0, 1], [0, 0, 1]], dtype=torch.uint8)
    assert x[rows].tolist() == [[0.0, 1.0, 2.0]]
    assert x[mask].tolist() == [0.0, 2.0, 5.0]
    assert x[:, mask[0]].tolist() == [[0.0, 2.0], [3.0, 5.0]]
    assert x[torch.tensor(1, dtype=torch.uint8)].shape == (1, 2, 3)
    values = torch.tensor([7.0, 8.0, 9.0])
    expected = [[7.0, 1.0, 8.0], [3.0, 4.0, 9.0]]
    assert x.index_put((mask,), values).tolist() == expected
    x[mask] = values
    assert x.tolist() == expected


@BOTH
def test_adam_decouples_its_decay_where_asked(torch: Any) -> None:
    found = []
    for make, options in (("Adam", {"decoupled_weight_decay": True}), ("AdamW", {})):
        w = torch.tensor([2.0, -1.0], requires_grad=True)
        optimizer = getattr(torch.optim, make)([w], lr=0.1, weight_decay=0.5, **options)
        for _ in range(4):
            optimizer.zero_grad()
            w.square().sum().backward()
            optimizer.step()
        assert optimizer.state_dict()["param_groups"][0]["decoupled_weight_decay"] is True
        found.append(w.tolist())
    assert found[0] == found[1]
    # In step t with decay d: p (1 - lr d) - lr * (about the sign of the gradient).
    np.testing.assert_allclose(found[0][0], 1.3, atol=0.05)


@BOTH
def test_groups_hold_how_a_program_asked_for_steps(torch: Any) -> None:
    w = torch.nn.Parameter(torch.ones(2))
    assert torch.optim.SGD([w], lr=0.1, foreach=False).param_groups[0]["foreach"] is False
    group = torch.optim.AdamW([w], fused=True).state_dict()["param_groups"][0]
    assert group["fused"] is True and group["foreach"] is None


@BOTH
def test_linear_of_one_output_without_an_axis(torch: Any) -> None:
    linear = torch.nn.functional.linear
    assert linear(torch.ones(2, 3), torch.tensor([1.0, 2.0, 3.0])).tolist() == [6.0, 6.0]
    assert linear(torch.ones(3), torch.ones(3)).shape == ()
    assert linear(torch.ones(2, 2, 3), torch.ones(3)).shape == (2, 2)
    with pytest.raises(RuntimeError):
        linear(torch.ones(3), torch.ones(2))


@BOTH
@pytest.mark.parametrize("lengths", [([5], [1]), ([2], [4])])
def test_ctc_lengths_that_do_not_fit(torch: Any, lengths: tuple[list[int], list[int]]) -> None:
    given = [torch.tensor(each) for each in lengths]
    with pytest.raises(RuntimeError):
        torch.nn.functional.ctc_loss(torch.zeros(2, 1, 3), torch.tensor([[1]]), *given)


@BOTH
def test_nothing_goes_through_statistics(torch: Any) -> None:
    nothing = torch.zeros(0)
    assert [each.shape for each in torch.zeros(0, 3).chunk(2)] == [(0, 3), (0, 3)]
    assert np.isnan(nothing.median().item()) and np.isnan(nothing.nanmedian().item())
    assert nothing.histc(3).tolist() == [0.0, 0.0, 0.0]
    assert torch.trapezoid(nothing).item() == 0.0
    assert torch.trapezoid(torch.zeros(2, 0), torch.zeros(0)).tolist() == [0.0, 0.0]
    assert torch.cumulative_trapezoid(nothing).shape == (0,)
    assert torch.cumulative_trapezoid(torch.zeros(2, 1)).shape == (2, 0)


@BOTH
def test_no_index_is_wider_than_a_tensor(torch: Any) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    none = torch.zeros(5, 0, dtype=torch.int64)
    found = x.gather(1, none)
    assert found.shape == (5, 0)
    found.sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2
    ones = torch.ones(2, 3)
    assert ones.scatter(0, none.T, 9.0).tolist() == ones.tolist()
    assert ones.scatter_add(0, none.T, torch.ones(0, 5)).tolist() == ones.tolist()
    with pytest.raises(RuntimeError):
        ones.gather(1, torch.zeros(5, 1, dtype=torch.int64))


@BOTH
@pytest.mark.parametrize("periodic", [True, False])
def test_windows_have_the_digits_of_their_dtype(torch: Any, periodic: bool) -> None:
    t = np.arange(9) / (9 if periodic else 8)
    turns = 2 * np.pi * t
    expected = {
        "hann": 0.5 - 0.5 * np.cos(turns),
        "hamming": 0.54 - 0.46 * np.cos(turns),
        "blackman": 0.42 - 0.5 * np.cos(turns) + 0.08 * np.cos(2 * turns),
        "bartlett": 1 - np.abs(2 * t - 1),
        "kaiser": np.i0(12 * np.sqrt(1 - (2 * t - 1) ** 2)) / np.i0(12),
    }
    for name, values in expected.items():
        make = getattr(torch, f"{name}_window")
        found = make(9, periodic, dtype=torch.float64).numpy()
        np.testing.assert_allclose(found, values, rtol=1e-12, atol=1e-15)
        assert make(9, dtype=torch.float16).dtype == torch.float16


@BOTH
def test_slices_of_one_number(torch: Any) -> None:
    x = torch.tensor(2.0, requires_grad=True)
    slices = x.unfold(0, 1, 1)
    assert slices.tolist() == [2.0] and x.unfold(-1, 1, 3).shape == (1,)
    slices.sum().backward()
    assert x.grad.item() == 1.0
    with pytest.raises(RuntimeError):
        x.unfold(0, 2, 1)


@BOTH
def test_bools_are_shifted_as_integers(torch: Any) -> None:
    x = torch.tensor([True, False])
    for found, expected in ((x << 1, [2, 0]), (x >> 1, [0, 0]), (x << 40, [1 << 40, 0])):
        assert found.dtype == torch.int64 and found.tolist() == expected
    assert (1 << x).tolist() == [2, 1]
    bytes_ = torch.tensor([3], dtype=torch.uint8) << x[:1]
    assert bytes_.dtype == torch.uint8 and bytes_.tolist() == [6]
    with pytest.raises(RuntimeError):
        x << x


class Counting:
    """State beside tensors, for a module of either library."""

    def get_extra_state(self) -> Any:
        return {"steps": 3}

    def set_extra_state(self, state: Any) -> None:
        self.taken = state


@BOTH
def test_state_beside_tensors_stands_behind_those_of_its_module(torch: Any) -> None:
    class Empty(Counting, torch.nn.Module):  # type: ignore[misc]
        pass

    class Outer(Counting, torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Sequential(torch.nn.Identity(), Empty())
            self.layer = torch.nn.Linear(1, 1, bias=False)
            self.own = torch.nn.Parameter(torch.ones(1))
            self.last = Empty()

    model = torch.nn.Sequential(Outer(), torch.nn.Linear(1, 1, bias=False), Empty())
    names = [
        "0.own", "0._extra_state", "0.first.1._extra_state", "0.layer.weight",
        "0.last._extra_state", "1.weight", "2._extra_state",
    ]  # fmt: skip
    assert list(model.state_dict()) == names
    assert list(model.state_dict(prefix="m.")) == [f"m.{name}" for name in names]
    model.load_state_dict(model.state_dict())
    assert model[0].last.taken == {"steps": 3}
    text = 'While copying the parameter named "0.own", expected torch.Tensor or Tensor-like object'
    with pytest.raises(RuntimeError, match=text):
        model.load_state_dict({**model.state_dict(), "0.own": 3})


@BOTH
def test_sparse_tensors_print_their_members_in_columns(torch: Any) -> None:
    x = torch.tensor([[0.0, 1.5, 0.0], [0.0, 0.0, 2.0]])
    assert repr(x.to_sparse()) == (
        "tensor(indices=tensor([[0, 1],\n"
        "                       [1, 2]]),\n"
        "       values=tensor([1.5000, 2.0000]),\n"
        "       size=(2, 3), nnz=2, layout=torch.sparse_coo)"
    )
    assert repr(x.double().to_sparse()).endswith(
        "size=(2, 3), nnz=2, dtype=torch.float64, layout=torch.sparse_coo)"
    )
    assert repr(torch.zeros(2, 2).to_sparse_csr()) == (
        "tensor(crow_indices=tensor([0, 0, 0]),\n"
        "       col_indices=tensor([], size=(0,)),\n"
        "       values=tensor([], size=(0,)), size=(2, 2), nnz=0,\n"
        "       layout=torch.sparse_csr)"
    )


@BOTH
def test_a_size_alone_makes_an_empty_sparse_tensor(torch: Any) -> None:
    for x in (torch.sparse_coo_tensor(size=(2, 3)), torch.sparse_coo_tensor((2, 3))):
        assert x.shape == (2, 3) and x._nnz() == 0 and x.dtype == torch.float32
        assert x.to_dense().tolist() == [[0.0] * 3] * 2
    wide = torch.sparse_coo_tensor(size=(2, 3), dtype=torch.float64)
    assert wide.dtype == torch.float64


@BOTH
@pytest.mark.parametrize("name", ["cpu", "cuda:1"])
def test_devices_in_files_are_devices(torch: Any, name: str) -> None:
    file = io.BytesIO()
    torch.save({"device": torch.device(name), "name": name}, file)
    for library in (theirs, ours):
        file.seek(0)
        found = library.load(file)
        assert found["device"].type == name.partition(":")[0]
        assert str(found["device"]) == name and type(found["name"]) is str


@BOTH
def test_zeros_print_without_powers_of_ten(torch: Any) -> None:
    torch.set_printoptions(sci_mode=True)
    try:
        assert repr(torch.tensor([-0.0, float("inf")])) == "tensor([-0., inf])"
        assert repr(torch.tensor([0.0, 1.0])) == "tensor([0.0000e+00, 1.0000e+00])"
    finally:
        torch.set_printoptions(profile="default")


@BOTH
def test_linearize(torch: Any) -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    value, along = torch.func.linearize(lambda a, b: a * a * b, x, y)
    assert value.tolist() == [3.0, 16.0]
    ones, zeros = torch.ones(2), torch.zeros(2)
    assert along(ones, zeros).tolist() == [6.0, 16.0]
    assert along(zeros, ones).tolist() == [1.0, 4.0]
