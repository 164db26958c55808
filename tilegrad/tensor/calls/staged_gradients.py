"""Gradients that stop on their way down the calls below a loss (`tensor.handle.stops`).

From the loss down to the nearest stops is one *leg*, from each stop on to the next ones another.
The gradients of a leg are a template over what its calls stand on and the gradient that comes to
its root. The gradient at a stop is the sum that the legs above give; hooks see it, and their result
goes on.

All legs are found before the first hook is called: where one of them is not plain, the nodes tell,
and no hook has seen a gradient yet. Hooks are called in PyTorch's order: what was computed last
comes first, and a leaf comes when the first call that it flows to has been passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from tilegrad.base.config import gradients as are_recorded
from tilegrad.tensor.calls.below import Below, Seed, ends
from tilegrad.tensor.calls.changing_constants import in_memory
from tilegrad.tensor.calls.sized_gradients import Backward
from tilegrad.tensor.handle.gradient import add_gradient
from tilegrad.tensor.handle.leaf_hooks import after_hooks, hooks_of
from tilegrad.tensor.handle.stops import GradientFunction
from tilegrad.tensor.handle.waiting import Call, this_thread

__all__ = ["Descent", "stops_below"]

# The gradients of the leaves below, as tensors that wait, each with its target: by the templates,
# the leaves and the gradients that come.
Given = Callable[[Below, Backward, Sequence[Any]], list[tuple[Any, Any]]]


def stops_below(loss: Call) -> set[Call]:
    """The calls below a loss at which its gradient stops."""
    found: set[Call] = set()
    flowing, met, last = {loss}, {loss}, [(-loss.serial, 0, loss)]

    def meet(call: Any) -> None:
        if call.__class__ is Call and call not in met and not ends(call):
            met.add(call)
            heappush(last, (-call.serial, len(met), call))

    while last:
        call = heappop(last)[2]
        stop = call.stop
        if stop is not None and call.requires_grad:
            found.add(call)
        if stop is not None and stop.function is not None:
            for each in stop.function.inputs:
                if each is not None:
                    found.add(each)
                    # Its source may have gradients from elsewhere, too.
                    source = each.inputs[0]
                    if _may_stop(source):
                        found.add(source)
                        meet(source)
            continue
        inputs = call.inputs or ()
        for at in call.template.flowing(call.slot):
            each = inputs[at] if inputs else None
            if each.__class__ is Call and each.requires_grad:
                flowing.add(each)
                meet(each)
    return found


def _may_stop(source: Any) -> bool:
    """Whether a gradient goes on through the result of a call, which is no leaf."""
    return source.__class__ is Call and bool(source.inputs) and not ends(source)


class _Leg:
    """The way from a `root` to the next stops, and the gradients there; `function`, if the root is
    the output of one, has the gradients instead, with those of the other outputs among `roots`.
    """

    __slots__ = ("below", "found", "function", "roots", "runs")

    def __init__(self, root: Call):
        self.roots = [root]
        self.function: GradientFunction | None = None
        self.below: Below | None = None
        self.found: Backward | None = None
        self.runs = 0


class Descent:
    """The gradient of a loss, on its way down from stop to stop.

    `seed` is the gradient of the loss by itself, a tensor.

    Attributes:
        is_plain: whether the calls tell all of it.
    """

    def __init__(
        self,
        first: Below,
        seed: Any,
        template_of: Callable[[Below], Backward | None],
        given: Given,
    ):
        self._stops, self._template_of, self._given = first.stops, template_of, given
        self._device = first.device
        loss = first.calls[-1]
        # By identity of a leaf, when the first call that it flows to was made; and its gradient.
        self._due: dict[int, int] = {}
        self._leaves: dict[int, tuple[Any, Any]] = {}
        self._totals: dict[Call, Any] = {}
        self._legs: list[_Leg] = []
        self._open: list[tuple[int, int, Call]] = []
        self._reached: set[Call] = set()
        self.is_plain = True
        if loss in self._stops:
            self._totals[loss] = seed
            self._reach(loss)
        else:
            self._find(_Leg(loss), first)
        while self._open and self.is_plain:
            self._plan(heappop(self._open)[2])

    def _plan(self, root: Call) -> None:
        """Find what comes below a stop."""
        stop = root.stop
        function = None if stop is None else stop.function
        if function is not None:
            if self._legs and self._legs[-1].function is function:
                self._legs[-1].roots.append(root)
                return
            leg = _Leg(root)
            leg.function = function
            self._legs.append(leg)
            for each in function.inputs:
                if each is not None:
                    self._reach(each)
        elif not root.template.steps and (root.inputs or (None,))[0] in self._stops:
            self._legs.append(_Leg(root))
            self._reach((root.inputs or ())[0])
        else:
            leg = _Leg(root)
            self._find(leg, self._below(root))

    def _below(self, root: Call) -> Below:
        return Below(root, self._device, None, self._stops, Seed(root.dtype, root.shape))

    def _find(self, leg: _Leg, below: Below) -> None:
        """Find the gradients of a leg."""
        self._legs.append(leg)
        if not below.is_plain or below.may_be_lost():
            self.is_plain = False
            return
        if not below.targets:
            return
        leg.found = self._template_of(below)
        if leg.found is None:
            self.is_plain = False
            return
        leg.below, leg.runs = below, this_thread.pool.runs
        users = below.last_users()
        for position, target in below.targets.items():
            if target.__class__ is Call:
                self._reach(target)
            else:
                serial = users.get(position, leg.roots[0].serial)
                self._due[id(target)] = min(serial, self._due.get(id(target), serial))

    def _reach(self, call: Any) -> None:
        if call not in self._reached:
            self._reached.add(call)
            heappush(self._open, (-call.serial, len(self._reached), call))

    def run(self) -> None:
        """Call the hooks, and let each leaf have its gradient."""
        token = are_recorded.set(False)
        try:
            for leg in self._legs:
                self._add_leaves(leg.roots[-1].serial)
                self._pass(leg)
            self._add_leaves(-1)
        finally:
            are_recorded.reset(token)

    def _pass(self, leg: _Leg) -> None:
        """Let the gradient of a stop, after its hooks, go on to the next ones."""
        is_first = leg.below is not None and not leg.below.seeds
        seeds = [self._seen(root) for root in leg.roots]
        if leg.function is not None:
            self._through(leg, seeds)
        elif not is_first and seeds[0] is None:
            return
        elif leg.below is not None and leg.found is not None:
            below, found = leg.below, leg.found
            if this_thread.pool.runs != leg.runs and not is_first:
                # A hook has read something: what was computed for it is not computed again.
                below, found = self._again(leg.roots[0], below, found)
            for target, gradient in self._given(below, found, () if is_first else seeds):
                self._add(target, gradient)
        elif not is_first and leg.roots[0].inputs and not leg.roots[0].template.steps:
            source: Any = leg.roots[0].inputs[0]
            if source in self._stops:
                self._add(source, seeds[0])

    def _again(self, root: Call, below: Below, found: Backward) -> tuple[Below, Backward]:
        again = self._below(root)
        if not again.is_plain or [*again.targets.values()] != [*below.targets.values()]:
            return below, found
        template = self._template_of(again)
        return (below, found) if template is None else (again, template)

    def _through(self, leg: _Leg, seeds: list[Any]) -> None:
        """Let a function say the gradients of its inputs."""
        function = leg.function
        assert function is not None
        by_position: dict[int, Any] = {}
        for root, seed in zip(leg.roots, seeds, strict=True):
            stop = root.stop
            assert stop is not None
            by_position[stop.position] = seed
        count = 1 + max(by_position)
        given = function.gradients([by_position.get(each) for each in range(count)])
        for call, gradient in zip(function.inputs, given, strict=True):
            if call is not None and gradient is not None:
                self._add(call, gradient)

    def _seen(self, root: Call) -> Any:
        """The gradient at a stop, after its hooks."""
        gradient = self._totals.pop(root, None)
        stop = root.stop
        if gradient is None or stop is None:
            return gradient
        for watcher in list(stop.watchers.values()):
            new = watcher.on_tensor(in_memory(gradient), self._reached)
            gradient = gradient if new is None else new
        return in_memory(gradient)

    def _add(self, target: Any, gradient: Any) -> None:
        """Add what a leg gives to a stop, or to a leaf."""
        if target.__class__ is Call:
            known = self._totals.get(target)
            self._totals[target] = gradient if known is None else known + gradient
        else:
            _, known = self._leaves.get(id(target), (None, None))
            self._leaves[id(target)] = target, gradient if known is None else known + gradient

    def _add_leaves(self, serial: int) -> None:
        """Let the leaves have their gradients that flow to no call made up to `serial`."""
        due = [each for each in self._leaves if self._due[each] > serial]
        for each in sorted(due, key=self._due.__getitem__, reverse=True):
            leaf, gradient = self._leaves.pop(each)
            if hooks_of(leaf):
                gradient = after_hooks(leaf, in_memory(gradient))
            add_gradient(leaf, gradient)
