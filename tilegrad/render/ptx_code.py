"""The lines of one PTX kernel: registers by type, instructions, constants, and in which registers
the values of a program are; and the version of PTX that an architecture and instructions need.

A bool is a predicate. Integers of 8 and 16 bits are in registers of 32 bits, with their sign
or with zeros in front; 16-bit floats in registers of 16 bits. A vector is a register per lane.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.hardware import BYTE_FLOATS
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = [
    "Code", "capability", "kind_of", "letter", "literal", "ptx_version", "root", "uniform",
    "version_for",
]  # fmt: skip

# The prefix of registers of each kind.
_PREFIXES = {"pred": "p", "b16": "h", "b32": "r", "b64": "rd", "f32": "f", "f64": "fd"}
_FLOAT_KINDS = {
    dtypes.float16: "b16",
    dtypes.bfloat16: "b16",
    dtypes.float32: "f32",
    dtypes.float64: "f64",
}

_CODES = {
    dtypes.float16: ("0x", ">e"),
    dtypes.float32: ("0f", ">f"),
    dtypes.float64: ("0d", ">d"),
}
_NAMES = re.compile(r"%\w+")


def kind_of(dtype: DType) -> str:
    """The kind of register that holds a value of `dtype`."""
    scalar = dtype.scalar
    if scalar is dtypes.bool:
        return "pred"
    if scalar in _FLOAT_KINDS:
        return _FLOAT_KINDS[scalar]
    return "b64" if scalar.itemsize == 8 else "b32"


def letter(dtype: DType) -> str:
    """The type of arithmetic on registers that hold `dtype`: s32, u64, f16."""
    scalar = dtype.scalar
    if scalar is dtypes.bfloat16:
        return "bf16"
    if scalar.is_float:
        return f"f{scalar.bits}"
    return f"{'s' if scalar.kind == 'int' else 'u'}{max(scalar.bits, 32)}"


def literal(value: float | int, dtype: DType) -> str:
    """A number as instructions take it: floats by their bits."""
    scalar = dtype.scalar
    if scalar in _CODES:
        prefix, code = _CODES[scalar]
        return prefix + struct.pack(code, value).hex().upper()
    if scalar is dtypes.bfloat16:
        return "0x" + struct.pack(">f", value).hex().upper()[:4]
    number = int(value)
    return str(number) if -(2**31) <= number < 2**32 else f"0x{number & (2**64 - 1):X}"


def capability(target: Target) -> int:
    """The number of the architecture: 90 of "sm_90a"."""
    return int("".join(letter for letter in target.isa if letter.isdigit()))


def root(node: UOp) -> UOp:
    """The memory or variable behind `node`: AFTER and ASSIGN are their first source."""
    while node.op is Ops.AFTER or node.op is Ops.ASSIGN:
        node = node.src[0]
    return node


def uniform(target: str, source: str) -> str:
    """A line that sets `target` to a value that is equal in all lanes of a warp, in a way that lets
    `ptxas` know so: it has registers and arithmetic of their own for such values.
    """
    return f"shfl.sync.idx.b32 {target}, {source}, 0, 31, 0xffffffff"


class Code:
    """A kernel in the making.

    `free_maxima` are the maxima of floats that may give either zero where both are equal.
    """

    def __init__(self, target: Target):
        self.target = target
        self.capability = capability(target)
        self.values: dict[UOp, tuple[str, ...]] = {}
        self.free_maxima: set[UOp] = set()
        self.head: list[str] = []
        self.lines: list[str] = []
        # By register, the function that writes the lines that set it.
        self._later: dict[str, Callable[[], None]] = {}
        self._counts = dict.fromkeys(_PREFIXES, 0)
        self._constants: dict[tuple[str, str], str] = {}
        self._labels = 0

    # registers and lines

    def new(self, kind: str) -> str:
        """A register that no line has used."""
        self._counts[kind] += 1
        return f"%{_PREFIXES[kind]}{self._counts[kind] - 1}"

    def label(self) -> str:
        self._labels += 1
        return f"$L{self._labels - 1}"

    def emit(self, line: str) -> None:
        for name in _NAMES.findall(line) if self._later else ():
            self._make(name)
        self.lines.append(f"  {line};")

    def make_later(self, names: Sequence[str], write: Callable[[], None]) -> None:
        """Call `write` in front of the first line that has one of these registers."""
        self._later |= dict.fromkeys(names, write)

    def make_all(self) -> None:
        """Write what is to come before what follows, as a loop."""
        for name in list(self._later):
            self._make(name)

    def _make(self, name: str) -> None:
        if write := self._later.get(name):
            self._later = {each: other for each, other in self._later.items() if other is not write}
            write()

    def mark(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def op(self, kind: str, instruction: str, *operands: str) -> str:
        """A new register of `kind`, set by the instruction."""
        made = self.new(kind)
        self.emit(f"{instruction} {', '.join([made, *operands])}")
        return made

    def begin(self, line: str) -> None:
        """A line at the head of the kernel."""
        self.head.append(f"  {line};")

    def registers(self) -> list[str]:
        """The declarations."""
        return [
            f"  .reg .{kind} %{prefix}<{self._counts[kind]}>;"
            for kind, prefix in _PREFIXES.items()
            if self._counts[kind]
        ]

    # operands

    def lanes(self, node: UOp) -> tuple[str, ...]:
        """The operands that hold `node`, one per lane; a number stands for itself where
        instructions take it.
        """
        found = self.values.get(node)
        if found is None:
            if node.op is not Ops.CONST:
                raise CompileError(f"render.ptx: a {node.op.name} node is used before it is made")
            found = self.values[node] = (self.constant(node.arg, node.dtype),) * node.dtype.lanes
        return found

    def scalar(self, node: UOp) -> str:
        return self.lanes(node)[0]

    def constant(self, value: float | int, dtype: DType) -> str:
        """The operand for a number: a register where no immediate can be written."""
        kind = kind_of(dtype)
        if kind == "pred":
            return self.in_register("1" if value else "0", kind)
        text = literal(value, dtype)
        return self.in_register(text, kind) if kind == "b16" else text

    def in_register(self, operand: str, kind: str) -> str:
        """The operand in a register: some instructions take nothing else."""
        if operand.startswith("%"):
            return operand
        found = self._constants.get((kind, operand))
        if found is None:
            found = self._constants[kind, operand] = self.new(kind)
            if kind == "pred":
                self.begin(f"setp.ne.b32 {found}, {operand}, 0")
            else:
                self.begin(f"mov.{kind} {found}, {operand}")
        return found

    def registers_of(self, operands: Sequence[str], kind: str) -> list[str]:
        return [self.in_register(operand, kind) for operand in operands]


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
