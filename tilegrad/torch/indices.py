"""Indices below 0, which tilegrad counts from the end and PyTorch refuses in all but `x[...]`,
`take`, `put` and `index_fill`.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.errors import IndexBoundsError
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.storage.host_readable import known
from tilegrad.tensor.tensor import Tensor as OurTensor

__all__ = ["refuse_negative"]


def refuse_negative(name: str, index: Any) -> None:
    """Raise IndexBoundsError if an index is below 0, as far as its values are known."""
    if not isinstance(index, OurTensor) or index.dtype.kind != "int":
        return
    values = known(index)
    if values is not None and not values.is_inside(0, math.inf):
        raise IndexBoundsError(
            f"{name}: an index is below 0",
            index=describe(index.uop),
            remedy="add the size of the axis, or index by x[...], which counts from the end",
        )
