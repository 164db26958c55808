"""Versions of PTX: which one knows an architecture and the instructions of a program."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError
from tilegrad.hardware import BYTE_FLOATS
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["ptx_version", "version_for"]

# The first version of PTX that knows an architecture and every instruction used here (PTX ISA,
# section "Target ISA notes" of each instruction, and its release notes).
_VERSIONS = (
    (75, "7.0"), (80, "7.0"), (86, "7.1"), (87, "7.4"), (88, "9.0"), (89, "7.8"), (90, "8.0"),
    (100, "8.6"), (101, "8.6"), (103, "8.8"), (110, "9.0"), (120, "8.7"), (121, "8.8"),
)  # fmt: skip


def ptx_version(number: int) -> str:
    """The version of PTX to write for an architecture.

    Raises CompileError for one that none is known for.
    """
    known = dict(_VERSIONS)
    if number not in known:
        raise CompileError(
            f"render.ptx: no PTX for sm_{number}", known=", ".join(f"sm_{each}" for each in known)
        )
    return known[number]


def version_for(number: int, program: Sequence[UOp]) -> str:
    """The version of PTX to write for a program: it knows the architecture, and the units that are
    used.
    """
    known = ptx_version(number)
    units = {
        node.arg.dtype_in for node in program if node.op is Ops.WMMA and not node.arg.row_bytes
    }
    if units.isdisjoint(dtypes.fp8s):
        return known
    return max(known, BYTE_FLOATS, key=lambda text: [int(number) for number in text.split(".")])
