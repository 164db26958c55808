"""Python's operators on scalar nodes: `n * 2 + 1` is a node.

`==` stays identity, as nodes are keys of tables; `eq` is the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops

__all__ = ["Algebra"]

_Node = TypeVar("_Node", bound="Algebra")


def _is_tensor(value: Any) -> bool:
    """Whether an operand is a tensor: its own operators then make a tensor."""
    return not isinstance(value, Algebra) and hasattr(value, "uop")


def _operator(op: Ops, *, is_swapped: bool = False) -> Callable[[_Node, Any], _Node]:
    """The method for `op` of a node and another operand, which comes first where `is_swapped`."""

    def apply(self: _Node, other: Any) -> _Node:
        if not isinstance(other, Algebra):
            if not isinstance(other, (int, float)) and _is_tensor(other):
                return NotImplemented  # type: ignore[no-any-return]
            other = self.__class__(Ops.CONST, self.dtype, (), other)
        return other.alu(op, self) if is_swapped else self.alu(op, other)

    return apply


class Algebra:
    """The operators of a node, by its `alu` and `const`."""

    __slots__ = ()
    dtype: DType

    if TYPE_CHECKING:

        def __init__(self, op: Ops, dtype: DType, src: tuple[Any, ...], arg: Any) -> None: ...

        def alu(self, op: Ops, *others: Self) -> Self: ...

        @staticmethod
        def const(dtype: DType, value: Any) -> Any: ...

    def _other(self, value: Any) -> Self:
        made: Self = self.const(self.dtype, value)
        return made

    __add__ = __radd__ = _operator(Ops.ADD)
    __mul__ = __rmul__ = _operator(Ops.MUL)
    __floordiv__, __rfloordiv__ = _operator(Ops.FLOORDIV), _operator(Ops.FLOORDIV, is_swapped=True)
    __mod__, __rmod__ = _operator(Ops.FLOORMOD), _operator(Ops.FLOORMOD, is_swapped=True)
    __truediv__ = _operator(Ops.FDIV)
    __lt__, __gt__ = _operator(Ops.CMPLT), _operator(Ops.CMPLT, is_swapped=True)
    __and__ = __rand__ = _operator(Ops.AND)
    __or__ = _operator(Ops.OR)
    __xor__ = _operator(Ops.XOR)
    __lshift__ = _operator(Ops.SHL)
    __rshift__ = _operator(Ops.SHR)

    def __neg__(self) -> Self:
        return self * -1

    def __sub__(self, other: Any) -> Self:
        if _is_tensor(other):
            return NotImplemented
        return self.__add__(-other if isinstance(other, (int, float)) else -self._other(other))

    def __rsub__(self, other: Any) -> Self:
        return (-self).__add__(other)

    def __ge__(self, other: Any) -> Self:
        return NotImplemented if _is_tensor(other) else self.__lt__(other).logical_not()

    def __le__(self, other: Any) -> Self:
        return NotImplemented if _is_tensor(other) else self.__gt__(other).logical_not()

    def ne(self, other: Any) -> Self:
        return self.alu(Ops.CMPNE, self._other(other))

    def eq(self, other: Any) -> Self:
        return self.alu(Ops.CMPEQ, self._other(other))

    def logical_not(self) -> Self:
        return self.alu(Ops.XOR, self.const(self.dtype, True))

    def where(self, yes: Any, no: Any) -> Self:
        """`yes` where this bool is true, else `no`; at least one of them is a node."""
        yes = yes if isinstance(yes, Algebra) else self.const(no.dtype, yes)
        no = no if isinstance(no, Algebra) else self.const(yes.dtype, no)
        return self.alu(Ops.WHERE, yes, no)

    def maximum(self, other: Any) -> Self:
        return self.alu(Ops.MAX, self._other(other))

    def minimum(self, other: Any) -> Self:
        return -((-self).maximum(-self._other(other)))
