"""Numbers that change from step to step of a loop, as expressions of the step `k`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

__all__ = [
    "changing_factor",
    "changing_integer",
    "following",
    "plainer",
    "recurring_factor",
    "recurring_integer",
]

# Factors of products: kernels have special cases for some of these, others are no floats.
_FACTORS = (
    "0", "1", "-1", "2", "3", "0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "-1.5", "0.1", "1.25",
    "True", "False", "0.75", "-0.25", "0.25", "0.2", "1 / 3", "6",
)  # fmt: skip
# Numbers that are nothing to anybody, which are variables of kernels once they change.
_ORDINARY = ("0.3", "0.7", "-1.7", "1.1", "0.9", "0.45", "-0.6", "1.3", "3", "5", "-2")
# Constants that a method may have of its own, between others.
_MIXED = (
    "(0.3, 0.25)[k % 5 // 4]",
    "(0.1, 0.7, 0.75)[k % 3]",
    "0.05 * (k % 8)",
    "(5, 6, 7, 0.1)[k * 3 % 7 % 4]",
)
_RISING = ("k % 7 - 3", "k / 8 % 3", "0.5 + k % 11 / 16", "(k % 5 - 2) / 2", "1 + k % 3")


def changing_integer(chance: random.Random, low: int, high: int) -> str:
    """An integer from `low` to `high`: one that stays, alternates, grows, is random, or is another
    one now and then.
    """
    count = high - low + 1
    x, y, z = (chance.randint(low, high) for _ in range(3))
    a, b, c = (chance.randrange(1, 400) for _ in range(3))
    rare, late = chance.choice((5, 9, 13, 17)), chance.choice((4, 10, 20, 33))
    return chance.choice((
        f"{x}",
        f"({x}, {y})[k % 2]",
        f"({x}, {y}, {z})[k % 3]",
        f"{low} + k % {count}",
        f"{low} + k // {chance.choice((2, 3, 10))} % {count}",
        f"{high} - k % {count}",
        f"{low} + (k * {a} + {b}) * (k + {c}) % 1009 % {count}",
        f"{low} + (k * {a} + {b}) * (k + {c}) % 1009 % {count}",
        f"{x} if k % {rare} == {rare - 1} else {y}",
        f"{x} if k < {late} else {low} + k % {count}",
        f"{low} + k * 7 % {count} if k % 30 < {late} else {x}",
    ))  # fmt: skip


def changing_factor(chance: random.Random) -> str:
    """An integer, a float or a bool, whichever the step has."""
    x, y, z = chance.sample(_FACTORS, 3)
    rare, late = chance.choice((5, 9, 13, 17)), chance.choice((4, 10, 20, 33))
    return chance.choice((
        x,
        f"({x}, {y})[k % 2]",
        f"({x}, {y}, {z})[k % 3]",
        chance.choice(_RISING),
        chance.choice(_MIXED),
        f"{x} if k % {rare} == {rare - 1} else {y}",
        f"{x} if k < {late} else {chance.choice(_RISING)}",
        f"{chance.choice(_RISING)} if k % 30 < {late} else {x}",
    ))  # fmt: skip


def recurring_integer(chance: random.Random, low: int, high: int) -> str:
    """An integer from `low` to `high` that stays, becomes another one, and comes back; more often
    a small one than not, as what else is there has such sizes.
    """
    if chance.random() < 0.35:
        return changing_integer(chance, low, high)
    top = min(high, low + 6) if chance.random() < 0.8 else high
    return _recurring(chance, [str(chance.randint(low, top)) for _ in range(4)])


def recurring_factor(chance: random.Random, lengths: Sequence[str]) -> str:
    """A number that stays, becomes another one, and comes back. It may be one of `lengths`, names
    of integers, or what a mean divides by.
    """
    values = [chance.choice(chance.choice((_FACTORS, _ORDINARY))) for _ in range(4)]
    for at in range(4):
        if lengths and chance.random() < 0.2:
            length = chance.choice(lengths)
            values[at] = chance.choice((length, f"1 / {length}", f"float({length})"))
    return _recurring(chance, values)


def _recurring(chance: random.Random, values: Sequence[str]) -> str:
    x, y, z, w = values
    often, rare = chance.choice((1, 1, 2, 3, 4, 6)), chance.choice((3, 5, 7, 9))
    late = chance.choice((3, 5, 8, 11, 20))
    return chance.choice((
        x,
        f"({x}, {y})[k // {often} % 2]",
        f"({x}, {y}, {z})[k // {often} % 3]",
        f"({x}, {y}, {z}, {w})[k // {often} % 4]",
        f"{y} if k % {rare} == {rare - 1} else {x}",
        f"{x} if k < {late} else {y}",
        f"{y} if {late} <= k < {late + often} else {x}",
        f"({x}, {y}, {z}, {w})[k // 3 % 4] if k >= {late} else {x}",
    ))  # fmt: skip


def following(chance: random.Random, name: str, text: str) -> str:
    """A number that is equal to another one by `name` until it is what `text` says, or again and
    again.
    """
    late, often = chance.choice((6, 12, 24)), chance.choice((2, 3, 7))
    when = chance.choice((f"k < {late}", f"k % {often} == 0", f"k % {often} != 0"))
    return f"{name} if {when} else {text}"


def plainer(text: str) -> Iterator[str]:
    """Simpler expressions than `text`: the numbers that it has at some steps."""
    for k in (0, 1, 2, 12, 40):
        try:
            value = repr(eval(text, {"k": k}))
        except NameError:
            # It follows another number at first, or is made of some.
            if rest := text.partition(" else ")[2]:
                yield rest
            yield from re.findall(r"n\d+", text)
            return
        if value != text:
            yield value
