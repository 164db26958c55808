"""Pairs of blocks on sm_100a whose matrix units work as one (`cta_group::2`): what is paired, the
layouts, values on the emulator and on the interpreter of PTX beside NumPy, what each of them
refuses, what the driver is told, what NVIDIA's assembler says, and what the model makes of it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import tensor_memory, tiles
from tests.device.ptx.device import driver_of, simulated
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import PTXError, parse
from tests.device.ptx.products import altered, column_sums, drawn, operands_in, result_in
from tests.device.test_missing_barriers import memory, without
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.device.test_tensor_memory import BY_LANES, TARGET, check, lines_of, product, waits_of
from tests.device.test_wgmma import units
from tests.optimize.kernels import good_program
from tilegrad import Tensor, jit
from tilegrad.base.errors import InternalError
from tilegrad.device.emulator import execute
from tilegrad.ir.op import Ops
from tilegrad.ir.text import dump, parse_program
from tilegrad.matrix_units import pair_of
from tilegrad.render.ptx import PTXRenderer
from tilegrad.render.tile_maps import blocks_together, maps_of
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

pytestmark = pytest.mark.usefixtures("uncached")

nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
ALONE = replace(TARGET, has_clusters=False)
# A pair of blocks: of 128 rows and columns, with four tiles or eight; of 256 of both, whose eight
# tiles take three places.
TWICE, LONG, LARGE = (256, 128, 256), (256, 128, 512), (512, 256, 512)


# what is paired


@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(
    ("transposed", "boxes"),
    [((False, True), {(64, 256), (64, 128)}), ((True, False), {(64, 64)})],
)
def test_each_block_of_a_pair_copies_half_of_the_right_operand(
    transposed: tuple[bool, bool], boxes: set[tuple[int, int]]
) -> None:
    ast = product(4096, 4096, 4096, transposed=transposed)
    found, alone = (good_program(ast, target) for target in (TARGET, ALONE))
    assert units(found) == {"tcgen05.m256n256k16.float16"} and blocks_together(found) == 2
    assert units(alone) == {"tcgen05.m128n256k16.float16"} and blocks_together(alone) == 1
    assert {node.arg.box for node in found if node.op is Ops.COPY_TILE} == boxes
    # Nothing is copied to another block.
    assert {node.arg.blocks for node in found if node.op is Ops.COPY_TILE} == {1}
    nbytes = [{node.arg for node in each if node.op is Ops.ARRIVE} for each in (found, alone)]
    assert nbytes == [{(256 + 128) * 64 * 2}, {(256 + 256) * 64 * 2}]


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        ((128, 128, 256), TARGET),
        ((384, 128, 256), TARGET),
        # The smaller operand.
        ((256, 64, 256), TARGET),
        (TWICE, BY_LANES),
    ],
    ids=["one block", "three", "less", "copied by lanes"],
)
def test_other_blocks_stay_alone(
    sizes: tuple[int, int, int], target: Target, few_blocks: None
) -> None:
    found = good_program(product(*sizes, target=target), target)
    assert all(name.startswith("tcgen05.m128") for name in units(found))
    assert blocks_together(found) == 1


def test_long_sums_stay_alone() -> None:
    """Lanes add them up in registers; pairs need more, and only one block would be resident."""
    found = good_program(product(4096, 4096, 16384), TARGET)
    assert units(found) == {"tcgen05.m128n128k16.float16"}


def test_a_program_with_pairs_is_text_that_parses_back(few_blocks: None) -> None:
    found = good_program(product(*TWICE), TARGET)
    assert blocks_together(found) == 2 and parse_program(dump(found)) == found


@pytest.mark.parametrize("unit", [each for each in TARGET.matrix_units if each.columns], ids=str)
def test_a_pair_has_the_rows_of_both_blocks_and_half_of_the_columns_each(unit: Any) -> None:
    """PTX ISA, "Data Path Layout Organization": with M = 256 of two blocks, the first has rows 0 to
    127 in its tensor memory and the second the others, both all columns.
    """
    pair = pair_of(unit)
    assert (pair.m, pair.n, pair.lanes) == (2 * unit.m, unit.n, 2 * unit.lanes)
    results = np.array(pair.c_layout)
    np.testing.assert_array_equal(results[: unit.lanes], np.array(unit.c_layout))
    np.testing.assert_array_equal(results[unit.lanes :] - [unit.m, 0], np.array(unit.c_layout))
    for block in range(2):
        own = slice(block * unit.lanes, (block + 1) * unit.lanes)
        left = {row for lane in pair.a_layout[own] for row, _ in lane}
        right = {column for lane in pair.b_layout[own] for _, column in lane}
        assert left == set(range(128 * block, 128 * (block + 1)))
        half = unit.n // 2
        assert right == set(range(half * block, half * (block + 1)))
    for layout, sizes in ((pair.a_layout, (256, unit.k)), (pair.b_layout, (unit.k, unit.n))):
        positions = [position for lane in layout for position in lane]
        assert sorted(positions) == [(i, j) for i in range(sizes[0]) for j in range(sizes[1])]


@pytest.mark.parametrize("bits", [1 << 4 | 16 << 17 | 8 << 24, 1 << 4 | 18 >> 1 << 17 | 16 << 24])
def test_other_shapes_of_pairs_are_refused(bits: int) -> None:
    """128 rows, or columns that are no multiple of 32."""
    with pytest.raises(PTXError, match="no product of"):
        tensor_memory.instruction(bits, "f16", 2)


# values


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    ("sizes", "transposed"),
    [
        (TWICE, (False, False)),
        (TWICE, (True, True)),
        pytest.param((512, 256, 256), (False, True), marks=nightly),
        pytest.param(LARGE, (False, False), marks=nightly),
    ],
)
def test_the_emulator_multiplies(
    sizes: tuple[int, int, int], transposed: tuple[bool, bool]
) -> None:
    m, n, k = sizes
    found = good_program(product(m, n, k, transposed=transposed), TARGET)
    assert blocks_together(found) == 2
    x, y, out = drawn(m, k), drawn(k, n, seed=1), np.zeros((m, n), np.float32)
    stored = [x.T if transposed[0] else x, y.T if transposed[1] else y]
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in stored)])
    np.testing.assert_allclose(out, x.astype(float) @ y.astype(float), atol=1e-4)


SHAPES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "plain": (lambda a, b: a @ b, ((256, 256), (256, 128))),
    "both transposed": (lambda a, b: a.T @ b.T, ((256, 256), (128, 256))),
    "padded": (lambda a, b: a @ b, ((248, 248), (248, 120))),
    "epilogue": (lambda a, b, c: a @ b + c, ((256, 128), (128, 128), (128,))),
    "one matrix for a batch": (lambda a, b: a @ b, ((2, 128, 128), (128, 128))),
    "several pairs": (lambda a, b: a @ b.T, ((512, 192), (256, 192))),
    "twice as many rows": (lambda a, b: a @ b.T, ((512, 512), (256, 512))),
}
USUAL = ("plain", "padded", "one matrix for a batch")


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=nightly) for name in SHAPES]
)
def test_the_interpreter_multiplies(name: str) -> None:
    value, shapes = SHAPES[name]
    driver = driver_of("NVSIM100")
    driver.calls.clear()
    inputs = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    check(value, *inputs, atol=0.05)
    assert "cuLaunchKernelEx" in driver.names()


@pytest.mark.usefixtures("few_blocks")
def test_launches_and_graphs_have_clusters() -> None:
    driver, device = driver_of("NVSIM100"), simulated("NVSIM100")

    @jit
    def step(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b @ b + 1).realize()

    x, y = drawn(256, 128), drawn(128, 128, seed=1) / 16
    left, right = (Tensor(each, device=device).realize() for each in (x, y))
    driver.calls.clear()
    wanted = x.astype(float) @ y.astype(float) @ y.astype(float) + 1
    for _ in range(6):
        np.testing.assert_allclose(step(left, right).numpy(), wanted, rtol=2e-3, atol=0.1)
    launches = [call[1] for call in driver.calls if call[0] == "cuLaunchKernelEx"]
    sizes = [vars(each.attrs[0].value.clusterDim) for each in launches]
    assert sizes and all(each == {"x": 2, "y": 1, "z": 1} for each in sizes)
    assert driver.names().count("cuGraphKernelNodeSetAttribute") == 2


# what is wrong


@functools.cache
def text_of_product(sizes: tuple[int, int, int]) -> str:
    """For tests with `few_blocks`, which are many."""
    return PTXRenderer(TARGET).render("product", good_program(product(*sizes), TARGET))


@functools.cache
def maps_of_product(sizes: tuple[int, int, int]) -> list[tuple[int, Any]]:
    found = maps_of(good_program(product(*sizes), TARGET))
    return [(source.arg, each) for source, each in found]


def interpreted(text: str, sizes: tuple[int, int, int]) -> Any:
    """The product of ones and of rows that count, as a kernel's text has it."""
    entry, held = parse(text)["product"], GlobalMemory()
    places = operands_in(held, *sizes)
    made = []
    for slot, each in maps_of_product(sizes):
        strides = tuple(2 * stride for stride in each.strides[1:])
        matrix = tiles.TensorMap(2, places[slot], each.sizes, strides, each.box)
        made.append(int.from_bytes(matrix.packed(), "little"))
    lanes = int(re.findall(r"\.maxntid (\d+)", text)[0])
    asked = TARGET.block_bytes - 64
    run(entry, held, [*places, *made], (2, 1, 1), (2, 2, lanes // 4), asked)
    return result_in(held, places[0], *sizes[:2])


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    "sizes", [LONG, *(pytest.param(each, marks=nightly) for each in (TWICE, LARGE))]
)
def test_the_interpreter_reads_the_text(sizes: tuple[int, int, int]) -> None:
    text = text_of_product(sizes)
    assert ".reqnctapercluster 2, 1, 1" in text
    assert not re.search(r"bar\.sync|cta_group::1|\.multicast::cluster\.cta_group", text)
    np.testing.assert_array_equal(interpreted(text, sizes), column_sums(*sizes))


NEEDED = {
    "fences": r"tcgen05\.fence",
    "proxy fences": r"fence\.",
    "waits for loads": r"tcgen05\.wait",
    "commits": r"tcgen05\.commit",
    "allocations": r"tcgen05\.(?:de)?alloc",
    "loads": r"tcgen05\.ld",
    "barriers": r"barrier\.cluster",
    "barrier objects": r"mbarrier\.init",
    "arrivals": r"mbarrier\.arrive",
    "copies": r"cp\.async\.bulk",
}


@pytest.mark.row("M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("name", [*NEEDED, "phases"])
def test_without_one_of_its_lines_the_interpreter_refuses_the_text(name: str) -> None:
    """Each fence, wait, barrier, copy and commit is taken out by itself."""
    text = text_of_product(LONG)
    found = waits_of(text) if name == "phases" else lines_of(text, NEEDED[name])
    assert found
    for line in found:
        changed = text[: line.start()] + text[line.end() :]
        with pytest.raises(PTXError):
            interpreted(changed, LONG)


WRONG = {
    "groups of one block": (r"cta_group::2", "cta_group::1", "of a pair|not written|no product of"),
    "groups of both kinds": (
        r"(tcgen05\.mma\.)cta_group::2", r"\1cta_group::1", "for different groups of blocks",
    ),
    "no clusters": (r"\.reqnctapercluster[^\n]*\n", "", "no pairs of blocks in a cluster of 1"),
    "a commit for the own block": (
        r"\.multicast::cluster(\.b64 [^,]*), %\w+;", r"\1;", "a phase that does not end",
    ),
    "a commit for one block": (r"mov\.b16 (%\w+), 3;", r"mov.b16 \1, 1;", "that does not end"),
    "a commit for a third": (r"mov\.b16 (%\w+), 3;", r"mov.b16 \1, 7;", r"blocks \[0, 1, 2\]"),
    "bytes of one block": (r", 65536;", ", 32768;", "waiting for its phase"),
    "bytes for the own barrier": (
        r"mapa\.shared::cluster\.u32 (%r\d+), (%r\d+), 0;", r"mov.b32 \1, \2;", "bytes are missing",
    ),
    "bytes for the second block": (r"(mapa[^;]*), 0;", r"\1, 1;", "bytes are missing"),
    "a copy without a group": (
        r"complete_tx::bytes\.cta_group::2", "complete_tx::bytes", "of another block",
    ),
    "both blocks begin": (
        r"setp\.eq\.u32 (%p\d+), (%r\d+), 0;\n(?=[^\n]*\n?[^\n]*%tid)", r"setp.lt.u32 \1, \2, 2;\n",
        "bytes are missing",
    ),
    "128 rows": (r"272629776|\b27\d{7}\b", "136314896", "no product of 128|columns"),
}  # fmt: skip


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("name", WRONG)
def test_the_interpreter_refuses(name: str) -> None:
    pattern, instead, said = WRONG[name]
    changed = altered(text_of_product(LONG), pattern, instead)
    with pytest.raises(PTXError, match=said):
        interpreted(changed, LONG)


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("sizes", [TWICE, pytest.param(LONG, marks=nightly)])
def test_without_one_of_its_barriers_waits_or_arrivals_the_emulator_reports_it(
    sizes: tuple[int, int, int],
) -> None:
    found = good_program(product(*sizes), TARGET)
    execute(found, memory(found))
    kinds = (Ops.BARRIER, Ops.WAIT, Ops.WAIT_TILE, Ops.ARRIVE)
    needed = [node for node in found if node.op in kinds]
    said = "since the last barrier|without having waited|without arrival|waits forever|are expected"
    assert len(needed) > 4
    for gone in needed:
        with pytest.raises(InternalError, match=f"{said}|is not waited|waited for"):
            execute(without(found, gone), memory(found))


# machine code and bytes


@has_tools
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(
    ("sizes", "registers", "loop"),
    [((4096, 4096, 4096), 128, 8), pytest.param((2048, 2048, 1024), 64, 16, marks=nightly)],
    ids=str,
)
def test_the_assembler_takes_it(
    sizes: tuple[int, int, int], registers: int, loop: int, tmp_path: Path
) -> None:
    ast = product(*sizes)
    made, _ = assembled_kernel(ast, TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= registers
    assert made.loop["UTCHMMA"] == loop and "UCGABAR_WAIT" not in made.loop
    # One lane begins the products of two blocks.
    assert others_each(made) <= 0.05


@pytest.mark.row("S1.5")
@pytest.mark.usefixtures("few_blocks")
def test_the_right_operand_is_asked_for_once() -> None:
    m, n, k = TWICE
    found, alone = (count(good_program(product(m, n, k), each)) for each in (TARGET, ALONE))
    results = m * n * 4
    assert alone.moved_bytes == (m * k + 2 * k * n) * 2 + results
    assert found.moved_bytes == (m * k + k * n) * 2 + results
    assert found.sector_use == 1.0 and found.conflicts == 0


@nightly
@pytest.mark.row("S1.5")
def test_the_model_says_that_the_cache_binds_less() -> None:
    """4096x512 by 512x4096 on a B200."""
    ast = product(4096, 4096, 512)
    now, before = (
        predicted(count(good_program(ast, each), 2), "sm_100a") for each in (TARGET, ALONE)
    )
    assert before.binds == "cache" and now.limits["cache"] < 0.85 * before.limits["cache"]
    assert now.limits["memory"] == pytest.approx(before.limits["memory"])
    assert now.limits["shared"] < before.limits["shared"]
