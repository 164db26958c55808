"""How the operands of an op meet: brought to one device, dtype and shape before a node is made.

Numbers beside tensors are constants of the tensor's dtype. Where a dtype of less than 32 bits would
round such a number, the op is done in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.dtype import dtypes, truncate
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import UnsupportedDTypeError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import Core, Operand, cast_node, compute, describe, number_dtype
from tilegrad.tensor.views.patches import Patches

__all__ = ["Operands"]

# Arithmetic that rounds, so that it matters whether a number was rounded before.
_ROUNDING = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.FMOD})
# Meaning of arithmetic on truth values.
_LOGICAL = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}


class Operands(Patches):
    """Nodes of ops on one and two operands."""

    __slots__ = ()

    def _unary(self, op: Ops, *constants: Any) -> Self:
        """The op on this tensor and constants of its dtype."""
        node = self.uop
        dtype = dtypes.bool if op.is_boolean else node.dtype
        return self._like(
            compute(op, dtype, (node, *[UOp.const(node.dtype, value) for value in constants]))
        )

    def _binary(self, name: str, op: Ops, other: Operand, *, swap: bool = False) -> Self:
        """The op on this tensor and `other`, or on `other` and this tensor."""
        if op in _ROUNDING and self._would_round(other):
            return self._wide_with(lambda x: x._binary(name, op, other, swap=swap))
        left, right, others = self._sides(name, other)
        if swap:
            left, right = right, left
        dtype = left.dtype
        if dtype is dtypes.bool:
            if op is Ops.CMPLT:
                op, left = Ops.AND, UOp(Ops.XOR, dtype, (left, UOp.const(dtype, True)))
            op = _LOGICAL.get(op, op)
        node = compute(op, dtypes.bool if op.is_boolean else dtype, (left, right))
        return self._joined(node, *others)

    def _sides(self, name: str, other: Operand) -> tuple[UOp, UOp, tuple[Core, ...]]:
        """The nodes of this tensor and `other` as they meet, and the tensor that `other` is, if it
        is one: a number makes none of its own.
        """
        left = self.uop
        if type(other) in (int, float, bool):
            kind = number_dtype(name, left.dtype, other)
            left = cast_node(left, promote(left.dtype, kind))
            return left, UOp(Ops.CONST, left.dtype, (), other), ()
        tensor = self._operand(name, other)
        right = tensor.uop
        is_alike = left.dtype is right.dtype and left.shape == right.shape
        if not is_alike or self.device != tensor.device:
            left, right = self._meet(name, tensor)
        return left, right, (tensor,)

    def _would_round(self, other: Operand) -> bool:
        """Whether `other` is a number that this tensor's dtype, of less than 32 bits, would round.
        Then arithmetic is done in float32, and its result rounded, once.
        """
        dtype = self.dtype
        if not (dtype.is_float and dtype.itemsize < 4) or type(other) not in (int, float):
            return False
        return bool(other == other and truncate(other, dtype) != other)

    def _wide_with(self, function: Callable[..., Self], *others: Operand) -> Self:
        """`function` of this tensor and `others` in the dtype where all meet: for one of less than
        32 bits in float32, and rounded once.
        """
        dtype = self.dtype
        for other in others:
            if isinstance(other, Core):
                dtype = promote(dtype, other.dtype)
        wide = dtypes.float32 if dtype.is_float and dtype.itemsize < 4 else dtype
        sides: list[Any] = [self, *others]
        for number, side in enumerate(sides):
            # A product with a factor would overflow in the narrower dtype of its operand.
            if isinstance(side, Core) and side.dtype is not wide:
                sides[number] = side.cast(wide)  # type: ignore[attr-defined]
        found = function(*sides)
        return found if wide is dtype else found.cast(dtype)

    def _integers(self, name: str, *, but_bool: bool = False) -> None:
        """Raise DTypeError unless this tensor holds integers (or bools)."""
        if self.dtype.is_float or (but_bool and self.dtype is dtypes.bool):
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not {self.dtype.name}",
                tensor=describe(self.uop),
                remedy="cast it: .cast(dtypes.int32)",
            )
