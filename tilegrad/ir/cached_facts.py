"""Facts that a node caches: the open ranges around it, its digest, whether it is constant.

Each function finds these for its sources in place, as `UOp._lazy` leaves them.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tilegrad.ir.op import Axis, Ops

__all__ = ["constant_of", "digest_of", "ranges_of"]

_NO_RANGES: frozenset[Any] = frozenset()
_MET = (Axis.LOCAL, Axis.GROUP, Axis.UPCAST)


def ranges_of(node: Any) -> frozenset[Any]:
    """The ranges around `node`: those it needs and that no END has closed."""
    op = node.op
    if op is Ops.SINK:
        return _NO_RANGES
    if op is Ops.RANGE:
        return node.src[0].ranges | {node} if node.src else frozenset({node})
    found: frozenset[Any] = _NO_RANGES
    for source in node.src:
        inner = source._ranges
        assert inner is not None
        if inner is not found and not inner <= found:
            found = found | inner if found else inner
    if op is Ops.END or op is Ops.REDUCE:
        found = found.difference(source for source in node.src if source.op is Ops.RANGE)
    if op is Ops.BARRIER:
        # After a barrier all lanes have arrived, and all unrolled copies.
        found = frozenset(inner for inner in found if inner.axis not in _MET)
    return found


def digest_of(node: Any) -> bytes:
    """A digest of the graph below `node`, the same in every process."""
    state = hashlib.blake2b(f"{node.op.name} {node.dtype!r} {node.arg!r}".encode(), digest_size=16)
    for source in node.src:
        state.update(source._digest)
    return state.digest()


def constant_of(node: Any) -> bool:
    """Whether `node` is made of constants alone."""
    for source in node.src:
        if not source._is_constant:
            return False
    return node.op not in (
        Ops.BUFFER, Ops.RAND, Ops.CUSTOM, Ops.LOOP, Ops.SCATTER_ADD, Ops.SHARD
    )  # fmt: skip
