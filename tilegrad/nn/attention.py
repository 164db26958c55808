"""Attention of several heads, with PyTorch's arguments, formulas and names of tensors.

Vaswani et al., "Attention Is All You Need" (2017). Masks are PyTorch's: a bool one is True where a
key is *not* to be seen, a float one is added to the scores.
"""

from __future__ import annotations

import math

from tilegrad.base.errors import DivisionError
from tilegrad.nn.layer_checks import check_size, positive
from tilegrad.nn.layers import Linear
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Multi-head attention: softmax(q k' / sqrt(size of a head) + mask) v for each of `num_heads`
    slices of the last axis (Vaswani et al. 2017, arXiv:1706.03762).

    `in_proj_weight` (3 * embed_dim, embed_dim) makes queries, keys and values; where kdim or vdim
    differ, `q_proj_weight`, `k_proj_weight`, `v_proj_weight` do.

    Args:
        embed_dim: size of queries and outputs.
        num_heads: number of heads, a divisor of `embed_dim`.
        dropout: share of the weights that is set to zero in training.
        bias: whether projections have a bias.
        add_bias_kv: one trained key and value more, `bias_k` and `bias_v`, that no mask hides.
        add_zero_attn: one key and value of zeros more, that no mask hides.
        kdim: size of keys, by default `embed_dim`.
        vdim: size of values, by default `embed_dim`.
        batch_first: axes are (N, L, size), not (L, N, size).

    Shape: queries (L, N, embed_dim), keys (S, N, kdim), values (S, N, vdim), or N first with
    `batch_first`, or without N; gives (L, N, embed_dim) and the weights (N, L, S), averaged over
    the heads, or None without `need_weights`.

    Raises DivisionError unless num_heads divides embed_dim, ShapeError unless sizes fit.

    >>> x = Tensor.ones(2, 5, 8)
    >>> y, weights = nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x); y.shape, weights.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ):
        positive("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise DivisionError(
                f"MultiheadAttention: {num_heads} heads do not divide embed_dim {embed_dim}"
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.batch_first = batch_first
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight: Tensor | None = _glorot(3 * embed_dim, embed_dim)
        else:
            self.in_proj_weight = None
            self.q_proj_weight = _glorot(embed_dim, embed_dim)
            self.k_proj_weight = _glorot(embed_dim, self.kdim)
            self.v_proj_weight = _glorot(embed_dim, self.vdim)
        self.in_proj_bias = Tensor.zeros(3 * embed_dim, requires_grad=True) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias = Tensor.zeros(embed_dim, requires_grad=True)
        self.add_zero_attn = add_zero_attn
        self.bias_k: Tensor | None = None
        self.bias_v: Tensor | None = None
        if add_bias_kv:
            scale = math.sqrt(2 / (embed_dim + 1))
            self.bias_k, self.bias_v = (
                Tensor.normal(1, 1, embed_dim, std=scale, requires_grad=True) for _ in range(2)
            )

    @valued
    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        self._check(query, key, value)
        is_single = query.ndim == 2
        inputs = [query, key, value]
        if is_single:
            inputs = [each.unsqueeze(0) for each in inputs]
        elif not self.batch_first:
            inputs = [each.transpose(0, 1) for each in inputs]
        q, k, v = (self._heads(each, number) for number, each in enumerate(inputs))
        k, v = self._with_more(k, self.bias_k), self._with_more(v, self.bias_v)
        weights = self._scores(q, k, key_padding_mask, attn_mask, is_causal).softmax(-1)
        dropped = weights
        if self.dropout and self.training:
            with Tensor.train():
                dropped = weights.dropout(self.dropout)
        joined = (dropped @ v).transpose(1, 2)
        result = self.out_proj(joined.reshape(*joined.shape[:2], self.embed_dim))
        shown = None
        if need_weights:
            shown = weights.mean(1) if average_attn_weights else weights
        if is_single:
            return result.squeeze(0), None if shown is None else shown.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), shown

    def _with_more(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Keys or values (N, heads, S, width), those that masks do not hide behind them."""
        count, heads, _, width = x._sizes
        if bias is not None:
            x = x.cat(bias.reshape(1, heads, 1, width).expand(count, heads, 1, width), dim=2)
        return x.pad(((0, 0), (0, 0), (0, 1), (0, 0))) if self.add_zero_attn else x

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        name = "MultiheadAttention"
        if not query.ndim == key.ndim == value.ndim or query.ndim not in (2, 3):
            raise DivisionError(
                f"{name}: queries, keys and values have {query.ndim}, {key.ndim} and {value.ndim} "
                "axes; 2 or 3 each are needed",
                query=describe(query.uop),
            )
        sizes = (self.embed_dim, self.kdim, self.vdim)
        for tensor, size in zip((query, key, value), sizes, strict=True):
            check_size(name, "features", tensor, -1, size, DivisionError)

    def _scores(
        self,
        q: Tensor,
        k: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """How well each query fits each key; -inf where a mask hides the key, so that a row without
        any key becomes NaN, as in PyTorch.
        """
        scores = (q * (1 / math.sqrt(self.embed_dim // self.num_heads))) @ k.transpose(-2, -1)
        length, others = scores.shape[-2:]
        more = (self.bias_k is not None) + self.add_zero_attn
        others = others - more
        if is_causal and attn_mask is None:
            rows = Tensor.arange(length, device=q.device).unsqueeze(1)
            attn_mask = Tensor.arange(others, device=q.device) > rows
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.reshape(-1, self.num_heads, *attn_mask.shape[1:])
            scores = _masked(scores, _longer(attn_mask, more))
        if key_padding_mask is not None:
            scores = _masked(scores, _longer(key_padding_mask.reshape(-1, 1, 1, others), more))
        return scores

    def _heads(self, x: Tensor, number: int) -> Tensor:
        """(N, L, size) as (N, heads, L, size of a head), by matrix number `number`."""
        size = self.embed_dim
        rows = slice(number * size, (number + 1) * size)
        if self.in_proj_weight is not None:
            weight = self.in_proj_weight[rows]
        else:
            weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[number]
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        made = x.linear(weight.T, bias)
        width = self.embed_dim // self.num_heads
        return made.reshape(*made.shape[:2], self.num_heads, width).transpose(1, 2)


def _glorot(rows: int, columns: int) -> Tensor:
    return Tensor.glorot_uniform(rows, columns, requires_grad=True)


def _longer(mask: Tensor, more: int) -> Tensor:
    """A mask for additional keys, which it does not hide."""
    return mask.pad((*[(0, 0)] * (mask.ndim - 1), (0, more))) if more else mask


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype.name == "bool":
        return mask.where(-math.inf, scores)
    return scores + mask
