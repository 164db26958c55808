"""What programs hold on to between runs or print of it: streams of random numbers, options of
optimizers, distributions.
"""

from __future__ import annotations

import argparse
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError
from tilegrad.ir import Ops, UOp
from tilegrad.ir.queries import device_of
from tilegrad.torch import distributions as D
from tilegrad.torch import nn

t = torch.tensor


def test_a_stream_goes_on_from_a_state_in_a_file() -> None:
    torch.manual_seed(5)
    file = io.BytesIO()
    torch.save({"rng": torch.get_rng_state()}, file)
    expected = torch.rand(3).tolist()
    file.seek(0)
    state = torch.load(file, weights_only=True)["rng"]
    assert state.dtype == torch.uint8
    torch.set_rng_state(state.cpu().byte())
    assert torch.rand(3).tolist() == expected


def test_a_generator_goes_on_from_its_state() -> None:
    generator = torch.Generator().manual_seed(2)
    state, first = generator.get_state(), torch.rand(2, generator=generator).tolist()
    assert torch.rand(2, generator=generator.set_state(state)).tolist() == first
    with pytest.raises(TypeError, match="ByteTensor"):
        generator.set_state((1, 2))
    with pytest.raises(RuntimeError, match="wrong size"):
        torch.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_manual_seed_gives_the_generator_of_all_draws() -> None:
    generator = torch.manual_seed(7)
    assert generator is torch.default_generator and generator.initial_seed() == 7
    drawn = torch.rand(2, generator=generator).tolist()
    torch.manual_seed(7)
    assert torch.rand(2).tolist() == drawn


# By PyTorch 2.13.
OPTIONS = {
    "SGD": "params lr momentum dampening weight_decay nesterov maximize foreach differentiable "
    "fused",
    "AdamW": "params lr betas eps weight_decay amsgrad maximize foreach capturable differentiable "
    "fused decoupled_weight_decay",
    "RMSprop": "params lr momentum alpha eps centered weight_decay capturable foreach maximize "
    "differentiable",
    "LBFGS": "params lr max_iter max_eval tolerance_grad tolerance_change history_size "
    "line_search_fn",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_group_are_in_pytorchs_order(name: str) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = getattr(torch.optim, name)([parameter])
    optimizer.param_groups[0]["mine"] = 1
    assert list(optimizer.param_groups[0]) == [*OPTIONS[name].split(), "mine"]
    (group,) = optimizer.state_dict()["param_groups"]
    assert list(group) == [*OPTIONS[name].split()[1:], "mine", "params"]
    assert group["params"] == [0]


def test_groups_of_a_programs_own_optimizer_have_its_options_alone() -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1, mom: float = 0.9) -> None:
            super().__init__(params, {"lr": lr, "mom": mom})

    optimizer = Plain([nn.Parameter(torch.zeros(1))])
    assert list(optimizer.param_groups[0]) == ["params", "lr", "mom"]
    assert repr(optimizer) == "Plain (\nParameter Group 0\n    lr: 0.1\n    mom: 0.9\n)"


def test_what_programs_ask_of_devices_and_processes_has_an_answer() -> None:
    assert not (torch.distributed.is_available() or torch.distributed.is_initialized())
    assert not (torch.mps.is_available() or torch.xpu.is_available() or torch.xpu.device_count())
    with pytest.raises(AttributeError, match="one process"):
        torch.distributed.send  # noqa: B018
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled() and not before
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize(("options", "names"), [
    ({}, []), ({"momentum": 0.9, "dampening": 0.1}, ["momentum_buffer"]),
])  # fmt: skip
def test_state_of_sgd_has_pytorchs_keys(options: dict[str, float], names: list[str]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], 0.5, **options)
    for _ in range(2):
        optimizer.zero_grad()
        parameter.square().sum().backward()
        optimizer.step()
    state = optimizer.state_dict()["state"]
    assert [list(each) for each in state.values()] == ([names] if names else [])
    again = torch.optim.SGD([other := nn.Parameter(parameter.detach().clone())], 0.5, **options)
    again.load_state_dict(optimizer.state_dict())
    for step, weight in ((optimizer, parameter), (again, other)):
        step.zero_grad()
        weight.square().sum().backward()
        step.step()
    assert parameter.tolist() == other.tolist()


# As PyTorch 2.13 prints them.
SHOWN: list[tuple[Any, str]] = [
    (lambda: D.Bernoulli(logits=t([0.0, 1.0])), "Bernoulli(logits: torch.Size([2]))"),
    (lambda: D.Categorical(t([0.2, 0.8])), "Categorical(probs: torch.Size([2]))"),
    (lambda: D.Beta(t([1.0]), t([2.0])), "Beta()"),
    (lambda: D.Pareto(1.0, 2.0), "Pareto(alpha: 2.0, scale: 1.0)"),
    (lambda: D.MultivariateNormal(t([0.0, 1.0]), torch.eye(2)),
     "MultivariateNormal(loc: torch.Size([2]), covariance_matrix: torch.Size([2, 2]))"),
    (lambda: D.MultivariateNormal(t([0.0, 1.0]), precision_matrix=torch.eye(2)),
     "MultivariateNormal(loc: torch.Size([2]), precision_matrix: torch.Size([2, 2]))"),
    (lambda: D.Wishart(t(3.0), torch.eye(2)),
     "Wishart(covariance_matrix: torch.Size([2, 2]), df: 3.0)"),
    (lambda: D.MixtureSameFamily(D.Categorical(t([0.5, 0.5])), D.Normal(t([0.0, 1.0]), 1.0)),
     "MixtureSameFamily(\n  Categorical(probs: torch.Size([2])),\n"
     "  Normal(loc: torch.Size([2]), scale: torch.Size([2])))"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), SHOWN)
def test_a_distribution_shows_the_parameters_that_were_given(make: Any, text: str) -> None:
    assert repr(make()) == text


def test_a_parameter_is_shown_once_it_was_asked_for() -> None:
    law = D.Categorical(logits=t([0.0, 1.0]))
    assert repr(law) == "Categorical(logits: torch.Size([2]))"
    np.testing.assert_allclose(law.probs.tolist(), [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-6)
    assert repr(law) == "Categorical(probs: torch.Size([2]), logits: torch.Size([2]))"


@pytest.mark.parametrize(("kind", "name"), [
    (D.MultivariateNormal, "loc"), (D.Wishart, "df"),
])  # fmt: skip
def test_a_precision_matrix_is_the_inverse_of_the_covariance(kind: Any, name: str) -> None:
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    first = {"loc": torch.zeros(2), "df": t(3.0)}[name]
    found = kind(first, covariance_matrix=t(covariance, dtype=torch.float32)).precision_matrix
    np.testing.assert_allclose(found.numpy(), np.linalg.inv(covariance), rtol=1e-5)


def test_bags_are_made_of_rows_that_are_there() -> None:
    rows = torch.arange(6.0).reshape(3, 2)
    bags = nn.EmbeddingBag.from_pretrained(rows, mode="sum")
    assert bags(t([[0, 2]])).tolist() == [[4.0, 6.0]] and not bags.weight.requires_grad
    assert nn.EmbeddingBag.from_pretrained(rows, freeze=False).weight.requires_grad


def test_bags_give_their_largest_rows() -> None:
    rows = t([[1.0, 5.0], [4.0, 2.0], [4.0, 0.0]])
    weight = nn.Parameter(rows.clone())
    for padding in (None, 0):
        weight.grad = None
        found = nn.functional.embedding_bag(t([[0, 1, 2]]), weight, mode="max", padding_idx=padding)
        found.sum().backward()
        # At a tie the gradient is that of the first, as in PyTorch.
        assert found.tolist() == [[4.0, 5.0 if padding is None else 2.0]]
        assert weight.grad.tolist() == (
            [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]] if padding is None
            else [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
        )  # fmt: skip


def test_a_causal_mask_has_a_dtype() -> None:
    mask = nn.Transformer.generate_square_subsequent_mask(2, device="cpu", dtype=torch.float64)
    assert mask.dtype == torch.float64 and mask.tolist() == [[0.0, -float("inf")], [0.0, 0.0]]


def test_fans_of_a_convolution() -> None:
    weight = torch.empty(3, 5, 2, 2)
    assert nn.init._calculate_fan_in_and_fan_out(weight) == (20, 12)
    assert nn.init._calculate_correct_fan(weight, "fan_out") == 12
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init._calculate_fan_in_and_fan_out(torch.empty(3))


LAYERS: list[tuple[Any, str]] = [
    (lambda: nn.Linear(3, 2, dtype=torch.float64), "weight"),
    (lambda: nn.Conv2d(2, 4, 3, groups=2), "bias"),
    (lambda: nn.Embedding(4, 3), "weight"),
    (lambda: nn.LSTM(2, 3), "weight_hh_l0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "name"), LAYERS)
def test_parameters_begin_anew_in_place(make: Any, name: str) -> None:
    layer = make()
    weight = getattr(layer, name)
    weight.data.fill_(9.0)
    layer.reset_parameters()
    assert getattr(layer, name) is weight and weight.requires_grad
    assert not (weight == 9.0).any() and len(set(weight.flatten().tolist())) > 1


def test_statistics_begin_anew() -> None:
    layer = nn.BatchNorm1d(2)
    layer(torch.arange(6.0).reshape(3, 2))
    layer.weight.data.fill_(3.0)
    layer.reset_parameters()
    assert layer.running_mean.tolist() == [0.0, 0.0] and layer.weight.tolist() == [1.0, 1.0]
    assert int(layer.num_batches_tracked) == 0


def test_a_layer_is_made_by_its_own_way_to_begin() -> None:
    class Ones(nn.Linear):
        def __init__(self, size: int) -> None:
            super().__init__(size, size)

        def reset_parameters(self) -> None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    assert Ones(2).weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert Ones(2).bias.tolist() == [0.0, 0.0]


def test_gradients_of_a_batch_of_directions() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = torch.tensor([1.0], requires_grad=True)
    found = torch.autograd.grad(
        [x * x, x.sum()], [x, y], [torch.eye(3), torch.ones(3)], is_grads_batched=True,
        allow_unused=True,
    )  # fmt: skip
    # Row i is 2 x[i] at i, and 1 everywhere.
    assert found[0].tolist() == [[3.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 7.0]]
    assert found[1] is None
    (row,) = torch.autograd.grad(
        x**3, x, torch.eye(3), is_grads_batched=True, create_graph=True
    )  # fmt: skip
    row.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0, 18.0]


def test_gradients_are_asked_for_in_whatever_holds_the_tensors() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([3.0, 5.0], requires_grad=True)
    named = {"x": x, "y": y}
    found = torch.autograd.grad((x * y).sum(), named.values())
    assert [each.tolist() for each in found] == [[3.0, 5.0], [1.0, 2.0]]
    losses = ((x * y).sum() * scale for scale in (1, 2))
    found = torch.autograd.grad(losses, (each for each in (y, x)))
    assert [each.tolist() for each in found] == [[3.0, 6.0], [9.0, 15.0]]
    (rows,) = torch.autograd.grad(x * y, iter([x]), torch.eye(2), is_grads_batched=True)
    assert rows.tolist() == [[3.0, 0.0], [0.0, 5.0]]
    torch.autograd.backward(iter([x * y]), iter([torch.ones(2)]), inputs=named.values())
    assert (x.grad.tolist(), y.grad.tolist()) == ([3.0, 5.0], [1.0, 2.0])


def test_a_block_that_keeps_values_elsewhere_changes_none() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        (x**3).sum().backward()
    assert x.grad.tolist() == [12.0]
    with pytest.raises(AttributeError, match="saved_tensors_hooks"):
        torch.autograd.graph.saved_tensors_hooks  # noqa: B018


def test_a_device_in_a_graph_is_one_device_under_both_names() -> None:
    """`str` of it is PyTorch's name: sums over rows of two devices were refused."""
    zero = UOp.const(dtypes.float32, 0.0)
    assert device_of(UOp(Ops.CONTIGUOUS, zero.dtype, (zero,), torch.device("cpu"))) == "CPU"


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 3)
        self.last.weight = nn.Parameter(torch.eye(3))
        self.tied = self.last.weight
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x)) * self.scale


def test_a_whole_module_is_saved_and_loaded(tmp_path: Path) -> None:
    model, path = Small().eval(), tmp_path / "model.pt"
    model.first.weight.requires_grad_(False)
    torch.save(model, path)
    again = torch.load(path, weights_only=False)
    assert isinstance(again, Small) and not again.training and again.tied is again.last.weight
    assert list(again.state_dict()) == list(model.state_dict())
    assert [name for name, p in again.named_parameters() if not p.requires_grad] == ["first.weight"]
    assert all(isinstance(p, nn.Parameter) for p in again.parameters())
    x = t([[1.0, -2.0]])
    assert again(x).tolist() == model(x).tolist()
    again(x).sum().backward()
    assert again.first.bias.grad is not None and model.first.bias.grad is None


def test_a_file_of_objects_is_read_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    saved = {"args": argparse.Namespace(rate=0.1), "seen": {1, 2}, "model": {"w": torch.ones(2)},
             "layer": nn.ReLU()}  # fmt: skip
    torch.save(saved, path)
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        torch.load(path)
    found = torch.load(path, weights_only=False, map_location="cpu")
    assert found["args"].rate == 0.1 and found["seen"] == {1, 2}
    assert found["model"]["w"].tolist() == [1.0, 1.0] and isinstance(found["layer"], nn.ReLU)


def test_what_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(DataError, match=r"torch\.save"):
        torch.save({"function": lambda x: x}, io.BytesIO())


def test_truths_of_bytes_are_bytes() -> None:
    mask = torch.tensor([[1, 0], [2, 2]], dtype=torch.uint8)
    assert mask.any().dtype == torch.all(mask, dim=1).dtype == torch.uint8
    assert torch.all(mask, dim=1).tolist() == [0, 1] and mask.bool().all().dtype == torch.bool


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("is_even", [True, False])
def test_slopes_between_positions(is_even: bool, edge_order: Any) -> None:
    values = np.array([[1.0, 3.0, 2.0, 5.0], [0.0, 1.0, 4.0, 9.0], [2.0, 2.0, 1.0, 0.0]])
    rows = np.array([0.0, 1.0, 2.0]) if is_even else np.array([0.0, 0.5, 2.0])
    columns = np.array([0.0, 0.5, 1.0, 1.5]) if is_even else np.array([0.0, 1.0, 1.5, 4.0])
    expected = np.gradient(values, rows, columns, edge_order=edge_order)
    found = torch.gradient(t(values), spacing=(t(rows), t(columns)), edge_order=edge_order)
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)
    (along,) = torch.gradient(t(values), spacing=2.0, dim=1, edge_order=edge_order)
    theirs = np.gradient(values, 2.0, axis=1, edge_order=edge_order)
    np.testing.assert_allclose(along.numpy(), theirs, rtol=1e-6)
    with pytest.raises(RuntimeError):
        torch.gradient(t(values), spacing=(t(rows), t(rows)))


def test_a_histogram_has_names() -> None:
    found = torch.histogram(t([1.0, 2.0, 1.0]), 2)
    assert found.hist.tolist() == [2.0, 1.0] and found.bin_edges.tolist() == [1.0, 1.5, 2.0]
    counts, _ = found
    assert counts is found.hist and repr(found).startswith("torch.return_types.histogram(\nhist=")
