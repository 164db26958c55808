"""Processes that compile and run for a search, and may die of it.

A child runs a module of ours and nothing of the user's: it is started, not forked, and reads
requests from a pipe. A request that crashes it, or takes longer than its limit, ends the child and
nothing else; the next request gets a fresh one. A child also ends itself by an alarm, so that none
outlives a killed parent, and at the end of its input.

Messages are those of `engine.child`.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import InternalError, TilegradError
from tilegrad.engine.child import HEAD, Message, end_children, start_child, write_message

__all__ = ["Child", "ChildError", "Children"]

_MOST = 1 << 34
_START_SECONDS = 60.0


class ChildError(TilegradError, RuntimeError):
    """A child crashed, hung, or refused a request."""


class Child:
    """One process, started by the first request."""

    def __init__(self, setup: Sequence[dict[str, Any]] = ()):
        self.setup = list(setup)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: list[dict[str, Any]] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def call(self, request: dict[str, Any], data: bytes = b"", *, seconds: float) -> Message:
        """The answer to a request, after the requests of `setup` that this process has not had.

        Raises ChildError where there is none within `seconds`, the process is then gone, or where
        the child refuses; InternalError where the child came upon a defect of tilegrad.
        """
        if self._process is None:
            self._start()
        if self._ready != self.setup:
            self._ready = list(self.setup)
            for each in self.setup:
                self._ask(each, b"", float(each.get("seconds", _START_SECONDS)))
        return self._ask(request, data, seconds)

    def add(self, request: dict[str, Any]) -> None:
        """Count a request that was just answered among those of `setup`."""
        self.setup.append(request)
        self._ready.append(request)

    def _start(self) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            # The executable of a frozen program is the program.
            raise ChildError("search: there is no Python interpreter to start")
        self._ready = []
        self._process = start_child(
            "tilegrad.engine.search.candidate", env=_environment(), shows_errors=config.DEBUG >= 4
        )

    def _ask(self, request: dict[str, Any], data: bytes, seconds: float) -> Message:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            write_message(process.stdin, {**request, "seconds": seconds}, data)
            end = time.monotonic() + seconds
            text, size = HEAD.unpack(self._read(HEAD.size, end))
            if text > _MOST or size > _MOST:
                raise ChildError("search: a child answered nonsense")
            fields: dict[str, Any] = json.loads(self._read(text, end))
            answer = self._read(size, end)
        except (OSError, ValueError) as error:
            self.kill()
            raise ChildError("search: a child answered nonsense", reason=str(error)) from None
        except BaseException:
            # Its next answer would be that to this request.
            self.kill()
            raise
        if "defect" in fields:
            raise InternalError(
                f"search: {fields['error']}",
                request=str(request.get("opts") or request["do"]),
                trace=fields["defect"],
            )
        if "error" in fields:
            raise ChildError(f"search: {fields['error']}")
        return fields, answer

    def _read(self, count: int, end: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        handle = self._process.stdout.fileno()
        chunks: list[bytes] = []
        while count:
            left = end - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                raise ChildError("search: a child took too long")
            chunk = os.read(handle, min(count, 1 << 20))
            if not chunk:
                code = self._process.wait()
                raise ChildError(f"search: a child ended with {_ending(code)}")
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

    def kill(self) -> None:
        """End the process, whatever it does."""
        process, self._process, self._ready = self._process, None, []
        if process is not None:
            end_children(process)


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def _environment() -> dict[str, str]:
    """The user's, with this thread's switches, less those that are no business of a child."""
    quiet = {"DEBUG": 0, "BEAM": 0, "BEAM_FILE": "", "NOOPT": 0}
    return {**os.environ, **config.environment(**quiet)}


class Children:
    """Several children that answer requests at once."""

    def __init__(self, count: int):
        self._children = [Child() for _ in range(count)]
        self._idle: queue.Queue[Child] = queue.Queue()
        for child in self._children:
            self._idle.put(child)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="tilegrad search")
        self.owner = os.getpid()
        self.used = 0.0

    @property
    def count(self) -> int:
        return len(self._children)

    def open(self, *setup: dict[str, Any]) -> None:
        """Requests that every process gets before any other one."""
        for child in self._children:
            child.setup = list(setup)

    def map(self, requests: Sequence[dict[str, Any]], seconds: float) -> list[Message | ChildError]:
        """The answer to each request, or how a child failed at it."""

        def ask(request: dict[str, Any]) -> Message | ChildError:
            child = self._idle.get()
            try:
                return child.call(request, seconds=seconds)
            except ChildError as error:
                return error
            finally:
                self._idle.put(child)

        return list(self._threads.map(ask, requests))

    def rest(self) -> None:
        """End all processes; the next request starts new ones."""
        for child in self._children:
            child.kill()

    def close(self) -> None:
        """End all processes for good; those of a process that this one was forked from live on."""
        if self.owner == os.getpid():
            self.rest()
        self._threads.shutdown(wait=False, cancel_futures=True)
