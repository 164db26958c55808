"""More tiles of an operand in shared memory than two: copies that are several iterations ahead."""

from __future__ import annotations

import pytest

from tests.optimize.kernels import (
    FLOAT,
    HALF,
    buffer,
    good_opts,
    kernel,
    matmul,
    program,
    shaped,
)
from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.dtype import Pointer
from tilegrad.base.errors import OptError
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.tools.gpu_report import count

NV = nv_target("sm_80")


def product(m: int, n: int, k: int, arch: str = "sm_80") -> list[UOp]:
    target = nv_target(arch)
    left, right = buffer(0, m, k, dtype=HALF), buffer(1, k, n, dtype=HALF)
    return program(kernel(matmul(left, right, total=FLOAT), target=target), None, target)


def tiles(found: list[UOp]) -> int:
    """Of each operand, as the barriers between them have it."""
    return max(node.arg or 2 for node in found if node.op is Ops.BARRIER)


@pytest.mark.row("M9.1")
@pytest.mark.parametrize(
    ("sizes", "arch", "wanted"),
    [
        # What two blocks of 128x128 have fits 163 KiB, not 99.
        ((4096, 4096, 4096), "sm_80", 4),
        ((4096, 4096, 4096), "sm_86", 2),
        ((4096, 4096, 3072), "sm_90a", 4),
        # 128 blocks are not two for each multiprocessor, so that one may have more.
        ((1024, 1024, 1024), "sm_80", 4),
        # A loop of three or five iterations.
        ((1024, 1024, 96), "sm_80", 2),
        ((1024, 1024, 160), "sm_80", 2),
        ((1024, 1024, 192), "sm_80", 3),
    ],
)
def test_as_many_tiles_as_leave_room_for_the_blocks(
    sizes: tuple[int, int, int], arch: str, wanted: int
) -> None:
    found = product(*sizes, arch=arch)
    assert tiles(found) == wanted
    shared = sum(
        node.dtype.size * node.dtype.base.itemsize
        for node in found
        if node.op is Ops.DEFINE_LOCAL and isinstance(node.dtype, Pointer)
    )
    assert shared <= nv_target(arch).block_bytes


def test_no_tile_is_copied_in_vain() -> None:
    found = count(product(128, 128, 512), 1)
    assert found.moved_bytes == found.touched_bytes and found.sector_use == 1.0
    assert found.conflicts == 0
    # Sixteen tiles come in vectors of 16 bytes, three of them at the same time.
    copied = found.touched_bytes - 128 * 128 * 4 // found.blocks[1]
    assert found.copies == 3 * -(-copied // 16 // (found.lanes * 16))


def test_a_convolution_and_what_is_computed_have_two() -> None:
    """Indices of several loops, and registers of what is on its way, would cost more."""
    image, weight = (
        Tensor.empty(8, 128, 14, 14, dtype=HALF),
        Tensor.empty(128, 128, 3, 3, dtype=HALF),
    )
    convolution = plan(image.conv2d(weight, padding=1), target=NV).items[-1].ast
    left, right = (Tensor.empty(1024, 1024, dtype=HALF) for _ in range(2))
    computed = plan(left.relu() @ right, target=NV).items[-1].ast
    for ast in (convolution, computed):
        assert ast is not None
        assert {node.arg for node in program(ast, None, NV) if node.op is Ops.WAIT} <= {None}


@pytest.mark.parametrize("number", [1, 0, "many"])
def test_a_number_of_tiles_that_cannot_be_is_refused(number: object) -> None:
    left, right = buffer(0, 64, 512, dtype=HALF), buffer(1, 512, 64, dtype=HALF)
    ast = kernel(matmul(left, right, total=FLOAT), target=NV)
    opts = [
        Opt(opt.op, opt.axis, (*opt.arg[:4], number)) if opt.op is OptOps.STAGE else opt
        for opt in good_opts(ast, NV)
    ]
    with pytest.raises(OptError, match="tiles of an operand at a time"):
        shaped(ast, opts, NV)
