"""Attention on the matrix units of four warps that sm_90a has: keys and values are read from shared
memory, queries and weights from registers. What is chosen, values on the emulator and on the
interpreter of PTX beside float64, what each of them refuses, and what NVIDIA's assembler makes of
it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import wgmma
from tests.device.ptx.device import simulated
from tests.device.ptx.parse import PTXError
from tests.device.test_missing_barriers import without
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel
from tests.optimize.kernels import good_opts, good_program, shaped
from tests.optimize.test_slices import attention, below, found_on, kernel_for
from tilegrad import Context, Tensor
from tilegrad.base.errors import InternalError, OptError
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.text import dump, parse_program
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.heuristic_slices import SliceShaper
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.render.ptx import PTXRenderer
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

pytestmark = pytest.mark.usefixtures("uncached")

TARGET = nv_target("sm_90a")
BY_LANES = replace(TARGET, has_tile_copies=False)
UNITS = {unit.name: unit for unit in TARGET.matrix_units if unit.takes_left}
RANDOM = np.random.default_rng(11)
nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")


def half(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float16)


def units(found: list[UOp]) -> set[str]:
    return {node.arg.name for node in found if node.op is Ops.WMMA}


# what is chosen


@pytest.mark.row("M9.1")
@pytest.mark.parametrize(
    ("size", "dtype", "slices", "columns"),
    [(64, "half", 128, 64), (128, "half", 64, 128), (64, "bfloat16", 128, 64)],
)
def test_both_products_have_units_of_four_warps(
    size: int, dtype: str, slices: int, columns: int
) -> None:
    """A slice is as wide as registers allow; one lane copies keys and values."""
    found = good_program(kernel_for(2, 256, size, dtype=dtype, target=TARGET), TARGET)
    kind = {"half": "float16"}.get(dtype, dtype)
    assert units(found) == {f"wgmma.m64n{n}k16.{kind}.registers" for n in (slices, columns)}
    assert any(node.op is Ops.COPY_TILE for node in found)
    assert not any(node.op is Ops.COPY_ASYNC for node in found)
    assert parse_program(dump(found)) == found


@pytest.mark.parametrize(("size", "kept"), [(96, {"mma.m16n8k16.float16.float32"}), (256, set())])
def test_heads_that_fill_no_unit_or_too_many_registers_have_none(size: int, kept: set[str]) -> None:
    found = good_program(kernel_for(2, 256, size, dtype="half", target=TARGET), TARGET)
    assert units(found) == kept


def test_no_other_architecture_and_no_float32_has_them() -> None:
    found = good_program(kernel_for(2, 256, 64, target=TARGET), TARGET)
    assert units(found) == set()
    for arch in ("sm_80", "sm_90", "sm_100a", "sm_120"):
        assert not any(unit.takes_left for unit in nv_target(arch).matrix_units)


def test_units_that_read_both_operands_are_refused() -> None:
    ast = kernel_for(2, 256, 64, dtype="half", target=TARGET)
    names = [unit.name for unit in TARGET.matrix_units]
    both = names.index("wgmma.m64n64k16.float16")

    def with_slice(arg: tuple[int, ...], **rows: int) -> list[Opt]:
        return [
            Opt(opt.op, opt.axis, arg)
            if opt.op is OptOps.SLICE
            else Opt(opt.op, opt.axis, (*opt.arg[:2], *rows.values()))
            if opt.op is OptOps.STAGE and rows
            else opt
            for opt in good_opts(ast, TARGET)
        ]

    with pytest.raises(OptError, match="takes no operand from registers"):
        shaped(ast, with_slice((both,)), TARGET)
    own = [names.index(f"wgmma.m64n{n}k16.float16.registers") for n in (128, 64)]
    with pytest.raises(OptError, match="reads the right operand from shared memory"):
        shaped(ast, with_slice((own[0], own[1]), padding=8), TARGET)
    with pytest.raises(OptError, match="have different rows"):
        shaped(ast, with_slice((0, own[1])), TARGET)


# the layout of the instruction


@pytest.mark.row("M9.5")
@pytest.mark.parametrize("name", UNITS)
def test_the_left_operand_lies_where_the_instruction_reads_it(name: str) -> None:
    """Element 2*r and 2*r + 1 of a lane are the halves of its register r."""
    unit = UNITS[name]
    marked = np.arange(64 * 16, dtype=np.uint16).reshape(64, 16)
    registers = np.zeros((4, wgmma.GROUP), np.uint32)
    for lane, positions in enumerate(unit.a_layout):
        for element, position in enumerate(positions):
            registers[element // 2, lane] |= int(marked[position]) << 16 * (element % 2)
    found = wgmma.Shape(unit.n, "f16").left(list(registers))
    np.testing.assert_array_equal(found, marked)


# values


@pytest.mark.row("M9.1", "M9.5")
def test_the_emulator_attends() -> None:
    rows, keys, size = 64, 256, 64
    found = good_program(kernel_for(1, rows, size, keys=keys, dtype="half", target=TARGET), TARGET)
    assert all(name.startswith("wgmma") for name in units(found))
    q, k, v = half(rows, size), half(keys, size), half(keys, size)
    out = np.zeros((rows, size), np.float16)
    execute(found, [memoryview(out).cast("B"), *(bytearray(x.tobytes()) for x in (q, k, v))])
    np.testing.assert_allclose(out.astype(float), attention(q, k, v), atol=2e-3)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The lines of units in the texts that are rendered."""
    found: set[str] = set()
    render = PTXRenderer.render

    def noted(self: PTXRenderer, name: str, made: Any) -> str:
        text = render(self, name, made)
        found.update(re.findall(r"wgmma\.mma_async[^ ]*|mma\.sync[^ ]*", text))
        return text

    monkeypatch.setattr(PTXRenderer, "render", noted)
    return found


SHAPES: dict[str, tuple[int, int, int, bool]] = {
    "neither rows nor slices divide": (120, 300, 64, False),
    "causal": (192, 192, 64, True),
    "heads of 128": (64, 230, 128, False),
    "causal, heads of 128": (124, 124, 128, True),
    "many slices": (64, 1000, 64, False),
}


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[nightly] * (name == "many slices")) for name in SHAPES],
)
def test_the_interpreter_attends(name: str, used: set[str]) -> None:
    rows, keys, size, is_causal = SHAPES[name]
    q, k, v = half(2, rows, size), half(2, keys, size), half(2, keys, size)
    found = found_on(simulated("NVSIM90"), q, k, v, is_causal=is_causal)
    wanted = attention(q, k, v, below(rows, keys) if is_causal else 0.0)
    np.testing.assert_allclose(found.astype(float), wanted, atol=3e-3)
    assert used and all(each.startswith("wgmma") for each in used)


@pytest.mark.row("M9.1")
def test_two_groups_of_warps_share_keys_and_values(
    used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SliceShaper, "_groups", lambda *_: (2,))
    q, k, v = half(1, 256, 64), half(1, 256, 64), half(1, 256, 64)
    found = found_on(simulated("NVSIM90"), q, k, v)
    np.testing.assert_allclose(found.astype(float), attention(q, k, v), atol=2e-3)
    assert used and all(each.startswith("wgmma") for each in used)


@nightly
def test_keys_that_are_stored_transposed_masks_and_shared_heads(used: set[str]) -> None:
    device = simulated("NVSIM90")
    q, k, v, mask = half(1, 64, 64), half(1, 64, 256), half(1, 256, 64), half(64, 256)
    x, y, z, m = (Tensor(each, device=device).realize() for each in (q, k, v, mask))
    with Context(SIZES=0):
        found = x.scaled_dot_product_attention(y.transpose(1, 2), z, attn_mask=m).numpy()
    wanted = attention(q, k.swapaxes(1, 2), v, mask.astype(float))
    np.testing.assert_allclose(found.astype(float), wanted, atol=2e-3)
    q, k, v = half(1, 4, 64, 64), half(1, 2, 256, 64), half(1, 2, 256, 64)
    found = found_on(device, q, k, v, enable_gqa=True)
    wanted = attention(q, k.repeat(2, 1), v.repeat(2, 1))
    np.testing.assert_allclose(found.astype(float), wanted, atol=2e-3)
    assert used and all(each.startswith("wgmma") for each in used)


# what is wrong


@pytest.mark.parametrize(
    ("line", "keys", "said"),
    [
        ("wgmma.fence.sync.aligned;", 384, "written since the last wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", 512, "while a matrix unit"),
        ("wgmma.commit_group.sync.aligned;", 640, "while a matrix unit"),
        ("bar.sync 0;", 768, "since the last barrier"),
    ],
)
def test_the_interpreter_refuses_a_text_without(
    line: str, keys: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes differ, as a kernel stays loaded."""
    render, count = PTXRenderer.render, 0

    def shortened(self: PTXRenderer, name: str, made: Any) -> str:
        nonlocal count
        text = render(self, name, made)
        count += text.count(line)
        return text.replace(line, "")

    monkeypatch.setattr(PTXRenderer, "render", shortened)
    q, k, v = half(1, 64, 64), half(1, keys, 64), half(1, keys, 64)
    with pytest.raises(PTXError, match=said):
        found_on(simulated("NVSIM90"), q, k, v)
    assert count


@pytest.mark.parametrize("target", [BY_LANES, pytest.param(TARGET, marks=nightly)])
def test_without_one_of_its_barriers_or_waits_the_emulator_reports_it(target: Any) -> None:
    ast = kernel_for(1, 64, 64, keys=384, dtype="half", target=target)
    found = good_program(ast, target)
    held = [np.zeros(64 * 64 * 2, np.uint8), *(half(n, 64) for n in (64, 384, 384))]
    needed = [node for node in found if node.op in (Ops.BARRIER, Ops.WAIT, Ops.WAIT_TILE)]
    assert needed
    for gone in needed:
        with pytest.raises(InternalError, match=r"since the last barrier|without having|before"):
            execute(without(found, gone), [bytearray(each.tobytes()) for each in held])


# machine code


@has_tools
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(
    ("size", "is_causal", "most"),
    [(64, False, 630), (128, False, 510), pytest.param(64, True, 1020, marks=nightly)],
)
def test_the_loop_of_attention_is_short(
    size: int, is_causal: bool, most: int, tmp_path: Path
) -> None:
    """A slice of 64 rows keeps the units of a multiprocessor busy for 512 cycles, in which each
    of its schedulers starts 512 instructions, of one warp of each group.
    """
    ast = kernel_for(128, 1024, size, dtype="half", target=TARGET, is_causal=is_causal)
    made, lanes = assembled_kernel(ast, TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= 208 and lanes == 256
    assert made.loop["HGMMA"] == 12 and sum(made.loop.values()) <= most
    # In slices of 16x8x16 products of a warp, of both products.
    assert made.products == 128


@nightly
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(("heads", "size"), [(128, 64), (64, 128)])
def test_three_quarters_of_what_is_published_are_predicted(heads: int, size: int) -> None:
    """740 TFLOP/s, without exponentials among the operations (Shah et al., "FlashAttention-3",
    2024, section 4.1).
    """
    keys = 1024
    found = count(
        good_program(kernel_for(heads, keys, size, dtype="half", target=TARGET), TARGET), 1
    )
    time = predicted(found, "sm_90a")
    assert found.conflicts == 0
    assert 4 * heads * keys * keys * size / (time.seconds - time.launch) >= 0.75 * 740e12
