"""What programs written anew from PyTorch's tutorials met: each beside PyTorch itself."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours
from tests.torch.running import PROGRAMS, run

theirs = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])


@BOTH
def test_second_derivatives_are_checked(torch: Any) -> None:
    class Cube(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x.detach() ** 2

    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradgradcheck
    assert check(lambda v: v.exp() * v.sum(), (x,))
    assert torch.autograd.gradcheck(Cube.apply, (x,))
    # Its gradient is right, but not that of the gradient.
    assert not check(Cube.apply, (x,), raise_exception=False)


@BOTH
def test_a_module_has_state_beside_tensors(torch: Any) -> None:
    class Counted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    model, other = torch.nn.Sequential(Counted()), torch.nn.Sequential(Counted())
    model[0].count = 7
    held = io.BytesIO()
    torch.save(model.state_dict(), held)
    held.seek(0)
    state = torch.load(held)
    assert sorted(state) == ["0._extra_state", "0.scale"]
    other.load_state_dict(state)
    assert other[0].count == 7
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match=r"Missing key.*0\._extra_state"):
        other.load_state_dict(state)
    assert other.load_state_dict(state, strict=False).missing_keys == ["0._extra_state"]


@BOTH
def test_state_dict_hooks_by_their_older_names(torch: Any) -> None:
    layer = torch.nn.Linear(1, 1)

    def rename(state: Any, prefix: str, *rest: Any) -> None:
        state[prefix + "weight"] = state.pop(prefix + "w")

    layer._register_load_state_dict_pre_hook(rename)
    layer._register_state_dict_hook(lambda module, state, prefix, meta: state.pop(prefix + "bias"))
    model = torch.nn.Sequential(layer)
    assert list(model.state_dict()) == ["0.weight"]
    model.load_state_dict({"0.w": torch.ones(1, 1) * 4, "0.bias": torch.ones(1)})
    assert layer.weight.item() == 4


@BOTH
def test_a_parametrized_weight_that_is_left_is_a_parameter(torch: Any) -> None:
    layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(3, 3))
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, torch.nn.Parameter)
    assert len(list(layer.parameters())) == 2


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
def test_weights_that_stay_orthogonal_are_trained_as_in_pytorch(
    kind: str, shape: tuple[int, int]
) -> None:
    """The completion of a matrix that is not square is any, and the losses do not depend on it."""
    weight = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    found = []
    for torch in (theirs, ours):
        layer = torch.nn.Linear(shape[1], shape[0], bias=False)
        layer.weight.data = torch.from_numpy(weight)
        torch.nn.utils.parametrizations.orthogonal(layer, orthogonal_map=kind)
        (parameter,) = layer.parameters()
        assert parameter.tolist() == (-np.eye(*shape)).tolist()
        optimizer = torch.optim.SGD([parameter], lr=0.05)
        losses = []
        for _ in range(4):
            loss = (layer(torch.ones(2, shape[1])) - 1).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


def test_a_parameter_that_is_computed_first_leaves_what_waits_for_it() -> None:
    """Reading a value computes the parameters below it first, in a run of its own. That one let the
    value stand on memory, and its own result was lost ("tuple index out of range").
    """
    assert "gat " in run(PROGRAMS / "gnn_sparse.py", substitute=True)
