"""Long sums in levels: no accumulator takes more than a few hundred terms.

A sum of n terms in one accumulator has an error that grows with n: 40 million ones add up to
16,777,216 in float32. So a loop that would add more terms to one accumulator is split into blocks,
each with an accumulator of its own, which is added to the outer one after the block. This is
repeated until every accumulator is short, so the error grows with the logarithm of n.

    before   acc = 0; k: 0..65536 { acc += x[k] }
    after    acc = 0; i: 0..256 { own = 0; j: 0..256 { own += x[i*256 + j] } acc += own }

It is the last pass, on the instructions: whatever Opts shaped the loops, and whatever bounds they
have (a symbolic length, skipped iterations), the rendered program has no longer sum. Accumulators
in memory are split in lower.memory_accumulators, by the same lengths. Only sums of floats are
split: integers do not round, a product has one rounding per factor in every tree, and a sum that
each iteration rescales (RESCALED) cannot be split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import next_number
from tilegrad.ir.ranges import runs_over
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["MOST_TERMS", "block_length", "split_levels"]

# The most terms that one accumulator takes in sequence.
MOST_TERMS = 512
# The terms of a block, or a third fewer where that divides the sum. Shorter blocks add up
# accumulators more often, longer ones have larger errors. The cost was measured for sums and
# products as a whole, not for each length.
_LEAST_BLOCK, _MOST_BLOCK = 128, 256
# Ops that add terms to an accumulator.
_SUMS = (Ops.ADD, Ops.MULACC, Ops.WMMA)


def block_length(terms: int) -> int:
    """The length of a block in a sum of `terms` terms: the root that gives as few levels as blocks
    of `_MOST_BLOCK` do.
    """
    levels = 2
    while _MOST_BLOCK**levels < terms:
        levels += 1
    return max(_LEAST_BLOCK, math.ceil(math.exp(math.log(terms) / levels)))


def split_levels(program: Sequence[UOp], target: Target) -> list[UOp]:
    """`program` without sums of more than `MOST_TERMS` terms in one accumulator."""
    program = list(program)
    while (found := _longest(program)) is not None:
        loop, per_trip, sums = found
        if per_trip < _LEAST_BLOCK * 2 // 3:
            size = -(-block_length(per_trip * int(loop.extent.vmax)) // per_trip)
            program = _split(program, loop, max(size, 2))
        else:
            program = _own_accumulators(program, loop, sums)
    return program


class _LongLoop(NamedTuple):
    """A loop that adds too many terms to `sums`, `per_trip` in each of its iterations."""

    loop: UOp
    per_trip: int
    sums: list[UOp]


def _longest(program: Sequence[UOp]) -> _LongLoop | None:
    """The first loop, by its end, that adds too many terms to an accumulator from outside of it."""
    loops: list[UOp] = []
    # By accumulator: the number of loops around it, and the terms that each open loop inside of
    # those has added in this iteration.
    around: dict[UOp, int] = {}
    terms: dict[UOp, list[int]] = {}
    # By partial sum of an accumulator: the number of its terms.
    partial: dict[UOp, int] = {}
    for node in program:
        if node.op is Ops.RANGE:
            loops.append(node)
            for counts in terms.values():
                counts.append(0)
        elif node.op is Ops.DEFINE_ACC and node.dtype.is_float:
            around[node], terms[node], partial[node] = len(loops), [0], 0
        elif node.op is Ops.WAIT and node.src[0] in partial:
            partial[node] = partial[node.src[0]]
        elif node.op in _SUMS:
            if (count := max((partial.get(each, -1) for each in node.src), default=-1)) >= 0:
                partial[node] = count + 1
        elif node.op is Ops.ASSIGN and node.src[0] in terms:
            terms[node.src[0]][-1] += partial.get(node.src[1], 1)
        elif node.op is Ops.END:
            loop = loops.pop()
            for accumulator in [each for each, depth in around.items() if depth > len(loops)]:
                del around[accumulator], terms[accumulator]
            found = _closed(program, loop, terms)
            if found is not None:
                return found
    return None


def _closed(program: Sequence[UOp], loop: UOp, terms: dict[UOp, list[int]]) -> _LongLoop | None:
    """The sums to which `loop`, which ends here, adds too many terms. The counts in `terms` are
    updated.
    """
    trips = int(loop.extent.vmax)
    long: dict[UOp, int] = {}
    for accumulator, counts in terms.items():
        each = counts.pop()
        if each * trips > MOST_TERMS and trips > 1:
            long[accumulator] = each
        counts[-1] += each * trips
    sums = _sums(program, long, loop) if long else []
    return _LongLoop(loop, max(long[each] for each in sums), sums) if sums else None


def _sums(program: Sequence[UOp], accumulators: Iterable[UOp], loop: UOp) -> list[UOp]:
    """The accumulators among `accumulators` to which `loop` only adds terms."""
    start = program.index(loop)
    body = program[start : _end_of(program, start)]
    # Partial sums of an accumulator, which only the next sum or an assignment may read.
    partial = {each: each for each in accumulators}
    bad: set[UOp] = set()
    read: set[UOp] = set()
    for node in body:
        reads = [source for source in node.src if source in partial]
        if not reads:
            continue
        owner = partial[reads[0]]
        bad.update(partial[each] for each in reads if each in read)
        read.update(each for each in reads if partial[each] is not each)
        if node.op is Ops.ASSIGN and node.src[0] is owner and partial.get(node.src[1]) is owner:
            continue
        is_sum = node.op in _SUMS and len(reads) == 1
        is_plain = is_sum and (node.op is Ops.ADD or node.src[2] is reads[0])
        if is_plain or node.op is Ops.WAIT:
            partial[node] = owner
        else:
            bad.update(partial[each] for each in reads)
    return [each for each in accumulators if each not in bad]


def _end_of(program: Sequence[UOp], start: int) -> int:
    depth = 0
    for position in range(start, len(program)):
        depth += (program[position].op is Ops.RANGE) - (program[position].op is Ops.END)
        if not depth:
            return position
    return len(program)


class _ProgramCopy:
    """A copy of a program in which some nodes are replaced."""

    def __init__(self) -> None:
        self.instead: dict[UOp, UOp] = {}
        # The loops that replace a loop as the owner of memory and accumulators.
        self.loops: dict[UOp, tuple[UOp, ...]] = {}
        self.written: dict[UOp, None] = {}

    def copy(self, node: UOp) -> UOp:
        """`node` with its replaced sources."""
        src: tuple[UOp, ...] = ()
        for number, source in enumerate(node.src):
            if source in self.loops and runs_over(node, number):
                src += self.loops[source]
            else:
                src += (self.instead.get(source, source),)
        made = node.over(src)
        if made is not node:
            self.instead[node] = made
        return self.write(made)

    def write(self, node: UOp) -> UOp:
        self.written.setdefault(node)
        return node

    def number(self, value: int, like: UOp) -> UOp:
        return self.write(UOp.const(like.dtype, value))

    def alu(self, op: Ops, *src: UOp) -> UOp:
        dtype = dtypes.bool if op is Ops.CMPLT else src[-1].dtype
        return self.write(UOp(op, dtype, src))


def _split(program: list[UOp], loop: UOp, size: int) -> list[UOp]:
    """The program with `loop` split into blocks of `size` iterations; the last block may be
    shorter.
    """
    number = next_number(program)
    writer = _ProgramCopy()
    extent = loop.extent
    # For a symbolic extent the size is a power of two, so that the number of blocks is a shift.
    size = _divisor(extent.arg, size) if extent.op is Ops.CONST else 1 << (size - 1).bit_length()
    count = None if extent.op is Ops.CONST else _count(extent, size)
    blocks = inner = loop
    for node in program:
        if node is loop:
            blocks, inner = _blocks(writer, loop, size, count, number)
            start = writer.alu(Ops.MUL, blocks, writer.number(size, loop))
            writer.loops[loop] = blocks, inner
            writer.instead[loop] = writer.alu(Ops.ADD, start, inner)
        elif node.op is Ops.END and node.src[0] is loop:
            writer.write(UOp(Ops.END, dtypes.void, (inner,)))
            writer.instead[node] = writer.write(UOp(Ops.END, dtypes.void, (blocks,)))
        else:
            writer.copy(node)
            if node is extent and count is not None:
                # Directly after the extent, so that it is defined wherever the extent is.
                below = _negative(extent)
                for made in (*count.src[0].src, *count.src, count, below.src[1], below):
                    writer.write(made)
    return list(writer.written)


def _count(extent: UOp, size: int) -> UOp:
    """The number of blocks for `extent` iterations; the last may be empty."""
    power = UOp.const(extent.dtype, size.bit_length() - 1)
    return extent.alu(Ops.SHR, power).alu(Ops.ADD, UOp.const(extent.dtype, 1))


def _negative(extent: UOp) -> UOp:
    return extent.alu(Ops.MUL, UOp.const(extent.dtype, -1))


def _blocks(
    writer: _ProgramCopy, loop: UOp, size: int, count: UOp | None, number: int
) -> tuple[UOp, UOp]:
    """The loop over blocks and the loop within a block, which both start here."""
    extent, length = loop.extent, writer.number(size, loop)

    def begin(number: int, extent: UOp) -> UOp:
        return writer.write(UOp(Ops.RANGE, loop.dtype, (extent,), (number, loop.axis)))

    if count is None:
        number_of_blocks, rest = -(-extent.arg // size), extent.arg % size
        blocks = begin(number, writer.number(number_of_blocks, loop))
        if rest:
            is_whole = writer.alu(Ops.CMPLT, blocks, writer.number(number_of_blocks - 1, loop))
            length = writer.alu(Ops.WHERE, is_whole, length, writer.number(rest, loop))
    else:
        blocks = begin(number, count)
        # The minimum of the block and the rest, written so that bounds show the block's length.
        minus = writer.number(-1, loop)
        done = writer.alu(Ops.MUL, blocks, length)
        over = writer.alu(Ops.ADD, done, _negative(extent))
        length = writer.alu(Ops.MAX, over, writer.number(-size, loop))
        length = writer.alu(Ops.MUL, length, minus)
    return blocks, begin(number + 1, length)


def _divisor(extent: int, size: int) -> int:
    """A length of about `size` that divides `extent`; `size` if there is none."""
    near = range(max(size * 2 // 3, 2), size * 3 // 2)
    return min(
        (each for each in near if extent % each == 0),
        key=lambda each: abs(each - size),
        default=size,
    )


def _own_accumulators(program: list[UOp], loop: UOp, sums: Sequence[UOp]) -> list[UOp]:
    """The program with accumulators of its own for each iteration of `loop`, added to `sums` at its
    end.
    """
    number = next_number(program, Ops.DEFINE_ACC)
    writer = _ProgramCopy()
    own: dict[UOp, UOp] = {}
    start = program.index(loop)
    end = _end_of(program, start)
    outer: dict[UOp, UOp] = {}
    for position, node in enumerate(program):
        if position == end:
            _add_blocks(writer, program[start:end], own, outer)
        made = writer.copy(node)
        if node is loop:
            for count, each in enumerate(sums):
                outer[each] = writer.instead.get(each, each)
                zero = writer.write(UOp.const(each.dtype, 0.0))
                src = (zero, *outer[each].src[1:], made)
                own[each] = writer.write(UOp(Ops.DEFINE_ACC, each.dtype, src, number + count))
                writer.instead[each] = own[each]
    return list(writer.written)


def _add_blocks(
    writer: _ProgramCopy, body: Sequence[UOp], own: dict[UOp, UOp], outer: dict[UOp, UOp]
) -> None:
    """Adds the accumulators of an iteration to the outer ones, at its end."""
    for each, inner in own.items():
        last = [node for node in body if node.op is Ops.ASSIGN and node.src[0] is each][-1]
        total = writer.write(UOp(Ops.AFTER, each.dtype, (inner, writer.instead[last])))
        total = writer.alu(Ops.ADD, outer[each], total)
        assigned = UOp(Ops.ASSIGN, each.dtype, (outer[each], total))
        writer.write(assigned)
        writer.instead[each] = outer[each]
