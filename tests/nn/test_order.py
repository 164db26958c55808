"""In which order a model's tensors and layers stand: PyTorch's, so that an optimizer's file, which
numbers parameters, fits the same model here and there.
"""

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, nn


class Block(nn.Module):
    """Tensors of its own behind layers, and between them."""

    def __init__(self) -> None:
        self.body = nn.Linear(2, 2)
        self.scale = nn.Parameter(Tensor.zeros(2))
        self.register_buffer("count", Tensor.zeros(2))
        self.norm = nn.BatchNorm1d(2)
        self.shift = nn.Parameter(Tensor.ones(1))


def names(found: Any) -> list[str]:
    return [name for name, _ in found]


@pytest.mark.row("P.1")
def test_own_parameters_come_before_those_of_layers() -> None:
    below = ["body.weight", "body.bias", "norm.weight", "norm.bias"]
    assert names(Block().named_parameters()) == ["scale", "shift", *below]


def test_own_buffers_come_before_those_of_layers() -> None:
    below = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert names(Block().named_buffers()) == ["count", *below]


def test_a_file_names_parameters_then_buffers_then_what_is_below() -> None:
    assert list(Block().state_dict())[:4] == ["scale", "shift", "count", "body.weight"]


def test_deeper_layers_keep_that_order() -> None:
    net = nn.Sequential(Block(), nn.PReLU(), Block())
    found = names(net.named_parameters())
    assert found[:3] == ["0.scale", "0.shift", "0.body.weight"]
    assert found[6:9] == ["1.weight", "2.scale", "2.shift"]


def test_a_shared_parameter_is_listed_where_it_is_met_first() -> None:
    net: Any = nn.Module()
    net.block = Block()
    net.tied = net.block.scale
    assert names(net.named_parameters())[:2] == ["tied", "block.shift"]


def test_a_shared_layer_is_listed_once_and_named_twice_in_a_file() -> None:
    net: Any = nn.Module()
    net.first = nn.Linear(1, 1)
    net.second = net.first
    assert names(net.named_parameters()) == ["first.weight", "first.bias"]
    assert names(net.named_children()) == ["first"]
    assert names(net.named_modules()) == ["", "first"]
    expected = ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert list(net.state_dict()) == expected


def test_a_layer_that_holds_itself_is_named_once() -> None:
    net: Any = nn.Module()
    net.layer = nn.Linear(1, 1, bias=False)
    net.layer.above = net
    assert list(net.state_dict()) == ["layer.weight"]


def test_what_was_none_stands_where_it_was_set() -> None:
    net: Any = nn.Module()
    net.late = None
    net.first = nn.Linear(1, 1, bias=False)
    net.late = nn.Linear(1, 1, bias=False)
    assert names(net.named_children()) == ["first", "late"]


def test_a_name_that_was_registered_keeps_its_position() -> None:
    net: Any = nn.Module()
    net.register_parameter("early", None)
    net.weight = nn.Parameter(Tensor.zeros(1))
    net.early = nn.Parameter(Tensor.zeros(1))
    assert names(net.named_parameters()) == ["early", "weight"]


def test_a_plain_dict_of_parameters_is_sorted_and_an_ordered_one_is_not() -> None:
    parts = {"z": Tensor.zeros(1), "a": Tensor.zeros(1)}
    assert list(nn.ParameterDict(parts).state_dict()) == ["a", "z"]
    assert list(nn.ParameterDict(OrderedDict(parts)).state_dict()) == ["z", "a"]


def test_attention_lists_its_biases_before_the_projection() -> None:
    found = names(nn.MultiheadAttention(4, 2, add_bias_kv=True).named_parameters())
    own = ["in_proj_weight", "in_proj_bias", "bias_k", "bias_v"]
    assert found == [*own, "out_proj.weight", "out_proj.bias"]


def test_the_layers_of_a_transformer() -> None:
    layer = nn.TransformerDecoderLayer(4, 2, 8)
    assert names(layer.named_children()) == [
        "self_attn", "multihead_attn", "linear1", "dropout", "linear2",
        "norm1", "norm2", "norm3", "dropout1", "dropout2", "dropout3",
    ]  # fmt: skip
    assert names(nn.TransformerDecoder(layer, 1).named_children()) == ["layers"]


@pytest.mark.row("P.1")
def test_an_optimizers_file_from_pytorch_meets_the_same_parameters() -> None:
    """Parameter i of the file has the momentum i; PyTorch numbers scale, shift, body, norm."""
    model = Block()
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sizes = [(2,), (1,), (2, 2), (2,), (2,), (2,)]
    given = optimizer.state_dict()
    given["state"] = {
        i: {"momentum_buffer": Tensor(np.full(size, float(i + 1), "f4"))}
        for i, size in enumerate(sizes)
    }
    optimizer.load_state_dict(given)
    for parameter in model.parameters():
        parameter.grad = Tensor.zeros(*parameter.shape)
    before = {name: tensor.numpy().copy() for name, tensor in model.named_parameters()}
    with Tensor.train():
        optimizer.step()
    order = ["scale", "shift", "body.weight", "body.bias", "norm.weight", "norm.bias"]
    for i, name in enumerate(order):
        moved = before[name] - model.get_parameter(name).numpy()
        np.testing.assert_allclose(moved, 0.1 * 0.9 * (i + 1), rtol=1e-4)


# A layer, and the arguments of its constructor.
LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Linear", (3, 2), {}),
    ("Bilinear", (2, 3, 4), {}),
    ("Conv2d", (4, 2, 3), {}),
    ("ConvTranspose2d", (4, 2, 3), {}),
    ("BatchNorm2d", (4,), {}),
    ("InstanceNorm1d", (4,), {"affine": True, "track_running_stats": True}),
    ("GroupNorm", (2, 4), {}),
    ("LayerNorm", (4,), {}),
    ("RMSNorm", (4,), {}),
    ("Embedding", (4, 3), {}),
    ("EmbeddingBag", (4, 3), {}),
    ("PReLU", (), {}),
    ("RNN", (3, 4), {"num_layers": 2, "bidirectional": True}),
    ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True}),
    ("GRU", (3, 4), {"num_layers": 2}),
    ("LSTMCell", (3, 4), {}),
    ("MultiheadAttention", (8, 2), {"add_bias_kv": True, "kdim": 4, "vdim": 6}),
    ("TransformerEncoderLayer", (8, 2, 16), {}),
    ("TransformerDecoderLayer", (8, 2, 16), {}),
    ("Transformer", (8, 2, 1, 1, 16), {}),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "args", "options"), LAYERS, ids=[case[0] for case in LAYERS])
def test_the_order_is_that_of_pytorch(name: str, args: Any, options: Any) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    for listing in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert names(getattr(ours, listing)()) == names(getattr(theirs, listing)())
    assert list(ours.state_dict()) == list(theirs.state_dict())
