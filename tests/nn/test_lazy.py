"""Layers that are made by their first call."""

from __future__ import annotations

from typing import Any

import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, ShapeError


@pytest.mark.parametrize(
    ("layer", "shape", "kind", "weight"),
    [
        (nn.LazyLinear(3, bias=False), (5, 2), nn.Linear, (3, 2)),
        (nn.LazyConv1d(4, 3), (2, 5, 7), nn.Conv1d, (4, 5, 3)),
        (nn.LazyConv2d(4, 3, padding=1), (5, 7, 7), nn.Conv2d, (4, 5, 3, 3)),
        (nn.LazyConv3d(4, 1), (2, 5, 2, 2, 2), nn.Conv3d, (4, 5, 1, 1, 1)),
        (nn.LazyConvTranspose2d(4, 2), (1, 5, 3, 3), nn.ConvTranspose2d, (5, 4, 2, 2)),
        (nn.LazyBatchNorm2d(), (2, 5, 3, 3), nn.BatchNorm2d, (5,)),
        (nn.LazyInstanceNorm1d(affine=True), (2, 5, 3), nn.InstanceNorm1d, (5,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_first_call_makes_the_layer(
    layer: Any, shape: tuple[int, ...], kind: type, weight: tuple[int, ...]
) -> None:
    assert list(layer.parameters()) == []
    seen: list[str] = []
    layer.register_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    first = layer(Tensor.ones(*shape))
    assert type(layer) is kind and layer.weight.shape == weight
    assert layer(Tensor.ones(*shape)).shape == first.shape
    assert seen == [kind.__name__] * 2


def test_a_model_of_such_layers_is_trained_and_keeps_its_mode() -> None:
    model = nn.Sequential(
        nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(1)
    ).train()
    assert "(0): LazyLinear(4)" in repr(model)
    with pytest.raises(ConfigError, match="there is nothing to train"):
        nn.optim.SGD(model.parameters())
    x = Tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    model(x)
    assert model[1].training and model[0].weight.shape == (4, 3)
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1)
    before = model[0].weight.numpy()
    model(x).square().sum().backward()
    optimizer.step()
    assert (model[0].weight.numpy() != before).any()


def test_an_input_without_the_axis() -> None:
    layer = nn.LazyBatchNorm1d()
    with pytest.raises(ShapeError, match="num_features must be an integer above 0, not 0"):
        layer(Tensor.ones(3))
    layer(Tensor.ones(3, 2))
