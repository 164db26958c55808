"""Kernels of a first step are made while the user's code goes on to the optimizer.

A process whose kernels are not compiled yet has a helper (engine.build.workers) that waits for the
first plan: until the optimizer has made its nodes, and until the schedule has the first product.
After `backward()` the loss and its gradients are known. Nearly all of their products are kernels of
the step as well, letter by letter; others cost an idle core.

Parameters that are to be drawn count as memory: an optimizer computes them before its first step.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from tilegrad.base.config import config
from tilegrad.device.registry import Device
from tilegrad.engine.build.background import count_of_helpers
from tilegrad.engine.realize.realize import memory_of
from tilegrad.engine.run.run import is_for_replays
from tilegrad.ir.args import BufferArg, RandArg
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp, toposort

__all__ = ["look_ahead"]

# Ops of graphs whose kernels depend on more than the nodes below.
_REFUSED = frozenset({
    Ops.AFTER, Ops.BIND, Ops.CUSTOM, Ops.LOOP, Ops.LOOP_OUTPUT, Ops.SHARD,
})  # fmt: skip
_LEAVES = (Ops.BUFFER, Ops.COPY)
_WORKERS = "tilegrad.engine.build.workers"

_is_over = False


def look_ahead(values: Sequence[UOp]) -> None:
    """Let a helper make kernels of the graph of a loss and its gradients, if they are the first in
    this process and there is a helper, as where the cache was empty.
    """
    global _is_over
    if _is_over:
        return
    _is_over = True
    if _WORKERS not in sys.modules or not config.SHORT or config.NOOPT or is_for_replays():
        return
    if not count_of_helpers():
        return
    graph = _numbered(values)
    if graph is not None:
        from tilegrad.engine.build import workers

        workers.look_ahead(graph, Device.DEFAULT)


def _numbered(values: Sequence[UOp]) -> UOp | None:
    """The graph of some values as a schedule takes it, if it is plain and on one device. Copies to
    that device count as memory.
    """
    mapping: dict[UOp, UOp] = {}
    leaves: dict[UOp, UOp] = {}
    draws = itertools.count()
    for node in toposort(values, stop=_memory):
        memory = _memory(node)
        if memory is not None:
            base = base_of(memory)
            source = base.src[0] if base.op is Ops.COPY else base
            device = base.arg if base.op is Ops.COPY else getattr(base.arg, "device", None)
            if source.op is not Ops.BUFFER or device != Device.DEFAULT:
                return None
            arg = BufferArg(len(leaves), device, source.arg.size)
            leaf = leaves.setdefault(base, UOp(Ops.BUFFER, base.dtype, (), arg))
            mapping[node] = leaf if memory is base else memory.substitute({base: leaf})
        elif node.op is Ops.RAND:
            draw = RandArg(node.arg.shape, next(draws), 0, node.arg.device)
            mapping[node] = node.replace(arg=draw)
        elif node.op in _REFUSED:
            return None
    return UOp.sink(*values).substitute(mapping)


def _memory(node: UOp) -> UOp | None:
    """The memory that holds the value of a node, is copied from where it is, or will be written."""
    if node.op in _LEAVES:
        return node
    if node.op is not Ops.ASSIGN:
        return memory_of(node)
    target = node.src[0]
    while (before := base_of(target)).op is Ops.ASSIGN:
        target = target.substitute({before: before.src[0]})
    return target
