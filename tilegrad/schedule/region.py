"""The graph of one kernel, with a key that equal kernels over other memory share.

Equal layers of a model, and equal steps of a long chain, have equal kernels. Their regions of the
graph are equal too, but for the memory that they read; so one walk finds that a kernel was built
before, in a fraction of the time that it takes to build it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.slices import offset_number, renamed
from tilegrad.ir.uop import UOp, toposort

__all__ = ["KernelRegion", "region_of"]


class KernelRegion(NamedTuple):
    """The nodes that one kernel computes or reads, sources first, the key of them all, an item for
    each node, and the number of the memory of those that are read. In the key, offsets of slices
    and numbers that change are numbered by first visit; `variables` are these.
    """

    nodes: list[UOp]
    key: tuple[Hashable, ...]
    memory: dict[UOp, int]
    variables: dict[UOp, UOp]

    def without_argument(self, position: int) -> Hashable:
        """The item of a node, as if it had no argument."""
        item: Any = self.key[position]
        serial, dtype, _, sources = item
        return serial, dtype, sources


def region_of(
    top: UOp,
    is_read: Callable[[UOp], bool],
    memory_key: Callable[[UOp], tuple[int, DType, int]],
    fitting: Mapping[UOp, UOp],
) -> KernelRegion:
    """The region that computes `top` from stored values. `memory_key` tells what is read of a
    stored value: its memory, by a number that other regions share, and its size. `fitting` has the
    values that variables may have (`fitting.py`).
    """

    nodes = list(toposort([top], stop=is_read))
    number: dict[UOp, int] = {}
    memory: dict[UOp, int] = {}
    variables: dict[UOp, UOp] = {}
    key: list[Hashable] = []
    for position, node in enumerate(nodes):
        number[node] = position
        if node.op in (Ops.BUFFER, Ops.AFTER) or is_read(node):
            # A BUFFER needs no kernel that writes it first; movement over memory as it was is one
            # step of index arithmetic.
            kind = node.op if node.op in (Ops.BUFFER, Ops.AFTER) else None
            read = memory_key(node)
            memory[node] = read[0]
            key.append((kind, node.dtype, _own(node.shape, variables), read))
        elif not node.src:
            # Interned: 0.0 and -0.0 are two.
            key.append(_own(node, variables))
        else:
            sources = tuple([number[source] for source in node.src])
            arg = _own(node.arg, variables) if node.op.is_movement else node.arg
            key.append((node.op.serial, node.dtype, arg, sources))
    key.append(tuple([fitting.get(each, each).arg[1:] for each in variables]))
    return KernelRegion(nodes, tuple(key), memory, variables)


def _own(value: Any, variables: dict[UOp, UOp]) -> Any:
    """A leaf, a shape or an argument of a movement op, with the numbers of `variables` in place of
    a graph's: those that are new get the next ones.
    """
    if not isinstance(value, tuple):
        return _own_size(value, variables)
    if not any(isinstance(each, (UOp, tuple)) for each in value):
        return value
    return tuple([
        tuple([_own_size(size, variables) for size in each])
        if isinstance(each, tuple)
        else _own_size(each, variables)
        for each in value
    ])  # fmt: skip


def _own_size(size: Any, variables: dict[UOp, UOp]) -> Any:
    if not isinstance(size, UOp) or size.op is Ops.CONST:
        return size
    found = [
        node for node in nodes_of(size, Ops.DEFINE_VAR) if offset_number(node.name) is not None
    ]
    for node in found:
        if node not in variables:
            name = renamed(node.name, len(variables))
            variables[node] = node.replace(arg=(name, *node.arg[1:]))
    return size.substitute(variables) if found else size
