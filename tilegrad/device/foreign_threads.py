"""Threads of devices that others write, as one that runs a queue of launches. A hook that waits for
a thread that has ended would wait for ever: it becomes an error.

A thread is the device's if its code is in the file of the device's runtime. Hooks of a device that
has none run as they are; where it has some, a hook that waits runs in a thread of its own, which is
left behind where it does not return.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import DeviceError

__all__ = ["Threads"]

# Seconds between two looks at the threads, and from the end of the last one to the error: what it
# did before may just let the hook return.
_LOOK_S, _GRACE_S = 0.1, 1.0
_RULE = (
    "a thread that runs a queue catches what a command raises, and hands it to the copy_out or "
    "synchronize that waits"
)
_devices: weakref.WeakSet[Threads] = weakref.WeakSet()
_is_watched = contextvars.ContextVar("_is_watched", default=False)


class Threads:
    """The threads of one device."""

    def __init__(self, kind: str, runtime: Any):
        self._kind = kind
        module = sys.modules.get(type(runtime).__module__)
        self._file = getattr(module, "__file__", None) or _file_of(type(runtime))
        self._found: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._is_threaded = False
        # The error that ended a thread, and its line, until a hook has told.
        self._fault: tuple[str, str] | None = None
        self._count = 0
        self.note()
        _watch_threads()
        _devices.add(self)

    def note(self) -> None:
        """Look for new threads, mostly none."""
        if threading.active_count() == self._count:
            return
        running = threading.enumerate()
        self._count = len(running)
        for thread in running:
            if _file_of(thread) == self._file:
                self._found.add(thread)
                self._is_threaded = True

    def ended_by(self, error: BaseException, thread: threading.Thread | None) -> None:
        """Take note of an exception that has ended a thread, if that was one of the device."""
        frames = [
            each
            for each in traceback.extract_tb(error.__traceback__)
            if each.filename == self._file
        ]
        if frames:
            name = "a thread" if thread is None else f"the thread {thread.name!r}"
            cause = f"{name} ended with {type(error).__name__}: {error}"
            self._fault = cause, f"{frames[-1].filename}:{frames[-1].lineno}, {frames[-1].line}"
            self._is_threaded = True

    def check(self, hook: str) -> None:
        """Raise DeviceError where a thread was ended by an exception since the last call."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise DeviceError(f"{self._kind}: {hook}: {fault[0]}", raised_in=fault[1], rule=_RULE)

    def wait(self, hook: str, call: Callable[[], Any]) -> Any:
        """`call()`, which may wait for a thread of the device.

        Raises DeviceError where that has ended.
        """
        if _is_watched.get():
            # A hook that another one calls: who waits for that looks.
            return call()
        self.check(hook)
        self.note()
        return self._watched(hook, call) if self._is_threaded else call()

    def _watched(self, hook: str, call: Callable[[], Any]) -> Any:
        waiting = _Waiting(call)
        grace = _GRACE_S
        while not waiting.done.wait(_LOOK_S):
            self.check(hook)
            self.note()
            grace = _GRACE_S if any(each.is_alive() for each in self._found) else grace - _LOOK_S
            if grace <= 0 and not waiting.done.is_set():
                raise DeviceError(
                    f"{self._kind}: {hook} waits, and no thread of the device runs any more",
                    rule=_RULE,
                )
        self.check(hook)
        return waiting.result()


class _Waiting:
    """A call in a thread of its own, in the context of who waits for it."""

    def __init__(self, call: Callable[[], Any]):
        self.done = threading.Event()
        self._call, self._result = call, None
        self._error: BaseException | None = None
        run = functools.partial(contextvars.copy_context().run, self._run)
        threading.Thread(target=run, name="tilegrad wait", daemon=True).start()

    def _run(self) -> None:
        _is_watched.set(True)
        try:
            self._result = self._call()
        except BaseException as error:
            # Raised where it is waited for.
            self._error = error
        self.done.set()

    def result(self) -> Any:
        """The value of the call, or its exception."""
        if self._error is not None:
            raise self._error
        return self._result


def _file_of(thing: Any) -> str | None:
    """The file of the code of a thread or class, as its frames name it."""
    if isinstance(thing, type):
        codes = [getattr(each, "__code__", None) for each in vars(thing).values()]
        return next((code.co_filename for code in codes if code is not None), None)
    # A thread has its target while it runs.
    target = getattr(thing, "_target", None) or type(thing).run
    target = getattr(target, "func", target)
    code = getattr(target, "__code__", None)
    return None if code is None else str(code.co_filename)


def _watch_threads() -> None:
    """Let devices know of exceptions that end threads, beside who knows of them now."""
    before = threading.excepthook
    if getattr(before, "is_of_devices", False):
        return

    def hook(given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None:
            for device in list(_devices):
                device.ended_by(given.exc_value, given.thread)
        before(given)

    hook.is_of_devices = True  # type: ignore[attr-defined]
    threading.excepthook = hook
