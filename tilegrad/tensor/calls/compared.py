"""The comparison of a template with its method, under `TEMPLATES=2`."""

from __future__ import annotations

from typing import Any

from tilegrad.base.errors import InternalError
from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["compare"]


def _are_same(mine: UOp, other: UOp) -> bool:
    """Whether two graphs are one, with DETACH of DETACH as one: a template detaches what its
    operand already did. Equal nodes are one object, so only what differs is walked.
    """
    pairs = [(mine, other)]
    met: set[tuple[UOp, UOp]] = set()
    while pairs:
        one, two = pair = _detached_once(pairs[-1][0]), _detached_once(pairs.pop()[1])
        if one is two or pair in met:
            continue
        met.add(pair)
        if one.op is not two.op or len(one.src) != len(two.src):
            return False
        if one.replace(src=two.src) is not two and not _are_one_kernel(one.arg, two.arg):
            return False
        pairs += zip(one.src, two.src)
    return True


def _are_one_kernel(one: Any, two: Any) -> bool:
    """Whether two arguments are the same kernel, whose gradient is made anew by each call."""
    if not (isinstance(one, KernelArg) and isinstance(two, KernelArg)):
        return False
    return (one.name, one.shape, one.ast) == (two.name, two.shape, two.ast)


def _detached_once(node: UOp) -> UOp:
    while node.op is Ops.DETACH and node.src[0].op is Ops.DETACH:
        node = node.src[0]
    return node


def compare(made: Any, plain: Any, name: str) -> None:
    """Raise InternalError unless the two are the same nodes, and tensors of the same kind."""
    several = made if isinstance(made, tuple) else (made,)
    others = plain if isinstance(plain, tuple) else (plain,)
    for mine, other in zip(several, others, strict=True):
        rest = ["device", "_requires_grad", "_is_leaf", "_is_shared", "_symbols"]
        if not _are_same(mine.uop, other.uop):
            rest.insert(0, "uop")
        for what in rest:
            if getattr(mine, what) is not getattr(other, what) and getattr(mine, what) != getattr(
                other, what
            ):
                raise InternalError(
                    f"template: {name} gives another {what.strip('_').replace('uop', 'node')}",
                    template=repr(getattr(mine, what))[:300],
                    method=repr(getattr(other, what))[:300],
                )
        paths = [None if each._alias is None else each._alias[1] for each in (mine, other)]
        # A tensor that is detached twice is one step further from the memory, and has the same
        # elements.
        if paths[0] != paths[1] and mine.uop is other.uop:
            raise InternalError(f"template: {name} gives another view", paths=paths)
