"""What PyTorch tells of tensors and modules: strides, dtypes, texts, and modules' further names."""

from __future__ import annotations

import importlib
from collections import deque

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import dtypes
from tilegrad.torch import nn

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "text",
    ["x", "x.transpose(0, 2)", "x[1]", "x[:, 1:, ::2]", "x.reshape(6, 4)", "x[:, :, 0]"],
)
def test_strides_are_those_of_arrays(text: str) -> None:
    found = eval(text, {"x": torch.tensor(ARRAY)})
    expected = eval(text.replace("transpose(0, 2)", "transpose(2, 1, 0)"), {"x": ARRAY})
    assert found.stride() == tuple(step // 4 for step in expected.strides)
    begin = expected.__array_interface__["data"][0] - ARRAY.__array_interface__["data"][0]
    assert found.storage_offset() == begin // 4


def test_a_stretched_axis_has_the_stride_0() -> None:
    assert torch.ones(3, 1).expand(3, 5).stride() == (1, 0)


def test_views_have_the_address_of_what_they_view() -> None:
    x = torch.tensor(ARRAY)
    assert x.data_ptr() == x.view(-1).data_ptr() == x[0].data_ptr()
    assert x[1].data_ptr() - x.data_ptr() == 12 * 4
    others = [torch.zeros(4) for _ in range(50)]
    mine = {row.data_ptr() for row in x.view(-1)}
    assert mine.isdisjoint(each.data_ptr() for each in others)
    assert x[1].untyped_storage() == x.untyped_storage()


def test_a_dtype_prints_as_its_program_calls_it() -> None:
    assert repr(torch.zeros(2).dtype) == f"{torch.float32}" == "torch.float32"
    spaces = {"dtypes": dtypes}
    assert eval("repr(dtypes.float32)", spaces) == "dtypes.float"


def test_named_results_print_their_method() -> None:
    text = repr(torch.tensor([[1.0, 5.0]]).max(dim=1))
    assert text == "torch.return_types.max(\nvalues=tensor([5.]),\nindices=tensor([1]))"


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (lambda: nn.Linear(2, 3), "Linear(in_features=2, out_features=3, bias=True)"),
        (lambda: nn.Conv2d(1, 2, 3, padding=1), "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), "
         "padding=(1, 1))"),
        (lambda: nn.MaxPool2d(2), "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, "
         "ceil_mode=False)"),
        (lambda: nn.ReLU(inplace=True), "ReLU(inplace=True)"),
        (lambda: nn.Dropout(0.25), "Dropout(p=0.25, inplace=False)"),
        (lambda: nn.GRU(2, 3, batch_first=True), "GRU(2, 3, batch_first=True)"),
        (lambda: nn.LayerNorm(4), "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"),
        (lambda: nn.Embedding(3, 4, padding_idx=0), "Embedding(3, 4, padding_idx=0)"),
    ],
)  # fmt: skip
def test_a_layer_prints_as_in_pytorch(module: object, text: str) -> None:
    assert repr(module()) == text  # type: ignore[operator]


def test_equal_layers_of_a_list_are_one_line() -> None:
    class Net(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.width = width
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    assert repr(Net(2)) == (
        "Net(\n  (layers): ModuleList(\n"
        "    (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)\n  )\n)"
    )


def test_an_optimizer_prints_the_options_of_pytorch() -> None:
    text = repr(torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1))
    assert text.split("\n")[2:6] == [
        "    dampening: 0", "    differentiable: False", "    foreach: None", "    fused: None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("nn.modules.conv", "Conv2d"),
        ("nn.modules", "Linear"),
        ("nn.modules.loss", "CrossEntropyLoss"),
        ("optim.optimizer", "Optimizer"),
        ("utils.data.dataset", "Dataset"),
        ("utils.data.dataloader", "DataLoader"),
        ("nn.parallel", "DataParallel"),
    ],
)
def test_modules_have_their_further_names(module: str, name: str) -> None:
    found = getattr(importlib.import_module(f"tilegrad.torch.{module}"), name)
    first = importlib.import_module(f"tilegrad.torch.{module.split('.')[0]}")
    plain = torch.utils.data if module.startswith("utils") else first
    assert found is getattr(plain, name)


def test_families_of_layers_answer_isinstance() -> None:
    from tilegrad.torch.nn.modules.batchnorm import _BatchNorm
    from tilegrad.torch.nn.modules.conv import _ConvNd

    assert isinstance(nn.BatchNorm1d(2), _BatchNorm)
    assert isinstance(nn.ConvTranspose2d(1, 1, 1), _ConvNd)
    assert not isinstance(nn.Linear(1, 1), _ConvNd)


def test_functions_take_the_input_by_name_and_write_to_out() -> None:
    x = torch.tensor([[1.0, 4.0]])
    assert torch.softmax(input=x * 0, dim=1).tolist() == [[0.5, 0.5]]
    out = torch.zeros(1, 2)
    assert torch.sqrt(x, out=out) is out
    assert out.tolist() == [[1.0, 2.0]]
    assert torch.pow(2, torch.tensor([3.0])).tolist() == [8.0]
    assert torch.tensor(deque([1.0, 2.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("make", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_what_a_normed_weight_is_made_of_is_trained(make: object) -> None:
    layer = make(nn.Linear(3, 2))  # type: ignore[operator]
    shapes = sorted(tuple(each.shape) for each in layer.parameters())
    assert shapes == [(2,), (2, 1), (2, 3)]
    layer(torch.ones(1, 3)).sum().backward()
    assert all(each.grad is not None for each in layer.parameters())


def test_close_tensors_and_others() -> None:
    torch.testing.assert_close(torch.tensor([1.0]), torch.tensor([1.0 + 1e-6]))
    with pytest.raises(AssertionError, match=r"1 of 2 values.*first at \(1,\)"):
        torch.testing.assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]))
    with pytest.raises(AssertionError, match="dtypes"):
        torch.testing.assert_close(torch.tensor([1.0]), torch.tensor([1.0]).double())


def test_gradients_are_checked_by_differences() -> None:
    w = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: v.sin() * v.sum(), (w,))

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
            return g * 3

    with pytest.raises(RuntimeError, match="Jacobian"):
        torch.autograd.gradcheck(Wrong.apply, (w,))


def test_rates_of_averaged_weights_go_on_half_a_cosine() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.2, anneal_epochs=4)
    found = []
    for _ in range(5):
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    shares = [(1 - np.cos(np.pi * min(1, step / 4))) / 2 for step in range(1, 6)]
    np.testing.assert_allclose(found, [1 - 0.8 * share for share in shares], rtol=1e-6)


def test_methods_take_pytorchs_keywords() -> None:
    x = torch.tensor([[1.0, 2.0, 4.0], [2.0, 1.0, 0.5]])
    assert torch.equal(x.clone().addcmul_(tensor1=x, tensor2=x, value=2), x + 2 * x * x)
    assert x.clone().addmm_(mat1=torch.eye(2), mat2=x).tolist() == (2 * x).tolist()
    assert x.new_zeros(size=(2,)).tolist() == [0.0, 0.0]
    assert x.unfold(dimension=1, size=2, step=1).shape == (2, 2, 2)
    np.testing.assert_allclose(torch.trapezoid(y=x).numpy(), [4.5, 2.25])
    assert torch.linalg.matrix_power(A=torch.eye(2), n=3).tolist() == torch.eye(2).tolist()


def test_a_covariance_has_weights() -> None:
    x, often, counts = np.array([[1.0, 2, 4], [2, 1, 0.5]]), np.array([1, 2, 3]), [0.5, 1.0, 2.0]
    found = torch.cov(torch.tensor(x), fweights=torch.tensor(often), aweights=torch.tensor(counts))
    expected = np.cov(x, fweights=often, aweights=counts)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_factors_solve_from_both_sides(left: bool, adjoint: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 4)), rng.normal(size=(4, 2) if left else (2, 4))
    factors = torch.linalg.lu_factor(torch.tensor(a))
    found = torch.linalg.lu_solve(*factors, torch.tensor(b), left=left, adjoint=adjoint).numpy()
    matrix = a.T if adjoint else a
    np.testing.assert_allclose(matrix @ found if left else found @ matrix, b, rtol=1e-9)
