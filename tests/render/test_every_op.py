"""Every op in every renderer: a kernel of that op alone has a text, or the target says that the op
is missing, and `lower.decompose` makes it of others. So an op that a renderer lacks is found here,
as docs/adding-an-op.md says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilegrad.base.dtype import DType, dtypes
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.kernel import Kernel
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir import Ops, Stage, UOp
from tilegrad.ir.args import BufferArg
from tilegrad.ir.checks import CHECKS
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
    """Any other op is tried above."""
    stages = {op: op.definition.stages for op in Ops if op.is_alu}
    assert all(Stage.PROGRAM & allowed for allowed in stages.values())
    assert {*computing()} | LOWERED == set(stages)
