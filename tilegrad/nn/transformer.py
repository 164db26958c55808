"""Transformers, with PyTorch's arguments, formulas and names of tensors.

Vaswani et al., "Attention Is All You Need" (2017). Masks are those of `nn/attention.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError
from tilegrad.base.origin import as_users
from tilegrad.nn.attention import MultiheadAttention
from tilegrad.nn.containers import ModuleList
from tilegrad.nn.dropout import Dropout
from tilegrad.nn.layer_checks import positive
from tilegrad.nn.layers import Linear
from tilegrad.nn.module import Module
from tilegrad.nn.norms import LayerNorm
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


def _activation(name: str, given: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(given):
        return given
    if given not in ("relu", "gelu"):
        raise ConfigError(
            f"{name}: unknown activation {given!r}",
            allowed="'relu', 'gelu', or a function of a tensor",
        )
    return Tensor.relu if given == "relu" else Tensor.gelu


class TransformerEncoderLayer(Module):
    """Layer of a Transformer's encoder: x + attention(x), then x + linear2(act(linear1(x))), each
    normalised behind the sum, or before attention and product with `norm_first` (Vaswani et al.
    2017, arXiv:1706.03762).

    Args:
        d_model: size of the last axis.
        nhead: number of heads.
        dim_feedforward: size between linear1 and linear2.
        dropout: share of the elements that is set to zero in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: `eps` of LayerNorm.
        batch_first: axes are (N, L, d_model), not (L, N, d_model).
        norm_first: normalise before, not behind.
        bias: whether layers have a bias.

    Shape: input (L, N, d_model), or (N, L, d_model) with `batch_first`, output of the same shape.

    Raises ConfigError for another activation, ShapeError unless `nhead` divides `d_model`.

    >>> nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(Tensor.ones(2, 5, 8)).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ):
        name = type(self).__name__
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self._more_attention(d_model, nhead, dropout, bias, batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = norm_first
        for number in range(1, self._sums + 1):
            setattr(self, f"norm{number}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for number in range(1, self._sums + 1):
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _activation(name, activation)

    _sums = 2

    def _more_attention(self, *options: Any) -> None:
        """Attention to another sequence, in a decoder."""

    def _add(self, number: int, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """x and what `function` makes of it, normalised before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(function(norm(x)))  # type: ignore[no-any-return]
        return norm(x + dropout(function(x)))  # type: ignore[no-any-return]

    def _to_itself(
        self, key_padding_mask: Tensor | None, mask: Tensor | None, is_causal: bool
    ) -> Callable[[Tensor], Tensor]:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, key_padding_mask, False, mask, is_causal=is_causal)[0]

        return attend

    def _feed(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(as_users(self.activation, self.linear1(x))))

    def __call__(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        attend = self._to_itself(src_key_padding_mask, src_mask, is_causal)
        return self._add(2, self._add(1, src, attend), self._feed)


class TransformerDecoderLayer(TransformerEncoderLayer):
    """Layer of a Transformer's decoder: as TransformerEncoderLayer, with attention to `memory`, an
    encoder's result, in between.

    Args:
        d_model: size of the last axis.
        nhead: number of heads.
        dim_feedforward: size between linear1 and linear2.
        dropout: share of the elements that is set to zero in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: `eps` of LayerNorm.
        batch_first: axes are (N, T, d_model), not (T, N, d_model).
        norm_first: normalise before, not behind.
        bias: whether layers have a bias.

    Shape: input (T, N, d_model) and memory (S, N, d_model), or N first, output of the shape of the
    input.

    Raises ConfigError for another activation, ShapeError unless `nhead` divides `d_model`.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(Tensor.ones(2, 3, 8), Tensor.ones(2, 5, 8)).shape
    (2, 3, 8)
    """

    _sums = 3

    def _more_attention(self, *options: Any) -> None:
        d_model, nhead, dropout, bias, batch_first = options
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first
        )

    def __call__(  # type: ignore[override]
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        attend = self._to_itself(tgt_key_padding_mask, tgt_mask, tgt_is_causal)

        def attend_memory(x: Tensor) -> Tensor:
            attention = self.multihead_attn
            hidden, causal = memory_key_padding_mask, memory_is_causal
            return attention(x, memory, memory, hidden, False, memory_mask, is_causal=causal)[0]

        x = self._add(2, self._add(1, tgt, attend), attend_memory)
        return self._add(3, x, self._feed)


class TransformerEncoder(Module):
    """`num_layers` copies of `encoder_layer` in a row, then `norm`. As in PyTorch the copies begin
    with equal weights.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: number of copies.
        norm: a module behind the last, or None.
        enable_nested_tensor: accepted and ignored.
        mask_check: accepted and ignored.

    Shape: as `encoder_layer`.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerEncoder(layer, 2)(Tensor.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        # The last two choose how PyTorch skips what is padded: no value depends on them.
        positive("TransformerEncoder", num_layers=num_layers)
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def __call__(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of `decoder_layer` in a row, then `norm`.

    Args:
        decoder_layer: the layer that is copied.
        num_layers: number of copies.
        norm: a module behind the last, or None.

    Shape: as `decoder_layer`.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerDecoder(layer, 2)(Tensor.ones(1, 2, 8), Tensor.ones(1, 3, 8)).shape
    (1, 2, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        positive("TransformerDecoder", num_layers=num_layers)
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def __call__(self, tgt: Tensor, memory: Tensor, *masks: Any, **options: Any) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder (Vaswani et al. 2017, arXiv:1706.03762).

    Args:
        d_model: size of the last axis.
        nhead: number of heads.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        dim_feedforward: size between the two linear layers.
        dropout: share of the elements that is set to zero in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: `eps` of LayerNorm.
        batch_first: N is the first axis.
        norm_first: normalise before, not behind.
        bias: whether layers have a bias.

    Shape: source (S, N, d_model) and target (T, N, d_model) to (T, N, d_model), with `batch_first`
    N first.

    Raises ConfigError for another activation, ShapeError unless `nhead` divides `d_model`.

    >>> model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(Tensor.ones(1, 3, 8), Tensor.ones(1, 2, 8)).shape
    (1, 2, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ):
        options: tuple[Any, ...] = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias,
        )  # fmt: skip
        self.encoder = TransformerEncoder(
            TransformerEncoderLayer(*options),
            num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias),
        )
        self.decoder = TransformerDecoder(
            TransformerDecoderLayer(*options),
            num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias),
        )
        for tensor in self.parameters():
            if tensor.ndim > 1:
                tensor.replace(Tensor.glorot_uniform(*tensor.shape))

    def __call__(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: str | None = None, dtype: DType | None = None
    ) -> Tensor:
        """A float mask (sz, sz): -inf above the diagonal, else 0."""
        positions = Tensor.arange(sz, device=device)
        ends = Tensor.full((sz, sz), -math.inf, dtype=dtype, device=device)
        return (positions > positions.unsqueeze(1)).where(ends, 0.0)
