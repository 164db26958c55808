"""Tensors over several devices: they compute what a tensor of one device does.

The devices are APART, whose memory only they can reach, or CPU, CPU:1, ..., where that would be
slow. What is checked against is NumPy or a tensor of one device.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.device.apart import apart
from tilegrad import Context, Tensor, Variable, dtypes, func, nn
from tilegrad.base.errors import DeviceError, IndexBoundsError, ShapeError
from tilegrad.base.trace import GlobalCounters
from tilegrad.engine.run.run import recording

TWO = ("CPU", "CPU:1")
THREE = ("CPU", "CPU:1", "CPU:2")


@pytest.fixture
def devices() -> Iterator[tuple[str, ...]]:
    with apart():
        yield ("APART", "APART:1")


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


# what a tensor says of itself


@pytest.mark.row("M6.1")
def test_devices_axis_bounds_and_shards(devices: tuple[str, ...]) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).shard_(("APART:0", "APART:1"), axis=0)
    assert x.device == devices and x.shape == (4,)
    assert x.sharding is not None
    assert (x.sharding.devices, x.sharding.axis) == (devices, 0)
    assert x.sharding.bounds == ((0, 2), (2, 4))
    shards = x.shards()
    assert [(each.device, each.shape) for each in shards] == [("APART", (2,)), ("APART:1", (2,))]
    assert [each.tolist() for each in shards] == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.row("M6.1")
def test_sizes_that_do_not_divide_give_the_first_devices_one_more() -> None:
    x = Tensor.arange(8).reshape(1, 8).shard(THREE, axis=-1)
    assert x.sharding is not None and x.sharding.axis == 1
    assert x.sharding.bounds == ((0, 3), (3, 6), (6, 8))
    assert [each.tolist() for each in x.shards()] == [[[0, 1, 2]], [[3, 4, 5]], [[6, 7]]]


@pytest.mark.row("M6.1")
def test_without_an_axis_each_device_has_all_of_it() -> None:
    x = Tensor([1, 2]).shard(TWO)
    assert x.sharding is not None and (x.sharding.axis, x.sharding.bounds) == (None, ())
    assert [(each.device, each.tolist()) for each in x.shards()] == [
        ("CPU", [1, 2]),
        ("CPU:1", [1, 2]),
    ]
    assert Tensor([1, 2]).to(TWO).sharding == x.sharding


def test_a_tensor_of_one_device() -> None:
    x = Tensor([1, 2])
    assert x.sharding is None and x.shards() == [x]
    assert x.shard(("CPU:1",), axis=0).device == "CPU:1"


def test_a_tensor_is_spread_as_another_one() -> None:
    x = Tensor(numbers(6, 2)).shard(TWO, 0)[1:]
    for other in (x, x.shard(TWO), x.to("CPU:1")):
        found = Tensor(numbers(5, 2)).shard_like(other)
        assert (found.device, found.sharding) == (other.device, other.sharding)
        np.testing.assert_array_equal((found - found * 2).numpy(), -numbers(5, 2))
    with pytest.raises(ShapeError, match=r"shard_like: \(2,\) is split as \(5, 2\) is"):
        Tensor([1.0, 2.0]).shard_like(x)


def test_printing_says_the_devices() -> None:
    x = Tensor([1.0, 2.0]).shard(TWO, 0)
    assert "on ('CPU', 'CPU:1')" in repr(x)
    assert str(x.realize()) == "Tensor([1., 2.], dtype=float32, device=('CPU', 'CPU:1'))"


@pytest.mark.parametrize(
    ("devices", "axis", "error", "said"),
    [
        (TWO, 2, IndexBoundsError, "shard: axis 2 is out of range for 2 axes"),
        (THREE, 1, ShapeError, "shard: axis 1 has 2 elements for 3 devices"),
        (("CPU", "CPU:0"), 0, DeviceError, "is no group of devices"),
        ((), 0, DeviceError, "is no group of devices"),
        (("CPU", "XPU"), 0, DeviceError, "'XPU' is unknown"),
        (("CPU", "HOST"), 0, DeviceError, "HOST computes nothing"),
    ],
)
def test_what_cannot_be_sharded(
    devices: tuple[str, ...], axis: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Tensor.ones(4, 2).shard(devices, axis)


def test_a_tensor_of_one_device_beside_one_of_several_is_refused() -> None:
    x, y = Tensor([1.0, 2.0]).shard(TWO, 0), Tensor([3.0, 4.0])
    with pytest.raises(DeviceError, match=r"add: operands are on two devices: \('CPU', 'CPU:1'\)"):
        x + y
    with pytest.raises(DeviceError, match="assign: operands are on two devices"):
        x.assign(y)
    assert (x + y.to(x.device)).tolist() == [4.0, 6.0]
    assert (x + 1).tolist() == [2.0, 3.0]


# values


@pytest.mark.row("M6.2")
def test_a_dot_product(devices: tuple[str, ...]) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).shard(devices, axis=0)
    y = Tensor([5.0, 6.0, 7.0, 8.0]).shard(devices, axis=0)
    assert x.dot(y).item() == 70.0


@pytest.mark.row("M6.6")
@pytest.mark.parametrize("right", [None, 0, 1])
@pytest.mark.parametrize("left", [None, 0, 1])
def test_operands_that_are_split_at_different_axes(
    left: int | None, right: int | None, devices: tuple[str, ...]
) -> None:
    x, y = numbers(4, 6), numbers(4, 6, seed=1)
    a, b = Tensor(x).shard(devices, left), Tensor(y).shard(devices, right)
    np.testing.assert_array_equal((a * b + 1).numpy(), x * y + 1)
    np.testing.assert_array_equal((a.realize() - b.realize()).realize().numpy(), x - y)


@pytest.mark.parametrize("right", [None, 0, 1])
@pytest.mark.parametrize("left", [None, 0, 1])
def test_matrix_products(left: int | None, right: int | None) -> None:
    x, y = numbers(5, 6), numbers(6, 7, seed=1)
    a, b = Tensor(x).shard(THREE, left), Tensor(y).shard(THREE, right)
    np.testing.assert_allclose((a @ b).numpy(), x @ y, rtol=1e-5, atol=1e-5)


def test_signs_of_zeros_and_nans_are_kept() -> None:
    x = np.array([-0.0, 0.0, np.nan, -np.inf, -0.0], np.float32)
    found = Tensor(x).shard(TWO, 0)
    for each in (found.to("CPU"), found.shard(THREE, 0), found.shard(TWO)):
        np.testing.assert_array_equal(each.numpy().view(np.uint32), x.view(np.uint32))


def test_all_devices_have_the_same_bits_of_a_sum() -> None:
    for devices, rows in ((TWO, 7), (THREE, 7), ((*THREE, "CPU:3"), 9)):
        shards = Tensor(numbers(rows, 40)).shard(devices, 0).sum(0).realize().shards()
        first, *others = [each.numpy() for each in shards]
        np.testing.assert_allclose(first, numbers(rows, 40).sum(0), rtol=1e-5, atol=1e-5)
        for each in others:
            np.testing.assert_array_equal(each, first)


def test_draws_are_those_of_one_device() -> None:
    def drawn(devices: Any) -> list[Any]:
        Tensor.manual_seed(5)
        one = Tensor.rand(6, 4, device=devices)
        Tensor.manual_seed(5)
        spread = Tensor.rand(6, 4).shard(TWO, 0) if devices is not None else Tensor.rand(6, 4)
        other = Tensor.rand_like(spread)
        return [one.numpy(), spread.numpy(), other.numpy(), spread.dropout(0.0).numpy()]

    for here, there in zip(drawn(None), drawn(TWO)):
        np.testing.assert_array_equal(here, there)


def test_what_is_made_on_several_devices() -> None:
    for made in (
        lambda device: Tensor.zeros(3, 2, device=device),
        lambda device: Tensor.full((2, 2), 7.0, device=device).contiguous(),
        lambda device: Tensor.arange(5, device=device),
        lambda device: Tensor([[1, 2], [3, 4]], device=device),
        lambda device: Tensor(numbers(3, 3), device=device),
    ):
        several, one = made(TWO), made("CPU")
        assert several.device == TWO
        np.testing.assert_array_equal(several.realize().numpy(), one.numpy())


Op = Callable[[Tensor, st.DataObject], Tensor]


def axis_of(x: Tensor, data: st.DataObject) -> int:
    return data.draw(st.integers(0, x.ndim - 1))


def sliced(x: Tensor, data: st.DataObject) -> Tensor:
    axis = axis_of(x, data)
    start = data.draw(st.integers(0, x.shape[axis] - 1))
    return x.narrow(axis, start, data.draw(st.integers(1, x.shape[axis] - start)))


def padded(x: Tensor, data: st.DataObject) -> Tensor:
    counts = st.tuples(st.integers(0, 2), st.integers(0, 2))
    return x.pad(tuple(data.draw(counts) for _ in range(x.ndim)))


def folded(x: Tensor, data: st.DataObject) -> Tensor:
    size = x.shape[0]
    factor = data.draw(st.sampled_from([each for each in range(1, size + 1) if size % each == 0]))
    return x.reshape(factor, size // factor, *x.shape[1:]).flatten(1)


def written(x: Tensor, data: st.DataObject) -> Tensor:
    x = x.clone()
    axis = axis_of(x, data)
    index: list[Any] = [slice(None)] * x.ndim
    index[axis] = data.draw(st.integers(0, x.shape[axis] - 1))
    x[tuple(index)] = 7.0
    return x


OPS: dict[str, Op] = {
    "relu": lambda x, data: x.relu(),
    "permute": lambda x, data: x.permute(*data.draw(st.permutations(range(x.ndim)))),
    "flip": lambda x, data: x.flip(axis_of(x, data)),
    "sum": lambda x, data: x.sum(axis_of(x, data), keepdim=True) * 0.5,
    "max": lambda x, data: x.max(axis_of(x, data), keepdim=True) + x,
    "softmax": lambda x, data: x.softmax(axis_of(x, data)),
    "cumsum": lambda x, data: x.cumsum(axis_of(x, data)),
    "cat": lambda x, data: Tensor.cat(x, -x, dim=axis_of(x, data)),
    "slice": sliced,
    "pad": padded,
    "fold": folded,
    "neighbours": lambda x, data: x[1:] + x[:-1] if x.shape[0] > 1 else x,
    "gather": lambda x, data: x[Tensor([0, x.shape[0] - 1], device=x.device)],
    "sort": lambda x, data: x.sort(0)[0],
    "realize": lambda x, data: x.contiguous().realize(),
    "write": written,
    "update": lambda x, data: x.clone().add_(1.5),
    "reshard": lambda x, data: x if x.sharding is None else x.shard(x.device),
}  # fmt: skip


class Recorded:
    """What was drawn for one tensor, to be drawn again for the other."""

    def __init__(self, data: st.DataObject):
        self.data, self.known, self.at = data, list[Any](), 0

    def draw(self, strategy: Any) -> Any:
        if self.at == len(self.known):
            self.known.append(self.data.draw(strategy))
        self.at += 1
        return self.known[self.at - 1]


@pytest.mark.row("M6.6")
@pytest.mark.row("M6.8")
@settings(max_examples=12)
@given(
    shape=st.lists(st.integers(3, 6), min_size=1, max_size=3),
    names=st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=5),
    data=st.data(),
)
def test_a_program_on_several_devices_is_that_of_one(
    shape: list[int], names: list[str], data: st.DataObject
) -> None:
    """Values and gradients."""
    values = numbers(*shape)
    axis = data.draw(st.sampled_from([None, *range(len(shape))]))
    devices = data.draw(st.sampled_from([TWO, THREE]))
    one, several = Tensor(values), Tensor(values).shard(devices, axis)
    one.requires_grad = several.requires_grad = True
    recorded: Any = Recorded(data)
    results = []
    for x in (one, several):
        recorded.at, made = 0, x
        for name in names:
            made = OPS[name](made, recorded)
        results.append(made)
        (made * made).sum().backward()
    assert results[1].device == devices
    np.testing.assert_allclose(results[1].numpy(), results[0].numpy(), rtol=1e-4, atol=1e-4)
    assert one.grad is not None and several.grad is not None
    np.testing.assert_allclose(several.grad.numpy(), one.grad.numpy(), rtol=1e-3, atol=1e-3)


# in place


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_readers_of_an_old_value_get_it(axis: int | None) -> None:
    values = numbers(4, 3)
    x = Tensor(values).shard(TWO, axis).realize()
    before, view = x * 2, x[1]
    x += 1
    x[0] = 5.0
    after = x * 2
    values = values + 1
    values[0] = 5.0
    np.testing.assert_allclose(after.numpy(), values * 2, rtol=1e-6)
    np.testing.assert_allclose(before.numpy(), numbers(4, 3) * 2, rtol=1e-6)
    np.testing.assert_allclose(view.numpy(), values[1], rtol=1e-6)
    np.testing.assert_allclose(x.numpy(), values, rtol=1e-6)


def test_a_write_goes_to_the_memory_of_each_device(devices: tuple[str, ...]) -> None:
    x = Tensor([1.0, 2.0, 3.0]).shard(devices, 0).realize()
    shards = x.shards()
    first = [each.clone().realize() for each in shards]
    x *= 2
    x.realize()
    assert x.tolist() == [2.0, 4.0, 6.0]
    assert [each.tolist() for each in first] == [[1.0, 2.0], [3.0]]
    y = x.to(devices[0]).realize()
    x.fill_(0).realize()
    assert y.tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("axis", [None, 0])
def test_copies_have_memory_of_their_own(axis: int | None) -> None:
    x = Tensor([1.0, 2.0]).shard(TWO, axis).realize()
    y, z = copy.deepcopy(x), x.clone()
    x += 1
    assert (x.tolist(), y.tolist(), z.tolist()) == ([2.0, 3.0], [1.0, 2.0], [1.0, 2.0])


def test_a_model_is_moved_saved_and_loaded(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    wanted = model.weight.numpy()
    model.to(TWO)
    assert model.weight.device == TWO
    nn.state.safe_save(nn.state.get_state_dict(model), str(tmp_path / "model.safetensors"))
    other = nn.Linear(4, 3).to(TWO)
    nn.state.load_state_dict(other, nn.state.safe_load(str(tmp_path / "model.safetensors")))
    assert other.weight.device == TWO
    np.testing.assert_array_equal(other.weight.numpy(), wanted)
    assert other.bias is not None and other.bias.dtype is dtypes.float32


# with the rest of the library


def test_what_was_computed_on_one_device_is_not_computed_from_several_again() -> None:
    x = Tensor(numbers(3, 4)).shard(TWO, 0).realize()
    total = x.sum().to("CPU")
    twice = total * 2
    total.realize()
    x += 1
    x.realize()
    np.testing.assert_allclose(twice.item(), numbers(3, 4).sum() * 2, rtol=1e-5)


@pytest.mark.parametrize("switches", [{"NOOPT": 1}, {"TEMPLATES": 0, "SEGMENTS": 0}])
def test_other_ways_to_run(switches: dict[str, int]) -> None:
    values = numbers(5, 6)
    with Context(**switches):
        x = Tensor(values).shard(TWO, 1)
        np.testing.assert_allclose((x @ x.T).numpy(), values @ values.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_slice_of_a_symbolic_size(axis: int) -> None:
    values = numbers(3, 4)
    x = Tensor(values).shard(TWO, 0).realize()
    size = Variable("n", 1, 3).bind(2)
    bounds = [(0, 3), (0, 4)]
    wanted = values[:2] if axis == 0 else values[:, :2]
    cut: Any = [(0, size) if each == axis else pair for each, pair in enumerate(bounds)]
    np.testing.assert_allclose(x.shrink(tuple(cut)).sum().item(), wanted.sum(), rtol=1e-5)


def test_a_function_of_one_example_is_mapped_over_a_split_axis() -> None:
    values = numbers(4, 3)
    x = Tensor(values).shard(TWO, 0)
    found = func.vmap(lambda row: (row * 2).sum())(x)
    np.testing.assert_allclose(found.numpy(), values.sum(1) * 2, rtol=1e-5)


def test_a_function_that_shards_is_mapped() -> None:
    values = numbers(3, 4, 2)
    found = func.vmap(lambda x: x.shard(TWO, 0).sum(0).to("CPU"))(Tensor(values))
    np.testing.assert_allclose(found.numpy(), values.sum(1), rtol=1e-5)


def test_gradients_of_rows_that_are_picked_several_times() -> None:
    table, rows = numbers(5, 4), np.array([[0, 4], [4, 1]])
    x = Tensor(table).shard(TWO, 0)
    x.requires_grad = True
    (x[Tensor(rows).shard(TWO, 0)] ** 2).sum().backward()
    wanted = np.zeros_like(table)
    np.add.at(wanted, rows.ravel(), 2 * table[rows.ravel()])
    assert x.grad is not None and x.grad.device == TWO
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-5)


def test_memory_goes_back() -> None:
    x = Tensor(numbers(64, 8)).shard(TWO, 0).realize()
    gc.collect()
    before = GlobalCounters.mem_used
    for _ in range(5):
        (x * 2 + 1).realize().sum().item()
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_threads_run_side_by_side() -> None:
    results: dict[int, float] = {}

    def run(number: int) -> None:
        x = Tensor(np.full((4, 4), number / 4, np.float32)).shard(TWO, 0)
        for _ in range(3):
            x = (x @ x + 1).realize()
        results[number] = float(x.sum().item())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, found in results.items():
        wanted = np.full((4, 4), number / 4)
        for _ in range(3):
            wanted = wanted @ wanted + 1
        np.testing.assert_allclose(found, wanted.sum(), rtol=1e-5)
    assert len(results) == 3


@pytest.mark.parametrize(
    "name", ["pow", "prod", "cumprod", "lgamma", "erfinv", "poisson", "pdist", "det", "argsort"]
)
def test_methods_that_ask_the_target_or_make_tables(name: str) -> None:
    values = np.abs(numbers(4, 4)) * 0.2 + np.eye(4, dtype=np.float32) * 0.5
    results = []
    for devices in (None, TWO):
        Tensor.manual_seed(2)
        x = Tensor(values) if devices is None else Tensor(values).shard(devices, 0)
        args = (x + 0.5,) if name == "pow" else ()
        results.append(getattr(x, name)(*args).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_a_constant_in_memory_is_where_it_is_used() -> None:
    """On a device that is not the default one, and that no other memory is reached from."""
    with apart():
        x = Tensor(np.abs(numbers(2, 3)), device="APART:1")
        with recording() as record:
            found = x.poisson().realize()
        assert found.device == "APART:1"
        assert {each.device for each in record} == {"APART:1"}
