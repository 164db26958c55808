"""The interface of a kernel whose driver does not report it: a line above its text.

    // add: 0 2 | <i | 32 4 1     memory of the slots 0 and 2, one 32-bit integer; blocks of 32x4

A kernel has no parameter for a slot that it does not use. Integers are written as `struct` packs
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError
from tilegrad.base.failed import refused
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Dims

__all__ = ["Interface", "block_of", "compiled_below_heading", "heading"]

_CODES = {dtypes.int32: "<i", dtypes.uint32: "<I", dtypes.int64: "<q", dtypes.uint64: "<Q"}


class Interface(NamedTuple):
    """The parameters of a kernel: slots of memory, and the codes of its integers, in order; and the
    lanes of a block along each axis.
    """

    name: str
    slots: tuple[int, ...]
    codes: tuple[str, ...]
    block: Dims = (1, 1, 1)

    @classmethod
    def read(cls, line: str) -> Interface:
        """The interface that `heading` wrote."""
        name, _, rest = line.removeprefix("// ").partition(":")
        slots, codes, block = (section.split() for section in rest.split("|"))
        return cls(name, tuple(map(int, slots)), tuple(codes), tuple(map(int, block)))


def block_of(program: Sequence[UOp]) -> Dims:
    """The lanes of a block of a linear program, along each axis."""
    sizes = [1, 1, 1]
    for node in program:
        if node.op is Ops.SPECIAL and node.name.startswith("lidx"):
            sizes[int(node.name[-1])] = int(node.vmax) + 1
    return tuple(sizes)


def heading(function: str, program: Sequence[UOp]) -> str:
    """The line of a linear program that is rendered as `function`."""
    slots = sorted(node.arg for node in program if node.op is Ops.DEFINE_GLOBAL)
    codes = [_CODES[node.dtype] for node in program if node.op is Ops.DEFINE_VAR]
    sections = (slots, codes, block_of(program))
    return f"// {function}: {' | '.join(' '.join(map(str, each)) for each in sections)}"


def compiled_below_heading(
    kind: str, suffix: str, arch: str, compile_text: Callable[[str, str], bytes], source: str
) -> bytes:
    """The binary that `compile_text` makes of a text for `arch`, behind the text's heading.

    Raises CompileError with the compiler's first error, and the file that keeps the text; `kind`
    is the device's, `suffix` the ending of the file.
    """
    head, _, text = source.partition("\n")
    try:
        return head.encode() + b"\n" + compile_text(text, arch)
    except CompileError as error:
        log = str(error.details.get("message") or error.headline)
        kernel = head.partition(":")[0].removeprefix("// ")
        raise refused(kind, log, text, suffix, kernel=kernel, arch=arch) from None
