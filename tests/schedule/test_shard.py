"""What each device does of a value that several share: kernels, copies, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.device.apart import apart
from tilegrad import Context, Tensor
from tilegrad.base.errors import DeviceError
from tilegrad.engine.run.group_memory import children_of
from tilegrad.engine.run.run import Launch, recording
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement, even_ranges, reshaped
from tilegrad.ir.uop import UOp
from tilegrad.schedule.shard import Shards
from tilegrad.schedule.shard_moves import moved, ring_reduce

TWO = ("CPU", "CPU:1")


@pytest.fixture(autouse=True)
def known_switches() -> Iterator[None]:
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        yield


def steps(compute: Callable[[], object]) -> list[Launch]:
    with recording() as record:
        compute()
    return list(record)


def told(launches: list[Launch]) -> list[tuple[str, str]]:
    """The device of each step, and where a copy comes from."""
    return [
        (each.device, "kernel" if each.kernel is not None else each.buffers[1].device)
        for each in launches
    ]


def stored(*shape: int, axis: int | None, devices: tuple[str, ...] = TWO) -> Tensor:
    values = np.random.RandomState(0).randn(*shape).astype(np.float32)
    return Tensor(values).shard(devices, axis).realize()


def parts(x: Tensor) -> list[UOp | None]:
    shards = Shards(lambda node: None, children_of)
    shards.add(x.uop)
    return shards.of(x.uop)


def ops(node: UOp | None) -> list[Ops]:
    assert node is not None
    return [each.op for each in node.toposort()]


@pytest.mark.row("M6.3")
def test_the_steps_of_a_dot_product() -> None:
    with apart():
        devices = ("APART", "APART:1")
        x = Tensor([1.0, 2.0, 3.0, 4.0], device="APART").shard(devices, 0)
        y = Tensor([5.0, 6.0, 7.0, 8.0], device="APART").shard(devices, 0)
        found = told(steps(lambda: x.dot(y).numpy()))
    kernels = [device for device, kind in found if kind == "kernel"]
    copies = [each for each in found if each[1] != "kernel"]
    # The copy to the host at the end is the sixth.
    assert len(kernels) <= 6 and len(copies) <= 5
    assert copies == [
        ("APART", "HOST"),
        ("APART", "HOST"),
        ("APART:1", "APART"),
        ("APART:1", "APART"),
        ("APART", "APART:1"),
    ]
    # The sum of both parts is in the kernel of the own part.
    assert found[-1] == ("APART", "kernel") and kernels.count("APART:1") == 1
    assert found.index(("APART", "APART:1")) > found.index(("APART:1", "kernel"))


@pytest.mark.row("M6.4")
def test_a_sum_that_nobody_reads_is_not_computed() -> None:
    x = stored(8, axis=0)
    read = told(steps(lambda: x.sum().item()))
    assert read == [("CPU:1", "kernel"), ("CPU", "CPU:1"), ("CPU", "kernel")]
    both = told(steps(lambda: (x + 1).sum().realize()))
    assert sorted(both) == sorted([
        ("CPU", "kernel"), ("CPU:1", "kernel"), ("CPU", "CPU:1"), ("CPU:1", "CPU"),
        ("CPU", "kernel"), ("CPU:1", "kernel"),
    ])  # fmt: skip


@pytest.mark.row("M6.5")
def test_only_a_reduction_over_the_split_axis_copies() -> None:
    x = stored(6, 4, axis=0)
    across = told(steps(lambda: x.sum(0).realize()))
    copies = [each for each in across if each[1] != "kernel"]
    assert sorted(copies) == [("CPU", "CPU:1"), ("CPU:1", "CPU")]
    rows = x.sum(1)
    assert told(steps(lambda: rows.realize())) == [("CPU", "kernel"), ("CPU:1", "kernel")]
    assert rows.sharding == x.sharding


@pytest.mark.row("M6.6")
def test_what_each_device_lacks_is_copied_and_no_more() -> None:
    rows, whole, columns = stored(4, 4, axis=0), stored(4, 4, axis=None), stored(4, 4, axis=1)
    launches = steps(lambda: (rows * whole).realize())
    assert told(launches) == [("CPU", "kernel"), ("CPU:1", "kernel")]
    copies = [each for each in steps(lambda: (rows * columns).realize()) if each.kernel is None]
    # Of 16 elements each device has a quarter that the other one asks for.
    assert [each.buffers[0].size for each in copies] == [4, 4]


@pytest.mark.row("M6.7")
def test_gathering_pads_each_shard_to_all_of_the_value() -> None:
    x = stored(6, axis=0, devices=(*TWO, "CPU:2"))
    shards = Shards(lambda node: None, children_of)
    root = x.to("CPU").uop
    shards.add(root)
    graph = shards.plain[root]
    pads = [node for node in graph.toposort() if node.op is Ops.PAD and node.dtype is x.dtype]
    assert sorted(node.arg for node in pads) == [((0, 4),), ((2, 2),), ((4, 0),)]
    assert graph.shape == (6,) and ops(graph).count(Ops.COPY) == 2
    found = steps(lambda: x.to("CPU").realize())
    assert [kind for _, kind in told(found)].count("kernel") == 1


@pytest.mark.row("M6.8")
def test_a_device_without_elements_computes_nothing() -> None:
    x = stored(6, axis=0)
    half = (x.shrink(((3, 6),)) * 2).exp()
    assert half.sharding is not None and half.sharding.bounds == ((0, 0), (0, 3))
    assert told(steps(lambda: half.realize())) == [("CPU:1", "kernel")]
    np.testing.assert_allclose(half.numpy(), np.exp(x.numpy()[3:] * 2), rtol=1e-6)


@pytest.mark.row("M6.8")
def test_a_shard_of_padding_is_a_constant_where_its_elements_were() -> None:
    x = stored(6, axis=0)
    back = x.shrink(((3, 6),)).pad(((3, 0),))
    assert back.sharding == x.sharding
    first, second = parts(back)
    assert first is not None and first.is_constant and second is not None
    total = back + x
    assert not any(kind != "kernel" for _, kind in told(steps(lambda: total.realize())))
    values = x.numpy()
    np.testing.assert_array_equal(total.numpy(), np.r_[values[:3], values[3:] * 2])


def test_what_a_single_device_has_is_refused_among_several() -> None:
    """Whoever builds the graph by hand hears of both."""
    shards = Shards(lambda node: None, children_of)
    mixed = UOp(Ops.ADD, stored(4, axis=0).dtype, (stored(4, axis=0).uop, Tensor.empty(4).uop))
    with pytest.raises(DeviceError, match="add: operands on CPU, CPU:1 and on CPU"):
        shards.add(mixed)


# the axis that is split, through movement

PLACED = Placement(Group(TWO), 1, ((0, 4), (4, 6)))


@pytest.mark.parametrize(
    ("old", "new", "axis", "bounds", "wanted"),
    [
        ((6, 4), (24,), 0, ((0, 3), (3, 6)), (0, ((0, 12), (12, 24)))),
        ((24,), (6, 4), 0, ((0, 12), (12, 24)), (0, ((0, 3), (3, 6)))),
        ((24,), (6, 4), 0, ((0, 10), (10, 24)), None),
        ((2, 6), (2, 3, 2), 1, ((0, 4), (4, 6)), (1, ((0, 2), (2, 3)))),
        ((2, 6), (2, 3, 2), 1, ((0, 3), (3, 6)), None),
        ((2, 6), (12,), 1, ((0, 3), (3, 6)), None),
        ((4, 1, 3), (4, 3), 0, ((0, 2), (2, 4)), (0, ((0, 2), (2, 4)))),
        ((4, 3), (1, 4, 3), 0, ((0, 2), (2, 4)), (1, ((0, 2), (2, 4)))),
    ],
)
def test_a_reshape_keeps_the_ranges_of_an_axis(
    old: tuple[int, ...],
    new: tuple[int, ...],
    axis: int,
    bounds: tuple[tuple[int, int], ...],
    wanted: object,
) -> None:
    assert reshaped(old, new, axis, bounds) == wanted


@pytest.mark.parametrize(
    ("op", "arg", "axis", "bounds"),
    [
        (Ops.PERMUTE, (1, 0), 0, ((0, 4), (4, 6))),
        (Ops.FLIP, (False, True), 1, ((2, 6), (0, 2))),
        (Ops.FLIP, (True, False), 1, ((0, 4), (4, 6))),
        (Ops.SHRINK, ((0, 2), (1, 5)), 1, ((0, 3), (3, 4))),
        (Ops.SHRINK, ((0, 2), (0, 3)), 1, ((0, 3), (0, 0))),
        (Ops.PAD, ((0, 0), (2, 1)), 1, ((0, 6), (6, 9))),
    ],
)
def test_movement_of_the_split_axis(
    op: Ops, arg: object, axis: int, bounds: tuple[tuple[int, int], ...]
) -> None:
    x = Tensor.empty(2, 6).uop
    own = [Tensor.empty(*PLACED.shape((2, 6), number)).uop for number in range(2)]
    node = UOp(op, x.dtype, (x,), arg)
    found = moved(node, PLACED, own)
    assert found is not None
    placement, shards = found
    assert placement == Placement(PLACED.devices, axis, bounds)
    for number, shard in enumerate(shards):
        assert (shard is not None) is placement.has(number)
        assert shard is None or shard.shape == placement.shape(node.shape, number)


# all-reduce


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_ring_copies_fewer_bytes_than_all_to_all(count: int) -> None:
    devices = ["CPU", *[f"CPU:{number}" for number in range(1, count)]]
    x = stored(count, 60, axis=0, devices=tuple(devices))
    copies = [each for each in steps(lambda: x.sum(0).realize()) if each.kernel is None]
    assert sum(each.buffers[0].size for each in copies) == 2 * (count - 1) * 60
    # Each device only hears of its neighbour.
    for each in copies:
        target, source = (devices.index(buffer.device) for buffer in each.buffers)
        assert (target - source) % count == 1
    np.testing.assert_allclose(x.sum(0).numpy(), x.numpy().sum(0), rtol=1e-5, atol=1e-5)


def test_a_ring_is_of_any_reduction_and_shape() -> None:
    devices = (*TWO, "CPU:2")
    x = stored(7, 5, 3, axis=0, devices=devices)
    np.testing.assert_array_equal(x.max(0).realize().numpy(), x.numpy().max(0))
    assert len(ring_reduce([x.uop, x.uop, x.uop], devices, Ops.ADD)) == 3
    assert even_ranges(7, 3) == ((0, 3), (3, 5), (5, 7))
