"""Containers with attributes of their own: what PyTorch trains, saves and calls of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn

CONTAINERS: dict[str, tuple[Callable[[], Any], str]] = {
    "ModuleDict": (lambda: nn.ModuleDict({"0": nn.Linear(1, 1, bias=False)}), "0.weight"),
    "ModuleList": (lambda: nn.ModuleList([nn.Linear(1, 1, bias=False)]), "0.weight"),
    "Sequential": (lambda: nn.Sequential(nn.Linear(1, 1, bias=False)), "0.weight"),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_attributes_of_a_container_are_state(kind: str) -> None:
    """The names and their order are PyTorch 2.13's."""
    make, inner = CONTAINERS[kind]
    module = make()
    module.register_buffer("counts", torch.ones(2))
    module.scale = nn.Parameter(torch.ones(3))
    module.last = nn.Linear(1, 1, bias=False)
    names = ["scale", inner, "last.weight"]
    assert [name for name, _ in module.named_parameters()] == names
    assert [name for name, _ in module.named_buffers()] == ["counts"]
    assert list(module.state_dict()) == ["scale", "counts", *names[1:]]
    assert [name for name, _ in module.named_modules()] == ["", "0", "last"]
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})
    assert module.scale.tolist() == [2, 2, 2] and module.counts.tolist() == [2, 2]
    (module.scale.sum() * 3).backward()
    torch.optim.SGD(module.parameters(), lr=1.0).step()
    assert module.scale.tolist() == [-1, -1, -1]
    assert not module.train(False).last.training


@pytest.mark.parametrize("kind", ["ParameterList", "ParameterDict"])
def test_attributes_beside_parameters(kind: str) -> None:
    given: Any = [torch.ones(1)] if kind == "ParameterList" else {"0": torch.ones(1)}
    module = getattr(nn, kind)(given)
    module.scale = nn.Parameter(torch.ones(3))
    module.register_buffer("counts", torch.ones(2))
    assert list(module.state_dict()) == ["0", "scale", "counts"]
    assert len(module) == 1


class Activated(nn.Sequential):
    """As torchvision's blocks are: layers, and numbers that say what they are made of."""

    def __init__(self, size: int) -> None:
        super().__init__(nn.Linear(size, size), nn.ReLU())
        self.out_channels = size
        self.is_wide = True
        self.activation = torch.relu
        self.scale = nn.Parameter(torch.ones(size))


def test_attributes_that_are_no_modules_are_no_layers() -> None:
    block = Activated(2)
    x = torch.tensor([[1.0, -2.0]])
    assert len(block) == 2 and [type(each) for each in block] == [nn.Linear, nn.ReLU]
    assert block(x).tolist() == torch.relu(x @ block[0].weight.T + block[0].bias).tolist()
    block.append(nn.Identity())
    block[1] = nn.Tanh()
    assert list(block.state_dict()) == ["scale", "0.weight", "0.bias"]
    assert block(x).tolist() == torch.tanh(x @ block[0].weight.T + block[0].bias).tolist()
