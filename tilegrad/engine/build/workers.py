"""Kernels made in several processes at once: Python runs on one core, and llvmlite serialises its
calls, so a large schedule would leave the other cores idle.

A helper is a new interpreter with a module of ours (engine.worker), started by its path and not by
a fork: it shares no lock and no thread with this process, and never runs the user's script. It is
sent kernel graphs and gives back binaries. This process makes kernels as well, and in the end all
that no helper gave: one that dies, or that cannot know a device, costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import IO, Any

from tilegrad.base.config import config
from tilegrad.base.trace import counters
from tilegrad.engine.build.pipeline import CompiledKernel, Job, Made
from tilegrad.ir.uop import UOp

__all__ = ["Helpers", "receive", "rows_of", "send"]

# A helper has one kernel at hand while it makes another, and does not wait for this process.
_AHEAD = 2
# When this process has nothing left to do, a helper that gives nothing for so long is given up.
_PATIENCE_S = 60.0
_START = "import sys; sys.path[:] = {!r}; from tilegrad.engine.build.worker import main; main()"


def rows_of(ast: UOp) -> list[tuple[object, ...]]:
    """A graph as rows, sources by the number of their row: pickling nodes would recurse."""
    number = {node: position for position, node in enumerate(ast.toposort())}
    return [
        (node.op, node.dtype, tuple([number[source] for source in node.src]), node.arg)
        for node in number
    ]


def send(stream: IO[bytes], message: object) -> None:
    """Write a message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message; raises EOFError where there is none."""
    head = stream.read(8)
    size = int.from_bytes(head, "little")
    data = stream.read(size) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < size:
        raise EOFError("the other process has ended")
    return pickle.loads(data)


class Helpers:
    """Processes that make kernels for `devices` beside this one, by the switches that hold now,
    until the block ends. Starting them takes a moment, in which this process does not wait.

        with Helpers(3, ["CPU"]) as helpers:
            made = helpers.make(jobs, here)
    """

    def __init__(self, count: int, devices: Sequence[str]):
        self._children: list[subprocess.Popen[bytes]] = []
        switches = asdict(config.current())
        for _ in range(count):
            try:
                child = subprocess.Popen(
                    [sys.executable, "-c", _START.format([*map(str, sys.path)])],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # Ctrl-C is for this process, which then ends its helpers.
                    start_new_session=True,
                )
                self._children.append(child)
                assert child.stdin is not None
                send(child.stdin, (switches, list(devices)))
            except OSError:
                break

    def __enter__(self) -> Helpers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, whatever they do."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait()
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                # What was not sent yet cannot be.
                with contextlib.suppress(OSError):
                    stream.close()
        self._children = []

    def __len__(self) -> int:
        return len(self._children)

    def make(
        self,
        jobs: Sequence[Job],
        here: Callable[[Job], Made],
        tell: Callable[[int], None] = lambda done: None,
    ) -> dict[str, Made]:
        """By key, what the helpers made and what `here` made of the jobs meanwhile; jobs that are
        missing were lost with a helper. `tell` is told how many are done.

        Raises what `here` raises.
        """
        # The longest first, so that at the end nobody waits long.
        queue = deque(sorted(jobs, key=lambda job: -len(job.ast.toposort())))
        done: dict[str, Made] = {}
        threads = [
            threading.Thread(
                target=_feed, name="tilegrad worker", args=(child, queue, done), daemon=True
            )
            for child in self._children
        ]
        for thread in threads:
            thread.start()
        while True:
            try:
                job = queue.popleft()
            except IndexError:
                break
            done[job.key] = here(job)
            tell(len(done))
        for thread, child in zip(threads, self._children, strict=True):
            thread.join(_PATIENCE_S)
            if thread.is_alive():
                child.kill()
                thread.join()
        return done


def _feed(
    child: subprocess.Popen[bytes],
    queue: deque[Job],
    done: dict[str, Made],
) -> None:
    """Give a helper jobs and take what it made, until there are none or it has ended."""
    assert child.stdin is not None and child.stdout is not None
    sent: deque[str] = deque()
    try:
        while True:
            while len(sent) < _AHEAD:
                try:
                    job = queue.popleft()
                except IndexError:
                    break
                sent.append(job.key)
                send(child.stdin, (job.key, job.device, rows_of(job.ast)))
            if not sent:
                return
            answer = receive(child.stdout)
            key = sent.popleft()
            if answer is not None:
                fields, binary, work = answer
                done[key] = Made(CompiledKernel(**fields), binary)
                counters.add(work)
    except (OSError, EOFError, ValueError):
        return
