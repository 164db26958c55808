"""Each barrier and each wait of real kernels is needed, and the emulator says so where it is gone:
it knows the last writer of each element of shared memory, and since which barrier.

Products, convolutions, attention, reductions and rows, for five kinds of hardware. Scans exchange
values by shuffles, or have one lane for a slice: they have no barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.optimize.kernels import CUDA, METAL, program
from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.dtype import Pointer
from tilegrad.base.errors import InternalError
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.hardware import amd_target, opencl_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

NV = nv_target("sm_80")
nightly = pytest.mark.nightly
TARGETS = (NV, CUDA, METAL, opencl_target(), amd_target("gfx942"))
NEEDED = (Ops.BARRIER, Ops.WAIT)
empty = Tensor.empty


def product(dtype: str, terms: int = 64) -> Tensor:
    return empty(32, terms, dtype=dtype) @ empty(terms, 32, dtype=dtype)


def transposed(dtype: str) -> Tensor:
    """Both operands, of a batch."""
    left, right = empty(2, 64, 32, dtype=dtype), empty(2, 32, 64, dtype=dtype)
    return left.transpose(1, 2) @ right.transpose(1, 2)


def attention(dtype: str) -> Tensor:
    q, k, v = (empty(1, 64, 16, dtype=dtype) for _ in range(3))
    return q.scaled_dot_product_attention(k, v)


def convolution(dtype: str) -> Tensor:
    """With its channels innermost, so that tiles come by asynchronous copies."""
    image = empty(1, 8, 8, 32, dtype=dtype).permute(0, 3, 1, 2)
    return image.conv2d(empty(32, 3, 3, 32, dtype=dtype).permute(0, 3, 1, 2), padding=1)


MADE: dict[str, Callable[[], Tensor]] = {
    "product half": lambda: product("half"),
    "product float": lambda: product("float"),
    "product of odd sizes": lambda: product("half", 100),
    "product of four tiles at a time": lambda: product("half", 256),
    "transposed half": lambda: transposed("half"),
    "transposed float": lambda: transposed("float"),
    "attention half": lambda: attention("half"),
    "attention float": lambda: attention("float"),
    "convolution half": lambda: convolution("half"),
    "convolution float": lambda: convolution("float"),
    "softmax": lambda: empty(4, 2048).softmax(),
    "layernorm": lambda: empty(4, 2048).layernorm(),
    "softmax of longer rows": lambda: empty(2, 4100).softmax(),
    "sum of rows": lambda: empty(4, 2048).sum(1),
    "sum of columns": lambda: empty(512, 32).sum(0),
}
CASES = [
    pytest.param(name, target, id=f"{target.name} {name}", marks=[] if target is NV else [nightly])
    for target in TARGETS
    for name in MADE
]


def programs(name: str, target: Target) -> Iterator[list[UOp]]:
    """The kernels of a case in which lanes wait for each other."""
    for item in plan(MADE[name](), target=target).items:
        assert item.ast is not None
        found = program(item.ast, None, target)
        if any(node.op in NEEDED for node in found):
            yield found


def without(found: list[UOp], gone: UOp) -> list[UOp]:
    kept: list[UOp] = []
    mapping: dict[UOp, UOp] = {}
    for node in found:
        if node is gone:
            # What is waited for is there too early.
            mapping |= {node: mapping.get(node.src[0], node.src[0])} if node.dtype.lanes > 1 else {}
            continue
        src = tuple(
            mapping.get(source, source)
            for source in node.src
            if source is not gone or source in mapping
        )
        mapping[node] = node.replace(src=src)
        kept.append(mapping[node])
    return kept


def memory(found: list[UOp]) -> list[Any]:
    """Zeros for each buffer."""
    sizes: dict[int, int] = {}
    for node in found:
        if node.op is Ops.DEFINE_GLOBAL:
            assert isinstance(node.dtype, Pointer)
            sizes[node.arg] = node.dtype.size * node.dtype.base.itemsize
    return [bytearray(sizes.get(slot, 0)) for slot in range(max(sizes) + 1)]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_kernel_without_one_of_its_barriers_or_waits_is_reported(
    name: str, target: Target
) -> None:
    for found in programs(name, target):
        execute(found, memory(found))
        for gone in [node for node in found if node.op in NEEDED]:
            with pytest.raises(
                InternalError, match=r"since the last barrier|without having waited"
            ):
                execute(without(found, gone), memory(found))


def test_there_are_20_barriers_and_10_waits_among_them() -> None:
    kinds = [node.op for name in MADE for found in programs(name, NV) for node in found]
    assert kinds.count(Ops.BARRIER) >= 20 and kinds.count(Ops.WAIT) >= 10
