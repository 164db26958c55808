"""Attributes of PyTorch's classes: what they tell here, and what is said of those that are absent.

Each is compared with PyTorch's own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])

# What an absent attribute is told by: advice, or a name that is near.
TOLD = ("; ", "did you mean")
# Attributes of PyTorch's internals, which no program has a use for.
INTERNAL = {
    "activation_relu_or_gelu", "check_forward_args", "check_hidden_size", "check_input",
    "check_worker_number_rationality", "custom_backend_name", "cummulative_sizes", "cumsum",
    "get_expected_cell_size", "get_expected_hidden_size", "merge_masks", "metadata",
    "permute_hidden", "use_beta1", "base_momentums", "max_momentums",
}  # fmt: skip


def _weight(torch: Any) -> Any:
    return torch.nn.Parameter(torch.ones(2, 2))


def _schedule(torch: Any, name: str, **options: Any) -> Any:
    return getattr(torch.optim.lr_scheduler, name)(
        torch.optim.SGD([_weight(torch)], lr=0.1), **options
    )


MADE = {
    "Tensor": lambda torch: torch.ones(2, 2),
    "Parameter": _weight,
    "complex": lambda torch: torch.tensor([[1 + 2j]]),
    "Module": lambda torch: torch.nn.Module(),
    "Generator": lambda torch: torch.Generator(),
    "dtype": lambda torch: torch.float32,
    "device": lambda torch: torch.device("cpu"),
    "Size": lambda torch: torch.Size([1]),
    "finfo": lambda torch: torch.finfo(torch.float32),
    "GradScaler": lambda torch: torch.amp.GradScaler(enabled=False),
    "autocast": lambda torch: torch.autocast("cpu"),
    "DataLoader": lambda torch: torch.utils.data.DataLoader([1, 2]),
    "ConcatDataset": lambda torch: torch.utils.data.ConcatDataset([[1], [2]]),
    "Normal": lambda torch: torch.distributions.Normal(0.0, 1.0),
    "PackedSequence": lambda torch: torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1)]),
    "StepLR": lambda torch: _schedule(torch, "StepLR", step_size=1),
    "CyclicLR": lambda torch: _schedule(torch, "CyclicLR", base_lr=0.1, max_lr=1.0),
    "OneCycleLR": lambda torch: _schedule(torch, "OneCycleLR", max_lr=1.0, total_steps=9),
    **{
        name: lambda torch, name=name: getattr(torch.optim, name)([_weight(torch)])
        for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "NAdam", "Muon")
    },
    **{
        name: lambda torch, name=name, given=given: getattr(torch.nn, name)(*given)
        for name, given in {
            "Linear": (2, 2), "LSTM": (2, 3, 2), "GRU": (2, 3), "RNN": (2, 3), "LSTMCell": (2, 3),
            "Conv2d": (1, 2, 3), "ConvTranspose1d": (1, 2, 3), "BatchNorm2d": (2,),
            "LayerNorm": (2,), "RMSNorm": (2,), "GroupNorm": (1, 2), "Embedding": (3, 2),
            "MultiheadAttention": (4, 2), "Transformer": (4, 2, 1, 1, 4), "Upsample": (2,),
            "TransformerEncoderLayer": (4, 2), "MaxPool2d": (2,), "CrossEntropyLoss": (),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_an_attribute_of_pytorch_is_here_or_told_of(name: str) -> None:
    other, mine = MADE[name](theirs), MADE[name](ours)
    silent = []
    for attribute in dir(other):
        if attribute.startswith("_") or attribute in INTERNAL:
            continue
        try:
            getattr(mine, attribute)
        except AttributeError as error:
            if not any(told in str(error) for told in TOLD):
                silent.append(attribute)
        except RuntimeError:
            pass
    assert not silent


PLAIN = {
    "LSTM": ("mode", "bias"),
    "GRU": ("mode", "bias"),
    "RNN": ("mode",),
    "LSTMCell": ("bias",),
    "Conv2d": ("transposed", "output_padding"),
    "ConvTranspose1d": ("transposed", "padding_mode", "output_padding"),
    "LayerNorm": ("elementwise_affine",),
    "RMSNorm": ("elementwise_affine",),
    "GroupNorm": ("affine",),
    "Transformer": ("d_model", "nhead", "batch_first"),
    "MultiheadAttention": ("q_proj_weight", "k_proj_weight", "v_proj_weight"),
    "Upsample": ("name",),
    "DataLoader": ("timeout", "persistent_workers", "in_order", "prefetch_factor",
                   "pin_memory_device", "multiprocessing_context"),
    "autocast": ("device",),
    "CyclicLR": ("max_lrs", "total_size", "step_ratio"),
    "dtype": ("abbr",),
    "Module": ("call_super_init", "dump_patches"),
    "complex": ("itemsize", "is_cpu", "retains_grad"),
    "Tensor": ("retains_grad", "is_ipu", "is_xla"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_an_attribute_has_the_value_that_it_has_in_pytorch(name: str) -> None:
    other, mine = MADE[name](theirs), MADE[name](ours)
    for attribute in PLAIN[name]:
        assert getattr(mine, attribute) == getattr(other, attribute), attribute


@BOTH
def test_a_layer_without_biases_and_scales_says_so(torch: Any) -> None:
    nn = torch.nn
    assert not nn.LSTM(2, 3, bias=False).bias
    assert not nn.GRUCell(2, 3, bias=False).bias
    assert not nn.LayerNorm(3, elementwise_affine=False).elementwise_affine
    assert not nn.GroupNorm(1, 3, affine=False).affine
    assert nn.RNN(2, 3, nonlinearity="relu").mode == "RNN_RELU"
    shapes = [[tuple(w.shape) for w in layer] for layer in nn.LSTM(2, 3, 2).all_weights]
    assert shapes == [[(12, 2), (12, 3), (12,), (12,)], [(12, 3), (12, 3), (12,), (12,)]]
    two = nn.GRU(2, 3, bidirectional=True, bias=False).all_weights
    assert [[tuple(w.shape) for w in layer] for layer in two] == [[(9, 2), (9, 3)]] * 2


@BOTH
def test_an_optimizer_calls_hooks_of_its_state(torch: Any) -> None:
    optimizer = torch.optim.SGD([_weight(torch)], lr=0.1)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append(o is optimizer))
    handle = optimizer.register_state_dict_post_hook(lambda o, state: {**state, "epoch": 3})
    state = optimizer.state_dict()
    assert (calls, state["epoch"]) == ([True], 3)
    handle.remove()
    assert "epoch" not in optimizer.state_dict()

    def faster(o: Any, state: Any) -> Any:
        state = copy.deepcopy(state)
        state["param_groups"][0]["lr"] = 0.5
        return state

    optimizer.register_load_state_dict_post_hook(lambda o: calls.append(o.param_groups[0]["lr"]))
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("first"), prepend=True)
    optimizer.register_load_state_dict_pre_hook(faster)
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls[-2:] == ["first", 0.5]


@BOTH
def test_a_program_asks_a_module_for_what_another_holds(torch: Any) -> None:
    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        @property
        def broken(self) -> Any:
            return self.nothing_of_the_kind

    model = Wrapped(torch.nn.Linear(3, 2))
    assert (model.in_features, model.inner.out_features) == (3, 2)
    assert tuple(model.weight.shape) == (2, 3)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        model.nothing_of_the_kind  # noqa: B018
    assert copy.deepcopy(model).in_features == 3


@BOTH
def test_memory_behind_views_is_read_and_written(torch: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    row = x[1]
    memory = row.untyped_storage()
    assert (memory.nbytes(), len(memory), memory.element_size(), memory[6]) == (24, 24, 1, 128)
    assert bytes(memory.tolist()) == np.arange(6, dtype=np.float32).tobytes()
    copied = memory.clone()
    typed = row.storage()
    assert (typed.size(), typed.tolist()[4], typed.dtype) == (6, 4.0, torch.float32)
    typed[0] = 9
    assert x[0, 0].item() == 9
    typed.fill_(2)
    assert row.tolist() == [2, 2, 2]
    memory.copy_(copied)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


@BOTH
def test_complex_dtypes_by_their_parts(torch: Any) -> None:
    assert torch.float64.to_complex() == torch.complex128
    assert torch.bfloat16.to_complex() == torch.float32.to_complex() == torch.complex64
    assert torch.int32.to_real() == torch.int32
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType"):
        torch.int32.to_complex()
    assert torch.arange(2).cfloat().dtype == torch.complex64
    assert torch.ones(2).cdouble().dtype == torch.complex128


@BOTH
def test_a_generator_of_the_cpu_has_no_offset(torch: Any) -> None:
    with pytest.raises(RuntimeError, match="does not use offset"):
        torch.Generator().get_offset()
    with pytest.raises(NotImplementedError):
        torch.Generator().graphsafe_get_state()


WRITES = [
    ("index_add", lambda t: (0, t.tensor([2, 0]), t.tensor([1j, 2 - 1j]))),
    ("index_copy", lambda t: (0, t.tensor([2, 0]), t.tensor([1j, 2 - 1j]))),
    ("index_fill", lambda t: (0, t.tensor([1]), 2 - 3j)),
    ("index_put", lambda t: ((t.tensor([1, 2]),), t.tensor([1j, 4 + 0j]))),
    ("scatter", lambda t: (0, t.tensor([2, 1]), t.tensor([1j, 2 - 1j]))),
    ("scatter", lambda t: (0, t.tensor([2, 1]), 7)),
    ("scatter_add", lambda t: (0, t.tensor([2, 2]), t.tensor([1j, 2 - 1j]))),
    ("masked_scatter", lambda t: (t.tensor([True, False, True]), t.tensor([1j, 2 - 1j]))),
    ("masked_fill", lambda t: (t.tensor([True, False, True]), 5.0)),
    ("addcdiv", lambda t: (t.tensor([1j, 1, 2]), t.tensor([1 + 1j, 2, 1j]))),
]


@pytest.mark.parametrize(("name", "given"), WRITES, ids=[name for name, _ in WRITES])
def test_complex_numbers_are_written_as_in_pytorch(name: str, given: Any) -> None:
    found = []
    for torch in (theirs, ours):
        z = torch.tensor([1 + 2j, 3 - 1j, -1j])
        made = getattr(z, name)(*given(torch))
        written = z.clone()
        assert getattr(written, f"{name}_")(*given(torch)) is written
        found.append([made.numpy(), written.numpy()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@BOTH
def test_complex_tensors_are_made_moved_and_watched(torch: Any) -> None:
    z = torch.tensor([[1 + 2j, 3 - 1j]], requires_grad=True)
    assert z.new_ones(2).tolist() == [1, 1]
    assert z.new_full((2,), 3j).tolist() == [3j, 3j]
    assert z.new_tensor([1.0, 2j]).dtype == z.new_empty(2).dtype == torch.complex64
    assert z.negative().tolist() == [[-1 - 2j, -3 + 1j]]
    assert z.is_same_size(z * 2)
    assert z.is_signed()
    moved = z.detach().clone().squeeze_(0).unsqueeze_(-1)
    assert tuple(moved.t_().shape) == (1, 2)
    seen = []
    z.register_hook(lambda g: seen.append(g.tolist()))
    (z * 2).backward(torch.ones_like(z))
    assert seen == [z.grad.tolist()] == [[[2, 2]]]
    with pytest.raises(RuntimeError, match="implicitly created only for real"):
        z.sum().backward()


@BOTH
def test_strided_writes_and_kept_gradients(torch: Any) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    made = x.as_strided_scatter(torch.zeros(2, 2), (2, 2), (1, 2), 1)
    assert made.tolist() == [[0, 0, 0], [0, 0, 5], [6, 7, 8]]
    w = torch.ones(2, requires_grad=True)
    y = w * 2
    assert (w.retains_grad, y.retains_grad) == (False, False)
    y.retain_grad()
    assert y.retains_grad


@BOTH
def test_lazy_layers_print_what_they_are_to_be(torch: Any) -> None:
    nn = torch.nn
    assert repr(nn.LazyLinear(3)) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    assert repr(nn.LazyConv2d(4, 3, padding=1, bias=False)) == (
        "LazyConv2d(0, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)"
    )
    assert repr(nn.LazyConvTranspose1d(2, 3, stride=2)) == (
        "LazyConvTranspose1d(0, 2, kernel_size=(3,), stride=(2,))"
    )
    assert repr(nn.LazyBatchNorm1d()) == (
        "LazyBatchNorm1d(0, eps=1e-05, momentum=0.1, affine=True, bias=True, "
        "track_running_stats=True)"
    )


@BOTH
def test_lists_of_modules_add_up_and_shared_ones_have_all_names(torch: Any) -> None:
    nn = torch.nn
    both = nn.ModuleList([nn.ReLU()]) + [nn.Tanh()]  # noqa: RUF005  # what is tested
    assert isinstance(both, nn.ModuleList)
    assert [type(each).__name__ for each in both] == ["ReLU", "Tanh"]
    shared = nn.Linear(2, 2)
    tied = nn.Sequential(shared, nn.Sequential(shared), nn.Tanh())
    assert [name for name, _ in tied.named_modules()] == ["", "0", "1", "2"]
    every = [name for name, _ in tied.named_modules(prefix="net", remove_duplicate=False)]
    assert every == ["net", "net.0", "net.1", "net.1.0", "net.2"]


@BOTH
def test_programs_derive_losses_and_norms_from_those_behind_the_layers(torch: Any) -> None:
    batchnorm = torch.nn.modules.batchnorm
    loss = torch.nn.modules.loss

    class Focal(loss._WeightedLoss):  # type: ignore[misc]
        def __init__(self, gamma: float = 2.0, weight: Any = None, reduction: str = "mean"):
            super().__init__(weight=weight, reduction=reduction)
            self.gamma = gamma

        def forward(self, x: Any, target: Any) -> Any:
            each = torch.nn.functional.cross_entropy(x, target, self.weight, reduction="none")
            whole = (1 - (-each).exp()) ** self.gamma * each
            return whole.sum() if self.reduction == "sum" else whole.mean()

    class Norm(batchnorm._BatchNorm):  # type: ignore[misc]
        def _check_input_dim(self, x: Any) -> None:
            assert x.dim() == 2

        def forward(self, x: Any) -> Any:
            self._check_input_dim(x)
            return super().forward(x) * 2

    focal = Focal(weight=torch.tensor([1.0, 3.0]), reduction="sum")
    assert list(focal.state_dict()) == ["weight"]
    assert isinstance(focal, loss._Loss)
    assert not isinstance(torch.nn.MSELoss(), Focal)
    assert isinstance(torch.nn.MSELoss(), loss._Loss)
    x = torch.tensor([[0.5, -0.5], [1.0, 2.0]])
    log = np.log(1 + np.exp(-np.array([-1.0, -1.0]))) * 3
    each = np.array([log[0], np.log(1 + np.exp(1.0))])
    expected = ((1 - np.exp(-each)) ** 2 * each).sum()
    np.testing.assert_allclose(focal(x, torch.tensor([1, 0])).item(), expected, rtol=1e-5)
    norm = Norm(3)
    assert isinstance(norm, batchnorm._BatchNorm)
    found = norm(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    np.testing.assert_allclose(found.detach().numpy(), [[-2, 0, 2], [2, 0, -2]], atol=1e-4)


@BOTH
def test_arrays_meet_tensors_in_functions_of_numpy(torch: Any) -> None:
    x = torch.tensor([4.0, 9.0])
    root = np.sqrt(x)
    assert isinstance(root, torch.Tensor)
    assert root.tolist() == [2, 3]
    assert np.add(x, 1).tolist() == [5, 10]
    assert np.isnan(x).dtype == torch.uint8
    assert isinstance(np.asarray(x), np.ndarray)
    z = torch.tensor([3 + 4j])
    z.real *= 2
    z.imag[0] = 1
    assert z.tolist() == [6 + 1j]


@BOTH
def test_a_truth_of_several_values_is_ambiguous(torch: Any) -> None:
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.ones(2) > 0)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.zeros(0))


@BOTH
def test_what_transforms_give_requires_gradients_where_parameters_are_known(torch: Any) -> None:
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    x = torch.linspace(0, 1, 3)
    func = torch.func

    def f(u: Any) -> Any:
        assert torch.is_grad_enabled()
        return (w * u).sin().sum()

    with torch.no_grad():
        # Beside it no gradients are recorded, and none are afterwards.
        assert not func.vmap(func.grad(f))(torch.stack([x, x])).requires_grad
    for transform in (func.grad, func.jacrev, func.jacfwd, func.hessian):
        w.grad = None
        made = transform(f)(x)
        assert made.requires_grad
        assert not transform(lambda u: (u * u).sum())(x).requires_grad
        made.sum().backward()
        assert w.grad is not None
    assert func.vmap(f)(torch.stack([x, x])).requires_grad
    assert func.jvp(f, (x,), (x,))[1].requires_grad
    jacobian = torch.autograd.functional.jacobian
    assert not jacobian(f, x).requires_grad
    assert jacobian(f, x, create_graph=True).requires_grad


@BOTH
def test_programs_derive_classes_from_tensors(torch: Any) -> None:
    class Tagged(torch.Tensor):  # type: ignore[misc]
        @staticmethod
        def __new__(cls: Any, x: Any, tag: str = "none") -> Any:
            return super().__new__(cls, x)

        def __init__(self, x: Any, tag: str = "none") -> None:
            self.tag = tag

        def size_of_all(self) -> Any:
            return self.abs().sum()

    made = Tagged([1.0, -2.0], tag="mine")
    assert (made.tag, made.size_of_all().item()) == ("mine", 3)
    assert isinstance(made * 2, Tagged)
    assert isinstance(made[0], Tagged)
    x = torch.ones(3, requires_grad=True)
    other = x.as_subclass(Tagged)
    assert other.size_of_all().item() == 3
    assert type(x) is torch.Tensor
    other.size_of_all().backward()
    assert x.grad.tolist() == [1, 1, 1]
    assert torch.Tensor._make_subclass(Tagged, torch.ones(2)).size_of_all().item() == 2
