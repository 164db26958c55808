"""Patterns, rules, rule sets, and graph_rewrite."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.trace import counters, recording
from tilegrad.ir import Ops, PatternMatcher, Rule, UOp, UPat, graph_rewrite
from tilegrad.ir.pattern import fold
from tilegrad.ir.rewrite import rebuilt
from tilegrad.render.metal import MetalRenderer

x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
a, b = UPat.wilds("a b")
c0, c1 = UPat.constants("c0 c1")


def number(value: Any) -> UOp:
    return UOp.const(dtypes.index, value)


def matches(pattern: UPat, node: UOp) -> dict[str, UOp] | None:
    """The captures of `pattern` on `node`, or None."""
    found: list[dict[str, UOp]] = []

    def keep(**captures: UOp) -> None:
        found.append(captures)

    names = ", ".join(pattern.names())
    function = eval(
        f"lambda {names}: keep({', '.join(f'{n}={n}' for n in pattern.names())})", {"keep": keep}
    )
    PatternMatcher([(pattern, function)]).rewrite(node)
    return found[0] if found else None


# patterns


@pytest.mark.row("R7.1")
def test_op_and_name() -> None:
    assert matches(UPat(Ops.ADD, name="sum"), x + y) == {"sum": x + y}
    assert matches(UPat(Ops.ADD, name="sum"), x * y) is None
    assert matches(UPat((Ops.ADD, Ops.MUL), name="node"), x * y) == {"node": x * y}
    assert matches(UPat(name="any"), x) == {"any": x}
    assert matches(UPat(Ops.ADD), x + y) == {}


@pytest.mark.row("R7.1")
def test_dtype() -> None:
    half = UPat.var("v", (dtypes.half, dtypes.float))
    assert matches(half, UOp.const(dtypes.float, 1)) is not None
    assert matches(half, UOp.const(dtypes.int, 1)) is None
    # a scalar dtype matches the vectors of it
    assert matches(half, UOp.const(dtypes.half.vec(4), 1)) is not None
    assert matches(UPat(dtype=dtypes.half.vec(4), name="v"), UOp.const(dtypes.half, 1)) is None


@pytest.mark.row("R7.1")
def test_nested_sources() -> None:
    pattern = UPat(Ops.FLOORDIV, src=(UPat(Ops.ADD, src=(a, UPat(Ops.CONST, name="c"))), b))
    assert matches(pattern, (x + 3) // y) == {"a": x, "c": number(3), "b": y}
    assert matches(pattern, (x + y) // y) is None
    assert matches(pattern, (x + 3) % y) is None


@pytest.mark.row("R7.1")
def test_number_of_sources() -> None:
    three = UOp.sink(x, y, x + y)
    assert matches(UPat(Ops.SINK, src=(a, b)), three) is None
    assert matches(UPat(Ops.SINK, src=(a, b), allow_any_len=True), three) == {"a": x, "b": y}
    assert matches(UPat(Ops.SINK, src=(a, b), allow_any_len=True), UOp.sink(x)) is None
    assert matches(UPat(Ops.SINK, name="s"), three) == {"s": three}
    assert matches(UPat(Ops.SINK, src=()), UOp.sink()) == {}
    assert matches(UPat(Ops.SINK, src=()), three) is None


@pytest.mark.row("R7.1")
def test_repeated_name_is_one_node() -> None:
    pattern = UPat(Ops.FLOORMOD, src=(a, a))
    assert matches(pattern, x % x) == {"a": x}
    assert matches(pattern, x % y) is None
    deep = UPat(Ops.ADD, src=(UPat(Ops.MUL, src=(a, b)), b))
    assert matches(deep, x * y + y) == {"a": x, "b": y}
    assert matches(deep, x * y + x) == {"a": y, "b": x}  # a product commutes
    assert matches(deep, (x % y) * y + x) is None


@pytest.mark.row("R7.1")
def test_argument() -> None:
    assert matches(UPat.const(0), number(0)) == {}
    assert matches(UPat.const(0), number(1)) is None
    assert matches(UPat(Ops.CONST, dtype=dtypes.bool, arg=False), number(0)) is None
    assert matches(UPat(Ops.REDUCE_AXIS, arg=(Ops.ADD, (0,))), x) is None


@pytest.mark.row("R7.1")
def test_commutative_ops_match_in_any_order() -> None:
    pattern = UPat(Ops.ADD, src=(UPat(Ops.MUL, name="m"), UPat(Ops.CONST, name="c")))
    assert matches(pattern, x * y + 2) == {"m": x * y, "c": number(2)}
    assert matches(pattern, UOp(Ops.ADD, dtypes.index, (number(2), x * y))) is not None
    ordered = UPat(Ops.FLOORDIV, src=(UPat(Ops.MUL, name="m"), UPat(Ops.CONST, name="c")))
    assert matches(ordered, number(2) // (x * y)) is None


@pytest.mark.row("R7.1")
def test_operators_make_patterns() -> None:
    assert matches((a + c0) * c1, (x + 1) * 2) == {"a": x, "c0": number(1), "c1": number(2)}
    assert matches(a // 2, x // 2) == {"a": x}
    assert matches(a // 2, x // 3) is None
    assert matches(a % b, x % y) is not None
    assert matches(a < b, x < y) == {"a": x, "b": y}
    assert matches(a > b, y < x) == {"a": x, "b": y}
    assert matches((a & b).named("both"), x & y) is not None
    assert matches(a | b, x | y) is not None
    assert matches(a ^ b, x ^ y) is not None
    assert matches(a << b, x << y) is not None
    assert matches(a >> b, x >> y) is not None
    assert matches(a - b, x.alu(Ops.SUB, y)) is not None
    assert matches(-a, x.alu(Ops.NEG)) is not None
    assert matches(a / b, x.cast(dtypes.float) / y.cast(dtypes.float)) is not None
    assert matches(a.maximum(b), x.maximum(y)) is not None
    assert matches(a.ne(b), x.ne(y)) is not None
    assert matches(a.eq(b), x.eq(y)) is not None
    assert matches(UPat.var("t", dtypes.bool).where(a, 0), (x < 3).where(y, 0)) is not None


@pytest.mark.row("R7.1")
def test_function_gets_captures_and_context() -> None:
    seen: list[Any] = []

    def with_context(a: UOp, ctx: Any) -> UOp:
        seen.append((a, ctx))
        return y

    matcher = PatternMatcher([(a + 1, with_context)])
    assert matcher.rewrite(x + 1, ctx="here") is y
    assert seen == [(x, "here")]
    assert matcher.rewrite(x + 2, ctx="here") is None


def test_function_takes_only_what_it_asks_for() -> None:
    matcher = PatternMatcher([((a + b).named("total"), lambda total: total * 2)])
    assert matcher.rewrite(x + y) is (x + y) * 2


@pytest.mark.row("R7.1")
def test_function_that_returns_none_does_not_apply() -> None:
    matcher = PatternMatcher([(a + b, lambda a: None), (a + b, lambda b: b)])
    assert matcher.rewrite(x + y) is y


# rules


@pytest.mark.row("R7.2")
def test_constant_into_a_sum() -> None:
    """float 1.0 -> 0.5 + 0.5; what does not match gives None."""
    half = UOp.const(dtypes.float, 0.5)
    one = UPat(Ops.CONST, dtype=dtypes.float, arg=1.0)
    matcher = PatternMatcher([(one, lambda: half + half)])
    assert matcher.rewrite(UOp.const(dtypes.float, 1)) is half + half
    assert matcher.rewrite(UOp.const(dtypes.float, 2)) is None
    assert matcher.rewrite(UOp.const(dtypes.int, 1)) is None
    assert matcher.rewrite(x) is None


@pytest.mark.row("R7.2")
def test_rewritten_constant_renders() -> None:
    half, one = UOp.const(dtypes.float, 0.5), UOp.const(dtypes.float, 1)
    pattern = UPat(Ops.CONST, dtype=dtypes.float, arg=1.0)
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(16), (), 0)
    place = UOp(Ops.SPECIAL, dtypes.int, (), ("gidx0", 16))
    store = graph_rewrite(out.store(place, one), PatternMatcher([(pattern, lambda: half + half)]))
    program = [half, out, place, half + half, store]
    assert "*(data0+gidx0) = (0.5f+0.5f);" in MetalRenderer().render(program)


def test_equation() -> None:
    rule = Rule("fold-right", (a + c0) + c1, a + fold(c0 + c1))
    matcher = PatternMatcher("sums", [rule])
    assert matcher.rewrite((x + 2) + 3) is x + 5
    assert repr(rule) == "Rule('fold-right')"


def test_equation_with_a_guard() -> None:
    """A guard sees constants as numbers and other captures as nodes."""
    guard = lambda a, c0: a.vmax < c0  # noqa: E731
    matcher = PatternMatcher([Rule("mod-in-range", a % c0, a, when=guard)])
    assert matcher.rewrite(x % 10) is x
    assert matcher.rewrite(x % 9) is None


def test_equation_makes_constants_of_the_right_dtype() -> None:
    matcher = PatternMatcher(
        [
            Rule("and-false", UPat.var("a", dtypes.bool) & False, False),
            Rule("less-nothing", a < a, False),
            Rule("times-zero", a * 0, 0),
            Rule("double", a + a, a * 2),
            Rule("is-small", a.eq(b), (a < b) ^ True),
        ]
    )
    assert matcher.rewrite((x < 2) & False) is UOp.const(dtypes.bool, False)
    assert matcher.rewrite(x < x) is UOp.const(dtypes.bool, False)
    vector = UOp(Ops.DEFINE_ACC, dtypes.int.vec(4), (UOp.const(dtypes.int.vec(4), 0),), 0)
    assert matcher.rewrite(vector * 0) is UOp.const(dtypes.int.vec(4), 0)
    assert matcher.rewrite(vector < vector) is UOp.const(dtypes.bool.vec(4), False)
    value = UOp(Ops.DEFINE_ACC, dtypes.half, (UOp.const(dtypes.half, 0),), 0)
    assert matcher.rewrite(value + value) is value * 2.0
    assert matcher.rewrite(x.eq(y)) is (x < y) ^ True


def test_rule_by_decorator() -> None:
    matcher = PatternMatcher("tests")

    @matcher.rule("swap", UPat(Ops.FLOORDIV, src=(a, b)))
    def swap(a: UOp, b: UOp) -> UOp:
        return b % a

    assert [rule.name for rule in matcher.rules] == ["swap"]
    assert matcher.rewrite(x // y) is y % x

    @matcher.rule("later", UPat(Ops.FLOORMOD, src=(a, b)))
    def later(a: UOp, b: UOp) -> UOp:
        return a

    assert matcher.rewrite(x % y) is x


def test_rules_of_a_list_have_the_functions_names() -> None:
    def drop_sum(a: UOp) -> UOp:
        return a

    assert [rule.name for rule in PatternMatcher([(a + b, drop_sum)]).rules] == ["drop-sum"]


@pytest.mark.row("R7.5")
def test_matchers_add_up_first_come_first_tried() -> None:
    first = PatternMatcher("first", [Rule("one", a + 1, a)])
    second = PatternMatcher("second", [Rule("two", a + 2, a), Rule("other-one", a + 1, a * 7)])
    both = first + second
    assert both.name == "first+second"
    assert both.rewrite(x + 1) is x
    assert both.rewrite(x + 2) is x
    assert (second + first).rewrite(x + 1) is x * 7
    assert first.rewrite(x + 2) is None


def test_result_that_is_the_node_itself_is_no_step() -> None:
    matcher = PatternMatcher([((a + b).named("same"), lambda same: same), (a + b, lambda a: a)])
    assert matcher.rewrite(x + y) is x


def test_a_step_is_compiled_when_its_op_comes_first_and_nothing_is_kept_on_disk(
    tmp_path: Any,
) -> None:
    """Python's compiled code is not data, so none is read from a folder."""
    with Context(CACHE=str(tmp_path)):
        matcher = PatternMatcher([Rule("half", a // 17, a), Rule("twice", a * 17, a)])
        assert matcher.rewrite(x) is None
        steps = matcher.steps()
        waiting = steps[Ops.FLOORDIV.serial]
        assert matcher.rewrite(x * 17) is x
        assert steps[Ops.FLOORDIV.serial] is waiting
        assert matcher.rewrite(x // 17) is x
        assert steps[Ops.FLOORDIV.serial] is not waiting
        assert not list(tmp_path.iterdir())


def test_steps_of_equal_rules_are_compiled_once() -> None:
    """Of another op, and in another sum."""
    both = Rule("both", UPat((Ops.ADD, Ops.MUL), name="each"), function=lambda each: each.src[0])
    first, second = PatternMatcher([both]), PatternMatcher([Rule("half", a // 17, a)])
    assert first.rewrite(x + y) is first.rewrite(x * y) is x
    assert (first + second).rewrite(x + y) is x
    steps = first.steps(), (first + second).steps()
    assert steps[0][Ops.ADD.serial] is steps[0][Ops.MUL.serial] is steps[1][Ops.ADD.serial]


# graph_rewrite

SUMS = PatternMatcher(
    "sums",
    [
        Rule("fold-right", (a + c0) + c1, a + fold(c0 + c1)),
        Rule("add-zero", a + 0, a),
        Rule("mul-one", a * 1, a),
    ],
)


@pytest.mark.row("R7.5")
def test_rewrites_to_a_fixpoint() -> None:
    assert graph_rewrite(((x + 1) + 2) + 3, SUMS) is x + 6
    assert graph_rewrite(((x + 1) * 1 + -1) * 1, SUMS) is x
    assert graph_rewrite(x, SUMS) is x


@pytest.mark.row("R7.5")
def test_result_of_a_rule_is_rewritten_too() -> None:
    """What a function gives may hold nodes never seen: they are rewritten from their leaves on."""
    matcher = SUMS + PatternMatcher([Rule("grow", a // 3, ((a + 1) * 1 + 2) % 5)])
    assert graph_rewrite((x // 3) * y, matcher) is ((x + 3) % 5) * y


def test_shared_nodes_are_rewritten_once() -> None:
    calls: list[UOp] = []
    matcher = PatternMatcher([(UPat(Ops.MUL, name="node"), lambda node: calls.append(node))])
    node = x * 2
    for _ in range(100):
        node = node + node
    graph_rewrite(node, matcher)
    assert calls == [x * 2]


def test_cached_rules_walk_only_new_nodes() -> None:
    """1,000 nodes once; then the one that was added, and nothing where nothing was."""
    matcher = PatternMatcher("kept", [Rule("halve", a * 2, a + a)], is_cached=True)
    node = UOp.variable("only_here", 0, 9)
    for step in range(1000):
        node = node * 3 + step
    visits = []
    for root in (node * 2, node * 2, node, (node * 2) * 5):
        before = counters.visits
        result = graph_rewrite(root, matcher)
        visits.append(counters.visits - before)
        assert result is graph_rewrite(root, PatternMatcher(matcher.rules))
    assert visits[0] > 2000
    assert visits[1:3] == [0, 0]
    assert visits[3] < 5
    with recording() as record:
        graph_rewrite(node * 2, matcher)
    assert [step.rule for step in record[0].steps] == ["halve"]


def test_a_cached_result_dies_with_the_node() -> None:
    """No node keeps itself alive, so nothing waits for the collector."""
    matcher = PatternMatcher("kept", [Rule("halve", a * 2, a + a)], is_cached=True)
    gc.collect()
    gc.disable()
    try:
        node = UOp.variable("only_here", 0, 9) * 2
        made = weakref.ref(graph_rewrite(node, matcher))
        assert made() is node.src[0] + node.src[0]
        del node
        assert made() is None
    finally:
        gc.enable()


def test_context_reaches_every_rule() -> None:
    matcher = PatternMatcher([(UPat(Ops.MUL, name="node"), lambda node, ctx: ctx.append(node))])
    seen: list[UOp] = []
    graph_rewrite((x * 2) * (y * 3), matcher, seen)
    assert seen == [x * 2, y * 3, (x * 2) * (y * 3)]


def test_rules_that_go_in_circles_are_an_error() -> None:
    matcher = PatternMatcher("circles", [Rule("there", a + b, a * b), Rule("back", a * b, a + b)])
    with pytest.raises(InternalError, match="circles does not come to an end"):
        graph_rewrite(x + y, matcher)
    growing = PatternMatcher("growing", [((a // b).named("n"), lambda n, b: n.src[0] // (b + 1))])
    with pytest.raises(InternalError, match="growing does not come to an end"):
        graph_rewrite(x // y, growing)


@pytest.mark.row("R7.5")
def test_large_graph_is_rewritten_without_recursion() -> None:
    """100,000 nodes, deep."""
    node = x
    for step in range(50_000):
        node = (node + 1) % (step % 7 + 2)
    assert graph_rewrite(node * 1 + 0, SUMS) is node


@pytest.mark.row("R7.5")
def test_long_chain_of_steps_ends_in_seconds() -> None:
    """Every node changes: a sum of 50,000 constants folds from its leaves on."""
    node = x
    for _ in range(50_000):
        node = node + 1
    assert graph_rewrite(node, SUMS) is x + 50_000


# the trace


def test_a_record_has_rule_node_before_and_after() -> None:
    with recording() as record:
        graph_rewrite(((x + 1) + 2) * 1, SUMS, name="schedule.example")
        graph_rewrite(x + 0, SUMS)
    first, second = record
    assert (first.name, first.before, first.after) == (
        "schedule.example",
        ((x + 1) + 2) * 1,
        x + 3,
    )
    steps = [(step.rule, step.before, step.after) for step in first.steps]
    assert steps == [("fold-right", (x + 1) + 2, x + 3), ("mul-one", (x + 3) * 1, x + 3)]
    assert second.name == "sums"
    assert [step.rule for step in second.steps] == ["add-zero"]


def test_nothing_is_cached_unless_asked_for() -> None:
    before = counters.rewrites
    graph_rewrite(x + 0, SUMS)
    assert counters.rewrites == before + 1
    with recording() as record:
        pass
    graph_rewrite(x + 0, SUMS)
    assert record == []


def test_one_walk_rebuilds_what_a_function_changes() -> None:
    """The function sees each node of its ops once, with what became of its sources."""
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    graph = (x + 1) * (x + 1) + (y + 2)
    seen: list[UOp] = []

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        seen.append(node)
        return src[0] * 3 if node.src[0] is x else None

    done: dict[UOp, UOp] = {y: x}
    assert rebuilt(graph, change, (Ops.ADD,), done) is (x * 3) * (x * 3) + (x + 2)
    assert len(seen) == len(set(seen)) == 3 and done[x + 1] is x * 3
    assert rebuilt(graph, lambda node, src: None, None) is graph
