"""Hooks of modules; forward of layers and of their subclasses; parts by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, TinyJit, nn
from tilegrad.base.errors import ConfigError, DataError


class Double(nn.Module):
    def forward(self, x: Tensor, shift: float = 0.0) -> Tensor:
        return x * 2 + shift


class Scaled(nn.Identity):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 3


class Called(nn.Identity):
    def __call__(self, x: Any) -> Any:
        return super().__call__(x) * 5


ONE = Tensor([1.0])


@pytest.mark.parametrize(
    ("module", "factor"), [(Double(), 2), (Scaled(), 3), (Called(), 5), (nn.Identity(), 1)]
)
def test_hooks_run_once_around_a_call(module: nn.Module, factor: int) -> None:
    """Whether a class says `forward` or `__call__`, and whatever its base says."""
    seen: list[str] = []
    before = module.register_forward_pre_hook(lambda m, args: seen.append("before"))
    after = module.register_forward_hook(lambda m, args, output: seen.append("after"))
    assert module(ONE).tolist() == [factor]
    assert seen == ["before", "after"]
    assert module.forward(ONE).tolist() == [factor]
    before.remove()
    after.remove()
    after.remove()
    module(ONE)
    assert len(seen) == 2


def test_hooks_change_arguments_and_output_in_order() -> None:
    module = Double()
    module.register_forward_pre_hook(lambda m, args: args[0] + 1)
    module.register_forward_pre_hook(lambda m, args: (args[0] * 10,), prepend=True)
    module.register_forward_hook(lambda m, args, y: y - args[0])
    assert module(ONE).tolist() == [11.0]
    module.register_forward_pre_hook(
        lambda m, args, options: (args, {"shift": 7}), with_kwargs=True
    )
    module.register_forward_hook(lambda m, args, options, y: y * options["shift"], with_kwargs=True)
    assert module(ONE).tolist() == [(22 + 7 - 11) * 7]


def test_a_layer_deep_in_a_model_is_looked_at() -> None:
    """The gradient with respect to what a hook kept is asked for by name."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    kept: dict[str, Tensor] = {}
    for name, layer in model.named_modules():
        layer.register_forward_hook(lambda m, args, y, name=name: kept.update({name: y}))
    loss = model(Tensor.ones(1, 2)).sum()
    assert list(kept) == ["0", "1", "2", ""]
    (found,) = loss.gradient(kept["1"])
    assert found.tolist() == model[2].weight.tolist()


def test_hooks_of_a_captured_call() -> None:
    module = Double()
    module.register_forward_hook(lambda m, args, y: y + 1)
    step = TinyJit(lambda x: module(x).realize())
    assert [step(Tensor([float(i)]).realize()).item() for i in range(4)] == [1.0, 3.0, 5.0, 7.0]


def test_parts_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm(3)))
    assert model.get_submodule("1.0") is model[1][0] and model.get_submodule("") is model
    assert model.get_parameter("0.bias") is model[0].bias
    assert model.get_buffer("1.0.running_mean").shape == (3,)
    assert [name for name, _ in model[0].named_parameters(recurse=False)] == ["weight", "bias"]
    assert list(model.parameters(recurse=False)) == list(model.buffers(recurse=False)) == []
    with pytest.raises(ConfigError, match=r"Sequential: there is no parameter '0\.b'"):
        model.get_parameter("0.b")
    with pytest.raises(ConfigError, match="there is no module '2'"):
        model.get_submodule("2")


def test_a_module_without_forward() -> None:
    with pytest.raises(ConfigError, match="Module: there is no forward to call"):
        nn.Module()(ONE)


def test_gradients_become_zeros_if_wanted() -> None:
    layer = nn.Linear(1, 1)
    layer(Tensor([[1.0]])).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[0.0]]
    layer.zero_grad()
    assert layer.weight.grad is None
    assert layer.to(Tensor([1.0], dtype="float64")).double().weight.dtype.name == "float64"


def test_hooks_of_state_dicts() -> None:
    """Of modules below too, each with the beginning of its names; a file may have older names."""
    inner, seen = nn.Linear(2, 3), []
    model = nn.Sequential(nn.ReLU(), inner)
    inner.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(prefix))
    inner.register_state_dict_post_hook(
        lambda module, state, prefix, metadata: state.update({f"{prefix}extra": inner.bias})
    )
    state = model.state_dict()
    assert (seen, list(state)) == (["1."], ["1.weight", "1.bias", "1.extra"])

    def rename(module: Any, state: Any, prefix: str, *rest: Any) -> None:
        state[f"{prefix}weight"] = state.pop(f"{prefix}kernel")

    first = inner.register_load_state_dict_pre_hook(rename)
    inner.register_load_state_dict_post_hook(lambda module, found: seen.append(found.missing_keys))
    old = {"1.kernel": np.ones((3, 2), np.float32), "1.bias": np.zeros(3, np.float32)}
    found = model.load_state_dict(old)
    assert (found.missing_keys, found.unexpected_keys, seen[-1]) == ([], [], [])
    assert "1.kernel" in old
    assert inner.weight.tolist() == [[1.0, 1.0]] * 3
    first.remove()
    with pytest.raises(DataError, match="1 names are missing, 1 are unexpected"):
        model.load_state_dict(old)
