"""Function names. A kernel's printed name keeps its colours and brackets; the function's own is
what C accepts.
"""

from __future__ import annotations

import re

__all__ = ["function_name", "variable_name"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ODD = re.compile(r"[^A-Za-z0-9_]")
# Names that renderers make: values, vector types, helpers.
_MADE = re.compile(
    r"(data|alu|val|cast|acc|temp|wmma|ridx|gidx|lidx)\d+"
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
