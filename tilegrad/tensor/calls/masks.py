"""Small masks on the host: where they are true, which tells the size of what they pick.

A mask that waits is computed for that. What is then made of it, positions or ranks, is memory, as
is whatever the host gives (`tensor.calls.uploads`): another mask in the next step makes an equal
graph over other leaves.
"""

from __future__ import annotations

from typing import Any

from tilegrad.tensor.calls.counted import small_values

__all__ = ["mask_values", "ranks_of_true"]

# Elements of a mask that the host looks through in the time of a kernel.
_MOST_ELEMENTS = 1 << 16


def mask_values(mask: Any) -> Any | None:
    """The values of a small mask as an array of bools, as `small_values`."""
    bits = small_values(mask, _MOST_ELEMENTS)
    return None if bits is None else bits != 0


def ranks_of_true(values: Any) -> Any:
    """For each element of a mask how many true ones are before it, as int32."""
    import numpy

    ranks: Any = numpy.cumsum(values.reshape(-1), dtype=numpy.int32)
    return (ranks - values.reshape(-1)).reshape(values.shape)
