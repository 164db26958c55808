"""Methods close to the nodes of the graph: one op by its name, constants, sums of many, and what is
said about gradients.
"""

from __future__ import annotations

import functools
from typing import Any, Self

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.core import Core
from tilegrad.tensor.distributions import Distributions
from tilegrad.tensor.sizes import here

__all__ = ["Nodes"]

_LOGICAL = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}


class Nodes(Distributions):
    """Methods that other libraries' graphs know under these names."""

    __slots__ = ()

    def alu(self, op: Ops, *others: Any) -> Self:
        """The elementwise op `op` of this tensor and `others`, which meet it as operands do.

        Raises DTypeError for an op that is not elementwise, ShapeError for another number of
        operands than it takes.

        >>> from tilegrad.ir import Ops
        >>> Tensor([1, 5]).alu(Ops.MAX, Tensor([3, 3])).tolist()
        [3, 5]
        """
        definition = getattr(op, "definition", None)
        if definition is None or not op.is_alu:
            raise DTypeError(f"alu: {op} is no elementwise op", line=here())
        if op is Ops.MULACC and len(others) == 2:
            total: Self = self * others[0] + others[1]
            return total
        if definition.arity != 1 + len(others):
            raise ShapeError(
                f"alu: {op.name} takes {definition.arity} operands, {1 + len(others)} are given",
                line=here(),
            )
        if op is Ops.WHERE:
            chosen: Self = self.where(*others)
            return chosen
        if not others:
            return self._unary(op)
        return self._binary("alu", op, others[0])

    def ufix(self, value: Any) -> Self:
        """`value` as an operand of this tensor: a tensor as it is, a number in this tensor's dtype
        where it can hold it.

        >>> Tensor([1.0]).ufix(2).dtype
        dtypes.float
        """
        return value if isinstance(value, Core) else self._operand("ufix", value)  # type: ignore[return-value]

    @composed
    def usum(self, *others: Any) -> Self:
        """This tensor and all `others` added up, as operands meet.

        >>> Tensor([1, 2]).usum(10, Tensor([5, 5])).tolist()
        [16, 17]
        """
        return functools.reduce(lambda total, other: total + other, others, self)

    @composed
    def uprod(self, *others: Any) -> Self:
        """This tensor and all `others` multiplied, as operands meet.

        >>> Tensor([1, 2]).uprod(10, Tensor([5, 5])).tolist()
        [50, 100]
        """
        return functools.reduce(lambda total, other: total * other, others, self)

    @classmethod
    def const(
        cls,
        dtype: DType | str,
        value: Any,
        device: str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Self:
        """The constant `value` in `dtype`, without axes or in every element of `shape`; it takes no
        memory.

        >>> Tensor.const("int32", 3, shape=(2,)).tolist()
        [3, 3]
        """
        return cls.full(() if shape is None else shape, value, device=device, dtype=dtype)

    def const_like(self, value: Any, dtype: DType | str | None = None) -> Self:
        """The constant `value` in the shape, dtype and device of this tensor.

        >>> Tensor([1.0, 2.0]).const_like(7).tolist()
        [7.0, 7.0]
        """
        return self.full_like(value, dtype=dtype)

    def contiguous_backward(self) -> Self:
        """This tensor, whose gradient is put in memory here before it goes on: a border between
        kernels of the backward pass.

        >>> Tensor([1.0]).contiguous_backward().tolist()
        [1.0]
        """
        none = (False,) * self.ndim
        return self._like(UOp(Ops.FLIP, self.dtype, (self.uop,), none))

    @property
    def is_param(self) -> bool:
        """Whether this tensor is a parameter: one that an optimizer is to change, which requires a
        gradient.

        >>> Tensor([1.0], requires_grad=True).is_param
        True
        """
        return bool(self.requires_grad)

    def is_param_(self, wanted: bool = True) -> Self:
        """Make this tensor a parameter, or not; gives this tensor.

        Raises DTypeError for a dtype that has no derivative.

        >>> Tensor([1.0]).is_param_().is_param
        True
        """
        self.requires_grad = wanted
        return self

    def image_dot(self, weight: Self, dtype: DType | str | None = None) -> Self:
        """As `matmul`: memory is not kept in images here.

        >>> Tensor([[1.0, 2.0]]).image_dot(Tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
        """
        product: Self = self.matmul(weight)
        return product if dtype is None else product.cast(dtype)

    def image_conv2d(self, weight: Self, *args: Any, **kwargs: Any) -> Self:
        """As `conv2d`: memory is not kept in images here.

        >>> Tensor.ones(1, 1, 2, 2).image_conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0]]]]
        """
        return self.conv2d(weight, *args, **kwargs)
