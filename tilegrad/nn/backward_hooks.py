"""Functions that see the gradients of a module's outputs and inputs, and may change them.

The module is called on copies of its float inputs, so that their gradients are those that flow out
of this module alone. Gradients are lazy tensors; hooks run while the graph of a gradient is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Any

from tilegrad.base.errors import TilegradError
from tilegrad.grad.node_hooks import watch
from tilegrad.grad.regions import leaf
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.size_arguments import here
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.watching import HookedTensor

__all__ = ["call_watched"]


class _Pass:
    """One backward pass through one call of a module: which gradients have come by."""

    def __init__(
        self,
        module: Any,
        before: Sequence[Callable[..., Any]],
        after: Sequence[Callable[..., Any]],
        inputs: Sequence[HookedTensor],
        outputs: Sequence[HookedTensor],
    ):
        self.module, self.before, self.after = module, before, after
        self.inputs, self.outputs = inputs, outputs
        self.begin()

    def begin(self) -> None:
        self.given: list[Any] = [None] * len(self.outputs)
        self.made: list[Any] = [None] * len(self.inputs)

    def reach_output(self, number: int, gradient: UOp, through: Set[UOp]) -> UOp | None:
        """Note the gradient of an output; with the last of them run the hooks before."""
        hooked = self.outputs[number]
        self.given[number] = hooked.gradient(gradient)
        if not self._is_complete(self.given, self.outputs, through):
            return None
        given = self.given
        for hook in self.before:
            self._replace("a pre-hook", hook(self.module, tuple(given)), given)
        if not any(each.is_in(through) for each in self.inputs):
            # No gradient goes on.
            self._run_after()
        return hooked.replacing(given[number])

    def reach_input(self, number: int, gradient: UOp, through: Set[UOp]) -> UOp | None:
        """Note the gradient of an input; with the last of them run the hooks."""
        hooked = self.inputs[number]
        self.made[number] = hooked.gradient(gradient)
        if not self._is_complete(self.made, self.inputs, through):
            return None
        made = self._run_after()
        return hooked.replacing(made[number])

    def _is_complete(
        self, found: Sequence[Any], tensors: Sequence[HookedTensor], through: Any
    ) -> bool:
        return all(
            tensor is not None or not hooked.is_in(through)
            for tensor, hooked in zip(found, tensors)
        )

    def _run_after(self) -> list[Any]:
        made, given = self.made, tuple(self.given)
        for hook in self.after:
            self._replace("a hook", hook(self.module, tuple(made), given), made)
        self.begin()
        return made

    def _replace(self, name: str, new: Any, gradients: list[Any]) -> None:
        """Replace `gradients` by what a hook gave, unless that is None."""
        if new is None:
            return
        new = new if isinstance(new, (tuple, list)) else (new,)
        if len(gradients) != 1 or len(new) != 1:
            raise TilegradError(
                f"{type(self.module).__name__}: {name} gave {len(new)} gradients "
                f"for {len(gradients)}",
                rule="of one tensor alone a hook may replace the gradient",
                line=here(),
            )
        gradients[:] = list(new)


def call_watched(
    call: Callable[..., Any],
    module: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    before: Sequence[Callable[..., Any]],
    after: Sequence[Callable[..., Any]],
) -> Any:
    """The result of `call`, with hooks on the gradients of its tensors."""
    inputs: list[Tensor] = []

    def own(value: Any) -> Any:
        if not (isinstance(value, Tensor) and value.dtype.is_float):
            return value
        inputs.append(
            value._of(leaf(value.uop), value.device, value._variables, value._requires_grad)
        )
        return inputs[-1]

    given = tuple(own(value) for value in args)
    output = call(*given, **options)
    outputs = [
        tensor
        for tensor in (output if isinstance(output, (tuple, list)) else [output])
        if isinstance(tensor, Tensor) and tensor.dtype.is_float
    ]
    state = _Pass(
        module, before, after, [HookedTensor(x) for x in inputs], [HookedTensor(y) for y in outputs]
    )
    for number, tensor in enumerate(outputs):
        watch(tensor.uop, partial(state.reach_output, number))
    for number, tensor in enumerate(inputs):
        watch(tensor.uop, partial(state.reach_input, number))
    return output
