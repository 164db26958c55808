"""Products on the matrix units of four warps that sm_90a has, which read tiles from shared memory
by themselves: what is chosen, what the emulator and the interpreter of PTX compute, what each of
them refuses, and what NVIDIA's assembler makes of it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import wgmma
from tests.device.ptx.device import driver_of, simulated
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import PTXError, parse
from tests.device.ptx.products import check_convolution, column_sums, drawn, operands_in, result_in
from tests.device.test_missing_barriers import memory, without
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.optimize.kernels import (
    FLOAT,
    HALF,
    buffer,
    good_opts,
    good_program,
    kernel,
    matmul,
    permute,
    shaped,
)
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError, OptError
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side
from tilegrad.render.ptx import PTXRenderer
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count

pytestmark = pytest.mark.usefixtures("uncached")

TARGET = nv_target("sm_90a")
# Lanes copy tiles themselves; tests/device/test_tile_copies.py has those that one lane copies.
BY_LANES = replace(TARGET, has_tile_copies=False)
UNITS = {unit.name: unit for unit in TARGET.matrix_units if unit.row_bytes}
nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")


def product(
    m: int, n: int, k: int, *, dtype: DType = HALF, transposed: tuple[bool, bool] = (False, False)
) -> UOp:
    """The kernel of a product; of operands that are stored transposed, where it says so."""
    left = buffer(0, *((k, m) if transposed[0] else (m, k)), dtype=dtype)
    right = buffer(1, *((n, k) if transposed[1] else (k, n)), dtype=dtype)
    left = permute(left, 1, 0) if transposed[0] else left
    right = permute(right, 1, 0) if transposed[1] else right
    return kernel(matmul(left, right, total=FLOAT), target=TARGET)


def units(found: list[UOp]) -> set[str]:
    return {node.arg.name for node in found if node.op is Ops.WMMA}


# what is chosen


@pytest.mark.row("M9.1")
@pytest.mark.parametrize("dtype", [HALF, pytest.param(dtypes.bfloat16, marks=nightly)])
def test_large_products_have_the_largest_unit(dtype: DType) -> None:
    found = good_program(product(4096, 4096, 4096, dtype=dtype), TARGET)
    assert units(found) == {f"wgmma.m64n256k16.{dtype.name}"}


@pytest.mark.row("M9.1")
@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ((2048, 1024, 1024), "wgmma.m64n128k16.float16"),
        ((1024, 1024, 1024), "wgmma.m64n64k16.float16"),
        # Its sum has two accumulators for each result (lower.levels).
        pytest.param((4096, 4096, 16384), "wgmma.m64n128k16.float16", marks=nightly),
        # Blocks of 64x64 would leave most of the device idle.
        ((512, 512, 256), "mma.m16n8k16.float16.float32"),
    ],
)
def test_tiles_leave_blocks_enough(sizes: tuple[int, int, int], name: str) -> None:
    assert units(good_program(product(*sizes), TARGET)) == {name}


def test_other_architectures_have_no_such_unit() -> None:
    for arch in ("sm_80", "sm_90", "sm_100", "sm_120"):
        assert not any(unit.row_bytes for unit in nv_target(arch).matrix_units)


def test_an_operand_that_is_no_tile_in_shared_memory_is_refused() -> None:
    ast = product(128, 128, 128)
    number = TARGET.matrix_units.index(UNITS["wgmma.m64n128k16.float16"])
    with pytest.raises(OptError, match=r"reads the left operand from shared memory") as caught:
        shaped(ast, [Opt(OptOps.TC, 0, (number, 1))], TARGET)
    assert "STAGE" in str(caught.value)


@pytest.mark.parametrize("rows", [(8, 0), (0, 0), (0, 32)], ids=["padded", "whole", "short rows"])
def test_a_tile_of_another_layout_is_refused(rows: tuple[int, int], few_blocks: None) -> None:
    """Of the Opts that are chosen, the layout of the right operand is another."""
    ast = product(128, 256, 128)
    changed = [
        Opt(opt.op, opt.axis, (*opt.arg[:2], *rows))
        if opt.op is OptOps.STAGE and opt.arg[0] == ReduceOperand(Side.RIGHT)
        else opt
        for opt in good_opts(ast, TARGET)
    ]
    with pytest.raises(OptError, match="reads the right operand from shared memory"):
        shaped(ast, changed, TARGET)


# the layouts of the instruction


@pytest.mark.parametrize("name", UNITS)
def test_results_lie_where_the_instruction_puts_them(name: str) -> None:
    unit = UNITS[name]
    rows, columns = wgmma.Shape(unit.n, "f16").fragment()
    found = np.array(unit.c_layout)
    np.testing.assert_array_equal(found[..., 0], rows)
    np.testing.assert_array_equal(found[..., 1], columns)
    # Every element of both operands is read by one lane.
    for layout, sizes in ((unit.a_layout, (64, unit.k)), (unit.b_layout, (unit.k, unit.n))):
        positions = [position for lane in layout for position in lane]
        assert sorted(positions) == [(i, j) for i in range(sizes[0]) for j in range(sizes[1])]


@pytest.mark.parametrize("index", [0, 8, 63, 64, 72, 511, 512, 4096 + 70])
def test_vectors_are_swizzled_as_addresses_are(index: int) -> None:
    (unit, *_) = UNITS.values()
    byte = 2 * index
    assert 2 * unit.swizzled(index) == byte ^ (byte >> 7 & 7) << 4


# values


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.parametrize("transposed", [(False, False), pytest.param((True, True), marks=nightly)])
def test_the_emulator_multiplies(transposed: tuple[bool, bool], few_blocks: None) -> None:
    m, n, k = 64, 64, 128
    found = good_program(product(m, n, k, transposed=transposed), TARGET)
    assert units(found) == {"wgmma.m64n64k16.float16"}
    x, y, out = drawn(m, k), drawn(k, n, seed=1), np.zeros((m, n), np.float32)
    stored = [x.T if transposed[0] else x, y.T if transposed[1] else y]
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in stored)])
    np.testing.assert_allclose(out, x.astype(float) @ y.astype(float), atol=1e-4)
    counted = count(found)
    assert counted.conflicts == 0 and counted.sector_use == 1.0


def check(value: Callable[[Any], Any], *inputs: Any, atol: float = 0.05) -> None:
    """A value of tensors on the interpreter of PTX, against NumPy in float64."""
    device = simulated("NVSIM90")
    found = value(*(Tensor(each, device=device).realize() for each in inputs)).numpy()
    wanted = value(*(each.astype(np.float64) for each in inputs))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-3, atol=atol)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch, few_blocks: None) -> list[str]:
    """The names of the units that are rendered."""
    from tilegrad.render.ptx_wgmma import WarpGroups

    found: list[str] = []
    multiply = WarpGroups.multiply

    def noted(self: WarpGroups, node: UOp, total: Any) -> list[str]:
        found.append(node.arg.name)
        return multiply(self, node, total)

    monkeypatch.setattr(WarpGroups, "multiply", noted)
    return found


VALUES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "plain": (lambda a, b: a @ b, ((128, 192), (192, 256))),
    "both transposed": (lambda a, b: a.T @ b.T, ((192, 128), (128, 192))),
    "batch": (lambda a, b: a @ b, ((3, 64, 128), (3, 128, 64))),
    "padded": (lambda a, b: a @ b, ((250, 250), (250, 250))),
    "three tiles at a time": (lambda a, b: a @ b, ((64, 448), (448, 64))),
    "four tiles at a time": (lambda a, b: a @ b.T, ((64, 512), (64, 512))),
    "computed": (lambda a, b: (a * a) @ b, ((128, 128), (128, 64))),
    "epilogue": (lambda a, b, c: a @ b + c, ((64, 128), (128, 64), (64,))),
}


USUAL = ("both transposed", "epilogue")


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.parametrize(
    "name",
    [name if name in USUAL else pytest.param(name, marks=nightly) for name in VALUES],
)
def test_the_interpreter_multiplies(name: str, used: list[str]) -> None:
    value, shapes = VALUES[name]
    check(value, *(drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)))
    assert used and all(each.startswith("wgmma") for each in used)


@nightly
@pytest.mark.row("M9.1")
def test_a_convolution_has_such_units(used: list[str]) -> None:
    check_convolution("NVSIM90", images=1)
    assert used and all(each.startswith("wgmma") for each in used)


def test_bfloat16_has_them_too(used: list[str]) -> None:
    device = simulated("NVSIM90")
    x, y = (Tensor(drawn(64, 128, seed=seed), device=device).cast("bfloat16") for seed in (0, 1))
    wanted = x.float().numpy().astype(float) @ y.float().numpy().T.astype(float)
    found = x.matmul(y.T, dtype="float32").numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert set(used) == {"wgmma.m64n64k16.bfloat16"}


def test_a_launch_asks_for_what_a_block_has_not_got_by_itself(used: list[str]) -> None:
    driver = driver_of("NVSIM90")
    driver.calls.clear()
    check(lambda a, b: a @ b, drawn(128, 320), drawn(320, 256, seed=1))
    (set_,) = (call for call in driver.calls if call[0] == "cuFuncSetAttribute")
    launched = [call[8] for call in driver.calls if call[0] == "cuLaunchKernel"]
    # Two tiles of each operand and their barriers, and what makes them begin at a multiple of 1024.
    assert set_[3] == 2 * (128 + 256) * 64 * 2 + 2 * 8 + 1024 and set_[3] in launched


# what is wrong


def text_of(ast: UOp, target: Target = BY_LANES) -> str:
    return PTXRenderer(target).render("product", good_program(ast, target))


def interpreted(text: str, m: int, n: int, k: int) -> Any:
    """The product of ones and of rows that count, as a kernel's text has it."""
    entry, held = parse(text)["product"], GlobalMemory()
    arguments = operands_in(held, m, n, k)
    asked = TARGET.block_bytes if ".extern .shared" in text else 0
    run(entry, held, arguments, (1, 1, 1), _block(text), asked)
    return result_in(held, arguments[0], m, n)


def _block(text: str) -> tuple[int, int, int]:
    lanes = int(re.findall(r"\.maxntid (\d+)", text)[0])
    return (2, 2, lanes // 4)


SMALL = (64, 64, 128)
# Of eight tiles four are in shared memory at a time.
LONG = (64, 64, 512)


def test_the_interpreter_reads_the_text(few_blocks: None) -> None:
    found = interpreted(text_of(product(*SMALL)), *SMALL)
    np.testing.assert_array_equal(found, column_sums(*SMALL))


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("wgmma.fence.sync.aligned;", "", "written since the last wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", "", "while a matrix unit"),
        ("fence.proxy.async.shared::cta;", "", "without fence.proxy.async"),
        ("cp.async.wait_all;", "", "asynchronous copy has not brought"),
        ("bar.sync 0;", "", "since the last barrier"),
        (".target sm_90a", ".target sm_90", "no wgmma on sm_90"),
    ],
)
def test_the_interpreter_refuses_a_text_without(
    line: str, instead: str, said: str, few_blocks: None
) -> None:
    text = text_of(product(*SMALL))
    assert line in text
    with pytest.raises(PTXError, match=re.escape(said)):
        interpreted(text.replace(line, instead), *SMALL)


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("cp.async.commit_group;", "", "asynchronous copy has not brought"),
        ("cp.async.wait_group 2;", "", "asynchronous copy has not brought"),
        ("cp.async.wait_group 2;", "cp.async.wait_group 3;", "asynchronous copy has not brought"),
        ("wgmma.wait_group.sync.aligned 0;", "", "while a matrix unit"),
        ("bar.sync 0;", "", "since the last barrier"),
    ],
)
def test_the_interpreter_refuses_copies_ahead_without(
    line: str, instead: str, said: str, few_blocks: None
) -> None:
    text = text_of(product(*LONG))
    assert line in text
    with pytest.raises(PTXError, match=re.escape(said)):
        interpreted(text.replace(line, instead), *LONG)


def test_descriptors_with_other_bits_are_refused() -> None:
    with pytest.raises(PTXError, match="not swizzled"):
        wgmma.decode(1 << 16)
    with pytest.raises(PTXError, match="mean nothing"):
        wgmma.decode(1 << 62 | 1 << 50)


@pytest.mark.parametrize("sizes", [SMALL, pytest.param(LONG, marks=nightly)])
def test_without_one_of_its_barriers_or_waits_the_emulator_reports_it(
    sizes: tuple[int, int, int], few_blocks: None
) -> None:
    found = good_program(product(*sizes), BY_LANES)
    needed = [node for node in found if node.op in (Ops.BARRIER, Ops.WAIT)]
    assert sum(node.dtype is not dtypes.void for node in needed) == (4 if sizes is LONG else 2)
    for gone in needed:
        with pytest.raises(InternalError, match=r"since the last barrier|without having waited"):
            execute(without(found, gone), memory(found))


# machine code


@has_tools
@pytest.mark.row("S1.5", "M9.1")
def test_the_loop_of_a_large_product_is_short(tmp_path: Path) -> None:
    """An instruction keeps the units of a multiprocessor busy for 128 cycles, in which 512 others
    start.
    """
    made, lanes = assembled_kernel(product(4096, 4096, 4096), TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= 168 and lanes == 256
    # Of four tiles: the loop is unrolled over them. Some 100 are those of the lane that copies.
    assert made.loop["HGMMA"] == 16 and sum(made.loop.values()) <= 260
    # As many products as 32 instructions of mma.sync have, of each warp.
    assert made.products == 32 * made.loop["HGMMA"] and others_each(made) <= 0.5


@has_tools
@pytest.mark.row("M9.1")
@pytest.mark.parametrize("transposed", [(False, True), pytest.param((True, False), marks=nightly)])
def test_units_follow_each_other(transposed: tuple[bool, bool], tmp_path: Path) -> None:
    """ptxas says so where it has to put a wait between them."""
    text = text_of(product(2048, 1024, 512, transposed=transposed), TARGET)
    source = tmp_path / "kernel.ptx"
    source.write_text(text)
    command = [PTXAS or "", "-v", "-arch", "sm_90a", source, "-o", tmp_path / "kernel.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "serialized" not in done.stderr and "0 bytes spill stores" in done.stderr
    listing = subprocess.run(
        [NVDISASM or "", "-c", tmp_path / "kernel.cubin"], capture_output=True, text=True
    ).stdout
    across = re.findall(r"HGMMA\.64x128x16\.F32 [^;]*", listing)
    assert across
    for side, is_transposed in zip("AB", (transposed[0], not transposed[1])):
        assert all((f".tnsp{side}" in each) == is_transposed for each in across)
