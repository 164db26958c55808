"""Tensors print as PyTorch prints them, to the last blank."""

from __future__ import annotations

import pytest

import tilegrad.torch as torch


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (lambda: torch.tensor([100.1, 0.22]), "tensor([100.1000,   0.2200])"),
        (lambda: torch.tensor([1e5, 1.5]), "tensor([1.0000e+05, 1.5000e+00])"),
        (lambda: torch.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
        (lambda: torch.tensor([-0.0, 0.0]), "tensor([-0., 0.])"),
        (lambda: torch.tensor(2.5), "tensor(2.5000)"),
        (lambda: torch.tensor([float("nan"), 1.5]), "tensor([   nan, 1.5000])"),
        (lambda: torch.tensor([-1, 20, 300]), "tensor([ -1,  20, 300])"),
        (lambda: torch.tensor([[True], [False]]), "tensor([[ True],\n        [False]])"),
        (lambda: torch.empty(0, 3), "tensor([], size=(0, 3))"),
        (lambda: torch.zeros(0, dtype=torch.int64), "tensor([], dtype=torch.int64)"),
        (lambda: torch.zeros(2).half(), "tensor([0., 0.], dtype=torch.float16)"),
        (lambda: torch.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
        (lambda: torch.tensor([1 + 2j, -0.5j]), "tensor([1.+2.0000j, -0.-0.5000j])"),
        (
            lambda: torch.ones(2, 1, 2),
            "tensor([[[1., 1.]],\n\n        [[1., 1.]]])",
        ),
        (
            lambda: torch.arange(0, 9.75, 0.75, dtype=torch.float64).requires_grad_(),
            "tensor([0.0000, 0.7500, 1.5000, 2.2500, 3.0000, 3.7500, 4.5000, 5.2500, 6.0000,\n"
            "        6.7500, 7.5000, 8.2500, 9.0000], dtype=torch.float64,\n"
            "       requires_grad=True)",
        ),
    ],
)
def test_a_tensor_prints_as_in_pytorch(tensor: object, text: str) -> None:
    assert repr(tensor()) == text  # type: ignore[operator]


def test_options_say_how_tensors_print() -> None:
    x = torch.tensor([3.14159, 2.71828])
    try:
        torch.set_printoptions(precision=2)
        assert repr(x) == "tensor([3.14, 2.72])"
        torch.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([3.14e+00, 2.72e+00])"
        torch.set_printoptions(profile="short", linewidth=40)
        text = "tensor([0.00e+00, 3.33e-01,  ...,\n        6.66e+02, 6.66e+02])"
        assert repr(torch.arange(2000.0) / 3) == text
    finally:
        torch.set_printoptions(profile="default")
    assert repr(x) == "tensor([3.1416, 2.7183])"


def test_a_number_formats_as_its_value() -> None:
    assert f"{torch.tensor(3)} {torch.tensor(1.5, requires_grad=True):.2f}" == "3 1.50"


def test_linspace_has_the_last_bits_of_pytorch() -> None:
    middle = torch.linspace(-1, 1, 23)[11].item()
    assert middle == -2.9802322387695312e-08
