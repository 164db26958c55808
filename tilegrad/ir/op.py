"""Every op, defined once: its number of sources, its meaning, and the stages at which it is
allowed (`ir/definition.py`).

Inference, constant folding, the interpreter, the specs, the rule checker and docs/ops.md read these
definitions; no other file lists ops again. Ops that compute have an `evaluate` on plain Python
numbers, which defines their meaning (`ir/scalar_math.py`).
"""

from __future__ import annotations

import math
import operator

from tilegrad.base.members import Members
from tilegrad.ir.definition import Definition, Stage, op
from tilegrad.ir.scalar_math import (
    c_divide,
    cos,
    divide,
    exp,
    exp2,
    floor_divide,
    floor_modulo,
    fmod,
    log2,
    maximum,
    multiply,
    scale,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    truncate,
)

__all__ = ["UNROLLED", "Axis", "Ops"]


class Axis(Members):
    """Kinds of a range. `LOOP` is a plain loop over outputs, `REDUCE` one over the terms of a
    reduction; the others shape a kernel.
    """

    GLOBAL = "global"
    LOCAL = "local"
    THREAD = "thread"
    LOOP = "loop"
    GROUP = "group"
    REDUCE = "reduce"
    UPCAST = "upcast"
    UNROLL = "unroll"
    STAGE = "stage"


UNROLLED = (Axis.UPCAST, Axis.UNROLL)
"""The axes whose iterations are copies side by side, which may become lanes."""


class Ops(Members):
    """The ops by name; see `docs/ops.md` for the generated page."""

    # leaves
    CONST = op(
        0, "One number of the node's dtype, in every lane of a vector dtype. `arg` is the number."
    )
    BUFFER = op(
        0,
        "A leaf of the tensor graph: `arg` is BufferArg(slot, device, size), or GroupBufferArg "
        "where several devices have a range of the elements each, or all. The memory behind it "
        "lives as long as the node.",
        Stage.TENSOR,
    )
    RAND = op(
        0,
        "Uniform 32-bit random words of shape `arg.shape`, fixed by (seed, offset) when the node "
        "is made: element i of a "
        "draw is word offset+i of the stream, whatever computes it.",
        Stage.TENSOR,
        price=110,
        instructions=110,
    )
    DEFINE_VAR = op(
        0, "A symbolic integer that a launch gives: `arg` is (name, smallest, largest)."
    )
    BIND = op(
        2,
        "A variable (source 0) with its value (source 1); it stands in sizes that users write, "
        "never in a graph.",
        Stage.TENSOR,
    )
    DEFINE_GLOBAL = op(
        0, "Pointer parameter number `arg` of a kernel. The outputs come first.", Stage.CODE
    )
    DEFINE_LOCAL = op(
        None,
        "Memory inside a kernel, in the address space of its pointer dtype: shared by a block, or "
        "scratch of one thread. The sources are ranges, whose iterations have a copy each; `arg` "
        "is its number.",
        Stage.CODE,
    )
    DEFINE_ACC = op(
        None,
        "A register variable, initialised to its first source; the other sources are the ranges "
        "around it. A use reads its value at that moment.",
        Stage.CODE,
    )
    SPECIAL = op(
        0, "The position in the launch: `arg` is (name, extent), as in ('gidx0', 16).", Stage.CODE
    )
    RANGE = op(1, "A loop variable from 0 up to its source; `arg` is (number, Axis).", Stage.CODE)

    # movement: the same elements under another index
    RESHAPE = op(
        1,
        "The same elements in the same row-major order, under another shape (`arg`).",
        Stage.TENSOR,
    )
    PERMUTE = op(
        1,
        "Axes in another order: axis i of the result is axis `arg[i]` of the source.",
        Stage.TENSOR,
    )
    EXPAND = op(1, "Axes of size 1 repeated up to the shape `arg`.", Stage.TENSOR)
    PAD = op(1, "Zeros around: `arg[i]` is (before, after) for axis i.", Stage.TENSOR)
    SHRINK = op(1, "A slice: `arg[i]` is (start, end) for axis i.", Stage.TENSOR)
    FLIP = op(1, "Axes reversed where `arg[i]` is true.", Stage.TENSOR)

    # tensor level
    REDUCE_AXIS = op(
        1, "Axes reduced to size 1: `arg` is (op, axes), or (MAX, axes, ties).", Stage.TENSOR
    )
    PREFIX_AXIS = op(
        1,
        "A scan along an axis: element i is the reduction of elements 0 to i; `arg` is (op, axis).",
        Stage.TENSOR,
    )
    GATHER = op(
        2,
        "Rows of source 0 picked by the integers of source 1 along axis 0; a row outside the "
        "table is zero.",
        Stage.TENSOR,
    )
    SCATTER_ADD = op(
        3,
        "Source 0 with the rows of source 2 added at the rows that source 1 names; rows outside "
        "are dropped. The cost is "
        "that of the rows added, not of the table.",
        Stage.TENSOR,
    )
    CONTIGUOUS = op(1, "The same value, stored in memory of its own.", Stage.TENSOR)
    DETACH = op(1, "The same value, through which no gradient flows.", Stage.TENSOR)
    COPY = op(1, "The same value on the device `arg`.", Stage.TENSOR)
    SHARD = op(
        1,
        "The same value on several devices: `arg` is Placement(devices, axis, bounds). Each device "
        "has its range of the axis, or all of it where the axis is None.",
        Stage.TENSOR,
    )
    ASSIGN = op(
        2,
        "In a tensor graph: source 0, a buffer or a view of one, once source 1 has been written "
        "to it. In a program: the "
        "register variable source 0 set to source 1.",
    )

    # one number in, one out
    CAST = op(
        1,
        "The value in another dtype: integers wrap around; a float goes toward zero, to the "
        "nearest integer that the dtype has if it lies outside, and NaN to 0.",
        instructions=11,
    )
    BITCAST = op(1, "The same bits read as another dtype of the same width.")
    NEG = op(1, "-x.", evaluate=operator.neg, symbol="-")
    EXP = op(1, "e to the power x.", evaluate=exp, symbol="exp", price=13, instructions=25)
    EXP2 = op(1, "2 to the power x.", evaluate=exp2, symbol="exp2", price=12, instructions=25)
    LOG2 = op(
        1,
        "Logarithm to base 2; NaN below zero.",
        evaluate=log2,
        symbol="log2",
        price=14,
        instructions=35,
    )
    SIN = op(1, "Sine of x in radians.", evaluate=sin, symbol="sin", price=20, instructions=110)
    COS = op(1, "Cosine of x in radians.", evaluate=cos, symbol="cos", price=20, instructions=110)
    # Every target has these two made of an exponential by lower.decompose.
    TANH = op(
        1, "Hyperbolic tangent.", Stage.TENSOR | Stage.KERNEL, evaluate=math.tanh, symbol="tanh",
        price=39, instructions=48,
    )  # fmt: skip
    SIGMOID = op(
        1, "1 / (1 + exp(-x)).", Stage.TENSOR | Stage.KERNEL, evaluate=sigmoid, symbol="sigmoid",
        price=22, instructions=31,
    )  # fmt: skip
    SQRT = op(
        1,
        "Square root.",
        evaluate=lambda x: math.sqrt(x) if x >= 0 else math.nan,
        symbol="sqrt",
        price=6,
    )
    RECIP = op(1, "1/x.", evaluate=lambda x: divide(1.0, x), symbol="1/", price=4)
    TRUNC = op(1, "x rounded toward zero, in the same dtype.", evaluate=truncate, symbol="trunc")

    # two numbers in
    ADD = op(2, "x + y.", evaluate=operator.add, symbol="+", commutes=True, identity=lambda d: 0)
    SUB = op(2, "x - y.", evaluate=operator.sub, symbol="-")
    MUL = op(2, "x * y.", evaluate=multiply, symbol="*", commutes=True, identity=lambda d: 1)
    FDIV = op(2, "x / y of floats, correctly rounded.", evaluate=divide, symbol="/", price=4)
    FLOORDIV = op(
        2,
        "Quotient rounded toward minus infinity, as in Python. C's `/` rounds toward zero; "
        "lower.decompose bridges the two. "
        "A zero divisor gives 0.",
        evaluate=floor_divide,
        symbol="//",
        price=8,
        instructions=12,
    )
    FLOORMOD = op(
        2,
        "Remainder of FLOORDIV: it has the sign of the divisor. 0 for a zero divisor.",
        evaluate=floor_modulo,
        symbol="%",
        price=8,
        instructions=12,
    )
    IDIV = op(
        2,
        "Quotient of integers rounded toward zero, as in C; 0 for a zero divisor.",
        evaluate=c_divide,
        symbol="/",
        price=8,
    )
    MOD = op(
        2,
        "Remainder of IDIV: it has the sign of the dividend.",
        evaluate=lambda x, y: x - y * c_divide(x, y),
        symbol="%",
        price=8,
    )
    FMOD = op(
        2,
        "Remainder of floats: exact, with the sign of x, as C's fmod. NaN for an infinite x or a "
        "zero y.",
        evaluate=fmod,
        symbol="fmod",
        price=16,
        instructions=50,
    )
    MAX = op(
        2,
        "The larger of the two, the first of equal ones (as are 0.0 and -0.0); NaN if either is. A "
        "reduction keeps no order, so a zero of it may have either sign.",
        evaluate=maximum,
        symbol="max",
        commutes=True,
        identity=lambda d: d.min,
    )
    CMPLT = op(2, "x < y.", evaluate=operator.lt, symbol="<", boolean=True)
    CMPNE = op(2, "x != y.", evaluate=operator.ne, symbol="!=", commutes=True, boolean=True)
    CMPEQ = op(2, "x == y.", evaluate=operator.eq, symbol="==", commutes=True, boolean=True)
    AND = op(
        2,
        "Bitwise and; logical for bool.",
        evaluate=operator.and_,
        symbol="&",
        commutes=True,
        identity=lambda d: d.max,
    )
    OR = op(
        2,
        "Bitwise or; logical for bool.",
        evaluate=operator.or_,
        symbol="|",
        commutes=True,
        identity=lambda d: 0,
    )
    XOR = op(
        2,
        "Bitwise exclusive or; logical for bool.",
        evaluate=operator.xor,
        symbol="^",
        commutes=True,
        identity=lambda d: 0,
    )
    SHL = op(
        2,
        "x shifted left by y bits, wrapped around. An amount of the width or more gives 0; y is "
        "read as an unsigned number, so a negative amount is such a one.",
        evaluate=shift_left,
        symbol="<<",
    )
    SHR = op(
        2,
        "x shifted right by y bits; the sign is kept for signed types. An amount of the width or "
        "more, or a negative one, leaves nothing but the sign: 0, or -1 for a negative x.",
        evaluate=shift_right,
        symbol=">>",
    )

    SCALE = op(
        2,
        "x times 2 to the power y rounded down, rounded once. lower.decompose uses it for "
        "exponentials where a target has it.",
        Stage.PROGRAM,
        evaluate=scale,
        symbol="scale",
    )

    EXP2_APPROX = op(
        1,
        "2 to the power x, at most a 2**-22nd of it away (2 units in the last place of float32); "
        "results below the smallest normal number may be 0. `optimize.opts.slices_on_units` uses "
        "it for what is rounded to 16 bits.",
        Stage.CODE,
        evaluate=exp2,
        symbol="exp2_approx",
        price=4,
    )

    # three
    WHERE = op(
        3,
        "Source 1 where source 0 (a bool) is true, else source 2.",
        evaluate=lambda c, x, y: x if c else y,
    )
    MULACC = op(
        3,
        "x * y + z, rounded once for floats where the target can. It stands only where a sum of "
        "products was asked for.",
        evaluate=lambda x, y, z: x * y + z,
    )

    # memory and control
    LOAD = op(
        None,
        "(buffer, index[, alternative, gate]): the element, or the alternative where the gate is "
        "false.",
        Stage.CODE,
        price=4,
    )
    STORE = op(
        None,
        "(buffer, index, value[, gate]): write the value where the gate is true. `arg` may be a "
        "combining op: the element "
        "becomes op(element, value).",
        Stage.CODE,
        price=4,
    )
    REDUCE = op(
        None, "(value, *ranges): the value reduced over the ranges by the op `arg`.", Stage.KERNEL
    )
    RESCALED = op(
        2,
        "(value, factor), the value of a REDUCE by ADD: the sum so far is multiplied by the factor "
        "before the value is added.",
        Stage.KERNEL,
    )
    PREFIX = op(
        None,
        "(*values, *ranges): a scan. The reduction of the values of all earlier iterations of the "
        "ranges and of the first `count` values of this one; `arg` is (op, count). It does not "
        "close the ranges.",
        Stage.KERNEL,
    )
    VECTORIZE = op(None, "A vector of its sources, one per lane.", Stage.CODE)
    GEP = op(1, "The lanes `arg` of a vector, in that order; a scalar for one lane.", Stage.CODE)
    AFTER = op(
        None,
        "Source 0 after the effects of the other sources. In a tensor graph: memory, after source "
        "1, an ASSIGN to it or to a view of it.",
    )
    END = op(
        None,
        "In a kernel: (*effects, *ranges), the effects once the ranges have run. In a program: "
        "(range,), the end of the loop.",
        Stage.CODE,
    )
    BARRIER = op(
        None,
        "Every lane of the block waits here until all have come. `arg` is the number of tiles in "
        "shared memory of each operand that is filled before it, if it is not two.",
        Stage.CODE,
    )
    SHUFFLE = op(
        1,
        "The source's value in another lane of the warp: the lane whose number differs in the bits "
        "of `arg`. All lanes of the warp come here together.",
        Stage.CODE,
    )
    WMMA = op(
        3,
        "a @ b + c on a matrix unit, each operand spread over the lanes of a group as `arg`, a "
        "MatrixUnit, says.",
        Stage.CODE,
    )
    COPY_ASYNC = op(
        None,
        "A STORE to shared memory of what a LOAD reads, which goes on while the lane does: nobody "
        "may touch the elements before the lane has waited.",
        Stage.CODE,
    )
    WAIT = op(
        None,
        "The lane waits here until its own copies have landed. What it has begun since its last "
        "WAIT is one group; with `arg`, the latest so many groups need not have landed. Of a "
        "value: until the matrix units that give it have, and have read their operands; with "
        "`arg`, those before the latest so many WAITs have, and only a unit may add to the value.",
        Stage.CODE,
    )
    COPY_TILE = op(
        None,
        "(memory, index, source, barriers, number, gate, *coordinates): the lane begins to copy a "
        "box of a matrix in global memory, `arg` of which (a TileMap) begins at `coordinates`, to "
        "shared memory from `index` on, if the gate is open. What lies outside of the matrix is 0. "
        "Its bytes count for barrier `number`; nobody may touch the elements before the phase has "
        "ended. Where `arg` says several blocks, those of a cluster, it comes to the same place in "
        "each of them, and counts for the same barrier of each.",
        Stage.CODE,
    )
    ARRIVE = op(
        3,
        "(barriers, number, gate): the lane arrives at a barrier of copies in shared memory and "
        "says that copies of `arg` bytes belong to this phase, which ends as all of these have "
        "landed. One lane arrives in each phase.",
        Stage.CODE,
    )
    ELECT = op(
        1,
        "Whether the lane, whose number in its block is the source, is the one that is chosen of "
        "those of the first warp.",
        Stage.CODE,
    )
    WAIT_TILE = op(
        3,
        "(barriers, number, parity): the lane waits here until a phase of a barrier of copies has "
        "ended, an even one (0) or an odd one (1).",
        Stage.CODE,
    )
    DESCRIPTOR = op(
        3,
        "(values, memory, index): an operand that a matrix unit reads from shared memory by "
        "itself, from `index` on, in rows of 8 vectors that are swizzled (MatrixUnit). `values` "
        "is a lane's share of it. `arg` is (leading, stride, is transposed): how many elements "
        "lie between groups of 8 rows (stride), and, of an operand whose rows run across the sum, "
        "between its rows of one term (leading).",
        Stage.CODE,
    )
    FRAGMENT = op(
        1,
        "What a lane of a group of 32 holds of matrices for a matrix unit, of 8 rows of 16 bytes, "
        "where lane l gives row l % 8 of matrix l // 8: of each, 4 bytes of row l // 4, or, of "
        "8x8 elements of 16 bits, two neighbours in that column, if it is transposed. `arg` is "
        "(number of matrices, is transposed).",
        Stage.CODE,
    )
    SINK = op(
        None, "The root: all effects of a kernel, or all values that a schedule must compute."
    )

    # by Python
    CUSTOM = op(
        None,
        "(*inputs): the result of the Python function or kernel graph in `arg` for whole values, "
        "a step of its own.",
        Stage.TENSOR,
    )

    # many times
    LOOP = op(
        None,
        "(*first values, *stacks, *shared): the graph in `arg`, a LoopArg, run once per step. Its "
        "outputs are LOOP_OUTPUTs.",
        Stage.TENSOR,
    )
    LOOP_OUTPUT = op(
        1,
        "Output number `arg` of a LOOP: the last value of each carry, then the stacked values of "
        "its steps, then the stacked values of each carry before each step.",
        Stage.TENSOR,
    )

    def __init__(self, serial: int, definition: Definition):
        self.serial = serial
        self.definition = definition
        self.evaluate = definition.evaluate
        self.is_alu = definition.evaluate is not None
        self.is_movement = False
        self.commutes = definition.commutes
        self.is_boolean = definition.boolean

    def __lt__(self, other: Ops) -> bool:
        return self.serial < other.serial


for _movement in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP):
    _movement.is_movement = True
