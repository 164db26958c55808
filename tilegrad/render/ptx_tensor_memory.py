"""`tcgen05`: matrix units that one lane begins, and that add in tensor memory.

Sections of the PTX ISA are those of version 9.2, "TensorCore 5th Generation Family Instructions"
(9.7.16). Tensor memory has 128 lanes and 512 columns of 32 bits; an address has the lane in its
upper and the column in its lower half ("Tensor Memory Addressing"). A kernel goes through these
steps:

    alloc     one warp asks for columns, which are a power of two, 32 at least, and is told in
              shared memory where they are; then it gives up the right to ask for more
    mma       one lane begins all products; those that add to the same columns follow each other
              ("Pipelined tcgen05 Instructions")
    commit    a barrier in shared memory (`mbarrier`) ends a phase as the products have
    ld        behind that phase, each warp loads the 32 lanes that are its own, and waits for them
    dealloc   the warp gives the columns back, once all have

Lanes that tell each other by a barrier that they are done fence before it, and behind it
("Memory Consistency Model for 5th generation of TensorCore operations"); a commit is such a fence
by itself.

An operand's descriptor is that of `ptx_wgmma` but for a constant in bits 46-48 and the mode of
swizzling in bits 61-63 ("Shared Memory Descriptor", table 40).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_block_pairs import UnitBlocks
from tilegrad.render.ptx_code import Code, kind_of, root, uniform
from tilegrad.render.ptx_memory import PTXMemory
from tilegrad.render.ptx_one_lane import (
    BESIDE,
    commits_of,
    is_late,
    lanes_of,
    loops_of_one_lane,
    owner_of,
)
from tilegrad.render.ptx_tiles import TileCopies
from tilegrad.render.ptx_wgmma import descriptor
from tilegrad.target import MatrixUnit

__all__ = ["TensorUnits", "products_of"]

# Columns of tensor memory of a multiprocessor, and the fewest that a block asks for
# (`tcgen05.alloc`: a power of two from 32 to 512).
_MOST, _LEAST = 512, 32
# The upper word of an operand's descriptor: 0b001 in bits 46-48, 2 (rows of 128 bytes) in 61-63.
_FIXED = 1 << 14 | 2 << 29
# By dtype of the operands: the kind of an instruction, and the numbers of their type and of the
# results' in its descriptor ("Instruction Descriptor", table 42).
_KINDS = {
    dtypes.float16: ("f16", 0, 1),
    dtypes.bfloat16: ("f16", 1, 1),
    dtypes.float32: ("tf32", 2, 1),
    dtypes.int8: ("i8", 1, 2),
    dtypes.fp8e4m3: ("f8f6f4", 0, 1),
    dtypes.fp8e5m2: ("f8f6f4", 1, 1),
}
# Lanes of tensor memory, and columns, that one load moves at most: each lane gets two registers of
# a pair of rows 8 apart for each 8 columns (`tcgen05.ld`, .16x256b with .num 8).
_LOADED_LANES, _LOADED_COLUMNS, _PER_COLUMNS = 16, 64, (4, 8)
# The bits of an address behind its lane.
_LANE = 16
_WARP = 32
# In shared memory: barriers of 8 bytes, then the address of the columns. All lanes wait for the
# first barrier, or for two alternately; a lane by itself waits for one per commit in its loop.
_WORDS, _BARRIER_BYTES = "tensor_words", 8
# Barriers that a loop of one lane has at least: no lane may wait for a phase behind which the next
# one of its parity may have ended.
_LEAST_OF_ONE = 2


class TensorUnits:
    """The units of one kernel that add in tensor memory."""

    def __init__(self, code: Code, memory: PTXMemory, tiles: TileCopies, program: Sequence[UOp]):
        self.code, self.memory, self.tiles, self.program = code, memory, tiles, program
        self.blocks: UnitBlocks = tiles.blocks
        self.units = [node for node in program if node.op is Ops.WMMA and node.arg.columns]
        # By accumulator, or the first unit where there is none: its first column.
        self.columns: dict[UOp, int] = {}
        end = 0
        for node in self.units:
            if (owner := owner_of(node)) not in self.columns:
                self.columns[owner] = end
                end += node.arg.columns
        self.asked = max(1 << max(end - 1, 0).bit_length(), _LEAST)
        # Loops that one lane goes through by itself, by the number of their commits.
        bodies = loops_of_one_lane(program)
        self.alone = {loop: commits_of(body) for loop, body in bodies.items()}
        of_one = {node for body in bodies.values() for node in body}
        is_behind = any(is_late(node) and node.arg and node not in of_one for node in program)
        self._barriers: dict[UOp | None, range] = {None: range(1 + is_behind)}
        for loop, count in self.alone.items():
            start = max(each.stop for each in self._barriers.values())
            self._barriers[loop] = range(start, start + max(count, _LEAST_OF_ONE))
        self._words = max(each.stop for each in self._barriers.values())
        self._read = {source for node in program for source in _read_by(node)}
        # The registers of the parity of each barrier's phase, and of the commits so far in a loop
        # that has one in an iteration; whether there is something in the columns of an accumulator
        # to add to.
        self._parities: list[str] = []
        self._counters: dict[UOp, str] = {}
        self._is_begun: dict[UOp, str] = {}
        # Units that begin with the next commit; the barrier of the commit of each; those for whose
        # phase no lane has waited; and those that some lane may not have seen to end.
        self._lines: list[str] = []
        self._next: list[UOp] = []
        self._commits: dict[UOp, int] = {}
        self._open: list[int] = []
        self._seen: set[int] = set()
        # The loop of one lane that is written, its commits so far, and whether it has come to a
        # tile whose units have not begun.
        self._loop: UOp | None = None
        self._written, self._is_at_tile = 0, False
        self._behind = self._base = self._warp = self._is_first = self.is_chosen = ""

    @property
    def is_used(self) -> bool:
        return bool(self.units)

    @property
    def is_settled(self) -> bool:
        return bool(self._base)

    @property
    def is_alone(self) -> bool:
        """Whether one lane runs the code written now."""
        return self._loop is not None

    @property
    def holds_fills(self) -> bool:
        """Whether copies to the tile that was used last wait until the units of this one have
        begun, which then need not wait for those of the last one.
        """
        return self.is_alone and self._is_at_tile

    def comes_to_tile(self) -> None:
        """Lanes wait for a tile."""
        self._is_at_tile = True

    def meets(self) -> None:
        """All lanes have met, and have seen all phases for which they waited."""
        self._seen.clear()

    # the head and the end of a kernel

    def declarations(self) -> list[str]:
        return [f"  .shared .align 16 .b8 {_WORDS}[{self._words * _BARRIER_BYTES + 4}];"]

    def begin(self) -> None:
        """The head of the kernel: barriers and columns.

        Raises CompileError for more columns or other lanes than there are.
        """
        code, (unit, *_) = self.code, (node.arg for node in self.units)
        sizes = [1, 1, 1]
        for node in self.program:
            if node.op is Ops.SPECIAL and node.name.startswith("lidx"):
                sizes[int(node.name[-1])] = int(node.vmax) + 1
        if self.asked > _MOST or math.prod(sizes) * unit.blocks != unit.lanes:
            lanes = unit.lanes // unit.blocks
            raise CompileError(
                f"render.ptx: {unit.name} has a block of {lanes} lanes and {_MOST} columns",
                lanes=math.prod(sizes),
                columns=self.asked,
            )
        lane = self._lane(sizes)
        is_one = code.op("pred", "setp.eq.u32", lane, "0")
        for number in range(self._words):
            code.emit(f"@{is_one} mbarrier.init.shared::cta.b64 {_word(number)}, 1")
        self._is_first = code.op("pred", "setp.lt.u32", lane, str(_WARP))
        skip = code.label()
        code.emit(f"@!{self._is_first} bra {skip}")
        asked, group = f"{_word(self._words)}, {self.asked}", self.blocks.group
        code.emit(f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 {asked}")
        code.emit(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned")
        code.mark(skip)
        is_elected = code.new("pred")
        code.emit(f"elect.sync _|{is_elected}, 0xffffffff")
        self.is_chosen = code.op("pred", "and.pred", self._is_first, is_elected)
        warp = code.op("b32", "shr.u32", lane, "5")
        code.emit(uniform(warp, warp))
        self._warp = self._first_address(warp, unit)
        self.blocks.begin()

    def settle(self, *, has_met: bool) -> None:
        """Where the columns are, which lanes know that have met. Copies by lanes have a fence
        before each barrier, and so have the barriers of copies that one lane begins: it serves the
        barriers of units too.
        """
        code = self.code
        if not has_met:
            self.tiles.meet()
        self._base = code.op("b32", "ld.shared.b32", _word(self._words))
        code.emit(uniform(self._base, self._base))
        self._warp = code.op("b32", "add.s32", self._warp, self._base)
        # The phase before the first one counts as ended, and as an odd one: it is what the first
        # iteration of a loop waits for, where others wait for the last commit of the one before.
        last = {each[-1] for loop, each in self._barriers.items() if loop}
        self._parities = [
            code.op("b32", "mov.b32", str(int(number in last))) for number in range(self._words)
        ]
        self._counters = {
            loop: code.op("b32", "mov.b32", "0")
            for loop, count in self.alone.items()
            if count < _LEAST_OF_ONE
        }

    def _lane(self, sizes: Sequence[int]) -> str:
        """The number of the lane in its block."""
        code = self.code
        found = code.op("b32", "mov.u32", "%tid.z")
        for axis, size in (("y", sizes[1]), ("x", sizes[0])):
            other = code.op("b32", "mov.u32", f"%tid.{axis}")
            found = code.op("b32", "mad.lo.s32", found, str(size), other)
        return found

    def _first_address(self, warp: str, unit: MatrixUnit) -> str:
        """Where a warp loads its first result: its lanes, and its share of the columns."""
        code = self.code
        quarter = code.op("b32", "and.b32", warp, "3")
        address = code.op("b32", "shl.b32", quarter, str(_LANE + 5))
        share = _columns(unit)
        if share < unit.n:
            half = code.op("b32", "shr.u32", warp, "2")
            address = code.op("b32", "mad.lo.s32", half, str(share), address)
        return address

    def _meet(self) -> None:
        """All lanes wait for each other, behind their loads from tensor memory."""
        self.code.emit("tcgen05.fence::before_thread_sync")
        self.tiles.meet()

    def end(self) -> None:
        """The end of the kernel: the columns are given back."""
        self.code.make_all()
        code, skip = self.code, self.code.label()
        self._meet()
        code.emit(f"@!{self._is_first} bra {skip}")
        code.emit("tcgen05.fence::after_thread_sync")
        given = f"{self._base}, {self.asked}"
        code.emit(f"tcgen05.dealloc.{self.blocks.group}.sync.aligned.b32 {given}")
        code.mark(skip)

    # loops of one lane

    def enter(self, loop: UOp) -> None:
        """A loop begins: if it is one of one lane, the others go on behind it."""
        self.code.make_all()
        while self._open:
            self._wait_for(self._open.pop(0))
        # Some lane may come from the end of an iteration.
        self._seen.update(self._barriers[None])
        if loop in self.alone:
            self._loop, self._written, self._behind = loop, 0, self.code.label()
            self.code.emit(f"@!{self.is_chosen} bra {self._behind}")
            self.memory.begin_of_one_lane()

    def leave(self, loop: UOp, *, is_in_loop: bool) -> None:
        """A loop has ended: all lanes wait for all that its lane has begun. The lane may not come
        to the next such phase but one before all have seen this one.
        """
        if self._loop is not loop:
            return
        self._loop = None
        self.memory.end_of_one_lane()
        with self.blocks.in_first():
            self._commit(_word(0))
        self.code.mark(self._behind)
        self._wait_for(0)
        if is_in_loop:
            self.tiles.meet()
            self.meets()

    # nodes

    def owns(self, node: UOp) -> bool:
        """Whether this is an accumulator in tensor memory."""
        return node in self.columns

    def descriptor(self, node: UOp) -> str:
        """The register of an operand."""
        return descriptor(self.code, self.memory, node, _FIXED)

    def accumulator(self, node: UOp) -> None:
        """An accumulator begins as zero: the first unit does not add to its present value."""
        if any(each.op is not Ops.CONST or each.arg for each in lanes_of(node.src[0])):
            raise CompileError("render.ptx: an accumulator in tensor memory begins as zero")
        self._is_begun[node] = self.code.op("pred", "setp.ne.u32", "0", "0")

    def multiply(self, node: UOp) -> None:
        """A unit, which begins with the next commit."""
        unit: MatrixUnit = node.arg
        code, (a, b, c) = self.code, node.src
        if any(each.op is not Ops.DESCRIPTOR for each in (a, b)):
            raise CompileError(f"render.ptx: {unit.name} reads shared memory only")
        owner = owner_of(node)
        if c.op is Ops.WMMA or c.op is Ops.WAIT:
            adds = code.in_register("1", "pred")
        else:
            adds = self._is_begun.get(owner) or code.in_register("0", "pred")
        kind, _, _ = _KINDS[unit.dtype_in]
        address, first = self._base, self.columns[owner]
        if first:
            address = code.op("b32", "add.s32", address, str(first))
        idesc = code.in_register(_instruction(node), "b32")
        operands = f"{code.scalar(a)}, {code.scalar(b)}, {idesc}, {adds}"
        self._lines.append(f"tcgen05.mma.{self.blocks.group}.kind::{kind} [{address}], {operands}")
        self._next.append(node)

    def before(self, node: UOp) -> None:
        """Called before each node: where it is more than a value, the units before it begin."""
        if not self._lines or node.op.is_alu or node.op in BESIDE:
            return
        if self.is_alone:
            self._begin_alone()
        else:
            self._begin()
        for owner in dict.fromkeys(map(owner_of, self._next)):
            if owner in self._is_begun:
                self.code.emit(f"setp.eq.u32 {self._is_begun[owner]}, 0, 0")
        self._lines.clear()
        self._next.clear()

    def _begin(self) -> None:
        """The units begin in one lane, and all will wait for them."""
        self.code.make_all()
        code, skip = self.code, self.code.label()
        barrier = next(each for each in self._barriers[None] if each not in self._open)
        if barrier in self._seen:
            self.tiles.meet()
            self.meets()
        code.emit(f"@!{self.is_chosen} bra {skip}")
        self._write(_word(barrier))
        code.mark(skip)
        self._commits |= dict.fromkeys(self._next, barrier)
        self._open.append(barrier)

    def _begin_alone(self) -> None:
        """The units begin, and then the lane waits for those before them: those of the last
        iteration, where they are the first.
        """
        assert self._loop is not None
        barriers, self._is_at_tile = self._barriers[self._loop], False
        if self._loop in self._counters:
            self._alternate(self._counters[self._loop], barriers)
            return
        self._write(_word(barriers[self._written]))
        self._wait_for(barriers[self._written - 1])
        self._written += 1

    def _write(self, at: str) -> None:
        """The units, and the commit of their barrier."""
        with self.blocks.in_first():
            self.code.emit("tcgen05.fence::after_thread_sync")
            for line in self._lines:
                self.code.emit(line)
            self._commit(at)

    def _alternate(self, counter: str, barriers: range) -> None:
        """The units of an iteration that has no other commit, which goes to each of two barriers in
        turn; then the wait for the last one.
        """
        code = self.code
        self._write(self._barrier_of(counter, barriers))
        last = code.op("b32", "add.s32", counter, "-1")
        half = code.op("b32", "shr.s32", last, "1")
        parity = code.op("b32", "and.b32", half, "1")
        self._wait_at(self._barrier_of(last, barriers), parity)
        code.emit(f"add.s32 {counter}, {counter}, 1")

    def _barrier_of(self, number: str, barriers: range) -> str:
        """The barrier of a commit."""
        code = self.code
        odd = code.op("b32", "and.b32", number, "1")
        where = code.op("b32", "mov.b32", _WORDS)
        where = code.op("b32", "mad.lo.s32", odd, str(_BARRIER_BYTES), where)
        return f"[{where}+{barriers[0] * _BARRIER_BYTES}]"

    def _commit(self, at: str) -> None:
        """A barrier's phase ends as all products that the lane has begun have."""
        if _WORDS in at:
            # The instruction takes a register.
            at = at.replace(_WORDS, self.code.op("b32", "mov.b32", _WORDS))
        self.blocks.commit(at)

    def wait(self, node: UOp) -> list[str] | None:
        """The registers of a unit's results, where somebody reads them here. One lane waits as
        its next units begin.
        """
        if self.is_alone:
            return None
        source = node.src[0]
        number = self._commits[node] = self._commits[source]
        while number in self._open and len(self._open) > (node.arg or 0):
            self._wait_for(self._open.pop(0))
        if node.arg or node not in self._read:
            return None
        return self.load(owner_of(source))

    def _wait_for(self, barrier: int) -> None:
        """Wait for the phase of a commit."""
        parity = self._parities[barrier]
        self._wait_at(_word(barrier), parity)
        self.code.emit(f"xor.b32 {parity}, {parity}, 1")
        self._seen.add(barrier)

    def _wait_at(self, at: str, parity: str) -> None:
        code, wait = self.code, "mbarrier.try_wait.parity.shared::cta.b64"
        again, has_ended = code.label(), code.new("pred")
        code.mark(again)
        code.emit(f"{wait} {has_ended}, {at}, {parity}")
        code.emit(f"@!{has_ended} bra {again}")

    def load(self, owner: UOp, *, is_in_loop: bool = False) -> list[str]:
        """The registers of a lane's results. They are loaded where the first line reads them, so
        that few registers hold results at a time. In a loop, units may add to the columns again:
        then all are loaded here, and all lanes wait until all have.
        """
        code, unit = self.code, self.units[0].arg
        code.emit("tcgen05.fence::after_thread_sync")
        columns, kind = _columns(unit), kind_of(unit.dtype_out)
        size = min(_LOADED_COLUMNS, columns)
        registers, of_columns = _PER_COLUMNS
        made: list[str] = []
        for lane in range(0, _WARP, _LOADED_LANES):
            for column in range(0, columns, size):
                names = [code.new(kind) for _ in range(size // of_columns * registers)]
                address = (lane << _LANE) + self.columns[owner] + column
                shape = f"16x256b.x{size // of_columns}.b32"
                code.make_later(names, functools.partial(self._load, names, address, shape))
                made += names
        if is_in_loop:
            code.make_all()
            self._meet()
            self.meets()
        return made

    def _load(self, names: Sequence[str], address: int, shape: str) -> None:
        """The lines of one load."""
        code, kind = self.code, kind_of(self.units[0].arg.dtype_out)
        words = list(names) if kind == "b32" else [code.new("b32") for _ in names]
        at = f"[{self._warp}+{address}]" if address else f"[{self._warp}]"
        code.emit(f"tcgen05.ld.sync.aligned.{shape} {{{', '.join(words)}}}, {at}")
        code.emit("tcgen05.wait::ld.sync.aligned")
        for name, word in zip(names, words, strict=True):
            if name != word:
                code.emit(f"mov.{kind} {name}, {word}")


def _instruction(node: UOp) -> str:
    """The descriptor of an instruction (table 42)."""
    unit: MatrixUnit = node.arg
    _, given, result = _KINDS[unit.dtype_in]
    across = [int(each.arg[2]) for each in node.src[:2]]
    bits = result << 4 | given << 7 | given << 10 | across[0] << 15 | across[1] << 16
    return str(bits | unit.n >> 3 << 17 | unit.m >> 4 << 24)


def _columns(unit: MatrixUnit) -> int:
    """The number of columns whose results a warp loads."""
    return unit.n * 128 * unit.blocks // unit.lanes


def _word(barrier: int) -> str:
    offset = barrier * _BARRIER_BYTES
    return f"[{_WORDS}{f'+{offset}' if offset else ''}]"


def _read_by(node: UOp) -> Sequence[UOp]:
    """The results of units that a node reads in registers."""
    if node.op is Ops.ASSIGN:
        return () if root(node).op is Ops.DEFINE_ACC and node.src[1].op is Ops.WAIT else node.src
    return () if node.op in (Ops.WMMA, Ops.WAIT) else node.src


def products_of(text: str) -> float:
    """Products of 16x8x16, of operands of 16 bits, of one instruction of a text, which has a
    constant for its descriptor.
    """
    found = re.search(r"tcgen05\.mma\.[^;]*, (%r\d+), %p\d+;", text)
    constant = found and re.search(rf"mov\.b32 {found[1]}, (\d+);", text)
    if not constant:
        return 0.0
    bits = int(constant[1])
    return (bits >> 17 & 0x3F) * (bits >> 24 & 0x1F) * (1.0 if "kind::f16" in text else 2.0)
