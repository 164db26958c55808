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
from tilegrad.tensor.handle.core import cast_node
from tilegrad.tensor.handle.size_arguments import here, same_shape, show_shape
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

    Shape: a gradient has the shape of its argument; outputs have any shape.

    Raises ConfigError for a class without `forward` or `backward`; DTypeError or ShapeError unless
    `backward` gives a tensor of the argument's shape, or None, for each argument.

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
        before = [arg.uop if isinstance(arg, Tensor) else None for arg in args]
        if hasattr(cls, "setup_context"):
            value = cls.forward(*args)
            cls.setup_context(ctx, args, value)
        else:
            value = cls.forward(ctx, *args)
        name = f"{cls.__name__}.apply"
        positions = cls._positions(value)
        outputs = outputs_of(name, value if positions is None else [value[at] for at in positions])
        leaves = [leaf(tensor.uop) for tensor in outputs]
        backward = cls.backward
        if positions is not None:
            backward = _spread(backward, positions, len(value))
        rule = _Rule(backward, name, ctx, args, outputs, leaves)
        inputs = [
            node
            for arg, node in zip(args, before)
            if node is not None and isinstance(arg, Tensor) and arg.dtype.is_float
        ]
        is_later = cls._is_asked_later()
        region = Region(
            tuple(leaves),
            tuple(inputs),
            (),
            tuple(tensor.uop for tensor in outputs),
            None if is_later else tuple(rule.traced()),
            rule if is_later else None,
        )
        wants = any(isinstance(arg, Tensor) and arg._requires_grad for arg in args) or None
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


class _Rule:
    """The gradient rule that the author of a function gives."""

    def __init__(
        self,
        backward: Callable[..., Any],
        name: str,
        ctx: FunctionContext,
        args: Sequence[Any],
        outputs: Sequence[Tensor],
        leaves: Sequence[UOp],
    ):
        self._backward, self._name, self._ctx = backward, name, ctx
        self._leaves = leaves
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
        if self._ctx.materializes_grads:
            tensors = [
                kind._of(fill(shape, 0.0, dtype), device) if tensor is None else tensor
                for tensor, (kind, device, _, shape, dtype) in zip(tensors, self._outputs)
            ]
        return self._checked(self._backward(self._ctx, *tensors))

    def traced(self) -> list[UOp | None]:
        """As graphs, in which leaves stand for the gradients of the outputs."""
        if self._traced is None:
            with transforming(self._leaves):
                self._traced = self.of(self._leaves)
        return self._traced

    def _checked(self, found: Any) -> list[UOp | None]:
        given = list(found) if isinstance(found, (tuple, list)) else [found]
        # One argument more than there are may be given None.
        while len(given) > len(self._args) and given[-1] is None:
            given.pop()
        if len(given) != len(self._args):
            raise ConfigError(
                f"{self._name}: backward gave {len(given)} gradients for {len(self._args)} "
                "arguments",
                remedy="one for each argument of forward, None for what has none",
                line=here(),
            )
        gradients: list[UOp | None] = []
        for number, (arg, gradient) in enumerate(zip(self._args, given)):
            if arg is not None and arg[1].is_float:
                gradients.append(
                    None if gradient is None else self._fitting(number, *arg, gradient)
                )
        return gradients

    def _fitting(self, number: int, shape: tuple[Any, ...], dtype: DType, gradient: Any) -> UOp:
        """A gradient as a node of the shape and dtype of its argument."""
        if not isinstance(gradient, Tensor):
            raise DTypeError(
                f"{self._name}: backward gave {article(type(gradient).__name__)} for argument "
                f"{number}",
                rule="a tensor, or None",
                line=here(),
            )
        if gradient.ndim == 0 and shape:
            gradient = gradient.expand(shape)
        if not same_shape(gradient.shape, shape):
            raise ShapeError(
                f"{self._name}: backward gave {show_shape(gradient.shape)} for argument {number} "
                f"of shape {show_shape(shape)}",
                rule="the gradient of an argument has its shape",
                line=here(),
            )
        return cast_node(gradient.uop, dtype)
