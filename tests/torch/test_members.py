"""`_modules`, `_parameters` and `_buffers` of a module, to which programs write."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
        self.heads = nn.ModuleDict({"a": nn.Linear(2, 1)})
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def exchanged(module: Any, kind: type, other: Any) -> None:
    """As libraries freeze the statistics of a network: each module of a class becomes another."""
    for name, child in list(module._modules.items()):
        if isinstance(child, kind):
            module._modules[name] = other()
        else:
            exchanged(child, kind, other)


def test_modules_are_exchanged() -> None:
    net = Net()
    exchanged(net, nn.BatchNorm2d, nn.Identity)
    exchanged(net, nn.ReLU, nn.Tanh)
    exchanged(net, nn.Linear, lambda: nn.Linear(2, 7))
    assert isinstance(net.norm, nn.Identity)
    assert isinstance(net.blocks[1], nn.Tanh) and isinstance(net.layers[1], nn.Tanh)
    assert [each.out_features for each in (net.blocks[0], net.heads["a"], net.layers[0])] == [7] * 3
    # In the order in which they stood.
    assert list(net._modules) == ["norm", "blocks", "heads", "layers"]
    assert net.layers(torch.ones(1, 2)).shape == (1, 7)
    names = [f"{name}.{kind}" for name in ("blocks.0", "heads.a", "layers.0") for kind in "wb"]
    assert [name[: len(mine)] for name, mine in zip(net.state_dict(), names)] == names


def test_members_come_and_go() -> None:
    net: Any = Net()
    net._modules["more"] = nn.Linear(3, 3)
    assert "more.weight" in net.state_dict()
    taken = net._modules.pop("more")
    assert isinstance(taken, nn.Linear) and not hasattr(net, "more")
    assert net._modules.pop("more", None) is None
    with pytest.raises(KeyError):
        net._modules.pop("more")
    del net.layers._modules["1"]
    assert len(net.layers) == 1
    net._modules.update(norm=nn.Identity())
    assert isinstance(net.norm, nn.Identity)


def test_parameters_and_buffers_are_set() -> None:
    layer: Any = nn.Linear(2, 2)
    layer._parameters["weight"] = nn.Parameter(torch.ones(2, 2))
    layer._parameters["bias"] = None
    assert layer(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    layer._parameters["weight"] = torch.zeros(2, 2)
    assert layer.weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    layer._buffers["scale"] = torch.ones(2)
    assert list(layer.state_dict()) == ["weight", "scale"]
    layer._buffers["scale"] = torch.zeros(2)
    assert layer.scale.tolist() == [0.0, 0.0]
    del layer._parameters["weight"]
    assert not hasattr(layer, "weight")


def test_they_are_dicts_elsewhere() -> None:
    layer: Any = nn.Linear(2, 2)
    members = pickle.loads(pickle.dumps(layer._parameters))
    assert type(members) is dict and list(members) == ["weight", "bias"]
