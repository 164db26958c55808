"""Hooks on tensors: functions that see the gradient of one as it is made."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Set
from typing import Any

from tilegrad.base.errors import DTypeError, ShapeError, article
from tilegrad.grad.node_hooks import watch
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle import leaf_hooks
from tilegrad.tensor.handle.core import cast_node, describe
from tilegrad.tensor.handle.size_arguments import here, show_shape
from tilegrad.tensor.writing.updating import Updating

__all__ = ["HookedTensor", "RemovableHandle", "Watching", "adder_to", "after_hooks"]


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
    """A tensor whose gradient a hook gets: what is known of it, without its graph."""

    def __init__(self, tensor: Any):
        self._node = weakref.ref(tensor.uop)
        self._kind = type(tensor)
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.device, self._variables = tensor.device, tensor._variables

    def is_in(self, nodes: Set[UOp]) -> bool:
        """Whether the tensor's node is one of `nodes`."""
        return self._node() in nodes

    def gradient(self, node: UOp) -> Any:
        """The gradient `node` of the tensor, as a tensor."""
        made = self._kind._of(node, self.device, self._variables, False)
        return made if made.shape == self.shape else made.expand(self.shape)._apart()

    def replacing(self, new: Any) -> UOp:
        """The gradient that a hook gave for the tensor.

        Raises ShapeError if it has another shape.
        """
        if new.shape != self.shape:
            raise ShapeError(
                f"register_hook: the hook gave {show_shape(new.shape)}, the gradient is "
                f"{show_shape(self.shape)}",
                line=here(),
            )
        return cast_node(new.uop, self.dtype)


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
                line=here(),
            )
        own = HookedTensor(self)
        if self._is_leaf and self._requires_grad:
            return RemovableHandle(*leaf_hooks.add(self, hook))

        def see(gradient: UOp, through: Set[UOp]) -> UOp | None:
            new = hook(own.gradient(gradient))
            return None if new is None else own.replacing(new)

        node = self.uop
        leaf_hooks.attach(self, node)
        return RemovableHandle(*watch(node, see))

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
