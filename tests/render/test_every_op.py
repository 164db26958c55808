"""Every op in every renderer: a kernel of that op alone has a text, or the target says that the op
is missing, and `lower.decompose` makes it of others. So an op that a renderer lacks is found here,
as docs/adding-an-op.md says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.kernel import Kernel
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir import Ops, Stage, UOp
from tilegrad.ir.args import BufferArg, TileMap
from tilegrad.ir.checks import CHECKS
from tilegrad.matrix_units import matrix_unit
from tilegrad.schedule.schedule import make_schedule
from tilegrad.target import Target

RENDERERS = ("CPU", "CLANG", "CUDA:sm_90", "CL", "HIP:gfx942", "METAL", "WEBGPU", "NV:sm_90", "EMU")
DTYPES = (dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool)
# What only Opts and the lowering make: of FLOORDIV and FLOORMOD, of sums of products, of powers.
LOWERED = frozenset({Ops.IDIV, Ops.MOD, Ops.MULACC, Ops.SCALE, Ops.EXP2_APPROX})


def graph_of(op: Ops, dtype: DType) -> UOp | None:
    """A graph that computes `op` of memory, or None if the op is not defined for `dtype`."""
    kinds = [dtype] * op.definition.arity
    if op is Ops.WHERE:
        kinds[0] = dtypes.bool
    sources = [
        UOp(Ops.BUFFER, kind, (), BufferArg(slot, "CPU", 8)) for slot, kind in enumerate(kinds)
    ]
    node = UOp(op, dtypes.bool if op.is_boolean else dtype, tuple(sources))
    return UOp.sink(node) if CHECKS[op](node) is None else None


def program_of(graph: UOp, target: Target) -> list[UOp]:
    numbered = normalise(graph).numbered()
    (item,) = make_schedule(numbered, {"CPU": target}, "CPU", plain=False).items
    assert item.ast is not None
    return Kernel(item.ast, target).linearize()


def computing() -> Iterator[Ops]:
    for op in Ops:
        if op.is_alu and op not in LOWERED:
            yield op


@pytest.mark.parametrize("device", RENDERERS)
@pytest.mark.parametrize("op", list(computing()), ids=lambda op: op.name)
def test_an_op_has_a_text(op: Ops, device: str) -> None:
    backend = Device.describe(device, NullRuntime())
    graphs = [graph for dtype in DTYPES if (graph := graph_of(op, dtype)) is not None]
    assert graphs, f"{op} is defined for none of {DTYPES}"
    for graph in graphs:
        program = program_of(graph, backend.target)
        computed = {node.op for node in program if node.op.is_alu}
        assert not computed & set(backend.target.missing), "lower.decompose left a missing op"
        assert backend.render("kernel", program).strip()


def test_what_only_the_lowering_makes_is_listed() -> None:
    """Any other op is tried above. Two are made of others for every target, even one that says it
    lacks nothing.
    """
    stages = {op: op.definition.stages for op in Ops if op.is_alu}
    composed = {op for op, allowed in stages.items() if not Stage.PROGRAM & allowed}
    assert composed == {Ops.TANH, Ops.SIGMOID}
    assert {*computing()} | LOWERED == set(stages)
    for op in composed:
        graph = graph_of(op, dtypes.float32)
        assert graph is not None and Target("whole").lacks(op)
        program = program_of(graph, Target("whole"))
        assert Ops.EXP in {node.op for node in program} and not Target("whole").lacks(Ops.EXP)


# what only some hardware has

PROCESSORS = ("CPU", "CLANG", "AARCH64", "RISCV", "WASM")
GPUS = ("CUDA:sm_90", "NV:sm_90", "METAL", "CL", "WEBGPU", "HIP:gfx942", "AMD:gfx942", "EMU")
TILES = (Ops.COPY_TILE, Ops.ARRIVE, Ops.ELECT, Ops.WAIT_TILE)
NVIDIA = {"CUDA:sm_90", "NV:sm_90", "EMU"}
HAVE = {
    Ops.BARRIER: {*GPUS},
    Ops.SHUFFLE: {*NVIDIA, "METAL"},
    Ops.COPY_ASYNC: NVIDIA,
    Ops.WAIT: NVIDIA,
    Ops.FRAGMENT: NVIDIA,
    **{op: {"NV:sm_90", "EMU"} for op in TILES},
    Ops.WMMA: {*NVIDIA, "METAL", "AMD:gfx942"},
}


def of_tiles(op: Ops, lane: UOp, given: UOp, shared: UOp) -> UOp:
    """What copies a box of 8 rows, or waits for it."""
    zero, gate = UOp.const(dtypes.int32, 0), UOp.const(dtypes.bool, True)
    barriers = UOp(Ops.DEFINE_LOCAL, dtypes.uint64.ptr(2, AddressSpace.SHARED), (), 1)
    if op is Ops.ELECT:
        return UOp(op, dtypes.bool, (lane,))
    if op is Ops.COPY_TILE:
        matrix = TileMap((32, 8), (1, 32), (32, 8))
        src = (shared, zero, given, barriers, zero, gate, zero, zero)
        return UOp(op, dtypes.void, src, matrix)
    if op is Ops.ARRIVE:
        return UOp(op, dtypes.void, (barriers, zero, gate), 1024)
    return UOp(op, dtypes.void, (barriers, zero, zero))


def with_op(op: Ops, target: Target) -> list[UOp]:
    """A program of 32 lanes with `op`, by hand: no lowering makes it where a target says no."""
    lane = UOp(Ops.SPECIAL, dtypes.int32, (), ("lidx0", 32))
    half, real = dtypes.float16, dtypes.float32
    moved = half if op in (Ops.COPY_ASYNC, Ops.FRAGMENT) else real
    given, out = (
        UOp(Ops.DEFINE_GLOBAL, dtype.ptr(256), (), slot) for slot, dtype in ((1, moved), (0, real))
    )
    shared = UOp(Ops.DEFINE_LOCAL, moved.ptr(256, AddressSpace.SHARED), (), 0)
    if op in TILES:
        return list(UOp.sink(of_tiles(op, lane, given, shared)).toposort())
    value: UOp = given.load(lane).cast(real)
    if op is Ops.BARRIER:
        barrier = UOp(op, dtypes.void, (shared.store(lane, given.load(lane)),))
        value = shared.after(barrier).load(lane).cast(real)
    elif op is Ops.SHUFFLE:
        value = UOp(op, real, (value,), 1)
    elif op in (Ops.COPY_ASYNC, Ops.WAIT):
        start = lane * 8
        rows = UOp(Ops.LOAD, half.vec(8), (given, start))
        copy = UOp(Ops.COPY_ASYNC, dtypes.void, (shared, start, rows))
        return list(UOp.sink(copy if op is Ops.COPY_ASYNC else UOp(op, dtypes.void, ())).toposort())
    elif op is Ops.FRAGMENT:
        row = UOp(Ops.LOAD, half.vec(8), (shared, lane * 8))
        value = UOp(op, half.vec(8), (row,), (4, False)).gep(0).cast(real)
    elif op is Ops.WMMA:
        unit = next(
            (each for each in target.matrix_units if each.dtype_out is real and not each.is_dot),
            matrix_unit("simdgroup.8x8.float.float", 8, 8, 8, 32, real, real),
        )
        element = given.load(lane).cast(unit.dtype_in)
        sides = [UOp.stack([element] * len(layout[0])) for layout in (unit.a_layout, unit.b_layout)]
        count = len(unit.c_layout[0])
        zero = UOp.const(real, 0).broadcast(count)
        value = UOp(op, real.vec(count), (*sides, zero), unit).gep(0)
    return list(UOp.sink(out.store(lane, value)).toposort())


@pytest.mark.row("M7.4")
@pytest.mark.parametrize("device", [*PROCESSORS, *GPUS])
@pytest.mark.parametrize("op", list(HAVE), ids=lambda op: op.name)
def test_an_op_of_some_hardware_has_a_text_or_is_refused_by_name(op: Ops, device: str) -> None:
    backend = Device.describe(device, NullRuntime())
    program = with_op(op, backend.target)
    if device in HAVE[op]:
        assert backend.render("kernel", program).strip()
    else:
        # A processor's launch has no lanes that could do it, nor memory that these share.
        reasons = [op.name, "matrix unit" if op is Ops.WMMA else op.name]
        reasons += ["shared memory", "lidx0"] if device in PROCESSORS else []
        with pytest.raises(CompileError, match="|".join(reasons)):
            backend.render("kernel", program)
