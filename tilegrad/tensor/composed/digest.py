"""Digests of bytes: `keccak` (SHA-3 and SHAKE) and `hash`.

The sponge of FIPS 202: a state of 25 words of 64 bits takes a block of the padded message, is
permuted by 24 rounds, takes the next. One kernel walks rounds and blocks in one loop; a round reads
one copy of the state and writes the other, so nothing it needs is overwritten. Messages run side by
side.
"""

from __future__ import annotations

from typing import Self

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import DTypeError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.composed.resample import Resampling
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import show_shape

__all__ = ["Digests"]

_LANES = 25
_ROUNDS = 24
_WORD = (1 << 64) - 1
# The byte that ends a message, and the bytes of the digest.
_KINDS = {
    "sha3_224": (0x06, 28),
    "sha3_256": (0x06, 32),
    "sha3_384": (0x06, 48),
    "sha3_512": (0x06, 64),
    "shake_128": (0x1F, 16),
    "shake_256": (0x1F, 32),
}
# Bytes of a leaf of `hash`.
_LEAF = 1 << 20


class Digests(Resampling):
    """Digests."""

    __slots__ = ()

    @composed
    def keccak(self, cfg: str = "sha3_256") -> Self:
        """Digest of each row of bytes, the last axis of a uint8 tensor (FIPS 202).

        Args:
            cfg: "sha3_224", "sha3_256", "sha3_384", "sha3_512", or "shake_128" and "shake_256" for
                the first 16 or 32 bytes.

        Returns a uint8 tensor of shape (..., bytes of the digest).

        Raises DTypeError for another name or a tensor that is not uint8, ShapeError if it has no
        axes.

        >>> Tensor(b"abc").keccak().data().tobytes().hex()[:16]
        '3a985da74fe225b2'
        """
        check_choice("keccak", "kind", cfg, _KINDS, DTypeError)
        if self.dtype is not dtypes.uint8:
            raise DTypeError(
                f"keccak: bytes are uint8, not {self.dtype.name}",
                tensor=describe(self.uop),
                remedy="bitcast(dtypes.uint8) reads the bytes of any dtype",
            )
        if not self.ndim:
            raise ShapeError(f"keccak: no row of bytes in {show_shape(self.shape)}")
        ending, length = _KINDS[cfg]
        *lead, size = self._sizes
        # Twice the bits of security are kept back.
        rate = 200 - 2 * (16 if cfg == "shake_128" else 32 if cfg == "shake_256" else length)
        rows = 1
        for each in lead:
            rows *= each
        if not rows:
            return self.zeros_like().reshape(-1)._slice(0, 0, 0).reshape(*lead, length)
        blocks = size // rate + 1
        words = self.reshape(rows, size)._padded_words(ending, blocks * rate // 8)
        constants = type(self)(list(_constants()), device=self.device, dtype=dtypes.uint64)
        state = self._by_kernel(
            cfg,
            (rows, _LANES),
            dtypes.uint64,
            lambda made, message, table: _sponge(made, message, table, rows, blocks, rate // 8),
            [words, constants],
        )
        digest = state.bitcast(dtypes.uint8)._slice(1, 0, length)
        return digest.reshape(*lead, length)

    def _padded_words(self, ending: int, count: int) -> Self:
        """Rows of bytes as rows of `count` words, with the padding that ends a message."""
        rows, size = self._sizes
        # Words first and the padding afterwards: bytes behind a condition are read one by one.
        positions = self._iota(count)
        first = positions.eq(size // 8).cast(dtypes.uint64) * (ending << 8 * (size % 8))
        words = first | (positions.eq(count - 1).cast(dtypes.uint64) << 63)
        if not size:
            return words.expand(rows, count)
        used = -(-size // 8)
        data = self.pad(((0, 0), (0, 8 * used - size))).bitcast(dtypes.uint64)
        return data.pad(((0, 0), (0, count - used))) | words

    @composed
    def hash(self) -> Self:
        """16 bytes that tell the values of this tensor from others, whatever its shape: SHAKE-128
        (FIPS 202) of its bytes; above 2**20 bytes, of the digests of its chunks of that length, and
        so on.

        Returns a uint8 tensor of shape (16,).

        >>> Tensor([1.0, 2.0]).hash().shape
        (16,)
        """
        if not self._has_elements():
            return (
                type(self)
                .zeros(1, 0, device=self.device, dtype=dtypes.uint8)
                .keccak("shake_128")[0]
            )
        x = self.cast(dtypes.uint8) if self.dtype is dtypes.bool else self
        data = x.flatten().bitcast(dtypes.uint8)
        while data._sizes[0] > _LEAF:
            size = data._sizes[0]
            whole = size // _LEAF * _LEAF
            leaves = data._slice(0, 0, whole).reshape(-1, _LEAF).keccak("shake_128").flatten()
            if whole < size:
                rest = data._slice(0, whole, size).reshape(1, -1).keccak("shake_128").flatten()
                leaves = leaves.cat(rest)
            data = leaves
        return data.reshape(1, -1).keccak("shake_128")[0]


def _constants() -> tuple[int, ...]:
    """Constants that each round adds to the first word, from the shift register of FIPS 202,
    3.2.5.
    """
    found: list[int] = []
    register = 1
    for _ in range(_ROUNDS):
        value = 0
        for power in range(7):
            if register & 1:
                value |= 1 << ((1 << power) - 1)
            register <<= 1
            if register & 0x100:
                register ^= 0x171
        found.append(value)
    return tuple(found)


def _rotations() -> list[int]:
    """Bits by which each word is rotated (FIPS 202, 3.2.2); word (x, y) is number x + 5 * y."""
    rotations = [0] * _LANES
    x, y = 1, 0
    for step in range(_ROUNDS):
        rotations[x + 5 * y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return rotations


def _rotated(word: UOp, amount: int) -> UOp:
    return word if not amount else (word << amount) | (word >> (64 - amount))


def _sponge(made: UOp, message: UOp, table: UOp, rows: int, blocks: int, rate: int) -> UOp:
    """for message:  state[0] = 0
    for step of blocks * 24:
        words = state[step % 2], and at the first round of a block with its words
        state[1 - step % 2] = round(words)
    made = state[0]
    """
    row = UOp.range(rows, 0)
    state = UOp(Ops.DEFINE_LOCAL, dtypes.uint64.ptr(2 * _LANES, AddressSpace.SCRATCH), (row,), 0)
    lane = UOp.range(_LANES, 1)
    started = state.after(state.store(lane, UOp.const(dtypes.uint64, 0)).end(lane))
    step = UOp.range(blocks * _ROUNDS, 2, Axis.REDUCE)
    block, number = step // _ROUNDS, step % _ROUNDS
    read, written = step % 2 * _LANES, (step + 1) % 2 * _LANES
    zero = UOp.const(dtypes.uint64, 0)
    words: list[UOp] = []
    for at in range(_LANES):
        word = started.load(read + at)
        if at < rate:
            index = row * (blocks * rate) + block * rate + at
            word = word ^ message.load(index, zero, number < 1)
        words.append(word)
    columns = [
        words[x] ^ words[x + 5] ^ words[x + 10] ^ words[x + 15] ^ words[x + 20] for x in range(5)
    ]
    mixed = [columns[(x - 1) % 5] ^ _rotated(columns[(x + 1) % 5], 1) for x in range(5)]
    moved: list[UOp] = [zero] * _LANES
    for at, rotation in enumerate(_rotations()):
        x, y = at % 5, at // 5
        moved[y + 5 * ((2 * x + 3 * y) % 5)] = _rotated(words[at] ^ mixed[x], rotation)
    made_here = started
    store = None
    for at in range(_LANES):
        x, y = at % 5, at // 5 * 5
        value = moved[at] ^ ((moved[(x + 1) % 5 + y] ^ _WORD) & moved[(x + 2) % 5 + y])
        if not at:
            value = value ^ table.load(number)
        store = made_here.store(written + at, value)
        made_here = made_here.after(store)
    assert store is not None
    finished = started.after(store.end(step))
    out = UOp.range(_LANES, 3)
    # The number of rounds is even, so the last one wrote the first copy.
    return UOp.sink(made.store(row * _LANES + out, finished.load(out)))
