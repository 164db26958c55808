"""Functions of `nn.functional` and the layers made of them, against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, dtypes, nn
from tilegrad.base.errors import ConfigError, DTypeError, ShapeError, TilegradError

Array = npt.NDArray[Any]
F = nn.functional
rng = np.random.default_rng(0)
X = rng.normal(size=(2, 4, 5, 6)).astype(np.float32)


def close(found: Tensor, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found.numpy(), wanted, rtol=rtol, atol=1e-6)


# each function and the module or the method of its name


@pytest.mark.parametrize(
    ("function", "layer"),
    [
        (F.relu, nn.ReLU()),
        (F.relu6, nn.ReLU6()),
        (F.leaky_relu, nn.LeakyReLU()),
        (F.elu, nn.ELU()),
        (F.celu, nn.CELU()),
        (F.selu, nn.SELU()),
        (F.gelu, nn.GELU()),
        (F.silu, nn.SiLU()),
        (F.mish, nn.Mish()),
        (F.glu, nn.GLU()),
        (F.sigmoid, nn.Sigmoid()),
        (F.logsigmoid, nn.LogSigmoid()),
        (F.hardsigmoid, nn.Hardsigmoid()),
        (F.hardswish, nn.Hardswish()),
        (F.hardtanh, nn.Hardtanh()),
        (F.hardshrink, nn.Hardshrink()),
        (F.softshrink, nn.Softshrink()),
        (F.softsign, nn.Softsign()),
        (F.softplus, nn.Softplus()),
        (F.tanh, nn.Tanh()),
        (F.tanhshrink, nn.Tanhshrink()),
        (lambda x: F.threshold(x, 0.5, 2.0), nn.Threshold(0.5, 2.0)),
        (lambda x: F.softmax(x, 1), nn.Softmax(1)),
        (lambda x: F.softmin(x, 1), nn.Softmin(1)),
        (lambda x: F.log_softmax(x, 1), nn.LogSoftmax(1)),
        (F.rrelu, nn.RReLU().eval()),
        (lambda x: F.max_pool2d(x, 3, 2, 1), nn.MaxPool2d(3, 2, 1)),
        (lambda x: F.avg_pool2d(x, 2), nn.AvgPool2d(2)),
        (lambda x: F.adaptive_avg_pool2d(x, 2), nn.AdaptiveAvgPool2d(2)),
        (lambda x: F.pixel_shuffle(x, 2), nn.PixelShuffle(2)),
        (lambda x: F.channel_shuffle(x, 2), nn.ChannelShuffle(2)),
        (lambda x: F.pad(x, (1, 2), "reflect"), nn.ReflectionPad2d((1, 2, 0, 0))),
    ],
)
def test_a_function_and_its_module_are_one_graph(function: Any, layer: Any) -> None:
    """Equal graphs are one node: what tests of the modules say is said of the functions."""
    x = Tensor(X)
    assert function(x).uop is layer(x).uop


def test_inplace_is_taken_and_gives_a_new_tensor() -> None:
    x = Tensor([-1.0, 1.0])
    assert F.relu(x, inplace=True).tolist() == [0.0, 1.0] and x.tolist() == [-1.0, 1.0]


def test_prelu_by_channel_and_its_error() -> None:
    weight = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    wanted = np.where(X < 0, X * weight[:, None, None], X)
    close(F.prelu(Tensor(X), Tensor(weight)), wanted)
    with pytest.raises(ShapeError, match=r"prelu: 3 weights for \(2, 4, 5, 6\)"):
        F.prelu(Tensor(X), Tensor.ones(3))


def test_draws_of_classes() -> None:
    """With temperature 1 the hard draws have the probabilities of softmax."""
    Tensor.manual_seed(0)
    logits = Tensor([0.0, 1.0, 2.0], requires_grad=True).reshape(3, 1).expand(3, 4000)
    hard = F.gumbel_softmax(logits, hard=True, dim=0)
    assert set(np.unique(hard.numpy())) <= {0.0, 1.0}
    e = np.exp([0.0, 1.0, 2.0])
    np.testing.assert_allclose(hard.numpy().mean(1), e / e.sum(), atol=0.03)


# windows


def windows(x: Array, k: tuple[int, int], s: int, d: int) -> list[tuple[int, int, Array]]:
    height, width = x.shape[-2:]
    found = []
    for i in range(0, height - d * (k[0] - 1), s):
        for j in range(0, width - d * (k[1] - 1), s):
            rows, columns = slice(i, i + d * (k[0] - 1) + 1, d), slice(j, j + d * (k[1] - 1) + 1, d)
            found.append((i, j, x[..., rows, columns]))
    return found


@pytest.mark.parametrize(("k", "s", "d", "p"), [((3, 2), 1, 1, 0), ((2, 2), 2, 2, 1)])
def test_columns_and_back(k: tuple[int, int], s: int, d: int, p: int) -> None:
    """Fold adds up what unfold took apart: with ones it counts the windows over each element."""
    padded = np.pad(X, ((0, 0), (0, 0), (p, p), (p, p)))
    wanted = np.stack([w.reshape(2, -1) for _, _, w in windows(padded, k, s, d)], -1)
    columns = nn.Unfold(k, d, p, s)(Tensor(X))
    close(columns, wanted)
    total = np.zeros_like(padded)
    for place, (_, _, view) in enumerate(windows(total, k, s, d)):
        view += wanted[:, :, place].reshape(view.shape)
    back = total[:, :, p : padded.shape[2] - p, p : padded.shape[3] - p]
    close(nn.Fold((5, 6), k, d, p, s)(columns), back)


def test_columns_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"fold: \(1, 4, 3\) are no columns of \(3, 3\)"):
        F.fold(Tensor.ones(1, 4, 3), (3, 3), 2)


def test_convolutions_without_a_batch_and_with_the_same_size() -> None:
    weight = rng.normal(size=(3, 4, 3, 3)).astype(np.float32)
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.stack(
        [np.einsum("nchw,ochw->no", w, weight) for _, _, w in windows(padded, (3, 3), 1, 1)], -1
    ).reshape(2, 3, 5, 6)
    close(F.conv2d(Tensor(X), Tensor(weight), padding="same"), wanted, 1e-4)
    close(F.conv2d(Tensor(X[0]), Tensor(weight), padding=1), wanted[0], 1e-4)
    layer = nn.Conv2d(4, 3, 3, padding=1, bias=False)
    layer.weight.assign(Tensor(weight)).realize()
    close(layer(Tensor(X[1])), wanted[1], 1e-4)
    with pytest.raises(ShapeError, match=r"conv2d: the input has 2 axes, not 4 \(or 3\)"):
        F.conv2d(Tensor(X[0, 0]), Tensor(weight))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_what_stands_beyond_the_border_of_a_convolution(mode: str) -> None:
    layer = nn.Conv1d(1, 1, 3, padding=2, padding_mode=mode, bias=False)
    layer.weight.assign(Tensor([[[1.0, 10.0, 100.0]]])).realize()
    x = np.arange(1.0, 5)
    word = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    wanted = np.convolve(np.pad(x, 2, mode=word), [100, 10, 1], "valid")  # type: ignore[call-overload]
    close(layer(Tensor(x[None, None].astype(np.float32))), wanted[None, None])
    with pytest.raises(ConfigError, match="Conv1d: unknown padding_mode 'mirror'"):
        nn.Conv1d(1, 1, 3, padding_mode="mirror")


def test_values_pooled_and_put_back() -> None:
    values, places = F.max_pool2d(Tensor(X), 2, return_indices=True)
    back = nn.MaxUnpool2d(2)(values, places, (5, 6)).numpy()
    kept = back != 0
    assert kept.sum() == values.numel()
    np.testing.assert_array_equal(back[kept], X[kept])
    x = Tensor(X[0, 0])
    close(F.avg_pool1d(x, 2, divisor_override=5), X[0, 0].reshape(5, 3, 2).sum(-1) / 5)
    cubes = np.abs(X[:, :, :4]).reshape(2, 2, 2, 2, 2, 3, 2)
    wanted = np.sqrt((cubes**2).sum((2, 4, 6)))
    close(F.lp_pool3d(Tensor(X[:, :, :4]), 2.0, 2), wanted)


# grids


@pytest.mark.parametrize("corners", [False, True])
def test_the_grid_of_an_affine_map(corners: bool) -> None:
    theta = rng.normal(size=(2, 2, 3))

    def line(n: int) -> Array:
        return np.linspace(-1, 1, n) if corners else (np.arange(n) * 2 + 1) / n - 1

    y, x = np.meshgrid(line(3), line(4), indexing="ij")
    places = np.stack([x, y, np.ones_like(x)], -1)
    wanted = np.einsum("hwk,nck->nhwc", places, theta)
    close(F.affine_grid(Tensor(theta), (2, 1, 3, 4), corners), wanted)
    with pytest.raises(ShapeError, match=r"affine_grid: theta \(2, 2, 3\) for size \(2, 1, 3\)"):
        F.affine_grid(Tensor(theta), (2, 1, 3))


# tables


def test_the_padding_row_of_an_embedding() -> None:
    layer = nn.Embedding(4, 2, padding_idx=-4)
    assert layer.padding_idx == 0 and layer.weight[0].tolist() == [0.0, 0.0]
    layer(Tensor([0, 1, 1, 0])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
    frozen = nn.Embedding.from_pretrained(Tensor([[1.0], [2.0]]))
    assert frozen(Tensor([1])).tolist() == [[2.0]] and frozen.weight.requires_grad is False
    with pytest.raises(ConfigError, match="Embedding: padding_idx 4 is none of 4 rows"):
        nn.Embedding(4, 2, padding_idx=4)


def test_rows_that_a_lookup_shortens() -> None:
    """In the table itself; the gradient is that of the shorter row, over how often it is read."""
    table = np.array([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]], np.float32)
    layer = nn.Embedding(3, 2, max_norm=1.0, scale_grad_by_freq=True)
    layer.weight.assign(Tensor(table))
    rows = layer(Tensor([[0, 1], [0, 0]]))
    expected = np.array([[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], np.float32)
    close(rows, expected[[[0, 1], [0, 0]]])
    close(layer.weight, expected)
    rows.square().sum().backward()
    assert layer.weight.grad is not None
    close(layer.weight.grad, 2 * expected * [[1], [1], [0]])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    """As rows, and by offsets, with an empty bag; the padding row does not count."""
    table = rng.normal(size=(5, 3)).astype(np.float32)
    fold = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    layer = nn.EmbeddingBag(5, 3, mode=mode, padding_idx=1)
    layer.weight.assign(Tensor(table)).realize()
    rows = layer(Tensor([[0, 1, 4], [2, 3, 2], [1, 1, 1]]))
    wanted = [fold(table[[0, 4]], 0), fold(table[[2, 3, 2]], 0), np.zeros(3)]  # type: ignore[operator]
    close(rows, wanted)
    parts = layer(Tensor([0, 1, 4, 2, 3]), Tensor([0, 3, 3]))
    close(parts, [wanted[0], np.zeros(3), fold(table[[2, 3]], 0)])  # type: ignore[operator]


def test_bags_with_weights_and_errors() -> None:
    table = Tensor([[1.0], [10.0]])
    options = {"mode": "sum", "include_last_offset": True}
    scale = Tensor([1.0, 2.0, 3.0])
    found = F.embedding_bag(
        Tensor([0, 1, 1]), table, Tensor([0, 1, 3]), per_sample_weights=scale, **options
    )
    assert found.tolist() == [[1.0], [50.0]]
    with pytest.raises(ConfigError, match="embedding_bag: unknown mode 'min'"):
        F.embedding_bag(Tensor([[0]]), table, mode="min")
    with pytest.raises(ConfigError, match="weights need mode 'sum', not 'mean'"):
        F.embedding_bag(Tensor([[0]]), table, per_sample_weights=Tensor([[1.0]]))
    with pytest.raises(ShapeError, match=r"embedding_bag: indices \(2,\) without offsets"):
        F.embedding_bag(Tensor([0, 1]), table)
    with pytest.raises(DTypeError, match="Embedding: indices must be integers, not float32"):
        F.embedding(Tensor([0.0]), table)
    assert F.one_hot(Tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]


# dropout


def test_dropout_of_self_normalising_networks() -> None:
    """Mean 0 and variance 1 stay, and what is left out is one value."""
    Tensor.manual_seed(0)
    x = Tensor.randn(200, 200)
    y = nn.AlphaDropout(0.25).train()(x).numpy()
    assert y.mean() == pytest.approx(0, abs=0.02) and y.std() == pytest.approx(1, abs=0.02)
    least = -1.7580993408473766
    scale = 1 / math.sqrt((least**2 * 0.25 + 1) * 0.75)
    dropped = np.isclose(y, scale * least * 0.75)
    assert dropped.mean() == pytest.approx(0.25, abs=0.01)
    np.testing.assert_allclose(
        y[~dropped], x.numpy()[~dropped] * scale - scale * least * 0.25, atol=1e-5
    )
    whole = nn.FeatureAlphaDropout(0.5).train()(Tensor.zeros(8, 8, 4)).numpy()
    assert (whole == whole[:, :, :1]).all() and len(np.unique(whole)) == 2
    assert F.dropout(x, training=False) is x and nn.AlphaDropout().eval()(x) is x


# norms


def test_batch_norm_by_the_mean_of_all_batches() -> None:
    """momentum=None; and running statistics that are reset, or not kept."""
    layer = nn.BatchNorm1d(3, momentum=None, affine=False).train()
    batches = rng.normal(size=(3, 8, 3)).astype(np.float32)
    for batch in batches:
        layer(Tensor(batch))
        assert layer.running_mean is not None and layer.running_var is not None
        Tensor.realize(layer.running_mean, layer.running_var)
    close(layer.running_mean, batches.mean((0, 1)))
    close(layer.running_var, batches.var(1, ddof=1).mean(0))
    wanted = (batches[0] - batches.mean((0, 1))) / np.sqrt(batches.var(1, ddof=1).mean(0) + 1e-5)
    close(layer.eval()(Tensor(batches[0])), wanted)
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.weight is None
    bare = nn.BatchNorm1d(3, track_running_stats=False).eval()
    x = batches[0]
    close(bare(Tensor(x)), (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), 1e-4)
    assert list(bare.state_dict()) == ["weight", "bias"]


def test_instance_norm_with_running_statistics() -> None:
    layer = nn.InstanceNorm2d(4, track_running_stats=True).train()
    mean, var = X.mean((2, 3), keepdims=True), X.var((2, 3), keepdims=True)
    close(layer(Tensor(X)), (X - mean) / np.sqrt(var + 1e-5), 1e-4)
    running = 0.1 * X.mean((2, 3)).mean(0)
    spread = 0.9 + 0.1 * X.var((2, 3), ddof=1).mean(0)
    assert layer.running_mean is not None
    close(layer.running_mean, running)
    wanted = (X - running[:, None, None]) / np.sqrt(spread[:, None, None] + 1e-5)
    close(layer.eval()(Tensor(X)), wanted, 1e-4)
    assert list(nn.InstanceNorm1d(4).state_dict()) == []


def test_norms_of_the_last_axes_and_of_channels() -> None:
    x, w = Tensor(X), rng.normal(size=(5, 6)).astype(np.float32)
    mean = X.mean((2, 3), keepdims=True)
    centred = (X - mean) / np.sqrt(X.var((2, 3), keepdims=True) + 1e-5)
    close(F.layer_norm(x, (5, 6), Tensor(w), Tensor(w)), centred * w + w, 1e-4)
    size = np.sqrt((X**2).mean((2, 3), keepdims=True) + 2.0**-23)
    close(F.rms_norm(x, (5, 6), Tensor(w)), X / size * w)
    squares = np.pad(X**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    near = (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]) / 3
    close(nn.LocalResponseNorm(3, 0.5, 1.0)(x), X / (1 + 0.5 * near))
    for call, message in (
        (lambda: F.layer_norm(x, (4, 6)), r"layer_norm: \(2, 4, 5, 6\) does not end in \(4, 6\)"),
        (lambda: F.group_norm(x, 3), r"group_norm: \(2, 4, 5, 6\) has no 3 groups"),
        (lambda: F.local_response_norm(x[0, 0], 3), "local_response_norm: 3 channels of"),
    ):
        with pytest.raises(ShapeError, match=message):
            call()  # type: ignore[no-untyped-call]


# products, lists of parameters, where layers are


def test_bilinear() -> None:
    layer = nn.Bilinear(3, 4, 2)
    a, b = (rng.normal(size=(5, n)).astype(np.float32) for n in (3, 4))
    wanted = np.einsum("ni,oij,nj->no", a, layer.weight.numpy(), b) + layer.bias.numpy()  # type: ignore[union-attr]
    close(layer(Tensor(a), Tensor(b)), wanted)
    with pytest.raises(ShapeError, match=r"bilinear: \(5, 3\) and \(5, 3\) do not fit"):
        layer(Tensor(a), Tensor(a))


def test_lists_and_dicts_of_parameters() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.scales = nn.ParameterList([Tensor.ones(2)])
            self.named = nn.ParameterDict({"a": Tensor.zeros(3)})

    net = Net()
    net.scales.append(Tensor.ones(1))
    net.named["b"] = Tensor.ones(1)
    names = ["scales.0", "scales.1", "named.a", "named.b"]
    assert [name for name, _ in net.named_parameters()] == names
    assert all(p.requires_grad for p in net.parameters())


def test_layers_are_made_with_a_dtype() -> None:
    for layer in (
        nn.Linear(2, 3, dtype="float16", device="CPU"),
        nn.Conv2d(1, 2, 3, dtype=dtypes.float16),
        nn.BatchNorm2d(2, dtype="float16"),
        nn.Embedding(2, 2, dtype="float16"),
    ):
        assert layer.weight is not None
        assert layer.weight.dtype is dtypes.float16 and layer.weight.requires_grad
    with pytest.raises(TilegradError):
        nn.Linear(2, 3, dtype="float7")
