"""Operands of `torch.Tensor` that differ: in dtype, where those without axes give way, in device,
numbers beside bools, and tilegrad's own tensors on the left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DeviceError
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.promotion import brought_together, given_way

__all__ = ["MixedOperands"]


class MixedOperands(OurTensor):
    """A tensor with PyTorch's rules for operands that differ."""

    # A tensor of tilegrad's as one of the class below.
    _adopt: Callable[[OurTensor], Any]

    def _meet(self, name: str, *others: Any, unify: bool = True) -> tuple[UOp, ...]:
        dtype = self.dtype
        if unify and any(each.dtype is not dtype for each in others):
            tensors = given_way([self, *others])
            return super(MixedOperands, tensors[0])._meet(name, *tensors[1:], unify=unify)
        return super()._meet(name, *others, unify=unify)

    def _on_one_device(self, name: str, tensors: list[Any]) -> list[Any]:
        try:
            return super()._on_one_device(name, tensors)
        except DeviceError:
            brought = brought_together(tensors)
            if brought is None:
                raise
            return brought

    def _sides(self, name: str, other: Any) -> Any:
        if other.__class__ is int and self.dtype is dtypes.bool:
            # Beside bools an integer is int64.
            return super(MixedOperands, self.long())._sides(name, other)
        return super()._sides(name, other)

    def _operand(self, name: str, other: Any) -> Self:
        if other.__class__ is int and self.dtype is dtypes.bool:
            return self.long()._operand(name, other)
        return self._adopt(super()._operand(name, other))  # type: ignore[no-any-return]

    @templated
    def _chosen_of(self, first: Any, second: Any) -> Any:
        """Elements of two tensors by this condition, in the dtype in which the two meet."""
        first, second = given_way([first, second])
        kind = promote(first.dtype, second.dtype)
        return OurTensor.where(self.bool(), first.cast(kind), second.cast(kind))

    # a number, or tilegrad's own tensor, on the left

    def __radd__(self, other: Any) -> Self:
        return super().__radd__(other)

    def __rsub__(self, other: Any) -> Self:
        return super().__rsub__(other)

    def __rmul__(self, other: Any) -> Self:
        if isinstance(other, (list, tuple, str, bytes)) and self.dtype.is_int and self.numel() == 1:
            # Python repeats a sequence as often as an integer says.
            return NotImplemented
        return super().__rmul__(other)

    def __rtruediv__(self, other: Any) -> Self:
        return super().__rtruediv__(other)

    def __rpow__(self, other: Any) -> Self:
        return super().__rpow__(other)

    def __rmatmul__(self, other: Any) -> Self:
        if not isinstance(other, OurTensor):
            return NotImplemented
        return self._adopt(other) @ self  # type: ignore[no-any-return]
