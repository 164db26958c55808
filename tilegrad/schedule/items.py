"""A schedule: steps in an order, and the memory that they use."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilegrad.base.dtype import DType
from tilegrad.ir.uop import UOp
from tilegrad.schedule.loop_steps import Loop
from tilegrad.schedule.reason import Edge

__all__ = ["BufferSpec", "Item", "Schedule"]


@dataclass(frozen=True)
class BufferSpec:
    """Memory that a schedule uses: an input if `source` is the number of a BUFFER of the graph,
    else made for the run, of `extent` elements if that is for the launch to say, at most `size`.
    """

    device: str
    dtype: DType
    size: int
    source: int | None = None
    extent: UOp | None = None

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Item:
    """One step: a kernel (`ast`), or where `ast` is None a copy, or with `custom` a Python
    function, or with `loop` the steps of another schedule, many times. `buffers` are positions in
    the schedule's table.

    A kernel's buffers stand in the order of its parameters, its outputs first. `nodes` are the
    positions of the graph's nodes that it computes, for messages and profiles. `draws` are the
    numbers of the graph's draws that it makes: in the kernel they are 0, 1, ... `offset_names` are
    the graph's variables for the offsets of slices that it reads, or the offsets themselves, which
    the kernel numbers as well.
    """

    device: str
    buffers: tuple[int, ...]
    ast: UOp | None = None
    nodes: tuple[int, ...] = ()
    custom: bool = False
    draws: tuple[int, ...] = ()
    offset_names: tuple[str | int, ...] = ()
    loop: Loop | None = None
    # How many of the buffers, the first, it writes.
    written: int = 1

    @property
    def is_copy(self) -> bool:
        return self.ast is None and not self.custom and self.loop is None


@dataclass
class Schedule:
    """Steps in order, the buffers they use, where each requested value is, and why neighbours were
    not fused.
    """

    items: list[Item]
    buffers: list[BufferSpec]
    outputs: list[int]
    edges: list[Edge] = field(default_factory=list)
    # Where values are that are stored anyway, by the positions of their nodes in the graph.
    materialised: dict[int, int] = field(default_factory=dict)
