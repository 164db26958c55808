"""Gradients of a `torch.Tensor`: `backward`, hooks, and the step that made a tensor."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.tensor.handle.aliases import same_storage
from tilegrad.tensor.handle.gradient import add_gradient, adding
from tilegrad.tensor.handle.living import Some
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.tensor.writing.watching import RemovableHandle, adder_to
from tilegrad.torch import anomalies, thread_modes
from tilegrad.torch.steps import Step, step_of

__all__ = ["Differentiable", "follow_retained", "retaining"]

_numbers = itertools.count()
# Leaves with hooks that run when their gradient was added to, by the number of each.
_accumulating: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


# Tensors that were computed and keep their gradients.
retaining = Some()


def follow_retained(written: Any) -> None:
    """Let the aliases of a tensor that was written to keep the gradients of their present
    values.
    """
    for each in retaining:
        if same_storage(each, written):
            each.retain_grad()


class Differentiable(OurTensor):
    """A tensor with PyTorch's methods of gradients."""

    # A tensor of tilegrad's as one of the class below.
    _adopt: Callable[[OurTensor], Any]
    # The step that computed it, where that was noted (steps.py).
    _step: Any = None
    # The hook that keeps its gradient.
    _retained: RemovableHandle | None = None
    _store: Callable[[Any], None]

    @property
    def is_leaf(self) -> bool:
        """Whether nothing above it in its graph has a gradient."""
        return not self._requires_grad or self._is_leaf

    @property
    def grad(self) -> Any:
        """The gradient that `backward` has added up so far, or None."""
        found = self._gradient
        if found is not None and found.__class__ is OurTensor:
            found = self._gradient = self._adopt(found)
        return found

    @grad.setter
    def grad(self, gradient: Any) -> None:
        if gradient is not None and tuple(gradient.shape) != tuple(self.shape):
            raise RuntimeError(
                f"assigned grad has shape {list(gradient.shape)}, the tensor {list(self.shape)}"
            )
        OurTensor.grad.__set__(self, gradient)  # type: ignore[attr-defined]

    @property
    def grad_fn(self) -> Step | None:
        """None for a leaf, else the step that computed this tensor."""
        return None if self.is_leaf else step_of(self)

    def backward(  # type: ignore[override]
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to `grad` of every leaf below that requires one, or of
        `inputs`; with `create_graph` it has gradients too.
        """
        if gradient is None and self.ndim and self.numel() == 1:
            gradient = self.detach().ones_like()
        before = anomalies.gradients_before() if anomalies.is_looking() else None
        # A gradient that has a graph is not written to.
        with thread_modes.enable_grad(), adding(replaces=create_graph) as added:
            if inputs is None:
                super().backward(gradient)
            else:
                wanted: Sequence[Any] = [inputs] if isinstance(inputs, OurTensor) else list(inputs)
                for leaf, found in zip(wanted, self.gradient(*wanted, gradient=gradient)):
                    if found is not None:
                        add_gradient(leaf, found)
        if before is not None:
            leaves = list(added.tensors.values())
            try:
                anomalies.check_gradients(
                    (f"a leaf of shape {tuple(leaf.shape)}", leaf.grad) for leaf in leaves
                )
            except RuntimeError:
                for leaf in leaves:
                    leaf.grad = before.get(id(leaf))
                raise
        for leaf in list(_accumulating.values()):
            if id(leaf) in added.tensors:
                for hook in list(leaf._when_accumulated.values()):
                    hook(leaf)

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that was computed, in `grad`: that of its value when
        gradients are asked for, whatever was written to it since.
        """
        if self.is_leaf:
            return
        if self._retained is not None:
            self._retained.remove()
        self._store = adder_to(self)
        self._retained = super().register_hook(self._store)
        retaining.add(self)

    @property
    def retains_grad(self) -> bool:
        """Whether `backward` adds to `grad` of this tensor, which was computed."""
        return not self.is_leaf and self._retained is not None

    def register_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook(gradient)` whenever a gradient flows through this tensor. `retain_grad` keeps
        the gradient after the hooks, whichever came first.
        """
        made = super().register_hook(hook)
        if self._retained is not None:
            self._retained.remove()
            self._retained = super().register_hook(self._store)
        return made

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], None]) -> RemovableHandle:
        """Call hook(tensor) after each `backward` that has added to `grad` of this leaf.

        Raises RuntimeError for a tensor that is no leaf.
        """
        if not self.is_leaf:
            raise RuntimeError("post accumulate grad hooks are for leaves: this tensor is none")
        hooks = self.__dict__.setdefault("_when_accumulated", {})
        _accumulating[id(self)] = self
        key = next(_numbers)
        hooks[key] = hook
        return RemovableHandle(hooks, key)
