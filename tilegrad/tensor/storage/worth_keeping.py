"""Which values on the way of a run are worth memory of their own, where a tensor alive holds them
or will need them.
"""

from __future__ import annotations

from collections.abc import Collection

from tilegrad.engine.realize.request import Request
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.storage.memory import elements, is_stored, largest, version_of

__all__ = [
    "NEVER_MATERIALISED", "below_views", "is_cheap", "is_unpacked", "worth_keeping",
]  # fmt: skip
# Through these a tensor that is not memory looks at a value without a copy.
_FREE = frozenset({
    Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.DETACH, Ops.FLIP, Ops.PAD
})  # fmt: skip
# Nodes that unpack a block of quantized weights, at most (io/quantized.py).
_MOST_UNPACKING = 512
# The most bytes that a run materialises beside the requested values.
_MOST_BYTES = 1 << 29
# Memory, and what is remembered as it runs.
NEVER_MATERIALISED = frozenset({
    Ops.BUFFER, Ops.CONST, Ops.COPY, Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.LOOP_OUTPUT, Ops.BIND
})  # fmt: skip
_REINTERPRETING = (Ops.CAST, Ops.BITCAST, Ops.DETACH)


def below_views(node: UOp) -> UOp:
    """The node below views that has each of its elements, and no more."""
    while node.op in _FREE:
        node = node.src[0]
    return node


def is_cheap(node: UOp, materialised: Collection[UOp]) -> bool:
    """Whether one operation makes `node` of values that are kept, and of numbers and memory."""
    if not node.op.is_alu and node.op is not Ops.CAST:
        return False
    if any(_is_padded(source) for source in node.src):
        # A concatenation: the next one, of this one, would be more than one operation.
        return False
    sources = [below_views(source) for source in node.src]
    # A stored value is memory, whether or not a tensor above it has its graph still: else a loop
    # would have one plan for either case.
    return any(source in materialised for source in sources) and all(
        source in materialised or source.op in (Ops.CONST, Ops.BUFFER) or source.stored is not None
        for source in sources
    )


def _is_padded(node: UOp) -> bool:
    """Whether `node` is a view of memory, or of values, with padding."""
    while node.op in _FREE:
        if node.op is Ops.PAD:
            return not node.is_constant
        node = node.src[0]
    return False


def is_unpacked(node: UOp) -> bool:
    """Whether elementwise operations alone make `node` of memory that is never written to, such as
    the quantized weights of a file: a kernel unpacks them as it reads them.
    """
    seen: set[UOp] = set()
    stack = [node]
    while stack and len(seen) < _MOST_UNPACKING:
        each = stack.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.op is Ops.BUFFER:
            # Overwritten memory is below a value that was computed before.
            if store.is_overwritten(each) or not store.buffer_of(each).is_fixed:
                return False
        elif each.op is Ops.CONST or each.op.is_alu or each.op in _REINTERPRETING:
            stack += each.src
        elif each.op.is_movement:
            stack.append(each.src[0])
        else:
            return False
    return not stack


def worth_keeping(request: Request, needed: Collection[UOp]) -> list[UOp]:
    """The values that a run of `request` materialises beside its results: of the nodes `needed`,
    which live tensors hold or will be computed from.
    """
    left = _MOST_BYTES
    wanted = {below_views(request.nodes[number]) for number in request.roots}
    materialised: dict[UOp, None] = {}
    for node in request.nodes:
        if node not in needed:
            continue
        root = below_views(node)
        if root.op in NEVER_MATERIALISED:
            continue
        if root in materialised or root.is_constant or is_stored(root):
            continue
        if _was_computed(root, request):
            continue
        if root in wanted or is_cheap(root, materialised) or is_unpacked(root):
            continue
        # A slice of memory is memory: an assignment to it would find its copy instead.
        if version_of(root).op in NEVER_MATERIALISED:
            continue
        size = elements(largest(root.shape)) * root.dtype.itemsize
        if 0 < size <= left:
            left -= size
            materialised[root] = None
    return list(materialised)


def _was_computed(node: UOp, request: Request) -> bool:
    """Whether a request has the memory of `node` in its place."""
    number = request.numbers.get(node)
    return number is not None and request.nodes[number] is not node
