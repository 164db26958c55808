"""What is counted of GPU kernels, against closed forms of their sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.render.programs import FLOAT, const, data, load, special
from tilegrad import Context, Tensor
from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.base.trace import recording
from tilegrad.compile import nvrtc
from tilegrad.compile.ptxas import find_ptxas
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tools.gpu_listings import compiled
from tilegrad.tools.gpu_report import conflicts, count, instructions

ROOT = Path(__file__).parents[2]
has_nvrtc = pytest.mark.skipif(bool(why := nvrtc.why_not()), reason=why)


def program_of(tensor: Tensor) -> tuple[list[UOp], str]:
    """The only kernel that `tensor` needs, and its text."""
    with Context(DISABLE_COMPILER_CACHE=1, SIZES=0), recording() as record:
        tensor.realize()
    (program,) = [each.after for each in record if each.name == "lower.levels"]
    (text,) = [each.after for each in record if each.name == "render"]
    return program, text


def empty(*shape: int, dtype: DType = dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device="NULL:CUDA:sm_80").realize()


def copy_of(stride: int, lanes: int = 32) -> list[UOp]:
    """Each lane copies one float, `stride` floats from its neighbour's."""
    out, rows = data(0, size=lanes * stride), data(1, size=lanes * stride)
    index = special("lidx0", lanes) * stride
    value = load(rows, index)
    return [out, rows, *index.toposort(), value, out.store(index, value)]


def test_a_vectorised_sum_of_arrays_uses_every_byte_that_it_moves() -> None:
    program, _ = program_of(empty(4096) + empty(4096))
    found = count(program)
    assert found.blocks[0] == found.blocks[1]
    assert found.sector_use == 1.0
    assert found.moved_bytes == found.touched_bytes == 3 * 4 * 4096
    # 32 lanes of 16 bytes are 16 sectors.
    assert found.sectors == 16 * found.requests
    assert found.instructions["load global"] == 2 and found.instructions["store global"] == 1


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (16, 32)])
def test_neighbours_that_are_apart_move_what_nobody_asked_for(stride: int, sectors: int) -> None:
    found = count(copy_of(stride))
    assert (found.requests, found.sectors) == (2, 2 * sectors)
    assert found.sector_use == 4 / sectors
    assert found.touched_bytes == 2 * 32 * 4


@pytest.mark.parametrize(
    ("stride", "waits"), [(1, 0), (2, 1), (4, 3), (32, 31), (33, 0), (3, 0), (0, 0)]
)
def test_lanes_of_one_bank_wait_for_each_other(stride: int, waits: int) -> None:
    """Banks lie 4 bytes apart, 32 of them; one word is read by many at once."""
    assert conflicts([(lane, 4 * stride * lane, 4) for lane in range(32)]) == waits


@pytest.mark.parametrize(("nbytes", "groups"), [(8, 2), (16, 4)])
def test_wide_accesses_are_served_by_parts_of_a_warp(nbytes: int, groups: int) -> None:
    assert conflicts([(lane, nbytes * lane, nbytes) for lane in range(32)]) == 0
    apart = [(lane, 128 * lane, nbytes) for lane in range(32)]
    assert conflicts(apart) == groups * (32 // groups - 1)


def test_shared_memory_of_a_transposed_tile_conflicts_unless_it_is_padded() -> None:
    def transposed(width: int) -> list[UOp]:
        tile = UOp(Ops.DEFINE_LOCAL, FLOAT.ptr(32 * width, AddressSpace.SHARED), (), 0)
        out, lane = data(0, size=32), special("lidx0", 32)
        index = lane * width
        write = tile.store(index, const(1.0, FLOAT))
        barrier = UOp(Ops.BARRIER, dtypes.void, (write,))
        after = UOp(Ops.AFTER, tile.dtype, (tile, barrier))
        value = UOp(Ops.LOAD, FLOAT, (after, index))
        return list(UOp.sink(out.store(lane, value)).toposort())

    assert count(transposed(32)).conflicts == 2 * 31
    assert count(transposed(33)).conflicts == 0
    assert count(transposed(33)).shared_requests == 2


def test_a_product_has_its_multiply_adds() -> None:
    """32x32x32 by lanes: their multiply-adds are those of the product."""
    program, _ = program_of(empty(32, 32) @ empty(32, 32))
    found = count(program)
    lanes = found.blocks[1]
    for node in program:
        if node.op is Ops.SPECIAL and node.arg[0].startswith("lidx"):
            lanes *= node.arg[1]
    kinds = instructions(program)
    assert kinds["multiply-add"] * lanes == 32**3
    assert found.touched_bytes == 3 * 4 * 32 * 32


def test_one_block_of_many_is_enough_where_all_are_alike() -> None:
    program, _ = program_of(empty(1 << 16) + empty(1 << 16))
    whole, part = count(program), count(program, blocks=1)
    assert part.blocks == (1, whole.blocks[1]) and whole.blocks[1] > 1
    assert part.sectors * whole.blocks[1] == whole.sectors
    assert part.sector_use == whole.sector_use


def test_what_python_cannot_run_is_refused() -> None:
    program, _ = program_of(empty(1024, 1 << 20) @ empty(1 << 20, 1024))
    with pytest.raises(ConfigError, match="are too many to be run here"):
        count(program)


@has_nvrtc
def test_the_vendor_says_registers_spills_and_the_loop() -> None:
    _, text = program_of(empty(256, 256) @ empty(256, 256))
    made = compiled(text, "sm_80")
    assert 16 <= made.registers <= 255 and made.spilled_bytes == 0
    # The product's loop: its multiply-adds are most of it.
    assert made.loop["FFMA"] >= 0.5 * sum(made.loop.values())
    halves = empty(256, 256, dtype=dtypes.half)
    _, text = program_of(halves @ halves)
    assert compiled(text, "sm_90a").loop["HMMA"] > 0
    many = " ".join(f"float a{i} = x[{i}*n];" for i in range(300))
    total = "+".join(f"a{i}*a{299 - i}*(a{i}-n)" for i in range(300))
    spilling = (
        'extern "C" __global__ void __launch_bounds__(1024) f(volatile float* x, int n) {'
        f"{many} x[0] = {total}; }}"
    )
    assert compiled(spilling, "sm_80").spilled_bytes > 0


def test_the_command_reports_each_kernel_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from tilegrad import Tensor\n(Tensor.empty(4096).realize() + 1).realize()\n")
    done = subprocess.run(
        [sys.executable, "-m", "tilegrad", "gpu-report", str(script), "--arch", "sm_90a"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "sm_90a  kernel 0: E_" in done.stdout
    assert "16.0 sectors each, 100% of their bytes used" in done.stdout


@pytest.mark.skipif(find_ptxas() is None, reason="pip install nvidia-cuda-nvcc")
def test_a_block_of_fewer_lanes_than_a_warp_is_reported_for_ptx(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from tilegrad import Tensor\nTensor.empty(8, 8).realize().sum().realize()\n")
    command = [sys.executable, "-m", "tilegrad", "gpu-report", str(script), "--arch", "sm_90a"]
    done = subprocess.run(
        [*command, "--device", "NV"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "innermost loop: " in done.stdout
