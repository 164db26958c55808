"""The quantised formats of GGUF, as tensor operations.

A format stores blocks of 32 to 256 weights: small integers, or numbers of rows in a table, with
scales shared by sub-blocks. Each function here takes the bytes of the blocks, uint8 of shape
(blocks, bytes of a block), and gives their weights, float32 of shape (blocks, weights). They are
lazy like all tensor operations: what uses the weights unpacks them in its own kernel, from the
bytes in the file. The arithmetic is that of the format's reference, step by step, so that the
weights are the same to the last bit.

The names of fields are those of the format: `d` is the scale of a block, `m` its minimum, `scales`
those of sub-blocks, `qs` the low bits of the weights, `qh` the high ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import DType, dtypes
from tilegrad.io.grids import grid
from tilegrad.tensor.tensor import Tensor

__all__ = ["FORMATS", "PLAIN", "Quantized"]

_BLOCK = 256
# The 16 weights of a 4-bit number, for IQ4 and for the 4-bit floats E2M1, doubled.
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


@dataclass(frozen=True)
class Quantized:
    """A format: its name, weights and bytes of a block, and how to unpack blocks."""

    name: str
    weights: int
    block_bytes: int
    unpack: Callable[[Tensor], Tensor]


# building blocks


def _split(raw: Tensor, *sizes: int) -> list[Tensor]:
    """The bytes of each block cut into fields of these sizes."""
    fields, at = [], 0
    for size in sizes:
        fields.append(raw[:, at : at + size])
        at += size
    return fields


def _half(raw: Tensor) -> Tensor:
    """Two bytes as a half, in float32: (blocks, 2) to (blocks, 1)."""
    return _word(raw).bitcast(dtypes.float16).float()


def _word(raw: Tensor) -> Tensor:
    """Pairs of bytes as uint16: (blocks, 2n) to (blocks, n)."""
    pairs = raw.reshape(raw.shape[0], -1, 2).cast(dtypes.uint16)
    return pairs[:, :, 0] | pairs[:, :, 1] << 8


def _long_word(raw: Tensor) -> Tensor:
    """Fours of bytes as uint32: (blocks, 4n) to (blocks, n)."""
    fours = raw.reshape(raw.shape[0], -1, 4).cast(dtypes.uint32)
    return fours[:, :, 0] | fours[:, :, 1] << 8 | fours[:, :, 2] << 16 | fours[:, :, 3] << 24


def _signed(raw: Tensor) -> Tensor:
    return raw.bitcast(dtypes.int8).float()


def _fields(raw: Tensor, width: int, count: int, bits: int) -> Tensor:
    """Fields of `bits` bits, for `width` neighbouring bytes at a time: the first field of each
    byte, then the second, up to `count` fields: (blocks, n) to (blocks, n * count).
    """
    rows = raw.reshape(raw.shape[0], -1, 1, width)
    steps = Tensor.arange(count, dtype=raw.dtype, device=raw.device).reshape(count, 1) * bits
    return (rows >> steps & (1 << bits) - 1).reshape(raw.shape[0], -1)


def _bits(raw: Tensor, count: int) -> Tensor:
    """The lowest `count` bits of each number, one after another: (..., n) to (..., n, count)."""
    steps = Tensor.arange(count, dtype=raw.dtype, device=raw.device)
    return raw.unsqueeze(-1) >> steps & 1


def _scaled(values: Tensor, scales: Tensor) -> Tensor:
    """`values` (blocks, n) times `scales` (blocks, k), each for n / k neighbours."""
    blocks, count = scales.shape
    return (values.reshape(blocks, count, -1) * scales.unsqueeze(-1)).reshape(blocks, -1)


@functools.lru_cache(maxsize=64)
def _table(values: Sequence[float], device: str) -> Tensor:
    return Tensor(list(values), device=device, dtype=dtypes.float32)


@functools.lru_cache(maxsize=64)
def _rows(name: str, device: str) -> Tensor:
    width, values = grid(name)
    return Tensor(values, device=device, dtype=dtypes.float32).reshape(-1, width)


def _picked(values: Sequence[float], numbers: Tensor) -> Tensor:
    return _table(tuple(values), numbers.device)[numbers.cast(dtypes.int32)]


# formats of integers


def _q4_0(raw: Tensor) -> Tensor:
    d, qs = _split(raw, 2, 16)
    return _half(d) * (_fields(qs, 16, 2, 4).cast(dtypes.int8) - 8).float()


def _q4_1(raw: Tensor) -> Tensor:
    d, m, qs = _split(raw, 2, 2, 16)
    return _half(d) * _fields(qs, 16, 2, 4).float() + _half(m)


def _with_fifth(qh: Tensor, qs: Tensor) -> Tensor:
    """5-bit numbers: four bits each of `qs`, and the fifth each of `qh`."""
    high = _bits(_long_word(qh).reshape(-1), 32).cast(dtypes.uint8)
    return _fields(qs, 16, 2, 4) | high << 4


def _q5_0(raw: Tensor) -> Tensor:
    d, qh, qs = _split(raw, 2, 4, 16)
    return _half(d) * (_with_fifth(qh, qs).cast(dtypes.int8) - 16).float()


def _q5_1(raw: Tensor) -> Tensor:
    d, m, qh, qs = _split(raw, 2, 2, 4, 16)
    return _half(d) * _with_fifth(qh, qs).float() + _half(m)


def _q8_0(raw: Tensor) -> Tensor:
    d, qs = _split(raw, 2, 32)
    return _half(d) * _signed(qs)


def _q1_0(raw: Tensor) -> Tensor:
    d, qs = _split(raw, 2, 16)
    signs = _bits(qs, 8).reshape(raw.shape[0], -1).float() * 2 - 1
    return _half(d) * signs


def _q2_k(raw: Tensor) -> Tensor:
    scales, qs, d, m = _split(raw, 16, 64, 2, 2)
    quants = _fields(qs, 32, 4, 2).float()
    steps = _half(d) * (scales & 15).float()
    least = _half(m) * (scales >> 4).float()
    values = _scaled(quants, steps).reshape(-1, 16, 16)
    return (values - least.unsqueeze(-1)).reshape(-1, _BLOCK)


def _q3_k(raw: Tensor) -> Tensor:
    hmask, qs, packed, d = _split(raw, 32, 64, 12, 2)
    low = _fields(packed[:, :8], 8, 2, 4)
    high = _fields(packed[:, 8:], 4, 4, 2)
    scales = (low | high << 4).cast(dtypes.int8) - 32
    missing = (_fields(hmask, 32, 8, 1) ^ 1) << 2
    quants = _fields(qs, 32, 4, 2).cast(dtypes.int8) - missing.cast(dtypes.int8)
    return _scaled(quants.float(), _half(d) * scales.float())


def _six_bit_pairs(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of six bits in 12 bytes, for Q4_K and Q5_K."""
    first, second, mixed = _split(packed, 4, 4, 4)
    scales = (first & 63).cat((mixed & 15) | (first >> 6 << 4), dim=1)
    least = (second & 63).cat((mixed >> 4) | (second >> 6 << 4), dim=1)
    return scales.float(), least.float()


def _with_minima(quants: Tensor, d: Tensor, m: Tensor, packed: Tensor) -> Tensor:
    scales, least = _six_bit_pairs(packed)
    values = _scaled(quants.float(), _half(d) * scales).reshape(-1, 8, 32)
    return (values - (_half(m) * least).unsqueeze(-1)).reshape(-1, _BLOCK)


def _q4_k(raw: Tensor) -> Tensor:
    d, m, packed, qs = _split(raw, 2, 2, 12, 128)
    return _with_minima(_fields(qs, 32, 2, 4), d, m, packed)


def _q5_k(raw: Tensor) -> Tensor:
    d, m, packed, qh, qs = _split(raw, 2, 2, 12, 32, 128)
    return _with_minima(_fields(qs, 32, 2, 4) | _fields(qh, 32, 8, 1) << 4, d, m, packed)


def _q6_k(raw: Tensor) -> Tensor:
    ql, qh, scales, d = _split(raw, 128, 64, 16, 2)
    quants = _fields(ql, 64, 2, 4) | _fields(qh, 32, 4, 2) << 4
    return _scaled((quants.cast(dtypes.int8) - 32).float(), _half(d) * _signed(scales))


# formats of three values, and of small floats


def _ternary(quants: Tensor, d: Tensor) -> Tensor:
    return _half(d) * (quants.cast(dtypes.int8) - 1).float()


def _trits(raw: Tensor, width: int, count: int) -> Tensor:
    """Trits, for `width` bytes at a time: the first trit of each byte, then the second, ...: a
    byte is a fraction of 256 in base 3.
    """
    powers = _picked([3**at for at in range(count)], Tensor.arange(count, device=raw.device))
    rows = raw.reshape(raw.shape[0], -1, 1, width)
    shifted = rows * powers.cast(dtypes.uint8).reshape(count, 1)
    return (shifted.cast(dtypes.uint16) * 3 >> 8).reshape(raw.shape[0], -1)


def _tq1_0(raw: Tensor) -> Tensor:
    qs, qh, d = _split(raw, 48, 4, 2)
    first, second = _trits(qs[:, :32], 32, 5), _trits(qs[:, 32:], 16, 5)
    return _ternary(first.cat(second, _trits(qh, 4, 4), dim=1), d)


def _tq2_0(raw: Tensor) -> Tensor:
    qs, d = _split(raw, 64, 2)
    return _ternary(_fields(qs, 32, 4, 2), d)


def _mxfp4(raw: Tensor) -> Tensor:
    e, qs = _split(raw, 1, 16)
    # 2 ** (e - 128); the two smallest are subnormal.
    wide = e.cast(dtypes.uint32)
    bits = (wide < 2).where(wide * 0x200000 + 0x200000, (wide - 1) << 23)
    return bits.bitcast(dtypes.float32) * _picked(_E2M1, _fields(qs, 16, 2, 4))


def _nvfp4(raw: Tensor) -> Tensor:
    e, qs = _split(raw, 4, 32)
    exponent, fraction = (e >> 3 & 15).float(), (e & 7).float()
    normal = (fraction / 8 + 1) * (exponent - 7).exp2()
    # Doubled values have halved scales; the largest code is no number and counts as none.
    scales = (exponent == 0).where(fraction / 512, normal) * 0.5
    scales = ((e & 127) == 127).where(0, scales)
    return _scaled(_picked(_E2M1, _fields(qs, 8, 2, 4)), scales)


# formats of rows in tables


def _iq4_nl(raw: Tensor) -> Tensor:
    d, qs = _split(raw, 2, 16)
    return _half(d) * _picked(_IQ4, _fields(qs, 16, 2, 4))


def _iq4_xs(raw: Tensor) -> Tensor:
    d, scales_h, scales_l, qs = _split(raw, 2, 2, 4, 128)
    high = _fields(_word(scales_h), 1, 8, 2).cast(dtypes.uint8)
    scales = (_fields(scales_l, 1, 2, 4) | high << 4).cast(dtypes.int8) - 32
    return _scaled(_picked(_IQ4, _fields(qs, 16, 2, 4)), _half(d) * scales.float())


def _signs(numbers: Tensor) -> Tensor:
    """-1 or 1 for each of eight weights: seven bits say so, and the eighth makes their number
    even.
    """
    folded = numbers ^ numbers >> 4
    folded = folded ^ folded >> 2
    parity = (folded ^ folded >> 1) & 1
    return _plus_minus(_bits(numbers | parity << 7, 8))


def _plus_minus(bits: Tensor) -> Tensor:
    return 1 - 2 * bits.float()


def _looked_up(name: str, numbers: Tensor, signs: Tensor | None, scales: Tensor) -> Tensor:
    """scale * sign * weight of the rows `numbers` (blocks, n), whose signs are (blocks, n, 8)."""
    blocks = numbers.shape[0]
    rows = _rows(name, numbers.device)[numbers.cast(dtypes.int32)].reshape(blocks, -1)
    if signs is None:
        return _scaled(rows, scales)
    return _scaled(rows, scales) * signs.reshape(blocks, -1)


def _iq2_xxs(raw: Tensor) -> Tensor:
    d, qs = _split(raw, 2, 64)
    eights = qs.reshape(raw.shape[0], 8, 8)
    words = _long_word(eights[:, :, 4:].reshape(raw.shape[0], -1))
    scales = _half(d) * ((words >> 28).float() + 0.5) * 0.25
    numbers = eights[:, :, :4].reshape(raw.shape[0], -1)
    return _looked_up("IQ2_XXS", numbers, _signs(_fields(words, 1, 4, 7)), scales)


def _iq2_xs(raw: Tensor) -> Tensor:
    d, qs, packed = _split(raw, 2, 64, 8)
    words = _word(qs)
    scales = _half(d) * (_fields(packed, 1, 2, 4).float() + 0.5) * 0.25
    return _looked_up("IQ2_XS", words & 511, _signs(words >> 9), scales)


def _iq2_s(raw: Tensor) -> Tensor:
    d, qs, signs, qh, packed = _split(raw, 2, 32, 32, 8, 8)
    scales = _half(d) * (_fields(packed, 1, 2, 4).float() + 0.5) * 0.25
    numbers = qs.cast(dtypes.uint16) | _fields(qh, 1, 4, 2).cast(dtypes.uint16) << 8
    return _looked_up("IQ2_S", numbers, _plus_minus(_bits(signs, 8)), scales)


def _iq3_xxs(raw: Tensor) -> Tensor:
    d, qs, packed = _split(raw, 2, 64, 32)
    words = _long_word(packed)
    scales = _half(d) * ((words >> 28).float() + 0.5) * 0.5
    return _looked_up("IQ3_XXS", qs, _signs(_fields(words, 1, 4, 7)), scales)


def _iq3_s(raw: Tensor) -> Tensor:
    d, qs, qh, signs, packed = _split(raw, 2, 64, 8, 32, 4)
    scales = _half(d) * (_fields(packed, 1, 2, 4) * 2 + 1).float()
    high = _bits(qh, 8).reshape(raw.shape[0], -1).cast(dtypes.uint16)
    return _looked_up(
        "IQ3_S", qs.cast(dtypes.uint16) | high << 8, _plus_minus(_bits(signs, 8)), scales
    )


def _shifted(numbers: Tensor, is_less: Tensor, scales: Tensor) -> Tensor:
    """The rows of IQ1, each of eight weights an eighth more, or less; `scales` are for rows."""
    blocks = numbers.shape[0]
    rows = _rows("IQ1", numbers.device)[numbers.cast(dtypes.int32)]
    delta = is_less.where(-0.125, 0.125)
    return (scales.unsqueeze(-1) * (rows + delta.unsqueeze(-1))).reshape(blocks, -1)


def _each_again(values: Tensor, count: int) -> Tensor:
    """Each value `count` times: (blocks, n) to (blocks, n * count)."""
    blocks, size = values.shape
    return values.unsqueeze(-1).expand(blocks, size, count).reshape(blocks, -1)


def _iq1_s(raw: Tensor) -> Tensor:
    d, qs, qh = _split(raw, 2, 32, 16)
    words = _word(qh)
    scales = _half(d) * ((words >> 12 & 7) * 2 + 1).float()
    numbers = qs.cast(dtypes.uint16) | _fields(words, 1, 4, 3) << 8
    return _shifted(numbers, _each_again(words >> 15, 4) != 0, _each_again(scales, 4))


def _iq1_m(raw: Tensor) -> Tensor:
    qs, qh, packed = _split(raw, 32, 16, 8)
    words = _word(packed)
    # The scale of the block is in the four high bits of the four words.
    top = words >> 12
    d = top[:, 0:1] | top[:, 1:2] << 4 | top[:, 2:3] << 8 | top[:, 3:4] << 12
    scales = d.bitcast(dtypes.float16).float() * (_fields(words, 1, 4, 3) * 2 + 1).float()
    high = _fields(qh, 1, 2, 4)
    numbers = qs.cast(dtypes.uint16) | (high & 7).cast(dtypes.uint16) << 8
    return _shifted(numbers, (high & 8) != 0, _each_again(scales, 2))


PLAIN: dict[int, tuple[str, DType]] = {
    0: ("F32", dtypes.float32),
    1: ("F16", dtypes.float16),
    24: ("I8", dtypes.int8),
    25: ("I16", dtypes.int16),
    26: ("I32", dtypes.int32),
    27: ("I64", dtypes.int64),
    28: ("F64", dtypes.float64),
    30: ("BF16", dtypes.bfloat16),
}
"""The types of GGUF that are dtypes, by number."""

FORMATS: dict[int, Quantized] = {
    2: Quantized("Q4_0", 32, 18, _q4_0),
    3: Quantized("Q4_1", 32, 20, _q4_1),
    6: Quantized("Q5_0", 32, 22, _q5_0),
    7: Quantized("Q5_1", 32, 24, _q5_1),
    8: Quantized("Q8_0", 32, 34, _q8_0),
    10: Quantized("Q2_K", 256, 84, _q2_k),
    11: Quantized("Q3_K", 256, 110, _q3_k),
    12: Quantized("Q4_K", 256, 144, _q4_k),
    13: Quantized("Q5_K", 256, 176, _q5_k),
    14: Quantized("Q6_K", 256, 210, _q6_k),
    16: Quantized("IQ2_XXS", 256, 66, _iq2_xxs),
    17: Quantized("IQ2_XS", 256, 74, _iq2_xs),
    18: Quantized("IQ3_XXS", 256, 98, _iq3_xxs),
    19: Quantized("IQ1_S", 256, 50, _iq1_s),
    20: Quantized("IQ4_NL", 32, 18, _iq4_nl),
    21: Quantized("IQ3_S", 256, 110, _iq3_s),
    22: Quantized("IQ2_S", 256, 82, _iq2_s),
    23: Quantized("IQ4_XS", 256, 136, _iq4_xs),
    29: Quantized("IQ1_M", 256, 56, _iq1_m),
    34: Quantized("TQ1_0", 256, 54, _tq1_0),
    35: Quantized("TQ2_0", 256, 66, _tq2_0),
    39: Quantized("MXFP4", 32, 17, _mxfp4),
    40: Quantized("NVFP4", 64, 36, _nvfp4),
    41: Quantized("Q1_0", 128, 18, _q1_0),
}
"""The types of GGUF that are quantised, by number."""
