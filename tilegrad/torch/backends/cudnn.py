"""`torch.backends.cudnn`: switches of a library that is not used; they change nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilegrad.torch.absent_hints import refuse_others

__all__ = [
    "allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags",
    "fp32_precision", "is_acceptable", "is_available", "version",
]  # fmt: skip

enabled, deterministic, benchmark, allow_tf32 = False, True, False, False
benchmark_limit, fp32_precision = 10, "none"


def is_available() -> bool:
    """False: kernels are tilegrad's own."""
    return False


def is_acceptable(tensor: Any) -> bool:
    """False: kernels are tilegrad's own."""
    return False


def version() -> int | None:
    """None: there is no such library."""
    return None


@contextlib.contextmanager
def flags(*args: Any, **options: Any) -> Iterator[None]:
    """A block with other switches, which change nothing."""
    yield


refuse_others(__name__)
