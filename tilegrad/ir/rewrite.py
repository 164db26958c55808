"""The drivers by which a graph changes: a set of rules until none applies, or one walk.

`graph_rewrite` goes from the leaves to the root until no rule applies. Each node is finished once,
so the cost is near linear in the number of nodes. A set of rules that is applied to most graphs
many times caches its result for a node in the node (`is_cached`). Patterns and rules are in
`ir.pattern`, sets of them in `ir.matcher`. `rebuilt` visits each node once and lets a function of a
pass make some of them anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tilegrad.base.errors import InternalError
from tilegrad.base.trace import PassRecord, caller_outside, counters, trace
from tilegrad.ir.matcher import PatternMatcher, Step
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["graph_rewrite", "rebuilt", "replace_and_rewrite", "replayed", "settle"]

_LIMIT = 1000
# Functions of these files call `graph_rewrite` for others.
_HANDED_ON = (__file__, os.path.join(os.path.dirname(__file__), "rules", "__init__.py"))
Remake = Callable[[UOp, tuple[UOp, ...]], UOp]
Change = Callable[[UOp, tuple[UOp, ...]], UOp | None]
"""Replacement of a node, given those of its sources; None: the node over these."""


def graph_rewrite(
    root: UOp,
    matcher: PatternMatcher,
    ctx: Any = None,
    *,
    name: str | None = None,
    remake: Remake | None = None,
) -> UOp:
    """`root` with the rules of `matcher` applied, leaves first, until none applies.

    `name` labels the pass in the trace. `remake(node, src)` makes the node that the rules see from
    a node of `root`, whose sources became `src`: a pass over all nodes and rules for its result are
    one walk. Raises InternalError if one node is rewritten more than 1,000 times in a row.
    """
    counters.rewrites += 1
    record = trace.get()
    if record is None:
        if matcher.is_cached and remake is None:
            return settle(root, matcher)
        return _rewrite(root, matcher.steps(), ctx, matcher.name, remake)
    entry = PassRecord(
        name or matcher.name, root, called_at=caller_outside(_HANDED_ON), remake=remake
    )
    record.append(entry)

    def step(node: UOp, ctx: Any) -> UOp | None:
        return matcher.rewrite_traced(node, ctx, entry.steps)

    # The trace has every rewrite, so the cache is not used.
    entry.after = _rewrite(root, [step] * len(matcher.steps()), ctx, matcher.name, remake)
    return entry.after  # type: ignore[no-any-return]


def replayed(record: PassRecord, count: int) -> UOp:
    """The graph of a recorded pass after its first `count` rewrites."""
    made = {step.before: step.after for step in record.steps[:count]}
    steps: list[Step | None] = [lambda node, ctx: made.get(node)]
    steps *= 1 + max(op.serial for op in Ops)
    return _rewrite(record.before, steps, None, record.name, record.remake)


def replace_and_rewrite(
    root: UOp, mapping: Mapping[UOp, UOp], matcher: PatternMatcher, *, name: str
) -> UOp:
    """`graph_rewrite(root.substitute(mapping), ...)` by cached rules, in one walk."""
    if trace.get() is not None:
        return graph_rewrite(root.substitute(mapping), matcher, name=name)
    counters.rewrites += 1
    done = {node: settle(value, matcher) for node, value in mapping.items()}
    now = done.__getitem__
    for node in root.toposort():
        if node in done:
            continue
        src = tuple(map(now, node.src))
        fresh = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        done[node] = fresh if fresh.simple is True else settle(fresh, matcher)
    counters.visits += len(done)
    return done[root]


def rebuilt(
    root: UOp,
    change: Change,
    ops: Collection[Ops] | None,
    done: dict[UOp, UOp] | None = None,
) -> UOp:
    """`root` in one walk, sources first: a node of `ops` (None: any) is replaced by `change`, any
    other is the same over its new sources. `done` has the replacements of some nodes before, and of
    all after.

    before   ADD(LOAD(a, i), 1)
    after    ADD(LOAD(b, i), 1)     change(LOAD(a, i), (a, i)) = LOAD(b, i)
    """
    done = {} if done is None else done
    now = done.__getitem__
    for node in root.toposort():
        if node in done:
            continue
        src = tuple(map(now, node.src))
        made = change(node, src) if ops is None or node.op in ops else None
        if made is None:
            made = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        done[node] = made
    return done[root]


def settle(root: UOp, matcher: PatternMatcher) -> UOp:
    """The result of cached rules for `root`; the results for all nodes below it are cached too."""
    simple = root.simple
    if simple is not None:
        return root if simple is True else simple
    steps = matcher.steps()
    # The next form of a node, by new sources or by a rule. The node waits on the stack below that
    # form.
    became: dict[UOp, UOp] = {}
    # The number of consecutive rules that led to a node.
    chain: dict[UOp, int] = {}
    visits = 0
    stack = [root]
    while stack:
        node = stack[-1]
        if node.simple is not None:
            stack.pop()
            continue
        made = became.get(node)
        if made is not None:
            if made.simple is None:
                raise _endless(matcher.name, node)
            node.simple = made if made.simple is True else made.simple
            stack.pop()
            continue
        waits = is_new = False
        for source in node.src:
            simple = source.simple
            if simple is None:
                stack.append(source)
                waits = True
            elif simple is not True:
                is_new = True
        if waits:
            continue
        visits += 1
        length = chain.get(node, 0)
        if is_new:
            src = [each if each.simple is True else each.simple for each in node.src]
            made = UOp(node.op, node.dtype, tuple(src), node.arg)  # type: ignore[arg-type]
        else:
            step = steps[node.op.serial]
            made = None if step is None else step(node, None)
            if made is None:
                node.simple = True
                stack.pop()
                continue
            length += 1
            if length > _LIMIT:
                raise _endless(matcher.name, node)
        became[node], chain[made] = made, length
        if made.simple is None:
            stack.append(made)
    counters.visits += visits
    simple = root.simple
    return root if simple is True else simple  # type: ignore[return-value]


def _endless(name: str, node: UOp) -> InternalError:
    return InternalError(f"{name} does not come to an end", node=repr(node)[:400])


def _rewrite(
    root: UOp, steps: Sequence[Step | None], ctx: Any, name: str, remake: Remake | None
) -> UOp:
    """The result of rules without a cache for `root`."""
    done: dict[UOp, UOp] = {}
    now = done.__getitem__
    # Sources come first, so only the result of a rule has to be descended into.
    for node in root.toposort():
        src = tuple(map(now, node.src))
        if remake is not None:
            fresh = remake(node, src)
        else:
            fresh = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        if fresh not in done:
            step = steps[fresh.op.serial]
            made = None if step is None else step(fresh, ctx)
            if made is not None:
                _descend(made, done, steps, ctx, name)
            done[fresh] = fresh if made is None else done[made]
        if fresh is not node:
            done[node] = done[fresh]
    counters.visits += len(done)
    return done[root]


def _descend(
    root: UOp,
    done: dict[UOp, UOp],
    steps: Sequence[Step | None],
    ctx: Any,
    name: str,
) -> None:
    """Rewrite `root` and all nodes below it that are not in `done`; the results are added to it."""
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
        final = None if made is None else done.get(made)
        if final is not None:
            done[node] = final
            continue
        missing = [source for source in node.src if source not in done]
        if missing:
            missing.reverse()
            stack += missing
            continue
        length = chain.get(node, 0)
        src = tuple([done[source] for source in node.src])
        if src != node.src:
            made = UOp(node.op, node.dtype, src, node.arg)
        else:
            step = steps[node.op.serial]
            made = None if step is None else step(node, ctx)
            length += 1
        if made is None:
            done[node] = node
        elif length > _LIMIT or node in became:
            raise _endless(name, node)
        else:
            became[node], chain[made] = made, length
            if made not in done:
                stack.append(made)
