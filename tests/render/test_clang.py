"""Host C computes what the ops say, for scalars and for vectors: compiled by gcc, compared with
`Ops.evaluate`.
"""

from __future__ import annotations

import ctypes
import math
import random
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.render.programs import BOOL, INT, const, data, end, gcc, load, loop
from tilegrad.base.dtype import DType, dtypes, truncate
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.cstyle import ClangRenderer

SIZE = 64
NATIVE = [dtype for dtype in dtypes.all if dtype not in dtypes.fp8s]
CODES = dict(zip(NATIVE, "?bhiqBHIQe_fd", strict=True))
DTYPES = [
    BOOL,
    dtypes.char,
    dtypes.ushort,
    INT,
    dtypes.long,
    dtypes.half,
    dtypes.float,
    dtypes.double,
]
COMPARISONS = [Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ]
BITS = [Ops.AND, Ops.OR, Ops.XOR]
UNARY = {"float": [Ops.NEG, Ops.SQRT, Ops.RECIP], "int": [Ops.NEG], "uint": [Ops.NEG], "bool": []}
BINARY = {
    "float": [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, *COMPARISONS],
    "int": [Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.IDIV, Ops.MOD, *BITS, *COMPARISONS],
    "bool": [*BITS, Ops.MAX, Ops.ADD, Ops.MUL, *COMPARISONS],
}
BINARY["uint"] = BINARY["int"]


@dataclass(frozen=True)
class Case:
    """One op on arrays of `inputs`."""

    op: Ops
    inputs: tuple[DType, ...]
    output: DType
    lanes: int
    combine: Ops | None = None

    @property
    def name(self) -> str:
        inputs = "_".join(dtype.name for dtype in self.inputs)
        return f"{self.op.name}_{inputs}_to_{self.output.name}_{self.lanes}"

    def render(self) -> str:
        out = data(0, self.output, SIZE)
        arrays = [data(slot + 1, dtype, SIZE) for slot, dtype in enumerate(self.inputs)]
        counter = loop(SIZE // self.lanes, axis=Axis.LOOP)
        index = counter * self.lanes if self.lanes > 1 else counter
        loads = [load(array, index, lanes=self.lanes) for array in arrays]
        value = UOp(self.op, self.output.vec(self.lanes), tuple(loads))
        store = out.store(index, value)
        return ClangRenderer().render(
            self.name, [out, *arrays, counter, index, *loads, value, store, end(counter)]
        )


def cases() -> Iterator[Case]:
    for lanes in (1, 4):
        for dtype in DTYPES:
            for op in UNARY[dtype.kind]:
                yield Case(op, (dtype,), dtype, lanes)
            for op in BINARY[dtype.kind]:
                yield Case(op, (dtype, dtype), BOOL if op.is_boolean else dtype, lanes)
            yield Case(Ops.WHERE, (BOOL, dtype, dtype), dtype, lanes)
            for other in DTYPES:
                if other is not dtype:
                    yield Case(Ops.CAST, (dtype,), other, lanes)
        yield Case(Ops.MULACC, (INT, INT, INT), INT, lanes)
        for pair in ((INT, dtypes.float), (dtypes.float, INT), (dtypes.half, dtypes.ushort)):
            yield Case(Ops.BITCAST, pair[:1], pair[1], lanes)


CASES = list(cases())


def numbers(dtype: DType, source: random.Random) -> list[Any]:
    """Values of which half are awkward."""
    if dtype.is_float:
        odd = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 0.1, 3e4, 1e10, -1e10]
        made = [
            source.choice(odd) if source.random() < 0.5 else source.uniform(-4, 4)
            for _ in range(SIZE)
        ]
    elif dtype is BOOL:
        made = [source.random() < 0.5 for _ in range(SIZE)]
    else:
        low, high = int(dtype.min), int(dtype.max)
        odd = [0, 1, low, high, -1, 2, 3]
        made = [
            source.choice(odd) if source.random() < 0.5 else source.randint(low, high)
            for _ in range(SIZE)
        ]
    return [truncate(value, dtype) for value in made]


def whole(value: float, dtype: DType) -> int:
    """A float becomes the nearest integer toward zero that the dtype has, NaN 0."""
    if not math.isfinite(value):
        return 0 if value != value else int(dtype.max if value > 0 else dtype.min)
    return min(max(int(value), int(dtype.min)), int(dtype.max))


def expected(case: Case, arguments: list[Any]) -> Any:
    """What the op comes to."""
    (first, *_), source = arguments, case.inputs[0]
    if case.op is Ops.BITCAST:
        return struct.unpack(f"<{CODES[case.output]}", struct.pack(f"<{CODES[source]}", first))[0]
    if case.op is not Ops.CAST:
        assert case.op.evaluate is not None
        return truncate(case.op.evaluate(*arguments), case.output)
    if source.is_float and case.output.is_int:
        return whole(first, case.output)
    return truncate(first, case.output)


def is_same(got: Any, want: Any) -> bool:
    if got != got or want != want:
        return bool(got != got and want != want)
    return bool(got == want and math.copysign(1, got) == math.copysign(1, want))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All cases in one shared library."""
    above: dict[str, None] = {}
    kernels = []
    for case in CASES:
        head, kernel = case.render().split("\nvoid ")
        above |= dict.fromkeys(head.splitlines())
        kernels.append(f"void {kernel}")
    # A helper comes after all vector types, a vector type after its element.
    ordered = sorted(above, key=lambda line: (line.startswith("static"), "vector_size" in line))
    target: Path = tmp_path_factory.mktemp("clang") / "all.so"
    gcc(
        "-w",
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        str(target),
        "-lm",
        source="\n".join([*ordered, *kernels]),
    )
    return ctypes.CDLL(str(target))


@pytest.mark.row("R7.4")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op(case: Case, library: ctypes.CDLL) -> None:
    source = random.Random(case.name)
    inputs = [numbers(dtype, source) for dtype in case.inputs]
    memories = [
        ctypes.create_string_buffer(struct.pack(f"<{SIZE}{CODES[dtype]}", *values))
        for dtype, values in zip(case.inputs, inputs, strict=True)
    ]
    result = ctypes.create_string_buffer(SIZE * case.output.itemsize)
    library[case.name](result, *memories)
    got = struct.unpack(f"<{SIZE}{CODES[case.output]}", result.raw)
    for arguments, value in zip(zip(*inputs, strict=True), got, strict=True):
        want = expected(case, list(arguments))
        assert is_same(value, want), f"{arguments}: {value}, not {want}"


@pytest.mark.row("M8.4")
def test_one_as_integer_bits(library: ctypes.CDLL) -> None:
    ones = ctypes.create_string_buffer(struct.pack(f"<{SIZE}f", *([1.0] * SIZE)))
    result = (ctypes.c_int * SIZE)()
    library[Case(Ops.BITCAST, (dtypes.float,), INT, 4).name](result, ones)
    assert list(result) == [1065353216] * SIZE


def test_vectors_wider_than_the_machine_compile() -> None:
    rows, out = data(1, dtypes.float, 8), data(0, dtypes.float, 8)
    x = load(rows, const(0), lanes=8)
    value = (x < x.maximum(x * 2.0)).where(x, x + x)
    text = ClangRenderer().render([rows, out, x, value, out.store(const(0), value)])
    assert re.search(r"static inline float8 where_float8\(bool8 c,", text)
    gcc("-fsyntax-only", "-Wall", "-Werror", "-Wno-psabi", source=text)
