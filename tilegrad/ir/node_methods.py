"""Methods that `UOp` inherits: names of the argument and the sources of some kinds of node
(`loop.axis`, `load.gate`), operators, and the text of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Axis, Ops

__all__ = ["Algebra", "Fields", "show"]


class Fields:
    """Names of a node's argument and sources, by its op. The caller knows the op: a field of
    another op is not refused.
    """

    __slots__ = ()
    src: tuple[Self, ...]
    arg: Any

    @property
    def number(self) -> int:
        """The number of a RANGE."""
        return self.arg[0]  # type: ignore[no-any-return]

    @property
    def axis(self) -> Axis:
        """The kind of axis that runs a RANGE."""
        return self.arg[1]  # type: ignore[no-any-return]

    @property
    def extent(self) -> Self:
        """The number of iterations of a RANGE."""
        return self.src[0]

    @property
    def name(self) -> str:
        """The name of a DEFINE_VAR or SPECIAL."""
        return self.arg[0]  # type: ignore[no-any-return]

    @property
    def combine(self) -> Ops:
        """The associative op of a REDUCE_AXIS, PREFIX_AXIS or PREFIX."""
        return self.arg[0]  # type: ignore[no-any-return]

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of a REDUCE_AXIS."""
        return self.arg[1]  # type: ignore[no-any-return]

    @property
    def index(self) -> Self:
        """The index of a LOAD or STORE."""
        return self.src[1]

    @property
    def value(self) -> Self:
        """The value that a STORE writes."""
        return self.src[2]

    @property
    def other(self) -> Self:
        """The value of a gated LOAD where its gate is false."""
        return self.src[2]

    @property
    def is_gated(self) -> bool:
        """Whether a LOAD or STORE has a gate."""
        return len(self.src) == 4

    @property
    def gate(self) -> Self:
        """The gate of a LOAD or STORE that is gated."""
        return self.src[3]


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
    """The operators of a node, by its `alu` and `const`.

    `n * 2 + 1` is a node.

    `==` stays identity, as nodes are keys of tables; `eq` is the comparison.
    """

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


# The deepest indentation: a chain of 100,000 nodes would print gigabytes of blanks.
_DEEPEST = 40


def show(root: Any) -> str:
    """The text of `root` and all it needs.

    The text is made of constructors: nested, with shared nodes named once by `:=`.

    `ir.text.parse` reads the text back to the identical node. The walk is iterative, so a chain of
    100,000 nodes prints.
    """
    uses: dict[Any, int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        uses[node] = uses.get(node, 0) + 1
        if uses[node] == 1:
            stack.extend(node.src)
    names: dict[Any, str] = {}
    out: list[str] = []
    work: list[Any] = [(root, 0)]
    while work:
        item = work.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        node, depth = item
        pad = "  " * min(depth, _DEEPEST)
        if node in names:
            out.append(f"{pad} {names[node]}")
            continue
        label = ""
        if uses[node] > 1:
            names[node] = f"x{len(names)}"
            label = f"{names[node]}:="
        head = f"{pad}{label}UOp({node.op}, {node.dtype!r}, arg={node.arg!r}, src=("
        out.append(head)
        if not node.src:
            out.append("))")
            continue
        tail: list[Any] = ["\n"]
        for source in node.src:
            tail += [(source, depth + 1), ",\n"]
        tail[-1] = ",))" if len(node.src) == 1 or uses[node.src[-1]] > 1 else "))"
        work.extend(reversed(tail))
    return "".join(out)
