"""Tables of numbers that a method makes for itself, such as the weights of `interpolate`.

A list of numbers is a copy that a run makes, or in `tilegrad.torch` new memory at each call. Either
is a node of its own, which no template can repeat. Numbers that follow from shapes and arguments
are the same in each call: their memory is made once, and is an input of each call of the template.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, TypeVar

from tilegrad.base.dtype import DType
from tilegrad.base.recent import Bounded
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.uploads import can_upload, upload_bytes
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.storage.host_memory import pack

__all__ = ["number_table", "number_tables"]

T = TypeVar("T", bound=Any)

# Tables with more elements are made at each call, and tables beyond this many forgotten.
_MOST_ELEMENTS, _MOST_TABLES = 1 << 12, 256
_recent: Bounded[tuple[Any, ...], UOp] = Bounded(_MOST_TABLES)
_alive: weakref.WeakValueDictionary[tuple[Any, ...], UOp] = weakref.WeakValueDictionary()
# The memory of all tables.
number_tables: weakref.WeakSet[UOp] = weakref.WeakSet()


def number_table(like: T, values: Sequence[float], dtype: DType) -> T:
    """The tensor of `values`, (number of values,), of the class and on the device of `like`. It
    must not be written to.
    """
    device = device_of(like)
    data = pack(values, dtype)
    # By bits: -0.0 is equal to 0.0, and NaN to nothing.
    key = device, dtype, data
    leaf = _alive.get(key)
    if leaf is None:
        made = object.__new__(like.__class__)
        is_small = 0 < len(values) <= _MOST_ELEMENTS and can_upload(device)
        if not is_small or not upload_bytes(made, data, dtype, (len(values),), device):
            plain: T = like.__class__([*values], device=device, dtype=dtype)
            return plain
        leaf = _alive.setdefault(key, made.uop)
        number_tables.add(leaf)
        _recent.put(key, leaf)
    table: T = like._of(leaf, device, NO_VARIABLES)
    return table
