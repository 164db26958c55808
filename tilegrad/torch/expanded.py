"""`torch.Tensor` where one element of memory is several of the tensor, as after `expand`: writes of
one number reach each element once, all other writes are refused; and `contiguous` is a copy.
"""

from __future__ import annotations

from typing import Any, Self

from tilegrad.tensor.handle.aliases import can_view, is_alone, steps
from tilegrad.tensor.storage.writes import is_expanded
from tilegrad.tensor.tensor import Tensor as OurTensor

__all__ = ["Expanded"]


class Expanded(OurTensor):
    """A tensor, or an expanded view of one."""

    def fill_(self, value: Any) -> Self:
        """Write `value`, a number or a tensor without axes, into every element."""
        axes = self._repeated_axes()
        if not axes:
            return super().fill_(value)
        self._each_once(axes).fill_(value)
        return self

    def masked_fill_(self, mask: Any, value: Any) -> Self:
        """Write `value`, a number or a tensor without axes, where `mask` is true."""
        axes = self._repeated_axes()
        if not axes:
            made: Self = super().masked_fill_(mask, value)
            return made
        found = mask.expand(self.shape).any(axes, keepdim=True)
        self._each_once(axes).masked_fill_(found, value)
        return self

    def _repeated_axes(self) -> tuple[int, ...]:
        """The axes along which all elements are the same memory."""
        if not is_expanded(self):
            return ()
        pairs = zip(self.shape, steps(self)[0], strict=True)
        return tuple([axis for axis, (size, step) in enumerate(pairs) if step == 0 and size > 1])

    def _each_once(self, axes: tuple[int, ...]) -> Any:
        """A view with one element for each that is repeated along `axes`."""
        every = range(self.ndim)
        return self[tuple([slice(0, 1) if axis in axes else slice(None) for axis in every])]

    def contiguous(self) -> Self:
        """The same values in row-major order: this tensor where they are, else a copy."""
        return self if self.is_contiguous() else super().contiguous()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the values are in row-major order in the memory that this tensor views."""
        if 0 in self.shape:
            return True
        if not can_view(self, (self.numel(),)):
            return False
        # A slice of memory without other holders is a value of its own.
        return (is_alone(self) and not is_expanded(self)) or self._is_in_order()

    def _is_in_order(self) -> bool:
        expected = 1
        for size, stride in reversed([*zip(self.shape, steps(self)[0], strict=True)]):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True
