"""Programs drawn from a seed, what they mean, and whether tilegrad says the same."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import TilegradError
from tilegrad.tools.fuzz.program import Program, Step, needed
from tilegrad.tools.fuzz.steps import INSTRUCTIONS, line_of

__all__ = ["MODES", "draw", "meaning", "script"]

# Switches of a process, and whether the program is captured.
MODES: dict[str, tuple[dict[str, str], bool]] = {
    "eager": ({}, False),
    "jit": ({}, True),
    "NOOPT": ({"TILEGRAD_NOOPT": "1"}, False),
    "scalar": ({"TILEGRAD_CPU_TARGET": "scalar"}, False),
    "avx2": ({"TILEGRAD_CPU_TARGET": "avx2"}, False),
    "one thread": ({"TILEGRAD_THREADS": "1"}, False),
    "EMU": ({"TILEGRAD_DEVICE": "EMU"}, False),
}
_LARGEST, _MOST_ELEMENTS, _LONG = 1e5, 2000, 40


def meaning(program: Sequence[Step]) -> tuple[list[Any], list[bool]]:
    """The value of each step, in float64 or int64, and whether float32 has it exactly.

    Raises ValueError for a program that is none: shapes do not fit, or numbers become too large.
    """
    import numpy as np

    values: list[Any] = []
    exact: list[bool] = []
    for step in program:
        made = INSTRUCTIONS[step.name]
        given = [values[number] for number in step.args]
        was_exact = all(exact[number] for number in step.args)
        kinds = {"f" if each.dtype.kind == "f" else "i" for each in given}
        if not kinds <= set(made.kinds) or (made.needs_exact and not was_exact):
            raise ValueError(f"{step.name} takes no such operand")
        try:
            value = np.asarray(made.meaning(*given, *step.params))
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(str(error)) from None
        is_small = value.size and value.size <= _MOST_ELEMENTS and np.abs(value).max() < _LARGEST
        if step.name not in ("shl", "shr") and not is_small:
            raise ValueError("numbers are too large, too many, or none")
        values.append(value)
        held = bool((value.astype("f4").astype("f8") == value).all())
        exact.append(made.is_exact and was_exact and held)
    return values, exact


def draw(seed: int, length: int = 7) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    program: list[Step] = []
    names = [name for name in INSTRUCTIONS if name != "input"]
    while len(program) < length:
        name = "input" if not program or chance.random() < 0.12 else chance.choice(names)
        made = INSTRUCTIONS[name]
        args = tuple([chance.randrange(len(program)) for _ in range(made.arity)])
        values, _ = meaning(program)
        params = made.draw(chance, [values[number] for number in args])
        if params is None:
            continue
        try:
            meaning([*program, Step(name, args, params)])
        except ValueError:
            continue
        program.append(Step(name, args, params))
    return needed(program, len(program) - 1)


def script(program: Sequence[Step], mode: str) -> list[str]:
    """The lines of a file that fails where tilegrad differs from NumPy."""
    values, exact = meaning(program)
    last = len(program) - 1
    switches, is_captured = MODES[mode]
    lines = ["import numpy as np"]
    if switches:
        lines.append(f"import os; os.environ.update({switches})")
    lines.append("from tilegrad import Tensor, jit")
    body = [line_of(step, number) for number, step in enumerate(program)]
    if is_captured:
        inputs = [number for number, step in enumerate(program) if step.name == "input"]
        names = ", ".join(f"v{number}" for number in inputs)
        lines += [body[number] for number in inputs]
        rest = [each for number, each in enumerate(body) if number not in inputs]
        # A capture that launches nothing is refused, so something else is computed too.
        joined = "; ".join([*rest, f"return v{last}, v{inputs[0]} * 3"])
        lines.append(f"def f({names}): {joined}")
        lines.append("f = jit(f)")
        lines.append(f"for _ in range(3): v{last} = f({names})[0]")
    else:
        lines += body
    rtol = 1e-6 if exact[last] else 2e-4
    wanted = values[last]
    text = json.dumps(wanted.tolist())
    if len(text) > _LONG and (wanted == wanted.flat[0]).all():
        text = f"np.full({wanted.shape}, {wanted.flat[0].item()})"
    lines.append(f"np.testing.assert_allclose(v{last}.numpy(), {text}, rtol={rtol}, atol={rtol})")
    return lines


def failure(lines: Sequence[str]) -> str | None:
    """What goes wrong when the lines run here, in a line; None if nothing does."""
    try:
        exec(compile("\n".join(lines), "<program>", "exec"), {"__name__": "program"})
    except AssertionError as error:
        return f"differs: {' '.join(str(error).split())[:300]}"
    except (TilegradError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError,
            AttributeError) as error:  # fmt: skip
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None


def main() -> None:
    """A child: scripts come in, answers go out, a line of JSON each. An argument names a module
    that is run before, which may break something on purpose.
    """
    for name in sys.argv[1:]:
        exec(compile(name, "<planted>", "exec"), {"__name__": "planted"})
    for line in sys.stdin:
        print(json.dumps(failure(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
