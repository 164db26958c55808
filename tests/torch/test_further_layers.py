"""Layers and parametrizations that programs ask for less often. Figures are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tilegrad.torch import nn
from tilegrad.torch.nn.utils import parametrize
from tilegrad.torch.nn.utils.parametrizations import orthogonal


def test_batch_norms_become_synchronized_ones_with_their_weights() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2, momentum=0.3))
    norm = net[1]
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert made is net
    assert type(net[1]) is nn.SyncBatchNorm
    assert net[1].weight is norm.weight
    assert net[1].momentum == 0.3
    assert isinstance(net[1], nn.modules.batchnorm._BatchNorm)
    with pytest.raises(ValueError, match="at least 2D"):
        net[1](torch.ones(2))


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize(
    "shape", [pytest.param((3, 3), marks=pytest.mark.nightly), (5, 3), (3, 5)], ids=str
)
def test_an_orthogonal_weight_is_what_was_assigned_and_stays_orthogonal(
    kind: str, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(1)
    tall = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))[0]
    first = (tall if shape[0] >= shape[1] else tall.T).astype(np.float32)
    layer = nn.Linear(shape[1], shape[0], bias=False)
    layer.weight.data = torch.from_numpy(first)
    orthogonal(layer, orthogonal_map=kind)
    assert np.allclose(layer.weight.detach().numpy(), first, atol=1e-5)
    original = layer.parametrizations.weight.original
    (
        layer.weight * torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    ).sum().backward()
    original.data = original.data - 0.5 * original.grad
    moved = layer.weight.detach().numpy()
    assert not np.allclose(moved, first, atol=1e-3)
    inner = moved @ moved.T if shape[0] <= shape[1] else moved.T @ moved
    assert np.allclose(inner, np.eye(min(shape)), atol=1e-5)


def test_an_orthogonal_map_without_base_cannot_be_assigned() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="use_trivialization=True"):
        orthogonal(layer, orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(RuntimeError, match="there is no map 'polar'"):
        orthogonal(layer, orthogonal_map="polar")


def test_orthogonal_weights_can_be_removed() -> None:
    layer = orthogonal(nn.Linear(2, 2))
    parametrize.remove_parametrizations(layer, "weight")
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]


def test_adaptive_max_pool_tells_the_first_position_of_each_value() -> None:
    x = torch.tensor([[[1.0, 5.0, 5.0], [2.0, 0.0, 4.0], [7.0, 7.0, 1.0]]])
    values, places = F.adaptive_max_pool2d(x, (2, 2), return_indices=True)
    assert values.tolist() == [[[5.0, 5.0], [7.0, 7.0]]]
    assert places.tolist() == [[[1, 1], [6, 7]]]
    assert places.dtype == torch.int64
    _, places = nn.AdaptiveMaxPool1d(3, return_indices=True)(torch.arange(7.0).reshape(1, 7))
    assert places.tolist() == [[2, 4, 6]]


def test_dtypes_meet_complex_ones() -> None:
    assert torch.promote_types(torch.complex64, torch.float64) is torch.complex128
    assert torch.promote_types(torch.int64, torch.complex64) is torch.complex64
    assert torch.result_type(torch.ones(2, dtype=torch.complex64), 1.0) is torch.complex64
    assert torch.result_type(torch.ones(2), 1j) is torch.complex64
    assert not torch.can_cast(torch.complex64, torch.float32)
    assert torch.can_cast(torch.int32, torch.complex64)


@pytest.mark.parametrize(
    ("name", "sizes"), [("1d", (4, 4)), ("2d", (4, 4, 3)), ("3d", (4, 4, 2, 3))]
)
@pytest.mark.parametrize("is_training", [True, False])
def test_an_item_without_a_batch_is_normalised_by_its_channels(
    name: str, sizes: tuple[int, ...], is_training: bool
) -> None:
    """Its first axis is that of channels, also where the second has as many elements."""
    x = np.random.default_rng(3).standard_normal(sizes).astype(np.float32) + 5
    layer = getattr(torch.nn, f"InstanceNorm{name}")(4, affine=True, track_running_stats=True)
    layer.train(is_training)
    axes = tuple(range(1, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-5) if is_training else x / np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(layer(torch.tensor(x)).detach().numpy(), expected, atol=1e-4)
    moved = 0.1 * mean.reshape(-1) if is_training else np.zeros(4)
    np.testing.assert_allclose(layer.running_mean.numpy(), moved, rtol=1e-5)
    # As in PyTorch, only batch normalisation counts its batches.
    assert layer.num_batches_tracked.item() == 0


@pytest.mark.parametrize("kind", [tuple, list])
def test_sizes_of_pools_are_lists_or_tuples(kind: type) -> None:
    x = torch.arange(36.0).reshape(1, 1, 6, 6)
    functions = torch.nn.functional
    assert functions.adaptive_avg_pool2d(x, kind((1, 2))).tolist() == [[[[16.0, 19.0]]]]
    assert torch.nn.AdaptiveMaxPool2d(kind((None, 1)))(x).flatten().tolist() == [*range(5, 36, 6)]
    halves = functions.fractional_max_pool2d(x, 2, output_ratio=kind((0.5, 0.34)))
    assert halves.shape == (1, 1, 3, 2)
    assert torch.nn.FractionalMaxPool2d(2, output_ratio=kind((0.5, 0.34)))(x).shape == (1, 1, 3, 2)


@pytest.mark.parametrize("is_separate", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_of_given_weights(mask: str | None, is_separate: bool) -> None:
    draw = np.random.default_rng(3)
    length, keys, batch, size, heads = 3, 4, 2, 6, 2
    q, k, v = (draw.normal(size=(n, batch, size)) for n in (length, keys, keys))
    weight, bias = draw.normal(size=(3 * size, size)), draw.normal(size=3 * size)
    out, out_bias = draw.normal(size=(size, size)), draw.normal(size=size)
    hidden = np.array([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], bool)
    padding = np.array([[0, 0, 0, 1], [0, 0, 0, 0]], bool)
    added = np.where(hidden, -np.inf, 0.0) if mask == "bool" else draw.normal(size=hidden.shape)
    given = None if mask is None else torch.tensor(hidden if mask == "bool" else added)
    w = [torch.tensor(each) for each in np.split(weight, 3)] if is_separate else [None] * 3
    found, shares = torch.nn.functional.multi_head_attention_forward(
        *map(torch.tensor, (q, k, v)), size, heads,
        None if is_separate else torch.tensor(weight), torch.tensor(bias), None, None, False, 0.0,
        torch.tensor(out), torch.tensor(out_bias), True, torch.tensor(padding), True, given,
        is_separate, *w,
    )  # fmt: skip
    parts = zip((q, k, v), np.split(weight, 3), np.split(bias, 3), strict=True)
    split = [
        (x @ part.T + b).reshape(len(x), batch, heads, -1).transpose(1, 2, 0, 3)
        for x, part, b in parts
    ]
    scores = split[0] @ split[1].swapaxes(-1, -2) / np.sqrt(size / heads)
    scores = scores + (0 if mask is None else added)
    scores = scores + np.where(padding, -np.inf, 0)[:, None, None]
    expected = np.exp(scores - scores.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(shares.numpy(), expected.mean(1), rtol=1e-9, atol=1e-12)
    joined = (expected @ split[2]).transpose(2, 0, 1, 3).reshape(length, batch, size)
    np.testing.assert_allclose(found.numpy(), joined @ out.T + out_bias, rtol=1e-9, atol=1e-12)


def test_attention_refuses_another_size() -> None:
    x = torch.ones(2, 1, 4)
    with pytest.raises(ValueError, match="multi_head_attention_forward: queries of 4 numbers"):
        torch.nn.functional.multi_head_attention_forward(
            x, x, x, 6, 2, torch.ones(12, 4), None, None, None, False, 0.0, torch.ones(4, 4), None
        )


def test_a_target_that_is_neither_1_nor_minus_1_has_both_terms() -> None:
    loss = torch.nn.functional.hinge_embedding_loss
    x, target = torch.tensor([3.0, 0.25, -2.0]), torch.tensor([1, -1, 0])
    assert loss(x, target, reduction="none").tolist() == [3.0, 0.75, -2.0 + 3.0]
