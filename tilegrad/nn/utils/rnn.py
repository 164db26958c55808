"""Sequences of several lengths as one tensor: padded to the longest, or packed, step by step.

Recurrent layers run over padded sequences; given packed ones they leave each sequence's state as it
is beyond its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.handle.size_arguments import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


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
    return [rows[position, :size] for position, size in enumerate(sizes)]


class PackedSequence(NamedTuple):
    """Sequences without padding: the first steps of all of them, longest sequence first, then the
    second steps of all that have one, and so on.

    Attributes:
        data: the steps, one below the other.
        batch_sizes: how many sequences have a first step, a second, ...
        sorted_indices, unsorted_indices: the place of each sequence in the order of lengths among
            those that were packed, and the other way round; None if they came in that order.
    """

    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None

    @property
    def lengths(self) -> list[int]:
        """The length of each sequence, longest first."""
        sizes = self._sizes()
        return [sum(size > position for size in sizes) for position in range(sizes[0])]

    def _sizes(self) -> list[int]:
        given = self.batch_sizes
        return [int(n) for n in (given.tolist() if isinstance(given, Tensor) else given)]

    def positions(self) -> list[tuple[int, int]]:
        """The step and the sequence, longest first, of each row of `data`."""
        return [(step, n) for step, size in enumerate(self._sizes()) for n in range(size)]

    def padded(self, padding_value: float = 0.0, total_length: int | None = None) -> Tensor:
        """(steps, sequences, ...), longest sequence first."""
        sizes = self._sizes()
        steps = max(len(sizes), total_length or 0)
        starts = [0, *itertools.accumulate(sizes)]
        rows = [
            [starts[t] + n if t < len(sizes) and n < sizes[t] else -1 for n in range(sizes[0])]
            for t in range(steps)
        ]
        index = Tensor(rows, dtype="int32", device=self.data.device)
        is_there = (index >= 0).reshape(*index.shape, *[1] * (self.data.ndim - 1))
        rows_of = self.data[index.clip(0)]
        found: Tensor = is_there.where(rows_of, rows_of.const_like(padding_value))
        return found

    def packed_like(self, padded: Tensor) -> PackedSequence:
        """The steps of `padded` (steps, sequences, ...) in place of `data`."""
        rows, columns = ([pair[at] for pair in self.positions()] for at in (0, 1))
        picked = padded[
            Tensor(rows, dtype="int32", device=padded.device),
            Tensor(columns, dtype="int32", device=padded.device),
        ]
        return self._replace(data=picked)

    def to(self, device: str) -> PackedSequence:
        """With its steps on another device."""
        return self._replace(data=self.data.to(device))


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """The sequences in `input`, (L, N, ...) or (N, L, ...) with `batch_first`, without what stands
    beyond their `lengths`. Lengths in a tensor are waited for.

    Raises ShapeError unless there is a length of 1 to L for each sequence; and with
    `enforce_sorted` unless they fall, or stay.

    >>> packed = nn.utils.rnn.pack_padded_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 3, 2], [2, 1])
    """
    check_tensors("pack_padded_sequence", input)
    sizes = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    padded = input.transpose(0, 1) if batch_first else input
    steps, count = padded._sizes[:2]
    is_ordered = all(a >= b for a, b in itertools.pairwise(sizes))
    if len(sizes) != count or not all(1 <= size <= steps for size in sizes):
        raise ShapeError(
            f"pack_padded_sequence: lengths {sizes} of {count} sequences of {steps} steps",
            rule="one for each sequence, of 1 to as many as there are steps",
            line=here(),
        )
    if enforce_sorted and not is_ordered:
        raise ShapeError(
            f"pack_padded_sequence: lengths {sizes} do not fall",
            remedy="pass enforce_sorted=False",
            line=here(),
        )
    order = sorted(range(count), key=lambda position: -sizes[position])
    sizes = [sizes[position] for position in order]
    batch = [sum(size > step for size in sizes) for step in range(sizes[0])]
    made = PackedSequence(None, Tensor(batch, dtype="int32"))
    if not enforce_sorted:
        back = sorted(range(count), key=order.__getitem__)
        made = made._replace(
            sorted_indices=Tensor(order, dtype="int32", device=input.device),
            unsorted_indices=Tensor(back, dtype="int32", device=input.device),
        )
        padded = padded.index_select(1, made.sorted_indices)
    return made.packed_like(padded)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sequences padded to the longest, or to `total_length`, in the order in which they were
    packed, and their lengths.

    Raises ShapeError if `total_length` is less than the longest.

    >>> packed = nn.utils.rnn.pack_sequence([Tensor([1, 2]), Tensor([3])])
    >>> padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2], [3, 0]], [2, 1])
    """
    lengths = sequence.lengths
    if total_length is not None and total_length < lengths[0]:
        raise ShapeError(
            f"pad_packed_sequence: total_length {total_length}, the longest has {lengths[0]}",
            line=here(),
        )
    padded = sequence.padded(padding_value, total_length)
    found = Tensor(lengths, dtype="int32")
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        found = found.index_select(0, sequence.unsorted_indices.to(found.device))
    return padded.transpose(0, 1) if batch_first else padded, found


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors (L_i, ...), packed; see `pack_padded_sequence`.

    >>> nn.utils.rnn.pack_sequence([Tensor([1, 2]), Tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    lengths = [row._sizes[0] for row in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that `pack_sequence` was given.

    >>> packed = nn.utils.rnn.pack_sequence([Tensor([1, 2]), Tensor([3])])
    >>> [row.tolist() for row in nn.utils.rnn.unpack_sequence(packed)]
    [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
