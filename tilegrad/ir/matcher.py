"""Rule sets, compiled to Python source: one function per op, which tries only the rules whose root
can be that op.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.flat_code import FlatCode
from tilegrad.base.recent import Recent
from tilegrad.base.trace import Rewrite
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp

__all__ = ["PatternMatcher", "Step"]


class _RuleSource:
    """Python source for one rule, in the code of a step."""

    def __init__(self, rule: Rule, code: FlatCode):
        self.rule, self.code = rule, code
        self.bound: dict[str, str] = {}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def emit(self, depth: int, text: str) -> None:
        self.code.lines.append("    " * depth + text)

    def write(self) -> None:
        """Write the lines of a function of `u`, `ctx` and `kind`, the scalar dtype of `u`, that
        return the result where the rule applies.
        """
        self.result(self.match(self.rule.left, "u", 0, is_root=True))

    def match(self, pattern: UPat, node: str, depth: int, is_root: bool = False) -> int:
        tests: list[str] = []
        if pattern.op is not None and not is_root:
            ops = [f"Ops.{op.name}" for op in pattern.op]
            tests.append(
                f"{node}.op is {ops[0]}"
                if len(ops) == 1
                else f"{node}.op in {self.code.name(frozenset(pattern.op))}"
            )
        if pattern.dtype is not None:
            kinds = self.code.name(frozenset(pattern.dtype))
            scalar = "kind" if is_root else f"{node}.dtype.scalar"
            is_exact = any(dtype.scalar is not dtype for dtype in pattern.dtype)
            tests.append(
                f"({node}.dtype in {kinds} or {scalar} in {kinds})"
                if is_exact
                else f"{scalar} in {kinds}"
            )
        if pattern.arg is not None:
            tests.append(f"{node}.arg == {self.code.name(pattern.arg)}")
            if pattern.is_constant and pattern.arg == 0:
                # -0.0 is equal to it, but another constant.
                sign = self.code.name(math.copysign)
                tests.append(f"{sign}(1, {node}.arg) == {math.copysign(1, pattern.arg)}")
        if pattern.name is not None:
            if pattern.name in self.bound:
                tests.append(f"{node} is {self.bound[pattern.name]}")
            else:
                self.bound[pattern.name] = node
        if pattern.src is not None:
            length = len(pattern.src)
            tests.append(f"len({node}.src) {'>=' if pattern.allow_any_len else '=='} {length}")
        if tests:
            self.emit(depth, f"if {' and '.join(tests)}:")
            depth += 1
        if not pattern.src:
            return depth
        children = [self.fresh() for _ in pattern.src]
        swaps = (
            pattern.op is not None
            and all(op.commutes for op in pattern.op)
            and len(pattern.src) == 2
        )
        if swaps and not _same_shape(*pattern.src):
            a, b = children
            self.emit(depth, f"for {a}, {b} in ({node}.src, {node}.src[::-1]):")
            depth += 1
        elif not pattern.allow_any_len:
            self.emit(depth, f"{', '.join(children)}, = {node}.src")
        else:
            self.emit(depth, f"{', '.join(children)}, *_ = {node}.src")
        # Patterns that name an op first: they reject soonest.
        patterns = pattern.src
        order = sorted(range(len(children)), key=lambda i: patterns[i].op is None)
        for i in order:
            depth = self.match(pattern.src[i], children[i], depth)
        return depth

    def result(self, depth: int) -> None:
        rule = self.rule
        captures = rule.left.names()
        numbers = {
            name for name, each in captures.items() if each.is_constant and rule.right is not None
        }
        if rule.when is not None:
            wanted = _parameters(rule.when)
            given = ", ".join(
                f"{name}={self.bound[name]}{'.arg' if name in numbers else ''}" for name in wanted
            )
            self.emit(depth, f"if {self.code.name(rule.when)}({given}):")
            depth += 1
        if rule.right is not None:
            self.emit(depth, f"r = {self.build(rule.right, 'u.dtype')}")
            self.emit(depth, "if r is not u:")
        else:
            assert rule.function is not None
            parameters = _parameters(rule.function)
            named = [f"{name}={self.bound[name]}" for name in captures if name in parameters]
            if "ctx" in parameters:
                named.append("ctx=ctx")
            self.emit(depth, f"r = {self.code.name(rule.function)}({', '.join(named)})")
            self.emit(depth, "if r is not None and r is not u:")
        self.emit(depth + 1, "return r")

    def build(self, pattern: UPat, dtype: str) -> str:
        """An expression that makes the node of a right side; constants have `dtype`."""
        if pattern.folded or (pattern.is_constant and pattern.name is None):
            return f"UOp(Ops.CONST, {dtype}, (), {self.number_of(pattern)})"
        if pattern.name is not None and pattern.name in self.bound:
            node = self.bound[pattern.name]
            return f"UOp(Ops.CONST, {dtype}, (), {node}.arg)" if pattern.is_constant else node
        assert pattern.op is not None and pattern.src is not None
        op = pattern.op[0]
        patterns = pattern.src[1:] if op is Ops.WHERE else pattern.src
        typed = next((each for each in patterns if self.has_dtype(each)), None)
        inner = dtype if typed is None else f"{self.build(typed, dtype)}.dtype"
        src = [self.build(each, inner) for each in patterns]
        if op is Ops.WHERE:
            src.insert(0, self.build(pattern.src[0], dtype))
        out = f"dtypes.bool.vec({inner}.lanes)" if op.is_boolean else inner
        return f"UOp(Ops.{op.name}, {out}, ({', '.join(src)},))"

    def has_dtype(self, pattern: UPat) -> bool:
        if pattern.folded or pattern.is_constant:
            return False
        return pattern.name in self.bound or any(self.has_dtype(each) for each in pattern.src or ())

    def number_of(self, pattern: UPat) -> str:
        if pattern.is_constant:
            return (
                f"{self.bound[pattern.name]}.arg"
                if pattern.name is not None
                else self.code.name(pattern.arg)
            )
        assert pattern.op is not None and pattern.src is not None
        arguments = ", ".join(self.number_of(each) for each in pattern.src)
        return f"Ops.{pattern.op[0].name}.evaluate({arguments})"


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    """The names of a function's parameters."""
    code = getattr(function, "__code__", None)
    if code is None:
        return tuple(inspect.signature(function).parameters)
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


def _same_shape(a: UPat, b: UPat) -> bool:
    """Whether swapping `a` and `b` matches nothing new: both match any node, under names of their
    own.
    """
    plain = all(
        each.op is None and each.dtype is None and each.src is None and each.arg is None
        for each in (a, b)
    )
    return plain and not (a.name and b.name)


Entry = Rule | tuple[UPat, Callable[..., Any]]
Step = Callable[[UOp, Any], UOp | None]
# More than the sums in tilegrad: they all stay compiled.
_MOST_SUMS = 64
# A cache of compiled sums `a + b`: a sum may be written where it is used.
_compiled: Recent[tuple[Rule, ...], list[Step | None]] = Recent(lambda: _MOST_SUMS)
# Half of all steps try the rules of another one: of another op, or of another sum.
_steps: Recent[tuple[Rule, ...], Step] = Recent(lambda: 16 * _MOST_SUMS)


class PatternMatcher:
    """A set of rules: `PatternMatcher(name, [...])`, or just a list; `a + b` tries the rules of `a`
    first.

    With `is_cached`, the result of the rules for a node is cached in its `simple` slot, so that
    only new nodes of a graph are visited. One set of rules may do so, without a context.
    """

    def __init__(
        self,
        name: str | Sequence[Entry] = "rules",
        rules: Sequence[Entry] = (),
        *,
        is_cached: bool = False,
    ):
        entries = rules if isinstance(name, str) else name
        self.name = name if isinstance(name, str) else "rules"
        self.rules: list[Rule] = [self._as_rule(entry) for entry in entries]
        self.is_cached = is_cached
        self._is_sum = False
        self._steps: list[Step | None] | None = None
        self._each: dict[Rule, Step] | None = None

    @staticmethod
    def _as_rule(entry: Entry) -> Rule:
        if isinstance(entry, Rule):
            return entry
        pattern, function = entry
        return Rule(
            getattr(function, "__name__", "rule").replace("_", "-"), pattern, function=function
        )

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        total = PatternMatcher(f"{self.name}+{other.name}", [*self.rules, *other.rules])
        total._is_sum = True
        return total

    def rule(self, name: str, pattern: UPat) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: the function gives the replacement of `pattern`."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.rules.append(Rule(name, pattern, function=function))
            self._steps = self._each = None
            return function

        return add

    def steps(self) -> list[Step | None]:
        """For each op, by its number, the function that tries its rules in order. It is compiled at
        the first node of the op, as most graphs have few ops.
        """
        if self._steps is None and self._is_sum:
            self._steps = _compiled.get(tuple(self.rules))
        if self._steps is None:
            rules: dict[int, list[Rule]] = {}
            for rule in self.rules:
                for op in rule.left.op or Ops:
                    rules.setdefault(op.serial, []).append(rule)
            self._steps = [None] * (1 + max(op.serial for op in Ops))
            for serial, tried in rules.items():
                self._steps[serial] = _deferred(self._steps, serial, tried, self.name)
            if self._is_sum:
                _compiled.put(tuple(self.rules), self._steps)
        return self._steps

    def rewrite(self, node: UOp, ctx: Any = None) -> UOp | None:
        """The result of the first rule that applies to `node`, or None."""
        step = (self._steps or self.steps())[node.op.serial]
        return None if step is None else step(node, ctx)

    def rewrite_traced(self, node: UOp, ctx: Any, steps: list[Rewrite]) -> UOp | None:
        """As `rewrite`, with the rewrite appended to `steps`."""
        if self._each is None:
            self._each = {rule: _step_of([rule], self.name) for rule in self.rules}
        for rule, match in self._each.items():
            if rule.left.op is not None and node.op not in rule.left.op:
                continue
            result = match(node, ctx)
            if result is not None:
                steps.append(Rewrite(rule.name, node, result, rule.written_at))
                return result
        return None


def _deferred(steps: list[Step | None], serial: int, rules: Sequence[Rule], name: str) -> Step:
    """A step that puts the compiled one into its slot of `steps`, and calls it."""

    def first(u: UOp, ctx: Any) -> UOp | None:
        step = _steps.get(tuple(rules)) or _steps.put(tuple(rules), _step_of(rules, name))
        steps[serial] = step
        return step(u, ctx)

    return first


def _step_of(rules: Sequence[Rule], name: str) -> Step:
    """The function that tries `rules` in order.

    It is compiled in each process: nothing that Python would run is read from the disk cache.
    """
    code = FlatCode(UOp=UOp, Ops=Ops, dtypes=dtypes)
    code.lines.append("kind = u.dtype.scalar")
    for rule in rules:
        _RuleSource(rule, code).write()
    step: Step = code.function("step(u, ctx)", f"rules {name}")
    return step
