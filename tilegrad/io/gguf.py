"""Reading GGUF files: metadata, and weights that are quantised in one of many formats.

A file is a head (magic, version, two counts), key-value pairs, a table of tensors, and the tensors'
bytes, each at a multiple of the alignment. The reader maps the file and believes no number in it
before it has compared it with the bytes that are there. Weights are views of the mapping; quantised
ones are unpacked by tensor operations when they are used (io.quantized).
"""

from __future__ import annotations

import math
import struct
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError
from tilegrad.io.mapped import Source, damaged, is_sizes, source_of, tensor_over
from tilegrad.io.quantized import FORMATS, PLAIN, Quantized
from tilegrad.tensor.tensor import Tensor

__all__ = ["gguf_load"]

_READER = "gguf_load"
_VERSIONS = (2, 3)
_ALIGNMENT, _ALIGNMENT_KEY = 32, "general.alignment"
_MAX_AXES = 4
_MAX_DEPTH = 4
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_BYTE_ORDER_MARKS = {version << 24 for version in _VERSIONS}


def gguf_load(path: Source, device: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata and tensors of a GGUF file, by name.

    Metadata are numbers, bools, texts and lists of them. Shapes are as in NumPy: the axis whose
    elements are neighbours is the last. Floats and integers keep their dtype; quantised weights
    (Q1_0 to Q8_0, Q2_K to Q6_K, IQ1 to IQ4, TQ1_0, TQ2_0, MXFP4, NVFP4) are float32, unpacked by
    the kernels that use them. The file is mapped, and read as its values are needed.

    Args:
        path: a path, a file, bytes, or a uint8 tensor.
        device: name of the device, by default `Device.DEFAULT`.

    Returns (metadata, tensors), two dicts; shapes as in NumPy.

    Raises DataError if the file is absent or damaged, or holds tensors of an unknown type.

    >>> metadata, weights = gguf_load("model.gguf")
    >>> metadata["general.architecture"], weights["output.weight"].shape
    ('llama', (2, 64))
    """
    return _File(*source_of(_READER, path)).read(device)


class _File:
    def __init__(self, file: str, data: memoryview):
        self.file, self.data, self.at = file, data, 0

    def read(self, device: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if bytes(self.data[:4]) != b"GGUF":
            raise self.damaged("not a GGUF file", "GGUF in the first bytes", bytes(self.data[:4]))
        self.at = 4
        version = self.number("I")
        if version in _BYTE_ORDER_MARKS:
            raise self.damaged("the file's byte order is not little", "little", "big")
        if version not in _VERSIONS:
            raise self.damaged("unknown version", " or ".join(map(str, _VERSIONS)), version)
        tensor_count, pair_count = self.count(24, "tensors"), self.count(13, "pairs")
        metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self.text()
            if key in metadata:
                raise self.damaged("a key stands twice", "each key once", repr(key))
            metadata[key] = self.value(self.number("I"), 0)
        entries = {}
        for _ in range(tensor_count):
            name, entry = self.entry()
            if name in entries:
                raise self.damaged("a tensor stands twice", "each name once", repr(name))
            entries[name] = entry
        alignment = metadata.get(_ALIGNMENT_KEY, _ALIGNMENT)
        if type(alignment) is not int or alignment <= 0 or alignment % 8:
            raise self.damaged("the alignment is odd", "a multiple of 8", f"{alignment!r:.40}")
        start = -(-self.at // alignment) * alignment
        return metadata, {
            name: self.tensor(name, *entry, start, alignment, device)
            for name, entry in entries.items()
        }

    # values

    def take(self, count: int) -> memoryview:
        end = self.at + count
        if end > self.data.nbytes:
            expected = f"{end} bytes or more"
            raise self.damaged("the file is truncated", expected, f"{self.data.nbytes} bytes")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, code: str) -> Any:
        code = f"<{code}"
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def count(self, item_bytes: int, what: str) -> int:
        """A number of items, each at least `item_bytes` long."""
        found: int = self.number("Q")
        left = self.data.nbytes - self.at
        if found * item_bytes > left:
            expected = f"at most {left // item_bytes} {what} in the {left} bytes that follow"
            raise self.damaged(
                f"the file is truncated, or its number of {what} is wrong", expected, found
            )
        return found

    def text(self) -> str:
        raw = bytes(self.take(self.count(1, "letters")))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged("a text is not UTF-8", "UTF-8", error) from error

    def value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.lenient_text()
        if kind != _ARRAY or depth == _MAX_DEPTH:
            what = "lists in lists are too deep" if kind == _ARRAY else "unknown type of a value"
            raise self.damaged(what, f"a type of 0 to 12, at most {_MAX_DEPTH} deep", kind)
        inner = self.number("I")
        if inner in _NUMBERS:
            code = _NUMBERS[inner]
            count = self.count(struct.calcsize(f"<{code}"), "numbers")
            raw = self.take(count * struct.calcsize(f"<{code}"))
            return list(struct.unpack(f"<{count}{code}", raw))
        return [self.value(inner, depth + 1) for _ in range(self.count(8, "items"))]

    def lenient_text(self) -> str:
        """A text among the values: a token of a vocabulary may be a part of a letter."""
        return bytes(self.take(self.count(1, "letters"))).decode("utf-8", "surrogateescape")

    # tensors

    def entry(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        """The name of a tensor; its shape, the number of its type, and where it begins."""
        name = self.text()
        axes = self.number("I")
        if axes > _MAX_AXES:
            raise self.damaged("too many axes", f"at most {_MAX_AXES}", axes, name)
        sizes = tuple(reversed(struct.unpack(f"<{axes}Q", self.take(8 * axes))))
        if not is_sizes(sizes):
            raise self.damaged("the shape is not a list of sizes", "sizes", sizes, name)
        return name, (sizes, self.number("I"), self.number("Q"))

    def tensor(
        self, name: str, shape: tuple[int, ...], kind: int, offset: int, start: int, alignment: int,
        device: str | None,
    ) -> Tensor:  # fmt: skip
        if offset % alignment:
            raise self.damaged("a tensor is not aligned", f"multiples of {alignment}", offset, name)
        stored: DType | Quantized
        if kind in PLAIN:
            stored = PLAIN[kind][1]
            size = math.prod(shape) * stored.itemsize
        elif kind in FORMATS:
            stored = FORMATS[kind]
            row = shape[-1] if shape else 1
            if row % stored.weights:
                expected = f"a multiple of {stored.weights} for {stored.name}"
                raise self.damaged("a row is no whole number of blocks", expected, row, name)
            size = math.prod(shape) // stored.weights * stored.block_bytes
        else:
            known = [name for name, _ in PLAIN.values()] + [each.name for each in FORMATS.values()]
            raise self.damaged("unknown type of a tensor", ", ".join(known), kind, name)
        begin = start + offset
        if begin + size > self.data.nbytes and size:
            expected = f"{begin + size} bytes or more"
            got = f"{self.data.nbytes} bytes"
            raise self.damaged("the file is truncated in its data", expected, got, name)
        data = self.data[begin : begin + size]
        if isinstance(stored, DType):
            return tensor_over(data, stored, shape, device)
        if not size:
            return Tensor.full(shape, 0.0, device=device)
        blocks = (size // stored.block_bytes, stored.block_bytes)
        return stored.unpack(tensor_over(data, dtypes.uint8, blocks, device)).reshape(shape)

    def damaged(
        self, what: str, expected: object, got: object, tensor: str | None = None
    ) -> DataError:
        more = {} if tensor is None else {"tensor": repr(tensor)}
        return damaged(_READER, self.file, what, expected, got, **more)
