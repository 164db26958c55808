"""`rearrange`: axes split, joined and reordered by a formula of names.

    "b (h w) c -> b h w c"      the second axis split
    "... a b -> ... (b a)"      the last two exchanged and joined

A name stands for an axis on both sides; names in parentheses are several axes as one axis of the
tensor, the last one moving fastest. `...` stands for all axes that have no name, `1` for a new axis
or one of size 1. The formula becomes a reshape, a permutation and a reshape.
"""

from __future__ import annotations

import re
from typing import Any, Self

from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.composed.nodes import Nodes
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import divide, multiply, same, show_shape

__all__ = ["Rearranging"]

_TOKEN = re.compile(r"\.\.\.|[A-Za-z_]\w*|[()]|1|\S")


class Rearranging(Nodes):
    """Rearranging axes."""

    __slots__ = ()

    @composed
    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Split, join and reorder axes by a formula such as "a (b c) -> (a c) b".

        Args:
            formula: names of the axes on both sides; parentheses join several into one.
            sizes: sizes of names in parentheses on the left, where more than one is unknown.

        Returns a tensor of this dtype with the axes of the right side.

        Raises ShapeError for a formula that cannot be read, names that differ between the sides, or
        sizes that do not fit.

        >>> Tensor([[1, 2, 3, 4]]).rearrange("a (b c) -> (a c) b", c=2).tolist()
        [[1, 3], [2, 4]]
        """

        def wrong(fact: str) -> ShapeError:
            return ShapeError(f"rearrange: {fact}", formula=formula, tensor=describe(self.uop))

        halves = formula.split("->")
        if len(halves) != 2:
            raise wrong("a formula has one ->")
        left, right = [_groups(half, wrong) for half in halves]
        left, right = [_spread(side, left, self.ndim, wrong) for side in (left, right)]
        if len(left) != self.ndim:
            raise wrong(f"{len(left)} axes in the formula, {self.ndim} in the tensor")
        names = [name for group in left for name in group]
        others = [name for group in right for name in group]
        for side in (names, others):
            twice = next((name for name in side if side.count(name) > 1), None)
            if twice is not None:
                raise wrong(f"{twice!r} stands twice on one side")
        if set(names) != set(others):
            odd = sorted(set(names) ^ set(others))
            raise wrong(f"{', '.join(map(repr, odd))} stands on one side only")
        unknown = sorted(set(sizes) - set(names))
        if unknown:
            raise wrong(f"{unknown[0]!r} has a size and does not occur")
        known: dict[str, Any] = dict(sizes)
        for group, size in zip(left, self.shape):
            missing = [name for name in group if name not in known]
            known_size = multiply([known[name] for name in group if name in known])
            if len(missing) > 1:
                raise wrong(f"the sizes of {', '.join(map(repr, missing))} are not known")
            if missing:
                rest = divide([size], [known_size])
                if rest is None:
                    raise wrong(
                        f"an axis of {show_shape((size,))[1:-2]} has no parts of {known_size}"
                    )
                known[missing[0]] = rest
            elif not same(known_size, size):
                raise wrong(f"an axis of {show_shape((size,))[1:-2]} is to be {known_size}")
        split = self.reshape([known[name] for name in names])
        moved = split.permute([names.index(name) for name in others])
        return moved.reshape([multiply([known[name] for name in group]) for group in right])


def _groups(side: str, wrong: Any) -> list[list[str]]:
    """The axes of one side, each as the names that it is made of; 1 is made of none."""
    groups: list[list[str]] = []
    opened: list[str] | None = None
    for token in _TOKEN.findall(side):
        if token == "(":
            if opened is not None:
                raise wrong("parentheses in parentheses")
            opened = []
        elif token == ")":
            if opened is None:
                raise wrong("a parenthesis is closed that was not opened")
            groups.append(opened)
            opened = None
        elif token != "..." and token != "1" and not token.isidentifier():
            raise wrong(f"{token!r} is no name")
        elif token == "1":
            if opened is None:
                groups.append([])
        elif opened is not None:
            opened.append(token)
        else:
            groups.append([token])
    if opened is not None:
        raise wrong("a parenthesis is not closed")
    return groups


def _spread(side: list[list[str]], left: list[list[str]], ndim: int, wrong: Any) -> list[list[str]]:
    """`side` with a name for each axis that `...` stands for."""
    if any("..." in group and len(group) > 1 for group in left):
        raise wrong("... in parentheses on the left")
    dots = sum(name == "..." for group in left for name in group)
    if dots > 1:
        raise wrong("... stands twice on one side")
    names = [f"...{number}" for number in range(ndim - len(left) + 1)] if dots else []
    spread: list[list[str]] = []
    for group in side:
        if group == ["..."]:
            spread += [[name] for name in names] if dots else [group]
        else:
            spread.append(
                [each for name in group for each in (names if name == "..." and dots else [name])]
            )
    return spread
