"""The safetensors files: what is written is read, by us and by the package that defines them."""

from __future__ import annotations

import errno
import json
import os
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.base.errors import DataError, DTypeError
from tilegrad.io.safetensors import Entry, read_metadata, read_safetensors, write_safetensors

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32"]
DTYPES += ["int64", "uint64", "float64"]


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    bits = np.random.default_rng(0).integers(0, 2, shape)
    return np.asarray(bits, dtype)


def build(header: object, data: bytes = b"") -> bytes:
    """A file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.safetensors"


def all_dtypes() -> dict[str, np.ndarray[Any, Any]]:
    shapes = [(3, 2), (), (0, 4), (5,)]
    return {f"{d}.{len(s)}": sample(d, s) for d in DTYPES for s in shapes}


def test_every_dtype_and_shape_comes_back(file: Path) -> None:
    tensors = all_dtypes()
    write_safetensors(file, tensors, {"made by": "a test"})
    found = read_safetensors(file)
    assert set(found) == set(tensors)
    assert read_metadata(file) == {"made by": "a test"}
    for name, array in tensors.items():
        assert found[name].dtype_name == array.dtype.name
        assert found[name].shape == found[name].data.shape == array.shape
        assert found[name].data.dtype == array.dtype
        assert np.array_equal(found[name].data, array)


def test_the_package_reads_what_we_write(file: Path) -> None:
    tensors = all_dtypes()
    write_safetensors(file, tensors, {"note": "β"})
    found = safetensors.numpy.load_file(file)
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def test_we_read_what_the_package_writes(file: Path) -> None:
    tensors = all_dtypes()
    safetensors.numpy.save_file(tensors, file, {"note": "β"})
    found = read_safetensors(file)
    assert read_metadata(file) == {"note": "β"}
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        assert np.array_equal(found[name].data, array)


@given(
    shapes=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4).map(tuple)),
        max_size=6,
    )
)
def test_random_tables_agree_with_the_package(
    shapes: dict[str, tuple[str, tuple[int, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tables") / "t.safetensors"
    tensors = {name: sample(*dtype_and_shape) for name, dtype_and_shape in shapes.items()}
    write_safetensors(path, tensors)
    ours, theirs = read_safetensors(path), safetensors.numpy.load_file(path)
    assert set(ours) == set(theirs) == set(tensors)
    assert all(np.array_equal(ours[name].data, theirs[name]) for name in tensors)


@pytest.mark.parametrize(
    ("code", "name", "storage"),
    [("BF16", "bfloat16", "uint16"), ("F8_E4M3", "fp8e4m3", "uint8")],
)
def test_a_dtype_that_numpy_lacks_travels_as_bits(
    file: Path, code: str, name: str, storage: str
) -> None:
    bits = np.array([[1, 2], [3, 200]], storage)
    write_safetensors(file, {"w": Entry(name, (2, 2), bits)})
    header = json.loads(file.read_bytes()[8:].split(b"}}")[0] + b"}}")
    assert header["w"]["dtype"] == code
    (found,) = read_safetensors(file).values()
    assert (found.dtype_name, found.shape) == (name, (2, 2))
    assert found.data.dtype == storage
    assert np.array_equal(found.data, bits)


def test_arrays_are_aligned_read_only_views(file: Path) -> None:
    write_safetensors(file, {"a": sample("bool", (3,)), "b": sample("float64", (5,))})
    for found in read_safetensors(file).values():
        assert found.data.flags.aligned
        assert not found.data.flags.writeable
        assert not found.data.flags.owndata


def test_strided_and_big_endian_arrays_are_stored_in_order(file: Path) -> None:
    grid = np.arange(12, dtype=">i4").reshape(3, 4)
    write_safetensors(file, {"t": grid.T, "s": grid[::2, ::-1]})
    found = read_safetensors(file)
    assert np.array_equal(found["t"].data, grid.T)
    assert np.array_equal(found["s"].data, grid[::2, ::-1])


def test_equal_tables_give_equal_files(tmp_path: Path) -> None:
    tensors = all_dtypes()
    write_safetensors(tmp_path / "a", tensors)
    write_safetensors(tmp_path / "b", dict(reversed(tensors.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_mapped_file_survives_being_replaced(file: Path) -> None:
    write_safetensors(file, {"a": np.array([1, 2])})
    old = read_safetensors(file)["a"].data
    write_safetensors(file, {"a": np.array([3, 4])})
    assert old.tolist() == [1, 2]
    assert read_safetensors(file)["a"].data.tolist() == [3, 4]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "real")
    write_safetensors(link, {"a": np.array([1])})
    assert link.is_symlink()
    assert read_safetensors(tmp_path / "real")["a"].data.tolist() == [1]


ZEROS = bytes(8)
DAMAGED: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", ["the file is truncated", "8 bytes or more", "0 bytes"]),
    "header missing": (
        struct.pack("<Q", 50) + b"{}",
        ["truncated in its header", "58 bytes or more", "10 bytes"],
    ),
    "header length absurd": (b"\xff" * 64, ["the header is too long", "at most 100000000 bytes"]),
    "header not UTF-8": (build(b'{"\xff"}'), ["the header is not JSON", "JSON object in UTF-8"]),
    "header not JSON": (build(b"{'a': 1}"), ["the header is not JSON"]),
    "header nested deep": (build(b"[" * 200_000), ["the header is not JSON"]),
    "header number endless": (build(b'{"a":' + b"9" * 5000 + b"}"), ["the header is not JSON"]),
    "header a list": (build([1]), ["the header is not a JSON object", "list"]),
    "name twice": (
        build(b'{"w":%s,"w":%s}' % ((json.dumps(entry()).encode(),) * 2), ZEROS),
        ["a name stands twice", "['w']"],
    ),
    "field twice": (build(b'{"w":{"dtype":"F32","dtype":"I32"}}'), ["stands twice", "['dtype']"]),
    "metadata not text": (build({"__metadata__": {"a": 1}}), ["__metadata__ is not a table"]),
    "metadata a list": (build({"__metadata__": [1]}), ["__metadata__ is not a table", "[1]"]),
    "entry a number": (build({"w": 3}), ["other fields", "'w'", "int"]),
    "field missing": (
        build({"w": {"dtype": "F32", "shape": [2]}}, ZEROS),
        ["other fields", "'w'", "dtype, shape, data_offsets", "dtype, shape"],
    ),
    "field unknown": (build({"w": entry() | {"strides": [1]}}, ZEROS), ["other fields", "strides"]),
    "dtype unknown": (build({"w": entry("F33")}, ZEROS), ["unknown dtype", "'w'", "F32", "'F33'"]),
    "dtype a list": (build({"w": entry() | {"dtype": []}}, ZEROS), ["unknown dtype", "[]"]),
    "shape negative": (build({"w": entry(shape=[-2])}, ZEROS), ["shape is not", "'w'", "[-2]"]),
    "shape a float": (build({"w": entry(shape=[2.0])}, ZEROS), ["shape is not", "[2.0]"]),
    "shape a bool": (build({"w": entry(shape=[True])}, ZEROS), ["shape is not", "[True]"]),
    "shape a number": (build({"w": entry(shape=2)}, ZEROS), ["shape is not a list"]),
    "axes too many": (
        build({"w": entry(shape=[1] * 33, offsets=[0, 4])}, bytes(4)),
        ["at most 32"],
    ),
    "shape of nothing, huge": (
        build({"w": entry(shape=[0, 1 << 40, 1 << 40], offsets=[0, 0])}),
        ["shape is not a list of sizes"],
    ),
    "shape too large": (
        build({"w": entry(shape=[1 << 40])}, ZEROS),
        ["size and shape differ", "'w'", "4398046511104 bytes", "8 bytes"],
    ),
    "offsets backwards": (
        build({"w": entry(offsets=[8, 0])}, ZEROS),
        ["a pair in order", "[8, 0]"],
    ),
    "offsets three": (build({"w": entry(offsets=[0, 4, 8])}, ZEROS), ["a pair in order"]),
    "offsets negative": (build({"w": entry(offsets=[-8, 0])}, ZEROS), ["a pair in order"]),
    "size not the shape's": (
        build({"w": entry(shape=[3])}, ZEROS),
        ["size and shape differ", "'w'", "12 bytes for (3,) of float32", "8 bytes"],
    ),
    "data truncated": (
        build({"w": entry()}, bytes(7)),
        ["truncated in its data", "'w'", "bytes or more"],
    ),
    "data overlap": (
        build({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)),
        ["tensors overlap", "'b'", "begin at byte 8", "byte 4"],
    ),
    "data shared": (build({"a": entry(), "b": entry()}, ZEROS), ["tensors overlap", "'b'"]),
    "gap": (
        build({"a": entry(), "b": entry(offsets=[12, 20])}, bytes(20)),
        ["a gap before a tensor", "'b'", "begin at byte 8", "byte 12"],
    ),
    "bytes left over": (build({"a": entry()}, bytes(9)), ["bytes after the last tensor"]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_refused(file: Path, case: str) -> None:
    """The message names the file, the tensor where there is one, what was expected and what is."""
    content, parts = DAMAGED[case]
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_safetensors(file)
    for part in ["read_safetensors: ", f"file:     {file}", "expected: ", "got: ", *parts]:
        assert part in str(caught.value)
    with pytest.raises(DataError):
        read_metadata(file)
    # The package that defines the format agrees, but for what its text forbids or leaves open.
    if case not in ("name twice", "field unknown", "axes too many", "shape of nothing, huge"):
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load_file(file)


@given(content=st.binary(max_size=60), cut=st.integers(0, 100), flip=st.integers(0, 7))
def test_any_damage_is_a_data_error(
    content: bytes, cut: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damage") / "t.safetensors"
    good = build({"a": entry(), "b": entry("U8", [3], [8, 11])}, bytes(11))
    cut %= len(good)
    flipped = good[:cut] + bytes([good[cut] ^ (1 << flip)]) + good[cut + 1 :]
    for damaged in (good[:cut], flipped, content, build(content)):
        path.write_bytes(damaged)
        try:
            found = read_safetensors(path)
        except DataError:
            continue
        assert sum(item.data.nbytes for item in found.values()) <= len(damaged)


@pytest.mark.parametrize("name", ["absent", "."])
def test_a_file_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="read_safetensors: cannot open the file: ") as caught:
        read_safetensors(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def write_too_much(file: Path) -> None:
    """Write to a disk with room for 4,096 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        write_safetensors(file, {"w": np.zeros(4096)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def write_below_a_file(file: Path) -> None:
    file.parent.joinpath("plain").write_bytes(b"")
    write_safetensors(file.parent / "plain" / "w.safetensors", {"w": np.zeros(4)})


def write_to_a_missing_folder(file: Path) -> None:
    write_safetensors(file.parent / "no" / "w.safetensors", {"w": np.zeros(4)})


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (write_too_much, os.strerror(errno.EFBIG)),
        (write_below_a_file, os.strerror(errno.ENOTDIR)),
        (write_to_a_missing_folder, os.strerror(errno.ENOENT)),
    ],
)
def test_a_failed_write_leaves_nothing(
    file: Path, write: Callable[[Path], None], reason: str
) -> None:
    write_safetensors(file, {"w": np.ones(3)})
    with pytest.raises(DataError, match="write_safetensors: cannot write the file") as caught:
        write(file)
    message = str(caught.value)
    assert reason in message
    assert "needed:" in message
    assert "remedy:" in message
    assert sorted(p.name for p in file.parent.iterdir() if p.name != "plain") == [file.name]
    assert read_safetensors(file)["w"].data.tolist() == [1, 1, 1]


def test_an_interrupt_while_writing_leaves_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_safetensors(file, {"w": np.ones(3)})
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("tensors", "error", "parts"),
    [
        ({"w": np.zeros(2, complex)}, DTypeError, ["'w' has a dtype", "complex128", "float64"]),
        ({"w": np.array(["a"])}, DTypeError, ["'w' has a dtype", "str"]),
        (
            {"w": Entry("bfloat16", (2,), np.zeros(2))},
            DTypeError,
            ["bfloat16 in an array of float64"],
        ),
        ({"w": Entry("float32", (2,), np.zeros(3, "f4"))}, DataError, ["(2,)", "(3,)"]),
        ({"__metadata__": np.zeros(2)}, DataError, ["cannot be called '__metadata__'"]),
    ],
)
def test_tensors_that_cannot_be_stored(
    file: Path, tensors: dict[str, Any], error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error, match="write_safetensors") as caught:
        write_safetensors(file, tensors)
    for part in [str(file), *parts]:
        assert part in str(caught.value)
    assert list(file.parent.iterdir()) == []


def test_metadata_is_text(file: Path) -> None:
    metadata: dict[str, Any] = {"epoch": 3}
    with pytest.raises(DataError, match="metadata is not text") as caught:
        write_safetensors(file, {}, metadata)
    assert "'epoch': 3" in str(caught.value)
    assert list(file.parent.iterdir()) == []
