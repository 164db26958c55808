"""Graphs of tensors by hand, their kernels for a GPU, and what those compute on the emulator."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilegrad.base.config import config
from tilegrad.base.dtype import DType, dtypes
from tilegrad.device.emulator import execute
from tilegrad.hardware import cuda_target, metal_target
from tilegrad.ir.args import BufferArg
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Ops
from tilegrad.ir.spec import verify
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.generators import heuristic_units
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.render.cstyle import CUDARenderer, MetalRenderer
from tilegrad.schedule.items import Schedule
from tilegrad.schedule.schedule import make_schedule
from tilegrad.target import Target

FLOAT, HALF, INT = dtypes.float, dtypes.half, dtypes.int
CUDA, METAL = cuda_target("sm_80"), metal_target()
NUMPY = {FLOAT: np.float32, HALF: np.float16, INT: np.int32, dtypes.bool: np.bool_}

# graphs


def buffer(slot: int, *shape: int, dtype: DType = FLOAT) -> UOp:
    memory = UOp(Ops.BUFFER, dtype, (), BufferArg(slot, "GPU", math.prod(shape)))
    return reshape(memory, *shape)


def reshape(x: UOp, *shape: int) -> UOp:
    return UOp(Ops.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, *shape: int) -> UOp:
    return UOp(Ops.EXPAND, x.dtype, (x,), shape)


def permute(x: UOp, *axes: int) -> UOp:
    return UOp(Ops.PERMUTE, x.dtype, (x,), axes)


def pad(x: UOp, *sizes: tuple[int, int]) -> UOp:
    return UOp(Ops.PAD, x.dtype, (x,), sizes)


def shrink(x: UOp, *sizes: tuple[int, int]) -> UOp:
    return UOp(Ops.SHRINK, x.dtype, (x,), sizes)


def reduce(op: Ops, x: UOp, *axes: int) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (op, axes))


def running(op: Ops, x: UOp, axis: int) -> UOp:
    return UOp(Ops.PREFIX_AXIS, x.dtype, (x,), (op, axis))


def matmul(a: UOp, b: UOp, *, total: DType | None = None, result: DType | None = None) -> UOp:
    """a @ b over the last axes; products in the dtype of the sides, summed in `total`."""
    *batch, m, k = a.shape
    n = b.shape[-1]
    turned = permute(b, *range(len(batch)), len(batch) + 1, len(batch))
    left = expand(reshape(a, *batch, m, 1, k), *batch, m, n, k)
    right = expand(reshape(turned, *batch, 1, n, k), *batch, m, n, k)
    product = left * right
    if total is not None:
        product = product.cast(total)
    value = reshape(reduce(Ops.ADD, product, len(batch) + 2), *batch, m, n)
    return value if result is None else value.cast(result)


def half_matmul(m: int, k: int, n: int) -> UOp:
    """The matmul of the notes: half products, summed in float, stored as half."""
    return matmul(
        buffer(0, m, k, dtype=HALF), buffer(1, k, n, dtype=HALF), total=FLOAT, result=HALF
    )


def windows(x: UOp, axis: int, kernel: int, stride: int) -> UOp:
    """Axis `axis` as two: position in a window, and number of the window."""
    shape = x.shape
    before, size, after = shape[:axis], shape[axis], shape[axis + 1 :]
    count = (size - kernel) // stride + 1

    def same(sizes: Sequence[int]) -> list[tuple[int, int]]:
        return [(0, length) for length in sizes]

    none = [(0, 0)] * len(shape)
    repeated = expand(reshape(x, *before, 1, size, *after), *before, kernel, size, *after)
    flat = reshape(repeated, *before, kernel * size, *after)
    # Each row of the reshape starts one element later.
    wide = pad(flat, *none[:axis], (0, kernel * (stride + 1)), *none[axis + 1 :])
    rows = shrink(wide, *same(before), (0, kernel * (size + 1)), *same(after))
    rows = reshape(rows, *before, kernel, size + 1, *after)
    if count * stride > size + 1:
        rows = pad(rows, *none[:axis], (0, 0), (0, count * stride - size - 1), *none[axis + 1 :])
    kept = shrink(rows, *same(before), (0, kernel), (0, count * stride), *same(after))
    split = reshape(kept, *before, kernel, count, stride, *after)
    first = shrink(split, *same(before), (0, kernel), (0, count), (0, 1), *same(after))
    return reshape(first, *before, kernel, count, *after)


def conv2d(x: UOp, w: UOp, *, stride: int = 1, padding: int = 0, total: DType | None = None) -> UOp:
    if padding:
        x = pad(x, (0, 0), (0, 0), (padding, padding), (padding, padding))
    batch, channels = x.shape[:2]
    outputs, _, kernel, _ = w.shape
    y = windows(windows(x, 2, kernel, stride), 4, kernel, stride)
    y = permute(y, 0, 1, 3, 5, 2, 4)
    height, width = y.shape[2:4]
    full = (batch, outputs, channels, height, width, kernel, kernel)
    left = expand(reshape(y, batch, 1, *y.shape[1:]), *full)
    right = expand(reshape(w, 1, outputs, channels, 1, 1, kernel, kernel), *full)
    product = left * right
    if total is not None:
        product = product.cast(total)
    return reshape(reduce(Ops.ADD, product, 2, 5, 6), batch, outputs, height, width)


def softmax(x: UOp) -> UOp:
    rows, size = x.shape
    top = expand(reduce(Ops.MAX, x, 1), rows, size)
    power = ((x - top) * math.log2(math.e)).alu(Ops.EXP2)
    return power.alu(Ops.FDIV, expand(reduce(Ops.ADD, power, 1), rows, size))


# kernels


def schedule(value: UOp, *, plain: bool = False, target: Target = CUDA) -> Schedule:
    return make_schedule(UOp.sink(value), {"GPU": target}, "GPU", plain=plain)


def kernel(value: UOp, *, plain: bool = False, target: Target = CUDA) -> UOp:
    """The one kernel of a graph."""
    (item,) = schedule(value, plain=plain, target=target).items
    assert item.ast is not None
    return item.ast


def good_opts(ast: UOp, target: Target = CUDA) -> list[Opt]:
    return heuristic(start(ast, target), target)


def shaped(ast: UOp, opts: Sequence[Opt] | None = (), target: Target = CUDA) -> UOp:
    """The kernel after `opts`; None takes those of the heuristic."""
    wanted = good_opts(ast, target) if opts is None else opts
    result = apply_opts(start(ast, target), wanted, target)
    verify(result, Stage.KERNEL, "optimize")
    return result


def program(ast: UOp, opts: Sequence[Opt] | None = (), target: Target = CUDA) -> list[UOp]:
    found = lower(shaped(ast, opts, target), target)
    verify(found, Stage.PROGRAM, "lower")
    return found


def good_program(ast: UOp, target: Target) -> list[UOp]:
    """The program with the Opts of the heuristic, lowered once: tests of what is wrong with the
    text of a kernel ask for it often.
    """
    return _good_program(ast, target, heuristic_units.BUSY, config.current())


@functools.cache
def _good_program(ast: UOp, target: Target, *_: object) -> list[UOp]:
    """The rest is what else decides: the switches, and what the fixture `few_blocks` changes."""
    return program(ast, None, target)


def name(ast: UOp, opts: Sequence[Opt] | None = (), target: Target = CUDA) -> str:
    return kernel_name(shaped(ast, opts, target))[0]


def text(ast: UOp, opts: Sequence[Opt] | None = (), target: Target = CUDA) -> str:
    """The source of the kernel, in CUDA or Metal."""
    renderer = MetalRenderer() if target is METAL else CUDARenderer("sm_80")
    return renderer.render(name(ast, opts, target), program(ast, opts, target))


def body(source: str) -> list[str]:
    """The lines of the kernel's body, without positions in the launch."""
    lines = source.split("extern")[-1].split("kernel void")[-1].splitlines()[1:-1]
    return [line.strip() for line in lines if " /* " not in line]


def run(
    value: UOp | Schedule,
    inputs: Mapping[int, Any],
    opts: Sequence[Opt] | None = None,
    target: Target = CUDA,
) -> Any:
    """What a graph comes to, flat, its kernels shaped by `opts` and run on the emulator."""
    plan = schedule(value, target=target) if isinstance(value, UOp) else value
    memory = []
    for spec in plan.buffers:
        if spec.source is not None:
            memory.append(np.ascontiguousarray(inputs[spec.source], NUMPY[spec.dtype]).ravel())
        else:
            poison = np.nan if spec.dtype.is_float else 77
            memory.append(np.full(spec.size, poison, NUMPY[spec.dtype]))
    for item in plan.items:
        assert item.ast is not None
        buffers = [memoryview(memory[number]).cast("B") for number in item.buffers]
        execute(program(item.ast, opts, target), buffers)
    return memory[plan.outputs[0]]


def opt(op: OptOps, axis: int, arg: Any) -> Opt:
    return Opt(op, axis, arg)
