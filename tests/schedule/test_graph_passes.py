"""The passes on a whole graph, and the steps that decide what is stored: each before and after, as
text.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

from tests.schedule.plans import CPU, plan_nodes
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import PassRecord, recording
from tilegrad.device.nv import nv_target
from tilegrad.ir.args import BufferArg
from tilegrad.ir.movement import expand, reduce_axes, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.fuse import STEPS
from tilegrad.schedule.graph_passes import PASSES
from tilegrad.target import Target

NV = nv_target("sm_80")
NAMES = [name for name, _ in (*PASSES, *STEPS)]


def recorded(*values: Tensor | UOp, target: Target = CPU, plain: bool = False) -> list[PassRecord]:
    roots = [each if isinstance(each, UOp) else each.uop for each in values]
    with recording() as record:
        plan_nodes(*roots, target=target, plain=plain)
    return [each for each in record if each.name in NAMES]


def formula(node: UOp) -> str:
    """A value as nested ops, without their arguments; movement that follows movement is VIEW."""
    if node.op is Ops.BUFFER:
        return f"x{node.arg.slot}"
    if node.op is Ops.CONST:
        return str(node.arg)
    if node.op.is_movement:
        while node.op.is_movement:
            node = node.src[0]
        return f"VIEW({formula(node)})"
    return f"{node.op.name}({', '.join(map(formula, node.src))})"


def around(name: str, value: Tensor | UOp, target: Target = CPU) -> tuple[str, str]:
    """A value, or what is stored of it, before and after the pass or step `name`."""
    (found,) = [each for each in recorded(value, target=target) if each.name == name]
    if name in dict(STEPS):
        return str(found.before), str(found.after)
    return formula(found.before.src[0]), formula(found.after.src[0])


def added(name: str, value: Tensor | UOp, target: Target = CPU) -> list[str]:
    """The lines that a step adds to what is stored; it takes none away."""
    before, after = (text.splitlines() for text in around(name, value, target))
    assert set(before) <= set(after)
    return [line for line in after if line not in before]


def leaf(number: int, *shape: int) -> UOp:
    memory = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(number, "CPU", math.prod(shape)))
    return memory if len(shape) == 1 else reshape(memory, shape)


def test_a_reduction_of_nothing_is_its_identity() -> None:
    assert around("schedule.empty", reduce_axes(leaf(0, 3, 0), Ops.MAX, (1,))) == (
        "REDUCE_AXIS(VIEW(x0))",
        "VIEW(CONTIGUOUS(VIEW(-inf)))",
    )


def test_operands_of_a_convolution_are_stored_with_channels_innermost() -> None:
    image, weight = Tensor.empty(8, 64, 32, 32, dtype="half"), Tensor.empty(64, 64, 3, 3)
    convolved = image.conv2d(weight.half().contiguous())
    before, after = around("schedule.channels", convolved, NV)
    assert "MUL(VIEW(x0), VIEW(CONTIGUOUS(CAST(VIEW(x1)))))" in before
    stored = "VIEW(CONTIGUOUS(VIEW(CONTIGUOUS(CAST(VIEW(x1))))))"
    assert f"MUL(VIEW(CONTIGUOUS(VIEW(x0))), {stored})" in after
    assert around("schedule.channels", convolved) == (before, before)


def test_rows_that_a_one_hot_chooses_are_added() -> None:
    flags = Tensor.empty(512, dtype="int").one_hot(64).float()
    before, after = around("schedule.one_hot", flags.transpose() @ Tensor.empty(512, 4))
    assert before.startswith("VIEW(REDUCE_AXIS(MUL(VIEW(CAST(CAST(CMPEQ(VIEW(x0), ")
    assert after == "VIEW(SCATTER_ADD(CONTIGUOUS(VIEW(0.0)), VIEW(x0), VIEW(x1)))"


def test_a_large_reduction_takes_two_steps() -> None:
    twice = "VIEW(REDUCE_AXIS(REDUCE_AXIS(VIEW(x0))))"
    total = leaf(0, 1 << 20)
    assert around("schedule.split", reduce_axes(total, Ops.ADD, (0,))) == (
        "REDUCE_AXIS(x0)",
        twice,
    )
    rows = reduce_axes(leaf(0, 4, 1 << 18), Ops.ADD, (1,))
    assert around("schedule.split", rows) == ("REDUCE_AXIS(VIEW(x0))", "REDUCE_AXIS(VIEW(x0))")
    assert around("schedule.split", rows, NV) == ("REDUCE_AXIS(VIEW(x0))", twice)


def test_a_long_scan_is_done_in_slices() -> None:
    assert around("schedule.scan_slices", Tensor.empty(1 << 20).cumsum(0)) == (
        "PREFIX_AXIS(x0)",
        "VIEW(ADD(VIEW(PREFIX_AXIS(VIEW(REDUCE_AXIS(VIEW(x0))))), PREFIX_AXIS(VIEW(x0))))",
    )


def test_one_row_that_is_added_to_zeros_is_a_mask() -> None:
    zeros = expand(reshape(UOp.const(dtypes.float32, 0), (1, 1)), (5, 4))
    index = reshape(leaf(0, 1).cast(dtypes.int32), ())
    added = UOp(Ops.SCATTER_ADD, dtypes.float32, (zeros, index, leaf(1, 4)))
    assert around("schedule.one_row", added) == (
        "SCATTER_ADD(VIEW(0.0), VIEW(CAST(x0)), x1)",
        "WHERE(VIEW(CMPEQ(VIEW(ADD(PREFIX_AXIS(VIEW(1)), -1)), VIEW(CAST(x0)))), VIEW(x1), 0.0)",
    )


def test_many_rows_that_meet_are_summed_in_float64() -> None:
    rows = leaf(0, 4), leaf(1, 8192).cast(dtypes.int32), leaf(2, 8192)
    assert around("schedule.exact_sums", UOp(Ops.SCATTER_ADD, dtypes.float32, rows)) == (
        "SCATTER_ADD(x0, CAST(x1), x2)",
        "CAST(SCATTER_ADD(CAST(x0), CAST(x1), CAST(x2)))",
    )


def test_a_value_of_old_memory_is_stored_beside_a_newer_one() -> None:
    x = leaf(0, 4)
    newer = UOp(Ops.ASSIGN, dtypes.float32, (x, x + 1))
    assert around("schedule.versions", x * 2 + newer) == (
        "ADD(MUL(x0, 2.0), ASSIGN(x0, ADD(x0, 1.0)))",
        "ADD(CONTIGUOUS(MUL(x0, 2.0)), ASSIGN(x0, ADD(x0, 1.0)))",
    )


def test_what_must_be_in_memory_is_stored_first() -> None:
    before, after = around("schedule.forced", Tensor.empty(64, 64).contiguous() + 1)
    assert before == ""
    assert after.splitlines() == [
        "CONTIGUOUS (64, 64) float: contiguous() asks for memory of its own",
        "ADD (64, 64) float: its value was asked for",
    ]


def test_a_table_in_another_dtype_is_made_where_rows_are_added() -> None:
    rows = leaf(0, 4), leaf(1, 8192).cast(dtypes.int32), leaf(2, 8192)
    assert added("schedule.forced", UOp(Ops.SCATTER_ADD, dtypes.float32, rows)) == [
        "SCATTER_ADD (4,) double: rows are added to it in place",
        "CAST (4,) float: its value was asked for",
    ]


def test_a_scan_is_stored_at_the_end_of_the_work_on_it() -> None:
    scan = Tensor.empty(64, 64).cumsum(1).exp().sum(1)
    assert added("schedule.stored_scans", scan) == [
        "EXP (64, 64) float: each element of a scan follows from the one before it"
    ]


def test_reductions_that_are_expanded_are_stored_and_inlined_again() -> None:
    softmax = Tensor.empty(64, 64).softmax(1)
    stored = [
        f"{op} (64, 1) float: a reduced value is expanded again, and the loops share no axis"
        for op in ("REDUCE_AXIS", "RECIP")
    ]
    result = "MUL (64, 64) float: its value was asked for"
    assert added("schedule.reduced", softmax) == stored
    before, after = around("schedule.inline", softmax)
    assert (before.splitlines(), after) == ([*stored, result], result)


def test_a_kernel_of_too_many_operands_is_cut() -> None:
    total = Tensor.empty(4)
    for _ in range(140):
        total = total + Tensor.empty(4)
    cut = "ADD (4,) float: the kernel would have too many operations or buffers"
    assert set(added("schedule.large", total)) == {cut}


def test_of_two_products_in_one_kernel_one_is_stored() -> None:
    x, y, z = (Tensor.empty(512, 512) for _ in range(3))
    assert added("schedule.separate", (x @ y) + (x @ z)) == [
        "REDUCE_AXIS (512, 512, 1) float: beside another sum of products, one of the two could not "
        "use its operands again"
    ]


def test_a_costly_value_of_two_loop_nests_lives_in_scratch() -> None:
    assert added("schedule.scratch", Tensor.empty(64, 64).exp().softmax(1)) == [
        "EXP (64, 64) float: in the scratch of its kernel"
    ]


def test_a_device_with_few_buffers_stores_what_needs_more() -> None:
    x, y, z = (Tensor.empty(64, 64) for _ in range(3))
    few = dataclasses.replace(CPU, most_buffers=3)
    assert added("schedule.buffers", x + y + z) == []
    assert added("schedule.buffers", x + y + z, few) == [
        "ADD (64, 64) float: the kernel would have too many operations or buffers"
    ]


def test_every_pass_and_step_has_a_golden_here() -> None:
    text = Path(__file__).read_text()
    assert set(re.findall(r'"(schedule\.\w+)"', text)) == set(NAMES)


def test_a_graph_goes_through_all_in_their_order() -> None:
    softmax = Tensor.empty(64, 64).softmax(1)
    assert [each.name for each in recorded(softmax)] == NAMES
    optional = {
        "channels", "one_hot", "split", "scan_slices", "one_row", "separate", "inline", "scratch",
    }  # fmt: skip
    plain = [name for name in NAMES if name.partition(".")[2] not in optional]
    assert [each.name for each in recorded(softmax, plain=True)] == plain
