"""Tables of vectors, picked by number: one for each index, or one for each bag of them."""

from __future__ import annotations

from typing import Unpack

from tilegrad.nn import functional
from tilegrad.nn.functional.embedding import padding_index
from tilegrad.nn.layer_checks import FactoryOptions, countable
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """Table of vectors: row `index` of `weight` for each index.

    Only the rows asked for are read, and the gradient costs no more than they do. The first values
    are normal(0, 1).

    Args:
        num_embeddings: number of rows.
        embedding_dim: size of a row.
        padding_idx: a row that is first 0, and has no gradient.
        max_norm: a call first shortens the rows asked for that are longer, in the weight itself.
        norm_type: order of that norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is asked for.
        sparse: kept as an attribute; gradients are dense.
        options: `device` and `dtype` of the weights.

    Shape: integers (...) to (..., embedding_dim); `weight` is (num_embeddings, embedding_dim).

    Raises ConfigError for a `padding_idx` that is out of range, DTypeError for indices that are no
    integers.

    >>> nn.Embedding(3, 2, padding_idx=0)(Tensor([[0]])).tolist()
    [[[0.0, 0.0]]]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        **options: Unpack[FactoryOptions],
    ):
        name = type(self).__name__
        countable(name, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        values = Tensor.randn(num_embeddings, embedding_dim)
        if padding_idx is not None:
            self.padding_idx = padding_index(padding_idx, num_embeddings)
            is_padding = Tensor.arange(num_embeddings).eq(self.padding_idx).unsqueeze(1)
            values = is_padding.where(0.0, values)
        self.weight = values.requires_grad_()
        self.to(**options)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """The layer with rows that are there; with `freeze` they are not trained."""
        rows, size = embeddings._sizes
        layer = cls(rows, size, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        layer.weight = layer._as_parameter(embeddings.detach().clone())
        layer.weight.requires_grad_(not freeze)
        return layer

    def __call__(self, index: Tensor) -> Tensor:
        return functional.embedding(
            index,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
        )


class EmbeddingBag(Module):
    """Rows of a table, reduced over bags of indices; see `functional.embedding_bag`.

    Args:
        num_embeddings: number of rows.
        embedding_dim: size of a row.
        max_norm: a call first shortens the rows asked for that are longer.
        norm_type: order of that norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is asked for.
        mode: "mean", "sum" or "max".
        sparse: kept as an attribute; gradients are dense.
        include_last_offset: the last offset is an end.
        padding_idx: indices that do not count.
        options: `device` and `dtype` of the weights.

    Shape: integers (B, L), or (L,) with offsets (B,), to (B, embedding_dim).

    Raises ConfigError for another mode, DTypeError for indices that are no integers, ShapeError for
    other shapes.

    >>> nn.EmbeddingBag(5, 2)(Tensor([[0, 1], [2, 2]])).shape
    (2, 2)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        **options: Unpack[FactoryOptions],
    ):
        rows = Embedding(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq
        )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.mode, self.include_last_offset = mode, include_last_offset
        self.padding_idx, self.weight = rows.padding_idx, rows.weight
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.to(**options)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """The layer with rows that are there; with `freeze` they are not trained."""
        rows, size = embeddings._sizes
        layer = cls(
            rows,
            size,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            include_last_offset,
            padding_idx,
        )
        layer.weight = layer._as_parameter(embeddings.detach().clone())
        layer.weight.requires_grad_(not freeze)
        return layer

    def __call__(
        self,
        index: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return functional.embedding_bag(
            index,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
