# ruff: noqa: E501 - lines of a file that is written
"""Chains of movement ops over a ShapeTracker, beside the same chain of NumPy's: the position and the
mask are simplified as expressions of the axes' loops, and then evaluated for each element.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Chain", "drawn_chain"]

_MOST_ELEMENTS = 60
_MOVES = (
    "permute", "reshape", "expand", "pad", "pad", "shrink", "flip", "flip", "interleave", "interleave",
)  # fmt: skip
Move = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Chain:
    """Moves of an array of `shape`: which element lies where, and where padding is."""

    shape: tuple[int, ...]
    moves: tuple[Move, ...]

    def lines(self, mode: str) -> list[str]:
        """A file that fails. Raises ValueError for moves that do not fit."""
        array = _array(self.shape)
        for move in self.moves:
            array = _moved(array, move)
        calls = "".join(f".{name}({arg})" for name, arg in self.moves)
        return [
            "import numpy as np",
            "from tilegrad.ir import Axis, UOp",
            "from tilegrad.ir.rules import simplify",
            "from tilegrad.ir.shape_tracker import ShapeTracker",
            f"view = ShapeTracker.from_shape({self.shape}){calls}",
            "loops = [UOp.range(size, axis, Axis.LOOP) for axis, size in enumerate(view.shape)]",
            "def at(index, part): return simplify(part.substitute({loop: UOp.const(loop.dtype, i) for loop, i in zip(loops, index)})).arg",
            "position, inside = view.to_indexed_uops(loops)",
            f"found = [1 + at(i, position) if at(i, inside) else 0 for i in np.ndindex{array.shape}]",
            f"np.testing.assert_equal(found, {array.ravel().tolist()})",
        ]

    def smaller(self) -> Iterator[Chain]:
        """Simpler cases."""
        for number in range(len(self.moves)):
            yield replace(self, moves=self.moves[:number] + self.moves[number + 1 :])

    def kind(self) -> str:
        """Failures of one kind are reported once."""
        return f"chain {[name for name, _ in self.moves]}"


def _array(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape)


def _moved(array: Any, move: Move) -> Any:
    """NumPy's result of a move; 0 is padding."""
    import numpy as np

    name, arg = move
    if name == "permute":
        return array.transpose(arg)
    if name == "reshape":
        return array.reshape(arg)
    if name == "expand":
        return np.broadcast_to(array, arg)
    if len(arg) != array.ndim:
        raise ValueError("another number of axes")
    if name == "pad":
        return np.pad(array, arg)
    if name == "flip":
        return np.flip(array, tuple([axis for axis, is_on in enumerate(arg) if is_on]))
    if any(not low < high <= size for (low, high), size in zip(arg, array.shape)):
        raise ValueError("no such window")
    return array[tuple([slice(low, high) for low, high in arg])]


def _drawn(chance: random.Random, shape: tuple[int, ...]) -> list[Move]:
    """The next move, or three that let each element follow itself."""
    name = chance.choice(_MOVES)
    if name != "interleave":
        return [(name, _argument(chance, name, shape))]
    times = chance.choice((2, 3))
    merged = (*shape[:-1], shape[-1] * times)
    return [("reshape", (*shape, 1)), ("expand", (*shape, times)), ("reshape", merged)]


def _argument(chance: random.Random, name: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    axes = range(len(shape))
    if name == "permute":
        return tuple(chance.sample(axes, len(shape)))
    if name == "reshape":
        return _factors(chance, shape)
    if name == "expand":
        return tuple([chance.choice((2, 3)) if size == 1 else size for size in shape])
    if name == "pad":
        return tuple([(chance.randrange(3), chance.randrange(2)) for _ in axes])
    if name == "flip":
        return tuple([chance.random() < 0.5 for _ in axes])
    lows = [chance.randrange(size) for size in shape]
    return tuple([(low, chance.randrange(low, size) + 1) for low, size in zip(lows, shape)])


def _factors(chance: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape of as many elements."""
    size = math.prod(shape)
    found: list[int] = []
    while size > 1 and len(found) < 3:
        factor = chance.choice([n for n in range(1, size + 1) if size % n == 0])
        found.append(factor)
        size //= factor
    return (*found, size)


def drawn_chain(chance: random.Random) -> Chain:
    """A chain of moves."""
    shape = tuple([chance.randrange(1, 5) for _ in range(chance.randrange(1, 4))])
    array = _array(shape)
    moves: list[Move] = []
    for _ in range(chance.randrange(2, 7)):
        fresh = _drawn(chance, array.shape)
        moved = array
        for move in fresh:
            moved = _moved(moved, move)
        if moved.size <= _MOST_ELEMENTS:
            array = moved
            moves += fresh
    return Chain(shape, tuple(moves))
