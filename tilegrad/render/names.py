"""Names that C and its relatives accept: of types, of functions, of parameters. A kernel's printed
name keeps its colours and brackets.
"""

from __future__ import annotations

import re

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops

__all__ = ["C_TYPES", "MATH", "SHORT_TYPES", "function_name", "variable_name"]

C_TYPES = {
    dtypes.bool: "bool",
    dtypes.int8: "signed char",
    dtypes.uint8: "unsigned char",
    dtypes.int16: "short",
    dtypes.uint16: "unsigned short",
    dtypes.int32: "int",
    dtypes.uint32: "unsigned int",
    dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long",
    dtypes.float16: "half",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
"""The types of C, from which few of the back ends' own differ."""

SHORT_TYPES = {
    dtypes.bool: "bool",
    dtypes.int8: "char",
    dtypes.uint8: "uchar",
    dtypes.int16: "short",
    dtypes.uint16: "ushort",
    dtypes.int32: "int",
    dtypes.uint32: "uint",
    dtypes.int64: "long",
    dtypes.uint64: "ulong",
    dtypes.float16: "half",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
"""The types in one word each, to which a number of lanes can be added: `uchar4`."""

MATH = {
    Ops.EXP: "exp", Ops.EXP2: "exp2", Ops.LOG2: "log2", Ops.SIN: "sin", Ops.COS: "cos",
    Ops.SQRT: "sqrt", Ops.TRUNC: "trunc",
}  # fmt: skip
"""The functions of one number as most of these languages call them."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ODD = re.compile(r"[^A-Za-z0-9_]")
# Names that renderers make: values, vector types, helpers.
_MADE = re.compile(
    r"(data|alu|val|old|cast|acc|temp|wmma|ridx|gidx|lidx)\d+"
    r"|u?(char|short|int|long|longlong)\d+|(bool|half|float|double|bfloat16x)\d+"
    r"|(atomic|make|where|max|_).*|\w+_of_(float|double)"
)
# Words of the languages they write.
_WORDS = (
    "alignas as_type asm auto barrier bfloat bool break case catch char chunk class const "
    "constant continue default delete device do double else enum exp2 explicit extern false "
    "float fma for friend gid global goto half if inline int kernel lid local log2 long main "
    "namespace new operator precise private public register restrict return short signed sin "
    "size_t sizeof sqrt static struct switch template this thread threadgroup throw true "
    "trunc try typedef typename uchar uint ulong union unsigned ushort using virtual void "
    "volatile while "
)
_RESERVED = frozenset(_WORDS.split())


def function_name(name: str) -> str:
    """`name` without colours, each odd character as the hexadecimal pairs of its UTF-8 bytes.

    `r_<length[4-8]>` becomes `r_3Clength5B42D85D3E`.
    """
    plain = _COLOUR.sub("", name)
    text = _ODD.sub(lambda odd: odd[0].encode().hex().upper(), plain)
    return f"_{text}" if text[:1].isdigit() or not text else text


def variable_name(name: str) -> str:
    """The parameter for the user's variable `name`, which may not meet a word of the language or a
    name of ours.
    """
    text = function_name(name)
    return f"{text}_" if text in _RESERVED or _MADE.fullmatch(text) else text
