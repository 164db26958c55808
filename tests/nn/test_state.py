"""Finding tensors, and carrying them to files and back."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor, dtypes, jit, nn
from tilegrad.base.errors import DataError, DTypeError, ShapeError
from tilegrad.engine.run.run import recording
from tilegrad.io.safetensors import Entry, read_safetensors, write_safetensors
from tilegrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)


class Net:
    def __init__(self) -> None:
        self.layers = [nn.Linear(3, 4), Tensor.relu, nn.BatchNorm(4)]
        self.head = {"out": nn.Linear(4, 2, bias=False)}
        self.name = "net"

    def __call__(self, x: Tensor) -> Tensor:
        return self.head["out"](x.sequential(self.layers))


NAMES = [
    "layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias", "layers.2.running_mean",
    "layers.2.running_var", "layers.2.num_batches_tracked", "head.out.weight",
]  # fmt: skip


def test_names_are_the_way_to_a_tensor() -> None:
    net = Net()
    found = get_state_dict(net)
    assert sorted(found) == sorted(NAMES)
    assert found["head.out.weight"] is net.head["out"].weight
    assert list(get_state_dict(net, "model")) == [f"model.{name}" for name in found]
    assert get_state_dict(net.head["out"].weight, "w") == {"w": net.head["out"].weight}


def test_tuples_named_tuples_and_slots() -> None:
    class Slotted:
        __slots__ = ("absent", "weight")

        def __init__(self) -> None:
            self.weight = Tensor.ones(1)

    Pair = namedtuple("Pair", ["left", "right"])
    model = (Pair(Tensor.ones(2), [Tensor.ones(3)]), Slotted())
    assert list(get_state_dict(model)) == ["0.left", "0.right.0", "1.weight"]


def test_cycles_and_shared_parts() -> None:
    """An object is walked once; a tensor of two objects has two names and is one parameter."""

    class Node:
        def __init__(self, parent: Any = None):
            self.parent, self.weight = parent, Tensor.ones(1)

    root = Node()
    root.child = Node(root)  # type: ignore[attr-defined]
    root.child.tied = root.weight  # type: ignore[attr-defined]
    assert sorted(get_state_dict(root)) == ["child.tied", "child.weight", "weight"]
    assert len(get_parameters(root)) == 2
    nested: list[Any] = [Tensor.ones(1)]
    nested.append(nested)
    assert list(get_state_dict(nested)) == ["0"]


def test_a_deep_model_needs_no_recursion() -> None:
    model: Any = Tensor.ones(1)
    for _ in range(5000):
        model = [model]
    assert len(get_parameters(model)) == 1


def test_two_tensors_of_one_name() -> None:
    with pytest.raises(DataError, match=r"two tensors are called 'a\.b'"):
        get_state_dict({"a": {"b": Tensor.ones(1)}, "a.b": Tensor.zeros(1)})


def test_functions_classes_and_modules_are_not_walked() -> None:
    class Model:
        kind = Tensor.ones(1)

    assert get_state_dict([Model, lambda x: x, np, "text", 3, None, np.ones(3)]) == {}


def filled(net: Net) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays that fit the model."""
    rng = np.random.default_rng(5)
    return {
        name: rng.integers(0, 9, tensor.shape)
        if name.endswith("tracked")
        else rng.normal(size=tensor.shape)
        for name, tensor in get_state_dict(net).items()
    }


def values(net: Net) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in get_state_dict(net).items()}


def test_load_writes_in_place() -> None:
    net = Net()
    tensors = get_state_dict(net)
    arrays = filled(net)
    assert load_state_dict(net, arrays) == ([], [])
    assert get_state_dict(net) == tensors
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor.numpy(), arrays[name].astype(tensor.dtype.name))
    assert tensors["layers.0.weight"].requires_grad


def test_what_is_loaded_is_copied() -> None:
    """Two models, and the tensors they were loaded from, share no memory: not even zeros do."""
    source = {"w": Tensor([1.0, 2.0]).realize(), "zeros": Tensor([3.0, 4.0]).realize()}
    models = [{"w": Tensor.ones(2, requires_grad=True), "zeros": Tensor.zeros(2)} for _ in range(2)]
    for model in models:
        load_state_dict(model, source)
    for tensor in models[0].values():
        tensor.assign(tensor * 10).realize()
    assert {name: tensor.tolist() for name, tensor in models[1].items()} == {
        "w": [1.0, 2.0],
        "zeros": [3.0, 4.0],
    }
    assert source["zeros"].tolist() == [3.0, 4.0]


@pytest.mark.usefixtures("nothing_known")
def test_loading_a_new_model_draws_no_first_values() -> None:
    layer = nn.Linear(512, 256, bias=False)
    weight = np.arange(1 << 17, dtype=np.float32).reshape(256, 512)
    work = GlobalCounters
    before, ops, kernels = work.mem_used, work.global_ops, work.kernel_count
    with recording() as steps:
        load_state_dict(layer, {"weight": weight})
    assert (work.global_ops - ops, work.kernel_count - kernels, len(steps)) == (0, 0, 1)
    assert work.mem_used - before == weight.nbytes
    np.testing.assert_array_equal(layer.weight.numpy(), weight)


def test_loading_what_is_made_of_the_model() -> None:
    """Two layers exchange their weights."""
    model = [nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)]
    first, second = [layer.weight.tolist() for layer in model]
    load_state_dict(model, {"0.weight": model[1].weight, "1.weight": model[0].weight.T.T})
    assert [layer.weight.tolist() for layer in model] == [second, first]
    load_state_dict(model, {"0.weight": model[0].weight * 2, "1.weight": model[0].weight + 1})
    assert model[0].weight.tolist() == [[2 * x for x in row] for row in second]
    assert model[1].weight.tolist() == np.float32(second).__add__(np.float32(1)).tolist()


def test_weights_in_memory_are_loaded_without_a_run() -> None:
    source = [nn.Linear(3, 4), nn.Linear(4, 2)]
    other = [nn.Linear(3, 4), nn.Linear(4, 2)]
    weights = get_state_dict(source)
    expected = {name: tensor.numpy() for name, tensor in weights.items()}
    [tensor.numpy() for tensor in get_parameters(other)]
    kernels = GlobalCounters.kernel_count
    load_state_dict(other, weights)
    for name, tensor in get_state_dict(other).items():
        np.testing.assert_array_equal(tensor.numpy(), expected[name])
    assert GlobalCounters.kernel_count == kernels


def test_what_waits_has_the_weights_from_before_loading() -> None:
    """Values and gradients of a graph that was made before; those made after have the new."""
    layer, new = nn.Linear(2, 1, bias=False), Tensor([[5.0, 7.0]]).realize()
    first = np.array(layer.weight.tolist(), np.float32)
    x = Tensor([[1.0, 2.0]])
    alias = layer.weight.detach()
    before = (layer(x) ** 2).sum()
    load_state_dict(layer, {"weight": new})
    after = (layer(x) ** 2).sum()
    product = first @ np.float32([1, 2])
    np.testing.assert_allclose(before.item(), product.item() ** 2, rtol=1e-5)
    assert after.item() == 19.0**2
    assert alias.tolist() == [[5.0, 7.0]]
    after.backward()
    assert layer.weight.grad is not None
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[38.0, 76.0]])
    assert layer.weight.requires_grad


def test_a_captured_function_has_the_weights_that_are_loaded() -> None:
    layer = nn.Linear(2, 1, bias=False)
    run = jit(lambda x: layer(x))
    for _ in range(3):
        run(Tensor([[1.0, 2.0]]).realize())
    load_state_dict(layer, {"weight": Tensor([[5.0, 7.0]]).realize()})
    assert run(Tensor([[1.0, 2.0]]).realize()).tolist() == [[19.0]]


def test_a_parameter_of_two_names_is_loaded_once() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    load_state_dict([weight, weight], {"0": np.array([3.0, 4.0]), "1": np.array([3.0, 4.0])})
    weight.square().sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0, 8.0]


def test_missing_and_unexpected_names() -> None:
    net = Net()
    arrays = filled(net)
    before = values(net)
    arrays["tail.weight"] = arrays.pop("head.out.weight")
    with pytest.raises(DataError, match="1 names are missing, 1 are unexpected") as caught:
        load_state_dict(net, arrays)
    assert "missing:    head.out.weight" in str(caught.value)
    assert "unexpected: tail.weight" in str(caught.value)
    assert values(net) == before
    unmatched = load_state_dict(net, arrays, strict=False)
    assert unmatched.missing == ["head.out.weight"]
    assert unmatched.unexpected == ["tail.weight"]
    np.testing.assert_allclose(net.layers[0].bias.numpy(), arrays["layers.0.bias"], rtol=1e-6)  # type: ignore[union-attr]
    assert values(net)["head.out.weight"] == before["head.out.weight"]


def test_other_shapes_load_nothing() -> None:
    net = Net()
    before = values(net)
    arrays = filled(net)
    arrays["layers.2.bias"] = np.zeros((4, 1))
    arrays["head.out.weight"] = np.zeros((2, 5))
    with pytest.raises(ShapeError, match="2 tensors have another shape") as caught:
        load_state_dict(net, arrays, strict=False)
    assert "head.out.weight: (2, 5) for (2, 4)" in str(caught.value)
    assert values(net) == before


def test_other_kinds_of_dtype_load_nothing() -> None:
    net = Net()
    before = values(net)
    arrays = filled(net)
    arrays["layers.0.bias"] = np.zeros(4, np.int32)
    with pytest.raises(DTypeError, match="1 tensors have another kind of dtype") as caught:
        load_state_dict(net, arrays)
    assert "layers.0.bias: int32 for float32" in str(caught.value)
    assert values(net) == before


def test_a_file_there_and_back(tmp_path: Path) -> None:
    """A trained model and its optimizer: what is loaded goes on as what was saved."""

    def step(net: Net, optimizer: nn.optim.Optimizer) -> None:
        x = Tensor(np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32))
        with Tensor.train():
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()

    first, second = Net(), Net()
    optimizers = [nn.optim.Adam(get_parameters(net)) for net in (first, second)]
    for _ in range(3):
        step(first, optimizers[0])
    path = tmp_path / "model.safetensors"
    safe_save(get_state_dict([first, optimizers[0]]), path, {"steps": "3"})
    assert safe_load_metadata(path) == {"steps": "3"}
    load_state_dict([second, optimizers[1]], safe_load(path))
    assert values(second) == values(first)
    for net, optimizer in zip((first, second), optimizers, strict=True):
        step(net, optimizer)
    assert values(second) == values(first)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_every_dtype(tmp_path: Path, dtype: Any) -> None:
    tensors = {
        "some": Tensor([0, 1, 1, 0]).cast(dtype),
        "one": Tensor(1).cast(dtype),
        "none": Tensor.zeros(0, 3, dtype=dtype),
        "view": Tensor([[0, 1], [1, 1]]).cast(dtype).transpose(),
    }
    safe_save(tensors, tmp_path / "all")
    loaded = safe_load(tmp_path / "all")
    assert sorted(loaded) == sorted(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype is dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].tolist() == tensor.tolist()


def test_bfloat16_keeps_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "bits"
    safe_save({"x": Tensor([1.0, -2.5, 3.14159]).cast(dtypes.bfloat16)}, path)
    entry = read_safetensors(path)["x"]
    assert entry.dtype_name == "bfloat16"
    assert [hex(bits) for bits in entry.data.tolist()] == ["0x3f80", "0xc020", "0x4049"]


def test_dtypes_that_tensors_lack(tmp_path: Path) -> None:
    path = tmp_path / "f8"
    write_safetensors(path, {"x": Entry("float8_e8m0fnu", (2,), np.zeros(2, np.uint8))})
    with pytest.raises(DTypeError, match="safe_load: the file holds dtypes") as caught:
        safe_load(path)
    assert "x: float8_e8m0fnu" in str(caught.value)


def test_what_is_no_tensor_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match="safe_save: 'x' is a list, not a Tensor"):
        safe_save({"x": [1.0]}, tmp_path / "x")  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_changes_nothing(tmp_path: Path) -> None:
    net = Net()
    path = tmp_path / "model"
    safe_save(get_state_dict(net), path)
    before = values(net)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="the file is truncated"):
        load_state_dict(net, safe_load(path))
    assert values(net) == before


def test_saving_into_the_file_that_was_loaded(tmp_path: Path) -> None:
    """Loaded tensors hold copies: the file may be replaced under them."""
    path = tmp_path / "x"
    safe_save({"x": Tensor([1.0, 2.0])}, path)
    loaded = safe_load(path)
    safe_save({"x": loaded["x"] + 1}, path)
    assert loaded["x"].tolist() == [1.0, 2.0]
    assert safe_load(path)["x"].tolist() == [2.0, 3.0]


def test_a_file_without_counts_of_batches_loads_as_in_pytorch() -> None:
    """PyTorch had none before 1.0, and tinygrad's converters leave them out."""
    layer = nn.Sequential(nn.BatchNorm2d(2))
    weights = nn.state.get_state_dict(layer)
    del weights["0.num_batches_tracked"]
    assert layer.load_state_dict(weights) == ([], [])
    assert nn.state.load_state_dict(layer, weights) == ([], [])
    del weights["0.running_mean"]
    with pytest.raises(DataError, match="1 names are missing"):
        layer.load_state_dict(weights)


def test_a_count_of_batches_is_read() -> None:
    layer = nn.BatchNorm1d(2)
    assert list(layer.state_dict())[-1] == "num_batches_tracked"
    layer.load_state_dict({**layer.state_dict(), "num_batches_tracked": np.array(41)})
    layer(Tensor.ones(3, 2))
    assert layer.num_batches_tracked is not None
    assert (layer.num_batches_tracked.item(), layer.num_batches_tracked.dtype) == (42, dtypes.int64)
