"""`Function`: a computation whose gradient its author says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ConfigError, DTypeError, ShapeError, article
from tilegrad.func.calls import outputs_of
from tilegrad.func.tree import flatten
from tilegrad.grad.regions import Region, leaf, output
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import cast_node
from tilegrad.tensor.handle.sizes import here, same_shape, show_shape
from tilegrad.tensor.handle.tracing import transforming
from tilegrad.tensor.tensor import Tensor

__all__ = ["Function", "FunctionContext"]


class FunctionContext:
    """What `forward` leaves for `backward`: tensors by `save_for_backward`, and any attribute."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors, or None, as `saved_tensors`."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing: `backward` says what flows."""

    def set_materialize_grads(self, value: bool) -> None:
        """Nothing: the gradient of an output that nothing depends on is zeros."""


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
        raise ConfigError("Function: there is no forward", fix="define forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arguments of `forward`, by those of its outputs."""
        raise ConfigError("Function: there is no backward", fix="define backward(ctx, gradient)")

    @staticmethod
    def _wants_gradient(argument: object) -> bool:
        return isinstance(argument, Tensor) and argument.dtype.is_float

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """What `forward` gives, with the gradient that `backward` gives."""
        ctx = FunctionContext()
        ctx.needs_input_grad = tuple(map(cls._wants_gradient, args))
        if hasattr(cls, "setup_context"):
            value = cls.forward(*args)
            cls.setup_context(ctx, args, value)
        else:
            value = cls.forward(ctx, *args)
        name = f"{cls.__name__}.apply"
        outputs = outputs_of(name, value)
        leaves = [leaf(tensor.uop) for tensor in outputs]
        stand_ins = [
            tensor._of(node, tensor.device, tensor._variables, False)
            for node, tensor in zip(leaves, outputs)
        ]
        with transforming(leaves):
            found = cls.backward(ctx, *stand_ins)
        given = found if isinstance(found, (tuple, list)) else (found,)
        pairs = _checked(name, args, given)
        region = Region(
            tuple(leaves),
            tuple(node for node, _ in pairs),
            (),
            tuple(tensor.uop for tensor in outputs),
            tuple(gradient for _, gradient in pairs),
        )
        wants = any(isinstance(arg, Tensor) and arg._requires_grad for arg in args) or None
        return flatten(value)[1](
            [
                tensor._of(output(region, number), tensor.device, tensor._variables, wants)
                if tensor.dtype.is_float
                else tensor
                for number, tensor in enumerate(outputs)
            ]
        )


def _checked(name: str, args: Sequence[Any], given: Sequence[Any]) -> list[tuple[UOp, UOp | None]]:
    """For each argument that has a gradient its node, and the gradient's."""
    if len(given) != len(args):
        raise ConfigError(
            f"{name}: backward gave {len(given)} gradients for {len(args)} arguments",
            fix="one for each argument of forward, None for what has none",
            line=here(),
        )
    pairs: list[tuple[UOp, UOp | None]] = []
    for number, (arg, gradient) in enumerate(zip(args, given)):
        if not isinstance(arg, Tensor) or not arg.dtype.is_float:
            continue
        if gradient is None:
            pairs.append((arg.uop, None))
            continue
        if not isinstance(gradient, Tensor):
            raise DTypeError(
                f"{name}: backward gave {article(type(gradient).__name__)} for argument {number}",
                rule="a tensor, or None",
                line=here(),
            )
        if gradient.ndim == 0 and arg.ndim:
            gradient = gradient.expand(arg.shape)
        if not same_shape(gradient.shape, arg.shape):
            raise ShapeError(
                f"{name}: backward gave {show_shape(gradient.shape)} for argument {number} of "
                f"shape {show_shape(arg.shape)}",
                rule="the gradient of an argument has its shape",
                line=here(),
            )
        pairs.append((arg.uop, cast_node(gradient.uop, arg.dtype)))
    return pairs
