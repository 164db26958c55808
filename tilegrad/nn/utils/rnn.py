"""Sequences of several lengths as one tensor.

There are no packed sequences: recurrent layers run over the padded ones, and what stands beyond a
length is left out by its mask.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.core import check_tensors
from tilegrad.tensor.sizes import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["pad_sequence", "unpad_sequence"]


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (L_i, ...) as one, (longest L, N, ...), or (N, longest L, ...) with `batch_first`.

    Raises ShapeError for none, or tensors that differ behind the first axis; ConfigError for a side
    that is neither "right" nor "left".

    >>> rows = [Tensor([1, 2, 3]), Tensor([4])]
    >>> nn.utils.rnn.pad_sequence(rows, batch_first=True).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    rows = list(sequences)
    check_tensors("pad_sequence", *rows)
    if not rows or any(row.ndim < 1 or row.shape[1:] != rows[0].shape[1:] for row in rows):
        raise ShapeError(
            f"pad_sequence: {len(rows)} sequences that do not stack",
            shapes=", ".join(show_shape(row.shape) for row in rows[:8]),
            rule="at least one, and all of one shape behind the first axis",
            line=here(),
        )
    if padding_side not in ("left", "right"):
        raise ConfigError(
            f"pad_sequence: unknown padding_side {padding_side!r}",
            allowed="'left', 'right'",
            line=here(),
        )
    longest = max(row._sizes[0] for row in rows)

    def filled(row: Tensor) -> Tensor:
        missing = longest - row._sizes[0]
        around = (missing, 0) if padding_side == "left" else (0, missing)
        return row.pad((around, *[(0, 0)] * (row.ndim - 1)), value=padding_value)

    padded = [filled(row) for row in rows]
    return padded[0].stack(*padded[1:], dim=0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The sequences that `pad_sequence` made one of, by their lengths. Lengths in a tensor are
    waited for.

    >>> one, two = nn.utils.rnn.unpad_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], True)
    >>> one.tolist(), two.tolist()
    ([1, 2], [3])
    """
    check_tensors("unpad_sequence", padded_sequences)
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[place, :size] for place, size in enumerate(sizes)]
