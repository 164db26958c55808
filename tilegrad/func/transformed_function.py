"""`Function`: a computation whose gradient its author says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError, DTypeError, ShapeError, article
from tilegrad.func.argument_trees import flatten
from tilegrad.func.transformed_calls import outputs_of
from tilegrad.grad.regions import Region, leaf, output
from tilegrad.ir.movement import fill
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.postponed import passed
from tilegrad.tensor.handle.core import cast_node
from tilegrad.tensor.handle.size_arguments import same_shape, show_shape
from tilegrad.tensor.handle.stops import stop_at
from tilegrad.tensor.handle.tracing import transforming
from tilegrad.tensor.tensor import Tensor

__all__ = ["Function", "FunctionContext"]


class FunctionContext:
    """Context of a function: `forward` leaves tensors in it for `backward` by `save_for_backward`,
    and any attribute.
    """

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()
    materializes_grads = True
    dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors, or None, as `saved_tensors`: with the values that they have now."""
        self.saved_tensors = tuple(map(_as_it_is, tensors))

    def save_for_forward(self, *tensors: Any) -> None:
        """Nothing: there is no `jvp`."""

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which arguments `forward` writes to: those among the outputs are the same tensors."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing: `backward` says what flows."""

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether the gradient of an output that nothing depends on is zeros, or None, as far
        as `backward` runs when gradients come.
        """
        self.materializes_grads = value


def _as_it_is(value: Any) -> Any:
    """A tensor with the value that `value` has now, whatever is written to that later."""
    if not isinstance(value, Tensor):
        return value
    waiting = passed(value)
    if waiting is not None:
        return waiting
    found = value._of(value.uop, value.device, value._variables, value._requires_grad)
    # A tensor saved under `no_grad` requires a gradient as it did before.
    found._requires_grad, found._is_leaf = value._requires_grad, value._is_leaf
    return found


class Function:
    """Computation with a gradient of its own, as `torch.autograd.Function`: `apply(...)` gives what
    the static method `forward(ctx, ...)` gives, and gradients go back by `backward(ctx, ...)`,
    which takes one gradient for each output, and gives one for each argument of `forward`, None for
    what has none. Or define `forward(...)` without `ctx`, and `setup_context(ctx, inputs, output)`.

    `backward` runs when `apply` does, on tensors that stand for the gradients: it makes a graph,
    and must not look at values. That graph can be differentiated, too.

    Shape: a gradient has the shape of its argument, or one that it broadcasts to; outputs have any.

    Raises ConfigError for a class without `forward` or `backward`; DTypeError or ShapeError unless
    `backward` gives None or a tensor for each argument, of its shape or one that it broadcasts to.

    >>> from tilegrad import Tensor
    >>> from tilegrad.func import Function
    >>> class Round(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x.round()
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return gradient
    >>> x = Tensor([0.4, 1.6], requires_grad=True)
    >>> y = Round.apply(x)
    >>> y.tolist(), (y * y).sum().gradient(x)[0].tolist()
    ([0.0, 2.0], [0.0, 4.0])
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The outputs: a tensor, or a tuple of tensors."""
        raise ConfigError("Function: there is no forward", remedy="define forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arguments of `forward`, by those of its outputs."""
        raise ConfigError("Function: there is no backward", remedy="define backward(ctx, gradient)")

    @staticmethod
    def _wants_gradient(argument: object) -> bool:
        return isinstance(argument, Tensor) and argument.dtype.is_float

    @classmethod
    def _is_asked_later(cls) -> bool:
        """Whether `backward` runs when gradients come, not when `apply` does."""
        return False

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The result of `forward`, with the gradient that `backward` gives."""
        ctx = FunctionContext()
        ctx.needs_input_grad = tuple(map(cls._wants_gradient, args))
        # A forward may write to its arguments.
        is_later = cls._is_asked_later()
        before = _as_they_are(args, waits=is_later)
        if hasattr(cls, "setup_context"):
            value = cls.forward(*args)
            cls.setup_context(ctx, args, value)
        else:
            value = cls.forward(ctx, *args)
        name = f"{cls.__name__}.apply"
        positions = cls._positions(value)
        outputs = outputs_of(name, value if positions is None else [value[at] for at in positions])
        backward = cls.backward
        if positions is not None:
            backward = _spread(backward, positions, len(value))
        rule = _Rule(backward, name, ctx, args, outputs)
        wants = any(isinstance(arg, Tensor) and arg._requires_grad for arg in args) or None
        made = None
        if is_later and not ctx.dirty:
            if wants:
                made = _FunctionCalls.outputs_of(rule, before, outputs)
            elif not any(each is arg for each in outputs for arg in args):
                # Nothing has a gradient.
                made = outputs
        if made is None:
            region = _region(rule, [each.uop for each in before], outputs, is_later=is_later)
            made = [
                tensor._of(output(region, number), tensor.device, tensor._variables, wants)
                if tensor.dtype.is_float
                else tensor
                for number, tensor in enumerate(outputs)
            ]
        for number, tensor in enumerate(outputs):
            if any(tensor is each for each in ctx.dirty):
                made[number] = tensor._update(made[number], is_new=True)
        if positions is None:
            return flatten(value)[1](made)
        whole = list(value)
        for at, tensor in zip(positions, made, strict=True):
            whole[at] = tensor
        return tuple(whole)

    @classmethod
    def _positions(cls, value: Any) -> list[int] | None:
        """The positions of the outputs in what `forward` gave, a tuple that has other things, too;
        None if all of it is outputs.
        """
        return None


def _spread(
    backward: Callable[..., Any], positions: Sequence[int], count: int
) -> Callable[..., Any]:
    """`backward`, which is given the gradients of tensors at `positions` of `count` outputs, and
    None for the others.
    """

    def call(ctx: Any, *gradients: Any) -> Any:
        by_position = dict(zip(positions, gradients, strict=True))
        return backward(ctx, *[by_position.get(at) for at in range(count)])

    return call


def _as_they_are(args: Sequence[Any], *, waits: bool) -> list[Any]:
    """The arguments that are floats, with the values that they have now, as calls that wait if
    these can.
    """
    floats = [arg for arg in args if isinstance(arg, Tensor) and arg.dtype.is_float]
    found = [passed(arg) if waits else None for arg in floats]
    return [
        arg._of(arg.uop, arg.device, arg._variables, arg._requires_grad) if each is None else each
        for arg, each in zip(floats, found, strict=True)
    ]


def _region(
    rule: _Rule, inputs: Sequence[UOp], outputs: Sequence[Tensor], *, is_later: bool
) -> Region:
    """The region that a function computed, with its own gradients."""
    values = tuple([tensor.uop for tensor in outputs])
    rule.leaves = [leaf(value) for value in values]
    traced = None if is_later else tuple(rule.traced())
    own = rule if is_later else None
    return Region(tuple(rule.leaves), tuple(inputs), (), values, traced, own)


class _FunctionCalls:
    """A function at whose outputs gradients stop, while calls wait (`tensor.handle.stops`)."""

    def __init__(self, rule: _Rule, inputs: Sequence[Any], outputs: Sequence[Tensor]):
        self._rule = rule
        self._inputs = inputs
        self.inputs = [each._call if each._requires_grad else None for each in inputs]
        # Tensors of their own: those that the function gave may be written to.
        self._outputs = [passed(each) if each.dtype.is_float else each for each in outputs]
        self._region: Region | None = None

    @staticmethod
    def outputs_of(
        rule: _Rule, inputs: Sequence[Any], outputs: Sequence[Tensor]
    ) -> list[Tensor] | None:
        """The outputs as calls that wait; None if these do not."""
        wanted = [each for each in inputs if each._requires_grad]
        if any(each._call is None for each in wanted):
            return None
        calls = _FunctionCalls(rule, inputs, outputs)
        made = [
            passed(each, requires_grad=True) if each.dtype.is_float else each for each in outputs
        ]
        if any(each is None for each in (*made, *calls._outputs)):
            return None
        for number, each in enumerate(made):
            if each.dtype.is_float:
                stop = stop_at(each._call)
                stop.function, stop.position = calls, number
        return made

    def node_of(self, position: int) -> UOp:
        """The node of an output."""
        if self._region is None:
            inputs = [each.uop for each in self._inputs]
            self._region = _region(self._rule, inputs, self._outputs, is_later=True)
        return output(self._region, position)

    def gradients(self, given: Sequence[Any]) -> Sequence[Any]:
        """The gradients of the inputs, tensors or None, from those of the outputs."""
        missing = len(self._outputs) - len(given)
        return self._rule.of_tensors([*given, *[None] * missing])


class _Rule:
    """The gradient rule that the author of a function gives."""

    def __init__(
        self,
        backward: Callable[..., Any],
        name: str,
        ctx: FunctionContext,
        args: Sequence[Any],
        outputs: Sequence[Tensor],
    ):
        self._backward, self._name, self._ctx = backward, name, ctx
        # Stand-ins for the gradients of the outputs, where this makes a graph.
        self.leaves: Sequence[UOp] = ()
        # Shapes and dtypes of arguments and outputs, without the nodes they were computed from.
        self._args = [
            (tuple(arg.shape), arg.dtype) if isinstance(arg, Tensor) else None for arg in args
        ]
        self._outputs = [
            (type(each), each.device, each._variables, tuple(each.shape), each.dtype)
            for each in outputs
        ]
        self._traced: list[UOp | None] | None = None

    def of(self, given: Sequence[UOp | None]) -> list[UOp | None]:
        """The gradients of the arguments that are floats, from those of the outputs."""
        tensors = [
            None if node is None else kind._of(node, device, variables, False)
            for node, (kind, device, variables, _, _) in zip(given, self._outputs, strict=True)
        ]
        found = self.of_tensors(tensors)
        return [each if each is None else each.uop for each in found]

    def of_tensors(self, tensors: Sequence[Any]) -> list[Any]:
        """The same, as tensors."""
        if self._ctx.materializes_grads:
            tensors = [
                kind._of(fill(shape, 0.0, dtype), device) if tensor is None else tensor
                for tensor, (kind, device, _, shape, dtype) in zip(tensors, self._outputs)
            ]
        return self._checked(self._backward(self._ctx, *tensors))

    def traced(self) -> list[UOp | None]:
        """As graphs, in which leaves stand for the gradients of the outputs."""
        if self._traced is None:
            with transforming(self.leaves):
                self._traced = self.of(self.leaves)
        return self._traced

    def _checked(self, found: Any) -> list[Any]:
        given = list(found) if isinstance(found, (tuple, list)) else [found]
        # One argument more than there are may be given None.
        while len(given) > len(self._args) and given[-1] is None:
            given.pop()
        if len(given) != len(self._args):
            raise ConfigError(
                f"{self._name}: backward gave {len(given)} gradients for {len(self._args)} "
                "arguments",
                remedy="one for each argument of forward, None for what has none",
            )
        gradients: list[Any] = []
        for number, (arg, gradient) in enumerate(zip(self._args, given)):
            if arg is not None and arg[1].is_float:
                gradients.append(
                    None if gradient is None else self._fitting(number, *arg, gradient)
                )
        return gradients

    def _fitting(self, number: int, shape: tuple[Any, ...], dtype: DType, gradient: Any) -> Any:
        """A gradient in the shape and dtype of its argument, summed over what broadcasting the
        argument repeated.
        """
        if not isinstance(gradient, Tensor):
            raise DTypeError(
                f"{self._name}: backward gave {article(type(gradient).__name__)} for argument "
                f"{number}",
                rule="a tensor, or None",
            )
        if gradient.ndim == 0 and shape:
            gradient = gradient.expand(shape)
        if not same_shape(gradient.shape, shape):
            try:
                gradient = gradient.sum_to_size(shape)
            except ShapeError:
                raise ShapeError(
                    f"{self._name}: backward gave {show_shape(gradient.shape)} for argument "
                    f"{number} of shape {show_shape(shape)}",
                    rule="the gradient of an argument has its shape, or one that it broadcasts to",
                ) from None
        if gradient.dtype is dtype:
            return gradient
        node = cast_node(gradient.uop, dtype)
        return gradient._of(node, gradient.device, gradient._variables, gradient._requires_grad)
