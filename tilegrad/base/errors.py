"""Every error that tilegrad raises: one line of fact, then a line per detail.

A user's error names the op, both values, the user's own lines and the remedy; an `InternalError`
names the pass and how to reproduce it. Each class also derives from the built-in one that Python
users expect to catch.
"""

from __future__ import annotations

__all__ = [
    "CaptureError", "CompileError", "ConfigError", "DTypeError", "DataError", "DeviceError",
    "IndexBoundsError",
    "InternalError", "OptError", "OutOfMemoryError", "ShapeError", "TilegradError",
]  # fmt: skip


class TilegradError(Exception):
    """The root of all errors raised on purpose: `headline` is the fact, `details` the labelled
    lines under it.
    """

    def __init__(self, headline: str, **details: object):
        self.headline = headline
        self.details = details
        width = max((len(key) + 1 for key in details), default=0)
        lines = [f"  {key + ':':<{width}} {value}" for key, value in details.items()]
        super().__init__("\n".join([headline, *lines]))


class ShapeError(TilegradError, ValueError):
    """Shapes, axes or sizes do not fit the op."""


class DTypeError(TilegradError, TypeError):
    """A dtype is unknown or does not fit the op."""


class DeviceError(TilegradError, RuntimeError):
    """A device is unknown, not usable here, or two devices meet in one op."""


class IndexBoundsError(TilegradError, IndexError):
    """An index lies outside its axis."""


class ConfigError(TilegradError, ValueError):
    """A switch is unknown or has a value outside its range."""


class OptError(TilegradError, ValueError):
    """An Opt is not legal on this kernel."""


class CompileError(TilegradError, RuntimeError):
    """The compiler behind a renderer refused the source."""


class OutOfMemoryError(TilegradError, MemoryError):
    """A device has no room for an allocation, even after giving back what was cached."""


class DataError(TilegradError, ValueError):
    """A file is absent, truncated, or not what its format demands."""


class CaptureError(TilegradError, RuntimeError):
    """A function cannot be captured and replayed safely."""


class InternalError(TilegradError, AssertionError):
    """tilegrad broke a rule of its own; the message says which pass did."""
