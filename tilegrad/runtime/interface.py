"""What a launch passes to a kernel whose driver tells nothing of it: a line above its text.

    // add: 0 2 | <i         memory of the slots 0 and 2, then one 32-bit integer

A kernel has no parameter for a slot that it does not use. Integers are written as `struct` packs
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Interface", "heading"]

_CODES = {dtypes.int32: "<i", dtypes.uint32: "<I", dtypes.int64: "<q", dtypes.uint64: "<Q"}


class Interface(NamedTuple):
    """The parameters of a kernel: slots of memory, and the codes of its integers, in order."""

    name: str
    slots: tuple[int, ...]
    codes: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> Interface:
        """What `heading` wrote."""
        name, _, rest = line.removeprefix("// ").partition(":")
        slots, _, codes = rest.partition("|")
        return cls(name, tuple(map(int, slots.split())), tuple(codes.split()))


def heading(function: str, program: Sequence[UOp]) -> str:
    """The line of a linear program that is rendered as `function`."""
    slots = sorted(node.arg for node in program if node.op is Ops.DEFINE_GLOBAL)
    codes = [_CODES[node.dtype] for node in program if node.op is Ops.DEFINE_VAR]
    return f"// {function}: {' '.join(map(str, slots))} | {' '.join(codes)}"
