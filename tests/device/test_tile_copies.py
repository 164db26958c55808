"""Tiles that one lane copies to shared memory for the matrix units of sm_90a, and the barriers by
which the others know that they are there: which operands have them, values on the emulator and the
interpreter of PTX beside NumPy, what each refuses, what the driver is told, and machine code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import tiles
from tests.device.ptx.device import driver_of, simulated
from tests.device.ptx.driver import FakeDriver
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import PTXError, parse
from tests.device.ptx.products import altered, column_sums, drawn, operands_in, result_in
from tests.device.test_missing_barriers import memory, without
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.device.test_wgmma import BY_LANES, TARGET, check, product, text_of
from tests.optimize.kernels import (
    FLOAT,
    HALF,
    buffer,
    good_opts,
    good_program,
    kernel,
    matmul,
    shaped,
)
from tilegrad import Tensor, jit
from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import DeviceError, InternalError
from tilegrad.device import nv, nv_tensor_maps
from tilegrad.device.emulator import execute
from tilegrad.device.nv_tensor_maps import TensorMap, TensorMaps
from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.text import dump, parse_program
from tilegrad.ir.uop import UOp
from tilegrad.lower.filling_lanes import find_boxes
from tilegrad.lower.lower import lower
from tilegrad.render.tile_maps import maps_of
from tilegrad.tools.gpu_report import count

pytestmark = pytest.mark.usefixtures("uncached")

nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
# Products of two, four and eight tiles of each operand: two or four of them are in shared memory
# at a time, so those of the first are filled once.
SMALL, TWICE, LONG = (64, 64, 128), (64, 64, 256), (64, 64, 512)


def maps(found: list[UOp]) -> list[TileMap]:
    """Of each operand."""
    return [matrix for _, matrix in maps_of(found)]


# which operands


@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(
    ("transposed", "rows"),
    [((False, False), (128, 64)), ((True, True), (64, 256)), ((False, True), (128, 256))],
)
def test_operands_of_large_products_are_copied_by_one_lane(
    transposed: tuple[bool, bool], rows: tuple[int, int]
) -> None:
    """Rows of a box have 128 bytes: across the sum, a tile is several of them."""
    target = replace(TARGET, has_clusters=False)
    found = good_program(product(4096, 4096, 4096, transposed=transposed), target)
    matrix = TileMap((4096, 4096), (1, 4096), (64, 64))
    assert {each.box for each in maps(found)} == {(64, count) for count in rows}
    assert all(replace(each, box=matrix.box) == matrix for each in maps(found))
    assert not any(node.op is Ops.COPY_ASYNC for node in found)
    # Tiles of 128 and of 256 rows of 128 bytes.
    assert {node.arg for node in found if node.op is Ops.ARRIVE} == {(128 + 256) * 128}


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (1024, 1024, 1024)])
def test_blocks_run_in_the_order_that_they_have_of_lanes_copies(
    sizes: tuple[int, int, int],
) -> None:
    """In groups where both operands are larger than the cache (`lower.grid.order_of_blocks`)."""
    by_one, by_lanes = (good_program(product(*sizes), each) for each in (TARGET, BY_LANES))

    def blocks(found: list[UOp]) -> dict[str, int]:
        names = (node.arg for node in found if node.op is Ops.SPECIAL)
        return {name: extent for name, extent in names if name.startswith("gidx")}

    assert blocks(by_one) == blocks(by_lanes)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_other_units_read_tiles_that_lanes_copy(arch: str) -> None:
    target = nv.nv_target(arch)
    ast = product(4096, 4096, 4096)
    assert not maps(good_program(ast, target))
    assert target.has_tile_copies == (arch != "sm_80")


@pytest.mark.usefixtures("few_blocks")
def test_rows_that_are_no_whole_vectors_are_copied_by_lanes() -> None:
    """250 halves are 500 bytes, no multiple of 16."""
    assert not maps(good_program(product(250, 250, 250), TARGET))
    assert len(maps(good_program(product(248, 248, 248), TARGET))) == 2


def test_a_program_with_copies_of_tiles_is_text_that_parses_back(few_blocks: None) -> None:
    found = good_program(product(*SMALL), TARGET)
    assert parse_program(dump(found)) == found


@pytest.mark.usefixtures("few_blocks")
def test_a_buffer_that_the_kernel_stores_to_is_copied_by_lanes() -> None:
    """The copy reads it by another way than lanes write it."""
    left, right = (buffer(slot, 128, 128, dtype=HALF) for slot in (0, 1))
    ast = kernel(matmul(left, right, total=FLOAT).cast(HALF), target=TARGET)
    ast = shaped(ast, good_opts(ast, TARGET), TARGET)
    out, first = (
        next(node for node in ast.toposort() if node.op is Ops.DEFINE_GLOBAL and node.arg == slot)
        for slot in (0, 1)
    )
    assert out.dtype is first.dtype
    assert len(maps(lower(ast, TARGET))) == 2
    assert len(maps(lower(ast.substitute({first: out}), TARGET))) == 1


def fill_of(
    index: Callable[[UOp, UOp, UOp, UOp], UOp], *, columns: int = 64, size: int = 1 << 20
) -> tuple[UOp, UOp]:
    """The fill of a tile of 32 rows in a loop, which loads at `index`(block, loop, row, column)."""
    loop = UOp.range(8, 0, Axis.REDUCE)
    block = UOp.range(4, 1, Axis.GLOBAL)
    row, column = UOp.range(32, 2, Axis.STAGE), UOp.range(columns, 3, Axis.STAGE)
    source = UOp(Ops.DEFINE_GLOBAL, dtypes.half.ptr(size), (), 1)
    pointer = dtypes.half.ptr(32 * columns, AddressSpace.SHARED)
    shared = UOp(Ops.DEFINE_LOCAL, pointer, (loop,), 0)
    value = source.load(index(block, loop, row, column))
    at = column // 64 * 2048 + row * 64 + column % 64
    return shared.store(at if columns > 64 else row * 64 + column, value).end(row, column), loop


PLAIN = {
    "a row of blocks": (lambda m, k, i, j: m * 16384 + i * 512 + k * 64 + j, (512, 128), (1, 512)),
    "down the sum": (lambda m, k, i, j: k * 16384 + i * 512 + m * 64 + j, (256, 256), (1, 512)),
    "from the middle": (
        lambda m, k, i, j: m * 16384 + i * 512 + k * 64 + j + 1027 * 8, (472 + 64, 129), (1, 512)
    ),
    "another matrix": (
        lambda m, k, i, j: m * 20008 + i * 512 + k * 64 + j, (512, 32, 4), (1, 512, 20008)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "from the middle"])
def test_the_matrix_of_an_index(name: str) -> None:
    index, sizes, strides = PLAIN[name]
    found = find_boxes(*fill_of(index), TARGET)
    assert found is not None and (found.map.sizes, found.map.strides) == (sizes, strides)
    assert found.map.box == (64, 32, 1)[: len(sizes)] and found.cuts == ((0, 0),)


def test_rows_across_the_sum_are_several_boxes() -> None:
    fill, loop = fill_of(lambda m, k, i, j: k * 8192 + i * 256 + j, columns=256)
    found = find_boxes(fill, loop, TARGET)
    assert found is not None and found.map.sizes == (256, 256)
    assert found.cuts == ((0, 0), (2048, 64), (4096, 128), (6144, 192))


REFUSED: dict[str, Callable[[UOp, UOp, UOp, UOp], UOp]] = {
    "rows of 516 bytes": lambda m, k, i, j: m * 8256 + i * 258 + k * 64 + j,
    "every second element": lambda m, k, i, j: i * 1024 + k * 128 + j * 2,
    "columns that are rows": lambda m, k, i, j: i + j * 512,
    "rows that overlap": lambda m, k, i, j: i * 8 + k * 256 + j,
    "the same row": lambda m, k, i, j: k * 64 + j,
    "a remainder": lambda m, k, i, j: (m * 32 + i) % 56 * 512 + k * 64 + j,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_plain_matrix_is_copied_by_lanes(name: str) -> None:
    assert find_boxes(*fill_of(REFUSED[name]), TARGET) is None


def test_what_no_instruction_copies_is_copied_by_lanes() -> None:
    index, *_ = PLAIN["a row of blocks"]
    fill, loop = fill_of(index)
    assert find_boxes(fill, loop, BY_LANES) is None
    # The matrix would leave its buffer.
    short, loop = fill_of(index, size=128 * 512 - 1)
    assert find_boxes(short, loop, TARGET) is None
    # A loop whose length a launch says.
    length = UOp.variable("n", 1, 8)
    symbolic = loop.replace(src=(length,))
    assert find_boxes(fill.substitute({loop: symbolic}), symbolic, TARGET) is None


# values


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    ("sizes", "transposed"),
    [
        (SMALL, (False, False)),
        pytest.param((64, 64, 448), (True, True), marks=nightly),
        pytest.param(LONG, (False, True), marks=nightly),
        pytest.param((120, 120, 248), (False, False), marks=nightly),
    ],
)
def test_the_emulator_multiplies(
    sizes: tuple[int, int, int], transposed: tuple[bool, bool]
) -> None:
    m, n, k = sizes
    found = good_program(product(m, n, k, transposed=transposed), TARGET)
    assert len(maps(found)) == 2
    x, y, out = drawn(m, k), drawn(k, n, seed=1), np.zeros((m, n), np.float32)
    stored = [x.T if transposed[0] else x, y.T if transposed[1] else y]
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in stored)])
    np.testing.assert_allclose(out, x.astype(float) @ y.astype(float), atol=1e-4)


def heads(a: Any, b: Any) -> Any:
    """The scores of heads that lie beside each other in a row."""
    if isinstance(a, np.ndarray):
        return a.transpose(0, 2, 1, 3) @ b.transpose(0, 2, 3, 1)
    return a.permute(0, 2, 1, 3) @ b.permute(0, 2, 3, 1)


Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], list[int]]
# The function, shapes, and the dimensions of the matrices that are copied.
VALUES: dict[str, Case] = {
    "padded": (lambda a, b: a @ b, ((248, 248), (248, 248)), [2, 2]),
    "padded, transposed": (lambda a, b: a.T @ b.T, ((248, 248), (248, 248)), [2, 2]),
    "padded batch": (lambda a, b: a @ b, ((3, 120, 248), (3, 248, 248)), [3, 3]),
    "one matrix for a batch": (lambda a, b: a @ b, ((3, 64, 128), (128, 64)), [2, 2]),
    "matrices that lie apart": (lambda a, b: a[:, :128] @ b, ((2, 131, 128), (128, 64)), [2, 2]),
    "heads": (heads, ((2, 120, 2, 248), (2, 120, 2, 248)), [4, 4]),
    "heads of whole tiles": (heads, ((2, 128, 2, 128), (2, 128, 2, 128)), [2, 2]),
    "slices": (
        lambda a, b: a[3:131, 8:200] @ b[:, 1:65], ((140, 208), (192, 72)), [2, 2]
    ),
    "computed on one side": (lambda a, b: (a * a) @ b, ((128, 128), (128, 64)), [2]),
    "rows of one side are no vectors": (lambda a, b: a @ b, ((128, 248), (248, 250)), [2]),
}  # fmt: skip
USUAL = ("padded batch", "slices", "computed on one side")


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=nightly) for name in VALUES]
)
def test_the_interpreter_multiplies(name: str) -> None:
    value, shapes, dimensions = VALUES[name]
    driver = driver_of("NVSIM90")
    driver.calls.clear()
    check(value, *(drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)))
    encoded = [call[2] for call in driver.calls if call[0] == "cuTensorMapEncodeTiled"]
    assert sorted(encoded) == dimensions


# what is wrong


def interpreted(text: str, m: int, n: int, k: int) -> Any:
    """The product of ones and of rows that count, as a kernel's text has it."""
    entry, held = parse(text)["product"], GlobalMemory()
    places = operands_in(held, m, n, k)
    found = maps(good_program(product(m, n, k), TARGET))
    made = [
        tiles.TensorMap(2, place, each.sizes, tuple(2 * x for x in each.strides[1:]), each.box)
        for each, place in zip(found, places[1:] if found[0].sizes == (k, m) else places[:0:-1])
    ]
    arguments = [*places, *(int.from_bytes(each.packed(), "little") for each in made)]
    lanes = int(re.findall(r"\.maxntid (\d+)", text)[0])
    asked = TARGET.block_bytes if ".extern .shared" in text else 0
    run(entry, held, arguments, (1, 1, 1), (2, 2, lanes // 4), asked)
    return result_in(held, places[0], m, n)


@pytest.mark.parametrize("sizes", [SMALL, LONG])
def test_the_interpreter_reads_the_text(sizes: tuple[int, int, int], few_blocks: None) -> None:
    found = interpreted(text_of(product(*sizes), TARGET), *sizes)
    np.testing.assert_array_equal(found, column_sums(*sizes))


WRONG = {
    "no wait": (r"(\$L\d+):\n  mbarrier\.try_wait[^;]*;\n  @!%p\d+ bra \1;\n", "", "not brought"),
    "one wait less": (
        r"(\$L\d+:\n  )mbarrier\.try_wait[^;]*;\n  @!%p\d+ bra \$L\d+;\n(?!.*try_wait)",
        r"\1mov.b32 %r0, %r0;\n", "not brought|without waiting",
    ),
    "the other parity": (r"(try_wait[^;]*), (%r\d+|0|1);", r"\1, 1;", "phase that does not end"),
    "no fence": (r"  fence\.proxy\.async\.shared::cta;\n", "", "without fence.proxy.async"),
    "no barrier": (r"  bar\.sync 0;\n(?!.*bar\.sync)", "", "another lane read since"),
    "no commit": (r"  wgmma\.commit_group[^;]*;\n", "", "while a matrix unit"),
    "no wait for the units before": (
        r"  wgmma\.wait_group\.sync\.aligned 1;\n", "", "has not brought yet|changes before",
    ),
    "two groups behind": (
        r"wait_group\.sync\.aligned 1;", "wait_group.sync.aligned 2;",
        "has not brought yet|changes before",
    ),
    "no wait for the last units": (
        r"  wgmma\.wait_group\.sync\.aligned 0;\n", "", "while a matrix unit",
    ),
    "no barrier at the begin": (r"\A(.*?)  bar\.sync 0;\n", r"\1", "that another lane made"),
    "no arrival": (r"  mbarrier\.arrive[^;]*;\n", "", "phase that does not end"),
    "more bytes": (r"(expect_tx[^;]*), 16384;", r"\1, 16400;", "16 bytes are missing"),
    "fewer bytes": (r"(expect_tx[^;]*), 16384;", r"\1, 8192;", "-8192 bytes are missing"),
    "two arrivals": (r"(init\.shared::cta\.b64 [^;]*), 1;", r"\1, 2;", "1 arrivals"),
    "every lane": (r"  @!%p\d+ bra \$L0;\n", "", "more lanes arrive"),
    "no barrier object": (r"  @%p\d+ mbarrier\.init[^;]*;\n", "", "no mbarrier"),
    "another place": (r"(complete_tx::bytes \[%r\d+)\]", r"\1+16]", "no multiple of 128"),
    "one coordinate": (r"\{(%r\d+), %r\d+\}\], \[", r"{\1}], [", "1 coordinates in 2d"),
    "an older architecture": (r"sm_90a", "sm_80", "on sm_80"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_interpreter_refuses(name: str, few_blocks: None) -> None:
    pattern, instead, said = WRONG[name]
    changed = altered(text_of(product(*TWICE), TARGET), pattern, instead)
    with pytest.raises(PTXError, match=said):
        interpreted(changed, *TWICE)


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("sizes", [TWICE, pytest.param(LONG, marks=nightly)])
def test_without_one_of_its_barriers_waits_or_arrivals_the_emulator_reports_it(
    sizes: tuple[int, int, int],
) -> None:
    found = good_program(product(*sizes), TARGET)
    execute(found, memory(found))
    kinds = (Ops.BARRIER, Ops.WAIT, Ops.WAIT_TILE, Ops.ARRIVE)
    needed = [node for node in found if node.op in kinds]
    waits = sum(node.op is Ops.WAIT_TILE for node in needed)
    assert waits == sum(node.op is Ops.BARRIER for node in needed) == (4 if sizes is LONG else 2)
    said = r"since the last barrier|without having waited|without arrival"
    for gone in needed:
        with pytest.raises(InternalError, match=said):
            execute(without(found, gone), memory(found))


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    ("op", "change", "said"),
    [
        (Ops.ARRIVE, lambda node: node.replace(arg=node.arg + 16), "waits forever.* 16384 bytes"),
        (Ops.ARRIVE, lambda node: node.replace(arg=node.arg - 16), "16368 are expected"),
        (
            Ops.WAIT_TILE,
            lambda node: node.replace(src=(*node.src[:2], UOp.const(dtypes.int32, 1))),
            "waits forever|without having waited",
        ),
        (
            Ops.COPY_TILE,
            lambda node: node.replace(arg=replace(node.arg, box=(64, 32))),
            "waits forever",
        ),
    ],
    ids=["more bytes", "fewer bytes", "the other parity", "a smaller box"],
)
def test_wrong_phases_and_bytes_are_reported(
    op: Ops, change: Callable[[UOp], UOp], said: str
) -> None:
    found = good_program(product(*SMALL), TARGET)
    wrong: list[UOp] = []
    mapping: dict[UOp, UOp] = {}
    for node in found:
        made = node.replace(src=tuple(mapping.get(source, source) for source in node.src))
        mapping[node] = change(made) if node.op is op else made
        wrong.append(mapping[node])
    with pytest.raises(InternalError, match=said):
        execute(wrong, memory(found))


# what the driver is told


@pytest.mark.usefixtures("few_blocks")
def test_a_buffer_is_described_once() -> None:
    """Each launch passes what was encoded for its buffers; a graph gets it with new arguments."""
    driver = driver_of("NVSIM90")
    device = simulated("NVSIM90")

    @jit
    def step(a: Tensor, b: Tensor) -> Tensor:
        return (((a @ b).relu() @ b) + 1).realize()

    y = drawn(128, 128, seed=9) / 16
    right = Tensor(y, device=device).realize()
    lefts = [Tensor(drawn(128, 128, seed=seed), device=device).realize() for seed in range(2)]
    driver.calls.clear()
    for turn in range(8):
        left = lefts[turn % 2]
        x = left.numpy().astype(float)
        wanted = np.maximum(x @ y.astype(float), 0) @ y.astype(float) + 1
        found = step(left, right).numpy().astype(float)
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.05)
    names = driver.names()
    addresses = [call[3] for call in driver.calls if call[0] == "cuTensorMapEncodeTiled"]
    # Two operands of each of two products, and the other left operand; results may lie in more
    # than one buffer.
    assert 4 <= len(addresses) <= 8
    assert names.count("cuGraphLaunch") >= 4
    assert "cuGraphExecKernelNodeSetParams" in names


def test_maps_are_read_from_the_heading() -> None:
    found = good_program(product(4096, 4096, 4096), TARGET)
    heading = nv.heading_of("product", found)
    texts = heading.split("|")[4].split()
    assert {TensorMap.read(text).slot for text in texts} == {1, 2}
    for text in texts:
        each = TensorMap.read(text)
        assert (each.itemsize, each.sizes, each.strides) == (2, (4096, 4096), (1, 4096))


def test_a_buffer_at_an_odd_address_is_told() -> None:
    fake = FakeDriver()
    driver = nv.opened("NV", fake, assembles=False).runtime.driver
    maps_ = TensorMaps((TensorMap(0, 2, (64, 64), (1, 64), (64, 64)),), "product")
    start = driver.call("cuMemAlloc", 1 << 14)
    assert maps_.encoded(driver, 0, start) == maps_.encoded(driver, 0, start)
    assert fake.names().count("cuTensorMapEncodeTiled") == 1
    with pytest.raises(DeviceError, match="product: a buffer that is copied by tiles begins at"):
        maps_.encoded(driver, 0, start + 8)


def test_a_map_that_the_driver_refuses_is_told() -> None:
    """A matrix with rows that are no whole vectors; and a driver that has no such function."""
    fake = FakeDriver()
    driver = nv.opened("NV", fake, assembles=False).runtime.driver
    odd = TensorMaps((TensorMap(0, 2, (60, 64), (1, 60), (64, 64)),), "product")
    with pytest.raises(DeviceError, match="cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE"):
        odd.encoded(driver, 0, driver.call("cuMemAlloc", 1 << 14))
    old = nv.opened("NV", FakeDriver(version=11080), assembles=False).runtime.driver
    with pytest.raises(DeviceError, match="cuGetProcAddress: CUDA_ERROR_INVALID_VALUE"):
        odd.encoded(old, 0, 1 << 40)


def test_the_real_bindings_know_the_function_and_its_numbers() -> None:
    """They convert arguments before they look for the driver's library."""
    real = pytest.importorskip("cuda.bindings.driver", reason="pip install cuda-bindings")
    kinds = real.CUtensorMapDataType
    assert int(kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8) == nv_tensor_maps._KINDS[1]
    assert int(kinds.CU_TENSOR_MAP_DATA_TYPE_UINT16) == nv_tensor_maps._KINDS[2]
    for title, name, value in (
        ("Interleave", "INTERLEAVE_NONE", nv_tensor_maps._PLAIN),
        ("Swizzle", "SWIZZLE_128B", nv_tensor_maps._SWIZZLED_128),
        ("L2promotion", "L2_PROMOTION_L2_128B", nv_tensor_maps._PROMOTED_128),
        ("FloatOOBfill", "FLOAT_OOB_FILL_NONE", nv_tensor_maps._ZEROS),
    ):
        enum = getattr(real, f"CUtensorMap{title}")
        assert int(getattr(enum, f"CU_TENSOR_MAP_{name}")) == value
    try:
        real.cuInit(0)
    except Exception as error:
        absent = type(error)
    else:
        pytest.skip("there is a driver here")
    driver = nv.opened("NV", FakeDriver(), assembles=False).runtime.driver
    driver.module = real
    with pytest.raises(absent):
        driver.entry("cuTensorMapEncodeTiled", 12000)


# machine code


@pytest.mark.row("S1.5")
@pytest.mark.usefixtures("few_blocks")
def test_what_is_copied_is_counted() -> None:
    """A block reads each operand once, and asks for whole sectors."""
    m, n, k = SMALL
    found = count(good_program(product(m, n, k), TARGET))
    assert found.moved_bytes == (m * k + k * n) * 2 + m * n * 4
    assert found.sector_use == 1.0 and found.conflicts == 0
    # One tile of two is on its way: 64 rows of each operand, for four warps.
    assert found.copies == 32


@has_tools
@pytest.mark.row("S1.5", "M9.1")
def test_one_lane_copies_and_the_others_go_on(tmp_path: Path) -> None:
    """The assembler knows that one lane copies: else it writes a loop over lanes for each box."""
    ast = product(4096, 4096, 4096)
    made, lanes = assembled_kernel(ast, TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= 160 and lanes == 256
    # Four iterations: of the left operand one box each, of the right one half of four.
    assert made.loop["UTMALDG"] == 4 * (1 + 2) and made.loop["HGMMA"] == 16
    assert "LDGSTS" not in made.loop and "ELECT" not in made.loop
    before, _ = assembled_kernel(ast, BY_LANES, tmp_path)
    assert others_each(made) < others_each(before)
