"""The instructions of random programs, by name and by group."""

from __future__ import annotations

from typing import Any

from tilegrad.tools.fuzz.instructions.elementwise import ELEMENTWISE
from tilegrad.tools.fuzz.instructions.inputs import drawn_input, input_array
from tilegrad.tools.fuzz.instructions.kind import Instruction
from tilegrad.tools.fuzz.instructions.movement import MOVEMENT, WRITES
from tilegrad.tools.fuzz.instructions.others import CLOSED, GRADIENTS, RANDOM, SYMBOLIC
from tilegrad.tools.fuzz.instructions.reducing import POOLING, REDUCING

__all__ = ["GROUPS", "INSTRUCTIONS", "VIEW_NAMES", "WRITE_NAMES"]


def _input(*params: Any) -> Any:
    return input_array(*params)


_INPUT = Instruction("input", 0, "", _input, lambda chance, given: drawn_input(chance))
# A group, and how often it is chosen.
GROUPS: list[tuple[int, list[Instruction]]] = [
    (4, [_INPUT]),
    (10, ELEMENTWISE),
    (10, MOVEMENT),
    (8, REDUCING),
    (3, POOLING),
    (4, WRITES),
    (2, RANDOM),
    (2, SYMBOLIC),
    (3, CLOSED),
    (4, GRADIENTS),
]
INSTRUCTIONS = {each.name: each for _, group in GROUPS for each in group}
VIEW_NAMES = [each.name for each in INSTRUCTIONS.values() if each.is_view]
WRITE_NAMES = [each.name for each in INSTRUCTIONS.values() if each.is_write]
