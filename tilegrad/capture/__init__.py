"""Capture and replay: `jit`, also spelled `TinyJit`."""

from __future__ import annotations

from tilegrad.capture.jit import Jit, TinyJit, jit

__all__ = ["Jit", "TinyJit", "jit"]
