"""`torch.nn.attention.flex_attention`: attention whose scores a program changes, or leaves out.

The functions that it gives (`score_mod`, `mask_mod`) take numbers, one position at a time; `vmap`
computes them for all. Blocks that a mask leaves out whole are counted, and computed nevertheless.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.func import vmap
from tilegrad.torch.functions import repeat_interleave
from tilegrad.torch.made_tensors import arange
from tilegrad.torch.tensor import Tensor

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

Mask = Callable[[Any, Any, Any, Any], Any]
"""Whether a query sees a key: of the batch, head, query and key, 0-dimensional integers."""

_DEFAULT_SPARSE_BLOCK_SIZE = 128


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """A mask through which each query sees each key."""
    return batch.eq(batch)


def and_masks(*mask_mods: Mask) -> Mask:
    """A mask that leaves what all of these leave."""

    def all_of(b: Any, h: Any, q: Any, kv: Any) -> Any:
        found = noop_mask(b, h, q, kv)
        for each in mask_mods:
            found = found & each(b, h, q, kv)
        return found

    return all_of


def or_masks(*mask_mods: Mask) -> Mask:
    """A mask that leaves what one of these leaves."""

    def one_of(b: Any, h: Any, q: Any, kv: Any) -> Any:
        found = ~noop_mask(b, h, q, kv)
        for each in mask_mods:
            found = found | each(b, h, q, kv)
        return found

    return one_of


class AuxRequest(NamedTuple):
    """Values that attention is to give beside its result: the logarithms of the sums of
    exponentials, and the largest score of each query.
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The values that an AuxRequest asked for, each (B, Hq, L), else None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class BlockMask:
    """A mask (batch, heads, queries, keys), where a size of 1 broadcasts, in blocks that are empty
    or not. `create_block_mask` makes it.

    Attributes: `mask_mod`, `seq_lengths` (queries, keys), `BLOCK_SIZE` (of them), `shape`.
    """

    def __init__(self, mask_mod: Mask, dense: Tensor, block_size: tuple[int, int]):
        self.mask_mod, self._dense, self.BLOCK_SIZE = mask_mod, dense, block_size

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, queries, keys)."""
        return tuple(self._dense.shape)

    @property
    def seq_lengths(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return self.shape[-2], self.shape[-1]

    def numel(self) -> int:
        """The number of scores."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """For each block, 1 where it leaves a score, else 0; int32 of (batch, heads, blocks of
        queries, blocks of keys).
        """
        sizes = [-(-length // size) for length, size in zip(self.seq_lengths, self.BLOCK_SIZE)]
        (rows, columns), (high, wide) = sizes, self.BLOCK_SIZE
        below, right = rows * high - self.seq_lengths[0], columns * wide - self.seq_lengths[1]
        padded = self._dense.int().pad((0, right, 0, below))
        blocks = padded.reshape(*self.shape[:2], rows, high, columns, wide)
        return blocks.amax((3, 5))

    @property
    def kv_num_blocks(self) -> Tensor:
        """For each row of blocks, the number that leave a score."""
        return self.to_dense().sum(-1).int()

    def sparsity(self) -> float:
        """Percent of the scores that lie in no block that leaves one; computed now."""
        left = int(self.to_dense().sum().item()) * math.prod(self.BLOCK_SIZE)
        return 100 - 100 * left / self.numel()

    def to(self, device: Any) -> BlockMask:
        """The mask on another device."""
        return BlockMask(self.mask_mod, self._dense.to(device), self.BLOCK_SIZE)

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, and of some heads if two subscripts are given."""
        given = index if isinstance(index, tuple) else (index,)
        slices = [slice(at, at + 1 or None) if isinstance(at, int) else at for at in given]
        return BlockMask(self.mask_mod, self._dense[tuple(slices)], self.BLOCK_SIZE)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _for_all(function: Callable[..., Any], before: tuple[int, ...]) -> Callable[..., Any]:
    """`function` of numbers as one of all batches, heads, queries and keys; `before` are the axes
    of arguments before the four positions.
    """
    for position in (3, 2, 1, 0):
        axes = [0 if each == position else None for each in range(4)]
        function = vmap(function, in_dims=(*before, *axes))
    return function


def create_mask(
    mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """A bool of (B, H, Q_LEN, KV_LEN), or 1 for None, by a mask: whether a query sees a key."""
    positions = [arange(size or 1, device=device) for size in (B, H, Q_LEN, KV_LEN)]
    found: Tensor = _for_all(mod_fn, ())(*positions)
    return found.bool()


def create_block_mask(
    mask_mod: Mask, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, **options: Any,
) -> BlockMask:  # fmt: skip
    """The mask `mask_mod` of (B, H, Q_LEN, KV_LEN); None stands for any number of batches or heads.
    Options that choose how PyTorch compiles have no effect.

    >>> from tilegrad.torch.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
    >>> mask.to_dense()[0, 0].tolist(), mask.sparsity()
    ([[1, 0], [1, 1]], 25.0)
    """
    sizes = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    dense = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    return BlockMask(mask_mod, dense, (sizes[0], sizes[1]))


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ key.T * scale)) @ value, where `block_mask` leaves it.

    Shape: query (B, Hq, L, E), key (B, H, S, E), value (B, H, S, Ev); the result (B, Hq, L, Ev).
    With `enable_gqa` Hq is a multiple of H. `score_mod(score, b, h, q, kv)` gives a score for one.
    A query that sees no key gets zeros. With `return_lse` also the logarithm of the sum of the
    exponentials of the scores, (B, Hq, L); with `return_aux` an AuxOutput of the values that it
    asks for. Options of PyTorch's kernels have no effect.

    Raises ValueError where heads do not fit, or `block_mask` is for fewer queries or keys.
    """
    heads, groups = query.shape[1], key.shape[1]
    if heads != groups:
        if not enable_gqa or heads % groups:
            raise ValueError(
                f"flex_attention: {heads} heads of query and {groups} of key; enable_gqa=True for "
                "a multiple"
            )
        key = repeat_interleave(key, heads // groups, dim=1)
        value = repeat_interleave(value, heads // groups, dim=1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-2, -1)).float() * factor
    if score_mod is not None:
        positions = [arange(size, device=query.device) for size in scores.shape]
        scores = _for_all(score_mod, (0,))(scores, *positions)
    if block_mask is not None:
        scores = scores.masked_fill(~_fitting(block_mask, scores), -math.inf)
    top = scores.amax(-1, keepdim=True).detach()
    weights = (scores - top.masked_fill(top.eq(-math.inf), 0.0)).exp()
    total = weights.sum(-1, keepdim=True)
    found = (weights / total.masked_fill(total.eq(0), 1.0)).to(value.dtype) @ value
    if not return_lse and return_aux is None:
        return found
    sums = (total.log() + top.masked_fill(top.eq(-math.inf), 0.0)).squeeze(-1)
    if return_aux is None:
        return found, sums
    return found, AuxOutput(
        sums if return_aux.lse else None, top.squeeze(-1) if return_aux.max_scores else None
    )


def _fitting(mask: BlockMask, scores: Tensor) -> Tensor:
    """The mask of as many queries and keys as there are scores."""
    queries, keys = scores.shape[-2:]
    if mask.seq_lengths != (queries, keys):
        high, wide = mask.seq_lengths
        if queries > high or keys > wide:
            raise ValueError(
                f"flex_attention: block_mask for {high} queries and {wide} keys, given {queries} "
                f"and {keys}; create_block_mask makes one for them"
            )
    found: Tensor = mask._dense[..., :queries, :keys]
    return found


refuse_others(__name__)
