"""Every error that tilegrad raises: one line of fact, then a line per detail.

A user's error names the op, both values, the user's own lines and the remedy; an `InternalError`
names the pass and how to reproduce it. Each class also derives from the built-in one that Python
users expect to catch, and all of them from RuntimeError, PyTorch's class for most errors.

The user's line, and the name of the call there, where the headline speaks of another op
(`mse_loss` subtracts), are found here: no error can forget them, and code that raises gives no
line, unless the fault is on another one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection

from tilegrad.base.origin import Entry, called_from, method_names, user_lines

__all__ = [
    "CaptureError", "CompileError", "ConfigError", "DTypeError", "DataError", "DeviceError",
    "DivisionError", "IndexBoundsError", "IndexKindError", "IndexShapeError", "InternalError",
    "KindError", "MissingDTypeError", "MissingError", "NotANumberError", "NotBoundError",
    "OptError", "OptionError", "OutOfMemoryError", "ShapeError", "SizeKindError", "StepError",
    "TilegradError", "TransformError", "UnsupportedDTypeError", "UnsupportedError", "article",
    "check_choice", "located", "type_name",
]  # fmt: skip


class TilegradError(RuntimeError):
    """The root of all errors raised on purpose: `headline` is the fact, `details` the labelled
    lines under it as they were given. `names_line` says whether the user's line is added.

    >>> try:
    ...     Tensor([1, 2]) + Tensor([1, 2, 3])
    ... except TilegradError as error:
    ...     print(type(error).__name__, error.headline, sep=": ")
    ShapeError: add: shapes do not broadcast: (2,) and (3,)
    """

    names_line = True

    def __init__(self, headline: str, **details: object):
        self.headline = headline
        self.details = details
        shown = details
        if self.names_line:
            shown = _placed(headline, details, *called_from(sys._getframe(1)))
        width = max((len(key) + 1 for key in shown), default=0)
        lines = [f"  {key + ':':<{width}} {value}" for key, value in shown.items()]
        super().__init__("\n".join([headline, *lines]))


class ShapeError(TilegradError, ValueError):
    """Shapes, axes or sizes do not fit the op."""


class NotBoundError(ShapeError, AttributeError):
    """A property of a bound variable was asked of another node; `hasattr` is false for it."""


class DTypeError(TilegradError, TypeError):
    """A dtype is unknown or does not fit the op."""


class DeviceError(TilegradError):
    """A device is unknown, not usable here, or two devices meet in one op."""


class IndexBoundsError(TilegradError, IndexError):
    """An index lies outside its axis."""


class ConfigError(TilegradError, ValueError):
    """A switch is unknown or has a value outside its range."""


class MissingError(ConfigError, AttributeError):
    """An object has nothing of this name."""


class KindError(ConfigError, TypeError):
    """An argument is no layer, no optimizer, or of another type than is asked for."""


class OptionError(ConfigError, AssertionError):
    """An option lies outside its range, where PyTorch asserts that it does not."""


class SizeKindError(ShapeError, TypeError):
    """A size is no integer."""


class DivisionError(ShapeError, AssertionError):
    """Sizes do not fit or divide each other, where PyTorch asserts that they do."""


class UnsupportedError(ShapeError, NotImplementedError):
    """An operation is not defined for this number of axes; PyTorch raises NotImplementedError."""


class UnsupportedDTypeError(DTypeError, NotImplementedError):
    """An operation, or a mode of it, is not defined for this dtype or at all; PyTorch raises
    NotImplementedError.
    """


class IndexKindError(DTypeError, IndexError):
    """An index has an object in its brackets that picks no elements."""


class IndexShapeError(ShapeError, IndexError):
    """Shapes of indices do not meet, or there is no element that an index could choose."""


class StepError(IndexBoundsError, ValueError):
    """The step of a slice is none that can be taken."""


class OptError(TilegradError, ValueError):
    """An Opt is not legal on this kernel."""

    names_line = False


class CompileError(TilegradError):
    """The compiler behind a renderer refused the source."""


class MissingDTypeError(CompileError, UnsupportedDTypeError):
    """A device has no values of a dtype, and nothing stands for them."""


class OutOfMemoryError(TilegradError, MemoryError):
    """A device has no room for an allocation, even after giving back cached memory."""


class DataError(TilegradError, ValueError):
    """A file is absent, truncated, or not of the form that its format demands."""


class CaptureError(TilegradError):
    """A function cannot be captured and replayed safely."""


class TransformError(TilegradError):
    """A function cannot be differentiated or mapped as it is written."""


class NotANumberError(TilegradError, FloatingPointError):
    """A kernel makes NaN of numbers, which CHECK=2 looks for."""


class InternalError(TilegradError, AssertionError):
    """tilegrad broke a rule of its own; the message says which pass did."""

    names_line = False


def check_choice(
    name: str,
    option: str,
    given: object,
    allowed: Collection[object],
    error: type[TilegradError] = ConfigError,
) -> None:
    """Raise `error` unless `given` is a value that the `option` of the call `name` may have.

    >>> from tilegrad.base.errors import check_choice
    >>> check_choice("gelu", "approximate", "tanh", ("none", "tanh"))
    """
    if given not in allowed:
        shown = ", ".join(map(repr, allowed))
        raise error(f"{name}: unknown {option} {given!r}", allowed=shown)


def article(name: str) -> str:
    """`name`, of a type or dtype, behind the article that it is spoken with.

    >>> from tilegrad.base.errors import article
    >>> article("int"), article("dict"), article("uint8")
    ('an int', 'a dict', 'a uint8')
    """
    is_vowel = name[:1].lower() in "aeiou" and not name.lower().startswith(("uint", "uni", "use"))
    return f"{'an' if is_vowel else 'a'} {name}"


def type_name(value: object) -> str:
    """The name of the type of `value`; behind its package's where another library calls a type as
    this one does.
    """
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    is_namesake = kind.__name__ in ("Tensor", "Parameter") and package != "tilegrad"
    return f"{package}.{kind.__name__}" if is_namesake else kind.__name__


def located(error: TilegradError, origin: tuple[Entry, ...]) -> TilegradError:
    """The error with the user's calls and lines, before the remedy if there is one."""
    details = dict(error.details)
    remedy = details.pop("remedy", None)
    for name, found in (("call", method_names(origin)), ("line", user_lines(origin))):
        if found:
            details.setdefault(name, ", ".join(found))
    if remedy is not None:
        details["remedy"] = remedy
    made = type(error)(error.headline, **details)
    # Notes that others have made on the error.
    made.__dict__ = {**error.__dict__, **made.__dict__}
    return made


def _placed(headline: str, details: dict[str, object], line: str, name: str) -> dict[str, object]:
    """`details` with the user's line, with `name` before it if `headline` has another, and with the
    rule and the remedy last.
    """
    call: dict[str, object] = {}
    if name and "call" not in details and not _speaks_of(headline, name):
        call["call"] = name
    placed: dict[str, object] = {}
    for key, value in details.items():
        placed |= {**call, key: value} if key == "line" else {key: value}
    if "line" not in placed:
        placed |= call | ({"line": line} if line else {})
    advice = {key: placed.pop(key) for key in ("rule", "remedy") if key in placed}
    return placed | advice


def _speaks_of(headline: str, name: str) -> bool:
    """Whether `headline` holds a word of `name`, which may be that of an operator's method, as in
    `radd` and `and`.
    """
    if headline[:1].isupper() and name[:1].isupper():
        return True  # A layer may have the call of another, which it is derived from.
    words = {word.strip("_").lower() for word in re.findall(r"\w+", headline)}
    words |= {word.removeprefix("bitwise_") for word in words}
    asked = {word.strip("_").lower() for word in name.split(".") if word.strip("_")}
    return bool(words & (asked | {word[1:] for word in asked if word[0] in "ri"}))
