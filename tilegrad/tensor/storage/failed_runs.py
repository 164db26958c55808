"""Calls that waited for a run which a failure of the compiler has ended.

Such a failure does not go away: tried again by each read, it would be met each time, after the time
that a compiler takes, and by reads of other tensors too, as assignments that wait are part of all
of them. So the calls of that run are known. Who asks for the value of one, or for what is made of
it, hears of the same failure; all else goes on without them. Errors of values, such as memory that
is full, are none of these: they may be met once.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable

from tilegrad.engine.run.leaf_memory import is_of_value
from tilegrad.tensor.handle.size_arguments import here
from tilegrad.tensor.handle.waiting import Call, Input

__all__ = ["has_failed", "left_of", "note_failure"]


class _Failure:
    """An error as it was met first, without its frames, which hold the tensors of the user."""

    __slots__ = ("error", "line")

    def __init__(self, error: Exception):
        self.error, self.line = _again(error), here()

    def told(self) -> Exception:
        """The same error once more."""
        error = _again(self.error)
        error.add_note(
            f"the run that failed first was asked for at {self.line}; make its tensors anew"
        )
        return error


_failed: weakref.WeakKeyDictionary[Call, _Failure] = weakref.WeakKeyDictionary()


def _again(error: Exception) -> Exception:
    made = type(error).__new__(type(error), *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.__dict__.pop("__notes__", None)
    return made


def note_failure(error: Exception, roots: Iterable[Call]) -> None:
    """Know that the run which was to compute `roots` and what they need failed with `error`, unless
    that is one of values, or of the machine, which may be another one next time.
    """
    if is_of_value(error) or isinstance(error, (OSError, MemoryError)):
        return
    failure = _Failure(error)
    for call in _below(roots):
        _failed.setdefault(call, failure)


def has_failed(call: Call | None) -> bool:
    """Whether a call is one of a run that failed."""
    return bool(_failed) and call is not None and call in _failed


def left_of(alive: list[Call], asked: Call) -> list[Call]:
    """The calls that wait without those that failed, and what is made of them.

    Raises the error of the first failure if `asked` is one of these.
    """
    if not _failed:
        return alive
    below = _below([asked])
    for call in below:
        if call in _failed:
            raise _failed[call].told()
    return [call for call in alive if not _stands_on(call, _failed)]


def _stands_on(call: Call, failed: Collection[Call]) -> bool:
    return any(each in failed for each in _below([call]))


def _below(roots: Iterable[Call]) -> list[Call]:
    """The calls of `roots` that wait, and those that they need."""
    found = [call for call in roots if call.value is None]
    seen: set[Input] = set(found)
    # The list grows while it is walked.
    for call in found:
        for each in call.inputs or ():
            if isinstance(each, Call) and each.value is None and each not in seen:
                seen.add(each)
                found.append(each)
    return found
