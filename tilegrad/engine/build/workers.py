"""Kernels made in several processes at once: Python runs on one core, and llvmlite serialises its
calls, so a large schedule would leave the other cores idle.

A helper is a child process (`engine.child`) that is sent kernel graphs and gives back binaries.
This process makes kernels as well, and in the end all that no helper gave: one that dies, or that
cannot know a device, costs time and nothing else.
"""

from __future__ import annotations

import pickle
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType

from tilegrad.base.config import config
from tilegrad.base.trace import counters
from tilegrad.engine.build.pipeline import CompiledKernel, Job, kernel_from
from tilegrad.engine.child import end_children, read_message, start_child, write_message
from tilegrad.ir.uop import UOp

__all__ = ["Helpers", "graph_bytes"]

# Kernels that a helper is given at a time: one waits while it makes another.
_AHEAD = 2
# When this process has nothing left to do, a helper that gives nothing for so long is given up.
_PATIENCE_S = 60.0


def graph_bytes(ast: UOp) -> bytes:
    """A graph as pickled rows, sources by the number of their row: pickling nodes would recurse."""
    number = {node: position for position, node in enumerate(ast.toposort())}
    rows = [
        (node.op, node.dtype, tuple([number[source] for source in node.src]), node.arg)
        for node in number
    ]
    return pickle.dumps(rows, protocol=pickle.HIGHEST_PROTOCOL)


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
                helper = start_child("tilegrad.engine.build.worker")
                self._children.append(helper)
                assert helper.stdin is not None
                write_message(helper.stdin, {"switches": switches, "devices": list(devices)})
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
        end_children(*self._children)
        self._children = []

    def __len__(self) -> int:
        return len(self._children)

    def make(
        self,
        jobs: Sequence[Job],
        here: Callable[[Job], CompiledKernel],
        tell: Callable[[int], None] = lambda done: None,
    ) -> dict[str, CompiledKernel]:
        """By key, what the helpers made and what `here` made of the jobs meanwhile; jobs that are
        missing were lost with a helper. `tell` is told how many are done.

        Raises what `here` raises.
        """
        # The longest first, so that at the end nobody waits long.
        queue = deque(sorted(jobs, key=lambda job: -len(job.ast.toposort())))
        done: dict[str, CompiledKernel] = {}
        threads = [
            threading.Thread(
                target=_feed, name="tilegrad worker", args=(helper, queue, done), daemon=True
            )
            for helper in self._children
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
        for thread, helper in zip(threads, self._children, strict=True):
            thread.join(_PATIENCE_S)
            if thread.is_alive():
                helper.kill()
                thread.join()
        return done


def _feed(
    helper: subprocess.Popen[bytes],
    queue: deque[Job],
    done: dict[str, CompiledKernel],
) -> None:
    """Give a helper jobs and take what it made, until there are none or it has ended."""
    assert helper.stdin is not None and helper.stdout is not None
    sent: deque[str] = deque()
    try:
        while True:
            while len(sent) < _AHEAD:
                try:
                    job = queue.popleft()
                except IndexError:
                    break
                sent.append(job.key)
                fields = {"key": job.key, "device": job.device}
                write_message(helper.stdin, fields, graph_bytes(job.ast))
            if not sent or (answer := read_message(helper.stdout)) is None:
                return
            key, (found, binary) = sent.popleft(), answer
            kernel = kernel_from(key, found["kernel"], binary) if found else None
            if kernel is not None:
                done[key] = kernel
                counters.add(found["work"])
    except (OSError, ValueError):
        return
