"""Products with weights, and attention, as functions."""

from __future__ import annotations

from tilegrad.base.errors import ShapeError
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["bilinear", "linear", "scaled_dot_product_attention"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Affine map: input @ weight.T + bias over the last axis.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features), or (in_features,) of one output without an axis.
        bias: (out_features,), or None.

    Returns a tensor of shape (..., out_features), in the dtype to which all promote.

    Raises ShapeError unless the sizes fit, DTypeError for what is no tensor.

    >>> nn.functional.linear(Tensor([1.0, 2.0]), Tensor([[1.0, 10.0]])).tolist()
    [21.0]
    """
    check_tensors("linear", input, weight)
    if weight.ndim == 1:
        product = input @ weight
        return product if bias is None else product + bias
    return input.linear(weight.T, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear map: input1 @ weight[k] @ input2 + bias[k] for each output k, over the last axes.

    Args:
        input1: (..., in1_features).
        input2: (..., in2_features).
        weight: (out_features, in1_features, in2_features).
        bias: (out_features,), or None.

    Returns a tensor of shape (..., out_features), in the dtype to which all promote.

    Raises ShapeError for sizes that do not fit.

    >>> nn.functional.bilinear(Tensor([2.0]), Tensor([3.0]), Tensor([[[5.0]]])).tolist()
    [30.0]
    """
    check_tensors("bilinear", input1, input2, weight)
    wanted = (input1.shape[-1], input2.shape[-1])
    if weight.ndim != 3 or weight.shape[1:] != wanted or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear: {show_shape(input1.shape)} and {show_shape(input2.shape)} do not fit the "
            f"weight {show_shape(weight.shape)}",
            rule="(..., I), (..., J) and (out, I, J)",
        )
    half = input1 @ weight.permute(1, 0, 2).reshape(weight.shape[1], -1)
    products = half.reshape(*input1.shape[:-1], weight.shape[0], weight.shape[2])
    result = (products * input2.unsqueeze(-2)).sum(-1)
    return result if bias is None else result + bias


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention: softmax(query @ key.T * scale + mask) @ value (Vaswani et al. 2017,
    arXiv:1706.03762); see `Tensor.scaled_dot_product_attention`.

    Args:
        query: (..., queries, size).
        key: (..., keys, size).
        value: (..., keys, width).
        attn_mask: broadcasts to (..., queries, keys); bool, true where a key may be seen, or float,
            added.
        dropout_p: share of the weights that is set to zero.
        is_causal: query i sees the keys 0 to i only.
        scale: factor of the scores, by default 1 / sqrt(size).
        enable_gqa: repeat the heads of key and value.

    Returns a float tensor of shape (..., queries, width).

    Raises ShapeError if both a mask and `is_causal` are given, or shapes do not fit.

    >>> q = k = Tensor.zeros(1, 2, 4)
    >>> v = Tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).tolist()
    [[[1.0, 2.0], [2.0, 4.0]]]
    """
    return query.scaled_dot_product_attention(
        key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
