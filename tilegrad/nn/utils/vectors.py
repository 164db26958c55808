"""All parameters of a model as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tilegrad.base.errors import ShapeError
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate the elements of all parameters.

    Args:
        parameters: tensors of any shapes.

    Returns a vector of shape (sum of their elements,), in the dtype to which all promote.

    Raises ShapeError for no parameters.

    >>> nn.utils.parameters_to_vector([Tensor([[1.0], [2.0]]), Tensor(3.0)]).tolist()
    [1.0, 2.0, 3.0]
    """
    first, *rest = [tensor.reshape(-1) for tensor in parameters]
    return first.cat(*rest) if rest else first


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into the parameters, which keep their shapes and dtypes.

    Args:
        vec: a vector with as many elements.
        parameters: tensors of any shapes.

    Returns None.

    Raises ShapeError unless it has as many elements as they; nothing is written then.

    >>> weight = Tensor.zeros(2, 1)
    >>> nn.utils.vector_to_parameters(Tensor([5.0, 6.0]), [weight]); weight.tolist()
    [[5.0], [6.0]]
    """
    tensors = list(parameters)
    sizes = [int(tensor.numel()) for tensor in tensors]
    if vec.shape != (sum(sizes),):
        raise ShapeError(f"vector_to_parameters: {show_shape(vec.shape)} for {sum(sizes)} elements")
    slices = vec.detach().split(sizes)
    new = [
        each.reshape(tensor.shape).cast(tensor.dtype).to(tensor.device).clone()
        for each, tensor in zip(slices, tensors, strict=True)
    ]
    Tensor.realize(*new)
    Tensor.realize(*[tensor.assign(value) for tensor, value in zip(tensors, new, strict=True)])
