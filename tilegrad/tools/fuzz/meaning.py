"""The meaning of a program: the value of each step in NumPy, and how far float32 may be from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.instructions import INSTRUCTIONS, VIEW_NAMES, WRITE_NAMES
from tilegrad.tools.fuzz.instructions.inputs import input_array
from tilegrad.tools.fuzz.instructions.kind import EPSILON, Instruction, Value, magnitude
from tilegrad.tools.fuzz.instructions.others import bound_at
from tilegrad.tools.fuzz.program import Call, Program, Step, needed_steps, roots

__all__ = ["meaning", "step_value"]

_LARGEST = 1e5
# Sums and products of numbers on this grid, if they are not large, are exact in float32.
_GRID, _LARGEST_EXACT = 1024.0, 8192.0
_H, _MOST_VARIED = 1e-4, 40
# A jump by a tenth looks as steep as that.
_STEEPEST = 1e3
_ROUNDED = ("half", "bfloat16")
_NO_PROGRAM = (ValueError, IndexError, TypeError, KeyError, OverflowError, ArithmeticError)


def meaning(program: Program, call: int = 0, most_elements: int = 3000) -> list[Value]:
    """The value of each step at a call, after all writes.

    Raises ValueError for a program that is none: shapes do not fit, or numbers become too large.
    """
    values: list[Value] = []
    this = Call(call, program.growing)
    for number in range(len(program.steps)):
        values.append(step_value(program.steps, number, values, this, most_elements))
    return values


def step_value(
    steps: Sequence[Step], number: int, values: Sequence[Value], call: Call, most_elements: int
) -> Value:
    """The value of step `number`, given those before it."""
    import numpy as np

    step = steps[number]
    made = INSTRUCTIONS[step.name]
    given = [values[at] for at in step.args]
    _check_operands(made, step, given)
    with np.errstate(all="ignore"):
        try:
            if step.name == "gradient":
                value = _gradient(steps, number, values, call)
            elif step.name == "input":
                value = _input(step, call)
            else:
                value = _result(made, given, _params(step, call), step)
        except _NO_PROGRAM as error:
            raise ValueError(str(error)) from None
    if made.is_write:
        of = roots(steps[: number + 1], [*VIEW_NAMES, *WRITE_NAMES])
        for other, root in zip(values, of):
            # A write is rounded in all values of that memory.
            other.error = max(other.error, value.error) if root == of[number] else other.error
    if not 0 < value.array.size <= most_elements:
        raise ValueError("too many elements, or none")
    return value


def _params(step: Step, call: Call) -> tuple[Any, ...]:
    if step.name != "bound":
        return step.params
    size, number = step.params
    return (bound_at(size, number, call.number),)


def _check_operands(made: Instruction, step: Step, given: Sequence[Value]) -> None:
    if len(given) != made.arity or not all(value.dtype in made.takes for value in given):
        raise ValueError(f"{step.name} takes no such operand")
    if len({value.dtype for value in given}) > 1:
        raise ValueError(f"{step.name} takes operands of one dtype")
    if made.needs_exact and any(value.error for value in given):
        raise ValueError(f"{step.name} takes exact operands")
    if any(value.is_wild for value in given):
        if not made.is_wild_safe:
            raise ValueError(f"{step.name} takes no NaN")
        if any(value.error for value in given):
            raise ValueError("a rounded value beside numbers of any size")
    if made.sees_zero and given[-1].is_zero_loose and not given[-1].array.all():
        raise ValueError("a zero of either sign")
    if any(value.is_symbolic for value in given) and not (made.arity == 1 and made.any_size):
        raise ValueError(f"{step.name} takes no symbolic size")
    if made.is_write and given[0].is_repeated:
        raise ValueError("a write to elements that share memory")


def _input(step: Step, call: Call) -> Value:
    import numpy as np

    values, shape, dtype, is_wild = step.params
    array = input_array(values, shape, dtype, is_wild, call)
    is_float = dtype == "float32"
    array = np.array(array, "f8") if is_float else array
    return Value(array, dtype, is_wild=is_wild and is_float)


def _result(made: Instruction, given: Sequence[Value], params: Any, step: Step) -> Value:
    import numpy as np

    is_wild = any(value.is_wild for value in given)
    out = made.meaning(*[value.array for value in given], *params)
    dtype = made.gives or given[0].dtype
    is_zero_loose = made.has_loose_zero or any(value.is_zero_loose for value in given)
    if made.is_view or made.is_write:
        first = given[0]
        repeated = first.is_repeated or step.name in ("expand", "unfold")
        symbolic = first.is_symbolic or step.name == "bound"
        if made.is_write and out.dtype.kind == "f" and not is_wild and magnitude(out) > _LARGEST:
            raise ValueError("numbers are too large")
        error = first.error
        if made.is_write and out.dtype.kind == "f" and not is_wild:
            error = _error_of(made, given, out, params)
        return Value(out, dtype, error, is_wild, symbolic, repeated, is_zero_loose)
    array = np.array(out, "f8" if dtype == "float32" else dtype, order="C")
    value = Value(array, dtype, is_symbolic=_is_symbolic(given, params, array))
    value.is_zero_loose = is_zero_loose and value.is_float
    if not value.is_float:
        return value
    is_large = not np.isfinite(array).all() or magnitude(array) > _LARGEST
    if is_large and made.is_wild_safe and not any(each.error for each in given):
        is_wild = True
    if is_wild:
        value.array, value.is_wild = array.astype("f4").astype("f8"), True
        return value
    if is_large:
        raise ValueError("numbers are too large")
    value.error = _error_of(made, given, array, params)
    if value.error > 0.01 * max(1.0, magnitude(array)):
        raise ValueError("nothing is left of the digits")
    return value


def _error_of(made: Instruction, given: Sequence[Value], out: Any, params: Any) -> float:
    """How far a right result may be from `out`."""
    error = made.error(given, out, *params)
    if error or not made.is_exact or not _is_on_grid(out):
        error += made.rounding * EPSILON * max(magnitude(out), 1e-3)
    return error


def _is_symbolic(given: Sequence[Value], params: Sequence[Any], out: Any) -> bool:
    if not any(value.is_symbolic for value in given):
        return False
    if out.ndim == given[0].array.ndim:
        return True
    axes = params[0] if isinstance(params[0], tuple) else (params[0],)
    return 0 not in axes


def _is_on_grid(array: Any) -> bool:
    scaled = array * _GRID
    return bool((scaled == scaled.round()).all()) and magnitude(array) < _LARGEST_EXACT


def _gradient(steps: Sequence[Step], number: int, values: Sequence[Value], call: Call) -> Value:
    """By differences to both sides, which must agree: elsewhere the function has a kink. They must
    agree for each value on the way, too: max(x, 0) + min(x, 0) is x, but what the gradient is at 0
    is a matter of rules.
    """
    import numpy as np

    target, at = steps[number].args
    of = roots(steps[:number], [*VIEW_NAMES, *WRITE_NAMES])
    is_written = any(s.name in WRITE_NAMES and of[n] == at for n, s in enumerate(steps[:number]))
    start = values[at].array
    if any(step.name in _ROUNDED for step in steps[:number]):
        raise ValueError("the gradient of rounding is 1 by rule, not by differences")
    if steps[at].name != "input" or is_written or start.size > _MOST_VARIED:
        raise ValueError("a gradient is that with respect to a small input")
    if values[target].is_symbolic or any(step.name == "gradient" for step in steps[:number]):
        raise ValueError("one gradient, of a value of fixed size")
    weights = np.arange(values[target].array.size) % 5 + 1.0

    used = needed_steps(Program(tuple(steps[:number]), (target,)), VIEW_NAMES, WRITE_NAMES)

    def values_at(moved: Any) -> list[Any]:
        """The values that the target is computed from, and last its weighted sum."""
        arrays = _forward(steps[:number], call, at, moved)
        total = np.array((arrays[target].ravel() * weights).sum())
        return [*[arrays[each].astype("f8") for each in sorted(used)], total]

    middle = values_at(start)
    found = np.zeros(start.size)
    for each in range(start.size):
        step = np.zeros(start.size)
        step[each] = _H
        sides = [values_at(start + sign * step.reshape(start.shape)) for sign in (1, -1)]
        # Every value on the way is compared: kinks of two of them may cancel each other in the sum.
        for high, here, low in zip(sides[0], middle, sides[1]):
            above, below = (np.where(high == here, 0.0, high - here) / _H,
                            np.where(here == low, 0.0, here - low) / _H)  # fmt: skip
            if not (abs(above - below) < 5e-3 * (1 + abs(above))).all():
                raise ValueError("a kink")
            if magnitude(above) > _STEEPEST:
                raise ValueError("a kink: a jump, up to here and on from here")
        found[each] = (above + below) / 2
    error = 1e-3 * (1 + magnitude(found))
    return Value(found.reshape(start.shape), "float32", error)


def _forward(steps: Sequence[Step], call: Call, at: int, moved: Any) -> list[Any]:
    """All values in float64 where input `at` is `moved`."""
    arrays: list[Any] = []
    for number, step in enumerate(steps):
        made = INSTRUCTIONS[step.name]
        if number == at:
            arrays.append(moved)
        elif step.name == "input":
            arrays.append(_input(step, call).array)
        else:
            out = made.meaning(*[arrays[each] for each in step.args], *_params(step, call))
            arrays.append(out if made.is_view or made.is_write else out.copy())
    return arrays
