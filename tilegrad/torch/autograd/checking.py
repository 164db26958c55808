"""`torch.autograd.gradcheck`: gradients beside differences of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import thread_modes
from tilegrad.torch.made_tensors import tensor

__all__ = ["gradcheck", "gradgradcheck"]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Whether the gradients of `func` with respect to the inputs that require one, of any shapes,
    are central differences of its values with steps of `eps`. Inputs should be float64.

    Raises RuntimeError where they are not, unless `raise_exception` is false.
    """
    given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    for number, one in enumerate(given):
        if isinstance(one, OurTensor) and one.requires_grad:
            analytical = _gradients(func, given, number)
            numerical = _differences(func, given, number, eps)
            if not numpy.allclose(analytical, numerical, rtol, atol):
                if not raise_exception:
                    return False
                raise RuntimeError(
                    f"gradcheck: the Jacobian with respect to input {number} is not that of "
                    f"differences\nnumerical:\n{numerical}\nanalytical:\n{analytical}"
                )
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Whether the second derivatives of `func` are central differences of its gradients, which are
    those of its outputs with `grad_outputs` (by default random numbers). See `gradcheck`.
    """
    given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    wanted = [
        number
        for number, one in enumerate(given)
        if isinstance(one, OurTensor) and one.requires_grad
    ]
    if grad_outputs is None:
        seeds = [each.randn_like().requires_grad_() for each in _outputs(func, given)]
    else:
        seeds = list(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else [grad_outputs]

    def gradients(*values: Any) -> tuple[Any, ...]:
        inside = list(values[: len(given)])
        for number in wanted:
            if not inside[number].requires_grad:
                inside[number] = inside[number].requires_grad_()
        with thread_modes.enable_grad():
            total = sum(
                (output * seed).sum()
                for output, seed in zip(_outputs(func, inside), values[len(given) :])
            )
            found: tuple[Any, ...] = tuple(
                total.gradient(*[inside[number] for number in wanted], materialize_grads=True)
            )
        return found

    return gradcheck(
        gradients,
        [*given, *seeds],
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
    )


def _outputs(func: Callable[..., Any], given: list[Any]) -> list[Any]:
    found = func(*given)
    several = found if isinstance(found, (tuple, list)) else [found]
    return [each for each in several if isinstance(each, OurTensor) and each.dtype.is_float]


def _gradients(func: Callable[..., Any], given: list[Any], number: int) -> Any:
    """The Jacobian by gradients: a row for each element of the input."""
    columns = []
    with thread_modes.enable_grad():
        for output in _outputs(func, given):
            flat = output.reshape(-1)
            for element in range(flat.numel()):
                (found,) = flat[element].gradient(given[number], materialize_grads=True)
                columns.append(found.detach().numpy().ravel())
    return numpy.stack(columns, 1)


def _differences(func: Callable[..., Any], given: list[Any], number: int, eps: float) -> Any:
    """The Jacobian by central differences."""
    begin = given[number].detach().numpy().copy()
    rows = []
    with thread_modes.no_grad():
        for element in range(begin.size):
            values = []
            for step in (eps, -eps):
                moved = begin.copy()
                moved.ravel()[element] += step
                inputs = [*given[:number], tensor(moved), *given[number + 1 :]]
                made = [each.numpy().ravel() for each in _outputs(func, inputs)]
                values.append(numpy.concatenate(made))
            rows.append((values[0] - values[1]) / (2 * eps))
    return numpy.stack(rows)
