"""Each Opt on a target with blocks: the text it leads to, and that no value changes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    HALF,
    INT,
    METAL,
    body,
    buffer,
    expand,
    half_matmul,
    kernel,
    name,
    opt,
    pad,
    program,
    reduce,
    reshape,
    run,
    schedule,
    shaped,
    shrink,
    softmax,
    text,
)
from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import OptError
from tilegrad.device.emulator import execute
from tilegrad.engine.build.kernel import Kernel
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.render.cstyle import MetalRenderer

UPCAST, UNROLL, LOCAL = OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL
GROUP, GROUPTOP, PADTO, SWAP, TC = (
    OptOps.GROUP,
    OptOps.GROUPTOP,
    OptOps.PADTO,
    OptOps.SWAP,
    OptOps.TC,
)
ROW_SUM = kernel(reduce(Ops.ADD, buffer(0, 4, 4), 1))
ADD_16 = kernel(buffer(0, 16) + buffer(1, 16))


# the API by hand


@pytest.mark.row("R4.1", "M10.9")
def test_a_kernel_by_hand_needs_no_device() -> None:
    shaper = Kernel(ROW_SUM, renderer=MetalRenderer())
    shaper.apply_opt(Opt(OptOps.UNROLL, 0, 4))
    found = shaper.to_program()
    assert found.name == "r_4_4"
    assert "\x1b[35m4" in found.display_name
    assert "float4 val0 = *((device float4*)((data1+(gidx0<<2))));" in found.src
    assert found.uops[-1].op is Ops.SINK
    assert (found.global_size, found.local_size) == ((4, 1, 1), (1, 1, 1))
    assert shaper.applied_opts == (Opt(OptOps.UNROLL, 0, 4),)


@pytest.mark.row("R4.1")
def test_a_kernel_for_a_language_a_device_or_a_target() -> None:
    opts = [opt(LOCAL, 0, 4)]
    assert "threadIdx.x" in Kernel(ADD_16, "CUDA").apply_opts(opts).to_program().src
    assert "lid.x" in Kernel(ADD_16, "METAL").apply_opts(opts).to_program().src
    assert "def run(" in Kernel(ADD_16, "EMU").apply_opts(opts).to_program().src
    assert "define void @E_16" in Kernel(ADD_16, "CPU").to_program().src
    bare = Kernel(ADD_16, CUDA).hand_coded_optimizations()
    assert bare.to_program().src == ""
    assert bare.name == "E_4_4"
    assert [axis.arg[1] for axis in bare.axes] == [Axis.LOCAL, Axis.UPCAST]


@pytest.mark.row("R4.1")
def test_a_refused_opt_leaves_the_kernel_as_it_was() -> None:
    shaper = Kernel(ROW_SUM, "CUDA")
    before = shaper.ast
    with pytest.raises(OptError):
        shaper.apply_opt(Opt(OptOps.UNROLL, 0, 3))
    assert shaper.ast is before


@pytest.mark.row("R4.12")
def test_the_printed_kernel_is_text_that_makes_it_again() -> None:
    names = {"UOp": UOp, "Ops": Ops, "dtypes": dtypes, "Axis": Axis, "KernelInfo": KernelInfo}
    for ast in (ROW_SUM, kernel(half_matmul(16, 16, 16)), kernel(softmax(buffer(0, 64, 8)))):
        assert eval(repr(ast), names) is ast
    opted = shaped(ROW_SUM, [opt(UNROLL, 0, 2)])
    assert eval(repr(opted), {**names, "Opt": Opt, "OptOps": OptOps}) is opted


# texts


@pytest.mark.row("S1.6")
def test_without_opts_a_block_computes_one_element() -> None:
    assert name(ADD_16) == "E_16"
    source = text(ADD_16)
    assert "__launch_bounds__(1)" in source
    assert "int gidx0 = blockIdx.x; /* 16 */" in source
    assert body(source) == [
        "float val0 = *(data1+gidx0);",
        "float val1 = *(data2+gidx0);",
        "*(data0+gidx0) = (val0+val1);",
    ]


@pytest.mark.row("S1.6")
def test_noopt_leaves_a_kernel_in_its_plain_form() -> None:
    shaped, _ = to_program(ADD_16, CUDA)
    with Context(NOOPT=1):
        plain, _ = to_program(ADD_16, CUDA)
    assert (plain.names[0], shaped.names[0]) == ("E_16", "E_4_4")


@pytest.mark.row("F1.2")
def test_dot_of_two_is_one_loop() -> None:
    dot = reduce(Ops.ADD, buffer(0, 2, dtype=INT) * buffer(1, 2, dtype=INT), 0)
    assert name(kernel(dot)) == "r_2"
    assert body(text(kernel(dot))) == [
        "int acc0 = 0;",
        "for (int ridx0 = 0; ridx0 < 2; ridx0++) {",
        "int val0 = *(data1+ridx0);",
        "int val1 = *(data2+ridx0);",
        "acc0 = (int)((unsigned int)acc0+((unsigned int)val0*(unsigned int)val1));",
        "}",
        "*(data0+0) = acc0;",
    ]


@pytest.mark.row("R4.2")
def test_unroll_of_a_row_sum() -> None:
    assert name(ROW_SUM) == "r_4_4"
    assert "for (int ridx0 = 0; ridx0 < 4; ridx0++)" in text(ROW_SUM)
    assert body(text(ROW_SUM, [opt(UNROLL, 0, 4)])) == [
        "float4 val0 = *((float4*)((data1+(gidx0<<2))));",
        "*(data0+gidx0) = (val0.x+val0.y+val0.z+val0.w);",
    ]
    assert name(ROW_SUM, [opt(UNROLL, 0, 2)]) == "r_4_2_2"
    half = text(ROW_SUM, [opt(UNROLL, 0, 2)])
    assert "for (int ridx0 = 0; ridx0 < 2; ridx0++)" in half
    assert "float2 val0 = " in half
    assert "acc0 = (acc0+val0.x+val0.y);" in half


@pytest.mark.row("R4.2")
@pytest.mark.parametrize("amount", [3, 5, 8, 1, -2])
def test_a_non_divisor_is_refused(amount: int) -> None:
    with pytest.raises(OptError, match=r"unroll: .*axis 0 of 4"):
        shaped(ROW_SUM, [opt(UNROLL, 0, amount)])


@pytest.mark.row("R4.3")
def test_upcast_of_a_row_sum() -> None:
    opts = [opt(UPCAST, 0, 4)]
    source = text(ROW_SUM, opts)
    assert "gidx" not in source and "lidx" not in source
    lines = body(source)
    assert sum(line.startswith("float acc") for line in lines) == 4
    for offset in ("+4", "+8", "+12", ""):
        assert sum(f" = *(data1+ridx0{offset});" in line for line in lines) == 1
    assert lines[-1] == "*((float4*)((data0+0))) = make_float4(acc0,acc1,acc2,acc3);"
    x = np.arange(16, dtype=np.float32)
    value = reduce(Ops.ADD, buffer(0, 4, 4), 1)
    assert run(value, {0: x}, opts).tolist() == [6, 22, 38, 54]


@pytest.mark.row("R4.4")
def test_upcast_wider_than_a_vector() -> None:
    opts = [opt(UPCAST, 0, 8)]
    assert name(ADD_16, opts) == "E_2_8"
    lines = body(text(ADD_16, opts))
    assert "int alu0 = (gidx0<<3);" in lines
    assert "int alu1 = (alu0+4);" in lines
    stores = [line for line in lines if line.startswith("*")]
    assert [line.split(" = ")[0] for line in stores] == [
        "*((float4*)((data0+alu0)))",
        "*((float4*)((data0+alu1)))",
    ]
    assert sum("float4 val" in line for line in lines) == 4
    x = np.arange(16, dtype=np.float32)
    assert run(buffer(0, 16) + buffer(1, 16), {0: x, 1: x}, opts).tolist() == (2 * x).tolist()


@pytest.mark.row("R4.4")
def test_a_fold_cannot_be_upcast() -> None:
    with pytest.raises(OptError, match="upcast: axis 1 is a reduce axis"):
        shaped(ROW_SUM, [opt(UPCAST, 1, 4)])
    with pytest.raises(OptError, match="a kernel with 2 axes"):
        shaped(ROW_SUM, [opt(UPCAST, 2, 4)])


@pytest.mark.row("R4.5")
def test_local() -> None:
    half, whole = [opt(LOCAL, 0, 2)], [opt(LOCAL, 0, 16)]
    assert (name(ADD_16, half), name(ADD_16, whole)) == ("E_8_2", "E_16")
    source = text(ADD_16, half)
    assert "int gidx0 = blockIdx.x; /* 8 */" in source
    assert "int lidx0 = threadIdx.x; /* 2 */" in source
    # Neighbouring lanes touch neighbours.
    assert "int alu0 = ((gidx0<<1)+lidx0);" in body(source)
    source = text(ADD_16, whole)
    assert "int lidx0 = threadIdx.x; /* 16 */" in source
    assert "gidx" not in source
    x = np.arange(16, dtype=np.float32)
    for opts in (half, whole):
        assert run(buffer(0, 16) + buffer(1, 16), {0: x, 1: x}, opts).tolist() == (2 * x).tolist()
    with pytest.raises(OptError, match="a block of 2048 lanes"):
        shaped(kernel(buffer(0, 2048) + 1.0), [opt(LOCAL, 0, 2048)])


@pytest.mark.row("R4.9", "M8.8")
def test_padto_guards_what_was_added() -> None:
    value, opts = buffer(0, 9) + buffer(1, 9), [opt(PADTO, 0, 4)]
    assert name(kernel(value), opts) == "E_12"
    assert body(text(kernel(value), opts)) == [
        "bool alu0 = (gidx0<9);",
        "float val0 = (alu0?*(data1+gidx0):0.0f);",
        "float val1 = (alu0?*(data2+gidx0):0.0f);",
        "if (alu0) {",
        "*(data0+gidx0) = (val0+val1);",
        "}",
    ]
    memory = [np.full(16, -1, np.float32), *[np.arange(9, dtype=np.float32)] * 2]
    execute(program(kernel(value), opts), [memoryview(each).cast("B") for each in memory])
    assert memory[0].tolist() == [*range(0, 18, 2), *[-1] * 7]


@pytest.mark.parametrize("fold", [Ops.ADD, Ops.MUL, Ops.MAX])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_padded_fold_gathers_only_what_was_there(fold: Ops, shift: float) -> None:
    """exp(0) is no identity of a sum, 0 none of a product, and -5 is less than 0."""
    x = np.array([-5, -3, -6, -4, -7, -3, -9], np.float32)
    value = reduce(fold, buffer(0, 7) + shift if shift else buffer(0, 7), 0)
    moves = [opt(PADTO, 0, 4), opt(UNROLL, 0, 4)]
    (found,) = run(value, {0: x}, moves)
    wanted = {Ops.ADD: np.sum, Ops.MUL: np.prod, Ops.MAX: np.max}[fold](x + np.float32(shift))
    assert found == wanted
    (found,) = run(value, {0: x}, [opt(PADTO, 0, 4), opt(GROUP, 0, 4)])
    assert found == wanted


@pytest.mark.row("M10.1")
def test_a_short_fold_is_written_out() -> None:
    dot = reduce(Ops.ADD, buffer(0, 4, dtype=INT) * buffer(1, 4, dtype=INT), 0)
    assert "for" in text(kernel(dot))
    assert name(kernel(dot), None) == "r_4"
    source = text(kernel(dot), None)
    assert "for" not in source
    loads = [node for node in program(kernel(dot), None) if node.op is Ops.LOAD]
    assert sum(node.dtype.lanes for node in loads) == 8
    found = run(dot, {0: np.array([1, 2, 3, 4]), 1: np.array([5, 6, 7, 8])})
    assert found.tolist() == [70]


@pytest.mark.row("M10.3")
def test_no_size_is_too_large_to_write_out() -> None:
    x = buffer(0, 1024)
    assert name(kernel(x + 1.0), [opt(UPCAST, 0, 1024)]) == "E_1024"
    with pytest.raises(OptError, match="an amount of 1 does nothing"):
        shaped(kernel(x + 1.0), [opt(UPCAST, 0, 1)])
    # An axis of one element is none, so there is nothing to name.
    with pytest.raises(OptError, match="a kernel with 0 axes"):
        shaped(kernel(buffer(0, 1) + 1.0), [opt(UPCAST, 0, 0)])


@pytest.mark.row("S1.5")
def test_four_lanes_move_a_float4_each() -> None:
    add = kernel(buffer(0, 4, 4) + buffer(1, 4, 4))
    wanted = [
        "int alu0 = (lidx0<<2);",
        "float4 val0 = *(({0}float4*)((data1+alu0)));",
        "float4 val1 = *(({0}float4*)((data2+alu0)));",
        "*(({0}float4*)((data0+alu0))) = "
        "{1}((val0.x+val1.x),(val0.y+val1.y),(val0.z+val1.z),(val0.w+val1.w));",
    ]
    for target, words in ((CUDA, ("", "make_float4")), (METAL, ("device ", "float4"))):
        source = text(add, None, target)
        assert name(add, None, target) == "E_4_4"
        assert [line for line in body(source) if "metal" not in line] == [
            line.format(*words) for line in wanted
        ]
    assert "__launch_bounds__(4)" in text(add, None, CUDA)
    assert "lid.x; /* 4 */" in text(add, None, METAL)


@pytest.mark.row("S0.3")
def test_a_ragged_tail_is_guarded() -> None:
    size = 1_000_003
    saxpy = kernel(buffer(0, size) * 2.0 + buffer(1, size))
    source = text(saxpy, None)
    assert "blockIdx.x" in source and "threadIdx.x" in source
    assert f"<{size})" in source


@pytest.mark.row("R9.1")
def test_constants_of_a_chain_fold() -> None:
    chain = kernel(buffer(0, 4, 4) + 4.0 + 3.0)
    assert name(chain, None) == "E_4_4"
    assert text(chain, None).count("7.0f") == 4
    assert "4.0f" not in text(chain, None)


@pytest.mark.row("R9.2")
def test_two_kernels_of_a_cut_chain() -> None:
    cut = UOp(Ops.CONTIGUOUS, FLOAT, (buffer(0, 4, 4) + 4.0,)) + 3.0
    first, second = schedule(cut).items
    assert first.ast is not None and second.ast is not None
    assert [name(item, None) for item in (first.ast, second.ast)] == ["E_4_4", "E_4_4"]
    assert text(first.ast, None).count("4.0f") == 4
    assert text(second.ast, None).count("3.0f") == 4


@pytest.mark.row("F2.2", "F3.4")
def test_variance_reads_the_mean_before_its_loop() -> None:
    x = buffer(0, 4)
    centred = x - expand(reduce(Ops.ADD, x, 0) * 0.25, 4)
    variance = reduce(Ops.ADD, centred * centred, 0) * (1 / 3)
    first, second = (item.ast for item in schedule(variance, plain=True).items)
    assert first is not None and second is not None
    assert (name(first), name(second)) == ("r_4", "r_4")
    assert body(text(first))[-1] == "*(data0+0) = (acc0*0.25f);"
    lines = body(text(second))
    start = next(number for number, line in enumerate(lines) if line.startswith("for"))
    assert sum("*(data2+0)" in line for line in lines[:start]) == 1
    assert lines[-1].startswith("*(data0+0) = (acc0*0.3333333")
    found = run(schedule(variance, plain=True), {0: np.array([1, 2, 3, 4])}, ())
    assert found == pytest.approx([1.6666667])


# legal vectors


def _vectors(value: UOp, opts: list[Opt] | None = None) -> list[int]:
    """The lanes of every load, widest first."""
    loads = [node for node in program(kernel(value), opts) if node.op is Ops.LOAD]
    return sorted((node.dtype.lanes for node in loads), reverse=True)


UP4 = [opt(UPCAST, 0, 4)]


def test_a_vector_is_aligned() -> None:
    assert _vectors(buffer(0, 16) + 1.0, UP4) == [4]
    # Four from an odd one on: only those in the middle are an aligned pair.
    assert _vectors(shrink(buffer(0, 17), (1, 17)) + 1.0, UP4) == [2, 1, 1]
    assert _vectors(shrink(buffer(0, 18), (2, 18)) + 1.0, UP4) == [2, 2]
    # Rows of 6 start at multiples of 2 only.
    rows = shrink(buffer(0, 8, 6), (0, 8), (0, 4))
    assert _vectors(rows + 1.0, [opt(UPCAST, 1, 4)]) == [2, 2]


def test_a_vector_is_at_most_16_bytes() -> None:
    assert _vectors(buffer(0, 16, dtype=HALF) + 1.0, [opt(UPCAST, 0, 16)]) == [8, 8]
    assert _vectors(buffer(0, 16, dtype=dtypes.double) + 1.0, UP4) == [2, 2]
    assert _vectors(buffer(0, 16, dtype=INT) + 1, UP4) == [4]


def test_a_vector_has_one_gate() -> None:
    # Gates that change within four lanes keep the loads apart, those that do not let them join.
    assert _vectors(pad(buffer(0, 16), (0, 2)) * 2.0, [opt(UPCAST, 0, 2)]) == [2]
    assert _vectors(pad(buffer(0, 15), (0, 1)) * 2.0, UP4) == [2, 1, 1]
    assert _vectors(pad(buffer(0, 16), (0, 4)) * 2.0, UP4) == [4]


def test_repeated_elements_are_loaded_once() -> None:
    value = expand(buffer(0, 8, 1), 8, 4) * 2.0
    assert _vectors(value, [opt(UPCAST, 1, 4)]) == [1]
    twice = reshape(expand(buffer(0, 4, 1), 4, 2), 8) + 1.0
    assert _vectors(twice, [opt(UPCAST, 0, 8)]) == [4]
