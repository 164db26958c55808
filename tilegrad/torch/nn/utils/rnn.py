"""`torch.nn.utils.rnn`: sequences of several lengths."""

from __future__ import annotations

from typing import Any

from tilegrad.nn.utils import rnn as ours
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.tensor import Tensor, as_ours, with_ours

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class PackedSequence(ours.PackedSequence):
    """Sequences without padding: the first steps of all of them, longest sequence first, then the
    second steps of all that have one, and so on.
    """

    __slots__ = ()

    def to(self, *args: Any, **options: Any) -> Any:
        """With its steps on another device, or in another dtype."""
        return self._replace(data=self.data.to(*args, **options))

    def cpu(self) -> Any:
        """With its steps on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Any:
        """With its steps on a GPU."""
        return self._replace(data=self.data.cuda(device))

    def double(self) -> Any:
        """With steps in float64."""
        return self._replace(data=self.data.double())

    def float(self) -> Any:
        """With steps in float32."""
        return self._replace(data=self.data.float())

    def half(self) -> Any:
        """With steps in float16."""
        return self._replace(data=self.data.half())

    def long(self) -> Any:
        """With steps in int64."""
        return self._replace(data=self.data.long())

    def int(self) -> Any:
        """With steps in int32."""
        return self._replace(data=self.data.int())

    def short(self) -> Any:
        """With steps in int16."""
        return self._replace(data=self.data.short())

    def char(self) -> Any:
        """With steps in int8."""
        return self._replace(data=self.data.char())

    def byte(self) -> Any:
        """With steps in uint8."""
        return self._replace(data=self.data.byte())

    def pin_memory(self) -> Any:
        """These sequences: host memory is not pinned."""
        return self

    def is_pinned(self) -> bool:
        """False: host memory is not pinned."""
        return False

    @property
    def is_cuda(self) -> bool:
        """Whether a GPU of CUDA's holds the steps."""
        return bool(self.data.is_cuda)


def _packed(found: Any) -> PackedSequence:
    """The packed sequence, in tensors of `torch`."""
    return PackedSequence(
        *[as_ours(each) if isinstance(each, OurTensor) else each for each in found]
    )


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The steps of padded sequences without the padding."""
    return _packed(ours.pack_padded_sequence(input, lengths, batch_first, enforce_sorted, kind="q"))


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """The steps of sequences of several lengths."""
    return _packed(ours.pack_sequence(sequences, enforce_sorted, kind="q"))


def pad_packed_sequence(sequence: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The sequences filled up to one length, and the length of each."""
    padded, lengths = with_ours(ours.pad_packed_sequence(sequence, *args, kind="q", **options))
    return padded, lengths


def pad_sequence(sequences: Any, *args: Any, **options: Any) -> Tensor:
    """Sequences filled up to the length of the longest, along a new axis."""
    given = [as_ours(each) for each in sequences]
    return with_ours(ours.pad_sequence(given, *args, **options))  # type: ignore[no-any-return]


def unpack_sequence(packed_sequences: Any) -> list[Tensor]:
    """The sequences that were packed."""
    return list(with_ours(list(ours.unpack_sequence(packed_sequences))))


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences without what fills them up."""
    return list(with_ours(list(ours.unpad_sequence(padded_sequences, lengths, batch_first))))


refuse_others(__name__)
