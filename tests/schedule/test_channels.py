"""Operands of convolutions in 16 bits with their channels innermost: when they are stored so, by
which kernel, and that the convolution computes the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.ptx.device import simulated
from tests.optimize.kernels import program
from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.config import Context
from tilegrad.device.nv import nv_target
from tilegrad.hardware import amd_target, webgpu_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of, reductions_of, stride_of
from tilegrad.schedule import channels
from tilegrad.schedule.items import Item, Schedule
from tilegrad.target import Target

NV = nv_target("sm_80")
Array = Any


def convolution(dtype: str = "half", outputs: int = 64, **options: Any) -> Tensor:
    image = Tensor.empty(32, 64, 56, 56, dtype=dtype)
    return image.conv2d(Tensor.empty(outputs, 64, 3, 3, dtype=dtype), padding=1, **options)


def is_transpose(item: Item) -> bool:
    """Whether a kernel only copies, and reads along another axis than it stores."""
    assert item.ast is not None
    nodes = item.ast.toposort()
    (store,) = [node for node in nodes if node.op is Ops.STORE]
    if store.src[2].op is not Ops.LOAD:
        return False
    loops = [node for node in nodes if node.op is Ops.RANGE and node.axis is Axis.LOOP]
    return any(stride_of(store.index, x) == 1 != stride_of(store.src[2].index, x) for x in loops)


def transposes(schedule: Schedule) -> int:
    return sum(map(is_transpose, schedule.items))


def reads_along_its_sum(item: Item) -> bool:
    """Whether all loads of a kernel's reduction are contiguous along one of its axes."""
    assert item.ast is not None
    (reduction,) = reductions_of(item.ast)
    loads = [node for node in reduction.src[0].toposort() if node.op is Ops.LOAD]
    axes = reduction.src[1:]
    return any(all(stride_of(load.index, axis) == 1 for load in loads) for axis in axes)


# when


@pytest.mark.row("S1.5", "M9.1")
def test_a_convolution_in_half_reads_both_operands_along_the_channels() -> None:
    schedule = plan(convolution(), target=NV)
    assert transposes(schedule) == 2 and len(schedule.items) == 3
    assert reads_along_its_sum(schedule.items[-1])


@pytest.mark.parametrize("target", [Target("none"), webgpu_target(has_half=True)])
def test_without_matrix_units_nothing_is_stored_again(target: Target) -> None:
    assert len(plan(convolution(), target=target).items) == 1


def test_other_units_of_16_bits_have_it_too() -> None:
    assert transposes(plan(convolution(), target=amd_target("gfx942"))) == 2


def test_float32_has_no_matrix_unit_here() -> None:
    assert len(plan(convolution("float"), target=NV).items) == 1


def test_few_products_for_each_element_do_not_pay() -> None:
    assert len(plan(convolution(outputs=16), target=NV).items) == 1


def test_a_depthwise_convolution_has_no_sum_over_channels() -> None:
    image, weight = Tensor.empty(32, 64, 112, 112), Tensor.empty(64, 1, 3, 3)
    value = image.half().conv2d(weight.half(), groups=64)
    assert not any(map(is_transpose, plan(value, target=NV).items))


def test_memory_that_has_its_channels_innermost_is_read_as_it_is() -> None:
    image = Tensor.empty(32, 56, 56, 64, dtype="half").permute(0, 3, 1, 2)
    weight = Tensor.empty(64, 3, 3, 64, dtype="half").permute(0, 3, 1, 2)
    assert len(plan(image.conv2d(weight, padding=1), target=NV).items) == 1


def test_a_layer_stores_what_the_next_one_reads() -> None:
    """The image and two weights are transposed, what is between the layers is not."""
    weight = Tensor.empty(64, 64, 3, 3, dtype="half")
    schedule = plan(convolution().relu().conv2d(weight, padding=1), target=NV)
    assert transposes(schedule) == 3 and len(schedule.items) == 5


def test_two_layers_of_one_image_share_its_transpose() -> None:
    image = Tensor.empty(32, 64, 56, 56, dtype="half")
    weights = [Tensor.empty(64, 64, 3, 3, dtype="half") for _ in range(2)]
    values = [image.conv2d(weight, padding=1).contiguous() for weight in weights]
    assert transposes(plan(*values, target=NV)) == 3


def test_the_gradient_by_the_image_is_such_a_convolution() -> None:
    image = Tensor.empty(32, 64, 56, 56, dtype="half").requires_grad_()
    weight = Tensor.empty(64, 64, 3, 3, dtype="half")
    image.conv2d(weight, padding=1).backward(Tensor.empty(32, 64, 56, 56, dtype="half"))
    schedule = plan(image.grad, target=NV)
    assert transposes(schedule) == 2 and reads_along_its_sum(schedule.items[-1])


def test_the_gradient_by_the_weight_sums_along_the_batch() -> None:
    weight = Tensor.empty(64, 64, 3, 3, dtype="half").requires_grad_()
    image = Tensor.empty(32, 64, 28, 28, dtype="half")
    image.conv2d(weight, padding=1).backward(Tensor.empty(32, 64, 28, 28, dtype="half"))
    schedule = plan(weight.grad, target=NV)
    assert transposes(schedule) == 2
    assert any(map(reads_along_its_sum, schedule.items[2:3]))


def test_a_slice_of_the_channels_is_stored_as_the_whole_is() -> None:
    image = Tensor.empty(32, 128, 56, 56, dtype="half")[:, 64:]
    weight = Tensor.empty(64, 64, 3, 3, dtype="half")
    schedule = plan(image.conv2d(weight, padding=1), target=NV)
    assert transposes(schedule) == 2 and reads_along_its_sum(schedule.items[-1])


def test_windows_have_no_vectors_along_the_rows_that_they_slide_over() -> None:
    """Rows of 56 are longer than the batch, but each position of the window begins anywhere."""
    weight = Tensor.empty(64, 64, 3, 3, dtype="half").requires_grad_()
    image = Tensor.empty(32, 64, 56, 56, dtype="half")
    image.conv2d(weight, padding=1).backward(Tensor.empty(32, 64, 56, 56, dtype="half"))
    schedule = plan(weight.grad, target=NV)
    assert transposes(schedule) == 2 and reads_along_its_sum(schedule.items[2])


# values


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes pay that the interpreter has time for."""
    monkeypatch.setattr(channels, "_USES", 1)
    monkeypatch.setattr(channels, "WORTH_A_KERNEL", 1)


def integers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


def reference(image: Array, weight: Array, *, stride: int = 1, dilation: int = 1) -> Array:
    """A convolution of 3x3 with a padding of 1, in float64."""
    wide = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    span = 2 * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(wide, (span, span), (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"dilation": 2}])
def test_a_convolution_computes_what_its_definition_says(options: dict[str, int]) -> None:
    image, weight = integers(0, 2, 32, 7, 9), integers(1, 16, 32, 3, 3)
    device = simulated("NVSIM80")
    with Context(VERIFY=2):
        x, w = Tensor(image, device=device), Tensor(weight, device=device)
        found = x.conv2d(w, padding=1, **options).numpy()
    np.testing.assert_array_equal(found, reference(image, weight, **options))
    same = [Tensor.empty(*each.shape, dtype="half") for each in (image, weight)]
    assert transposes(plan(same[0].conv2d(same[1], padding=1, **options), target=NV)) == 2


@pytest.mark.usefixtures("small")
def test_groups_and_a_chain_compute_what_their_definition_says() -> None:
    image, first, second = (
        integers(0, 1, 32, 6, 6),
        integers(1, 32, 16, 3, 3),
        integers(2, 8, 32, 3, 3),
    )
    device = simulated("NVSIM80")
    x, w, v = (Tensor(each, device=device) for each in (image, first, second))
    found = x.conv2d(w, padding=1, groups=2).relu().clip(0, 3).conv2d(v, padding=1)
    halves = [reference(image[:, g : g + 16], first[g : g + 16]) for g in (0, 16)]
    middle = np.clip(np.concatenate(halves, 1), 0, 3)
    np.testing.assert_array_equal(found.numpy(), reference(middle, second))


@pytest.mark.usefixtures("small")
def test_gradients_are_those_of_the_definition() -> None:
    """By hand: each is a convolution of the result's gradient."""
    image, weight, outer = (
        integers(0, 16, 16, 5, 5),
        integers(1, 16, 16, 3, 3),
        integers(2, 16, 16, 5, 5),
    )
    device = simulated("NVSIM80")
    x, w = (Tensor(each, device=device).requires_grad_() for each in (image, weight))
    x.conv2d(w, padding=1).backward(Tensor(outer, device=device))
    turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    assert x.grad is not None and w.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), reference(outer, turned))
    wide = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (5, 5), (2, 3))
    expected = np.einsum("ncijhw,nohw->ocij", windows, outer.astype(np.float64))
    np.testing.assert_array_equal(w.grad.numpy(), expected)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("batch", "side"), [(32, 8), (32, 6), pytest.param(64, 7, marks=pytest.mark.nightly)]
)
def test_the_gradient_of_weights_is_a_sum_over_pixels(batch: int, side: int) -> None:
    """Tiles along the batch follow each other over the columns and rows, those of several columns
    unrolled.
    """
    image, outer = integers(0, batch, 16, side, side), integers(1, batch, 32, side, side)
    device = simulated("NVSIM80")
    x, out = Tensor(image, device=device), Tensor(outer, device=device)
    weight = Tensor.zeros(32, 16, 3, 3, dtype="half", device=device).requires_grad_()
    with Context(VERIFY=2):
        x.conv2d(weight, padding=1).backward(out)
        assert weight.grad is not None
        found = weight.grad.numpy()
    wide = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (side, side), (2, 3))
    expected = np.einsum("ncijhw,nohw->ocij", windows, outer.astype(np.float64))
    np.testing.assert_array_equal(found, expected.astype(np.float16))


@pytest.mark.parametrize("channels_of_image", [32, 64])
def test_tiles_of_all_window_positions_come_in_vectors(channels_of_image: int) -> None:
    """Also where a tile has all channels, so that the next tile is that of another position."""
    image = Tensor.empty(32, 56, 56, channels_of_image, dtype="half").permute(0, 3, 1, 2)
    weight = Tensor.empty(64, 3, 3, channels_of_image, dtype="half").permute(0, 3, 1, 2)
    (item,) = plan(image.conv2d(weight, padding=1), target=NV).items
    found = program(item.ast, None, NV)
    copies = [node for node in found if node.op is Ops.COPY_ASYNC]
    assert copies and {copy.src[2].dtype.nbytes for copy in copies} == {16}
    inside = {copy.src[2] for copy in copies}
    loads = [node for node in found if node.op is Ops.LOAD and node not in inside]
    assert not any(memory_of(load.src[0]).op is Ops.DEFINE_GLOBAL for load in loads)
