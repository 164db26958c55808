"""Pairs of blocks whose units work as one (`cta_group::2`; PTX ISA 9.2, "CTA Pair", "Issue
Granularity" and "tcgen05.commit").

One lane of the first block begins the products of both, and its commits end phases in both blocks
(`.multicast::cluster`), so each knows when a tile is free. Each block copies its own tiles, but
their bytes count for the first block's barriers, which that lane waits for: it announces those of
both. The second block's bytes may come before it does, as a phase ends only once it has arrived.
A kernel asks for columns, and gives them back, in both blocks together; all instructions name the
same group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.matrix_units import pair_of
from tilegrad.render.ptx_code import Code
from tilegrad.target import MatrixUnit, Target

__all__ = ["UnitBlocks", "is_known"]


class UnitBlocks:
    """The blocks that one unit of a kernel takes: one or a pair."""

    def __init__(self, code: Code, program: Sequence[UOp]):
        self.code = code
        self.count = max((node.arg.blocks for node in program if node.op is Ops.WMMA), default=1)
        self.group = f"cta_group::{self.count}"
        self._is_first = ""

    @property
    def is_pair(self) -> bool:
        return self.count > 1

    @property
    def of_copies(self) -> str:
        """The suffix of copies whose bytes count for the first block's barrier."""
        return f".{self.group}" if self.is_pair else ""

    @property
    def gate(self) -> str:
        """The predicate of an instruction for lanes of the first block alone."""
        return f"@{self._is_first} " if self.is_pair else ""

    def begin(self) -> None:
        """The head of the kernel: which block of the pair this is."""
        if self.is_pair:
            rank = self.code.op("b32", "mov.u32", "%cluster_ctarank")
            self._is_first = self.code.op("pred", "setp.eq.u32", rank, "0")

    @contextmanager
    def in_first(self) -> Iterator[None]:
        """Lines for lanes of the first block alone. No value of theirs is read behind them."""
        if not self.is_pair:
            yield
            return
        skip = self.code.label()
        self.code.emit(f"@!{self._is_first} bra {skip}")
        yield
        self.code.mark(skip)

    def barrier_of_first(self, base: str) -> str:
        """The register of the same place in the first block's shared memory, as that of a cluster
        is addressed (PTX ISA, "mapa").
        """
        return self.code.op("b32", "mapa.shared::cluster.u32", base, "0") if self.is_pair else base

    def commit(self, at: str) -> None:
        """A barrier's phase ends, in each block, as all products that the lane has begun have."""
        kind = f"tcgen05.commit.{self.group}.mbarrier::arrive::one.shared::cluster"
        if self.is_pair:
            mask = self.code.in_register(str((1 << self.count) - 1), "b16")
            self.code.emit(f"{kind}.multicast::cluster.b64 {at}, {mask}")
        else:
            self.code.emit(f"{kind}.b64 {at}")


def is_known(unit: MatrixUnit, target: Target) -> bool:
    """Whether a target has a unit, or the one of each block of a pair."""
    if unit.blocks == 1:
        return unit.name in {each.name for each in target.matrix_units}
    halves = (each for each in target.matrix_units if each.columns and target.has_clusters)
    return any(pair_of(each).name == unit.name for each in halves)
