"""Where all ways from a stored value to the results meet.

The stored values and their readers are a graph without cycles. A kernel that every way from a value
goes through is one into which the value may move, once all that reads it on the way has moved. The
nearest such kernel is the value's parent in a tree; a kernel is on every way if it is above the
value in that tree. Each value keeps, beside its parent, a link that jumps further up, so that a
question takes a number of steps that grows with the logarithm of the depth.
"""

from __future__ import annotations

from tilegrad.ir.uop import UOp

__all__ = ["Dominators"]


class Dominators:
    """Dominators of stored values: answers `is_on_every_way`. It is built from the readers of each
    stored value, readers last.
    """

    def __init__(self, readers: dict[UOp, set[UOp]]):
        # None is the end, behind the values that no kernel reads.
        self._parent: dict[UOp | None, UOp | None] = {None: None}
        self._jump: dict[UOp | None, UOp | None] = {None: None}
        self._depth: dict[UOp | None, int] = {None: 0}
        for value in reversed(readers):
            first: UOp | None = None
            for number, reader in enumerate(readers[value]):
                first = self._common(first, reader) if number else reader
            self._add(value, first)

    def is_on_every_way(self, kernel: UOp, value: UOp) -> bool:
        """Whether every path from `value` to a result goes through `kernel`."""
        depth = self._depth[kernel]
        return self._depth[value] > depth and self._above(value, depth) is kernel

    def _add(self, value: UOp, parent: UOp | None) -> None:
        depth, jump = self._depth, self._jump
        middle = jump[parent]
        # As in a skew-binary number: two jumps of one length in a row become one of both.
        is_even = depth[parent] - depth[middle] == depth[middle] - depth[jump[middle]]
        self._parent[value] = parent
        depth[value] = depth[parent] + 1
        jump[value] = jump[middle] if is_even else parent

    def _above(self, value: UOp | None, depth: int) -> UOp | None:
        """The ancestor of `value` at that depth."""
        while self._depth[value] > depth:
            further = self._jump[value]
            value = further if self._depth[further] >= depth else self._parent[value]
        return value

    def _common(self, one: UOp | None, other: UOp | None) -> UOp | None:
        """The deepest common ancestor, which may be one of the two."""
        depth = min(self._depth[one], self._depth[other])
        one, other = self._above(one, depth), self._above(other, depth)
        while one is not other:
            if self._jump[one] is not self._jump[other]:
                one, other = self._jump[one], self._jump[other]
            else:
                one, other = self._parent[one], self._parent[other]
        return one
