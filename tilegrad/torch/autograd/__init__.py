"""`torch.autograd`: gradients on request, and functions with gradients of their own."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilegrad.base.absent import as_asked
from tilegrad.base.errors import TilegradError
from tilegrad.engine.run.run import current_recording
from tilegrad.func import Function as OurFunction
from tilegrad.func import vmap
from tilegrad.grad.regions import without_outputs
from tilegrad.nn.tree import is_tensor
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import absent
from tilegrad.torch.anomalies import check_gradients, detect_anomaly, is_looking, set_detect_anomaly
from tilegrad.torch.autograd import function, functional, graph
from tilegrad.torch.autograd.checking import gradcheck, gradgradcheck
from tilegrad.torch.autograd.pair_functions import of_pairs
from tilegrad.torch.complex import Complex
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.steps import note
from tilegrad.torch.tensor import Tensor, as_ours, with_ours
from tilegrad.torch.thread_modes import enable_grad, inference_mode, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from tilegrad.torch.autograd import profiler

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "function", "functional",
    "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad", "profiler",
    "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def _listed(value: Any) -> list[Any]:
    """Several tensors, in whatever they come: a list, the values of a dictionary, a generator."""
    is_one = is_tensor(value) or not isinstance(value, Iterable)
    return [value] if is_one else list(value)


def _total(outputs: Any, grad_outputs: Any) -> Tensor:
    """One number whose gradient is that of all outputs with what they are given."""
    found = _listed(outputs)
    seeds = [None] * len(found) if grad_outputs is None else _listed(grad_outputs)
    weighted = [
        output if seed is None else output * _pair(as_ours(seed)).detach()
        for output, seed in zip(found, seeds)
    ]
    products = [each.sum() if each.ndim else each for each in weighted]
    total: Tensor = products[0]
    for product in products[1:]:
        total = total + product
    return total


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of outputs with respect to inputs; with `create_graph` they have gradients too.
    `only_inputs` has had no effect in PyTorch for years, and has none here.

    With `is_grads_batched` the first axis of each of `grad_outputs` is one of several calls, and
    that of each result too.

    Raises TilegradError for an output of several elements without `grad_outputs`, for an output or
    input that requires no gradient, and for an input that nothing depends on, unless
    `allow_unused`.
    """
    outputs, inputs = _listed(outputs), _listed(inputs)
    if is_grads_batched:
        options = {
            "create_graph": create_graph,
            "allow_unused": allow_unused,
            "materialize_grads": materialize_grads,
        }
        return _batched(outputs, inputs, _listed(grad_outputs), options)
    kinds = [type(each) if isinstance(each, Complex) else None for each in inputs]
    grad_outputs = None if grad_outputs is None else _listed(grad_outputs)
    outputs, wanted = _pairs(outputs, grad_outputs), [_pair(each) for each in inputs]
    _check_traced(outputs, wanted)
    with thread_modes.enable_grad():
        if grad_outputs is None and any(each.numel() != 1 for each in outputs):
            raise TilegradError(
                "grad: an output has several elements",
                remedy="sum() or mean() it, or pass grad_outputs=",
            )
        total = _total(outputs, grad_outputs)
        found = total.gradient(*wanted, materialize_grads=materialize_grads)
    if not (allow_unused or materialize_grads) and any(each is None for each in found):
        raise TilegradError(
            "grad: one of the inputs appears to not have been used in the graph of the outputs",
            remedy="allow_unused=True gives None for it",
        )
    made = [each if each is None else as_ours(each) for each in found]
    if is_looking():
        check_gradients(zip([f"an input of shape {tuple(each.shape)}" for each in wanted], made))
    if create_graph:
        for each in made:
            if each is not None and each.dtype.is_float:
                each._requires_grad, each._is_leaf = True, False
    else:
        made = [each if each is None else each.detach() for each in made]
    return tuple(
        each if each is None or kind is None else kind(each) for each, kind in zip(made, kinds)
    )


def _pair(value: Any) -> Any:
    """The pairs of complex numbers; what is real as it is."""
    return value.pair if isinstance(value, Complex) else value


def _pairs(outputs: Any, grad_outputs: Any) -> list[Any]:
    """The outputs, of complex ones the pairs.

    Raises RuntimeError for a complex output that no gradient is given of: only a real number has
    one by itself.
    """
    found = _listed(outputs)
    seeds = [None] * len(found) if grad_outputs is None else _listed(grad_outputs)
    for output, seed in zip(found, seeds):
        if isinstance(output, Complex) and seed is None:
            raise RuntimeError(
                "grad can be implicitly created only for real scalar outputs but got "
                f"{output.dtype!r}: pass grad_outputs=, or go from .real or .abs()"
            )
    return [_pair(each) for each in found]


def _batched(
    outputs: list[Any], inputs: list[Any], seeds: list[Any], options: dict[str, Any]
) -> tuple[Any, ...]:
    """The gradients for each index along the first axis of the `seeds`, stacked."""
    absent_at: set[int] = set()

    def one(*row: Any) -> tuple[Any, ...]:
        found = grad(outputs, inputs, list(row), **options)
        absent_at.update(number for number, each in enumerate(found) if each is None)
        return tuple([each for each in found if each is not None])

    made = iter(_listed(vmap(one)(*seeds)))
    wanted = range(len(inputs))
    return tuple([None if number in absent_at else as_ours(next(made)) for number in wanted])


def _check_traced(outputs: list[Any], inputs: list[Any]) -> None:
    for what, found in (("output", outputs), ("input", inputs)):
        for number, each in enumerate(found):
            if not each.requires_grad:
                raise TilegradError(
                    f"grad: {what} {number} requires no gradient",
                    tensor=f"{tuple(each.shape)} {each.dtype}",
                    remedy="requires_grad=True where the inputs are made, outside of no_grad()",
                )


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of tensors to `grad` of the leaves below; with `create_graph` they have
    gradients too.
    """
    below = None if inputs is None else [_pair(each) for each in _listed(inputs)]
    grad_tensors = None if grad_tensors is None else _listed(grad_tensors)
    outputs = _pairs(_listed(tensors), grad_tensors)
    _total(outputs, grad_tensors).backward(create_graph=create_graph, inputs=below)


class Function(OurFunction):
    """A computation whose gradient its author says: `forward(ctx, ...)`, `backward(ctx, ...)`, and
    `apply(...)` to use it. `backward` runs when gradients come. Within `torch.func`, `checkpoint`
    and what `torch.compile` captures it runs when `apply` does, and cannot look at values.
    """

    @classmethod
    def _positions(cls, value: Any) -> list[int] | None:
        if not isinstance(value, tuple) or all(isinstance(each, OurTensor) for each in value):
            return None
        return [at for at, each in enumerate(value) if is_tensor(each)]

    @classmethod
    def _is_asked_later(cls) -> bool:
        return not is_transforming() and current_recording() is None

    @staticmethod
    def _wants_gradient(argument: object) -> bool:
        return isinstance(argument, OurTensor) and bool(argument._requires_grad)

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The result of `forward`, with the gradient that `backward` gives."""
        kinds = [isinstance(each, Complex) for each in args]
        if any(kinds):
            function, outputs = of_pairs(cls, Function, kinds)
            found = function.apply(*map(_pair, args))
            if isinstance(found, tuple):
                return tuple(
                    [Complex(each) if is_one else each for each, is_one in zip(found, outputs)]
                )
            return Complex(found) if outputs[0] else found
        with thread_modes.enable_grad():
            made = with_ours(super().apply(*args))
        note(made, f"{cls.__name__}Backward", args)
        if thread_modes.is_grad_enabled() or is_transforming():
            return made
        if isinstance(made, tuple):
            return tuple([_without_gradient(each, args) for each in made])
        return _without_gradient(made, args)


def _without_gradient(output: Any, args: Any) -> Any:
    """An output without the gradient that its function has, unless it is an argument that was
    written to.
    """
    if not isinstance(output, OurTensor) or any(output is each for each in args):
        return output
    call = output._call
    if call is not None and call.node is None:
        return as_ours(output.detach())
    value = without_outputs(output.uop)
    return as_ours(output._of(value, output.device, output._variables, False)).detach()


def Variable(data: Any, requires_grad: bool = False) -> Tensor:
    """A tensor, as PyTorch once called those that have gradients."""
    made: Tensor = as_ours(data)
    return made.requires_grad_() if requires_grad else made


also_known(__name__, ("anomaly_mode", "grad_mode", "gradcheck", "variable"))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "profiler":
            return importlib.import_module("tilegrad.torch.autograd.profiler")
        raise as_asked(AttributeError(absent("torch.autograd", name, __all__), name=name))
