"""`torch.types`: names for annotations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from tilegrad.base.dtype import DType
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.device_names import device
from tilegrad.torch.tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "TensorOrTensors"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str]
TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]

# Under these names libraries use them.
_bool, _complex, _device, _dtype, _float, _int, _size = (
    bool, complex, device, DType, float, int, tuple,
)  # fmt: skip

refuse_others(__name__)
