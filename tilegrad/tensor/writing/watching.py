"""Hooks on tensors: functions that see the gradient of one as it is made."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Set
from typing import Any

from tilegrad.base.errors import DTypeError, article
from tilegrad.grad.node_hooks import watch
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle import leaf_hooks
from tilegrad.tensor.handle.core import cast_node, describe
from tilegrad.tensor.handle.leaf_hooks import checked
from tilegrad.tensor.handle.stops import stop_at
from tilegrad.tensor.handle.waiting import Call, this_thread
from tilegrad.tensor.writing.updating import Updating

__all__ = [
    "HookedTensor",
    "RemovableHandle",
    "Watching",
    "adder_to",
    "after_hooks",
    "waits_in_call",
    "watch_tensor",
]  # fmt: skip


class RemovableHandle:
    """Handle of a registered hook: `remove()` takes the hook out again, once or more often. As a
    context it does so at the end of the block.

    >>> x = Tensor([1.0])
    >>> with x.register_hook(lambda gradient: gradient * 10):
    ...     print(x.sum().gradient(x)[0].item())
    10.0
    >>> x.sum().gradient(x)[0].item()
    1.0
    """

    def __init__(self, hooks: dict[int, Any], key: int):
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Take the hook out."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class HookedTensor:
    """A tensor whose gradient a hook gets: what is known of it, without its graph; and whether it
    `has_gradient` at all.
    """

    has_gradient = True

    def __init__(self, tensor: Any):
        call = waits_in_call(tensor)
        self._call = None if call is None else weakref.ref(call)
        self._node = None if call is not None else weakref.ref(tensor.uop)
        self._kind = type(tensor)
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.device, self._variables = tensor.device, tensor._variables

    def settle(self, node: UOp) -> None:
        """Note the node of the tensor, which was made."""
        self._node = weakref.ref(node)

    def is_in(self, through: Collection[Any]) -> bool:
        """Whether the tensor's call, or its node, is one of `through`."""
        if not self.has_gradient:
            return False
        call = None if self._call is None else self._call()
        if call is not None and call in through:
            return True
        return self._node is not None and self._node() in through

    def gradient(self, node: UOp) -> Any:
        """The gradient `node` of the tensor, as a tensor."""
        made = self._kind._of(node, self.device, self._variables, False)
        return made if made.shape == self.shape else made.expand(self.shape)._apart()

    def replacing(self, new: Any) -> UOp:
        """The gradient that a hook gave for the tensor.

        Raises ShapeError if it has another shape.
        """
        return cast_node(checked(new, self).uop, self.dtype)


class _TensorWatcher:
    """A hook on the gradient of a tensor that was computed: called with the gradient and what it
    flows through.
    """

    def __init__(self, own: HookedTensor, hook: Callable[[Any, Collection[Any]], Any]):
        self._own, self._hook = own, hook

    def settle(self, node: UOp) -> None:
        self._own.settle(node)

    def on_node(self, gradient: UOp, through: Set[UOp]) -> UOp | None:
        new = self._hook(self._own.gradient(gradient), through)
        return None if new is None else self._own.replacing(new)

    def on_tensor(self, gradient: Any, through: Collection[Any]) -> Any:
        new = self._hook(gradient, through)
        return None if new is None else checked(new, self._own)


def waits_in_call(tensor: Any) -> Call | None:
    """The call of a tensor whose gradient can be watched there; None if its node is to be."""
    call: Call | None = tensor._call
    if call is None or call.pool is not this_thread.pool or call.inputs is None:
        return None
    return call if call.node is None or call.stop is not None else None


def watch_tensor(
    tensor: Any, own: HookedTensor, hook: Callable[[Any, Collection[Any]], Any]
) -> RemovableHandle:
    """Let `hook` see the gradients of a tensor, which is known as `own`, and what these flow
    through: calls, or nodes. Its result, unless that is None, takes the place of the gradient.
    """
    watcher = _TensorWatcher(own, hook)
    call = waits_in_call(tensor)
    if call is not None:
        stop = stop_at(call)
        if call.node is not None:
            own.settle(call.node)
        return RemovableHandle(stop.watchers, stop.add(watcher))
    node = tensor.uop
    leaf_hooks.attach(tensor, node)
    return RemovableHandle(*watch(node, watcher.on_node))


def after_hooks(tensor: Any, node: UOp) -> UOp:
    """The gradient `node` of a tensor after the hooks that it has as a leaf.

    Raises ShapeError if one gives another shape.
    """
    found = leaf_hooks.hooks_of(tensor)
    if found:
        own = HookedTensor(tensor)
        for hook in found:
            new = hook(own.gradient(node))
            node = node if new is None else own.replacing(new)
    return node


class Watching(Updating):
    """Hooks on gradients."""

    __slots__ = ()

    def register_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook(gradient)` whenever a gradient flows through this tensor, by `backward` or
        `gradient`.

        The hooks of a leaf that requires a gradient are its own, whatever is assigned to it. Other
        tensors of equal graphs that were made before are one value, and have the hooks of all of
        them; what is made later in the same way is apart.

        Args:
            hook: takes the gradient, a lazy tensor of this shape; what it returns, unless None,
                flows on instead.

        Returns a handle whose `remove()` takes the hook off.

        Raises DTypeError if this is no float, ShapeError if the hook gives another shape.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> handle = x.register_hook(lambda gradient: gradient * 10)
        >>> x.sum().gradient(x)[0].tolist()
        [10.0, 10.0]
        """
        if not self.dtype.is_float:
            raise DTypeError(
                f"register_hook: {article(self.dtype.name)} tensor has no gradient",
                tensor=describe(self.uop),
            )
        if self._is_leaf and self._requires_grad:
            return RemovableHandle(*leaf_hooks.add(self, hook))
        return watch_tensor(self, HookedTensor(self), lambda gradient, through: hook(gradient))

    def retain_grad(self) -> None:
        """Let `backward` add to `grad` of this tensor too, if it was computed.

        Returns None.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> y = x * 2
        >>> y.retain_grad()
        >>> y.square().sum().backward().item(), y.grad.tolist()
        (36.0, [12.0])
        """
        if self._is_leaf:
            return
        self.register_hook(adder_to(self))


def adder_to(tensor: Any) -> Callable[[Any], None]:
    """A hook that adds the gradient to `grad` of a tensor, as long as that is alive."""
    known = weakref.ref(tensor)

    def add(gradient: Any) -> None:
        found = known()
        if found is not None:
            found.grad = gradient if found.grad is None else found.grad + gradient

    return add
