"""Results of NVIDIA's compiler for a kernel: registers, spills, and the instructions of its
innermost loop, from the listing of its machine code.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegrad.base.errors import CompileError
from tilegrad.compile import nvrtc
from tilegrad.compile.ptxas import assemble, find_ptxas
from tilegrad.render.cuda import CUDARenderer
from tilegrad.render.ptx_tensor_memory import products_of
from tilegrad.tools.gpu_counts import WARP

__all__ = ["Compiled", "assembled", "compiled", "innermost"]

# Products of 16x8x16 of a warp, by the shape of an instruction.
_OF_WARP: Mapping[str, Callable[[str], float]] = {
    "HMMA": lambda shape: 1.0 if shape.startswith("16816") else 0.5,
    "QMMA": lambda shape: 2.0,
    "IMMA": lambda shape: 2.0 if shape.startswith("16832") else 1.0,
    "HGMMA": lambda shape: int(shape.split("x")[1]) / 8,
    "QGMMA": lambda shape: int(shape.split("x")[1]) / 4,
    "IGMMA": lambda shape: int(shape.split("x")[1]) / 4,
}
# Instructions that one lane begins for all of its block: their shapes are in registers.
_OF_BLOCK = ("UTCHMMA", "UTCQMMA", "UTCIMMA")
_UNITS = (*_OF_WARP, *_OF_BLOCK)


@dataclass(frozen=True)
class Compiled:
    """Results of NVIDIA's compiler: registers of a lane, bytes spilled, the instructions of the
    innermost loop by name (all of them, where there is no loop), and the products of 16x8x16 that
    these are for a warp: an `HMMA.16816` is one, a `QMMA.16832` of bytes two, of an `HGMMA.64xNx16`
    a warp has N / 8, and of one of bytes twice as many. A `UTCHMMA` has all of its block; where all
    lanes go through the loop, as they meet in it, a warp has its share.
    """

    registers: int
    spilled_bytes: int
    loop: Mapping[str, int]
    products: float = 0.0

    @property
    def others(self) -> int:
        """The instructions of the loop that are no products."""
        return sum(count for name, count in self.loop.items() if name not in _UNITS)


def compiled(source: str, arch: str) -> Compiled:
    """Results of NVIDIA's compiler for a text, compiled for `arch`."""
    cubin = nvrtc.compile_cuda(source, arch, (*CUDARenderer.flags, "--ptxas-options=-v"))
    registers = re.search(r"Used (\d+) registers", cubin.log)
    spilled = re.findall(r"(\d+) bytes spill", cubin.log)
    own = int(registers[1]) if registers else 0
    return Compiled(own, sum(map(int, spilled)), *_loop_of(cubin.binary))


def _loop_of(
    binary: bytes, of_block: float = 0.0, warps: int = 1
) -> tuple[Mapping[str, int], float]:
    """The instructions of the innermost loop of machine code; none where no tool reads it."""
    tool = nvrtc.find_tool("nvdisasm")
    if tool is None:
        return {}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=False)
    return innermost(done.stdout, of_block, warps)


def innermost(listing: str, of_block: float = 0.0, warps: int = 1) -> tuple[dict[str, int], float]:
    """The instructions of the longest innermost loop, by name, and their products (`Compiled`).

    A loop lies between a label and a branch back to it. For a loop that the compiler has unrolled
    as a whole, the instructions between the first wait of the lanes and the last product count. An
    instruction that one lane executes for a block of `warps` warps has `of_block` products.
    """
    labels: dict[str, int] = {}
    names: list[str] = []
    shapes: list[str] = []
    loops: list[tuple[int, int]] = []
    for line in listing.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(names)
        elif found := re.match(
            r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)\.?([0-9x]*)", line
        ):
            names.append(found[1])
            shapes.append(found[2])
            target = re.search(r"\.L_x_\d+", line) if found[1].startswith("BRA") else None
            # A branch to itself is what stands behind the end.
            if target and labels.get(target[0], len(names)) < len(names) - 1:
                loops.append((labels[target[0]], len(names)))
    inner = [
        (start, end)
        for start, end in loops
        if not any(start <= other[0] and other[1] < end for other in loops)
    ]
    start, end = max(inner, key=lambda loop: loop[1] - loop[0], default=_unrolled(names))
    of_block /= warps if "BAR" in names[start:end] else 1
    products = sum(
        of_block if name in _OF_BLOCK else _OF_WARP[name](shape)
        for name, shape in zip(names[start:end], shapes[start:end], strict=True)
        if name in _UNITS
    )
    return dict(Counter(names[start:end]).most_common()), products


def _unrolled(names: Sequence[str]) -> tuple[int, int]:
    products = [at for at, name in enumerate(names) if name in (*_UNITS, "FFMA")]
    if "BAR" not in names or not products or names.index("BAR") > products[-1]:
        return 0, len(names)
    return names.index("BAR"), products[-1] + 1


def assembled(source: str, arch: str) -> Compiled:
    """Results of `ptxas` for a text of PTX, assembled for `arch`.

    Raises CompileError where it is not here.
    """
    program = find_ptxas()
    if program is None:
        raise CompileError("gpu-report: ptxas is not here", remedy="pip install nvidia-cuda-nvcc")
    binary, usage = assemble(source, arch, program)
    spilled = usage.spill_stores + usage.spill_loads
    lanes = re.search(r"\.maxntid (\d+)", source)
    # A block of fewer lanes than a warp has is one.
    warps = -(-int(lanes[1]) // WARP) if lanes else 1
    return Compiled(usage.registers, spilled, *_loop_of(binary, products_of(source), warps))
