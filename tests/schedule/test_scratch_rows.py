"""Values in scratch between two products, and where that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import edges, kernels, plan, sizes
from tilegrad import Tensor, Variable
from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.hardware import opencl_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.matrix_units import dot_unit
from tilegrad.schedule.schedule import make_schedule
from tilegrad.target import Target

# Caches so small that little is worth scratch.
NEAR = Target("near", vector_bytes=32, threads=2, cache_bytes=(8 << 10, 256 << 10, 256 << 10))
HEADS, LENGTH, SIZE = 8, 96, 32


def heads(length: int = LENGTH, size: int = SIZE) -> Tensor:
    return Tensor.empty(HEADS, length, size)


def scratch(ast: UOp | None) -> list[int]:
    """Elements of each array of scratch."""
    assert ast is not None
    found = [node.dtype for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL]
    pointers = [dtype for dtype in found if isinstance(dtype, Pointer)]
    assert all(pointer.space is AddressSpace.SCRATCH for pointer in pointers)
    return sorted(pointer.size for pointer in pointers)


def side(rows: int = 64) -> Tensor:
    return Tensor.empty(rows, 64)


def scores() -> Tensor:
    return heads() @ heads().transpose(1, 2) * 0.125


def test_attention_is_one_kernel_with_a_row_of_scores_in_scratch() -> None:
    for mask in (None, Tensor.empty(LENGTH, LENGTH), Tensor.empty(LENGTH, LENGTH) > 0):
        result = heads().scaled_dot_product_attention(heads(), heads(), mask)
        schedule = plan(result, target=NEAR)
        (item,) = kernels(schedule)
        # Scores, exponentials, and these by their sum.
        assert scratch(item.ast) == [LENGTH, LENGTH, LENGTH]
        assert sizes(schedule) == [HEADS * LENGTH * SIZE]
        assert edges(schedule) == []
    causal = heads().scaled_dot_product_attention(heads(), heads(), is_causal=True)
    assert len(kernels(plan(causal, target=NEAR))) == 1


def test_any_row_between_two_products_is_in_scratch() -> None:
    found = {
        "relu": scores().relu() @ heads(),
        "by its length": (lambda s: s / s.square().sum(2, keepdim=True).sqrt())(scores()),
        "by its length, and a product": (
            lambda s: (s / s.square().sum(2, keepdim=True).sqrt()) @ heads()
        )(scores()),
        "largest": scores().maximum(0).transpose(1, 2) @ heads(),
        "three": ((Tensor.empty(512, 16) @ side(16)).relu() @ side()).relu() @ side(),
        "least of sums": ((heads().unsqueeze(2) + heads().unsqueeze(1)).min(3).exp() @ heads()),
    }
    for name, result in found.items():
        schedule = plan(result, target=replace(NEAR, cache_bytes=(8 << 10, 64 << 10, 64 << 10)))
        assert len(kernels(schedule)) == 1, name


def test_each_element_is_computed_once() -> None:
    """A row that several kernels read, or that a filter window reads, is stored."""
    weights = scores().relu()
    assert (
        len(kernels(plan(weights @ heads(), weights.transpose(1, 2) @ heads(), target=NEAR))) == 3
    )
    image = Tensor.empty(HEADS, 16, 32, 32).conv2d(Tensor.empty(32, 16, 1, 1)).relu()
    assert len(kernels(plan(image.conv2d(Tensor.empty(16, 32, 3, 3)), target=NEAR))) == 2


def test_what_does_not_pay_is_refused() -> None:
    def count(target: Target, **sizes: int) -> int:
        q, k, v = (heads(**sizes) for _ in range(3))
        return len(kernels(plan(q.scaled_dot_product_attention(k, v), target=target)))

    assert count(NEAR) == 1
    # What the second cache holds comes back as fast as it is computed.
    assert count(replace(NEAR, cache_bytes=(8 << 10, 1 << 20, 2 << 20)), size=64) == 3
    # No room for rows, or for what they pass over; no vectors.
    assert count(replace(NEAR, cache_bytes=(4 << 10, 4 << 10, 256 << 10))) == 3
    assert count(replace(NEAR, cache_bytes=(8 << 10, 40 << 10, 256 << 10)), size=128) > 1
    assert count(replace(NEAR, vector_bytes=0)) == 3
    # Few rows for a matrix; lanes that share scratch, but exchange no values.
    assert count(NEAR, length=24) == 3
    assert count(opencl_target()) > 1


def test_what_a_dot_unit_multiplies_is_stored() -> None:
    unit = dot_unit(2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float)
    parts = [Tensor.empty(HEADS, LENGTH, SIZE, dtype=dtypes.bfloat16) for _ in range(3)]
    result = parts[0].scaled_dot_product_attention(*parts[1:])
    assert len(kernels(plan(result, target=replace(NEAR, matrix_units=(unit,))))) == 3
    # Unless it outgrows memory.
    parts = [Tensor.empty(HEADS, 1024, 16, dtype=dtypes.bfloat16) for _ in range(3)]
    result = parts[0].scaled_dot_product_attention(*parts[1:])
    assert len(kernels(plan(result, target=replace(NEAR, matrix_units=(unit,))))) == 1


def test_a_symbolic_length_has_scratch_for_the_longest() -> None:
    length = Variable("length", 1, LENGTH).bind(40)
    q, k = (heads()[:, :length] for _ in range(2))
    (item,) = kernels(plan(q.scaled_dot_product_attention(k, k), target=NEAR))
    assert scratch(item.ast) == [LENGTH, LENGTH, LENGTH]


@pytest.mark.parametrize("is_wanted", [False, True])
def test_what_is_asked_for_later_is_stored(is_wanted: bool) -> None:
    weights = scores().softmax(2)
    sink = UOp.sink((weights @ heads()).uop)
    leaves = [node for node in sink.toposort() if node.op is Ops.BUFFER]
    placed = {leaf: leaf.replace(arg=leaf.arg._replace(slot=n)) for n, leaf in enumerate(leaves)}
    sink, wanted = sink.substitute(placed), weights.uop.substitute(placed)
    positions = [number for number, node in enumerate(sink.toposort()) if node is wanted]
    schedule = make_schedule(
        sink, {"CPU": NEAR}, "CPU", plain=False, needed_later=positions if is_wanted else []
    )
    assert len(schedule.items) == (2 if is_wanted else 1)
    assert len(schedule.materialised) == (1 if is_wanted else 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_row_in_scratch_beside_other_values(axis: int) -> None:
    """The kernel stores more rows than there are: beyond them nothing is read to fill scratch."""
    array = np.random.default_rng(0).standard_normal((6, 9), np.float32)
    shares = np.exp(array.astype(np.float64))
    shares /= shares.sum(axis, keepdims=True)
    found: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
        "pad": (lambda x: x.pad(((0, 3), (0, 2))), lambda x: np.pad(x, ((0, 3), (0, 2)))),
        "cat": (
            lambda x: x.cat(Tensor(array), dim=1 - axis),
            lambda x: np.concatenate([x, array], 1 - axis),
        ),
        "pad and as it is": (
            lambda x: x[:4, :4].pad(((0, 2), (0, 5))) + x,
            lambda x: np.pad(x[:4, :4], ((0, 2), (0, 5))) + x,
        ),
    }
    for how, (ours, theirs) in found.items():
        result = ours(Tensor(array).softmax(axis))
        assert len(kernels(plan(result))) == 1, how
        np.testing.assert_allclose(result.numpy(), theirs(shares), rtol=1e-5, err_msg=how)
