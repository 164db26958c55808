"""`jit`: a function that is captured once and replayed.

The first call runs the function as it is. The second runs it and captures it: its launches
(graph.py), the tensors it began with (inputs.py), every Python value that it read (reads.py,
guards.py), its random numbers, and its results and changes (build.py). Later calls check the guards
and launch. A call that no capture serves makes another one, so a replay is never wrong: it does the
same as the function would have done, but for side effects in Python, which happen no more.

Where the function is called inside another captured one, it is a part of that one.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast, overload

from tilegrad.base.config import config, current_config
from tilegrad.base.errors import CaptureError, article
from tilegrad.capture.build import Again, Builder
from tilegrad.capture.entry import Entry, Mismatch, Server
from tilegrad.capture.explain import explain
from tilegrad.capture.modes import Modes
from tilegrad.capture.record import Hints, Run, tensors_in
from tilegrad.tensor.handle.tracing import building

__all__ = ["Jit", "TinyJit", "jit"]

P = ParamSpec("P")
R = TypeVar("R")

_MOST_ENTRIES = 64
_MOST_TRIES = 4
# Inside another captured function, one is a part of that; in a transform, a replay makes no graph.
is_building = building.get

_all: weakref.WeakSet[Jit[Any, Any]] = weakref.WeakSet()


class Jit(Generic[P, R]):
    """The captured function that `jit` gives; called like the original.

    >>> double = jit(lambda x: (x * 2).realize())
    >>> double(Tensor([1, 2])).tolist(), double(Tensor([3, 4])).tolist()
    ([2, 4], [6, 8])
    """

    def __init__(
        self, function: Callable[P, R], *, reuse_outputs: bool = False, is_strict: bool = True
    ):
        """`is_strict`: a function that cannot be captured raises CaptureError; else it runs as it
        is.
        """
        if not callable(function):
            raise CaptureError(
                f"jit: {article(type(function).__name__)} cannot be called",
                remedy="pass a function",
            )
        self._function = function
        self._reuse_outputs = reuse_outputs
        self._is_strict = is_strict
        self._names = _parameters(function)
        self._lock = threading.RLock()
        self._instances: weakref.WeakKeyDictionary[Any, Jit[Any, Any]] = weakref.WeakKeyDictionary()
        self._own_key = f"__jit_{id(self):x}"
        self._modes = Modes()
        self._entries: list[tuple[Server, Entry]] = []
        self._hints = Hints()
        self._calls = 0
        # The read without a guard that keeps the function from being captured at all.
        self._uncovered = ""
        _all.add(self)
        functools.update_wrapper(self, function, updated=())

    @property
    def _title(self) -> str:
        return getattr(self._function, "__name__", None) or type(self._function).__name__

    def __repr__(self) -> str:
        return f"<jit of {self._title}, {len(self._entries)} captured>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if is_building():
            return self._function(*args, **kwargs)
        with self._lock:
            missed: tuple[Entry, Mismatch] | None = None
            for pair in self._entries:
                given: Any = pair[0](args, kwargs)
                if given.__class__ is not Mismatch:
                    if pair is not self._entries[0]:
                        self._entries.remove(pair)
                        self._entries.insert(0, pair)
                    return cast(R, given)
                if not given.is_of_modes:
                    missed = missed or (pair[1], given)
            switches = current_config()
            if switches.JIT and not switches.CHECK and not self._uncovered:
                return self._run(self._modes.now(switches), args, kwargs, missed)
        return self._function(*args, **kwargs)

    def _run(
        self,
        mode: tuple[object, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        missed: tuple[Entry, Mismatch] | None,
    ) -> R:
        """Run the function itself, and capture it unless this is the first call."""
        is_captured = self._calls > 0
        if missed is not None and config.DEBUG >= 1:
            print(f"JIT recaptures {self._title}: {missed[0].why(missed[1], args, kwargs)}")
        hints = self._hints if is_captured else Hints()
        run = Run(self._title, self._function, is_captured, hints, is_strict=self._is_strict)
        token = building.set(True)
        try:
            run.run(args, kwargs, self._names)
            if self._modes.now(current_config()) != mode:
                run.reads.reads.uncovered("leaves another mode behind, which a replay would not")
            if is_captured:
                try:
                    self._capture(run, mode, args, kwargs)
                except CaptureError as error:
                    if self._is_strict:
                        raise
                    self._leave(str(error).partition("\n")[0], "")
            hints.fingerprint = run.fingerprint()
        finally:
            building.reset(token)
            run.release()
        self._hints = hints
        self._calls += 1
        return cast(R, run.result)

    def _capture(
        self, run: Run, mode: tuple[object, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Make a capture of the run, if it can be one."""
        hints = run.hints
        if run.reads.reason:
            hints.tries += 1
            if config.DEBUG >= 1:
                print(f"JIT does not capture {self._title}: it {run.reads.reason}")
            if hints.tries >= _MOST_TRIES:
                self._leave(run.reads.reason, run.reads.line)
            return
        if not run.record and any(run.known(each) is None for each in tensors_in(run.result)):
            # Results that are views of the arguments are made anew: there is nothing to replay.
            hints.tries += 1
            if hints.tries >= _MOST_TRIES:
                self._uncovered = "it launches no kernel and no copy: it gives views"
            return
        try:
            builder = Builder(run, args, kwargs)
            serve, entry = builder.build(mode, is_reused=self._reuse_outputs)
            if entry.vanishing and hints.fingerprint != run.fingerprint():
                names = ", ".join(entry.vanishing)
                raise Again(f"{names} changes from call to call, and what is computed changes too")
        except Again as again:
            hints.tries += 1
            if hints.tries >= _MOST_TRIES:
                raise CaptureError(
                    f"jit: {self._title} cannot be captured: {again.reason}",
                    calls=f"{hints.tries} in a row",
                    remedy="make the state once, outside; pass what changes as an argument, or "
                    "keep it in a tensor",
                ) from None
            return
        hints.tries = 0
        self._entries.insert(0, (serve, entry))
        del self._entries[_MOST_ENTRIES:]
        if config.DEBUG >= 1:
            print(f"JIT captured {len(entry.program.steps)} kernels with {run.given} inputs")

    def _leave(self, reason: str, line: str) -> None:
        """Run the function as it is from now on, and say why."""
        self._uncovered = f"it {reason}\n  line: {line}"
        warnings.warn(
            f"jit: {self._title} runs anew at each call: it {reason}\n  line:   {line}\n"
            "  remedy: pass the value as an argument, or read it outside; JIT=0 runs all as it is",
            RuntimeWarning,
            stacklevel=5,
        )

    # methods

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Jit[..., R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The method of one instance, with captures of its own that live as long as it does."""
        if instance is None:
            return self
        own = getattr(instance, "__dict__", None)
        found = None
        if own is not None:
            found = own.get(self._own_key)
        else:
            found = self._instances.get(instance)
        if found is None or getattr(found._function, "__self__", None) is not instance:
            bound = cast(Any, self._function).__get__(instance, owner)
            found = Jit(bound, reuse_outputs=self._reuse_outputs, is_strict=self._is_strict)
            if own is not None:
                own[self._own_key] = found
            else:
                self._instances[instance] = found
        return found

    def __deepcopy__(self, memo: object) -> Jit[P, R]:
        return self

    def __reduce__(self) -> Any:
        return Jit, (self._function,)

    # questions of users

    @property
    def captures(self) -> int:
        """How many captures there are now."""
        return len(self._entries)

    def reset(self) -> None:
        """Forget all captures, and free their memory; the next call is a first one."""
        with self._lock:
            self._entries.clear()
            self._hints = Hints()
            self._calls = 0
            self._uncovered = ""

    def explain(self) -> str:
        """Text about the captures: kernels, inputs, guards, draws and bytes."""
        with self._lock:
            found = explain(self._title, [entry for _, entry in self._entries])
        return f"{found}\nnot captured: {self._uncovered}" if self._uncovered else found


def _after_fork() -> None:
    """In a forked child, captures and replays that another thread was about to make begin anew."""
    for each in list(_all):
        if each._lock.acquire(blocking=False):
            each._lock.release()
        else:
            each._lock = threading.RLock()
            each._entries, each._hints, each._calls = [], Hints(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


@overload
def jit(function: Callable[P, R], *, reuse_outputs: bool = False) -> Jit[P, R]: ...
@overload
def jit(*, reuse_outputs: bool = False) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(function: Any = None, *, reuse_outputs: bool = False) -> Any:
    """Capture `function` at its second call, and replay its launches from then on.

    Use it as a decorator on functions and methods, or on any callable. Arguments may be tensors,
    bound `Variable`s, and Python values, alone or in lists, tuples and dicts; so may results. A
    Python value that the function reads (an argument, a global, an attribute of `self`, ...) is a
    guard: where it changes, the function is captured anew. Tensors may change freely, in place or
    as objects, as long as shape, dtype and device stay. Side effects in Python happen only while
    the function itself runs.

    With `reuse_outputs` the results of a call are overwritten by the next.

    A function that reads what cannot be guarded (a clock, a generator of random numbers, a file, a
    function in C that is not known to depend on its arguments alone) runs anew at each call, and
    says so once, in a RuntimeWarning with the line.

    Raises CaptureError, from the second call on, if the function reads a value (`item`, `numpy`),
    draws Python's random numbers, or computes nothing at all.

    >>> @jit
    ... def double(x): return x * 2
    >>> [double(Tensor([n])).item() for n in range(4)]
    [0, 2, 4, 6]
    """
    if function is None:
        return functools.partial(jit, reuse_outputs=reuse_outputs)
    return Jit(function, reuse_outputs=reuse_outputs)


TinyJit = jit
