"""Modules, optimizers, schedules, data and files of tilegrad.torch."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterator

import numpy as np
import pytest

import tilegrad.io
import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tilegrad.torch import nn
from tilegrad.torch.optim import SGD, Adam, Optimizer, lr_scheduler
from tilegrad.torch.utils import data
from tilegrad.torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(1))
        self.plain = torch.ones(2)
        self.listed = [nn.Linear(1, 1)]
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("passing", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.inner(x)) * self.scale


def test_a_module_trains_its_parameters_and_keeps_its_buffers() -> None:
    net = Net()
    names = ["scale", "inner.weight", "inner.bias"]
    assert [name for name, _ in net.named_parameters()] == names
    assert list(net.state_dict()) == ["scale", "kept", "inner.weight", "inner.bias"]
    assert [name for name, _ in net.named_buffers()] == ["kept", "passing"]
    assert all(isinstance(each, nn.Parameter) for each in net.parameters())


def test_layers_are_modules_and_what_they_make_are_tensors_of_torch() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    found = [type(each) for each in layer.modules()]
    assert nn.Linear in found
    assert nn.LayerNorm in found
    assert all(isinstance(each, nn.Module) for each in layer.modules())
    assert type(layer(torch.ones(3, 1, 4))) is torch.Tensor


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_give_tensors_of_torch(kind: str) -> None:
    out, state = getattr(nn, kind)(2, 3)(torch.ones(6, 1, 2))
    states = state if isinstance(state, tuple) else (state,)
    assert {type(each) for each in (out, *states)} == {torch.Tensor}


def test_layers_of_indices_give_tensors_of_torch() -> None:
    found = nn.EmbeddingBag(5, 3)(torch.tensor([0, 1, 2]), torch.tensor([0, 2]))
    assert type(found) is type(nn.Embedding(5, 3)(torch.tensor([0]))) is torch.Tensor


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    nn.Sequential(nn.ReLU(), nn.Tanh()).apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["ReLU", "Tanh", "Sequential"]


def test_a_layer_with_a_train_of_its_own_is_set_by_it() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(2), nn.Dropout()

        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self.norm.eval()
            return self

    net = nn.Sequential(Frozen(), nn.Dropout())
    net.eval()
    net.train()
    assert [each.training for each in net.modules()] == [True, True, False, True, True]


def test_loading_runs_no_hooks_of_saving() -> None:
    net, calls = nn.Linear(2, 1), []
    state = net.state_dict()
    net.register_state_dict_post_hook(lambda *given: calls.append(given))
    net.load_state_dict(state)
    assert calls == []


def test_a_copy_of_a_module_has_parameters_of_its_own() -> None:
    net = Net()
    other = copy.deepcopy(net)
    nn.init.zeros_(other.scale)
    assert (net.scale.item(), other.scale.item()) == (1.0, 0.0)
    assert len(list(other.parameters())) == 3


def test_weights_that_are_shared_are_one_parameter() -> None:
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 1
    assert len(net.state_dict()) == 2


def test_every_mask_of_a_transformer_hides_what_it_says() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
    source, target = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
    hidden = torch.tensor([[False] * 3 + [True] * 2] * 2)
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    options = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    first = model(source, target, tgt_mask=causal, **options)
    changed = source.clone()
    changed[:, 3:] = 100.0
    later = target.clone()
    later[:, 2:] = -50.0
    second = model(changed, later, tgt_mask=causal, **options)
    np.testing.assert_allclose(first[:, :2].detach(), second[:, :2].detach(), atol=1e-5)
    assert not np.allclose(first[:, 2].detach(), second[:, 2].detach(), atol=1e-3)


def test_rates_are_numbers_and_writing_them_changes_the_step() -> None:
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = SGD([{"params": [w], "name": "all"}], lr=0.1)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.param_groups[0]["name"] == "all"
    for group in optimizer.param_groups:
        group["lr"] *= 5
    (w * 2).sum().backward()
    optimizer.step()
    assert w.item() == 0.0


def test_a_frozen_parameter_stays_until_it_is_thawed() -> None:
    w, v = (nn.Parameter(torch.ones(1)) for _ in range(2))
    v.requires_grad = False
    optimizer = SGD([w, v], lr=1.0)
    (w * v).sum().backward()
    optimizer.step()
    assert (w.item(), v.item()) == (0.0, 1.0)
    v.requires_grad_(True)
    optimizer.zero_grad()
    (v * 3).sum().backward()
    optimizer.step()
    assert (w.item(), v.item()) == (0.0, -2.0)


def test_a_step_without_gradients_does_nothing() -> None:
    w = nn.Parameter(torch.ones(1))
    Adam([w]).step()
    assert w.item() == 1.0


def test_a_programs_own_optimizer_moves_parameters() -> None:
    class Signs(Optimizer):
        def __init__(self, params: object, lr: float):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure: object = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    w = nn.Parameter(torch.tensor([1.0, -1.0]))
    optimizer = Signs([w], lr=0.25)
    for _ in range(2):
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()
    assert w.tolist() == [0.5, -0.5]
    assert optimizer.state[w]["steps"] == 2


def test_running_statistics_are_computed_with_the_step() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    optimizer = SGD(net.parameters(), lr=0.1)
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    net(x).sum().backward()
    optimizer.step()
    assert net[0].running_mean.uop.op.name != "ASSIGN"
    np.testing.assert_allclose(net[0].running_mean.numpy(), [0.2, 0.4], rtol=1e-6)


def test_a_schedule_of_a_program_gives_its_rates() -> None:
    class Root(lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float]:
            return [base / math.sqrt(1 + self.last_epoch) for base in self.base_lrs]

    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = Root(optimizer)
    for _ in range(3):
        schedule.step()
    assert schedule.get_last_lr() == [0.5]


def test_a_schedule_goes_on_from_its_state() -> None:
    def made() -> tuple[SGD, lr_scheduler.StepLR]:
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        return optimizer, lr_scheduler.StepLR(optimizer, 2, 0.5)

    first, schedule = made()
    for _ in range(3):
        first.step()
        schedule.step()
    second, other = made()
    other.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    other.step()
    assert (other.last_epoch, other.get_last_lr()) == (4, [0.25])


def test_loaders_join_tensors_numbers_and_texts() -> None:
    items = [{"x": torch.ones(2) * n, "y": n, "z": float(n), "t": str(n)} for n in range(3)]
    batch, rest = data.DataLoader(items, batch_size=2)
    assert batch["x"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert (batch["y"].dtype, batch["z"].dtype) == (torch.int64, torch.float64)
    assert (batch["t"], rest["t"]) == (["0", "1"], ["2"])


def test_a_shuffled_loader_gives_each_item_once_by_its_generator() -> None:
    def order() -> list[int]:
        generator = torch.Generator().manual_seed(3)
        rows = data.TensorDataset(torch.arange(9))
        loader = data.DataLoader(rows, batch_size=2, shuffle=True, generator=generator)
        return [n for (batch,) in loader for n in batch.tolist()]

    assert order() == order()
    assert sorted(order()) == list(range(9))


def test_files_hold_tensors_and_plain_data() -> None:
    held = io.BytesIO()
    shared = torch.arange(6).view(2, 3)
    saved = {
        "a": shared,
        "b": [nn.Parameter(torch.ones(2)), 1, -(2**40), 2.5, None, True, "text"],
        3: (torch.tensor(True), torch.zeros(0), torch.ones(1, dtype=torch.bfloat16)),
    }
    torch.save(saved, held)
    held.seek(0)
    found = torch.load(held)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"][1:] == [1, -(2**40), 2.5, None, True, "text"]
    assert [each.tolist() for each in found[3]] == [True, [], [1.0]]


def test_a_file_is_what_tilegrads_reader_of_pytorchs_files_reads(tmp_path: object) -> None:
    path = f"{tmp_path}/weights.pt"
    torch.save(nn.Linear(2, 1).state_dict(), path)
    found = tilegrad.io.torch_load(path)
    assert {name: each.shape for name, each in found.items()} == {"weight": (1, 2), "bias": (1,)}


def test_compiled_calls_are_replayed_where_no_gradient_flows() -> None:
    calls = []

    @torch.compile(fullgraph=True)
    def double(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    found = [double(torch.tensor([float(n)])).item() for n in range(5)]
    assert found == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert len(calls) < 5


def test_a_compiled_module_is_trained() -> None:
    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    compiled = torch.compile(net)
    optimizer = SGD(compiled.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(torch.ones(1, 1)).square().sum().backward()
        optimizer.step()
    assert net.weight.item() == 0.0


def test_a_function_of_a_program_has_the_gradient_that_it_says() -> None:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            grad = grad.clone()
            grad[x < 0] = 0
            return grad * 10

    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    Clipped.apply(x).sum().backward()
    assert x.grad.tolist() == [0.0, 10.0]


def test_transforms_give_what_numpy_gives() -> None:
    signal = np.random.default_rng(0).normal(size=16).astype(np.float32)
    found = torch.fft.rfft(torch.from_numpy(signal))
    np.testing.assert_allclose(found.numpy(), np.fft.rfft(signal), atol=1e-5)
    found[5:] = 0
    wanted = np.fft.rfft(signal)
    wanted[5:] = 0
    np.testing.assert_allclose(
        torch.fft.irfft(found, n=16).numpy(), np.fft.irfft(wanted, n=16), atol=1e-5
    )


def test_draws_of_distributions_are_tensors_of_torch() -> None:
    normal = torch.distributions.Normal(0.0, 1.0)
    choice = torch.distributions.Categorical(torch.tensor([0.0, 1.0]))
    made = [normal.sample((2,)), normal.log_prob(torch.zeros(2)), choice.sample(), choice.entropy()]
    assert {type(each) for each in made} == {torch.Tensor}
    assert choice.sample().dtype is torch.int64


def test_a_module_refuses_names_and_values_that_it_cannot_hold() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(2, 2)
            self.scale = nn.Parameter(torch.ones(1))

    net = Net()
    with pytest.raises(AttributeError):
        net.get_submodule("body.absent")
    with pytest.raises(KeyError):
        net.register_buffer("a.b", torch.ones(1))
    with pytest.raises(KeyError):
        net.register_parameter("body", nn.Parameter(torch.ones(1)))
    with pytest.raises(TypeError):
        net.scale = torch.ones(2)  # type: ignore[assignment]
    with pytest.raises(TypeError):
        net.load_state_dict([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        nn.Linear(2, 3, nonsense=1)


def test_a_normalisation_refuses_inputs_of_other_axes() -> None:
    with pytest.raises(ValueError, match="4D input"):
        nn.BatchNorm2d(3)(torch.ones(2, 3))


def test_an_optimizer_refuses_what_it_cannot_train_in_one_place() -> None:
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError):
        SGD(weight, lr=0.1)
    with pytest.raises(ValueError, match="non-leaf"):
        SGD([weight * 2], lr=0.1)
    optimizer = SGD([weight], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [weight]})


def test_hooks_of_an_optimizer_can_be_removed() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, called = SGD([weight], lr=0.1), []
    handle = optimizer.register_step_pre_hook(lambda *args: called.append(1))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert called == [1]


def test_the_state_of_a_schedule_is_its_options_and_counts() -> None:
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    state = schedule.state_dict()
    assert (state["T_max"], state["last_epoch"], state["base_lrs"]) == (10, 4, [0.1])
    other = lr_scheduler.CosineAnnealingLR(SGD([nn.Parameter(torch.ones(1))], lr=0.1), 3)
    other.load_state_dict(state)
    expected = 0.1 * (1 + math.cos(math.pi * 0.4)) / 2
    assert other.T_max == 10 and other.get_last_lr()[0] == pytest.approx(expected, rel=1e-5)


def test_a_plateau_is_kept_in_plain_numbers() -> None:
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    rates = []
    for metric in (1.0, 1.0, torch.tensor(1.0), 0.5):
        schedule.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.1, 0.1, 0.05, 0.05]
    assert (schedule.best, schedule.num_bad_epochs, schedule.state_dict()["patience"]) == (
        0.5,
        0,
        1,
    )


def test_a_schedule_that_steps_before_its_optimizer_warns() -> None:
    schedule = lr_scheduler.StepLR(SGD([nn.Parameter(torch.ones(1))], lr=0.1), 1)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        schedule.step()


def test_workers_of_a_stream_take_turns_and_know_their_number() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info = get_worker_info()
            assert info is not None
            return iter(range(info.id * 10, info.id * 10 + 2))

    loader: DataLoader[int] = DataLoader(Stream(), num_workers=2)
    assert [int(each) for each in loader] == [0, 10, 1, 11]


# Keys of PyTorch 2.13 after a step; NAdam's product by hand of 0.9 * (1 - 0.5 * 0.96 ** (0.004 t)).
@pytest.mark.parametrize(
    ("name", "keys", "values"),
    [
        ("Adadelta", ["acc_delta", "square_avg", "step"], {"step": 2.0}),
        ("Adagrad", ["step", "sum"], {"step": 2.0}),
        ("RMSprop", ["square_avg", "step"], {"step": 2.0}),
        ("Rprop", ["prev", "step", "step_size"], {"step": 2.0}),
        ("ASGD", ["ax", "eta", "mu", "step"], {"eta": 0.01 / (1 + 2e-6) ** 0.75, "mu": 1}),
        (
            "NAdam",
            ["exp_avg", "exp_avg_sq", "mu_product", "step"],
            {"mu_product": 0.81 * (1 - 0.5 * 0.96**0.004) * (1 - 0.5 * 0.96**0.008)},
        ),
    ],
)  # fmt: skip
def test_states_of_optimizers_have_all_keys(
    name: str, keys: list[str], values: dict[str, float]
) -> None:
    def made() -> Optimizer:
        weight = nn.Parameter(torch.ones(2))
        found: Optimizer = getattr(torch.optim, name)([weight])
        weight.square().sum().backward()
        return found

    optimizer = made()
    optimizer.step()
    optimizer.step()
    held = optimizer.state_dict()
    assert sorted(held["state"][0]) == keys
    for key, value in values.items():
        assert held["state"][0][key].item() == pytest.approx(value, rel=1e-6)
    other = made()
    other.load_state_dict(held)
    other.step()
    assert other.state_dict()["state"][0]["step"].item() == 3


# Keys of PyTorch 2.13.
_COMMON = {
    "_get_lr_called_within_step", "_is_initial", "_last_lr", "_step_count", "base_lrs",
    "last_epoch",
}  # fmt: skip
_SCHEDULES = {
    "LambdaLR": (lambda o: lr_scheduler.LambdaLR(o, lambda e: 0.5**e), {"lr_lambdas", *_COMMON}),
    "CosineAnnealingWarmRestarts": (
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2),
        {"T_0", "T_cur", "T_i", "T_mult", "eta_min", *_COMMON},
    ),
    "SequentialLR": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], [2]
        ),
        {"_last_lr", "_milestones", "_schedulers", "last_epoch"},
    ),
    "ChainedScheduler": (
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)]
        ),
        {"_last_lr", "_schedulers"},
    ),
}


@pytest.mark.parametrize("name", _SCHEDULES)
def test_a_schedule_goes_on_from_the_keys_that_pytorch_has(name: str) -> None:
    make, keys = _SCHEDULES[name]

    def begun() -> tuple[Optimizer, lr_scheduler.LRScheduler]:
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        return optimizer, make(optimizer)

    (first, schedule), (second, other) = begun(), begun()
    for _ in range(3):
        first.step()
        schedule.step()
    state = schedule.state_dict()
    assert set(state) == keys
    if name == "CosineAnnealingWarmRestarts":
        # Cycles of 2 and 4 steps: the third step is the second one of the second cycle.
        assert (state["T_cur"], state["T_i"]) == (1, 4)
    other.load_state_dict(copy.deepcopy(state))
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        for optimizer, each in ((first, schedule), (second, other)):
            optimizer.step()
            each.step()
        assert second.param_groups[0]["lr"] == pytest.approx(first.param_groups[0]["lr"])
