"""Every rule keeps the value: equations on random leaves, `simplify` as a whole by brute force."""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.ir.values import evaluate, evaluate_grid, same_bits
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.trace import recording
from tilegrad.ir import Ops, PatternMatcher, Rule, UOp, UPat, graph_rewrite
from tilegrad.ir import rules as rules_package
from tilegrad.ir.checks import CHECKS
from tilegrad.ir.op import Axis
from tilegrad.ir.rules import SIMPLIFY, moved_by, simplify, simplify_under
from tilegrad.ir.text import render


def matchers() -> dict[str, PatternMatcher]:
    """Every rule set of a module of `tilegrad.ir.rules`."""
    names = [name for _, name, _ in pkgutil.iter_modules(rules_package.__path__)]
    modules = [importlib.import_module(f"{rules_package.__name__}.{name}") for name in names]
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, PatternMatcher)
    }


def all_rules() -> list[Rule]:
    return [rule for matcher in matchers().values() for rule in matcher.rules]


EQUATIONS = [rule for rule in all_rules() if rule.right is not None]


def test_rule_names_are_unique_and_plain() -> None:
    names = [rule.name for rule in all_rules()]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
    assert len(EQUATIONS) > 30


# equations

TYPES: tuple[DType, ...] = (
    *(dtypes.index, dtypes.int32, dtypes.uint8, dtypes.bool),
    *(dtypes.float32, dtypes.float64, dtypes.float16),
)
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    math.inf,
    -math.inf,
    math.nan,
    1e-45,
    6e-8,
    -5e-324,
    3e38,
    65504.0,
]
INTEGERS = [-12, -4, -3, -2, -1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 12, 16]


def random_number(rng: random.Random, dtype: DType) -> Any:
    if dtype.is_float:
        return rng.choice(FLOATS)
    if dtype.kind == "bool":
        return rng.random() < 0.5
    return abs(rng.choice(INTEGERS)) if dtype.kind == "uint" else rng.choice(INTEGERS)


def random_leaf(rng: random.Random, name: str, dtype: DType) -> UOp:
    """A variable: of any width, often near zero, sometimes as wide as its dtype."""
    if dtype.is_float or dtype.kind == "bool":
        return UOp(Ops.DEFINE_VAR, dtype, (), (name, dtype.min, dtype.max))
    if dtype.kind != "index" and rng.random() < 0.3:
        return UOp(Ops.DEFINE_VAR, dtype, (), (name, dtype.min, dtype.max))
    low = random_number(rng, dtype)
    return UOp(Ops.DEFINE_VAR, dtype, (), (name, low, low + rng.choice((0, 1, 2, 3, 7, 20))))


def value_of(rng: random.Random, leaf: UOp) -> Any:
    _, low, high = leaf.arg
    if leaf.dtype.is_float:
        return evaluate(UOp.const(leaf.dtype, rng.choice(FLOATS)), {})
    return (
        rng.choice((low, high, rng.randint(low, high))) if leaf.dtype.is_int else rng.random() < 0.5
    )


class Instance:
    """One left side: a pattern with its wildcards filled by variables and random constants."""

    def __init__(self, rng: random.Random, dtype: DType):
        self.rng, self.dtype = rng, dtype
        self.made: dict[str, UOp] = {}

    def build(self, pattern: UPat, dtype: DType) -> UOp:
        if pattern.name is not None and pattern.name in self.made:
            return self.made[pattern.name]
        node = self.fresh(pattern, dtype)
        if pattern.name is not None:
            self.made[pattern.name] = node
        return node

    def fresh(self, pattern: UPat, dtype: DType) -> UOp:
        if pattern.dtype is not None and dtype not in pattern.dtype:
            dtype = self.rng.choice(pattern.dtype)
        if pattern.is_constant:
            number = pattern.arg if pattern.arg is not None else random_number(self.rng, dtype)
            return UOp.const(dtype, number)
        if pattern.op is None:
            return random_leaf(self.rng, pattern.name or f"leaf{len(self.made)}", dtype)
        assert pattern.src is not None
        op = self.rng.choice(pattern.op)
        # A constant takes the dtype of what stands beside it, so it is built last.
        parts = pattern.src[1:] if op is Ops.WHERE else pattern.src
        inner = self.dtype if op.is_boolean else dtype
        src: dict[int, UOp] = {}
        for number in sorted(range(len(parts)), key=lambda number: parts[number].is_constant):
            src[number] = self.build(parts[number], inner)
            inner = src[number].dtype
        nodes = [src[number] for number in range(len(parts))]
        if op is Ops.WHERE:
            return self.build(pattern.src[0], dtypes.bool).where(*nodes)
        return nodes[0].alu(op, *nodes[1:])


def is_legal(root: UOp) -> bool:
    return all(
        node.op is Ops.DEFINE_VAR or (node.op in CHECKS and CHECKS[node.op](node) is None)
        for node in root.toposort()
    )


@pytest.mark.parametrize("rule", EQUATIONS, ids=lambda rule: rule.name)
def test_equation_is_true(rule: Rule) -> None:
    """Both sides have one value, bit for bit, whatever the variables, wherever the guard holds."""
    rng = random.Random(rule.name)
    matcher = PatternMatcher(rule.name, [rule])
    checked = 0
    for dtype in TYPES:
        for _ in range(60):
            left = Instance(rng, dtype).build(rule.left, dtype)
            if not is_legal(left):
                continue
            right = matcher.rewrite(left)
            if right is None:
                continue
            assert right.dtype is left.dtype, f"{left}\n{right}"
            assert is_legal(right), right
            leaves = [node for node in left.toposort() if node.op is Ops.DEFINE_VAR]
            for _ in range(8):
                values = {leaf: value_of(rng, leaf) for leaf in leaves}
                ours, theirs = evaluate(left, values), evaluate(right, values)
                texts = f"{render(left)} = {ours!r}, {render(right)} = {theirs!r}, {values}"
                assert same_bits(ours, theirs, left.dtype), texts
                checked += 1
    assert checked >= 40, "the guard, or the dtypes, let almost nothing through"


# simplify as a whole


def random_expression(rng: random.Random, leaves: list[UOp], steps: int) -> UOp:
    """Integer arithmetic of the kind that indices are made of."""
    nodes = list(leaves)
    tests: list[UOp] = []
    for _ in range(steps):
        a, b = rng.choice(nodes[-4:]), rng.choice(nodes)
        c = rng.choice((1, 2, 3, 4, 5, 8, 12))
        kind = rng.randrange(12)
        if kind <= 1:
            nodes.append(a + b)
        elif kind == 2:
            nodes.append(a * rng.choice((-1, 2, 3, 4, 8)))
        elif kind == 3:
            nodes.append(a // c)
        elif kind == 4:
            nodes.append(a % c)
        elif kind == 5:
            nodes.append(a + rng.randint(-6, 6))
        elif kind == 6:
            nodes.append(a.maximum(b) if rng.random() < 0.5 else a.minimum(b))
        elif kind == 7:
            tests.append(a < (b if rng.random() < 0.4 else rng.randint(-3, 9)))
        elif kind == 8:
            tests.append(rng.choice((a.eq(b), a.ne(b), a.eq(c), a >= c)))
        elif kind == 9 and tests:
            nodes.append(rng.choice(tests).where(a, b))
        elif kind == 10 and tests:
            x, y = rng.choice(tests), rng.choice(tests)
            tests.append(rng.choice((x & y, x | y, x.logical_not(), x ^ y)))
        else:
            nodes.append(a // -c if rng.random() < 0.2 else a * -1 + c)
    return rng.choice(tests) if tests and rng.random() < 0.3 else nodes[-1]


def leaves_of(rng: random.Random) -> list[UOp]:
    leaves = [UOp.range(rng.randint(1, 8), number) for number in range(2)]
    low = rng.randint(-6, 6)
    return [*leaves, UOp.variable("v", low, low + rng.randint(0, 6))]


def grid_of(leaves: list[UOp]) -> dict[UOp, Any]:
    """Every value of every leaf, against every other."""
    spans = [np.arange(leaf.vmin, leaf.vmax + 1) for leaf in leaves]
    return dict(zip(leaves, np.meshgrid(*spans, indexing="ij", sparse=True)))


@settings(max_examples=600)
@given(st.integers(0, 2**48))
def test_simplify_keeps_the_value(seed: int) -> None:
    rng = random.Random(seed)
    leaves = leaves_of(rng)
    before = random_expression(rng, leaves, rng.randint(1, 14))
    after = simplify(before)
    grid = grid_of(leaves)
    assert after.dtype is before.dtype
    shape = np.broadcast_shapes(*(values.shape for values in grid.values()))
    ours = np.broadcast_to(evaluate_grid(before, grid), shape)
    theirs = np.broadcast_to(evaluate_grid(after, grid), shape)
    assert (ours == theirs).all(), f"{render(before)}\n{render(after)}"


# The same rules without the memory of what they made before.
NOT_KEPT = PatternMatcher("not-kept", SIMPLIFY.rules)


@settings(max_examples=600)
@given(st.integers(0, 2**48))
def test_simplify_twice_is_once(seed: int) -> None:
    rng = random.Random(seed)
    once = simplify(random_expression(rng, leaves_of(rng), rng.randint(1, 14)))
    twice = graph_rewrite(once, NOT_KEPT)
    assert twice is once, f"{render(once)}\n{render(twice)}"


@settings(max_examples=600)
@given(st.integers(0, 2**48), st.integers(-9, 9))
def test_to_move_an_index_is_to_add_and_simplify(seed: int, distance: int) -> None:
    rng = random.Random(seed)
    index = simplify(random_expression(rng, leaves_of(rng), rng.randint(1, 14)))
    assume(index.dtype is dtypes.index)
    wanted = graph_rewrite(index + distance, NOT_KEPT)
    assert moved_by(index, distance) is wanted, f"{render(index)} + {distance}"


@settings(max_examples=200)
@given(st.integers(0, 2**48))
def test_simplify_with_a_mapping_is_to_replace_and_simplify(seed: int) -> None:
    """A value may hold its own key."""
    rng = random.Random(seed)
    leaves = leaves_of(rng)
    node = random_expression(rng, leaves, rng.randint(1, 14))
    mapping = {leaf: random_expression(rng, leaves, rng.randint(1, 4)) for leaf in leaves[:2]}
    mapping = {old: new for old, new in mapping.items() if new.dtype is old.dtype}
    assert simplify(node, mapping) is graph_rewrite(node.substitute(mapping), NOT_KEPT)
    with recording():
        assert simplify(node, mapping) is simplify(node.substitute(mapping))


@settings(max_examples=400)
@given(st.integers(0, 2**48))
def test_bounds_hold(seed: int) -> None:
    """vmin and vmax hold every value, and the divisor divides them."""
    rng = random.Random(seed)
    leaves = leaves_of(rng)
    for node in random_expression(rng, leaves, rng.randint(1, 14)).toposort():
        values = evaluate_grid(node, grid_of(leaves))
        assert node.vmin <= values.min(), render(node)
        assert node.vmax >= values.max(), render(node)
        if node.dtype.is_int and node.divisor:
            assert (values % node.divisor == 0).all(), render(node)


@pytest.mark.parametrize(("low", "high"), [(-9, 9), (0, 9), (-9, 0), (3, 7), (-7, -3)])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 4), (3, 5)])
def test_bounds_of_quotients_by_a_variable(low: int, high: int, least: int, most: int) -> None:
    """C's, which round toward zero: bounds hold every value, and quotients reach both."""
    x, y = UOp.variable("x", low, high), UOp.variable("y", least, most)
    pairs = [(a, b) for a in range(low, high + 1) for b in range(least, most + 1)]
    quotients = [int(a / b) for a, b in pairs]
    assert x.alu(Ops.IDIV, y).bounds == (min(quotients), max(quotients))
    rests = [a - int(a / b) * b for a, b in pairs]
    found = x.alu(Ops.MOD, y).bounds
    assert found[0] <= min(rests) <= max(rests) <= found[1]
    assert max(map(abs, found)) < max(most, 2)


@settings(max_examples=400)
@given(st.integers(0, 2**48))
def test_simplify_under_keeps_the_value_where_the_condition_holds(seed: int) -> None:
    rng = random.Random(seed)
    leaves = leaves_of(rng)
    before = random_expression(rng, leaves, rng.randint(1, 10))
    tests = []
    for _ in range(rng.randint(1, 3)):
        a, b = rng.choice(leaves), rng.choice(leaves)
        side = rng.choice((a, a * -1, a + b, a * 4 + b)) < rng.randint(-4, 12)
        tests.append(side.logical_not() if rng.random() < 0.4 else side)
    condition = tests[0]
    for test in tests[1:]:
        condition = condition & test
    after = simplify_under(before, condition)
    grid = grid_of(leaves)
    shape = np.broadcast_shapes(*(values.shape for values in grid.values()))
    holds, ours, theirs = (
        np.broadcast_to(evaluate_grid(node, grid), shape) for node in (condition, before, after)
    )
    same = ours[holds] == theirs[holds]
    assert same.all(), f"{render(before)} if {render(condition)}\n{render(after)}"


def test_a_loop_stays_where_a_condition_says_its_extent() -> None:
    """The reduction around the value has the loop, with its own extent."""
    size = UOp.variable("size", 0, 1024)
    loop = UOp(Ops.RANGE, dtypes.index, (size + 2,), (1, Axis.REDUCE))
    value = (loop < size + 1).where(UOp.const(dtypes.index, 0), 1) * (size + 2)
    after = simplify_under(value, (UOp.const(dtypes.index, 0) < size).logical_not())
    assert after.ranges == {loop}
    assert simplify(after.substitute({loop: UOp.const(dtypes.index, 1)})).arg == 2


def random_typed(rng: random.Random, leaves: list[UOp], steps: int) -> UOp:
    """Arithmetic of one dtype, with constants that rules look for."""
    dtype = leaves[0].dtype
    nodes = [*leaves, *(UOp.const(dtype, random_number(rng, dtype)) for _ in range(3))]
    numbers = [Ops.ADD, Ops.MUL, Ops.SUB]
    if dtype.is_float:
        # Of 0.0 and -0.0 the larger is either, which a division would blow up.
        numbers.append(rng.choice((Ops.FDIV, Ops.MAX)))
    else:
        numbers += [Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD]
        numbers += [Ops.MAX, Ops.AND, Ops.OR, Ops.XOR]
    for _ in range(steps):
        a, b = rng.choice(nodes), rng.choice(nodes)
        test = a.alu(rng.choice((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)), b)
        nodes.append(rng.choice((a.alu(rng.choice(numbers), b), test.where(a, b))))
        if rng.random() < 0.2:
            other = rng.choice((dtypes.int8, dtypes.int64, dtypes.float32, dtypes.float64))
            if other.is_float == dtype.is_float:
                nodes.append(nodes[-1].cast(other).cast(dtype))
    return nodes[-1]


# The one rule that is not exact to the bit, and has a test of its own.
EXACT = PatternMatcher("exact", [r for r in SIMPLIFY.rules if r.name != "exact-float-sum"])
TYPED = (dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.uint64, *dtypes.floats)


@settings(max_examples=400)
@given(st.integers(0, 2**48), st.sampled_from(TYPED))
def test_simplify_keeps_machine_numbers(seed: int, dtype: DType) -> None:
    """Fixed widths wrap around and floats keep their bits: -0.0, infinities, NaN, subnormals."""
    rng = random.Random(seed)
    leaves = [random_leaf(rng, name, dtype) for name in "xyz"]
    before = random_typed(rng, leaves, rng.randint(1, 8))
    after = graph_rewrite(before, EXACT)
    assert graph_rewrite(after, EXACT) is after
    has_max = any(node.op is Ops.MAX for node in before.toposort())
    for _ in range(20):
        values = {leaf: value_of(rng, leaf) for leaf in leaves}
        ours, theirs = evaluate(before, values), evaluate(after, values)
        if has_max and ours == theirs == 0:
            continue
        texts = f"{render(before)} = {ours!r}\n{render(after)} = {theirs!r}\n{values}"
        assert same_bits(ours, theirs, dtype), texts


@pytest.mark.row("R9.1")
def test_small_whole_constants_are_added_first() -> None:
    """(a + 4) + 3 is a + 7, within the rounding of one addition; other constants stay apart."""
    a = UOp(Ops.DEFINE_VAR, dtypes.float, (), ("a", -math.inf, math.inf))
    assert simplify((a + 4.0) + 3.0) is a + 7.0
    rng = random.Random(0)
    for _ in range(200):
        value = evaluate(UOp.const(dtypes.float, rng.uniform(-100, 100)), {})
        apart, joined = evaluate((a + 4.0) + 3.0, {a: value}), evaluate(a + 7.0, {a: value})
        assert abs(apart - joined) <= 2**-23 * (abs(value) + 7)
    for first, second in ((0.1, 0.2), (4.0, -3.0), (1e6, 1.0), (math.inf, 1.0), (-0.0, 0.0)):
        assert simplify((a + first) + second) is (a + first) + second


# what index arithmetic must come to

i, j, k = UOp.range(8, 0), UOp.range(4, 1), UOp.range(2, 2)
n = UOp.variable("n", 1, 100)


def cases() -> Iterator[tuple[UOp, str]]:
    yield (i * 4 + j) // 4, "ridx0"
    yield (i * 4 + j) % 4, "ridx1"
    yield (i * 8 + j * 2 + k) // 8, "ridx0"
    yield (i * 8 + j * 2 + k) % 8, "((ridx1*2)+ridx2)"
    yield (i // 4) * 4 + i % 4, "ridx0"
    yield (i * 4 + j) // 2, "((ridx0*2)+(ridx1//2))"
    yield (i * 4 + j) % 2, "(ridx1%2)"
    yield i % 8, "ridx0"
    yield i // 8, "0"
    yield (i + 8) % 8, "ridx0"
    yield (j * 4 + k + 3) % 5, "((ridx1*-1)+ridx2+3)"
    yield (i * -1 + 7) // 8, "0"
    yield (i < 8).where(i, j), "ridx0"
    yield (i * 4 + j < 16), "(ridx0<4)"
    yield ((i < 3) & (i < 5)), "(ridx0<3)"
    yield i + j - i, "ridx1"
    yield (i + j) * 2 - i * 2, "(ridx1*2)"
    yield (n * 4 + j) // 4, "n"
    yield i.maximum(j + 8), "(ridx1+8)"
    yield (i < j + 8).where(i, n), "ridx0"


@pytest.mark.parametrize(("node", "text"), list(cases()), ids=lambda part: str(part)[:0] or None)
def test_index_arithmetic(node: UOp, text: str) -> None:
    assert render(simplify(node)) == text


@pytest.mark.row("S1.9")
def test_constants_fold() -> None:
    """Rendering does not fold, the rules do."""
    one = UOp.const(dtypes.float, 1)
    assert render(one + one) == "(1.0+1.0)"
    assert simplify(one + one) is UOp.const(dtypes.float, 2)
