"""Graphs as text: what is printed reads back to the identical node, and infix text says what is
computed.
"""

from __future__ import annotations

import enum
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.values import evaluate
from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import DataError
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.ir.args import BufferArg, KernelInfo, RandArg
from tilegrad.ir.node_methods import show
from tilegrad.ir.text import dump, parse, parse_program, register, render

x = UOp.variable("x", 0, 10)
y = UOp.variable("y", 0, 3)
flag = UOp(Ops.DEFINE_VAR, dtypes.bool, (), ("flag", False, True))


# random graphs of every kind of node

SPECIAL_FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 5e-324, 0.1, -1.5, 1e300]
PARTS = [*dtypes.all, dtypes.index]


def random_dtype(rng: random.Random) -> DType:
    dtype: DType = rng.choice(PARTS)
    kind = rng.random()
    if kind < 0.2:
        dtype = dtype.vec(rng.choice((2, 4, 8)))
    if kind > 0.8:
        dtype = dtype.ptr(rng.choice((-1, 1, 16)), rng.choice(list(AddressSpace)))
    return dtype


def random_leaf(rng: random.Random) -> UOp:
    number = rng.randrange(4)
    makers: list[Any] = [
        lambda: UOp.const(rng.choice(dtypes.floats), rng.choice(SPECIAL_FLOATS)),
        lambda: UOp.const(rng.choice(dtypes.floats).vec(4), rng.choice(SPECIAL_FLOATS)),
        lambda: UOp.const(rng.choice((dtypes.int, dtypes.index)), rng.randint(-(2**31), 2**31 - 1)),
        lambda: UOp.const(dtypes.bool, rng.random() < 0.5),
        lambda: UOp.variable(rng.choice(("n", "it's", 'a"b', "back\\slash", "arg=x")), -number, 9),
        lambda: UOp.range(number + 1, number, rng.choice(list(Axis))),
        lambda: UOp(Ops.SPECIAL, dtypes.int, (), (f"gidx{number}", 16)),
        lambda: UOp(Ops.DEFINE_GLOBAL, random_dtype(rng), (), number),
        lambda: UOp(Ops.BUFFER, dtypes.float, (), BufferArg(number, "CPU:1", 16)),
        lambda: UOp(Ops.RAND, dtypes.uint, (), RandArg((2, number), 3, 1 << 40, "CPU")),
    ]
    return rng.choice(makers)()  # type: ignore[no-any-return]


def random_node(rng: random.Random, nodes: list[UOp]) -> UOp:
    a, b, c = (rng.choice(nodes) for _ in range(3))
    n = UOp.variable("size", 1, 8)
    makers: list[Any] = [
        lambda: UOp(rng.choice((Ops.ADD, Ops.MUL, Ops.MAX)), random_dtype(rng), (a, b)),
        lambda: UOp(Ops.WHERE, random_dtype(rng), (a, b, c)),
        lambda: UOp(rng.choice((Ops.CAST, Ops.EXP2)), random_dtype(rng), (a,)),
        lambda: UOp(Ops.REDUCE_AXIS, dtypes.float, (a,), (Ops.ADD, (0, 2))),
        lambda: UOp(Ops.RESHAPE, dtypes.float, (a,), (n * 2, 3, n)),
        lambda: UOp(Ops.SHRINK, dtypes.float, (a,), ((0, n), (1, 2))),
        lambda: UOp(Ops.FLIP, dtypes.float, (a,), (True, False)),
        lambda: UOp(Ops.GEP, dtypes.float, (a,), (1,)),
        lambda: UOp(Ops.COPY, dtypes.float, (a,), "CUDA:1"),
        lambda: UOp(Ops.STORE, dtypes.void, (a, b, c), Ops.ADD),
        lambda: UOp(Ops.SINK, dtypes.void, (a, b), KernelInfo("r_4", (0, 1))),
    ]
    return rng.choice(makers)()  # type: ignore[no-any-return]


def random_graph(seed: int) -> UOp:
    rng = random.Random(seed)
    nodes = [random_leaf(rng) for _ in range(rng.randint(1, 6))]
    for _ in range(rng.randint(0, 25)):
        nodes.append(random_node(rng, nodes[-8:]))
    return nodes[-1]


@given(st.integers(0, 2**32))
def test_printed_text_reads_back(seed: int) -> None:
    graph = random_graph(seed)
    assert parse(show(graph)) is graph


@given(st.integers(0, 2**32))
def test_dumped_text_reads_back(seed: int) -> None:
    graph = random_graph(seed)
    assert parse(dump(graph)) is graph


@pytest.mark.parametrize("value", SPECIAL_FLOATS)
@pytest.mark.parametrize("dtype", [*dtypes.floats, dtypes.float.vec(4)])
def test_float_constants_read_back(value: float, dtype: DType) -> None:
    node = UOp.const(dtype, value)
    assert parse(show(node)) is node
    assert parse(dump(node)) is node


def test_one_nan() -> None:
    """The NaN that arithmetic gives has another sign bit than `math.nan` on some machines."""
    assert UOp.const(dtypes.float, math.inf - math.inf) is UOp.const(dtypes.float, -math.nan)


def test_dump_text() -> None:
    a = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(16), (), 0)
    loop = UOp.range(4, 0)
    assert dump(a.load(loop) + 1.0) == "\n".join(
        [
            "%0 = DEFINE_GLOBAL : float.ptr(16) arg=0",
            "%1 = CONST : index arg=4",
            "%2 = RANGE(%1) : index arg=(0, Axis.LOOP)",
            "%3 = LOAD(%0, %2) : float",
            "%4 = CONST : float arg=1.0",
            "%5 = ADD(%3, %4) : float",
        ]
    )


def test_program_keeps_its_order() -> None:
    one, two = UOp.const(dtypes.int, 1), UOp.const(dtypes.int, 2)
    program = [two, one, one + two]
    assert parse_program(dump(program)) == program
    assert parse_program("# a comment\n\n" + dump(program)) == program


def test_a_size_that_only_an_argument_names_is_read_back() -> None:
    """A launch position whose extent is an expression of a variable, which no node uses."""
    length = UOp.variable("length", 1, 64)
    chunk = UOp(Ops.SPECIAL, dtypes.int, (), ("chunk", (length + 15) // 16))
    one = UOp.const(dtypes.int, 1)
    program = [chunk, one, chunk + one]
    text = dump(program)
    assert text.splitlines()[0] == "%a0 = DEFINE_VAR : index arg=('length', 1, 64)"
    assert parse_program(text) == program
    assert parse(text) is program[-1]
    used = [length, *program]
    assert parse_program(dump(used)) == used


@pytest.mark.parametrize("kind", ["memory", "draw"])
def test_memory_and_draws_of_a_symbolic_size_read_back(kind: str) -> None:
    length = UOp.variable("length", 1, 64)
    if kind == "memory":
        node = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(0, "CPU", length * 8))
    else:
        node = UOp(Ops.RAND, dtypes.uint32, (), RandArg((length * 8, 2), 3, 4, "CPU"))
    assert parse(dump(node)) is node
    assert parse(dump(UOp.sink(node + node))) is UOp.sink(node + node)


def test_deep_graph() -> None:
    """No recursion: a chain of 20,000 nodes goes through both forms."""
    node = x
    for number in range(20_000):
        node = node + number % 7
    assert parse(dump(node)) is node
    assert parse(show(node)) is node
    assert render(node).startswith("(x+0+1+2")


@pytest.mark.row("R4.12")
def test_printed_text_is_a_python_expression() -> None:
    a = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(16), (), 0)
    value = a.load(UOp.range(16, 0))
    kernel = UOp.sink(a.store(UOp.range(16, 0), value * value), arg=KernelInfo("E_16", (0,)))
    names = {"UOp": UOp, "Ops": Ops, "dtypes": dtypes, "Axis": Axis, "KernelInfo": KernelInfo}
    assert eval(repr(kernel), names) is kernel
    assert parse(repr(kernel)) is kernel


def test_names_in_an_argument_are_its_own() -> None:
    """A symbolic size prints names that the graph around it uses for other nodes."""
    n = UOp.variable("n", 1, 8)
    base = UOp(Ops.BUFFER, dtypes.float, (), BufferArg(0, "CPU", 8)) * 2.0
    shaped = UOp(Ops.RESHAPE, dtypes.float, (base,), ((n + 1) * (n + 1),))
    graph = shaped + shaped * UOp(Ops.RESHAPE, dtypes.float, (base,), (n * n,))
    assert parse(show(graph)) is graph


# reading refuses what it does not know

CONST = "UOp(Ops.CONST, dtypes.int, arg=1, src=())"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "unknown name '__import__'"),
        ("UOp.__class__", "unknown attribute '__class__'"),
        ("dtypes.from_name('int')", "unknown attribute 'from_name'"),
        ("Ops.ADD.name", "unknown attribute 'name'"),
        ("dtypes.int.__reduce__()", "unknown attribute '__reduce__'"),
        ("(lambda: 1)()", "unknown name 'lambda'"),
        (f"{CONST}.replace(arg=2)", "unknown attribute 'replace'"),
        ("(1)(2)", "only a known constructor may be called"),
        ("Ops", "a name alone is no value"),
        ("UOp(Ops.CONST, dtypes.int, arg=UOp, src=())", "a name alone is no value"),
        ("3", "the text is no node but 3"),
        ("", "the text ends early"),
        ("UOp(Ops.CONST", "the text ends early"),
        ("UOp(Ops.NOPE)", "unknown attribute 'NOPE'"),
        ("UOp(1, 2)", "UOp takes an op"),
        ("UOp(Ops.ADD, dtypes.int, src=(1, 2))", "UOp takes an op"),
        ("UOp(Ops.CONST, dtypes.int, arg='a', src=())", "these arguments do not fit"),
        ("UOp(Ops.CONST, colour=3)", "these arguments do not fit"),
        ("UOp(arg=1, arg=2)", "unexpected arg="),
        ("UOp(arg=)", "unexpected '\\)'|arg= has no value"),
        ("(a=1)", "unexpected a="),
        ("-Ops.ADD", "a minus stands before no number"),
        (f"{CONST} {CONST}", "unexpected 'UOp'"),
        ("[1]", "unknown text"),
        ("1 + 1", "unknown text|unexpected"),
        ("%0 = CONST : int arg=1\n%1 = NEG(%2) : int", "line 2 uses %2 before it is made"),
        ("%0 = NOPE : int", "line 1 is no node"),
        ("%0 = CONST : integer arg=1", "unknown attribute 'integer'"),
        ("# nothing", "the text holds no node"),
    ],
)
def test_unknown_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(text)


def test_errors_name_the_line() -> None:
    with pytest.raises(DataError, match="line: 2"):
        parse("UOp(Ops.CONST,\n nothing)")


def test_register() -> None:
    """Later stages make their arguments known by name."""

    class Level(enum.Enum):
        HIGH = "high"

        def __repr__(self) -> str:
            return f"Level.{self.name}"

    register("Level", Level)
    register("Pair", lambda a, b: (a, b))
    node = parse("UOp(Ops.WMMA, dtypes.float, arg=Pair(Level.HIGH, b=-2), src=())")
    assert node.arg == (Level.HIGH, -2)


# infix text


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (x * 2 + y, "((x*2)+y)"),
        (x + (y + 1), "(x+y+1)"),
        (x * y * 2, "(x*y*2)"),
        (x // 3 + x % 3, "((x//3)+(x%3))"),
        ((x < 2) & (y < 2), "((x<2) and (y<2))"),
        ((x < 2) & ((y < 2) & flag), "((x<2) and (y<2) and flag)"),
        (flag | (x < 2), "(flag or (x<2))"),
        (x >= 2, "(not (x<2))"),
        (flag ^ (x < 2), "(flag!=(x<2))"),
        (x.ne(y), "(x!=y)"),
        (x.eq(y), "(x==y)"),
        (flag.where(x, 0), "(x if flag else 0)"),
        (x.maximum(y), "max(x, y)"),
        (x.alu(Ops.IDIV, y), "idiv(x, y)"),
        (x.alu(Ops.MOD, y), "imod(x, y)"),
        (x.alu(Ops.SUB, y), "(x-y)"),
        (x.alu(Ops.NEG), "(-x)"),
        (x.cast(dtypes.float).alu(Ops.RECIP), "(1/float(x))"),
        (x.cast(dtypes.float).alu(Ops.EXP2), "exp2(float(x))"),
        (x.cast(dtypes.int).bitcast(dtypes.float), "bitcast[float](int(x))"),
        (UOp(Ops.MULACC, dtypes.index, (x, y, x)), "((x*y)+x)"),
        (x & 7, "(x&7)"),
        (UOp.range(4, 2, Axis.REDUCE), "ridx2"),
        (UOp(Ops.SPECIAL, dtypes.int, (), ("gidx0", 16)), "gidx0"),
        (UOp.stack([x, y]), "[x, y]"),
        (UOp(Ops.DEFINE_ACC, dtypes.float.vec(4), (), 0).gep(1, 0), "acc0[1, 0]"),
        (UOp(Ops.REDUCE, dtypes.index, (x, y), Ops.ADD), "reduce(x, y, Ops.ADD)"),
        (UOp(Ops.BARRIER), "barrier()"),
    ],
)
def test_render(node: UOp, text: str) -> None:
    assert render(node) == text


def test_render_memory() -> None:
    a = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(16), (), 0)
    shared = UOp(Ops.DEFINE_LOCAL, dtypes.float.ptr(16, AddressSpace.SHARED), (), 1)
    assert render(a.load(x)) == "data0[x]"
    assert render(a.load(x, UOp.const(dtypes.float, 0), x < 9)) == "(data0[x] if (x<9) else 0.0)"
    assert render(a.store(x, a.load(y))) == "data0[x] = data0[y]"
    gated = a.store(x, a.load(y), x < 9, combine=Ops.ADD)
    assert render(gated) == "data0[x] += data0[y] if (x<9)"
    assert render(shared.after(a.store(x, a.load(y))).load(y)) == "local1[y]"


def test_float_sums_keep_their_order() -> None:
    a, b, c = (x.cast(dtypes.float) * float(scale) for scale in (2, 3, 4))
    assert render((a + b) + c) == "((float(x)*2.0)+(float(x)*3.0)+(float(x)*4.0))"
    assert render(a + (b + c)) == "((float(x)*2.0)+((float(x)*3.0)+(float(x)*4.0)))"


def test_render_takes_names() -> None:
    assert render(x * 2 + y, {x: "i", y * 1: "j"}) == "((i*2)+y)"


def test_long_shared_expressions_are_named_once() -> None:
    """Doubling 60 times does not make 2 to the 60 words."""
    node, texts = x, []
    for _ in range(60):
        node = (node % 1000) * (node // 3) + node
        texts.append((render(node), node))
    assert len(texts[59][0]) < 20_000
    text, node = texts[19]
    assert "(t0:=" in text
    assert eval(text, {"x": 7}) == evaluate(node, {x: 7})


@given(st.integers(0, 2**32))
def test_render_means_what_the_graph_means(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [x, y, UOp.const(dtypes.index, rng.randint(-4, 4))]
    for _ in range(rng.randint(1, 12)):
        a, b = rng.choice(nodes), rng.choice(nodes)
        c = UOp.const(dtypes.index, rng.choice((-3, 2, 5)))
        makers = [a + b, a * b, a // c, a % c, a.maximum(b), (a < b).where(a, b), a & 7]
        nodes.append(rng.choice(makers))
    values = {x: rng.randint(0, 10), y: rng.randint(0, 3)}
    given_names = {"x": values[x], "y": values[y], "max": max}
    assert eval(render(nodes[-1]), given_names) == evaluate(nodes[-1], values)
