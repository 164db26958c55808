"""A systolic array in NumPy, programmed through its Target: 16 lanes around a unit that multiplies
16x16 tiles, with memory that is reached by transfers only.

    python examples/systolic.py

Nothing of the compiler knows this machine. `TARGET` says what its unit computes and which lane
holds which row of a tile; the Opt TC gives it a product, and UPCAST lets a transfer serve several
tiles: what it brought stays in registers. (STAGE, which packs a copy for a cache, is refused where
there are blocks of lanes.) The cycles are those of a written model, and the numbers are compared
with NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegrad import Tensor
from tilegrad.base.dtype import Pointer, dtypes
from tilegrad.engine.build.kernel import Kernel
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir import Ops, UOp
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.runtime.protocol import launch_dims
from tilegrad.schedule.schedule import make_schedule
from tilegrad.target import MatrixUnit, Target

# Lanes, and the numbers of each that one transfer moves.
SIDE, MOVED = 16, 4
# Lane i holds row i of each operand and of the result.
ROWS = tuple(tuple((lane, column) for column in range(SIDE)) for lane in range(SIDE))
UNIT = MatrixUnit(
    "systolic16", SIDE, SIDE, SIDE, SIDE, dtypes.float32, dtypes.float32, ROWS, ROWS, ROWS
)
TARGET = Target(
    "SYSTOLIC", memory_lanes=MOVED, has_locals=True, block_lanes=SIDE, has_fma=False,
    matrix_units=(UNIT,),
)  # fmt: skip

# The model: a transfer starts, then moves bytes; the array takes a tile in row after row; any other
# instruction takes a cycle for each number of a lane.
TRANSFER_START, BYTES_A_CYCLE, TILE_CYCLES = 20, 64, SIDE

ALU: dict[Ops, Any] = {
    Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift, Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor, Ops.IDIV: np.floor_divide, Ops.MOD: np.remainder,
}  # fmt: skip


class Machine:
    """Runs a program, block after block. A value is an array of (lanes of a block, numbers)."""

    def __init__(self, program: Sequence[UOp], memories: dict[int, Any]):
        self.program, self.memories, self.cycles = list(program), memories, 0
        self.values: dict[UOp, Any] = {}
        dims = launch_dims(program)
        self.lanes = int(np.prod(dims.local_size))
        self.starts = {n: step for step, n in enumerate(self.program) if n.op is Ops.RANGE}
        self.ends = {
            source: step
            for step, node in enumerate(self.program)
            if node.op is Ops.END
            for source in node.src
            if source.op is Ops.RANGE
        }
        inner = np.indices(dims.local_size[::-1]).reshape(3, -1, 1)[::-1]
        self.places = {f"lidx{axis}": inner[axis] for axis in range(3)}
        for block in np.ndindex(*dims.global_size[::-1]):
            self.places |= {f"gidx{axis}": np.array([[block[2 - axis]]]) for axis in range(3)}
            self.run_block()

    def run_block(self) -> None:
        self.values, step = {}, 0
        while step < len(self.program):
            step = self.run(step, self.program[step])

    def run(self, step: int, node: UOp) -> int:
        """One instruction; where the next one stands."""
        x = [self.values.get(source) for source in node.src]
        if node.op is Ops.RANGE:
            self.values[node] = self.values.get(node, -1) + 1
            if self.values[node] >= np.max(x[0]):
                del self.values[node]
                return self.ends[node] + 1
        elif node.op is Ops.END:
            return max(self.starts[each] for each in node.src if each in self.starts)
        elif node.op is Ops.ASSIGN:
            target = node.src[0]
            while target.op is Ops.AFTER:
                target = target.src[0]
            self.values[target] = self.values[node] = x[1]
        elif node.op is Ops.STORE:
            index = x[1] + np.arange(node.src[2].dtype.lanes)
            self.transfer(index, x[2])
            cells = self.memories[node.src[0].arg]
            cells[np.broadcast_arrays(index, x[2])[0]] = np.broadcast_arrays(index, x[2])[1]
        else:
            self.values[node] = self.value(node, x)
        return step + 1

    def value(self, node: UOp, x: list[Any]) -> Any:
        if node.op in ALU:
            self.cycles += node.dtype.lanes
            return ALU[node.op](x[0], x[1])
        if node.op is Ops.LOAD:
            index = x[1] + np.arange(node.dtype.lanes)
            self.transfer(index)
            return self.memories[node.src[0].arg][index]
        if node.op is Ops.WMMA:
            # Lanes hold rows, so that operands are matrices as they are.
            self.cycles += TILE_CYCLES
            return x[2] + x[0] @ x[1]
        if node.op is Ops.VECTORIZE:
            rows = [np.broadcast_to(each, (self.lanes, np.shape(each)[-1])) for each in x]
            return np.concatenate(rows, axis=1)
        if node.op is Ops.GEP:
            return x[0][:, list(node.arg)]
        if node.op is Ops.SPECIAL:
            return self.places[node.arg[0]]
        if node.op is Ops.CONST:
            return np.full((1, 1), node.arg, np.float32 if node.dtype.is_float else np.int64)
        if node.op in (Ops.AFTER, Ops.DEFINE_ACC):
            return x[0]
        assert node.op in (Ops.SINK, Ops.DEFINE_GLOBAL) or isinstance(node.dtype, Pointer), node.op
        return None

    def transfer(self, *shapes: Any) -> None:
        count = int(np.prod(np.broadcast_shapes(*(np.shape(each) for each in shapes))))
        self.cycles += TRANSFER_START + -(-4 * count // BYTES_A_CYCLE)


def product(size: int, opts: Sequence[Opt]) -> tuple[int, Any, Any]:
    """The cycles of a product of two matrices shaped by `opts`, its result, and NumPy's."""
    a, b = Tensor.empty(size, size).realize(), Tensor.empty(size, size).realize()
    graph = normalise(UOp.sink((a @ b).uop)).numbered()
    (item,) = make_schedule(graph, {a.device: TARGET}, a.device, plain=False).items
    assert item.ast is not None
    program = Kernel(item.ast, TARGET).apply_opts(opts).linearize()
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((size, size), np.float32) for _ in "ab")
    out = np.zeros(size * size, np.float32)
    machine = Machine(program, {0: out, 1: left.ravel(), 2: right.ravel()})
    return machine.cycles, out.reshape(size, size), left.astype(float) @ right.astype(float)


TC = Opt(OptOps.TC, 0, (0, 1))
STEPS = {
    "as it is": (),
    "TC: the array multiplies tiles": (TC,),
    "and two tiles below each other": (TC, Opt(OptOps.UPCAST, 0, 2)),
    "and two beside each other": (TC, Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.UPCAST, 0, 2)),
}


def main(size: int = 32) -> dict[str, int]:
    """The cycles after each step."""
    found = {}
    for name, opts in STEPS.items():
        cycles, ours, exact = product(size, opts)
        assert np.abs(ours - exact).max() < 1e-4, name
        found[name] = cycles
        print(f"{cycles:12,} cycles  {name}")
    return found


if __name__ == "__main__":
    main()
