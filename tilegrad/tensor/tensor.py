"""The user's tensor: a handle around a graph, lazy until someone asks for values.

The methods come from the folders beside this file, by subject. Each class adds to the one before:

    handle        the handle around a node, sizes, devices, modes
    storage       memory, files, host arrays, and the values that a run keeps
    calls         data of the user, other dtypes, graphs made from templates
    views         the same values at other positions: movement, concatenation, slices
    elementwise   one result for each element: arithmetic, functions, activations
    reductions    reduced axes, and scans along them
    indexing      new tensors, random numbers; elements that a key picks, and writing to them
    products      matrix products, convolutions, losses and attention
    results       realize, kernels written by hand, printing
    ordering      sorting, scatter, selection, counting
    matrices      factorisations, determinants, linear algebra
    spectral      Fourier transforms
    composed      the other functions of NumPy and PyTorch, composed of these
    writing       assignment, updates in place, hooks on gradients
    exchange      other libraries' arrays

Here are its gradients, its text, and the switch of training.

Equal graphs are one node and one computation. Where a tensor needs memory that is its own (to be
written to, or to have a gradient that is its own), it is given some: see `contiguous`, `assign` and
`requires_grad`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from tilegrad.base.config import training
from tilegrad.base.errors import ShapeError, TilegradError
from tilegrad.engine.realize.ahead import look_ahead
from tilegrad.engine.realize.later_versions import from_later_versions
from tilegrad.engine.realize.realize import exclusive, realized
from tilegrad.grad.backward import below, gradients
from tilegrad.grad.node_hooks import has_watchers, is_watched
from tilegrad.grad.regions import unrecorded
from tilegrad.grad.rules import NO_DERIVATIVE
from tilegrad.ir.movement import fill
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.gradients import wait_for_gradients, waiting_gradients
from tilegrad.tensor.exchange.interchange import Interchange
from tilegrad.tensor.handle.absent_names import (
    AbsentName,
    AbsentNames,
    absent_error,
    names_of_class,
)
from tilegrad.tensor.handle.core import Core, check_tensors, compute, describe, live
from tilegrad.tensor.handle.gradient import add_gradient
from tilegrad.tensor.handle.size_arguments import merge, same_shape, show_shape
from tilegrad.tensor.handle.slot_layout import Slots
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.results.printing import formatted, text_of, values_of
from tilegrad.tensor.storage import past
from tilegrad.tensor.storage.computed_again import computed_again
from tilegrad.tensor.storage.graphs import graphs, replayed
from tilegrad.tensor.storage.memory import base_of, is_row_major
from tilegrad.tensor.writing.watching import after_hooks

__all__ = ["Tensor"]


def _nodes_of(tensor: Core) -> list[UOp]:
    """The nodes that are a tensor's value in some graph."""
    node, found = tensor.uop, list(dict.fromkeys(tensor._earlier()))
    graph = graphs.get(base_of(node))
    if graph is None or graph.shape != node.shape or not is_row_major(node):
        found = list(dict.fromkeys([node, *found]))
    elif graph not in found:
        found.append(graph)
    for node in [*found]:
        memory = _memory_beside(node)
        if memory is not None and memory not in found:
            # A gradient that reaches the memory goes on to the graph it was computed by.
            if graphs.get(base_of(memory)) not in found:
                found.append(memory)
    return found


def _memory_beside(node: UOp) -> UOp | None:
    """The memory that stands for the value of `node` in other graphs: those that are kept beside
    memory, and those of its views that were read while the tensor itself was not.
    """
    base = node
    while base.op.is_movement:
        base = base.src[0]
    if base.stored is None or base.op is Ops.BUFFER:
        return None
    return realized(node)


class _Kind(type):
    """The type of `Tensor`, where `Tensor.training` lives: a switch of the running thread."""

    @property
    def training(cls) -> bool:
        """Whether layers such as dropout and batch normalisation behave as in training."""
        return training.get()

    @training.setter
    def training(cls, mode: bool) -> None:
        training.set(mode)

    def __getattr__(cls, name: str) -> Any:
        raise absent_error(f"type object {cls.__name__!r}", name, cls)

    def __dir__(cls) -> list[str]:
        return sorted(names_of_class(cls))


class Tensor(Slots, Interchange, AbsentNames, metaclass=_Kind):
    """An array of one dtype on one device, computed when its values are asked for.

    `data` may be a number, a nested list of numbers, bytes (as uint8), an array of NumPy or another
    library, a picture, any buffer, a path (the file's bytes, on the device `DISK:path`), a bound
    `Variable`, another tensor's graph, or None for no elements. Lists of bools are bool, of
    integers int32, others float32; arrays keep their dtype. Numbers and arrays without axes are
    constants and take no memory. Arrays are copied (see `from_dlpack` and `from_blob`).

    Raises ShapeError for a ragged list, DTypeError for what is no number, DeviceError for an
    unknown device, DataError for a file that cannot be opened.

    >>> Tensor([1, 2, 3]).tolist()
    [1, 2, 3]
    """

    __slots__ = ()

    @staticmethod
    def _hint_of(name: str) -> str | None:
        """A hint for a name that is not there, beside the nearest one."""
        return None

    if TYPE_CHECKING:
        # Symbolic sizes are nodes; they stand for the integers that they are bound to.
        @property
        def shape(self) -> tuple[int, ...]: ...

    def __dir__(self) -> list[str]:
        """The public names of a tensor. Python suggests the nearest of at most 749 names for a
        misspelt one, so methods that make new tensors (`zeros`, `arange`) are left out.
        """
        found = {
            name
            for kind in type(self).__mro__
            for name, value in vars(kind).items()
            if name[0] != "_" and not isinstance(value, (AbsentName, classmethod, staticmethod))
        }
        return sorted(found.union(getattr(self, "__dict__", ())))

    def __repr__(self) -> str:
        values = values_of(self)
        if values is not None:
            return text_of(self, values)
        node = self.uop
        kind = f"{self.device} {show_shape(self.shape)} {node.dtype.alias}"
        head = f"<UOp {kind} (<{node.op}: {node.op.serial}>, {_short(node.arg)})>"
        grad = None if self.grad is None else repr(self.grad.uop.op)
        return f"<Tensor {head} on {self.device} with grad {grad}>"

    def __format__(self, spec: str) -> str:
        return formatted(self, spec, self.item)

    # gradients

    def requires_grad_(self, wanted: bool | None = True) -> Self:
        """Set `requires_grad`.

        Args:
            wanted: whether `backward` adds up a gradient.

        Returns this tensor.

        Raises DTypeError for a dtype that has no derivative.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        self.requires_grad = wanted
        return self

    def gradient(
        self, *targets: Tensor, gradient: Tensor | None = None, materialize_grads: bool = False
    ) -> list[Any]:
        """Gradients of this tensor with respect to each of `targets`. They are graphs like any
        other, and have gradients.

        Args:
            targets: tensors that this one was computed from.
            gradient: gradient of some loss with respect to this tensor, of its shape; without it
                the tensor must be one number, the loss.
            materialize_grads: give zeros, not None, where this tensor does not depend on a target.

        Returns a list with a tensor of the shape and dtype of each target, or None; None too for a
        target without elements.

        Raises ShapeError for a tensor of more than one number without `gradient`, DTypeError if it
        is no float, TilegradError where the graph on the way was given back.

        >>> x = Tensor([3.0]); (x * x).sum().gradient(x)[0].tolist()
        [6.0]
        """
        check_tensors("gradient", *targets)
        waiting = waiting_gradients(self, targets) if gradient is None else None
        if waiting is not None:
            return waiting
        with exclusive():
            found = self._gradients_of([_nodes_of(target) for target in targets], gradient)
        made: list[Any] = []
        for target, node in zip(targets, found):
            if node is None:
                has_zeros = materialize_grads or not target._has_elements()
                made.append(target.zeros_like() if has_zeros else None)
            else:
                node = after_hooks(target, node)
                made.append(
                    self._of(node, target.device, merge(self._variables, target._variables), False)
                )
        return made

    def backward(self, gradient: Tensor | None = None, retain_graph: bool = True) -> Self:
        """Add the gradient of this tensor to `grad` of every leaf that it was computed from and
        that requires one.

        Nothing is computed until the gradients are realized.

        Args:
            gradient: gradient of some loss with respect to this tensor, of its shape; without it
                the tensor must be one number, the loss.
            retain_graph: accepted for other libraries' sake; the graph always stays.

        Returns this tensor.

        Raises ShapeError for a tensor of more than one number without `gradient`, DTypeError if it
        is no float, TilegradError if nothing that it was computed from requires a gradient.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> loss = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        this_thread.pool.losses.add(self)
        if gradient is None and wait_for_gradients(self):
            return self
        # A run in another thread gives tensors other nodes: not meanwhile.
        with exclusive():
            leaves, found = self._leaves_and_gradients(gradient)
            look_ahead([self.uop, *(node for node in found if node is not None)])
        for leaf, node in zip(leaves, found):
            if node is not None:
                node = after_hooks(leaf, node)
                flow = self._of(node, leaf.device, merge(self._variables, leaf._variables), False)
                add_gradient(leaf, flow)
        return self

    def _leaves_and_gradients(self, gradient: Tensor | None) -> tuple[list[Any], list[UOp | None]]:
        """The leaves that this tensor was computed from, and the gradient of each.

        Raises TilegradError if there is none.
        """
        nodes = below(self.uop, graphs)
        every = [each for each in live() if each._requires_grad and each._is_leaf]
        names = [_nodes_of(tensor) for tensor in every]
        self._refuse_lost(names, are_leaves=True)
        found_below = [not nodes.keys().isdisjoint(several) for several in names]
        leaves = list(itertools.compress(every, found_below))
        if not leaves:
            self._refuse_replayed()
        if not leaves and not self._requires_grad:
            raise TilegradError(
                "backward: nothing below this tensor requires a gradient",
                tensor=describe(self.uop),
                remedy="make parameters with requires_grad=True, or give them to an optimizer",
            )
        below_here = list(itertools.compress(names, found_below))
        # A leaf may be gone by now, a layer that was made for one call: the hooks above it are
        # called all the same.
        watched = [(node,) for node in nodes if is_watched(node)] if has_watchers() else []
        found = self._gradients_of([*below_here, *watched], gradient, nodes)[: len(leaves)]
        if not leaves:
            return [], []
        if all(node is None for node in found) and self._requires_grad:
            # Between here and the leaves are steps (`floor`, `trunc`), which are flat.
            found = [fill(leaf._sizes, 0, leaf.dtype) for leaf in leaves]
        if all(node is None for node in found):
            raise TilegradError(
                "backward: no gradient reaches what requires one",
                tensor=describe(self.uop),
                rule="detach(), comparisons and integers pass none on",
            )
        return leaves, found

    def _gradients_of(
        self,
        names: Sequence[Sequence[UOp]],
        gradient: Tensor | None,
        order: Collection[UOp] | None = None,
    ) -> list[UOp | None]:
        """For each value, known by several nodes, the sum of the gradients that reach them; `order`
        is what is below this tensor, if that is known, and that no graph on the way was lost.
        """
        if gradient is None:
            if self.shape != ():
                raise ShapeError(
                    f"backward: a loss is one number, the shape is {show_shape(self.shape)}",
                    tensor=describe(self.uop),
                    remedy="sum() or mean() it, or pass gradient=",
                )
            seed = UOp.const(self.dtype, 1)
        else:
            check_tensors("backward", gradient)
            if not same_shape(gradient.shape, self.shape) and gradient.uop.op is not Ops.CONST:
                raise ShapeError(
                    f"backward: the gradient has shape {show_shape(gradient.shape)}, the "
                    f"tensor {show_shape(self.shape)}",
                    tensor=describe(self.uop),
                    gradient=describe(gradient.uop),
                    rule="one of the tensor's shape, or one number for all",
                )
            seed = gradient.cast(self.dtype).uop
        targets = [node for several in names for node in several]
        self._refuse_replayed(targets)
        if order is None:
            self._refuse_lost(names)
        found = iter(gradients(self.uop, seed, targets, graphs, order))
        totals: list[UOp | None] = []
        for several in names:
            total: UOp | None = None
            for each in [next(found) for _ in several]:
                total = (
                    each
                    if total is None
                    else total
                    if each is None
                    else compute(Ops.ADD, each.dtype, (total, each))
                )
            totals.append(total)
        # A gradient of a gradient goes on to what was read.
        readable = from_later_versions(
            [each for each in totals if each is not None],
            lambda memory, view: unrecorded(memory, lambda gradient: gradient, view),
        )
        reached = iter(computed_again(readable, graphs))
        return [None if each is None else next(reached) for each in totals]

    def _refuse_lost(self, names: Iterable[Sequence[UOp]], *, are_leaves: bool = False) -> None:
        """Raise TilegradError if this tensor was computed from one of several values, leaves or
        not, each known by the nodes of its `names`, in a way whose graph was given back.
        """
        found = past.lost([self.uop], graphs, names, are_leaves=are_leaves)
        if found is not None:
            raise TilegradError(
                "gradient: a value on the way was computed without requires_grad, and its graph "
                "was given back",
                memory=describe(found),
                remedy="set requires_grad=True on what is differentiated before it is used, ask "
                "for gradients before values are read, or use detach() if none is to flow",
            )

    def _refuse_replayed(self, targets: Collection[UOp] = ()) -> None:
        """Raise TilegradError if a replay gave a value below this tensor, except `targets`."""
        if not replayed:
            return
        stack, seen = [self.uop], {self.uop}
        while stack:
            node = stack.pop()
            if node in replayed and node not in targets:
                raise TilegradError(
                    "backward: a replay of a captured function computed a value on the way, and "
                    "there is no graph of it",
                    memory=describe(node),
                    remedy="ask for gradients within the captured function, or use detach() of "
                    "what it gives if none is to flow",
                )
            graph = graphs.get(node)
            if graph is not None:
                sources: tuple[UOp, ...] = (graph,)
            else:
                sources = () if node.op in NO_DERIVATIVE else node.src
            for source in sources:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)

    @staticmethod
    def train(mode: bool = True) -> TrainingMode:
        """Context, or decorator, in which `Tensor.training` is `mode`: `with Tensor.train(): ...`.

        Args:
            mode: whether layers such as dropout behave as in training.

        Returns the context.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        """
        return TrainingMode(mode)


class TrainingMode(contextlib.ContextDecorator):
    """The object that `Tensor.train()` gives."""

    def __init__(self, mode: bool):
        self._mode = mode
        self._before: list[bool] = []

    def __enter__(self) -> Self:
        self._before.append(training.get())
        training.set(self._mode)
        return self

    def __exit__(self, *error: object) -> None:
        training.set(self._before.pop())


def _short(arg: object) -> str:
    text = repr(arg)
    return text if len(text) <= 60 else f"{text[:57]}..."
