"""The checks of each op's dtypes, argument and sources that are the same at every stage.

A check takes a node and returns the fault, or None. `CHECKS` holds them by op; those of the tensor
graph are in `ir.tensor_checks`, those of kernels and programs in `ir.code_checks`, and
`ir.spec.verify` uses all of them. A new op needs an entry in one of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "CHECKS",
    "INTEGERS",
    "Check",
    "any_number",
    "as_first_source",
    "cut",
    "dtype_text",
    "is_gate",
    "is_reduction",
    "mismatch",
    "reduces",
    "same_dtype",
    "types_of",
    "void",
]  # fmt: skip

Check = Callable[[UOp], str | None]

_NUMBERS = ("bool", "int", "uint", "float", "index")
INTEGERS = ("int", "uint", "index")


def types_of(nodes: Iterable[UOp]) -> str:
    return " and ".join(dtype_text(node.dtype) for node in nodes)


def mismatch(node: UOp) -> str:
    """The message where the dtypes of a node and its sources do not go together."""
    return f"{dtype_text(node.dtype)} of {types_of(node.src) or 'nothing'}"


def dtype_text(dtype: DType) -> str:
    """`float.vec(4)`: the dtype as a message spells it."""
    return repr(dtype).replace("dtypes.", "")


def same_dtype(node: UOp) -> str | None:
    """All sources have the node's dtype."""
    dtype = node.dtype
    for source in node.src:
        if source.dtype is not dtype:
            return mismatch(node)
    return None


def _arithmetic(kinds: Sequence[str]) -> Check:
    """All sources have the node's dtype, which is one of `kinds`."""

    def check(node: UOp) -> str | None:
        dtype = node.dtype
        for source in node.src:
            if source.dtype is not dtype:
                return mismatch(node)
        return None if dtype.kind in kinds else f"it is not defined for {dtype_text(dtype)}"

    return check


def _comparison(node: UOp) -> str | None:
    left, right = node.src
    if left.dtype is not right.dtype:
        return f"of {types_of(node.src)}"
    if left.dtype.kind not in _NUMBERS:
        return f"it is not defined for {dtype_text(left.dtype)}"
    wanted = dtypes.bool.vec(left.dtype.lanes)
    return None if node.dtype is wanted else f"{dtype_text(node.dtype)}, not {dtype_text(wanted)}"


def is_gate(gate: UOp, lanes: int) -> bool:
    return gate.dtype.scalar is dtypes.bool and gate.dtype.lanes in (1, lanes)


def _where(node: UOp) -> str | None:
    condition, yes, no = node.src
    if not is_gate(condition, node.dtype.lanes):
        return f"its condition is {dtype_text(condition.dtype)}, not bool"
    if yes.dtype is node.dtype and no.dtype is node.dtype:
        return None
    return f"{dtype_text(node.dtype)} of {types_of(node.src[1:])}"


def _cast(node: UOp) -> str | None:
    (source,) = node.src
    if source.dtype.kind == node.dtype.kind == "pointer":
        return None
    if source.dtype.lanes != node.dtype.lanes:
        return f"{source.dtype.lanes} lanes to {node.dtype.lanes}"
    kinds = (source.dtype.kind, node.dtype.kind)
    wrong = any(kind not in _NUMBERS for kind in kinds)
    return f"{dtype_text(source.dtype)} to {dtype_text(node.dtype)}" if wrong else None


def _bitcast(node: UOp) -> str | None:
    (source,) = node.src
    if source.dtype.nbytes == node.dtype.nbytes and node.dtype.kind in _NUMBERS[1:4]:
        return None
    return f"{dtype_text(source.dtype)} to {dtype_text(node.dtype)}"


def _const(node: UOp) -> str | None:
    is_number = node.dtype.kind in _NUMBERS
    return None if is_number else f"it is not defined for {dtype_text(node.dtype)}"


def _define_var(node: UOp) -> str | None:
    if node.dtype.kind not in INTEGERS:
        return f"a size cannot be {dtype_text(node.dtype)}"
    is_range = isinstance(node.arg, tuple) and len(node.arg) == 3 and node.arg[1] <= node.arg[2]
    return None if is_range else f"its argument is {node.arg!r}, not (name, smallest, largest)"


def cut(text: str) -> str:
    """At most a line or two of `text`, for a message."""
    return text if len(text) <= 200 else f"{text[:200]}..."


def reduces(op: Any) -> bool:
    return isinstance(op, Ops) and op.definition.identity is not None


def is_reduction(arg: Any) -> bool:
    """Whether an argument is a pair whose first item is an op that reduces."""
    return isinstance(arg, tuple) and len(arg) == 2 and reduces(arg[0])


def as_first_source(node: UOp) -> str | None:
    """The node has the dtype of its first source, behind which the others are effects."""
    if not node.src:
        return "nothing comes after nothing"
    first = node.src[0].dtype
    return None if node.dtype is first else f"{dtype_text(node.dtype)} of {dtype_text(first)}"


def void(node: UOp) -> str | None:
    """The node is an effect: it has no value."""
    return None if node.dtype is dtypes.void else f"{dtype_text(node.dtype)}, not void"


any_number = _arithmetic(_NUMBERS)
_any_integer = _arithmetic(INTEGERS)
_float_only = _arithmetic(("float",))
_bits_only = _arithmetic(("bool", *INTEGERS))

_FUNCTIONS = (
    Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.SQRT, Ops.RECIP, Ops.FDIV, Ops.FMOD,
    Ops.EXP2_APPROX, Ops.SCALE, Ops.TANH, Ops.SIGMOID,
)  # fmt: skip
# The same at every stage.
CHECKS: dict[Ops, Check] = {
    Ops.CONST: _const,
    Ops.DEFINE_VAR: _define_var,
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    **dict.fromkeys((Ops.NEG, Ops.TRUNC, Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX), any_number),
    **dict.fromkeys(_FUNCTIONS, _float_only),
    **dict.fromkeys((Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD), _any_integer),
    **dict.fromkeys((Ops.SHL, Ops.SHR), _any_integer),
    **dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR), _bits_only),
    **dict.fromkeys((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), _comparison),
    Ops.MULACC: any_number,
    Ops.WHERE: _where,
}
