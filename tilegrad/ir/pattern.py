"""Patterns of nodes, and the rules made of them.

A rule is an equation with a guard, or a pattern with a function: `ir.matcher` compiles a set of
them, and `ir.rewrite` applies it to a graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops

__all__ = ["Rule", "UPat", "fold"]


def _as_tuple(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    return tuple(value) if isinstance(value, (tuple, list, set, frozenset)) else (value,)


def _operator(op: Ops, *, is_swapped: bool = False) -> Callable[[UPat, Any], UPat]:
    """The method for the pattern of `op` with another operand, the first where `is_swapped`."""

    def apply(self: UPat, other: Any) -> UPat:
        other = other if isinstance(other, UPat) else UPat.const(other)
        return UPat(op, src=(other, self) if is_swapped else (self, other))

    return apply


class UPat:
    """A pattern for a node: op (one, several, or None for any), dtype, sources, argument, and the
    name of the capture.

    `src` None matches any sources; a tuple matches those in that order, or in any order where the
    op commutes. A name used twice must be the same node. Operators build patterns: `(x + c0) + c1`.
    """

    __slots__ = ("allow_any_len", "arg", "dtype", "folded", "name", "op", "src")

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: UPat | Sequence[UPat] | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
    ):
        self.op: tuple[Ops, ...] | None = _as_tuple(op)
        self.dtype: tuple[DType, ...] | None = _as_tuple(dtype)
        self.src: tuple[UPat, ...] | None = _as_tuple(src)
        self.arg, self.name, self.allow_any_len = arg, name, allow_any_len
        self.folded = False

    @staticmethod
    def var(name: str, dtype: DType | Iterable[DType] | None = None) -> UPat:
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def wilds(names: str, dtype: DType | Iterable[DType] | None = None) -> tuple[UPat, ...]:
        """A pattern for any node, per name."""
        return tuple(UPat(dtype=dtype, name=name) for name in names.split())

    @staticmethod
    def constants(names: str) -> tuple[UPat, ...]:
        """A pattern for any CONST, per name; guards and `fold` see its number."""
        return tuple(UPat(Ops.CONST, name=name) for name in names.split())

    @staticmethod
    def const(value: Any) -> UPat:
        """A pattern for the constant `value`."""
        return UPat(Ops.CONST, arg=value)

    @property
    def is_constant(self) -> bool:
        return self.op == (Ops.CONST,)

    def __neg__(self) -> UPat:
        return UPat(Ops.NEG, src=(self,))

    __add__ = _operator(Ops.ADD)
    __sub__ = _operator(Ops.SUB)
    __mul__ = _operator(Ops.MUL)
    __truediv__ = _operator(Ops.FDIV)
    __floordiv__ = _operator(Ops.FLOORDIV)
    __mod__ = _operator(Ops.FLOORMOD)
    __and__ = _operator(Ops.AND)
    __or__ = _operator(Ops.OR)
    __xor__ = _operator(Ops.XOR)
    __lshift__ = _operator(Ops.SHL)
    __rshift__ = _operator(Ops.SHR)
    __lt__, __gt__ = _operator(Ops.CMPLT), _operator(Ops.CMPLT, is_swapped=True)
    eq, ne, maximum = _operator(Ops.CMPEQ), _operator(Ops.CMPNE), _operator(Ops.MAX)

    def where(self, yes: Any, no: Any) -> UPat:
        yes, no = (side if isinstance(side, UPat) else UPat.const(side) for side in (yes, no))
        return UPat(Ops.WHERE, src=(self, yes, no))

    def named(self, name: str) -> UPat:
        """This pattern, capturing its node under `name`."""
        return UPat(self.op, self.dtype, self.src, self.arg, name, self.allow_any_len)

    def names(self) -> dict[str, UPat]:
        """The captures of this pattern and its sources."""
        found = {} if self.name is None else {self.name: self}
        for source in self.src or ():
            found |= source.names()
        return found


def fold(expression: UPat) -> UPat:
    """On the right side of an equation: the value of `expression`, which is made of constants."""
    result = UPat(expression.op, expression.dtype, expression.src, expression.arg, expression.name)
    result.folded = True
    return result


class Rule:
    """A named rewrite: left = right where `when` holds, or left -> `function(**captures)`.

    A guard sees constants as numbers and other captures as nodes. A function returns None where it
    does not apply, and receives `ctx` if it has such a parameter. `written_at` is the file and the
    line of a rule.
    """

    __slots__ = ("function", "left", "name", "right", "when", "written_at")

    def __init__(
        self,
        name: str,
        left: UPat,
        right: UPat | int | float | bool | None = None,
        *,
        when: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
    ):
        self.name, self.left, self.when, self.function = name, left, when, function
        self.right = right if right is None or isinstance(right, UPat) else UPat.const(right)
        code = getattr(function, "__code__", None)
        if code is not None:
            self.written_at: tuple[str, int] = (code.co_filename, code.co_firstlineno)
        else:
            frame = sys._getframe(1)
            self.written_at = (frame.f_code.co_filename, frame.f_lineno)

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"
