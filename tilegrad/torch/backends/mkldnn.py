"""`torch.backends.mkldnn`: switches of a library that is not used; they change nothing. `mkl`,
`openmp` and `nnpack` have the same names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilegrad.torch.absent_hints import refuse_others

__all__ = ["allow_tf32", "deterministic", "enabled", "flags", "is_available", "verbose"]

enabled, deterministic, allow_tf32 = False, True, False


def is_available() -> bool:
    """False: kernels are tilegrad's own."""
    return False


@contextlib.contextmanager
def flags(*args: Any, **options: Any) -> Iterator[None]:
    """A block with other switches, which change nothing."""
    yield


verbose = flags

refuse_others(__name__)
