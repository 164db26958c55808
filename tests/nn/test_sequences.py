"""Recurrent layers, attention, transformers and first values: NumPy as the oracle, and PyTorch
where it is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.utils import rnn

Array = npt.NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def step(kind: str, x: Array, state: tuple[Array, ...], w: dict[str, Array]) -> tuple[Array, ...]:
    a = x @ w["weight_ih"].T + w["bias_ih"]
    b = state[0] @ w["weight_hh"].T + w["bias_hh"]
    if kind == "RNN":
        return (np.tanh(a + b),)
    if kind == "LSTM":
        i, f, g, o = np.split(a + b, 4, -1)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (ar, az, an), (br, bz, bn) = np.split(a, 3, -1), np.split(b, 3, -1)
    n, z = np.tanh(an + sigmoid(ar + br) * bn), sigmoid(az + bz)
    return ((1 - z) * n + z * state[0],)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers(kind: str) -> None:
    """Two layers in two directions, batch first, from zeros."""
    layer = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    weights = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    assert weights["weight_ih_l1_reverse"].shape[1] == 8
    x = numbers(2, 3, 3)
    sequence, ends = list(x.transpose(1, 0, 2)), []
    for number in range(2):
        ways = []
        for suffix in (f"_l{number}", f"_l{number}_reverse"):
            w = {name[: -len(suffix)]: v for name, v in weights.items() if name.endswith(suffix)}
            state: tuple[Array, ...] = (np.zeros((2, 4)), np.zeros((2, 4)))
            outputs = []
            for item in sequence[::-1] if "reverse" in suffix else sequence:
                state = step(kind, item, state, w)
                outputs.append(state[0])
            ways.append(outputs[::-1] if "reverse" in suffix else outputs)
            ends.append(state)
        sequence = [np.concatenate(pair, -1) for pair in zip(*ways)]
    y, last = layer(Tensor(x))
    h = last[0] if kind == "LSTM" else last
    Tensor.realize(y, h)
    np.testing.assert_allclose(y.numpy(), np.stack(sequence, 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h.numpy(), [end[0] for end in ends], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_cells_take_one_step(kind: str) -> None:
    cell = getattr(nn, f"{kind}Cell")(3, 4)
    w = {name: tensor.numpy() for name, tensor in cell.state_dict().items()}
    x, h, c = numbers(2, 3), numbers(2, 4, seed=1), numbers(2, 4, seed=2)
    given = (Tensor(h), Tensor(c)) if kind == "LSTM" else Tensor(h)
    found = cell(Tensor(x), given)
    expected = step(kind, x, (h, c), w)
    for ours, theirs in zip(found if kind == "LSTM" else (found,), expected):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-6)


def test_states_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="LSTM: the state does not fit"):
        nn.LSTM(3, 4)(Tensor.ones(2, 1, 3), (Tensor.ones(2, 1, 4), Tensor.ones(1, 1, 4)))
    with pytest.raises(ShapeError, match="GRU: the input has 2 features, the layer was made for 3"):
        nn.GRU(3, 4)(Tensor.ones(2, 1, 2))
    with pytest.raises(ConfigError, match="RNN: unknown nonlinearity 'sin'"):
        nn.RNN(3, 4, nonlinearity="sin")


def attention(layer: nn.MultiheadAttention, x: Array, mask: Array) -> tuple[Array, Array]:
    """By definition, item by item and head by head; `mask` (N, L, S) is true where hidden."""
    assert layer.in_proj_weight is not None and layer.in_proj_bias is not None
    w, b = layer.in_proj_weight.numpy(), layer.in_proj_bias.numpy()
    size = layer.embed_dim // layer.num_heads
    q, k, v = np.split(x @ w.T + b, 3, -1)
    out, weights = np.zeros(x.shape), np.zeros((len(x), x.shape[1], x.shape[1]))
    for n in range(len(x)):
        for h in range(layer.num_heads):
            part = slice(h * size, (h + 1) * size)
            scores = q[n, :, part] @ k[n, :, part].T / math.sqrt(size)
            e = np.where(mask[n], 0, np.exp(scores))
            p = e / e.sum(-1, keepdims=True)
            weights[n] += p / layer.num_heads
            out[n, :, part] = p @ v[n, :, part]
    assert layer.out_proj.bias is not None
    return out @ layer.out_proj.weight.numpy().T + layer.out_proj.bias.numpy(), weights


def test_attention_with_masks() -> None:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    x = numbers(2, 3, 4)
    hidden = np.array([[False, False, True], [False, False, False]])
    causal = np.triu(np.ones((3, 3), bool), 1)
    y, weights = layer(
        Tensor(x), Tensor(x), Tensor(x), key_padding_mask=Tensor(hidden), is_causal=True
    )
    expected, shares = attention(layer, x, hidden[:, None] | causal)
    Tensor.realize(y, weights)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights.numpy(), shares, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="3 heads do not divide embed_dim 4"):
        nn.MultiheadAttention(4, 3)


def test_names_are_pytorchs() -> None:
    layer = nn.TransformerDecoderLayer(4, 2, 8)
    names = set(layer.state_dict())
    assert {
        "self_attn.in_proj_weight", "self_attn.out_proj.bias", "multihead_attn.in_proj_bias",
        "linear1.weight", "linear2.bias", "norm3.weight",
    } <= names  # fmt: skip
    assert len(names) == 18
    assert (
        "layers.1.norm2.bias"
        in nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2).state_dict()
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(8, 8, batch_first=True),
        pytest.param(
            lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["lstm", "transformer"],
)
def test_it_learns(make: Callable[[], nn.Module]) -> None:
    """Which of two tokens came first: only place tells."""
    tokens = np.random.default_rng(0).integers(0, 4, size=(16, 3)).astype(np.int32)
    x, y = Tensor(tokens), Tensor(tokens[:, 0].copy())

    class Model(nn.Module):
        def __init__(self, body: nn.Module):
            self.embed, self.body, self.head = nn.Embedding(4, 8), body, nn.Linear(8, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            found = self.body(self.embed(tokens))
            return self.head((found[0] if isinstance(found, tuple) else found)[:, -1])

    Tensor.manual_seed(0)
    model = Model(make())
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.05)
    losses = []
    with Tensor.train():
        for _ in range(15):
            optimizer.zero_grad()
            loss = model(x).cross_entropy(y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_first_values() -> None:
    Tensor.manual_seed(0)
    w = Tensor.zeros(64, 48).contiguous().realize()
    bounds = {
        "xavier_uniform_": math.sqrt(6 / 112),
        "kaiming_uniform_": math.sqrt(2) * math.sqrt(3 / 48),
    }
    for name, bound in bounds.items():
        found = getattr(nn.init, name)(w)
        assert found is w
        assert 0.98 * bound < np.abs(w.numpy()).max() <= bound
    deviations = {
        "xavier_normal_": math.sqrt(2 / 112),
        "kaiming_normal_": math.sqrt(2 / 48),
    }
    for name, deviation in deviations.items():
        assert getattr(nn.init, name)(w).numpy().std() == pytest.approx(deviation, rel=0.05)
    q = nn.init.orthogonal_(w, 2.0).numpy()
    np.testing.assert_allclose(q.T @ q, 4 * np.eye(48), atol=1e-5)
    cut = nn.init.trunc_normal_(w, 1.0, 2.0, -1.0, 3.0).numpy()
    assert cut.min() >= -1 - 1e-5 and cut.max() <= 3 + 1e-5
    # Of a normal cut at one deviation the variance is 1 - 2 phi(1) / erf(1 / sqrt(2)).
    phi = math.exp(-0.5) / math.sqrt(2 * math.pi)
    share = 1 - 2 * phi / math.erf(1 / math.sqrt(2))
    assert cut.std() == pytest.approx(2 * math.sqrt(share), rel=0.05)
    kernel = nn.init.dirac_(Tensor.zeros(4, 2, 3).contiguous(), groups=2).numpy()
    assert kernel.sum() == 4 and all(kernel[i, i % 2, 1] == 1 for i in range(4))
    assert nn.init.calculate_gain("leaky_relu", 1.0) == 1.0
    with pytest.raises(ShapeError, match=r"xavier_uniform_: \(2,\) has no inputs"):
        nn.init.xavier_uniform_(Tensor.zeros(2))


@pytest.mark.parametrize(
    "name",
    [
        "kaiming_normal_", "kaiming_uniform_", "normal_", "orthogonal_", "trunc_normal_",
        "uniform_", "xavier_normal_", "xavier_uniform_",
    ],
)  # fmt: skip
def test_integers_take_no_random_numbers(name: str) -> None:
    """They would be rounded to a few numbers, most of them 0. PyTorch raises the same class."""
    given = Tensor.ones(3, 4, dtype="int32").contiguous().realize()
    with pytest.raises(NotImplementedError, match="a float dtype is needed, not int32"):
        getattr(nn.init, name)(given)
    assert given.tolist() == [[1] * 4] * 3
    torch = pytest.importorskip("torch")
    with pytest.raises(NotImplementedError):
        getattr(torch.nn.init, name)(torch.ones(3, 4, dtype=torch.int32))


@pytest.mark.parametrize("norm_first", [False, True])
def test_pytorch_agrees(norm_first: bool) -> None:
    torch = pytest.importorskip("torch")
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "activation": "gelu"}
    pairs = [
        (
            torch.nn.Transformer(8, 2, 1, 2, 16, **options),
            nn.Transformer(8, 2, 1, 2, 16, **options),
        ),
        (
            torch.nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True),
            nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True),
        ),
    ]
    inputs = [
        (numbers(2, 5, 8), numbers(2, 3, 8)),
        (numbers(2, 5, 8), numbers(2, 3, 4), numbers(2, 3, 6)),
    ]
    for (theirs, ours), arrays in zip(pairs, inputs):
        names = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
        nn.state.load_state_dict(ours, names)
        expected = theirs(*map(torch.from_numpy, arrays))
        found = ours(*map(Tensor, arrays))
        if isinstance(expected, tuple):
            expected, found = expected[0], found[0]
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "lengths"),
    [("LSTM", [5, 6]), ("RNN", [3, 2, 1])],
)
def test_packed_sequences_run_as_each_alone(kind: str, lengths: list[int]) -> None:
    """In both directions, in any order, as a loop or written out."""
    Tensor.manual_seed(1)
    layer = getattr(nn, kind)(2, 3, bidirectional=True)
    rows = [Tensor.randn(length, 2).realize() for length in lengths]
    made, end = layer(rnn.pack_sequence(rows, enforce_sorted=False))
    ends = list(end) if kind == "LSTM" else [end]
    for place, (ours, row) in enumerate(zip(rnn.unpack_sequence(made), rows, strict=True)):
        output, last = layer(row)
        np.testing.assert_allclose(ours.numpy(), output.numpy(), atol=1e-5)
        for all_ends, one in zip(ends, list(last) if kind == "LSTM" else [last], strict=True):
            np.testing.assert_allclose(all_ends[:, place].numpy(), one.numpy(), atol=1e-5)


def test_what_stands_beyond_a_length_has_no_part() -> None:
    """Neither in values nor in gradients, whatever it is."""
    layer: Any = nn.RNN(2, 3)
    found = []
    for beyond in (0.0, 100.0):
        x = np.full((6, 2, 2), beyond, np.float32)
        x[:5, 0], x[:2, 1] = numbers(5, 2, seed=1), numbers(2, 2, seed=2)
        packed = rnn.pack_padded_sequence(Tensor(x), [5, 2])
        made, _ = layer(packed)
        found.append(made.data.square().sum().gradient(layer.weight_hh_l0)[0].numpy())
    assert np.abs(found[0]).max() > 0
    np.testing.assert_array_equal(found[0], found[1])


def test_what_cannot_be_packed() -> None:
    x = Tensor.zeros(4, 2, 3)
    with pytest.raises(ShapeError, match=r"lengths \[2, 3\] do not fall"):
        rnn.pack_padded_sequence(x, [2, 3])
    with pytest.raises(ShapeError, match=r"lengths \[5, 1\] of 2 sequences of 4 steps"):
        rnn.pack_padded_sequence(x, [5, 1])
    packed = rnn.pack_padded_sequence(x, [3, 2])
    assert packed.batch_sizes.tolist() == [2, 2, 1]
    with pytest.raises(ShapeError, match="total_length 2, the longest has 3"):
        rnn.pad_packed_sequence(packed, total_length=2)
    padded, lengths = rnn.pad_packed_sequence(packed, padding_value=-1.0, total_length=5)
    assert (padded.shape, lengths.tolist()) == ((5, 2, 3), [3, 2])
    assert padded[:, 1, 0].tolist() == [0.0, 0.0, -1.0, -1.0, -1.0]


def test_keys_that_are_always_there() -> None:
    """A learned key and one of zeros, which no mask hides: the weights of all others are shared
    with them, and a row without any other key has a result.
    """
    layer = nn.MultiheadAttention(4, 2, 0.0, True, True, True, batch_first=True)
    x = Tensor(numbers(1, 3, 4))
    hidden = Tensor([[True, True, True]])
    made, weights = layer(x, x, x, key_padding_mask=hidden)
    assert weights is not None
    assert (made.shape, weights.shape) == ((1, 3, 4), (1, 3, 5))
    np.testing.assert_allclose(weights.numpy()[..., :3], 0.0)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, rtol=1e-5)
    size = layer.embed_dim
    assert layer.in_proj_weight is not None and layer.bias_k is not None
    q = (x.numpy()[0] @ layer.in_proj_weight.numpy()[:size].T).reshape(3, 2, 2)
    fit = (q * layer.bias_k.numpy().reshape(2, 2)).sum(-1) / math.sqrt(2)
    np.testing.assert_allclose(weights.numpy()[0, :, 3], sigmoid(fit).mean(1), rtol=1e-4)
