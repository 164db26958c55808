"""Functions that see the gradients of a module's outputs and inputs, and may change them.

The module is called on copies of its float inputs, so that their gradients are those that flow out
of this module alone. Gradients are lazy tensors; hooks run while the graph of a gradient is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from tilegrad.base.errors import TilegradError
from tilegrad.grad.regions import leaf
from tilegrad.tensor.calls.postponed import passed
from tilegrad.tensor.handle.stops import stop_at
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.watching import HookedTensor, watch_tensor

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

    def reach_output(self, number: int, gradient: Any, through: Collection[Any]) -> Any:
        """Note the gradient of an output; with the last of them run the hooks before."""
        self.given[number] = gradient
        if not self._is_complete(self.given, self.outputs, through):
            return None
        given = self.given
        for hook in self.before:
            self._replace("a pre-hook", hook(self.module, tuple(given)), given)
        if not any(each.is_in(through) for each in self.inputs):
            # No gradient goes on.
            self._run_after()
        return given[number]

    def reach_input(self, number: int, gradient: Any, through: Collection[Any]) -> Any:
        """Note the gradient of an input; with the last of them run the hooks."""
        self.made[number] = gradient
        if not self._is_complete(self.made, self.inputs, through):
            return None
        return self._run_after()[number]

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
            )
        gradients[:] = list(new)


def _passed_on(value: Any) -> Any:
    """A tensor of the value of another, which hooks can tell from it."""
    made = passed(value)
    if made is None:
        return value._of(leaf(value.uop), value.device, value._variables, value._requires_grad)
    # Before somebody asks for its node.
    stop_at(made._call)
    return made


def call_watched(
    call: Callable[..., Any],
    module: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    before: Sequence[Callable[..., Any]],
    after: Sequence[Callable[..., Any]],
) -> Any:
    """The result of `call`, with hooks on the gradients of its tensors. As in PyTorch, it is passed
    on once more, so that hooks that the caller sets on it come first.
    """
    inputs: list[Tensor] = []

    def own(value: Any) -> Any:
        if not (isinstance(value, Tensor) and value.dtype.is_float):
            return value
        inputs.append(_passed_on(value))
        return inputs[-1]

    outputs: list[Tensor] = []

    def given_out(value: Any) -> Any:
        if not (isinstance(value, Tensor) and value.dtype.is_float):
            return value
        outputs.append(value)
        return _passed_on(value)

    given = tuple(own(value) for value in args)
    output = call(*given, **options)
    if isinstance(output, (tuple, list)) and not hasattr(output, "_fields"):
        output = type(output)([given_out(each) for each in output])
    else:
        output = given_out(output)
    of_inputs, of_outputs = [HookedTensor(x) for x in inputs], [HookedTensor(y) for y in outputs]
    # Where some require gradients, the others have none, as in PyTorch.
    if any(tensor._requires_grad for tensor in outputs):
        for tensor, known in zip(inputs, of_inputs, strict=True):
            known.has_gradient = bool(tensor._requires_grad)
    state = _Pass(module, before, after, of_inputs, of_outputs)
    for number, (tensor, known) in enumerate(zip(outputs, of_outputs, strict=True)):
        watch_tensor(tensor, known, partial(state.reach_output, number))
    for number, (tensor, known) in enumerate(zip(inputs, of_inputs, strict=True)):
        if known.has_gradient:
            watch_tensor(tensor, known, partial(state.reach_input, number))
    return output
