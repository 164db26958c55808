"""Values of symbolic integers: the one that `bind` gave, and no other."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from tilegrad.base.errors import DTypeError, NotBoundError
from tilegrad.ir.op import Ops

__all__ = ["BoundVariables"]


class BoundVariables:
    """The parts of a node that is a variable with a value."""

    __slots__ = ()
    op: Ops
    src: tuple[Self, ...]
    arg: Any

    def unbind(self) -> tuple[Self, int]:
        """The variable and the value that `bind` joined.

        Raises ShapeError if the node is not bound.
        """
        if self.op is not Ops.BIND:
            raise NotBoundError(f"unbind: a {self.op} node has no bound value")
        return self.src[0], self.src[1].arg

    @property
    def val(self) -> int:
        """The value of a variable that `bind` gave it.

        Raises ShapeError if the node is not bound.
        """
        return self.unbind()[1]

    @property
    def expr(self) -> str:
        """The name of a variable.

        Raises ShapeError if the node is none.
        """
        if self.op is not Ops.DEFINE_VAR:
            raise NotBoundError(f"expr: a {self.op} node is no variable")
        return str(self.arg[0])

    def __int__(self) -> int:
        self._no_number("int")

    def __float__(self) -> float:
        self._no_number("float")

    def _no_number(self, name: str) -> NoReturn:
        raise DTypeError(
            f"{name}: a symbolic integer has a value only where a kernel runs",
            remedy="use it as it is, as a size or an operand; v.unbind()[1] is what v was bound to",
        )
