"""Attention, which needs sums of products and, while training, random numbers."""

from __future__ import annotations

import math
from typing import Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.products.loss import Loss

__all__ = ["Attention"]


class Attention(Loss):
    """Attention."""

    __slots__ = ()

    @templated
    @composed
    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Self:
        """Attention of queries (this tensor) to keys: softmax(self @ key.T * scale + mask) @ value
        (Vaswani et al. 2017, arXiv:1706.03762).

        A query that may see no key (a row of minus infinity) gets zeros. The scores are not stored:
        the softmax runs online, as in Dao et al. 2022, arXiv:2205.14135.

        Args:
            key: (..., keys, size), for this tensor's (..., queries, size).
            value: (..., keys, width).
            attn_mask: broadcasts to (..., queries, keys); a bool mask is true where a key may be
                seen, a float mask is added to the scores.
            dropout_p: share of the weights that is set to zero; applied whenever it is above 0.
            is_causal: let query i see the keys 0 to i only.
            scale: factor of the scores, by default 1 / sqrt(size).
            enable_gqa: repeat the heads (third axis from the end) of key and value (Ainslie et al.
                2023, arXiv:2305.13245).

        Returns a float tensor of shape (..., queries, width).

        Raises ShapeError if both a mask and `is_causal` are given, or shapes do not fit.

        >>> q = k = Tensor.zeros(1, 2, 4)
        >>> v = Tensor([[[1.0, 2.0], [3.0, 6.0]]])
        >>> q.scaled_dot_product_attention(k, v, is_causal=True).tolist()
        [[[1.0, 2.0], [2.0, 4.0]]]
        """
        if is_causal and attn_mask is not None:
            raise ShapeError("scaled_dot_product_attention: is_causal and attn_mask are both given")
        if enable_gqa:
            repeats = self._length(-3) // key._length(-3)
            key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
        by = self._score_scale() if scale is None else scale
        wide = dtypes.float32 if self.dtype.is_float and self.dtype.itemsize < 4 else None
        scores = self._product("scaled_dot_product_attention", key.transpose(-2, -1), wide) * by
        is_all_seen = attn_mask is None
        if is_causal:
            rows, columns = scores.shape[-2:]
            attn_mask = self._iota(columns).reshape(1, columns) <= self._iota(rows).reshape(rows, 1)
        if attn_mask is not None:
            if attn_mask.dtype is dtypes.bool:
                scores = attn_mask.where(scores, -math.inf)
            else:
                scores = scores + attn_mask
        weights = (scores.softmax(-1) if is_all_seen else scores._seen_softmax()).cast(self.dtype)
        return (weights.dropout(dropout_p) if dropout_p else weights) @ value

    def _score_scale(self) -> Self | float:
        """1 / sqrt(size) of the last axis; 1 of an empty one."""
        size = self.shape[-1]
        if isinstance(size, int):
            return 1 / math.sqrt(size or 1)
        scale: Self = self._size_number(size).rsqrt()
        return scale

    def _seen_softmax(self) -> Self:
        """softmax along the last axis, zeros where all of a row is minus infinity. A sum of
        exponentials is 1 at least otherwise.
        """
        largest = self._largest((-1,)).maximum(-self.dtype.largest)
        exponentials = (self - largest).exp()
        return exponentials * exponentials.sum(-1, keepdim=True).maximum(0.5).reciprocal()
