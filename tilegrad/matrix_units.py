"""Matrix units of known hardware: which lane holds which element of each operand (`MatrixUnit`),
with the document that each layout was read in.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, dtypes
from tilegrad.target import MatrixUnit, Position

__all__ = [
    "dot_unit", "matrix_unit", "mfma", "mma", "mma_of_bytes", "mma_of_tf32", "pair_of", "simdgroup",
    "tcgen05",
    "wgmma", "wmma",
]  # fmt: skip

_WARP = range(32)
# Digits behind the point of a float32 as `.tf32` has it (PTX ISA, "Alternate Floating-Point Data
# Formats").
_TF32 = 10


def mma(k: int, dtype_in: DType, dtype_out: DType) -> MatrixUnit:
    """PTX's `mma.m16n8k{k}` for 16-bit operands. Lane 4*g+t holds rows g and g+8 of a and c, and
    column g of b.

    An operand comes in pairs: two neighbours along k in a and b, two neighbouring columns in c;
    each 8 of k adds pairs.
    """
    a, b, c = [], [], []
    for lane in _WARP:
        g, t = divmod(lane, 4)
        steps = [(step, pair) for step in range(0, k, 8) for pair in (0, 1)]
        a.append(
            tuple(
                (g + row, 2 * t + pair + step)
                for step in range(0, k, 8)
                for row in (0, 8)
                for pair in (0, 1)
            )
        )
        b.append(tuple((2 * t + pair + step, g) for step, pair in steps))
        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))
    name = f"mma.m16n8k{k}.{dtype_in.name}.{dtype_out.name}"
    return MatrixUnit(name, 16, 8, k, 32, dtype_in, dtype_out, tuple(a), tuple(b), tuple(c))


def mma_of_bytes(dtype_in: DType) -> MatrixUnit:
    """PTX's `mma.m16n8k32` for integers and floats of 8 bits, with sums of 32 (PTX ISA, "Matrix
    Fragments for mma.m16n8k32"). Lanes, rows and columns are those of `mma`; an operand comes in
    fours along k.
    """
    a, b, c = [], [], []
    for lane in _WARP:
        g, t = divmod(lane, 4)
        a.append(
            tuple(
                (g + row, 4 * t + four + step)
                for step in (0, 16)
                for row in (0, 8)
                for four in range(4)
            )
        )
        b.append(tuple((4 * t + four + step, g) for step in (0, 16) for four in range(4)))
        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))
    dtype_out = dtypes.float32 if dtype_in.is_float else dtypes.int32
    name = f"mma.m16n8k32.{dtype_in.name}.{dtype_out.name}"
    layouts = (tuple(a), tuple(b), tuple(c))
    return MatrixUnit(name, 16, 8, 32, 32, dtype_in, dtype_out, *layouts)


def mma_of_tf32() -> MatrixUnit:
    """PTX's `mma.m16n8k8` for float32 with fractions of 10 digits (PTX ISA, "Matrix Fragments for
    mma.m16n8k8", type .tf32). Lanes, rows and columns are those of `mma`; an operand has single
    elements, 4 apart along k.
    """
    a, b, c = [], [], []
    for lane in _WARP:
        g, t = divmod(lane, 4)
        a.append(tuple((g + row, t + step) for step in (0, 4) for row in (0, 8)))
        b.append(tuple((t + step, g) for step in (0, 4)))
        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))
    kind, layouts = dtypes.float32, (tuple(a), tuple(b), tuple(c))
    return MatrixUnit("mma.m16n8k8.tf32.float32", 16, 8, 8, 32, kind, kind, *layouts, digits=_TF32)


def wgmma(n: int, dtype_in: DType, *, takes_left: bool = False) -> MatrixUnit:
    """PTX's `wgmma.mma_async.m64n{n}k16` for 16-bit operands in shared memory, `k32` for bytes, and
    `k8` for `.tf32` (PTX ISA, "wgmma.mma_async", matrix shapes), on the 128 lanes of four warps
    ("Register Fragments and Shared Memory Matrix Layouts").
    Lane 4*g+t of warp w holds of c the rows 16*w+g and 16*w+g+8, at pairs of columns 8 apart.

    Each lane has a vector of 16 bytes of a along k, and vectors of columns of b that are 64 or 128
    apart. One that `takes_left` has a in registers, 16 rows for each warp ("Register Fragments for
    wgmma.mma_async.m64nNk16"): as the a of `mma`.
    """
    a, b, c = [], [], []
    vector = 16 // dtype_in.itemsize
    for lane in range(128):
        warp, (g, t) = lane // 32, divmod(lane % 32, 4)
        half, row = divmod(lane, 64)
        a.append(tuple((row, vector * half + step) for step in range(vector)))
        if n == 64:
            b.append(tuple((vector * half + step, row) for step in range(vector)))
        else:
            columns = range(lane, n, 128)
            b.append(tuple((step, column) for column in columns for step in range(2 * vector)))
        c.append(
            tuple(
                (16 * warp + g + row, 2 * t + pair + column)
                for column in range(0, n, 8)
                for row in (0, 8)
                for pair in (0, 1)
            )
        )
    k, dtype_out = 2 * vector, dtypes.float32 if dtype_in.is_float else dtypes.int32
    is_short = dtype_in is dtypes.float32
    name = f"wgmma.m64n{n}k{k}.{'tf32' if is_short else dtype_in.name}"
    if takes_left:
        name += ".registers"
        rows = mma(16, dtype_in, dtypes.float32).a_layout
        a = [tuple((16 * warp + i, j) for i, j in lane) for warp in range(4) for lane in rows]
    layouts = (tuple(a), tuple(b), tuple(c))
    return MatrixUnit(
        name, 64, n, k, 128, dtype_in, dtype_out, *layouts,
        synchronous=False, row_bytes=128, digits=_TF32 * is_short, takes_left=takes_left,
    )  # fmt: skip


def tcgen05(n: int, dtype_in: DType, *, blocks: int = 1) -> MatrixUnit:
    """PTX's `tcgen05.mma` with 128 rows for each of one or two blocks (`cta_group`) and n columns
    (PTX ISA, "Matrix Shape"): row i of a block's results is lane i of its tensor memory ("Data Path
    Layout Organization", M = 128 of one block, M = 256 of two). A warp loads from the 32 lanes that
    its number modulo 4 says; where there are eight warps, the last four have the second half of the
    columns. A load of 16 lanes by 256 bits gives lane 4*g+t of a warp of the rows g and g+8 pairs
    of columns 8 apart ("Data Movement Shape", .16x256b).

    Each lane has a row of an operand, or a slice of its terms where several lanes share the row.
    Each of two blocks has half of the columns of b. Terms are those of 32 bytes: 8 of `.tf32`, kind
    2 of table 42 of the ISA.
    """
    lanes = 256 if n >= 128 else 128
    k = 32 // dtype_in.itemsize

    def share(lane: int, rows: int) -> tuple[Position, ...]:
        """Rows and terms of an operand that a block has, which one of its lanes has."""
        chunk, row = divmod(lane % lanes, rows)
        terms = k * rows // lanes
        return tuple((lane // lanes * rows + row, terms * chunk + step) for step in range(terms))

    columns, every = n * 128 // lanes, range(blocks * lanes)
    a = tuple(share(lane, 128) for lane in every)
    b = tuple(tuple((term, row) for row, term in share(lane, n // blocks)) for lane in every)
    c = tuple(
        tuple(
            (
                lane // lanes * 128 + lane // 32 % 4 * 32 + g + row,
                lane % lanes // 128 * columns + column + 2 * t + pair,
            )
            for half in (0, 16)
            for column in range(0, columns, 8)
            for row in (half, half + 8)
            for pair in (0, 1)
        )
        for lane in every
        for g, t in [divmod(lane % 32, 4)]
    )
    m, dtype_out = 128 * blocks, dtypes.float32 if dtype_in.is_float else dtypes.int32
    is_short = dtype_in is dtypes.float32
    name = f"tcgen05.m{m}n{n}k{k}.{'tf32' if is_short else dtype_in.name}"
    return MatrixUnit(
        name, m, n, k, blocks * lanes, dtype_in, dtype_out, a, b, c,
        synchronous=False, row_bytes=128, digits=_TF32 * is_short, columns=n, blocks=blocks,
    )  # fmt: skip


def pair_of(unit: MatrixUnit) -> MatrixUnit:
    """The unit of two blocks, each with the rows of this one."""
    return tcgen05(unit.n, unit.dtype_in, blocks=2)


def simdgroup(dtype_in: DType, dtype_out: DType) -> MatrixUnit:
    """Apple's `simdgroup_matrix<8,8>`: two neighbours in a row per lane, lanes in quads that tile 4
    rows by 4 columns.
    """
    layout = []
    for lane in _WARP:
        quad = lane // 4
        row, column = (quad & 4) + lane // 2 % 4, 2 * (quad & 2) + 2 * (lane % 2)
        layout.append(((row, column), (row, column + 1)))
    name = f"simdgroup.8x8.{dtype_in.name}.{dtype_out.name}"
    same = tuple(layout)
    return MatrixUnit(name, 8, 8, 8, 32, dtype_in, dtype_out, same, same, same)


def mfma(k: int, dtype_in: DType) -> MatrixUnit:
    """CDNA's `v_mfma_f32_16x16x{k}` on 64 lanes ("AMD Instinct MI200 Instruction Set Architecture",
    matrix arithmetic). Lane 16*g+i holds row i of a and column i of b, at k/4 neighbours in depth
    from k/4*g on, and of column i of c the rows 4*g to 4*g+3.
    """
    a, b, c = [], [], []
    registers = k // 4
    for lane in range(64):
        group, i = divmod(lane, 16)
        a.append(tuple((i, registers * group + step) for step in range(registers)))
        b.append(tuple((registers * group + step, i) for step in range(registers)))
        c.append(tuple((4 * group + row, i) for row in range(4)))
    name = f"mfma.16x16x{k}.{dtype_in.name}"
    return MatrixUnit(name, 16, 16, k, 64, dtype_in, dtypes.float32, tuple(a), tuple(b), tuple(c))


def wmma(generation: int, dtype_in: DType) -> MatrixUnit:
    """RDNA's `v_wmma_f32_16x16x16` on 32 lanes ("RDNA3 Instruction Set Architecture" and that of
    RDNA4). Lane 16*g+i has row i of a and column i of b: up to generation 11 whole, so that both
    halves of the lanes hold the same, from 12 on 8 neighbours in depth from 8*g on. Up to
    generation 11 it holds every second row of column i of c from g on, then the rows 8*g to 8*g+7.
    """
    a, b, c = [], [], []
    is_split = generation >= 12
    for lane in _WARP:
        group, i = divmod(lane, 16)
        depths = [8 * group + step for step in range(8)] if is_split else list(range(16))
        a.append(tuple((i, depth) for depth in depths))
        b.append(tuple((depth, i) for depth in depths))
        c.append(tuple((8 * group + row if is_split else 2 * row + group, i) for row in range(8)))
    name = f"wmma{generation}.16x16x16.{dtype_in.name}"
    return MatrixUnit(name, 16, 16, 16, 32, dtype_in, dtypes.float32, tuple(a), tuple(b), tuple(c))


def dot_unit(k: int, left: DType, right: DType, dtype_out: DType) -> MatrixUnit:
    """An instruction that adds `k` products to each lane of a vector: `vdpbf16ps` (two of bfloat16
    to a float32), `vpdpbusd` (four of uint8 by int8 to an int32).
    """
    row = (tuple((0, depth) for depth in range(k)),)
    column = (tuple((depth, 0) for depth in range(k)),)
    name = f"dot{k}.{left.name}.{right.name}.{dtype_out.name}"
    other = None if left is right else right
    return MatrixUnit(
        name, 1, 1, k, 1, left, dtype_out, row, column, (((0, 0),),), dtype_right=other
    )


def matrix_unit(
    name: str,
    m: int,
    n: int,
    k: int,
    lanes: int,
    dtype_in: DType,
    dtype_out: DType,
    synchronous: bool = True,
    dtype_right: DType | None = None,
    row_bytes: int = 0,
    digits: int = 0,
    columns: int = 0,
    takes_left: bool = False,
    blocks: int = 1,
) -> MatrixUnit:
    """The unit whose text has these fields; its layouts follow from its kind."""
    del m, synchronous, row_bytes, columns
    if name.startswith("wgmma"):
        return wgmma(n, dtype_in, takes_left=takes_left)
    if name.startswith("tcgen05"):
        return tcgen05(n, dtype_in, blocks=blocks)
    if digits:
        return mma_of_tf32()
    if name.startswith("mfma"):
        return mfma(k, dtype_in)
    if name.startswith("wmma"):
        return wmma(int(name[4:6]), dtype_in)
    if lanes == 1:
        return dot_unit(k, dtype_in, dtype_right or dtype_in, dtype_out)
    if name.startswith("mma"):
        return mma_of_bytes(dtype_in) if k == 32 else mma(k, dtype_in, dtype_out)
    return simdgroup(dtype_in, dtype_out)
