"""Child processes: new interpreters that run a function of ours and answer messages.

A child is started by the name of its module and not by a fork: it shares no lock and no thread with
this process, and never runs the user's script. Messages go through pipes; one is two lengths, a
JSON object, and bytes. Kernels are compiled beside this process so (`build.workers`), and
candidates of a search are run where they may crash (`search.children`).
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any

__all__ = [
    "HEAD", "Message", "end_children", "own_pipes", "read_message", "start_child", "write_message",
]  # fmt: skip

HEAD = struct.Struct("<QQ")
"""The lengths at the beginning of a message: of its JSON, and of its bytes."""

Message = tuple[dict[str, Any], bytes]
_START = "import sys; sys.path[:] = {!r}; from {} import main; main()"


def start_child(
    module: str,
    *,
    env: Mapping[str, str] | None = None,
    shows_errors: bool = False,
    is_behind: bool = False,
) -> subprocess.Popen[bytes]:
    """A process that runs `main` of `module`, with pipes as its standard input and output. One that
    `is_behind` gets little of a core that others want.

    Raises OSError where it cannot be started.
    """
    # Ctrl-C is for this process, which then ends its children. Linux may share the processor
    # between sessions first, and heeds a priority only within one.
    has_group = is_behind and os.name == "posix"
    # A constant that Windows alone has.
    low = getattr(subprocess, "IDLE_PRIORITY_CLASS", 0) if is_behind else 0
    return subprocess.Popen(
        [sys.executable, "-c", _START.format([*map(str, sys.path)], module)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if shows_errors else subprocess.DEVNULL,
        start_new_session=not has_group,
        process_group=0 if has_group else None,
        creationflags=low,
        env=env,
    )


def end_children(*children: subprocess.Popen[bytes]) -> None:
    """End processes, whatever they do."""
    for child in children:
        child.kill()
    for child in children:
        child.wait()
        for stream in (child.stdin, child.stdout):
            # Unsent messages cannot be sent any more.
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


def own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """In a child: the pipes of its messages. Prints of any code go to standard error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdin.close()
    return source, sink


def write_message(stream: IO[bytes], fields: Mapping[str, Any], data: bytes = b"") -> None:
    """Send a message."""
    text = json.dumps(fields).encode()
    stream.write(HEAD.pack(len(text), len(data)) + text + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> Message | None:
    """The next message, or None where the other process has ended."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    sizes = HEAD.unpack(head)
    text, data = (stream.read(size) for size in sizes)
    if (len(text), len(data)) != sizes:
        return None
    fields: dict[str, Any] = json.loads(text)
    return fields, data
