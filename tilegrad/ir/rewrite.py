"""The driver that applies a set of rules to a graph: the only way a graph changes.

`graph_rewrite` goes from the leaves to the root until no rule applies. Each node is finished once,
so the cost is near linear in the number of nodes. A set of rules that is applied to most graphs
many times caches its result for a node in the node (`is_cached`). Patterns and rules are in
`ir.pattern`, sets of them in `ir.matcher`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilegrad.base.errors import InternalError
from tilegrad.base.trace import PassRecord, counters, trace
from tilegrad.ir.matcher import PatternMatcher, Step
from tilegrad.ir.uop import UOp, toposort

__all__ = ["graph_rewrite", "replace_and_rewrite", "settle"]

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
        if matcher.is_cached:
            return _cached(root, matcher)
        return _rewrite(root, matcher.steps(), ctx, matcher.name)
    entry = PassRecord(name or matcher.name, root)
    record.append(entry)

    def step(node: UOp, ctx: Any) -> UOp | None:
        return matcher.rewrite_traced(node, ctx, entry.steps)

    # The trace has every rewrite, so the cache is not used.
    entry.after = _rewrite(root, [step] * len(matcher.steps()), ctx, matcher.name)
    return entry.after  # type: ignore[no-any-return]


def replace_and_rewrite(
    root: UOp, mapping: Mapping[UOp, UOp], matcher: PatternMatcher, *, name: str | None = None
) -> UOp:
    """`graph_rewrite(root.substitute(mapping), ...)` by cached rules, in one walk."""
    if trace.get() is not None:
        return graph_rewrite(root.substitute(mapping), matcher, name=name)
    counters.rewrites += 1
    done = {node: _cached(value, matcher) for node, value in mapping.items()}
    for node in root.toposort():
        if node in done:
            continue
        src = tuple([done[source] for source in node.src])
        fresh = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        done[node] = fresh if fresh.simple is True else settle(fresh, matcher)
    counters.visits += len(done)
    return done[root]


def settle(node: UOp, matcher: PatternMatcher) -> UOp:
    """The result of cached rules for `node`, whose sources are final."""
    found = _final(node)
    if found is not None:
        return found
    step = matcher.steps()[node.op.serial]
    made = None if step is None else step(node, None)
    if made is None:
        node.simple = True
        return node
    done: dict[UOp, UOp] = {}
    if made.simple is None:

        def known(each: UOp) -> UOp | None:
            return _final(each) or done.get(each)

        _descend(made, done, known, matcher.steps(), None, matcher.name)
        for each, final in done.items():
            each.simple = True if final is each else final
        counters.visits += len(done)
    node.simple = found = _final(made) or made
    return found


def _final(node: UOp) -> UOp | None:
    """The cached result for `node`, if there is one."""
    simple = node.simple
    return node if simple is True else simple


def _cached(root: UOp, matcher: PatternMatcher) -> UOp:
    """The result of cached rules for `root`; the results for all nodes below it are cached too."""
    if root.simple is None:
        for node in toposort([root], stop=_final):
            if node.simple is None:
                src = tuple([_final(source) or source for source in node.src])
                if src == node.src:
                    settle(node, matcher)
                else:
                    node.simple = settle(UOp(node.op, node.dtype, src, node.arg), matcher)
    return _final(root) or root


def _rewrite(root: UOp, steps: Sequence[Step | None], ctx: Any, name: str) -> UOp:
    """The result of rules without a cache for `root`."""
    done: dict[UOp, UOp] = {}
    # Sources come first, so only the result of a rule has to be descended into.
    for node in root.toposort():
        src = tuple([done[source] for source in node.src])
        fresh = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        if fresh not in done:
            step = steps[fresh.op.serial]
            made = None if step is None else step(fresh, ctx)
            if made is not None:
                _descend(made, done, done.get, steps, ctx, name)
            done[fresh] = fresh if made is None else done[made]
        if fresh is not node:
            done[node] = done[fresh]
    counters.visits += len(done)
    return done[root]


def _descend(
    root: UOp,
    done: dict[UOp, UOp],
    known: Callable[[UOp], UOp | None],
    steps: Sequence[Step | None],
    ctx: Any,
    name: str,
) -> None:
    """Rewrite `root` and all nodes below it that are not `known`; the results are added to
    `done`.
    """
    # The next form of a node, by new sources or by a rule. The node waits on the stack below that
    # form.
    became: dict[UOp, UOp] = {}
    # The number of consecutive rules that led to a node.
    chain: dict[UOp, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        made = became.get(node)
        final = None if made is None else known(made)
        if final is not None:
            done[node] = final
            continue
        missing = [source for source in node.src if known(source) is None]
        if missing:
            missing.reverse()
            stack += missing
            continue
        length = chain.get(node, 0)
        src = tuple([known(source) or source for source in node.src])
        if src != node.src:
            made = UOp(node.op, node.dtype, src, node.arg)
        else:
            step = steps[node.op.serial]
            made = None if step is None else step(node, ctx)
            length += 1
        if made is None:
            done[node] = node
        elif length > _LIMIT or node in became:
            raise InternalError(f"{name} does not come to an end", node=repr(node)[:400])
        else:
            became[node], chain[made] = made, length
            if known(made) is None:
                stack.append(made)
