"""Capture and replay: `jit`, also spelled `TinyJit`.

A function runs once under watch. Its launches are recorded and run again in one native call, as
long as everything that shaped them is as it was.

    jit                           the function that is captured, and when it is again
    record, watch, frames,        the watched run: what it was given, read, launched and changed
    reads, calls, pure,
    access_paths, objects
    build, slots, step, results   from the run to a capture, over numbered memory
    guards, checker               what the capture rests on, compiled to one flat check
    entry, inputs, graph, packs   a call: checks, inputs, native batches, packed weights
    explain                       all of it as text
"""

from __future__ import annotations

from tilegrad.capture.jit import Jit, TinyJit, jit

__all__ = ["Jit", "TinyJit", "jit"]
