"""Counts and distinct values of small tensors of integers, on the host.

The shape of these results depends on the values, so waiting calls are computed in any case. Values
that are in memory within the host's reach are counted on the host, in the time of a kernel or less;
the result is memory, as all that the host computes (`tensor.calls.uploads`).
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.tensor.calls.uploads import can_upload, uploaded
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.storage.host_readable import known_elements

__all__ = ["counts_of", "distinct_values", "small_values"]

# Elements, and counts of them, that the host goes through.
_MOST = 1 << 14


def small_values(tensor: Any, most: int) -> Any | None:
    """The elements of a tensor of at most `most`, as memory has them, computed now; None where
    kernels are to find out, as for one in memory that the host cannot reach, or where a graph is
    made.
    """
    size = 1
    for length in tensor.shape:
        if length.__class__ is not int:
            return None
        size *= length
    if not 0 < size <= most or tensor._symbols or not can_upload(device_of(tensor)):
        return None
    bits = known_elements(tensor)
    if bits is None:
        tensor._become_known()
        bits = known_elements(tensor)
    return bits


def _integers(tensor: Any) -> Any | None:
    """The values of a small tensor of integers."""
    bits = small_values(tensor, _MOST) if tensor.dtype.is_int else None
    return None if bits is None else bits.copy().view(tensor.dtype.name)


def counts_of(tensor: Any, least: int) -> Any | None:
    """How often each of 0, 1, 2, ... occurs, at least `least` counts, as int32; None where that is
    not known here, or a value is negative.
    """
    values = _integers(tensor)
    if values is None or values.min() < 0 or max(values.max(), least) >= _MOST:
        return None
    import numpy

    counts = numpy.bincount(values.reshape(-1).astype(numpy.int64), minlength=least)
    return uploaded(tensor, counts.astype(numpy.int32), dtypes.int32)


def distinct_values(tensor: Any) -> tuple[Any, Any, Any] | None:
    """The different values in ascending order, for each element the position of its value among
    them, and how often each occurs, the last two as int32; None where kernels are to find out.
    """
    values = _integers(tensor)
    if values is None:
        return None
    import numpy

    found, inverse, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    made = (
        uploaded(tensor, found, tensor.dtype),
        uploaded(tensor, inverse.reshape(values.shape).astype(numpy.int32), dtypes.int32),
        uploaded(tensor, counts.astype(numpy.int32), dtypes.int32),
    )
    return made if all(each is not None for each in made) else None
