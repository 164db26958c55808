"""Sequences of several lengths as one tensor: padded to the longest, or packed, step by step.

Recurrent layers run over padded sequences; given packed ones they leave each sequence's state as it
is beyond its end.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError, check_choice
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.calls.uploads import uploaded_bytes
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.handle.size_arguments import show_shape
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
        )
    check_choice("pad_sequence", "padding_side", padding_side, ("left", "right"))
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


def integers(like: Tensor, values: array[int], shape: tuple[int, ...]) -> Tensor:
    """A tensor of integers of the class and on the device of `like`. Where that may be it is memory
    at once: a loop that makes other ones in each step has equal leaves.
    """
    dtype = dtypes.int32 if values.itemsize == 4 else dtypes.int64
    made = None
    if values:
        made = uploaded_bytes(like, values.tobytes(), dtype, shape)
    if made is None:
        made = type(like)([*values], dtype=dtype, device=like.device).reshape(shape)
    return made


def _integers_in(given: Any) -> list[int]:
    return [int(n) for n in (given.tolist() if isinstance(given, Tensor) else given)]


def _lengths_of(sizes: Sequence[int]) -> list[int]:
    """The length of each sequence, longest first, of how many sequences have each step."""
    lengths: list[int] = []
    for step in range(len(sizes), 0, -1):
        lengths += [step] * (sizes[step - 1] - len(lengths))
    return lengths


def _packed(
    padded: Tensor, sizes: Sequence[int], order: Sequence[int], *, batch_first: bool
) -> Tensor:
    """The steps of `padded`, one below the other, of `sizes` sequences each, in this `order`."""
    second = padded._sizes[1]
    rows = array("i")
    for step, size in enumerate(sizes):
        if batch_first:
            rows.extend([at * second + step for at in order[:size]])
        else:
            rows.extend([step * second + at for at in order[:size]])
    return _rows_at(padded, integers(padded, rows, (len(rows),)))


@templated
def _rows_at(padded: Tensor, rows: Tensor) -> Tensor:
    """Rows of a tensor whose first two axes are one."""
    return padded.flatten(0, 1)._rows(rows)


@templated
def _steps_at(data: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of a tensor, zeros for the row -1, and which of them there are."""
    return data._rows(rows), (rows >= 0).unsqueeze(-1)


@templated
def _padded_at(data: Tensor, rows: Tensor, padding_value: float) -> Tensor:
    """Rows of a tensor, with a value for the row -1."""
    found = data._rows(rows)
    if not padding_value:
        return found
    is_there = (rows >= 0).reshape(*rows._sizes, *[1] * (data.ndim - 1))
    return is_there.where(found, found.const_like(padding_value))


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
        return _lengths_of(self._sizes())

    def _sizes(self) -> list[int]:
        return _integers_in(self.batch_sizes)

    def _order(self) -> list[int]:
        """For each sequence that was packed, its place among the sequences, longest first."""
        given = self.unsorted_indices
        return [*range(self._sizes()[0])] if given is None else _integers_in(given)

    def _rows(self, steps: int, *, batch_first: bool) -> Tensor:
        """The row of `data` for each of the first `steps` of each sequence, in the order in which
        they were packed, and -1 where there is none: (steps, sequences), or the other way round.
        """
        sizes, order = self._sizes(), self._order()
        starts = [0, *itertools.accumulate(sizes)]
        rows = array("i")
        if batch_first:
            lengths = _lengths_of(sizes)
            for at in order:
                rows.extend([start + at for start in starts[: lengths[at]]])
                rows.extend([-1] * (steps - lengths[at]))
            return integers(self.data, rows, (len(order), steps))
        for start, size in zip(starts, sizes):
            rows.extend([start + at if at < size else -1 for at in order])
        rows.extend([-1] * ((steps - len(sizes)) * len(order)))
        return integers(self.data, rows, (steps, len(order)))

    def steps(self) -> tuple[Tensor, Tensor]:
        """The steps padded to the longest sequence, (steps, sequences, ...) in the order in which
        they were packed, and which of them there are, (steps, sequences, 1).
        """
        return _steps_at(self.data, self._rows(len(self._sizes()), batch_first=False))

    def with_steps(self, padded: Tensor) -> PackedSequence:
        """The steps of `padded`, in the order of `steps`, in place of `data`."""
        sizes, order = self._sizes(), self._order()
        positions = sorted(range(len(order)), key=order.__getitem__)
        return self._replace(data=_packed(padded, sizes, positions, batch_first=False))

    def to(self, device: str) -> PackedSequence:
        """With its steps on another device."""
        return self._replace(data=self.data.to(device))


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
    *,
    kind: str = "i",
) -> PackedSequence:
    """The sequences in `input`, (L, N, ...) or (N, L, ...) with `batch_first`, without what stands
    beyond their `lengths`. Lengths in a tensor are waited for. `kind` is the integers of the
    result: "i" for int32, "q" for int64.

    Raises ShapeError unless there is a length of 1 to L for each sequence; and with
    `enforce_sorted` unless they fall, or stay.

    >>> packed = nn.utils.rnn.pack_padded_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 3, 2], [2, 1])
    """
    check_tensors("pack_padded_sequence", input)
    sizes = _integers_in(lengths)
    steps, count = reversed(input._sizes[:2]) if batch_first else input._sizes[:2]
    is_ordered = all(a >= b for a, b in itertools.pairwise(sizes))
    if len(sizes) != count or not all(1 <= size <= steps for size in sizes):
        raise ShapeError(
            f"pack_padded_sequence: lengths {sizes} of {count} sequences of {steps} steps",
            rule="one for each sequence, of 1 to as many as there are steps",
        )
    if enforce_sorted and not is_ordered:
        raise ShapeError(
            f"pack_padded_sequence: lengths {sizes} do not fall", remedy="pass enforce_sorted=False"
        )
    order = sorted(range(count), key=lambda position: -sizes[position])
    left = sorted(sizes)
    batch = [count - bisect_right(left, step) for step in range(left[-1])]
    data = _packed(input, batch, order, batch_first=batch_first)
    told = batch, order, sorted(range(count), key=order.__getitem__)
    numbers = [
        integers(input, array(kind, each), (len(each),))
        for each in told[: 1 if enforce_sorted else 3]
    ]
    return PackedSequence(data, *numbers)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
    *,
    kind: str = "i",
) -> tuple[Tensor, Tensor]:
    """The sequences padded to the longest, or to `total_length`, in the order in which they were
    packed, and their lengths, int32, or int64 where `kind` is "q".

    Raises ShapeError if `total_length` is less than the longest.

    >>> packed = nn.utils.rnn.pack_sequence([Tensor([1, 2]), Tensor([3])])
    >>> padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2], [3, 0]], [2, 1])
    """
    lengths = sequence.lengths
    if total_length is not None and total_length < lengths[0]:
        raise ShapeError(
            f"pad_packed_sequence: total_length {total_length}, the longest has {lengths[0]}"
        )
    rows = sequence._rows(total_length or lengths[0], batch_first=batch_first)
    padded = _padded_at(sequence.data, rows, float(padding_value))
    own = array(kind, [lengths[at] for at in sequence._order()])
    return padded, integers(Tensor(0), own, (len(own),))


def pack_sequence(
    sequences: Sequence[Tensor], enforce_sorted: bool = True, *, kind: str = "i"
) -> PackedSequence:
    """Tensors (L_i, ...), packed; see `pack_padded_sequence`.

    >>> nn.utils.rnn.pack_sequence([Tensor([1, 2]), Tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    lengths = [row._sizes[0] for row in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted, kind=kind)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that `pack_sequence` was given.

    >>> packed = nn.utils.rnn.pack_sequence([Tensor([1, 2]), Tensor([3])])
    >>> [row.tolist() for row in nn.utils.rnn.unpack_sequence(packed)]
    [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
