"""A graph as constructor text: nested, with shared nodes named once by `:=`.

`ir.text.parse` reads the text back to the identical node. The walk is iterative, so a chain of
100,000 nodes prints.
"""

from __future__ import annotations

from typing import Any

__all__ = ["show"]

# The deepest indentation: a chain of 100,000 nodes would print gigabytes of blanks.
_DEEPEST = 40


def show(root: Any) -> str:
    """The text of `root` and all it needs."""
    uses: dict[Any, int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        uses[node] = uses.get(node, 0) + 1
        if uses[node] == 1:
            stack.extend(node.src)
    names: dict[Any, str] = {}
    out: list[str] = []
    work: list[Any] = [(root, 0)]
    while work:
        item = work.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        node, depth = item
        pad = "  " * min(depth, _DEEPEST)
        if node in names:
            out.append(f"{pad} {names[node]}")
            continue
        label = ""
        if uses[node] > 1:
            names[node] = f"x{len(names)}"
            label = f"{names[node]}:="
        head = f"{pad}{label}UOp({node.op}, {node.dtype!r}, arg={node.arg!r}, src=("
        out.append(head)
        if not node.src:
            out.append("))")
            continue
        tail: list[Any] = ["\n"]
        for source in node.src:
            tail += [(source, depth + 1), ",\n"]
        tail[-1] = ",))" if len(node.src) == 1 or _is_named(node.src[-1], uses) else "))"
        work.extend(reversed(tail))
    return "".join(out)


def _is_named(node: Any, uses: dict[Any, int]) -> bool:
    return uses[node] > 1
