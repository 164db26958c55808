"""Facts of a tensor that are known without computing it: shape, dtype and others that follow from
these.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.handle.size_arguments import as_axis, multiply, simple
from tilegrad.tensor.handle.waiting import Call

__all__ = ["Metadata"]


class Metadata:
    """Shape, dtype and sizes, which the call of a tensor knows, or its node."""

    __slots__ = ()
    # Not set before it is asked for, where the tensor knows the call that makes it.
    _node: UOp
    _call: Call | None

    @property
    def shape(self) -> tuple[sint, ...]:
        """Sizes of the axes: integers, or index nodes where a `Variable` takes part.

        Returns a tuple.

        >>> Tensor.zeros(2, 3).shape
        (2, 3)
        """
        call = self._call
        return self._node.shape if call is None else call.shape

    @property
    def dtype(self) -> DType:
        call = self._call
        return self._node.dtype if call is None else call.dtype

    @property
    def ndim(self) -> int:
        """Number of axes.

        Returns an int.

        >>> Tensor.zeros(2, 3).ndim
        2
        """
        call = self._call
        return len(self._node.shape if call is None else call.shape)

    def numel(self) -> sint:
        """Number of elements: the product of the shape.

        Returns an int.

        >>> Tensor.zeros(2, 3).nelement()
        6
        """
        return multiply(self.shape)

    @property
    def max_shape(self) -> tuple[int, ...]:
        """Shape with the largest value of each symbolic size.

        Returns a tuple of ints.

        >>> from tilegrad import Variable
        >>> Tensor.ones(4, 3)[: Variable("n", 1, 4).bind(2)].max_shape
        (4, 3)
        """
        sizes = [simple(size) for size in self.shape]
        return tuple(size if isinstance(size, int) else int(size.vmax) for size in sizes)

    def max_numel(self) -> int:
        """Number of elements where each symbolic size is at its largest.

        Returns an int.

        >>> Tensor.zeros(2, 3).max_numel()
        6
        """
        return math.prod(self.max_shape)

    def element_size(self) -> int:
        """Size of one element in bytes.

        Returns an int.

        >>> Tensor([1.0]).element_size()
        4
        """
        return self.dtype.itemsize

    def nbytes(self) -> sint:
        """Size of all elements in bytes, by shape and dtype, whether or not memory is allocated.

        Returns an int.

        >>> Tensor.zeros(2, 3).nbytes()
        24
        """
        return multiply((*self.shape, self.dtype.itemsize))

    def size(self, dim: int | None = None) -> Any:
        """Shape, or the size of one axis.

        Args:
            dim: the axis; a negative one counts from the last.

        Returns a tuple of ints without `dim`, else an int.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor.zeros(2, 3).size(), Tensor.zeros(2, 3).size(1)
        ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[as_axis("size", dim, self.ndim)]

    def dim(self) -> int:
        """Number of axes.

        Returns an int.

        >>> Tensor.zeros(2, 3).dim()
        2
        """
        return self.ndim

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float.

        Returns a bool.

        >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
        (True, False)
        """
        return self.dtype.is_float
