"""How many values lie on the evaluation stack before each instruction of a function.

The compiler of CPython gives each instruction one depth, whichever way leads there, so the depths
follow from the code alone: along jumps, and at handlers of exceptions from the table that the code
has of them. The interpreter itself keeps its depth in a register from Python 3.12 on, where a trace
function cannot see it.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType

__all__ = ["stack_depths"]

_LAST = frozenset({"RAISE_VARARGS", "RERAISE", "RETURN_CONST", "RETURN_VALUE"})
# After these the next instruction is reached by other jumps alone.
_JUMPS = frozenset({
    "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD",
})  # fmt: skip
_HAVE_TARGETS = frozenset((*dis.hasjrel, *dis.hasjabs))


def stack_depths(code: CodeType, steps: Sequence[dis.Instruction]) -> dict[int, int]:
    """By the offset of each instruction that can be reached, the values on the stack before it.

    `steps` are all instructions of `code`.

    >>> code = (lambda a, b: a + b).__code__
    >>> steps = list(dis.get_instructions(code))
    >>> [stack_depths(code, steps)[step.offset] for step in steps if step.opname == "BINARY_OP"]
    [2]
    """
    numbers = {step.offset: number for number, step in enumerate(steps)}
    found = {steps[0].offset: 0} if steps else {}
    # Where an exception is caught, it lies above the values of the block, and above the offset
    # where it was raised, if a `finally` is to raise it from there again.
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        found[entry.target] = entry.depth + 1 + entry.lasti
    waiting = [numbers[offset] for offset in found]
    while waiting:
        number = waiting.pop()
        step = steps[number]
        for offset, depth in _followers(steps, number, found[step.offset]):
            if offset not in found:
                found[offset] = depth
                waiting.append(numbers[offset])
    return found


def _followers(steps: Sequence[dis.Instruction], number: int, depth: int) -> list[tuple[int, int]]:
    """The offsets of the instructions that may follow, with the depths there."""
    step = steps[number]
    found = []
    if step.opcode in _HAVE_TARGETS:
        found.append((step.argval, depth + _effect(step, True)))
    is_last = step.opname in _LAST or step.opname in _JUMPS
    if not is_last and number + 1 < len(steps):
        found.append((steps[number + 1].offset, depth + _effect(step, False)))
    return found


def _effect(step: dis.Instruction, is_taken: bool) -> int:
    if step.opname == "RETURN_GENERATOR":
        # A generator goes on with the value that it was sent.
        return 1
    if step.opname == "PRECALL":
        # Python 3.11 counts the operands of the CALL after it.
        return 0
    if step.opname == "CALL":
        return -1 - (step.arg or 0)
    arg = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(step.opcode, arg, jump=is_taken)
