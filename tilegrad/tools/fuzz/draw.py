"""A program from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilegrad.tools.fuzz.instructions import GROUPS, INSTRUCTIONS, VIEW_NAMES, WRITE_NAMES
from tilegrad.tools.fuzz.instructions.inputs import drawn_input
from tilegrad.tools.fuzz.instructions.kind import Instruction, Value
from tilegrad.tools.fuzz.meaning import meaning, step_value
from tilegrad.tools.fuzz.modes import MODES, Mode
from tilegrad.tools.fuzz.program import FIRST, GIVEN, Program, Step, needed

__all__ = ["draw"]

_TORCH_DTYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
_MOST_TRIES, _LEAST_STEPS = 400, 3


def draw(seed: int, mode: str = "eager") -> Program:
    """The program of a seed, of a kind that the mode can run."""
    chance = random.Random(seed)
    while True:
        steps, focus = _steps(chance, MODES[mode])
        if len(steps) < _LEAST_STEPS:
            continue
        program = _with_reads(chance, steps, focus, MODES[mode])
        for each in _with_calls(chance, program, MODES[mode]):
            if _has_meaning(each, MODES[mode]):
                return each


def _has_meaning(program: Program, mode: Mode) -> bool:
    try:
        for call in range(program.calls):
            meaning(program, call, mode.most_elements)
    except ValueError:
        return False
    return True


def _with_calls(chance: random.Random, program: Program, mode: Mode) -> list[Program]:
    """The program, and before it one whose sizes change, which may be none, in modes of many
    calls.
    """
    if not mode.is_repeated:
        return [program]
    program = replace(program, calls=chance.choice((6, 7, 8)), threads=False)
    has_leaves = not mode.is_torch and not any(
        step.name in WRITE_NAMES or step.name.endswith("gradient") for step in program.steps
    )
    if has_leaves and chance.random() < 0.4:
        program = replace(program, given="data", with_gradients=True)
    shapes = [step.params[1] for step in program.steps if step.name == "input"]
    sizes = sorted({size for shape in shapes for size in shape if size > 1})
    if not sizes or chance.random() < 0.3:
        return [program]
    return [replace(program, growing=chance.choice(sizes)), program]


def _steps(chance: random.Random, mode: Mode) -> tuple[list[Step], Instruction]:
    """Steps, and an instruction that was tried more often than others: no kind of
    step is rare, however few operands suit it.
    """
    steps: list[Step] = []
    values: list[Value] = []
    groups = _chosen(chance)
    focus = chance.choice(list(INSTRUCTIONS.values()))
    length = chance.randrange(3, 12)
    for _ in range(_MOST_TRIES):
        if len(steps) >= length:
            break
        for step in _drawn(chance, groups, focus, steps, values, mode):
            try:
                value = step_value([*steps, step], len(steps), values, FIRST, mode.most_elements)
            except ValueError:
                break
            steps.append(step)
            values.append(value)
    return steps, focus


def _chosen(chance: random.Random) -> list[tuple[float, list[Instruction]]]:
    """For one program: some instructions of some groups. With few kinds of steps a program has
    pairs of them that one with all kinds hardly ever has.
    """
    found = []
    for number, (weight, group) in enumerate(GROUPS):
        some = chance.sample(group, -(-len(group) * chance.choice((1, 2, 4)) // 4))
        favour = 1 if not number else chance.choice((0.0, 0.3, 1.0, 5.0))
        found.append((weight * favour, some))
    return found


def _drawn(
    chance: random.Random,
    groups: Sequence[tuple[float, list[Instruction]]],
    focus: Instruction,
    steps: Sequence[Step],
    values: Sequence[Value],
    mode: Mode,
) -> list[Step]:
    """The next step, after the inputs made for it; none if what was drawn does not suit."""
    weights = [weight for weight, _ in groups]
    some = chance.choices([group for _, group in groups], weights)[0]
    made = chance.choice(groups[0][1] if not steps else some)
    is_there = any(step.name == focus.name for step in steps)
    if chance.random() < (0.05 if is_there else 0.3):
        made = focus
    if made.torch is None and mode.is_torch:
        return []
    args = _operands(chance, made, steps, values)
    if args is None:
        # An input that suits, or a value of a dtype that no input has.
        made = INSTRUCTIONS["input" if set(made.takes) != {"bool"} else "isnan"]
        args = _operands(chance, made, steps, values)
        if args is None:
            return []
    if made.name == "input":
        params: tuple[Any, ...] | None = drawn_input(chance, among=focus.takes)
    else:
        params = made.draw(chance, [values[number] for number in args])
    if params is None:
        return []
    if made.name == "input" and mode.is_torch and params[2] not in _TORCH_DTYPES:
        return []
    before = []
    if made.fresh is not None:
        shape = made.fresh(chance, *params)
        before = [Step("input", (), drawn_input(chance, "float32", shape))]
        args = (*args[:-1], len(steps))
    return [*before, Step(made.name, args, params)]


def _operands(
    chance: random.Random, made: Instruction, steps: Sequence[Step], values: Sequence[Value]
) -> tuple[int, ...] | None:
    """Values of a dtype that suits, recent ones more often."""
    if not made.arity:
        return ()
    fit = [number for number, value in enumerate(values) if value.dtype in made.takes]
    if not fit:
        return None
    first = fit[max(chance.randrange(len(fit)), chance.randrange(len(fit)))]
    if made.name == "gradient":
        inputs = [n for n in fit if steps[n].name == "input" and not values[n].is_wild]
        return (first, chance.choice(inputs)) if inputs else None
    same = [number for number in fit if values[number].dtype == values[first].dtype]
    return (first, *[chance.choice(same) for _ in range(made.arity - 1)])


def _with_reads(
    chance: random.Random, steps: Sequence[Step], focus: Instruction, mode: Mode
) -> Program:
    used = {number for step in steps for number in step.args}
    ends = [number for number in range(len(steps)) if number not in used]
    reads = ends if chance.random() < 0.5 else [len(steps) - 1]
    more = [number for number in range(len(steps)) if INSTRUCTIONS[steps[number].name].arity]
    if more and chance.random() < 0.5:
        reads = [*reads, *chance.sample(more, min(len(more), 2))]
    if chance.random() < 0.7:
        reads += [number for number, step in enumerate(steps) if step.name == focus.name][:1]
    reads = list(dict.fromkeys(reads))
    chance.shuffle(reads)
    program = needed(Program(tuple(steps), tuple(reads)), VIEW_NAMES, WRITE_NAMES)
    has_draws = any(step.name.startswith("rand") for step in steps)
    is_in_threads = not has_draws and chance.random() < 0.1
    # The first two calls of a captured function are no replays.
    calls = chance.choice((3, 4, 4, 5) if mode.is_captured else (1, 1, 2, 3))
    given = "data" if mode.is_torch or chance.random() < 0.4 else chance.choice(list(GIVEN))
    return replace(program, calls=3 if is_in_threads else calls, threads=is_in_threads, given=given)
