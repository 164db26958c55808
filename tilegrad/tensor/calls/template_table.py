"""The templates that are known, by signature; how a new signature gets one.

A signature that comes for the second time is recorded, those of arguments that never come again
push no template out. Two kinds of template serve many signatures: one for all values of its numbers
(`x * 0.1`, then `x * 0.2`), and one for all sizes (`tensor.calls.sized`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.recent import Bounded, SecondTime
from tilegrad.engine.realize.launch_numbers import as_shaping
from tilegrad.ir.placement import Group
from tilegrad.tensor.calls.arguments import HEAD, add_arguments
from tilegrad.tensor.calls.recorded import MethodTemplate, recorded, recorded_with_numbers
from tilegrad.tensor.calls.sized import of_sizes, patterns_made, skeleton_of
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.waiting import Number, Pool
from tilegrad.tensor.storage.loop_blocks import FEWEST_STEPS

__all__ = [
    "has_no_template", "known_template", "new_template", "numbers_of", "rounded_numbers",
    "template_of_numbers", "with_plain_floats",
]  # fmt: skip

Signature = tuple[Any, ...]

# More signatures than this are not known at a time.
_MOST = 4096
# By signature; None where there is no template.
_known: Bounded[Signature, MethodTemplate | None] = Bounded(_MOST)
# By signature without the values of numbers, the templates for all of these.
_of_numbers: Bounded[Signature, MethodTemplate | None] = Bounded(_MOST)
# By such a signature and the caller's line, the numbers that came last.
_values: Bounded[Signature, list[float]] = Bounded(_MOST)
_came = SecondTime(_MOST)

known_template = _known.get


def has_no_template(signature: Signature) -> bool:
    """Whether a signature was recorded, and has no template."""
    return signature in _known and _known[signature] is None


def new_template(
    key: list[Any],
    method: Any,
    operands: list[Any],
    inputs: list[Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    is_join: bool = False,
    is_at_once: bool = False,
) -> MethodTemplate | None:
    """The template of a signature that has none so far: the one for all sizes, if that serves. Else
    None, and the second time what the method makes is recorded, for the calls that follow; of a
    method that joins tensors at once, if they are results of a loop. `is_at_once` for a call that
    is recorded the first time.
    """
    signature = tuple(key)
    if signature in _known or isinstance(operands[0]._device, Group):
        return None
    found = None
    if len(inputs) == len(operands):
        before = patterns_made()
        found = of_sizes(key, operands, method, args, kwargs)
        if patterns_made() != before:
            _forget_plain(key)
    if is_join and found is None and _are_results_of_loop(operands):
        made = recorded(method, operands, args, kwargs)
        if made is not None:
            axis, shape = kwargs.get("dim", 0), made.results[0].shape
            made.graph.join = axis % len(shape), len(shape) > operands[0].ndim
        return _known.put(signature, made)
    if found is None and is_at_once:
        return _known.put(signature, recorded(method, operands, args, kwargs))
    if _came.is_now(signature):
        _known.put(signature, found or recorded(method, operands, args, kwargs))
    return found


def _are_results_of_loop(operands: list[Any]) -> bool:
    """Whether tensors are a list that a loop made, which has another length the next time."""
    return len(operands) >= FEWEST_STEPS and all(
        each._call is not None and each._call.inputs for each in operands
    )


def _forget_plain(key: list[Any]) -> None:
    """Forget the templates of one size of calls like that of `key`, for which there is one of all
    sizes by now: else those sizes would go on having segments of their own.
    """
    skeleton = skeleton_of(key)
    for other in [each for each in [*_known] if each[0] == key[0] and len(each) == len(key)]:
        template = _known.get(other)
        is_plain = template is None or not template.waiting or not template.waiting[0].pattern
        if is_plain and skeleton_of(other) == skeleton:
            _known.pop(other, None)


def template_of_numbers(
    key: list[Any],
    method: Any,
    operands: list[Any],
    inputs: list[Any],
    args: tuple[Any, ...],
    pool: Pool,
    frame: FrameType,
) -> tuple[MethodTemplate, list[Number]] | None:
    """The template of a call for all values of its numbers, and those, if there is one; the second
    value at one line of the caller, whose `frame` this is, makes it.
    """
    key = key[:HEAD]
    values: list[float] = []
    for each in args:
        kind = each.__class__
        if kind is float or kind is int:
            values.append(each)
            key.append(kind)
        elif isinstance(each, Core):
            add_arguments((each,), key, operands, inputs, pool)
        elif each is None:
            key.append(None)
        else:
            return None
    if isinstance(operands[0]._device, Group):
        return None
    if not values or any(each.dtype.is_float and each.dtype.itemsize < 4 for each in operands):
        # In less than 32 bits it depends on the value whether a number would be rounded.
        return None
    signature = tuple(key)
    found = _of_numbers.get(signature)
    if found is None:
        if signature in _of_numbers or not _has_changed(signature, values, frame):
            return None
        # While it is recorded there is none, of a method that calls itself either.
        _of_numbers.put(signature, None)
        found = _of_numbers[signature] = recorded_with_numbers(method, operands, args)
        if found is None:
            return None
    numbers = numbers_of(found.constants, values)
    return None if numbers is None else (found, numbers)


def numbers_of(
    constants: Sequence[tuple[DType, bool]], values: Sequence[float]
) -> list[Number] | None:
    """The inputs that numbers are, of a template with these `constants`; None if the value of one
    shapes the code.
    """
    numbers: list[Number] = []
    for value, (dtype, is_negated) in zip(values, constants):
        one = Number.of(-value if is_negated else value, dtype)
        if one is None:
            return None
        numbers.append(one)
    return numbers


def rounded_numbers(first: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an elementwise method of a tensor `first`, with the numbers that shape code
    for those that are these as float32, as constants beside such tensors are.
    """
    if first.dtype is not dtypes.float32:
        return args
    rounded: list[Any] = []
    is_other = False
    for each in args:
        if isinstance(each, Core):
            if each.dtype is not dtypes.float32:
                return args
        elif each.__class__ is float and (near := as_shaping(each)) != each:
            rounded.append(near)
            is_other = True
            continue
        rounded.append(each)
    return tuple(rounded) if is_other else args


def with_plain_floats(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with floats of Python for those of a class below, such as NumPy's float64, which
    `np.exp` and its kin give.
    """
    if not any(isinstance(each, float) and each.__class__ is not float for each in args):
        return args
    return tuple([float(each) if isinstance(each, float) else each for each in args])


def _has_changed(signature: Signature, values: list[float], frame: FrameType) -> bool:
    """Whether the numbers at one line of the caller are other ones than in its last call."""
    line = id(frame.f_code), frame.f_lasti, signature
    before = _values.get(line)
    if before is not None and before != values:
        return True
    _values.put(line, values)
    return False
