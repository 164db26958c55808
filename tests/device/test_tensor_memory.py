"""Products on the matrix units of sm_100a (`tcgen05`), which one lane begins and whose results
gather in tensor memory: what is chosen, what the emulator and the interpreter of PTX compute, what
the latter refuses, and what NVIDIA's assembler makes of it.
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

from tests.device.ptx import tensor_memory
from tests.device.ptx.device import driver_of, simulated
from tests.device.ptx.driver import FakeDriver
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import PTXError, parse
from tests.device.ptx.products import check_convolution, column_sums, drawn, operands_in, result_in
from tests.device.test_missing_barriers import memory, without
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.device.test_wgmma import VALUES, units
from tests.optimize.kernels import FLOAT, HALF, buffer, good_program, kernel, matmul, permute
from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError, InternalError
from tilegrad.device import nv
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.device.nv_tensor_maps import TensorMap
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx import PTXRenderer
from tilegrad.render.ptx_tensor_memory import TensorUnits
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

pytestmark = pytest.mark.usefixtures("uncached")

TARGET = nv_target("sm_100a")
# Lanes copy tiles themselves.
BY_LANES = replace(TARGET, has_tile_copies=False)
UNITS = {unit.name: unit for unit in TARGET.matrix_units if unit.columns}
nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
# Products of two, four and eight tiles of each operand: two or four of them are in shared memory at
# a time, so those of the first are filled once.
SMALL, TWICE, LONG = (128, 64, 128), (128, 64, 256), (128, 64, 512)


def product(
    m: int,
    n: int,
    k: int,
    *,
    dtype: DType = HALF,
    transposed: tuple[bool, bool] = (False, False),
    target: Target = TARGET,
) -> UOp:
    """The kernel of a product; of operands that are stored transposed, where it says so."""
    left = buffer(0, *((k, m) if transposed[0] else (m, k)), dtype=dtype)
    right = buffer(1, *((n, k) if transposed[1] else (k, n)), dtype=dtype)
    left = permute(left, 1, 0) if transposed[0] else left
    right = permute(right, 1, 0) if transposed[1] else right
    return kernel(matmul(left, right, total=FLOAT), target=target)


# what is chosen


@pytest.mark.row("M9.1")
@pytest.mark.parametrize("dtype", [HALF, pytest.param(dtypes.bfloat16, marks=nightly)])
def test_large_products_have_the_largest_unit(dtype: DType) -> None:
    found = good_program(product(4096, 4096, 4096, dtype=dtype), TARGET)
    assert units(found) == {f"tcgen05.m256n256k16.{dtype.name}"}
    # One lane copies the tiles; 256 rows share a tile of the right operand, and each of two blocks
    # copies half of it.
    assert not any(node.op is Ops.COPY_ASYNC for node in found)
    assert sum(node.op is Ops.DEFINE_ACC for node in found) == 2
    assert {node.arg for node in found if node.op is Ops.ARRIVE} == {(256 + 128) * 128}


@pytest.mark.row("M9.1")
@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ((2048, 2048, 1024), "tcgen05.m256n256k16.float16"),
        ((2048, 1024, 1024), "tcgen05.m256n128k16.float16"),
        ((1024, 1024, 1024), "tcgen05.m128n64k16.float16"),
        # A long sum has more accumulators, which are in registers (lower.levels).
        pytest.param((4096, 4096, 16384), "tcgen05.m128n128k16.float16", marks=nightly),
        # Half of the rows would be padding.
        ((64, 16384, 512), "mma.m16n8k16.float16.float32"),
        # Blocks of 128x64 would leave most of the device idle.
        ((512, 512, 256), "mma.m16n8k16.float16.float32"),
    ],
)
def test_tiles_leave_blocks_enough(sizes: tuple[int, int, int], name: str) -> None:
    assert units(good_program(product(*sizes), TARGET)) == {name}


def test_no_other_architecture_has_such_units() -> None:
    for arch in ("sm_80", "sm_90a", "sm_100", "sm_103", "sm_110", "sm_120"):
        assert not any(unit.columns for unit in nv_target(arch).matrix_units)


def test_a_device_of_that_capability_has_them() -> None:
    """The driver is asked for code of this architecture alone."""
    target = nv.opened("NV", FakeDriver((10, 0)), assembles=False).target
    assert target.isa == "sm_100a" and any(unit.columns for unit in target.matrix_units)


# the layouts of the instructions


@pytest.mark.parametrize("name", UNITS)
def test_results_are_loaded_from_where_the_unit_puts_them(name: str) -> None:
    """Row i of the results is lane i of tensor memory; a warp has the lanes that its number modulo
    four says, and half of the columns where there are eight warps.
    """
    unit = UNITS[name]
    columns = unit.n * 128 // unit.lanes
    rows, columns_of, height = tensor_memory.fragment("16x256b", columns // 8)
    for warp in range(unit.lanes // 32):
        found = np.array(unit.c_layout[32 * warp : 32 * warp + 32])
        first, second = np.split(found, 2, axis=1)
        for half, part in enumerate((first, second)):
            lane = warp % 4 * 32 + half * height
            np.testing.assert_array_equal(part[..., 0], lane + rows)
            np.testing.assert_array_equal(part[..., 1], warp // 4 * columns + columns_of)
    # An atom of 16x256b is the fragment of the results of `mma.sync`, another table of the ISA.
    (mma,) = [each for each in TARGET.matrix_units if each.name == "mma.m16n8k16.float16.float32"]
    atom = np.stack(tensor_memory.fragment("16x256b", 1)[:2], -1)
    np.testing.assert_array_equal(atom, mma.c_layout)
    # Every element of both operands is read by one lane.
    for layout, sizes in ((unit.a_layout, (128, unit.k)), (unit.b_layout, (unit.k, unit.n))):
        positions = [position for lane in layout for position in lane]
        assert sorted(positions) == [(i, j) for i in range(sizes[0]) for j in range(sizes[1])]


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        (2 << 61, "bits 46-48 of a matrix descriptor are 0b000"),
        (1 << 46 | 1 << 62 | 1 << 61, "not swizzled by 128 bytes: mode 3"),
        (1 << 46, "not swizzled by 128 bytes: mode 0"),
        (1 << 46 | 2 << 61 | 1 << 52, "mean nothing"),
    ],
)
def test_other_descriptors_of_operands_are_refused(bits: int, said: str) -> None:
    with pytest.raises(PTXError, match=said):
        tensor_memory.decode(bits)


@pytest.mark.parametrize(
    ("bits", "kind", "said"),
    [
        (1 << 4 | 16 << 17 | 8 << 24 | 1 << 13, "f16", "with bits 0x2000"),
        (16 << 17 | 8 << 24, "f16", "no f16 of types 0 and 0 to 0"),
        (1 << 4 | 1 << 7 | 16 << 17 | 8 << 24, "f16", "no f16 of types 1 and 0"),
        (1 << 4 | 16 << 17 | 4 << 24, "f16", "no product of 64x128"),
        (1 << 4 | 33 << 17 | 8 << 24, "f16", "no product of 128x264"),
        (1 << 4 | 16 << 17 | 8 << 24, "mxf4", "no tcgen05.mma of kind mxf4"),
        (1 << 4 | 1 << 15 | 16 << 17 | 8 << 24, "f8f6f4", "a transposed operand"),
    ],
)
def test_other_descriptors_of_instructions_are_refused(bits: int, kind: str, said: str) -> None:
    with pytest.raises(PTXError, match=said):
        tensor_memory.instruction(bits, kind)


# values


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("transposed", [(False, False), pytest.param((True, True), marks=nightly)])
@pytest.mark.parametrize("n", [64, pytest.param(128, marks=nightly), 256])
def test_the_emulator_multiplies(n: int, transposed: tuple[bool, bool]) -> None:
    m, k = 128, 128
    found = good_program(product(m, n, k, transposed=transposed), TARGET)
    assert units(found) == {f"tcgen05.m128n{n}k16.float16"}
    x, y, out = drawn(m, k), drawn(k, n, seed=1), np.zeros((m, n), np.float32)
    stored = [x.T if transposed[0] else x, y.T if transposed[1] else y]
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in stored)])
    np.testing.assert_allclose(out, x.astype(float) @ y.astype(float), atol=1e-4)
    counted = count(found)
    assert counted.conflicts == 0 and counted.sector_use == 1.0


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch, few_blocks: None) -> list[str]:
    """The names of the units that are rendered."""
    found: list[str] = []
    multiply = TensorUnits.multiply

    def noted(self: TensorUnits, node: UOp) -> None:
        found.append(node.arg.name)
        multiply(self, node)

    monkeypatch.setattr(TensorUnits, "multiply", noted)
    return found


def check(value: Callable[..., Any], *inputs: Any, atol: float = 0.05) -> None:
    """A value of tensors on the interpreter of PTX, against NumPy in float64."""
    device = simulated("NVSIM100")
    found = value(*(Tensor(each, device=device).realize() for each in inputs)).numpy()
    wanted = value(*(each.astype(np.float64) for each in inputs))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-3, atol=atol)


SHAPES = {
    **VALUES,
    "three tiles at a time": (lambda a, b: a @ b, ((128, 448), (448, 64))),
    "four tiles at a time": (lambda a, b: a @ b.T, ((128, 512), (64, 512))),
    "batch": (lambda a, b: a @ b, ((3, 128, 128), (3, 128, 64))),
    "left transposed": (lambda a, b: a.T @ b, ((128, 256), (128, 256))),
    "right transposed": (lambda a, b: a @ b.T, ((256, 128), (128, 128))),
    "epilogue": (lambda a, b, c: a @ b + c, ((128, 128), (128, 64), (64,))),
    "twice as many rows": (lambda a, b: a @ b, ((256, 192), (192, 256))),
    "twice as many rows, long": (lambda a, b: a.T @ b.T, ((448, 256), (256, 448))),
    "long sum": (lambda a, b: a @ b, ((128, 16384), (16384, 64))),
}
USUAL = ("plain", "both transposed", "epilogue", "computed", "twice as many rows")


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.parametrize(
    "name",
    [name if name in USUAL else pytest.param(name, marks=nightly) for name in SHAPES],
)
def test_the_interpreter_multiplies(name: str, used: list[str]) -> None:
    value, shapes = SHAPES[name]
    inputs = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    check(value, *inputs, atol=0.3 if name == "long sum" else 0.05)
    assert used and all(each.startswith("tcgen05") for each in used)


def test_bfloat16_has_them_too(used: list[str]) -> None:
    device = simulated("NVSIM100")
    x, y = (Tensor(drawn(128, 128, seed=seed), device=device).cast("bfloat16") for seed in (0, 1))
    wanted = x.float().numpy().astype(float) @ y.float().numpy().T.astype(float)
    found = x.matmul(y.T, dtype="float32").numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert set(used) == {"tcgen05.m128n128k16.bfloat16"}


@nightly
@pytest.mark.row("M9.1")
def test_a_convolution_has_such_units(used: list[str]) -> None:
    """Of 64 channels, half of the rows of this unit would be padding."""
    check_convolution("NVSIM100", images=2, outputs=128)
    assert used and all(each.startswith("tcgen05") for each in used)


def test_a_launch_asks_for_shared_memory_beside_what_is_declared(used: list[str]) -> None:
    driver = driver_of("NVSIM100")
    driver.calls.clear()
    check(lambda a, b: a @ b, drawn(128, 320), drawn(320, 256, seed=1))
    (set_,) = (call for call in driver.calls if call[0] == "cuFuncSetAttribute")
    # Two tiles of each operand and their barriers, and what makes them begin at a multiple of 1024.
    assert set_[3] == 2 * (128 + 256) * 64 * 2 + 2 * 8 + 1024


# what is wrong


def text_of(ast: UOp, target: Target = TARGET) -> str:
    return PTXRenderer(target).render("product", good_program(ast, target))


@functools.cache
def text_of_product(sizes: tuple[int, int, int], target: Target) -> str:
    """For tests with `few_blocks`, which are many."""
    return text_of(product(*sizes, target=target), target)


def interpreted(text: str, m: int, n: int, k: int, target: Target = TARGET) -> Any:
    """The product of ones and of rows that count, as a kernel's text has it."""
    entry, held = parse(text)["product"], GlobalMemory()
    places = operands_in(held, m, n, k)
    found = good_program(product(m, n, k, target=target), target)
    arguments = list(places)
    for part in nv.heading_of("product", found).split("|")[-1].split() if "_map0" in text else ():
        each = TensorMap.read(part)
        strides = tuple(stride * each.itemsize for stride in each.strides[1:])
        made = tensor_map(each.itemsize, places[each.slot], each.sizes, strides, each.box)
        arguments.append(int.from_bytes(made, "little"))
    asked = TARGET.block_bytes - 64 if ".extern .shared" in text else 0
    lanes = int(re.findall(r"\.maxntid (\d+)", text)[0])
    run(entry, held, arguments, (1, 1, 1), (2, 2, lanes // 4), asked)
    return result_in(held, places[0], m, n)


def tensor_map(itemsize: int, address: int, *rest: tuple[int, ...]) -> bytes:
    from tests.device.ptx.tiles import TensorMap as Described

    sizes, strides, box = rest
    return Described(itemsize, address, sizes, strides, box).packed()


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("sizes", [SMALL, LONG])
@pytest.mark.parametrize("target", [TARGET, BY_LANES], ids=["by one", "by lanes"])
def test_the_interpreter_reads_the_text(sizes: tuple[int, int, int], target: Target) -> None:
    text = text_of_product(sizes, target)
    np.testing.assert_array_equal(interpreted(text, *sizes, target), column_sums(*sizes))


def lines_of(text: str, pattern: str) -> list[re.Match[str]]:
    return list(re.finditer(rf"^  (?:@%p\d+ )?{pattern}[^\n]*;\n", text, re.M))


def waits_of(text: str) -> list[re.Match[str]]:
    """Waits for a phase, with the branch back to them and what follows of their parity."""
    pattern = (
        r"^\$L\d+:\n  mbarrier\.try_wait[^\n]*\n  @!%p\d+ bra \$L\d+;\n(?:  xor\.b32[^\n]*\n)?"
    )
    return list(re.finditer(pattern, text, re.M))


NEEDED = {
    "fences": r"tcgen05\.fence",
    "proxy fences": r"fence\.proxy",
    "waits for loads": r"tcgen05\.wait",
    "commits": r"tcgen05\.commit",
    "allocations": r"tcgen05\.(?:de)?alloc",
    "loads": r"tcgen05\.ld",
    "barriers": r"bar\.sync",
    "barrier objects": r"mbarrier\.init",
    "waits for copies": r"cp\.async\.wait",
    "arrivals": r"mbarrier\.arrive",
}


@pytest.mark.row("M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("name", [*NEEDED, "phases"])
@pytest.mark.parametrize(
    ("sizes", "target"), [(LONG, TARGET), (SMALL, BY_LANES)], ids=["by one", "by lanes"]
)
def test_without_one_of_its_lines_the_interpreter_refuses_the_text(
    name: str, sizes: tuple[int, int, int], target: Target
) -> None:
    """Each fence, wait, barrier and commit is taken out by itself."""
    text = text_of_product(sizes, target)
    found = waits_of(text) if name == "phases" else lines_of(text, NEEDED[name])
    if (target is BY_LANES and name == "arrivals") or (
        target is TARGET and name == "waits for copies"
    ):
        assert not found
    else:
        assert found
    for line in found:
        with pytest.raises(PTXError):
            interpreted(text[: line.start()] + text[line.end() :], *sizes, target)


WRONG = {
    "an older architecture": (r"\.target sm_100a", ".target sm_100", "no tcgen05 on sm_100 "),
    "an older PTX": (r"\.version 8\.6", ".version 8.5", "in PTX"),
    "half of the columns": (r"(tcgen05\.alloc.*), 64;", r"\1, 32;", "are not allocated"),
    "an odd number of columns": (r"(tcgen05\.alloc.*), 64;", r"\1, 48;", "of 48 columns"),
    "columns behind the right to them": (
        r"(  tcgen05\.alloc[^;]*;\n)(  tcgen05\.relinquish[^;]*;\n)", r"\1\2\1", "behind tcgen05",
    ),
    "half given back": (r"(tcgen05\.dealloc.*), 64;", r"\1, 32;", "dealloc of 32 columns"),
    "twice given back": (r"(  tcgen05\.dealloc[^;]*;\n)", r"\1\1", "dealloc of 64 columns"),
    "use behind the end": (
        r"(  tcgen05\.ld[^;]*;\n)(.*)(  ret;)", r"\1\2\1\3", "not allocated",
    ),
    "every lane multiplies": (r"  @!%p\d+ bra (\$L\d+);\n(?=  mov.b32 %r\d+, 0;\n\$)", "", "lane"),
    "added to nothing": (
        r"setp\.ne\.u32 (%p\d+), 0, 0;", r"setp.eq.u32 \1, 0, 0;", "adds to what nobody wrote",
    ),
    "other lanes of tensor memory": (
        r"shl\.b32 (%r\d+), (%r\d+), 21", r"shl.b32 \1, \2, 20", "warp 1 loads from lane 16",
    ),
    "the other mode of swizzling": ("1073758272", "536887360", "not swizzled by 128 bytes"),
    "wgmma's descriptor": ("1073758272", "1073741888", "bits 46-48"),
    "another kind": (r"kind::f16", "kind::f8f6f4", "transposed operand|no f8f6f4"),
    "another number of rows": (r"135331856", str(135331856 - (4 << 24)), "no product of 64x64"),
    "the right operand as it is not": (r"135331856", str(135331856 ^ 1 << 16), "has not brought"),
    "a barrier that was not made": (
        r"(\[tensor_words\+\d+\], 1;\n)  @%p0 mbarrier\.init[^;]*;\n(?=  setp)", r"\1",
        "no mbarrier",
    ),
    "other registers": (r"16x256b\.x8", "16x256b.x4", "registers for 16x256b.x4"),
    "a register too soon": (
        r"(\{(%r\d+),[^;]*;\n)(  tcgen05\.wait)", r"\1  add.s32 \2, \2, 1;\n\3",
        "before tcgen05.wait",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("name", WRONG)
def test_the_interpreter_refuses(name: str) -> None:
    pattern, instead, said = WRONG[name]
    text = text_of_product(LONG, TARGET)
    changed, times = re.subn(pattern, instead, text, flags=re.S if "ret" in pattern else 0)
    assert times and changed != text
    with pytest.raises(PTXError, match=said):
        interpreted(changed, *LONG)


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        # Of pairs of blocks in each run (tests/device/test_block_pairs.py).
        pytest.param(TWICE, TARGET, marks=nightly),
        (SMALL, BY_LANES),
        pytest.param(LONG, TARGET, marks=nightly),
        pytest.param(LONG, BY_LANES, marks=nightly),
    ],
)
def test_without_one_of_its_barriers_or_waits_the_emulator_reports_it(
    sizes: tuple[int, int, int], target: Target, few_blocks: None
) -> None:
    found = good_program(product(*sizes, target=target), target)
    execute(found, memory(found))
    kinds = (Ops.BARRIER, Ops.WAIT, Ops.WAIT_TILE, Ops.ARRIVE)
    needed = [node for node in found if node.op in kinds]
    said = r"since the last barrier|without having waited|without arrival|is not waited|waited for"
    assert needed
    for gone in needed:
        with pytest.raises(InternalError, match=said):
            execute(without(found, gone), memory(found))


def test_a_block_of_other_lanes_is_refused(few_blocks: None) -> None:
    found = good_program(product(*SMALL), TARGET)
    other = nv_target("sm_100a")
    wider = [
        node.replace(arg=(node.arg[0], 4)) if node.op is Ops.SPECIAL and node.arg[0] == "lidx0"
        else node
        for node in found
    ]  # fmt: skip
    mapping = dict(zip(found, wider))
    rewired: dict[UOp, UOp] = {}
    for node in found:
        new = mapping[node]
        rewired[node] = new.replace(src=tuple(rewired.get(each, each) for each in new.src))
    with pytest.raises(CompileError, match="has a block of 128 lanes and 512 columns"):
        PTXRenderer(other).render("product", list(rewired.values()))


# machine code


@has_tools
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize(
    ("sizes", "registers"),
    [
        ((4096, 4096, 4096), 128),
        ((1024, 1024, 1024), 64),
        pytest.param((2048, 2048, 1024), 64, marks=nightly),
        pytest.param((4096, 4096, 16384), 128, marks=nightly),
    ],
    ids=str,
)
def test_one_lane_has_the_loop_to_itself(
    sizes: tuple[int, int, int], registers: int, tmp_path: Path
) -> None:
    """No lane waits for the others in it, and nothing but it touches the units. Results are loaded
    a few at a time.
    """
    made, _ = assembled_kernel(product(*sizes), TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= registers
    # Four tiles, one of 256 rows, or one of a long sum.
    of_loop = {(2048, 1024): 16, (1024, 1024): 16, (4096, 4096): 8, (4096, 16384): 4}
    assert made.loop["UTCHMMA"] == of_loop[sizes[0], sizes[2]]
    assert made.loop["UTMALDG"] >= 2
    assert not {"BAR", "ELECT", "HMMA", "LDGSTS", "LDSM", "FFMA"} & set(made.loop)
    # Of the instructions of one warp for the products of its block.
    assert others_each(made) <= {256: 0.08, 128: 0.25, 64: 0.25}[_columns(sizes)]


def _columns(sizes: tuple[int, int, int]) -> int:
    (name,) = units(good_program(product(*sizes), TARGET))
    return int(re.findall(r"n(\d+)k16", name)[0])


@has_tools
@nightly
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize("channels", [128, 256, 512])
def test_convolutions_spill_nothing(channels: int, tmp_path: Path) -> None:
    side = 3584 // channels
    image = Tensor.empty(32, channels, side, side, dtype="half")
    weight = Tensor.empty(channels, channels, 3, 3, dtype="half")
    ast = plan(image.conv2d(weight, padding=1), target=TARGET).items[-1].ast
    assert ast is not None
    made, _ = assembled_kernel(ast, TARGET, tmp_path)
    assert made.spilled_bytes == 0 and made.loop["UTCHMMA"] >= 4
    assert others_each(made) <= 1.6


@pytest.mark.row("S1.5")
@pytest.mark.parametrize(
    "sizes",
    [
        (2048, 2048, 128),
        *(pytest.param(each, marks=nightly) for each in ((1024, 1024, 1024), (4096, 4096, 256))),
    ],
)
def test_the_model_says_that_they_are_no_slower(sizes: tuple[int, int, int]) -> None:
    """Than the units of warps, whose operands go through registers."""
    warps = tuple(unit for unit in TARGET.matrix_units if not unit.columns)
    times = []
    for target in (TARGET, replace(TARGET, matrix_units=warps)):
        found = good_program(product(*sizes, target=target), target)
        assert any(name.startswith("tcgen05") for name in units(found)) == (target is TARGET)
        times.append(predicted(count(found, 1), target.isa))
    own, other = times
    assert own.seconds <= other.seconds and own.limits["issue"] <= other.limits["issue"] / 2


def test_what_one_lane_does_is_counted_once(few_blocks: None) -> None:
    """Of a loop that it has to itself a warp has its share; barriers of the block are none."""
    found = count(good_program(product(*LONG), TARGET))
    m, n, k = LONG
    assert found.instructions["matrix"] == k // 16
    # A wait for each of eight tiles, by one of four warps.
    assert found.instructions["barrier"] == k // 64 // 4
    assert found.moved_bytes == (m * k + k * n) * 2 + m * n * 4
