"""Layers and losses against NumPy: values, first values, state in training, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, DTypeError, ShapeError

Array = npt.NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(ours: Tensor, theirs: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    expected = np.asarray(theirs)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours.numpy(), expected, rtol=rtol, atol=atol)


def convolve(x: Array, w: Array, stride: int, dilation: int, groups: int) -> Array:
    """Cross-correlation over all axes but the first two, by definition."""
    kernel = w.shape[2:]
    sizes = [
        (n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True)
    ]
    out = np.zeros((len(x), len(w), *sizes))
    each = len(w) // groups
    for o in range(len(w)):
        first = o // each * w.shape[1]
        for place in np.ndindex(*kernel):
            window = tuple(
                slice(p * dilation, p * dilation + (size - 1) * stride + 1, stride)
                for p, size in zip(place, sizes, strict=True)
            )
            inputs = x[(slice(None), slice(first, first + w.shape[1]), *window)]
            weights = w[(o, slice(None), *place)].reshape(1, -1, *[1] * len(kernel))
            out[:, o] += (inputs * weights).sum(1)
    return out


def normalised(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return (wide - mean) / np.sqrt(variance + eps)


def test_linear() -> None:
    layer = nn.Linear(5, 3)
    x = numbers(2, 4, 5)
    close(layer(Tensor(x)), x @ layer.weight.numpy().T + layer.bias.numpy())
    assert nn.Linear(5, 3, bias=False).bias is None


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Linear, (64, 48)),
        (nn.Conv2d, (16, 8, 3)),
        (nn.Conv1d, (16, 8, 4)),
        (nn.ConvTranspose2d, (8, 16, 3)),
    ],
)
def test_first_values_are_uniform_within_one_over_the_root_of_the_inputs(
    layer: Any, sizes: Any
) -> None:
    Tensor.manual_seed(0)
    made = layer(*sizes)
    inputs = math.prod(made.weight.shape[1:])
    values = made.weight.numpy()
    bound = 1 / math.sqrt(inputs)
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() > 0.95 * bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert np.abs(made.bias.numpy()).max() <= bound


def test_parameters_of_equal_values_are_not_one() -> None:
    """Two layers whose weights are all ones have weights, and gradients, of their own."""
    first, second = nn.LayerNorm(4), nn.LayerNorm(4)
    x = Tensor(numbers(2, 4))
    second(first(x) * 2 + 1).square().sum().backward()
    assert first.weight.grad is not None
    assert second.weight.grad is not None
    assert not np.allclose(first.weight.grad.numpy(), second.weight.grad.numpy())
    first.weight.assign(Tensor.full((4,), 3.0)).realize()
    close(second.weight, np.ones(4))


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2},
    {"padding": 2},
    {"dilation": 2},
    {"groups": 2},
    {"bias": False},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv2d(options: dict[str, Any]) -> None:
    layer = nn.Conv2d(4, 6, 3, **options)
    x = numbers(2, 4, 9, 8)
    border = options.get("padding", 0)
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    expected = convolve(
        padded,
        layer.weight.numpy(),
        options.get("stride", 1),
        options.get("dilation", 1),
        layer.groups,
    )
    if layer.bias is not None:
        expected += layer.bias.numpy().reshape(1, 6, 1, 1)
    close(layer(Tensor(x)), expected)


@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding_keeps_the_size(kernel: int, dilation: int) -> None:
    layer = nn.Conv1d(2, 3, kernel, padding="same", dilation=dilation)
    x = numbers(1, 2, 12)
    width = dilation * (kernel - 1)
    padded = np.pad(x, ((0, 0), (0, 0), (width // 2, width - width // 2)))
    assert layer.bias is not None
    expected = convolve(padded, layer.weight.numpy(), 1, dilation, 1) + layer.bias.numpy().reshape(
        1, 3, 1
    )
    close(layer(Tensor(x)), expected)


def test_convolutions_over_one_and_three_axes() -> None:
    for layer, sizes in (
        (nn.Conv1d(2, 3, 3), (7,)),
        (nn.Conv3d(2, 3, 2), (4, 5, 6)),
        (nn.Conv2d(2, 3, (2,)), (7,)),
    ):
        x = numbers(1, 2, *sizes)
        bias = layer.bias.numpy().reshape(1, 3, *[1] * len(sizes))
        close(layer(Tensor(x)), convolve(x, layer.weight.numpy(), 1, 1, 1) + bias)


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"padding": 1}, {"stride": 2, "output_padding": 1}, {"groups": 2}],
    ids=str,
)
def test_conv_transpose_is_the_transpose_of_conv(options: dict[str, Any]) -> None:
    """<conv(x), y> = <x, conv_transpose(y)> for the same weight."""
    layer = nn.ConvTranspose2d(4, 6, 3, bias=False, **options)
    y = numbers(2, 4, 5, 5, seed=1)
    ours = layer(Tensor(y)).numpy()
    x = numbers(*ours.shape, seed=2)
    border = options.get("padding", 0)
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    forward = convolve(padded, layer.weight.numpy(), options.get("stride", 1), 1, layer.groups)
    assert (forward * y).sum() == pytest.approx((x * ours).sum(), rel=1e-3, abs=1e-3)


def test_embedding() -> None:
    layer = nn.Embedding(10, 4)
    index = np.array([[1, 9, 1], [0, 5, 2]])
    close(layer(Tensor(index)), layer.weight.numpy()[index])
    layer(Tensor(index)).sum().backward()
    assert layer.weight.grad is not None
    counts = np.bincount(index.reshape(-1), minlength=10)
    close(layer.weight.grad, np.repeat(counts[:, None], 4, 1))


def test_dropout() -> None:
    x = Tensor.ones(10_000)
    layer = nn.Dropout(0.25)
    values = layer(x).numpy()
    with Tensor.train(False):
        assert layer(x).numpy().tolist() == [1.0] * 10_000
    assert layer.eval()(x).numpy().tolist() == [1.0] * 10_000
    assert set(values.tolist()) == {0.0, np.float32(1 / 0.75)}
    assert (values == 0).mean() == pytest.approx(0.25, abs=0.02)


# normalisation


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5), (4, 3, 5, 2)])
def test_batchnorm_in_training(shape: tuple[int, ...]) -> None:
    layer = nn.BatchNorm(3)
    x = numbers(*shape) * 2 + 1
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    with Tensor.train():
        close(layer(Tensor(x)), normalised(x, axes, 1e-5))
    close(layer.running_mean, 0.1 * x.mean(axes))
    close(layer.running_var, 0.9 + 0.1 * x.var(axes, ddof=1))
    assert layer.num_batches_tracked.item() == 1


def test_batchnorm_outside_training_uses_the_running_statistics() -> None:
    layer = nn.BatchNorm2d(3)
    x = numbers(4, 3, 2, 2)
    with Tensor.train():
        for _ in range(3):
            layer(Tensor(x))
    assert layer.num_batches_tracked is not None
    assert layer.num_batches_tracked.item() == 3
    mean, variance = layer.running_mean.numpy(), layer.running_var.numpy()
    expected = (x - mean.reshape(1, 3, 1, 1)) / np.sqrt(variance.reshape(1, 3, 1, 1) + 1e-5)
    close(layer.eval()(Tensor(x)), expected)
    assert layer.num_batches_tracked.item() == 3


def test_batchnorm_without_running_statistics() -> None:
    layer = nn.BatchNorm(3, affine=False, track_running_stats=False)
    x = numbers(6, 3)
    close(layer(Tensor(x)), normalised(x, (0,), 1e-5))
    assert nn.state.get_state_dict(layer) == {}


def test_running_statistics_are_not_trained() -> None:
    layer = nn.BatchNorm(3)
    with Tensor.train():
        layer(Tensor(numbers(6, 3))).square().sum().backward()
    assert layer.weight.grad is not None
    assert layer.running_mean.grad is None


def test_gradient_of_batchnorm() -> None:
    """The closed form: the gradient without its mean and its share along the output."""
    x, g = numbers(8, 3), numbers(8, 3, seed=1)
    inputs = Tensor(x, requires_grad=True)
    with Tensor.train():
        (nn.BatchNorm(3, affine=False)(inputs) * Tensor(g)).sum().backward()
    y = normalised(x, (0,), 1e-5)
    scale = 1 / np.sqrt(x.var(0) + 1e-5)
    assert inputs.grad is not None
    close(inputs.grad, scale * (g - g.mean(0) - y * (g * y).mean(0)), rtol=1e-4)


@pytest.mark.parametrize("sizes", [5, (4, 5)])
def test_layernorm(sizes: Any) -> None:
    layer = nn.LayerNorm(sizes)
    x = numbers(2, 3, 4, 5)
    axes = (-1,) if sizes == 5 else (-2, -1)
    close(layer(Tensor(x)), normalised(x, axes, 1e-5))


def test_layernorm2d() -> None:
    x = numbers(2, 3, 4, 5)
    close(nn.LayerNorm2d(3)(Tensor(x)), normalised(x, (1,), 1e-5))


def test_rmsnorm() -> None:
    x = numbers(2, 8)
    close(nn.RMSNorm(8)(Tensor(x)), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6))


def test_an_instancenorm_without_momentum_keeps_its_statistics() -> None:
    """As in PyTorch, where it is the momentum 0; it was an AssertionError."""
    layer = nn.InstanceNorm1d(1, eps=0.0, momentum=None, track_running_stats=True)
    x = Tensor([[[1.0, 3.0]]])
    assert layer(x).tolist() == [[[-1.0, 1.0]]]
    layer.eval()
    assert layer(x).tolist() == x.tolist()


def test_groupnorm_and_instancenorm() -> None:
    x = numbers(2, 6, 4, 5)
    grouped = normalised(x.reshape(2, 3, -1), (2,), 1e-5).reshape(x.shape)
    close(nn.GroupNorm(3, 6)(Tensor(x)), grouped)
    close(nn.InstanceNorm(6)(Tensor(x)), normalised(x, (2, 3), 1e-5))


@pytest.mark.parametrize(
    "make", [nn.BatchNorm, nn.LayerNorm2d, nn.InstanceNorm, lambda n: nn.GroupNorm(1, n)]
)
def test_weight_and_bias_of_norms_are_per_channel(make: Callable[[int], Any]) -> None:
    layer = make(3)
    x = Tensor(numbers(4, 3, 2, 2))
    with Tensor.train():
        plain = layer(x).numpy()
        layer.weight.assign(Tensor([1.0, 2.0, 3.0]))
        layer.bias.assign(Tensor([0.0, 10.0, 20.0]))
        scaled = layer(x).numpy()
    per_channel = np.arange(3).reshape(1, 3, 1, 1)
    np.testing.assert_allclose(
        scaled, plain * (per_channel + 1) + per_channel * 10, rtol=1e-4, atol=1e-4
    )


# losses


def softmax(x: Array) -> Array:
    exponentials = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_cross_entropy() -> None:
    x, y = numbers(6, 4), np.array([0, 1, 2, 3, -100, 1])
    each = -np.log(softmax(x)[np.arange(6), np.where(y < 0, 0, y)]) * (y >= 0)
    close(nn.CrossEntropyLoss()(Tensor(x), Tensor(y)), each.sum() / 5)
    close(nn.CrossEntropyLoss(reduction="sum")(Tensor(x), Tensor(y)), each.sum())
    close(nn.CrossEntropyLoss(reduction="none")(Tensor(x), Tensor(y)), each)
    close(nn.NLLLoss()(Tensor(np.log(softmax(x)).astype(np.float32)), Tensor(y)), each.sum() / 5)


def test_cross_entropy_of_bytes_has_no_class_to_ignore() -> None:
    x, y = numbers(3, 4), np.array([0, 1, 2], np.uint8)
    close(nn.CrossEntropyLoss()(Tensor(x), Tensor(y)), -np.log(softmax(x)[[0, 1, 2], y]).mean())


@pytest.mark.parametrize(
    ("loss", "formula"),
    [
        (nn.MSELoss(), lambda d: d**2),
        (nn.L1Loss(), np.abs),
        (
            nn.HuberLoss(delta=0.5),
            lambda d: np.where(np.abs(d) < 0.5, d * d / 2, 0.5 * (np.abs(d) - 0.25)),
        ),
        (nn.SmoothL1Loss(beta=0.5), lambda d: np.where(np.abs(d) < 0.5, d * d, np.abs(d) - 0.25)),
        (nn.SmoothL1Loss(beta=0), np.abs),
    ],
)
def test_losses_of_a_difference(loss: Any, formula: Callable[[Array], Array]) -> None:
    x, y = numbers(5, 3), numbers(5, 3, seed=1)
    close(loss(Tensor(x), Tensor(y)), formula(x - y).mean())
    loss.reduction = "none"
    close(loss(Tensor(x), Tensor(y)), formula(x - y))


def test_binary_losses() -> None:
    x, t = numbers(6), np.array([0.0, 1.0, 1.0, 0.0, 0.5, 1.0], np.float32)
    p = 1 / (1 + np.exp(-x.astype(np.float64)))
    each = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    close(nn.BCEWithLogitsLoss()(Tensor(x), Tensor(t)), each.mean())
    close(nn.BCELoss()(Tensor(p.astype(np.float32)), Tensor(t)), each.mean())
    close(
        nn.BCELoss(weight=Tensor(t), reduction="sum")(Tensor(p.astype(np.float32)), Tensor(t)),
        (each * t).sum(),
    )


def test_binary_cross_entropy_at_certainty() -> None:
    """A certain and wrong answer costs 100, a right one nothing; no NaN in the gradient."""
    p = Tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = nn.functional.binary_cross_entropy(p, Tensor([0.0, 1.0, 1.0, 0.0]), reduction="none")
    loss.sum().backward()
    assert p.grad is not None
    assert np.isfinite(p.grad.numpy()).all()
    assert loss.tolist() == [0.0, 0.0, 100.0, 100.0]


# refusals


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (
            lambda: nn.Linear(784, 10),
            (2, 512),
            "Linear: the input has 512 features, the layer was made for 784",
        ),
        (
            lambda: nn.Conv2d(3, 8, 3),
            (2, 4, 8, 8),
            "Conv2d: the input has 4 channels, the layer was made for 3",
        ),
        (
            lambda: nn.Conv2d(3, 8, 3),
            (8, 8),
            "Conv2d: the input has 2 axes, the layer was made for 4",
        ),
        (
            lambda: nn.Conv1d(3, 8, 3),
            (2, 3, 8, 8),
            "Conv1d: the input has 4 axes, the layer was made for 3",
        ),
        (
            lambda: nn.ConvTranspose2d(3, 8, 3),
            (2, 4, 8, 8),
            "ConvTranspose2d: the input has 4 channels",
        ),
        (
            lambda: nn.BatchNorm(3),
            (2, 4),
            "BatchNorm: the input has 4 channels, the layer was made for 3",
        ),
        (
            lambda: nn.BatchNorm(3),
            (3,),
            "BatchNorm: the input has no channels, the layer was made for 3",
        ),
        (lambda: nn.LayerNorm((4, 5)), (2, 3, 5), "LayerNorm: the input has 3 features"),
        (
            lambda: nn.RMSNorm(4),
            (2, 3),
            "RMSNorm: the input has 3 features, the layer was made for 4",
        ),
        (lambda: nn.GroupNorm(2, 4), (2, 6), "GroupNorm: the input has 6 channels"),
    ],
)
def test_an_input_of_another_size(
    layer: Callable[[], Any], shape: tuple[int, ...], message: str
) -> None:
    """The error names the layer, both sizes, the input, and the line of the call."""
    made = layer()
    with pytest.raises(ShapeError) as caught:
        made(Tensor.ones(*shape))
    text = str(caught.value)
    assert text.startswith(message)
    assert "test_layers.py:" in text.partition("line:")[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(-1, 3), "Linear: in_features must be an integer, 0 or more, not -1"),
        (lambda: nn.Linear(3, 2.5), "Linear: out_features must be an integer, 0 or more, not 2.5"),  # type: ignore[arg-type]
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "Conv2d: 2 groups do not divide 3 channels into 4"),
        (lambda: nn.Conv2d(3, 4, 3, stride=0), "Conv2d: stride 0 does not fit"),
        (
            lambda: nn.Conv2d(3, 4, 3, padding=(1, 2, 3)),
            r"Conv2d: padding \(1, 2, 3\) does not fit",
        ),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), "Conv2d: unknown padding 'full'"),
        (
            lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"),
            "Conv2d: padding 'same' needs a stride of 1",
        ),
        (lambda: nn.GroupNorm(4, 6), "GroupNorm: 6 channels do not split into 4 groups"),
        (lambda: nn.LayerNorm(()), "LayerNorm: there are no axes"),
    ],
)
def test_arguments_that_make_no_layer(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make()


def test_dropout_refuses_what_is_no_probability() -> None:
    with pytest.raises(ConfigError, match=r"Dropout: p must be between 0 and 1, not 1\.5"):
        nn.Dropout(1.5)


def test_embedding_refuses_floats() -> None:
    with pytest.raises(DTypeError, match="Embedding: indices must be integers, not float32"):
        nn.Embedding(3, 2)(Tensor([1.0]))


def test_batchnorm_refuses_one_value_per_channel() -> None:
    with Tensor.train(), pytest.raises(ShapeError, match="BatchNorm: one value per channel"):
        nn.BatchNorm(3)(Tensor.ones(1, 3))


def test_losses_refuse_other_shapes_and_reductions() -> None:
    with pytest.raises(ShapeError, match=r"mse_loss: shapes differ: \(3, 1\) and \(3,\)"):
        nn.MSELoss()(Tensor.ones(3, 1), Tensor.ones(3))
    with pytest.raises(ConfigError, match="huber_loss: unknown reduction 'avg'"):
        nn.HuberLoss(reduction="avg")(Tensor.ones(3), Tensor.ones(3))
    with pytest.raises(ConfigError, match="huber_loss: delta must be above 0"):
        nn.HuberLoss(delta=0)(Tensor.ones(3), Tensor.ones(3))


def test_layers_of_no_features() -> None:
    layer = nn.Linear(0, 3)
    x = Tensor.ones(2, 0)
    y = layer(x)
    assert y.tolist() == [[0.0] * 3] * 2
    gradients = y.sum().gradient(layer.weight, layer.bias)
    assert [each.shape for each in gradients] == [(3, 0), (3,)]
    assert gradients[1].tolist() == [2.0] * 3
    stack = nn.Sequential(nn.Linear(3, 0), nn.ReLU(), nn.Linear(0, 2, bias=False))
    assert stack(Tensor.ones(4, 3)).tolist() == [[0.0, 0.0]] * 4
    assert nn.LayerNorm(0)(Tensor.ones(2, 0)).shape == (2, 0)
    assert nn.Embedding(4, 0)(Tensor([1, 3])).shape == (2, 0)
    assert nn.Embedding(0, 3)(Tensor([], dtype="int64")).shape == (0, 3)
    assert nn.PReLU(0)(Tensor.ones(2, 0)).shape == (2, 0)
    assert nn.init.kaiming_uniform_(Tensor.ones(3, 0)).shape == (3, 0)
