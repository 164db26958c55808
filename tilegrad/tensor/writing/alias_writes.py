"""Effects of a write on the aliases of a storage, and on their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.config import gradients
from tilegrad.grad.partial_writes import spread, where_written
from tilegrad.grad.regions import unrecorded, without_outputs
from tilegrad.ir.movement import fill
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.aliases import Look, moved, show, times_detached
from tilegrad.tensor.handle.core import compute
from tilegrad.tensor.handle.size_arguments import Variables
from tilegrad.tensor.storage import memory, running

__all__ = [
    "Write", "after_write", "depths_of_leaves", "is_leaf_with_gradient", "plain_look",
    "show_with_gradient", "unseen_by_gradients", "written_to",
]  # fmt: skip


_MEMORY = (Ops.BUFFER, Ops.ASSIGN, Ops.AFTER)


class Write(NamedTuple):
    """A value that one alias of a storage is to take: how that one looks there (`found`), all
    aliases and how they look, the variables in the value and the position, whether the gradient of
    each alias takes no notice of the write, and whether it is `resumed` from before such a write.
    `given` is the value with its graph; with `wants_grad` aliases require a gradient from now on.
    """

    found: Look
    aliases: Sequence[Any]
    looks: Sequence[Look]
    value: UOp
    variables: Variables
    unseen: Sequence[bool]
    given: UOp
    wants_grad: bool
    resumed: Sequence[bool] = ()


def plain_look(found: Look) -> Look:
    """How an alias looks at its storage, whatever gradients see."""
    return found if found.root is None else found._replace(root=without_outputs(found.root))


def is_leaf_with_gradient(each: Any) -> bool:
    """Whether a tensor is one that gradients are gathered for."""
    return bool(each._requires_grad and each._is_leaf)


def depths_of_leaves(aliases: Sequence[Any], looks: Sequence[Look]) -> set[int]:
    """How often those of `aliases` were detached that gradients are gathered for."""
    return {
        times_detached(seen.moves)
        for each, seen in zip(aliases, looks)
        if is_leaf_with_gradient(each)
    }


def unseen_by_gradients(
    found: Look, aliases: Sequence[Any], looks: Sequence[Look], wants: Any
) -> list[bool]:
    """For each alias, whether its gradient takes no notice of a write to one that looks as `found`:
    without gradients, and where one of the two was detached from the other. A leaf, and a view of
    it, have the gradient of the present value.
    """
    if not (wants or any(each._requires_grad for each in aliases)):
        return [False] * len(aliases)
    of_leaves = depths_of_leaves(aliases, looks)
    is_recorded, depth = gradients.get(), times_detached(found.moves)
    return [
        bool(each._requires_grad or wants)
        and times_detached(seen.moves) not in of_leaves
        and not (is_recorded and depth == times_detached(seen.moves))
        for each, seen in zip(aliases, looks)
    ]


def show_with_gradient(each: Any, seen: Look, root: UOp, target: UOp) -> None:
    """Let a detached alias look at `root`, and its gradient go to `target`."""
    at = max(position for position, (op, _) in enumerate(seen.moves) if op is Ops.DETACH)
    below, above = seen._replace(moves=seen.moves[:at]), seen.moves[at + 1 :]
    show(each, seen, root)
    node = unrecorded(below.over(root), lambda gradient: moved(gradient, above), target)
    each.uop = moved(node, above)


def written_to(write: Write, seen: Look, old: UOp) -> UOp:
    """The value of an alias that looks as `seen` and was `old`, after the write."""
    found, seen = (
        look._replace(moves=tuple([move for move in look.moves if move[0] is not Ops.DETACH]))
        for look in (write.found, seen)
    )
    whole = fill(found.shape, 0, old.dtype)
    view = found.over(whole)
    mask = seen.over(where_written(view, whole))
    return mask.where(seen.over(spread(write.given, view, whole)), old)


def after_write(root: UOp, view: UOp, value: UOp, variables: Variables) -> UOp:
    """`root`, a view of memory, once `value` was written to its slice `view`."""
    version = memory.version_of(root)
    if value.op in _MEMORY and memory.base_of(value) is memory.base_of(version):
        # The memory itself in another order: copied before it is written to.
        value = compute(Ops.CONTIGUOUS, value.dtype, (value,))
    written = compute(Ops.ASSIGN, view.dtype, (memory.without_detach(view), value))
    fresh = UOp(Ops.AFTER, version.dtype, (version, written))
    running.put_off(fresh, variables)
    return root.substitute({version: fresh})
