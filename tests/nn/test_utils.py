"""Weights that are computed, layers that are joined, parameters as a vector, padded sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.utils import parametrizations, parametrize

rng = np.random.default_rng(0)


def close(found: Tensor, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found.numpy(), wanted, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize(
    ("norm", "g", "v"),
    [
        (nn.utils.weight_norm, "weight_g", "weight_v"),
        (
            parametrizations.weight_norm,
            "parametrizations.weight.original0",
            "parametrizations.weight.original1",
        ),
    ],
)
def test_weight_norm(norm: Any, g: str, v: str) -> None:
    """The weight stays what it was; its length is trained apart from its direction."""
    layer = nn.Conv1d(2, 3, 2)
    weight = layer.weight.numpy()
    layer = norm(layer)
    names = dict(layer.named_parameters())
    assert set(names) == {"bias", g, v} and names[g].shape == (3, 1, 1)
    close(layer.weight, weight)
    x = rng.normal(size=(1, 2, 2)).astype(np.float32)
    layer(Tensor(x)).sum().backward()
    size = np.sqrt((weight**2).sum((1, 2), keepdims=True))
    (length, direction) = (names[name].grad for name in (g, v))
    assert length is not None and direction is not None
    close(length, (x * weight / size).sum((1, 2), keepdims=True))
    # No gradient goes along the direction itself.
    close((direction * names[v]).sum((1, 2)), np.zeros(3))
    names[g].assign(names[g].detach() * 2).realize()
    close(layer.weight, 2 * weight)
    assert repr(layer).startswith("ParametrizedConv1d(") and isinstance(layer, nn.Conv1d)


def test_a_norm_is_taken_back() -> None:
    layer = nn.Linear(2, 3)
    weight = layer.weight.numpy()
    nn.utils.remove_weight_norm(nn.utils.weight_norm(layer))
    assert type(layer) is nn.Linear and sorted(layer.state_dict()) == ["bias", "weight"]
    close(layer.weight, weight)
    nn.utils.remove_spectral_norm(nn.utils.spectral_norm(layer))
    assert type(layer) is nn.Linear
    close(layer.weight, weight / np.linalg.norm(weight, 2), 1e-3)
    for remove in (nn.utils.remove_weight_norm, nn.utils.remove_spectral_norm):
        with pytest.raises(ConfigError, match=r"Linear\.weight is not normalised"):
            remove(layer)
    with pytest.raises(ConfigError, match="weight_norm: Linear has no tensor 'scale'"):
        nn.utils.weight_norm(layer, "scale")


@pytest.mark.parametrize("norm", [nn.utils.spectral_norm, parametrizations.spectral_norm])
def test_spectral_norm(norm: Any) -> None:
    """The largest singular value becomes 1; each use in training refines the estimate."""
    layer = nn.Linear(6, 4, bias=False)
    weight = layer.weight.numpy()
    values = np.linalg.svd(weight, compute_uv=False)
    layer = norm(layer)
    assert sorted(name.split(".")[-1] for name, _ in layer.named_buffers()) in (
        ["_u", "_v"],
        ["weight_u", "weight_v"],
    )
    assert len(list(layer.parameters())) == 1
    before = layer.weight.numpy()
    np.testing.assert_array_equal(layer.eval().weight.numpy(), before)
    layer.train()
    for _ in range(20):
        Tensor.realize(layer.weight, *layer.buffers())
    close(layer.weight, weight / values[0], 1e-3)


def test_parametrizations_follow_one_another_and_go() -> None:
    class Symmetric(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.triu() + x.triu(1).T

    layer = nn.Linear(3, 3)
    weight = layer.weight.numpy()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Tensor.exp)
    parametrize.register_parametrization(layer, "bias", Tensor.square)
    wanted = np.exp(np.triu(weight) + np.triu(weight, 1).T)
    close(layer.weight, wanted)
    assert sorted(layer.state_dict()) == [
        "parametrizations.bias.original", "parametrizations.weight.original",
    ]  # fmt: skip
    optimizer = nn.optim.SGD(layer.parameters(), lr=0.1)
    with Tensor.train():
        layer(Tensor.ones(1, 3)).sum().backward()
        optimizer.step()
    assert not np.allclose(layer.weight.numpy(), wanted)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert parametrize.is_parametrized(layer) and not parametrize.is_parametrized(layer, "weight")
    assert sorted(layer.state_dict()) == ["parametrizations.bias.original", "weight"]
    parametrize.remove_parametrizations(layer, "bias")
    assert type(layer) is nn.Linear
    with pytest.raises(ConfigError, match=r"Linear\.bias is not parametrized"):
        parametrize.remove_parametrizations(layer, "bias")


def test_a_layer_and_its_normalisation_are_one() -> None:
    for layer, x in (
        (nn.Conv2d(2, 3, 2, bias=False), rng.normal(size=(2, 2, 4, 4))),
        (nn.Linear(2, 3), rng.normal(size=(4, 2))),
    ):
        norm = nn.BatchNorm2d(3).eval()
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.assign(Tensor([1.0, 2.0, 3.0])).realize()
        norm.running_var.assign(Tensor([0.5, 1.0, 2.0])).realize()
        given = Tensor(x.astype(np.float32))
        fuse = nn.utils.fuse_linear_bn_eval
        fused = (fuse if isinstance(layer, nn.Linear) else nn.utils.fuse_conv_bn_eval)(layer, norm)
        close(fused(given), norm(layer(given)).numpy(), 1e-4)
        with pytest.raises(ConfigError, match="the normalisation has no running statistics"):
            fuse(layer, nn.BatchNorm1d(3, track_running_stats=False))


def test_parameters_as_a_vector() -> None:
    model = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    wanted = np.concatenate([model.weight.numpy().ravel(), model.bias.numpy()])  # type: ignore[union-attr]
    close(vector, wanted)
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    close(nn.utils.parameters_to_vector(model.parameters()), wanted * 2)
    with pytest.raises(ShapeError, match=r"vector_to_parameters: \(8,\) for 9 elements"):
        nn.utils.vector_to_parameters(vector[:8], model.parameters())


def test_sequences_of_several_lengths() -> None:
    rows = [Tensor(rng.normal(size=(n, 2))) for n in (2, 4, 1)]
    padded = nn.utils.rnn.pad_sequence(rows, padding_value=-1.0)
    assert padded.shape == (4, 3, 2) and padded.numpy()[1:, 2].tolist() == [[-1, -1]] * 3
    back = nn.utils.rnn.unpad_sequence(padded, Tensor([2, 4, 1]))
    for row, found in zip(rows, back, strict=True):
        np.testing.assert_array_equal(found.numpy(), row.numpy())
    left = nn.utils.rnn.pad_sequence(rows, True, padding_side="left").numpy()
    np.testing.assert_array_equal(left[0, 2:], rows[0].numpy())
    with pytest.raises(ShapeError, match="pad_sequence: 2 sequences that do not stack"):
        nn.utils.rnn.pad_sequence([Tensor.ones(2, 3), Tensor.ones(2, 4)])
    with pytest.raises(ConfigError, match="unknown padding_side 'top'"):
        nn.utils.rnn.pad_sequence(rows, padding_side="top")


def test_a_norm_of_gradients_is_asked_for_apart() -> None:
    p = Tensor([3.0, 4.0], requires_grad=True)
    (p * p).sum().backward()
    assert p.grad is not None
    norm = nn.utils.get_total_norm([p.grad])
    nn.utils.clip_grads_with_norm_([p], 5.0, norm)
    assert norm.item() == 10.0
    close(p.grad, [3.0, 4.0])
