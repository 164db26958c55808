"""Where a gradient stops on its way down the calls that wait: at the result of a call that is
watched, or of a function that says its own gradient.

A stop belongs to the call, and goes with it. Where the nodes are made, `tilegrad.grad` finds it at
the node of the call, which is no other call's then.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence, Set
from typing import Any, Protocol

from tilegrad.grad.node_hooks import watch
from tilegrad.grad.regions import leaf
from tilegrad.ir.uop import UOp

__all__ = ["GradientFunction", "GradientWatcher", "Stop", "node_of_stop", "stop_at"]

_next_key = itertools.count().__next__


class GradientWatcher(Protocol):
    """Sees the gradient of a result, and may replace it."""

    def settle(self, node: UOp) -> None:
        """Note the node of the result, which was made."""

    def on_node(self, gradient: UOp, through: Set[UOp]) -> UOp | None:
        """The replacement of the gradient, None if there is none; gradients flow `through` these
        nodes.
        """

    def on_tensor(self, gradient: Any, through: Collection[Any]) -> Any:
        """The same of a tensor; gradients flow through the results of these calls."""


class GradientFunction(Protocol):
    """A function that says its own gradient."""

    @property
    def inputs(self) -> Sequence[Any]:
        """The calls whose results have the gradients that it gives, None for what has none."""

    def node_of(self, position: int) -> UOp:
        """The node of an output, by its position."""

    def gradients(self, given: Sequence[Any]) -> Sequence[Any]:
        """Those of the inputs, tensors or None, from those of the outputs."""


class Stop:
    """Stop of a gradient at the result of a call: the `watchers`, in the order in which they
    came; then, if the result is the output at `position` of a `function`, that.
    """

    __slots__ = ("function", "position", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[int, GradientWatcher] = {}
        self.function: GradientFunction | None = None
        self.position = 0

    def add(self, watcher: GradientWatcher) -> int:
        """Take in a watcher; its key among them."""
        key = _next_key()
        self.watchers[key] = watcher
        return key

    def see(self, gradient: UOp, through: Set[UOp]) -> UOp | None:
        """The replacement of the gradient of the node, None if there is none."""
        first = gradient
        for watcher in list(self.watchers.values()):
            new = watcher.on_node(gradient, through)
            gradient = gradient if new is None else new
        return None if gradient is first else gradient


def stop_at(call: Any) -> Stop:
    """The stop at the result of a call, which has one from now on."""
    found: Stop | None = call.stop
    if found is None:
        found = call.stop = Stop()
    return found


def node_of_stop(call: Any, node: UOp) -> UOp:
    """The node of a call with a stop for which `node` was made: one that is no other call's, and is
    known by who watches.
    """
    stop: Stop = call.stop
    if stop.function is not None:
        made = stop.function.node_of(stop.position)
    elif call.slot < call.template.count or not node.src:
        made = leaf(node)
    else:
        node.set_apart()
        made = UOp(node.op, node.dtype, node.src, node.arg)
        made.origin = node.origin
    watch(made, stop.see)
    for watcher in stop.watchers.values():
        watcher.settle(made)
    return made
