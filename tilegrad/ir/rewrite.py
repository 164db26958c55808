"""The driver that applies a set of rules to a graph: the only way a graph changes.

`graph_rewrite` goes from the leaves to the root until no rule applies; each node is finished once,
so its cost is near linear in the number of nodes. A set of rules that is applied to most graphs
many times keeps what it made of a node with the node (`is_kept`). Patterns and rules are in
`ir.pattern`, sets of them in `ir.matcher`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.base.errors import InternalError
from tilegrad.base.trace import PassRecord, counters, trace
from tilegrad.ir.matcher import PatternMatcher, Step
from tilegrad.ir.uop import UOp

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
        if matcher.is_kept and root.simple is not None:
            return root if root.simple is True else root.simple
        return _rewrite(root, matcher.steps(), ctx, matcher.name, matcher.is_kept)
    entry = PassRecord(name or matcher.name, root)
    record.append(entry)

    def step(node: UOp, ctx: Any) -> UOp | None:
        return matcher.rewrite_traced(node, ctx, entry.steps)

    # Every step is to be seen, so nothing kept is used.
    steps: list[Step | None] = [step] * len(matcher.steps())
    entry.after = _rewrite(root, steps, ctx, matcher.name, False)
    return entry.after  # type: ignore[no-any-return]


def replace_and_rewrite(
    root: UOp, mapping: Mapping[UOp, UOp], matcher: PatternMatcher, *, name: str | None = None
) -> UOp:
    """`graph_rewrite(root.substitute(mapping), ...)` by rules that are kept, in one walk."""
    if trace.get() is not None:
        return graph_rewrite(root.substitute(mapping), matcher, name=name)
    counters.rewrites += 1
    done = {node: settled(value, matcher) for node, value in mapping.items()}
    for node in root.toposort():
        if node in done:
            continue
        src = tuple([done[source] for source in node.src])
        fresh = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        done[node] = settle(fresh, matcher)
    counters.visits += len(done)
    return done[root]


def settled(node: UOp, matcher: PatternMatcher) -> UOp:
    """What rules that are kept make of `node`."""
    if node.simple is None:
        return _rewrite(node, matcher.steps(), None, matcher.name, True)
    return node if node.simple is True else node.simple


def settle(node: UOp, matcher: PatternMatcher) -> UOp:
    """What rules that are kept make of `node`, of whose sources they make nothing else."""
    if node.simple is not None:
        return node if node.simple is True else node.simple
    steps = matcher.steps()
    step = steps[node.op.serial]
    made = None if step is None else step(node, None)
    if made is None:
        node.simple = True
        return node
    node.simple = final = _descend(made, {}, steps, None, matcher.name, True)
    return final


def _rewrite(root: UOp, steps: Sequence[Step | None], ctx: Any, name: str, is_kept: bool) -> UOp:
    done: dict[UOp, UOp] = {}
    if is_kept:
        _descend(root, done, steps, ctx, name, True)
    else:
        # Sources stand first, so only what a rule makes has to be gone down into.
        for node in root.toposort():
            src = tuple([done[source] for source in node.src])
            fresh = node
            if src != node.src:
                fresh = UOp(node.op, node.dtype, src, node.arg)
                if fresh in done:
                    done[node] = done[fresh]
                    continue
            elif node in done:
                continue
            step = steps[node.op.serial]
            made = None if step is None else step(fresh, ctx)
            if made is not None:
                made = _descend(made, done, steps, ctx, name, False)
            done[node] = done[fresh] = fresh if made is None else made
    counters.visits += len(done)
    return done[root]


def _descend(
    root: UOp,
    done: dict[UOp, UOp],
    steps: Sequence[Step | None],
    ctx: Any,
    name: str,
    is_kept: bool,
) -> UOp:
    """Rewrite `root`, and all below it that is not `done`."""
    # How many rewrites in a row led to a node.
    chain: dict[UOp, int] = {}
    # A node waits here for its sources, under None, or for the end of what it became.
    stack: list[UOp | tuple[UOp, UOp, UOp] | None] = [root]
    while stack:
        node = stack.pop()
        if node is None:
            node = stack.pop()
        elif isinstance(node, tuple):
            node, fresh, result = node
            final = done[node] = done[fresh] = done[result]
            if is_kept:
                node.simple = fresh.simple = final
            continue
        else:
            if node in done:
                continue
            missing = [source for source in node.src if source not in done]
            if is_kept and missing:
                for source in missing:
                    known = source.simple
                    if known is not None:
                        done[source] = source if known is True else known
                missing = [source for source in missing if source not in done]
            if missing:
                stack.append(node)
                stack.append(None)
                missing.reverse()
                stack += missing
                continue
        assert isinstance(node, UOp)
        src = tuple([done[source] for source in node.src])
        if src == node.src:
            fresh = node
        else:
            fresh = UOp(node.op, node.dtype, src, node.arg)
            known = fresh.simple if is_kept else None
            if known is not None:
                done[fresh] = fresh if known is True else known
            if fresh in done:
                final = done[node] = done[fresh]
                if is_kept:
                    node.simple = final
                continue
        step = steps[fresh.op.serial]
        made = None if step is None else step(fresh, ctx)
        if made is None:
            done[node] = done[fresh] = fresh
            if is_kept:
                fresh.simple = True
                if fresh is not node:
                    node.simple = fresh
            continue
        length = chain.get(node, 0) + 1
        if length > _LIMIT:
            raise InternalError(f"{name} does not come to an end", node=repr(node)[:400])
        chain[made] = length
        stack.append((node, fresh, made))
        stack.append(made)
    return done[root]
