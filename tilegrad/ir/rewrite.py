"""Patterns, rules, rule sets, and the driver that applies them: the only way a graph changes.

A rule is an equation with a guard, or a pattern with a function. `PatternMatcher` turns its
patterns into Python source, one function per rule, and tries on a node only the rules whose root
can be its op. `graph_rewrite` goes from the leaves to the root until no rule applies; each node is
finished once, so its cost is near linear in the number of nodes.
"""

from __future__ import annotations

import inspect
import marshal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.base import cache
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.trace import PassRecord, Rewrite, counters, trace
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["PatternMatcher", "Rule", "UPat", "fold", "graph_rewrite"]


def _as_tuple(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    return tuple(value) if isinstance(value, (tuple, list, set, frozenset)) else (value,)


class UPat:
    """A pattern for a node: op (one, several, or None for any), dtype, sources, argument, and the
    name it captures.

    `src` None takes any sources; a tuple takes those in that order, or in any order where the op
    commutes. A name used twice must be the same node. Operators build patterns: `(x + c0) + c1`.
    """

    __slots__ = ("allow_any_len", "arg", "dtype", "folded", "name", "op", "src")

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: UPat | Sequence[UPat] | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
    ):
        self.op: tuple[Ops, ...] | None = _as_tuple(op)
        self.dtype: tuple[DType, ...] | None = _as_tuple(dtype)
        self.src: tuple[UPat, ...] | None = _as_tuple(src)
        self.arg, self.name, self.allow_any_len = arg, name, allow_any_len
        self.folded = False

    @staticmethod
    def var(name: str, dtype: DType | Iterable[DType] | None = None) -> UPat:
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def wilds(names: str, dtype: DType | Iterable[DType] | None = None) -> tuple[UPat, ...]:
        """A pattern for any node, per name."""
        return tuple(UPat(dtype=dtype, name=name) for name in names.split())

    @staticmethod
    def constants(names: str) -> tuple[UPat, ...]:
        """A pattern for any CONST, per name; guards and `fold` see its number."""
        return tuple(UPat(Ops.CONST, name=name) for name in names.split())

    @staticmethod
    def const(value: Any) -> UPat:
        """A pattern for the constant `value`."""
        return UPat(Ops.CONST, arg=value)

    @property
    def is_constant(self) -> bool:
        return self.op == (Ops.CONST,)

    def _binary(self, op: Ops, other: Any, swap: bool = False) -> UPat:
        other = other if isinstance(other, UPat) else UPat.const(other)
        return UPat(op, src=(other, self) if swap else (self, other))

    def __add__(self, other: Any) -> UPat:
        return self._binary(Ops.ADD, other)

    def __mul__(self, other: Any) -> UPat:
        return self._binary(Ops.MUL, other)

    def __sub__(self, other: Any) -> UPat:
        return self._binary(Ops.SUB, other)

    def __neg__(self) -> UPat:
        return UPat(Ops.NEG, src=(self,))

    def __floordiv__(self, other: Any) -> UPat:
        return self._binary(Ops.FLOORDIV, other)

    def __mod__(self, other: Any) -> UPat:
        return self._binary(Ops.FLOORMOD, other)

    def __truediv__(self, other: Any) -> UPat:
        return self._binary(Ops.FDIV, other)

    def __lt__(self, other: Any) -> UPat:
        return self._binary(Ops.CMPLT, other)

    def __gt__(self, other: Any) -> UPat:
        return self._binary(Ops.CMPLT, other, swap=True)

    def ne(self, other: Any) -> UPat:
        return self._binary(Ops.CMPNE, other)

    def eq(self, other: Any) -> UPat:
        return self._binary(Ops.CMPEQ, other)

    def __and__(self, other: Any) -> UPat:
        return self._binary(Ops.AND, other)

    def __or__(self, other: Any) -> UPat:
        return self._binary(Ops.OR, other)

    def __xor__(self, other: Any) -> UPat:
        return self._binary(Ops.XOR, other)

    def __lshift__(self, other: Any) -> UPat:
        return self._binary(Ops.SHL, other)

    def __rshift__(self, other: Any) -> UPat:
        return self._binary(Ops.SHR, other)

    def maximum(self, other: Any) -> UPat:
        return self._binary(Ops.MAX, other)

    def where(self, yes: Any, no: Any) -> UPat:
        yes, no = (part if isinstance(part, UPat) else UPat.const(part) for part in (yes, no))
        return UPat(Ops.WHERE, src=(self, yes, no))

    def named(self, name: str) -> UPat:
        """This pattern, capturing its node under `name`."""
        return UPat(self.op, self.dtype, self.src, self.arg, name, self.allow_any_len)

    def names(self) -> dict[str, UPat]:
        """The captures of this pattern and its sources."""
        found = {} if self.name is None else {self.name: self}
        for part in self.src or ():
            found |= part.names()
        return found


def fold(expression: UPat) -> UPat:
    """On the right side of an equation: the number that `expression`, made of constants, comes
    to.
    """
    result = UPat(expression.op, expression.dtype, expression.src, expression.arg, expression.name)
    result.folded = True
    return result


class Rule:
    """A named rewrite: left = right where `when` holds, or left -> `function(**captures)`.

    A guard sees constants as numbers and other captures as nodes. A function returns None where it
    does not apply, and is given `ctx` if it asks for it.
    """

    __slots__ = ("_match", "function", "left", "name", "right", "when")

    def __init__(
        self,
        name: str,
        left: UPat,
        right: UPat | int | float | bool | None = None,
        *,
        when: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
    ):
        self.name, self.left, self.when, self.function = name, left, when, function
        self.right = right if right is None or isinstance(right, UPat) else UPat.const(right)
        self._match: Callable[[UOp, Any], UOp | None] | None = None

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"


class _Writer:
    """Python source for one rule."""

    def __init__(self, rule: Rule, number: int):
        self.rule, self.number = rule, number
        self.lines: list[str] = []
        self.values: dict[str, Any] = {}
        self.bound: dict[str, str] = {}
        self.count = 0

    def constant(self, value: Any, prefix: str) -> str:
        """A global of the generated module that holds `value`."""
        name = f"{prefix}{self.number}_{len(self.values)}"
        self.values[name] = value
        return name

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def write(self) -> str:
        self.emit(0, f"def match{self.number}(u, ctx):")
        depth = self.match(self.rule.left, "u", 1, is_root=True)
        self.result(depth)
        return "\n".join(self.lines)

    def match(self, pattern: UPat, node: str, depth: int, is_root: bool = False) -> int:
        tests: list[str] = []
        if pattern.op is not None and not (is_root and len(pattern.op) >= 1):
            ops = [f"Ops.{op.name}" for op in pattern.op]
            tests.append(
                f"{node}.op is {ops[0]}"
                if len(ops) == 1
                else f"{node}.op in {self.constant(frozenset(pattern.op), 'ops')}"
            )
        if pattern.dtype is not None:
            kinds = self.constant(pattern.dtype, "dtypes")
            tests.append(f"({node}.dtype in {kinds} or {node}.dtype.scalar in {kinds})")
        if pattern.arg is not None:
            tests.append(f"{node}.arg == {self.constant(pattern.arg, 'arg')}")
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
        parts = pattern.src
        order = sorted(range(len(children)), key=lambda i: parts[i].op is None)
        for i in order:
            depth = self.match(pattern.src[i], children[i], depth)
        return depth

    def result(self, depth: int) -> None:
        rule = self.rule
        captures = rule.left.names()
        numbers = {
            name for name, part in captures.items() if part.is_constant and rule.right is not None
        }
        if rule.when is not None:
            wanted = inspect.signature(rule.when).parameters
            given = ", ".join(
                f"{name}={self.bound[name]}{'.arg' if name in numbers else ''}" for name in wanted
            )
            self.emit(depth, f"if {self.constant(rule.when, 'when')}({given}):")
            depth += 1
        if rule.right is not None:
            self.emit(depth, f"return {self.build(rule.right, 'u.dtype')}")
            return
        assert rule.function is not None
        parameters = inspect.signature(rule.function).parameters
        named = [f"{name}={self.bound[name]}" for name in captures if name in parameters]
        if "ctx" in parameters:
            named.append("ctx=ctx")
        self.emit(depth, f"r = {self.constant(rule.function, 'f')}({', '.join(named)})")
        self.emit(depth, "if r is not None:")
        self.emit(depth + 1, "return r")

    def build(self, pattern: UPat, dtype: str) -> str:
        """An expression that makes the node of a right side; constants take `dtype`."""
        if pattern.folded or (pattern.is_constant and pattern.name is None):
            return f"UOp(Ops.CONST, {dtype}, (), {self.number_of(pattern)})"
        if pattern.name is not None and pattern.name in self.bound:
            node = self.bound[pattern.name]
            return f"UOp(Ops.CONST, {dtype}, (), {node}.arg)" if pattern.is_constant else node
        assert pattern.op is not None and pattern.src is not None
        op = pattern.op[0]
        parts = pattern.src[1:] if op is Ops.WHERE else pattern.src
        typed = next((part for part in parts if self.has_dtype(part)), None)
        inner = dtype if typed is None else f"{self.build(typed, dtype)}.dtype"
        src = [self.build(part, inner) for part in parts]
        if op is Ops.WHERE:
            src.insert(0, self.build(pattern.src[0], dtype))
        out = f"dtypes.bool.vec({inner}.lanes)" if op.is_boolean else inner
        return f"UOp(Ops.{op.name}, {out}, ({', '.join(src)},))"

    def has_dtype(self, pattern: UPat) -> bool:
        if pattern.folded or pattern.is_constant:
            return False
        return pattern.name in self.bound or any(self.has_dtype(part) for part in pattern.src or ())

    def number_of(self, pattern: UPat) -> str:
        if pattern.is_constant:
            return (
                f"{self.bound[pattern.name]}.arg"
                if pattern.name is not None
                else self.constant(pattern.arg, "c")
            )
        assert pattern.op is not None and pattern.src is not None
        arguments = ", ".join(self.number_of(part) for part in pattern.src)
        return f"Ops.{pattern.op[0].name}.evaluate({arguments})"


def _same_shape(a: UPat, b: UPat) -> bool:
    """Whether swapping `a` and `b` matches nothing new: both take anything, under names of their
    own.
    """
    plain = all(
        part.op is None and part.dtype is None and part.src is None and part.arg is None
        for part in (a, b)
    )
    return plain and not (a.name and b.name)


Entry = Rule | tuple[UPat, Callable[..., Any]]


class PatternMatcher:
    """A set of rules: `PatternMatcher(name, [...])`, or just a list; `a + b` tries the rules of `a`
    first.
    """

    def __init__(self, name: str | Sequence[Entry] = "rules", rules: Sequence[Entry] = ()):
        entries = rules if isinstance(name, str) else name
        self.name = name if isinstance(name, str) else "rules"
        self.rules: list[Rule] = [self._as_rule(entry) for entry in entries]
        self._table: dict[int, list[tuple[Rule, Callable[[UOp, Any], UOp | None]]]] | None = None

    @staticmethod
    def _as_rule(entry: Entry) -> Rule:
        if isinstance(entry, Rule):
            return entry
        pattern, function = entry
        return Rule(
            getattr(function, "__name__", "rule").replace("_", "-"), pattern, function=function
        )

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(f"{self.name}+{other.name}", [*self.rules, *other.rules])

    def rule(self, name: str, pattern: UPat) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: the function is what `pattern` becomes."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.rules.append(Rule(name, pattern, function=function))
            self._table = None
            return function

        return add

    def _compile(self) -> dict[int, list[tuple[Rule, Callable[[UOp, Any], UOp | None]]]]:
        new = [rule for rule in self.rules if rule._match is None]
        if new:
            writers = [_Writer(rule, number) for number, rule in enumerate(new)]
            source = "\n".join(writer.write() for writer in writers)
            scope: dict[str, Any] = {"UOp": UOp, "Ops": Ops, "dtypes": dtypes}
            for writer in writers:
                scope |= writer.values
            exec(_code(source, self.name), scope)
            for rule, writer in zip(new, writers, strict=True):
                rule._match = scope[f"match{writer.number}"]
        table: dict[int, list[tuple[Rule, Callable[[UOp, Any], UOp | None]]]] = {}
        for rule in self.rules:
            assert rule._match is not None
            for op in rule.left.op or tuple(Ops):
                table.setdefault(op.serial, []).append((rule, rule._match))
        self._table = table
        return table

    def rewrite(self, node: UOp, ctx: Any = None) -> UOp | None:
        """What the first rule that applies makes of `node`, or None."""
        table = self._table or self._compile()
        for _, match in table.get(node.op.serial, ()):
            result = match(node, ctx)
            if result is not None and result is not node:
                return result
        return None

    def rewrite_traced(self, node: UOp, ctx: Any, steps: list[Rewrite]) -> UOp | None:
        """As `rewrite`, and the step is kept in `steps`."""
        table = self._table or self._compile()
        for rule, match in table.get(node.op.serial, ()):
            result = match(node, ctx)
            if result is not None and result is not node:
                steps.append(Rewrite(rule.name, node, result))
                return result
        return None


def _code(source: str, name: str) -> Any:
    """The code object of generated matcher source, kept on disk."""
    key = cache.digest(source, sys.version)
    kept = cache.get("matchers", key)
    if kept is not None:
        return marshal.loads(kept)
    code = compile(source, f"<rules {name}>", "exec")
    cache.put("matchers", key, marshal.dumps(code))
    return code


_LIMIT = 1000


def graph_rewrite(
    root: UOp, matcher: PatternMatcher, ctx: Any = None, *, name: str | None = None
) -> UOp:
    """`root` with the rules of `matcher` applied, leaves first, until none applies.

    `name` labels the pass in the trace. Raises InternalError if one node is rewritten more than
    1,000 times in a row.
    """
    counters.rewrites += 1
    record = trace.get()
    if record is None:
        return _rewrite(root, lambda node: matcher.rewrite(node, ctx), matcher.name)
    entry = PassRecord(name or matcher.name, root)
    record.append(entry)
    entry.after = _rewrite(
        root, lambda node: matcher.rewrite_traced(node, ctx, entry.steps), matcher.name
    )
    return entry.after  # type: ignore[no-any-return]


def _rewrite(root: UOp, step: Callable[[UOp], UOp | None], name: str) -> UOp:
    done: dict[UOp, UOp] = {}
    # An entry (node, becomes, chain): with `becomes`, node's result is that of `becomes`.
    stack: list[tuple[UOp, UOp | None, int]] = [(root, None, 0)]
    while stack:
        node, becomes, chain = stack[-1]
        if node in done:
            stack.pop()
            continue
        if becomes is not None:
            if becomes in done:
                done[node] = done[becomes]
                stack.pop()
            else:
                stack.append((becomes, None, chain))
            continue
        missing = [source for source in node.src if source not in done]
        if missing:
            stack.extend([(source, None, 0) for source in reversed(missing)])
            continue
        src = tuple([done[source] for source in node.src])
        fresh = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        if fresh is not node and fresh in done:
            done[node] = done[fresh]
            stack.pop()
            continue
        result = step(fresh)
        if result is None:
            done[node] = done[fresh] = fresh
            stack.pop()
            continue
        if chain > _LIMIT:
            raise InternalError(f"{name} does not come to an end", node=repr(node)[:400])
        stack[-1] = (node, result, chain + 1)
    counters.visits += len(done)
    return done[root]
