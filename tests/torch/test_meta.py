"""The device `meta`: shapes and dtypes without memory. Texts are PyTorch's."""

from __future__ import annotations

import copy
import pickle

import pytest

import tilegrad.torch as torch
from tilegrad.base.trace import GlobalCounters
from tilegrad.torch import nn


@pytest.mark.usefixtures("nothing_known")
def test_shapes_and_dtypes_are_computed_and_nothing_else() -> None:
    before = GlobalCounters.mem_used
    x = torch.empty(100_000, 100_000, device="meta")
    y = (x @ torch.empty(100_000, 5, device="meta")).relu().argmax(dim=1)
    assert y.shape == (100_000,)
    assert y.is_meta and y.device == torch.device("meta")
    assert repr(y) == "tensor(..., device='meta', size=(100000,), dtype=torch.int64)"
    assert nn.Linear(100_000, 100_000, device="meta").weight.is_meta
    assert GlobalCounters.mem_used == before


def test_values_are_refused() -> None:
    x = torch.empty(1, device="meta")
    with pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
        x.item()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        x.tolist()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        x.to("cpu")
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        x.numpy()


def test_a_module_gets_memory_by_to_empty_or_by_assigned_weights() -> None:
    with torch.device("meta"):
        made = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert all(each.is_meta for each in [*made.parameters(), *made.buffers()])
    with pytest.raises(NotImplementedError, match="to_empty"):
        made.to("cpu")
    source = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    first = made[0].weight
    made.to_empty(device="cpu")
    assert made[0].weight is first
    assert first.device.type == "cpu" and first.requires_grad
    other = nn.Sequential(nn.Linear(3, 2, device="meta"), nn.BatchNorm1d(2, device="meta"))
    other.load_state_dict(source.state_dict(), assign=True)
    assert isinstance(other[0].weight, nn.Parameter)
    x = torch.ones(4, 3)
    assert torch.equal(other.eval()(x), source.eval()(x))


def test_an_index_without_a_value_picks_a_shape() -> None:
    at = torch.zeros((), dtype=torch.long, device="meta")
    assert torch.ones(3, 4, device="meta")[at].shape == (4,)
    assert torch.ones(3, 4, device="meta")[torch.tensor(1)].shape == (4,)


@pytest.mark.parametrize("name", ["null:NV:sm_80", "emu:CL", "cpu", "cuda:1", "meta"])
def test_a_device_keeps_all_of_its_name(name: str) -> None:
    """`NULL` alone is PyTorch's meta; with another device's name it compiles for that device."""
    found = torch.device(name)
    assert str(found) == name and found == torch.device(str(found))
    assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)
    assert str.__str__(pickle.loads(pickle.dumps(found))) == str.__str__(found)


def test_a_program_compiles_for_hardware_that_is_not_here() -> None:
    with torch.device("null:NV:sm_80"):
        layer = torch.nn.Linear(4, 3)
        with torch.no_grad():
            layer.weight.copy_(torch.ones(3, 4))
        found = layer(torch.ones(2, 4))
    assert not found.is_meta and str(found.device).lower() == "null:nv:sm_80"
    assert found.detach().numpy().shape == (2, 3)
