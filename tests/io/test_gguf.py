"""GGUF files: formats unpack to the weights of the reference, and no number is believed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.damage import damaged, refused_or_whole
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DataError
from tilegrad.engine.run.run import recording
from tilegrad.io import gguf_load
from tilegrad.io.quantized import FORMATS, PLAIN

NUMBERS = {f.name: number for number, f in FORMATS.items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def written(
    pairs: Mapping[str, bytes],
    tensors: Mapping[str, tuple[tuple[int, ...], int, int]],
    data: bytes = b"",
    alignment: int = 32,
) -> bytes:
    """A file: values as they stand behind the key, tensors as (sizes from the last axis, type,
    offset).
    """
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(text(key) + value for key, value in pairs.items())
    for name, (sizes, kind, offset) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
    return head + bytes(-len(head) % alignment) + data


def load(file: Path, content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    file.write_bytes(content)
    return gguf_load(file)


# formats


def blocks_of(name: str, count: int = 24) -> np.ndarray[Any, Any]:
    """Random blocks; whatever the bytes, they are weights."""
    size = FORMATS[NUMBERS[name]].block_bytes
    return np.random.default_rng(7).integers(0, 256, (count, size), dtype=np.uint8)


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "Q1_0"])
def test_a_format_unpacks_to_the_reference_bit_for_bit(name: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    kind = pytest.importorskip("gguf.constants").GGMLQuantizationType(NUMBERS[name])
    raw = blocks_of(name)
    if name == "NVFP4":
        raw[:, :4] = np.arange(96, dtype=np.uint8).reshape(24, 4) % 128
    assert kind.name == name
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw, kind)
    assert np.array_equal(FORMATS[kind].unpack(Tensor(raw)).numpy(), expected, equal_nan=True)


def test_one_bit_weights() -> None:
    """The reference has no Q1_0: a bit is the sign of the scale."""
    raw = np.zeros((2, 18), np.uint8)
    raw[:, :2] = np.array([[1.5], [-2.0]], np.float16).view(np.uint8)
    raw[0, 2:4] = [0b00000101, 0x80]
    found = FORMATS[NUMBERS["Q1_0"]].unpack(Tensor(raw)).numpy()
    assert found[0, :4].tolist() == [1.5, -1.5, 1.5, -1.5]
    assert (found[0, 15], found[0, 16:].max(), set(found[1])) == (1.5, -1.5, {2.0})


def test_the_sizes_of_blocks_are_those_of_the_format() -> None:
    constants = pytest.importorskip("gguf.constants")
    sizes = {int(kind): size for kind, size in constants.GGML_QUANT_SIZES.items()}
    for number, known in FORMATS.items():
        assert sizes[number] == (known.weights, known.block_bytes)
    for number, (name, dtype) in PLAIN.items():
        assert constants.GGMLQuantizationType(number).name == name
        assert sizes[number] == (1, dtype.itemsize)
    # What is left are formats for sums on the way, which no file holds.
    left = set(sizes) - set(FORMATS) - set(PLAIN)
    assert {constants.GGMLQuantizationType(number).name for number in left} == {"Q8_1", "Q8_K"}


def test_weights_are_unpacked_by_the_kernel_that_uses_them(file: Path) -> None:
    raw = blocks_of("Q8_0", 8)
    raw[:, :2] = np.full((8, 1), 0.5, np.float16).view(np.uint8)
    _, found = load(file, written({}, {"w": ((64, 4), NUMBERS["Q8_0"], 0)}, raw.tobytes()))
    with recording() as launches:
        total = found["w"].sum(1).numpy()
    assert len(launches) == 1
    assert np.array_equal(
        total, raw[:, 2:].view(np.int8).astype(np.float32).reshape(4, 64).sum(1) / 2
    )


# files


def test_what_the_package_writes(file: Path) -> None:
    gguf = pytest.importorskip("gguf")
    kinds = gguf.GGMLQuantizationType
    rng = np.random.default_rng(1)
    arrays = {
        "plain": rng.normal(size=(2, 3, 4)).astype(np.float32),
        "half": rng.normal(size=(5,)).astype(np.float16),
        "integers": np.arange(6, dtype=np.int32).reshape(2, 3),
        "double": rng.normal(size=(3,)),
    }
    packed = {
        kind: gguf.quants.quantize(rng.normal(size=(4, 64)).astype(np.float32), kinds[kind])
        for kind in ("Q4_0", "Q8_0", "BF16")
    }
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_string("words", "β")
    writer.add_array("list", ["a", "bc", ""])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("floats", [0.5, 1.5])
    writer.add_float64("pi", 3.25)
    writer.add_int8("small", -3)
    writer.add_uint64("large", 1 << 63)
    writer.add_bool("flag", True)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    for kind, array in packed.items():
        writer.add_tensor(kind, array, raw_dtype=kinds[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, found = gguf_load(str(file))
    assert metadata["general.architecture"] == "llama"
    assert metadata["words"] == "β"
    assert (metadata["list"], metadata["numbers"]) == (["a", "bc", ""], [1, 2, 3])
    assert (metadata["floats"], metadata["pi"], metadata["small"]) == ([0.5, 1.5], 3.25, -3)
    assert (metadata["large"], metadata["flag"]) == (1 << 63, True)
    assert set(found) == {*arrays, *packed}
    for name, array in arrays.items():
        assert found[name].dtype.name == array.dtype.name
        assert np.array_equal(found[name].numpy(), array)
    for kind in ("Q4_0", "Q8_0"):
        assert found[kind].shape == (4, 64)
        expected = gguf.quants.dequantize(packed[kind], kinds[kind])
        assert np.array_equal(found[kind].numpy(), expected)
    assert found["BF16"].dtype is dtypes.bfloat16
    expected = gguf.quants.dequantize(packed["BF16"], kinds.BF16)
    assert np.array_equal(found["BF16"].numpy(), expected)


def test_a_tensor_that_holds_a_file() -> None:
    content = written(
        {"k": struct.pack("<IB", 7, 1)}, {"w": ((2,), 0, 0)}, struct.pack("<2f", 1, 2)
    )
    metadata, found = gguf_load(Tensor(content))
    assert metadata == {"k": True}
    assert found["w"].tolist() == [1, 2]


def test_nested_lists_and_broken_letters(file: Path) -> None:
    nested = struct.pack("<IIQ", 9, 9, 2) + 2 * struct.pack("<IQ2b", 1, 2, -1, 5)
    part = struct.pack("<IQ", 8, 1) + b"\xce"
    metadata, found = load(file, written({"nested": nested, "part": part}, {}))
    assert metadata["nested"] == [[-1, 5], [-1, 5]]
    assert metadata["part"].encode("utf-8", "surrogateescape") == b"\xce"
    assert found == {}


def test_other_alignment(file: Path) -> None:
    pairs = {"general.alignment": struct.pack("<II", 4, 64)}
    tensors = {"a": ((1,), 0, 0), "b": ((1,), 0, 64)}
    data = struct.pack("<f60xf", 1, 2)
    _, found = load(file, written(pairs, tensors, data, 64))
    assert (found["a"].item(), found["b"].item()) == (1, 2)


ONE = {"w": ((2,), 0, 0)}
EIGHT = bytes(8)
DAMAGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a GGUF file"),
    "another": (lambda: b"GGML" + bytes(40), "not a GGUF file"),
    "version 1": (lambda: b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "unknown version"),
    "big-endian": (lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "byte order is not little"),
    "head truncated": (lambda: b"GGUF" + struct.pack("<IQ", 3, 0), "the file is truncated"),
    "counts absurd": (lambda: b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "number of tensors"),
    "pairs absurd": (lambda: b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "number of pairs"),
    "key twice": (
        lambda: written({"a": b"\0\0\0\0\1", "b": b"\0\0\0\0\1"}, {}).replace(b"b", b"a"),
        "a key stands twice",
    ),
    "text absurd": (lambda: written({"a": struct.pack("<IQ", 8, 1 << 62)}, {}), "of letters"),
    "key not UTF-8": (lambda: written({"k": b"\0\0\0\0\1"}, {}).replace(b"k", b"\xff"), "UTF-8"),
    "list absurd": (lambda: written({"a": struct.pack("<IIQ", 9, 4, 1 << 62)}, {}), "of numbers"),
    "lists absurd": (lambda: written({"a": struct.pack("<IIQ", 9, 9, 1 << 62)}, {}), "of items"),
    "type unknown": (lambda: written({"a": struct.pack("<I", 13)}, {}), "unknown type of a value"),
    "lists too deep": (
        lambda: written({"a": struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9 + EIGHT}, {}),
        "too deep",
    ),
    "alignment odd": (
        lambda: written({"general.alignment": struct.pack("<II", 4, 12)}, {}),
        "the alignment is odd",
    ),
    "alignment none": (
        lambda: written({"general.alignment": struct.pack("<II", 4, 0)}, {}),
        "the alignment is odd",
    ),
    "tensor twice": (
        lambda: written({}, {"w": ((1,), 0, 0), "v": ((1,), 0, 0)}, EIGHT).replace(b"v", b"w"),
        "a tensor stands twice",
    ),
    "axes": (lambda: written({}, {"w": ((1,) * 5, 0, 0)}, EIGHT), "too many axes"),
    "sizes absurd": (lambda: written({}, {"w": ((1 << 40,) * 2, 0, 0)}), "not a list of sizes"),
    "tensor type unknown": (lambda: written({}, {"w": ((2,), 99, 0)}, EIGHT), "unknown type of a"),
    "an old type": (lambda: written({}, {"w": ((64,), 4, 0)}, bytes(64)), "unknown type of a ten"),
    "not aligned": (lambda: written({}, {"w": ((2,), 0, 4)}, bytes(12)), "is not aligned"),
    "no whole block": (lambda: written({}, {"w": ((33,), 2, 0)}, bytes(36)), "number of blocks"),
    "data truncated": (lambda: written({}, ONE, EIGHT[:-1]), "truncated in its data"),
    "data far away": (lambda: written({}, {"w": ((2,), 0, 1 << 62)}, EIGHT), "truncated in its"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_refused(file: Path, case: str) -> None:
    make, message = DAMAGED[case]
    with pytest.raises(DataError, match=message) as caught:
        load(file, make())
    assert str(caught.value).startswith("gguf_load: ")
    assert f"{file}\n" in str(caught.value)


GOOD = written(
    {"a": struct.pack("<IIQ3H", 9, 2, 3, 1, 2, 3), "b": struct.pack("<I", 8) + text("hello")},
    {"w": ((32, 2), 8, 0), "v": ((2,), 0, 96)},
    bytes(104),
)


@given(content=damaged(GOOD) | st.binary(max_size=40).map(lambda tail: GOOD[:24] + tail))
def test_any_damage_is_a_data_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content)
    refused_or_whole(lambda: gguf_load(path))
