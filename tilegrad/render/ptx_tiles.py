"""Boxes of matrices that one lane copies to shared memory: `cp.async.bulk.tensor` (PTX ISA, "Data
Movement and Conversion Instructions: Tensor copy" and "Parallel Synchronization and Communication
Instructions: mbarrier").

A matrix is described by a tensor map of 128 bytes, a parameter of the kernel. The copy swizzles the
vectors of its rows as matrix units read them. A barrier (`mbarrier`) is a word of 64 bits in shared
memory: one lane makes it for one arrival a phase, behind `fence.proxy.async`, as copies count their
bytes by another way than lanes reach memory. They need no fence to be seen by lanes that have
waited for the phase, nor to write what units have read that were waited for.

A copy for a cluster of blocks goes to the same place in the shared memory of each, and counts for
the same barrier of each (`.multicast::cluster`). Its blocks meet behind the making of the barriers,
so that none copies to one that has not begun (PTX ISA, "barrier.cluster" and "fence"), and at every
barrier of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilegrad.base.dtype import Pointer
from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_block_pairs import UnitBlocks
from tilegrad.render.ptx_code import Code, kind_of, root
from tilegrad.render.ptx_memory import PTXMemory
from tilegrad.render.tile_maps import blocks_together, maps_of

__all__ = ["TileCopies"]

_MAP_BYTES, _BARRIER_BYTES = 128, 8
_WARP = 32
# Nodes that may stand between the copies of a tile, beside arithmetic.
_BESIDE = frozenset({Ops.COPY_TILE, Ops.AFTER, Ops.CONST, Ops.CAST, Ops.DESCRIPTOR})


class TileCopies:
    """The copies of one kernel."""

    def __init__(self, code: Code, memory: PTXMemory, program: Sequence[UOp]):
        self.code, self.memory = code, memory
        self.maps = maps_of(program)
        self.together = blocks_together(program)
        self.blocks = UnitBlocks(code, program)
        self.barriers = {root(node.src[0]) for node in program if node.op is Ops.ARRIVE}
        self._registers: dict[tuple[UOp, TileMap], str] = {}
        # Pending lines of the elected lane, and the predicate under which it runs them; the barrier
        # for which the bytes of its copies count.
        self._lines: list[str] = []
        self._gate = self._barrier = ""

    def parameters(self, name: str) -> list[str]:
        """Declarations of the tensor maps, whose addresses registers get."""
        found = []
        for number, each in enumerate(self.maps):
            parameter = f"{name}_map{number}"
            found.append(f"  .param .align {_MAP_BYTES} .b8 {parameter}[{_MAP_BYTES}]")
            register = self._registers[each] = self.code.new("b64")
            self.code.begin(f"mov.b64 {register}, {parameter}")
            self.code.begin(f"cvta.param.u64 {register}, {register}")
        return found

    def make(self, barriers: UOp) -> None:
        """Make an array of barriers, in one lane; all others wait for it."""
        code, pointer = self.code, barriers.dtype
        assert isinstance(pointer, Pointer)
        x, y, z = (code.op("b32", "mov.u32", f"%tid.{axis}") for axis in "xyz")
        lane = code.op("b32", "or.b32", code.op("b32", "or.b32", x, y), z)
        is_first = code.op("pred", "setp.eq.u32", lane, "0")
        base = self.memory.bases[barriers]
        for number in range(pointer.size):
            at = f"[{base}+{number * _BARRIER_BYTES}]" if number else f"[{base}]"
            code.emit(f"@{is_first} mbarrier.init.shared::cta.b64 {at}, 1")
        code.emit("fence.proxy.async.shared::cta")
        if self.together > 1:
            code.emit("fence.mbarrier_init.release.cluster")
        self.meet()

    def meet(self) -> None:
        """A barrier of the block, or of all blocks of the cluster: what lanes have stored is there
        behind it. Where they store nothing before the end, units have read what they should as
        lanes arrive, and a fence would order nothing.
        """
        if self.together > 1:
            stores = any(memory.op is Ops.DEFINE_LOCAL for memory in self.memory.filled)
            order = "release" if stores or self.blocks.is_pair else "relaxed"
            self.code.emit(f"barrier.cluster.arrive.{order}.aligned")
            self.code.emit("barrier.cluster.wait.acquire.aligned")
        else:
            self.code.emit("bar.sync 0")

    def directives(self) -> list[str]:
        """The blocks of a cluster."""
        return [f".reqnctapercluster {self.together}, 1, 1"] if self.together > 1 else []

    def elect(self, node: UOp) -> str:
        """Whether this is the lane of the first warp that is elected: `ptxas` knows then that one
        lane begins a copy.
        """
        code, lane = self.code, self.code.scalar(node.src[0])
        is_first = code.op("pred", "setp.lt.s32", code.in_register(lane, "b32"), str(_WARP))
        is_elected = code.new("pred")
        code.emit(f"elect.sync _|{is_elected}, 0xffffffff")
        return code.op("pred", "and.pred", is_first, is_elected)

    def before(self, node: UOp) -> None:
        """Called before each node: where it is more than a value, the copies before it are written,
        behind one branch.
        """
        if not self._lines or node.op.is_alu or node.op in _BESIDE:
            return
        code, skip = self.code, self.code.label()
        code.emit(f"@!{self._gate} bra {skip}")
        for line in self._lines:
            code.emit(line)
        code.mark(skip)
        self._lines.clear()

    def arrive(self, node: UOp) -> None:
        array, number, gate = node.src
        assert not self._lines
        self._gate = self.code.in_register(self.code.scalar(gate), "pred")
        address, nbytes = self.memory.address(array, number), node.arg * self.blocks.count
        arrive = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {address.at()}, {nbytes}"
        self._lines.append(self.blocks.gate + arrive)
        first = self.blocks.barrier_of_first(address.base)
        self._barrier = replace(address, base=first).at()

    def copy(self, node: UOp) -> None:
        memory, index, source, _, _, _, *coordinates = node.src
        to = self.memory.plain(memory, index).at()
        where = ", ".join(map(self._position, coordinates))
        kind = f"{len(coordinates)}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        origin = f"[{self._registers[source, node.arg]}, {{{where}}}]"
        mask = ""
        if node.arg.blocks > 1:
            # To all blocks of the cluster.
            kind += ".multicast::cluster"
            mask = f", {(1 << node.arg.blocks) - 1}"
        kind += self.blocks.of_copies
        self._lines.append(f"cp.async.bulk.tensor.{kind} {to}, {origin}, {self._barrier}{mask}")

    def _position(self, node: UOp) -> str:
        """A coordinate, which has 32 bits."""
        kind = kind_of(node.dtype)
        register = self.code.in_register(self.code.scalar(node), kind)
        return self.code.op("b32", "cvt.u32.u64", register) if kind == "b64" else register

    def wait(self, node: UOp) -> None:
        array, number, parity = node.src
        code = self.code
        at, odd = self.memory.address(array, number).at(), code.scalar(parity)
        again, has_ended = code.label(), code.new("pred")
        with self.blocks.in_first():
            code.mark(again)
            code.emit(f"mbarrier.try_wait.parity.shared::cta.b64 {has_ended}, {at}, {odd}")
            code.emit(f"@!{has_ended} bra {again}")
