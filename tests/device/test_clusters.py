"""Clusters of two blocks on sm_90a, which share tiles: which operands, values on the emulator and
on the interpreter of PTX beside NumPy, what each of them refuses, what the driver is told, what
NVIDIA's assembler says, and what the model makes of the bytes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import tiles
from tests.device.ptx.device import driver_of, simulated
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import PTXError, parse
from tests.device.ptx.products import altered, column_sums, drawn, operands_in, result_in
from tests.device.test_missing_barriers import memory, without
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel
from tests.device.test_wgmma import TARGET, check, product, text_of
from tests.optimize.kernels import good_program
from tilegrad import Tensor, jit
from tilegrad.base.errors import InternalError
from tilegrad.device import nv
from tilegrad.device.emulator import execute
from tilegrad.device.nv_runtime import NVProgram
from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Ops
from tilegrad.ir.text import dump, parse_program
from tilegrad.ir.uop import UOp
from tilegrad.render.python import render_python
from tilegrad.render.tile_maps import maps_of
from tilegrad.runtime.protocol import launch_dims
from tilegrad.runtime.simt import SimtProgram
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

pytestmark = pytest.mark.usefixtures("uncached")

nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
ALONE = replace(TARGET, has_clusters=False)
# Two blocks of 128 rows, which have the columns in common; four and eight tiles of each operand.
TWICE, LONG = (256, 128, 256), (256, 128, 512)


def copies(found: list[UOp]) -> list[TileMap]:
    return [node.arg for node in found if node.op is Ops.COPY_TILE]


# what is shared


@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(
    ("transposed", "box", "times"), [((False, True), (64, 128), 1), ((True, False), (64, 64), 2)]
)
def test_neighbours_share_the_operand_that_both_read(
    transposed: tuple[bool, bool], box: tuple[int, int], times: int
) -> None:
    """Half of 256 rows along the sum; of rows across it two of four boxes."""
    found = good_program(product(4096, 4096, 4096, transposed=transposed), TARGET)
    alone = good_program(product(4096, 4096, 4096, transposed=transposed), ALONE)
    shared = {each.box for each in copies(found) if each.blocks == 2}
    own = {each.box for each in copies(found) if each.blocks == 1}
    assert shared == {box} and own and {each.blocks for each in copies(alone)} == {1}
    # A phase has the bytes of whole tiles.
    arrivals = [node.arg for node in found if node.op is Ops.ARRIVE]
    assert sum(each.blocks == 2 for each in copies(found)) == times * len(arrivals)
    assert arrivals == [node.arg for node in alone if node.op is Ops.ARRIVE]


@pytest.mark.parametrize(
    "sizes", [(128, 128, 256), (384, 128, 256), (256, 64, 256)], ids=["one block", "three", "less"]
)
def test_an_odd_number_of_blocks_and_the_smaller_operand_share_nothing(
    sizes: tuple[int, int, int], few_blocks: None
) -> None:
    assert {each.blocks for each in copies(good_program(product(*sizes), TARGET))} == {1}


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_units_share_nothing(arch: str) -> None:
    target = nv.nv_target(arch)
    found = good_program(product(4096, 4096, 4096), target)
    assert all(each.blocks == 1 for each in copies(found))


def test_a_program_with_clusters_is_text_that_parses_back(few_blocks: None) -> None:
    found = good_program(product(*TWICE), TARGET)
    assert {each.blocks for each in copies(found)} == {1, 2}
    assert parse_program(dump(found)) == found


# values


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    ("sizes", "transposed"),
    [
        (TWICE, (False, False)),
        pytest.param(TWICE, (True, True), marks=nightly),
        pytest.param((512, 128, 256), (False, True), marks=nightly),
        pytest.param(LONG, (False, False), marks=nightly),
    ],
)
def test_the_emulator_multiplies(
    sizes: tuple[int, int, int], transposed: tuple[bool, bool]
) -> None:
    m, n, k = sizes
    found = good_program(product(m, n, k, transposed=transposed), TARGET)
    assert any(each.blocks == 2 for each in copies(found))
    x, y, out = drawn(m, k), drawn(k, n, seed=1), np.zeros((m, n), np.float32)
    stored = [x.T if transposed[0] else x, y.T if transposed[1] else y]
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in stored)])
    np.testing.assert_allclose(out, x.astype(float) @ y.astype(float), atol=1e-4)


VALUES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "plain": (lambda a, b: a @ b, ((256, 256), (256, 128))),
    "transposed": (lambda a, b: a.T @ b.T, ((256, 256), (128, 256))),
    "padded": (lambda a, b: a @ b, ((248, 248), (248, 248))),
    "one matrix for a batch": (lambda a, b: a @ b, ((2, 128, 128), (128, 128))),
    "several rows of blocks": (lambda a, b: a @ b.T, ((512, 192), (256, 192))),
    "computed on one side": (lambda a, b: (a * a) @ b, ((256, 128), (128, 128))),
}
USUAL = ("plain", "padded")


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=nightly) for name in VALUES]
)
def test_the_interpreter_multiplies(name: str) -> None:
    value, shapes = VALUES[name]
    driver = driver_of("NVSIM90")
    driver.calls.clear()
    check(value, *(drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)))
    assert "cuLaunchKernelEx" in driver.names()


# what is wrong


def interpreted(text: str, m: int, n: int, k: int) -> Any:
    """The product of ones and of rows that count, as a kernel's text has it."""
    entry, held = parse(text)["product"], GlobalMemory()
    places = operands_in(held, m, n, k)
    made = []
    for source, each in maps_of(good_program(product(m, n, k), TARGET)):
        strides = tuple(2 * stride for stride in each.strides[1:])
        matrix = tiles.TensorMap(2, places[source.arg], each.sizes, strides, each.box)
        made.append(int.from_bytes(matrix.packed(), "little"))
    lanes = int(re.findall(r"\.maxntid (\d+)", text)[0])
    run(entry, held, [*places, *made], (2, 1, 1), (2, 2, lanes // 4), TARGET.block_bytes)
    return result_in(held, places[0], m, n)


@pytest.mark.parametrize("sizes", [pytest.param(TWICE, marks=nightly), LONG])
def test_the_interpreter_reads_the_text(sizes: tuple[int, int, int], few_blocks: None) -> None:
    text = text_of(product(*sizes), TARGET)
    assert ".reqnctapercluster 2, 1, 1" in text and "bar.sync" not in text
    np.testing.assert_array_equal(interpreted(text, *sizes), column_sums(*sizes))


_MEETING = r"  barrier\.cluster\.arrive[^;]*;\n  barrier\.cluster\.wait[^;]*;\n"
WRONG = {
    "barriers of the block": (
        _MEETING + r"(?!.*barrier\.cluster)", "  bar.sync 0;\n", "another block touched",
    ),
    "barriers of the block at the begin": (
        r"\A(.*?)" + _MEETING, r"\1  bar.sync 0;\n", "that the cluster does not know",
    ),
    "no fence": (r"  fence\.mbarrier_init[^;]*;\n", "", "that the cluster does not know"),
    "no wait": (r"  barrier\.cluster\.wait[^;]*;\n", "", "arrives twice|another"),
    "no arrival": (r"  barrier\.cluster\.arrive[^;]*;\n", "", "not written|without having arrived"),
    "copies for the own block": (
        r"\.multicast::cluster([^;]*), 3;", r"\1;", "bytes are missing",
    ),
    "copies for one block": (r"(multicast::cluster[^;]*), 3;", r"\1, 1;", "bytes are missing"),
    "copies for a third block": (
        r"(multicast::cluster[^;]*), 3;", r"\1, 7;", r"blocks \[0, 1, 2\]",
    ),
    "no clusters": (r"\.reqnctapercluster[^\n]*\n", "", "of a cluster of 1"),
    "an older architecture": (r"sm_90a", "sm_80", "on sm_80"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_interpreter_refuses(name: str, few_blocks: None) -> None:
    pattern, instead, said = WRONG[name]
    changed = altered(text_of(product(*LONG), TARGET), pattern, instead)
    with pytest.raises(PTXError, match=said):
        interpreted(changed, *LONG)


@nightly
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("sizes", [TWICE, LONG])
def test_without_one_of_its_barriers_waits_or_arrivals_the_emulator_reports_it(
    sizes: tuple[int, int, int],
) -> None:
    found = good_program(product(*sizes), TARGET)
    execute(found, memory(found))
    kinds = (Ops.BARRIER, Ops.WAIT, Ops.WAIT_TILE, Ops.ARRIVE)
    needed = [node for node in found if node.op in kinds]
    assert len(needed) > 4
    said = "since the last barrier|without having waited|without arrival|waits forever|are expected"
    for gone in needed:
        with pytest.raises(InternalError, match=said):
            execute(without(found, gone), memory(found))


@pytest.mark.usefixtures("few_blocks")
def test_a_copy_for_one_block_is_reported() -> None:
    """Each block waits for the half that the other copies."""
    found = good_program(product(*TWICE), TARGET)
    wrong: list[UOp] = []
    mapping: dict[UOp, UOp] = {}
    first = next(node for node in found if node.op is Ops.COPY_TILE and node.arg.blocks == 2)
    for node in found:
        made = node.replace(src=tuple(mapping.get(source, source) for source in node.src))
        mapping[node] = made.replace(arg=replace(made.arg, blocks=1)) if node is first else made
        wrong.append(mapping[node])
    with pytest.raises(InternalError, match="waits forever"):
        execute(wrong, memory(found))


def test_a_launch_of_half_a_cluster_is_refused(few_blocks: None) -> None:
    found = good_program(product(*TWICE), TARGET)
    emulated = SimtProgram("product", render_python("product", found))
    buffers = [memoryview(each) for each in memory(found)]
    with pytest.raises(InternalError, match="product: clusters have 2 blocks"):
        emulated.run(buffers, [], (1, 1, 1), launch_dims(found).local_size)


# what the driver is told


@pytest.mark.usefixtures("few_blocks")
def test_launches_and_graphs_have_clusters() -> None:
    driver = driver_of("NVSIM90")
    device = simulated("NVSIM90")

    @jit
    def step(a: Tensor, b: Tensor) -> Tensor:
        return (((a @ b).relu() @ b) + 1).realize()

    y = drawn(128, 128, seed=9) / 16
    right = Tensor(y, device=device).realize()
    left = Tensor(drawn(256, 128), device=device).realize()
    driver.calls.clear()
    x = left.numpy().astype(float)
    wanted = np.maximum(x @ y.astype(float), 0) @ y.astype(float) + 1
    for _ in range(6):
        found = step(left, right).numpy().astype(float)
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.1)
    launches = [call[1] for call in driver.calls if call[0] == "cuLaunchKernelEx"]
    assert launches and all(
        (each.attrs[0].id, vars(each.attrs[0].value.clusterDim)) == (4, {"x": 2, "y": 1, "z": 1})
        for each in launches
    )
    names = driver.names()
    assert names.count("cuGraphKernelNodeSetAttribute") == 2 and "cuGraphLaunch" in names


def test_the_heading_says_how_many_blocks_run_together() -> None:
    ast = product(4096, 4096, 4096)
    for target, together in ((TARGET, 2), (ALONE, 1)):
        head = nv.heading_of("product", good_program(ast, target))
        assert NVProgram("product", head, None, None).together == together


def test_the_real_bindings_know_the_attribute() -> None:
    real = pytest.importorskip("cuda.bindings.driver", reason="pip install cuda-bindings")
    assert int(real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == 4
    for made in (real.CUlaunchAttribute().value, real.CUlaunchAttributeValue()):
        made.clusterDim.x = 2
        assert made.clusterDim.x == 2
    config = real.CUlaunchConfig()
    config.attrs, config.numAttrs = [real.CUlaunchAttribute()], 1
    assert len(config.attrs) == 1 and callable(real.cuLaunchKernelEx)
    assert callable(real.cuGraphKernelNodeSetAttribute)


# machine code and bytes


@has_tools
@pytest.mark.row("S1.5", "M9.1")
def test_the_assembler_takes_it(tmp_path: Path) -> None:
    made, lanes = assembled_kernel(product(4096, 4096, 4096), TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= 160 and lanes == 256
    assert made.loop["HGMMA"] == 16 and made.loop["UTMALDG"] == 4 * (1 + 2)
    alone, _ = assembled_kernel(product(4096, 4096, 4096), ALONE, tmp_path)
    # One barrier of both blocks for each tile, without a fence of all memory.
    assert made.loop["UCGABAR_WAIT"] == 4 and "MEMBAR" not in made.loop
    assert "UCGABAR_WAIT" not in alone.loop


@pytest.mark.row("S1.5")
@pytest.mark.usefixtures("few_blocks")
def test_an_operand_that_two_blocks_read_is_asked_for_once() -> None:
    m, n, k = TWICE
    found, alone = (count(good_program(product(m, n, k), each)) for each in (TARGET, ALONE))
    results = m * n * 4
    assert alone.moved_bytes == (m * k + 2 * k * n) * 2 + results
    assert found.moved_bytes == (m * k + k * n) * 2 + results
    assert found.sector_use == 1.0 and found.conflicts == 0


@nightly
@pytest.mark.row("S1.5")
def test_the_model_says_that_the_cache_binds_less() -> None:
    """4096x512 by 512x4096 on an H100, which the second-level cache binds: the issue's mark is 0.75
    of what libraries are published to reach, 0.9 of 989 TFLOP/s at best.
    """
    ast = product(4096, 4096, 512)
    now, before = (
        predicted(count(good_program(ast, each), 2), "sm_90a") for each in (TARGET, ALONE)
    )
    assert before.binds == "cache" and now.limits["cache"] < 0.8 * before.limits["cache"]
    assert now.limits["memory"] == pytest.approx(before.limits["memory"])
    flops = 2 * 4096 * 4096 * 512
    assert flops / (now.seconds - now.launch) > 0.75 * 0.9 * 989e12
