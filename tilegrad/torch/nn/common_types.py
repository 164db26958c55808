"""`torch.nn.common_types`: what annotations call one size, or one for each axis."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.absent_hints import refuse_others

__all__ = [f"_{kind}_{count}_t" for kind in ("size", "ratio") for count in (1, 2, 3, 4, 5, 6)] + [
    f"_{kind}_any_{end}" for kind in ("size", "ratio") for end in ("t", "opt_t")
] + ["_maybe_indices_t"]  # fmt: skip

_size_any_t = _size_1_t = _size_2_t = _size_3_t = _size_4_t = _size_5_t = _size_6_t = (
    int | tuple[int, ...]
)
_ratio_any_t = _ratio_1_t = _ratio_2_t = _ratio_3_t = _ratio_4_t = _ratio_5_t = _ratio_6_t = (
    float | tuple[float, ...]
)
_size_any_opt_t = int | tuple[int | None, ...]
_ratio_any_opt_t = float | tuple[float | None, ...]
_maybe_indices_t = Any

refuse_others(__name__)
