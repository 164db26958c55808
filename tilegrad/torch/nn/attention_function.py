"""`multi_head_attention_forward`: the attention of `MultiheadAttention` with given weights,
as programs call it that project queries, keys and values themselves.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DivisionError
from tilegrad.tensor.tensor import Tensor
from tilegrad.torch.tensor import as_ours

__all__ = ["multi_head_attention_forward"]


def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """The attention of queries (L, N, E) or (L, E) over keys and values (S, N, ...), by weights as
    `MultiheadAttention` has them. `is_causal` only says that `attn_mask` is causal.

    Returns the result, (L, N, E) or (L, E), and the weights (N, L, S), averaged over the heads
    unless told otherwise, or None without `need_weights`.

    Raises DivisionError for another size of the queries, or heads that do not divide it.
    """
    size = query.shape[-1]
    if size != embed_dim_to_check or size % num_heads:
        raise DivisionError(
            f"multi_head_attention_forward: queries of {size} numbers, embed_dim "
            f"{embed_dim_to_check} in {num_heads} heads"
        )
    is_single = query.ndim == 2
    batches = [each.unsqueeze(1) if is_single else each for each in (query, key, value)]
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        _projected(each, weight, bias) for each, weight, bias in zip(batches, weights, biases)
    )
    count = q.shape[1]
    if bias_k is not None and bias_v is not None:
        k, v = (x.cat(bias.expand(1, count, size)) for x, bias in ((k, bias_k), (v, bias_v)))
    # (N, heads, length, size of a head).
    q, k, v = (x.reshape(x.shape[0], count, num_heads, -1).permute(1, 2, 0, 3) for x in (q, k, v))
    k = k if static_k is None else static_k.reshape(count, num_heads, *static_k.shape[1:])
    v = v if static_v is None else static_v.reshape(count, num_heads, *static_v.shape[1:])
    if add_zero_attn:
        k, v = (x.cat(x.new_zeros(*x.shape[:2], 1, x.shape[3]), dim=2) for x in (k, v))
    masks = _over_heads(attn_mask, count, num_heads), _over_keys(key_padding_mask, is_single)
    heads, shares = _attended(q, k, v, masks, dropout_p if training else 0.0)
    joined = heads.permute(2, 0, 1, 3).reshape(-1, count, size)
    found = _projected(joined, out_proj_weight, out_proj_bias)
    found = found.squeeze(1) if is_single else found
    if not need_weights:
        return as_ours(found), None
    shown = shares.mean(1) if average_attn_weights else shares
    return as_ours(found), as_ours(shown.squeeze(0) if is_single else shown)


def _attended(q: Any, k: Any, v: Any, masks: Any, dropout_p: float) -> tuple[Any, Any]:
    """The results of each head, (N, heads, L, size of a head), and its weights (N, heads, L, S)."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    for mask in masks:
        scores = _masked(scores, mask)
    shares = scores.softmax(-1)
    if not dropout_p:
        return shares @ v, shares
    with Tensor.train():
        return shares.dropout(dropout_p) @ v, shares


def _projected(x: Any, weight: Any, bias: Any) -> Any:
    found = x @ weight.transpose(-1, -2)
    return found if bias is None else found + bias


def _over_heads(mask: Any, count: int, heads: int) -> Any:
    """A mask (L, S), or (N * heads, L, S), for scores (N, heads, L, S)."""
    if mask is None or mask.ndim == 2:
        return mask
    return mask.reshape(count, heads, *mask.shape[1:])


def _over_keys(mask: Any, is_single: bool) -> Any:
    """A mask of keys, (N, S) or (S,), for scores (N, heads, L, S)."""
    if mask is None:
        return None
    each = mask.unsqueeze(0) if is_single else mask
    return each[:, None, None, :]


def _masked(scores: Any, mask: Any) -> Any:
    """Scores without the keys at which a bool mask is true, or with those of a mask added; keys
    beyond a mask are those that no mask hides.
    """
    if mask is None:
        return scores
    beyond = scores.shape[-1] - mask.shape[-1]
    if mask.dtype is dtypes.bool:
        return scores.masked_fill(_longer(mask, beyond, False), -math.inf)
    return scores + _longer(mask, beyond, 0.0)


def _longer(mask: Any, count: int, value: Any) -> Any:
    if not count:
        return mask
    return mask.cat(mask.new_full((*mask.shape[:-1], count), value), dim=-1)
