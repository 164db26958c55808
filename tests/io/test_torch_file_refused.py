"""What `torch_load` refuses: code, damage, and what no checkpoint has."""

from __future__ import annotations

import contextlib
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.damage import damaged, memory_for
from tests.io.test_torch_file import FLOATS, OLD_FLOATS, RAW, VIEWS, load
from tests.io.torch_files import (
    Code,
    call,
    legacy,
    named,
    pickled,
    put,
    storage,
    tarred,
    tensor,
    zipped,
)
from tilegrad.base.errors import DataError
from tilegrad.io import torch_load

HUGE = (1 << 61,)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


ZIPS: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a PyTorch file"),
    "text": (lambda: b"hello, world\n" * 40, "not a PyTorch file"),
    "another archive": (
        lambda: zipped(1, {}).replace(b"data.pkl", b"dota.pkl"),
        "without PyTorch's data",
    ),
    "a function": (
        lambda: zipped(call("os.system", "true"), {}),
        "it wants os.system, which is no data",
    ),
    "builtins": (lambda: zipped(call("builtins.eval", "1"), {}), "it wants builtins.eval"),
    "attributes": (
        lambda: zipped(call("builtins.getattr", 1, "real"), {}),
        "it wants builtins.getattr",
    ),
    "a dotted name": (
        lambda: zipped(call("collections.OrderedDict.fromkeys", [1]), {}),
        "OrderedDict.fromkeys",
    ),
    "a model": (
        lambda: zipped(Code(named("torch.nn.modules.linear.Linear") + b")\x81"), {}),
        "torch.nn.modules.linear.Linear",
    ),
    "a class": (lambda: zipped(Code(b"(cos\nsystem\nS'true'\no"), {}), "it wants os.system"),
    "an instance": (lambda: zipped(Code(b"(S'true'\nios\nsystem\n"), {}), "instruction b'i'"),
    "an extension": (lambda: zipped(Code(b"\x82\x01"), {}), "is not one for data"),
    "a call of a value": (lambda: zipped(Code(put(3) + b")R"), {}), "a call of a int"),
    "a call of a type": (lambda: zipped(call("builtins.dict"), {}), "only a name"),
    "wrong arguments": (
        lambda: zipped(call("torch._utils._rebuild_tensor_v2", 1), {}),
        "does not take such arguments",
    ),
    "no storage": (lambda: zipped(tensor(Code(put(1)), (1,), (1,)), {}), "without a storage"),
    "storage absent": (lambda: zipped(FLOATS, {}), "a storage is missing"),
    "storage outside": (
        lambda: zipped(storage("FloatStorage", "../../version", 1), {"0": RAW}),
        "a storage is missing",
    ),
    "storage shorter": (lambda: zipped(FLOATS, {"0": RAW[:-1]}), "a storage has another size"),
    "storage of a module": (
        lambda: zipped(Code(put(("module", 1, "a", "b", 1)) + b"Q"), {}),
        "known is 'storage'",
    ),
    "storage negative": (
        lambda: zipped(storage("FloatStorage", "0", -12), {"0": RAW}),
        "a storage without",
    ),
    "storage twice": (
        lambda: zipped([FLOATS, storage("IntStorage", "0", 12)], {"0": RAW}),
        "with two dtypes",
    ),
    "too large": (
        lambda: zipped(tensor(FLOATS, (13,), (1,)), {"0": RAW}),
        "needs 52 bytes of a storage of 48",
    ),
    "strides too large": (
        lambda: zipped(tensor(FLOATS, (2, 2), (11, 1)), {"0": RAW}),
        "needs 52 bytes",
    ),
    "offset too large": (
        lambda: zipped(tensor(FLOATS, (1,), (1,), 12), {"0": RAW}),
        "needs 52 bytes",
    ),
    "offset negative": (lambda: zipped(tensor(FLOATS, (1,), (1,), -1), {"0": RAW}), "at offset -1"),
    "stride negative": (
        lambda: zipped(tensor(FLOATS, (2,), (-1,), 1), {"0": RAW}),
        "strides \\(-1,\\)",
    ),
    "size negative": (lambda: zipped(tensor(FLOATS, (-2,), (1,)), {"0": RAW}), "sizes \\(-2,\\)"),
    "size absurd": (
        lambda: zipped(tensor(FLOATS, HUGE * 2, (0, 0)), {"0": RAW}),
        "a tensor of sizes",
    ),
    "too few complex numbers": (
        lambda: zipped(tensor(storage("ComplexFloatStorage", "0", 6), (7,), (1,)), {"0": RAW}),
        r"sizes \(7, 2\) that needs 56 bytes of a storage of 48",
    ),
    "big-endian": (
        lambda: zipped(FLOATS, {"0": RAW}, byteorder=b"big"),
        "byte order is not little",
    ),
    "a key that hashes for ever": (
        lambda: zipped(Code(put({}) + b"(" + b")" + b"2\x86" * 60 + b"Nu"), {}),
        "a tuple as a key",
    ),
    "a call that multiplies": (
        lambda: zipped(
            Code(
                b"c_codecs\nencode\nq\x000X"
                + struct.pack("<I", 50_000)
                + b"a" * 50_000
                + b"\x85q\x010]"
                + b"h\x00h\x01Ra" * 999
            ),
            {},
        ),
        "make more than the file holds",
    ),
    "arguments by name": (
        lambda: zipped(Code(named("collections.OrderedDict") + b")" + put({"a": 1}) + b"\x92"), {}),
        "arguments by name",
    ),
    "negated": (
        lambda: zipped(
            call(
                "torch._utils._rebuild_tensor_v2", FLOATS, 0, (1,), (1,), False, None, {"neg": True}
            ),
            {"0": RAW},
        ),
        "a tensor with neg to be applied",
    ),
    "no stack": (lambda: zipped(b"\x80\x02.", {}), "the stack is empty"),
    "nothing kept": (lambda: zipped(b"h\x05.", {}), "nothing is kept under number 5"),
    "no end": (lambda: zipped(pickled([1])[:-1], {}), "truncated"),
    "protocol unknown": (lambda: zipped(b"\x80\x09N.", {}), "protocol 9"),
    "text too long": (lambda: zipped(b"X\xff\xff\xff\xffabc", {}), "truncated"),
    "integer too long": (
        lambda: zipped(b"\x8b\xff\xff\xff\x7f", {}),
        "an integer of 2147483647 bytes",
    ),
    "no archive's end": (lambda: zipped(FLOATS, {"0": RAW})[:-30], "no table of members"),
    "member twice": (
        lambda: zipped(FLOATS, {"0": RAW, "1": RAW}).replace(b"m/data/1", b"m/data/0"),
        "stands twice",
    ),
    "encrypted": (
        lambda: zipped(FLOATS, {"0": RAW}).replace(
            b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"
        ),
        "encrypted",
    ),
    "compressed otherwise": (
        lambda: zipped(FLOATS, {"0": RAW}, zipfile.ZIP_BZIP2),
        "unknown compression",
    ),
}


@pytest.mark.parametrize("case", ZIPS)
def test_a_zip_is_refused(file: Path, case: str) -> None:
    make, message = ZIPS[case]
    with pytest.raises(DataError, match=message) as caught:
        load(file, make())
    assert str(caught.value).startswith("torch_load: ")
    assert f"{file}\n" in str(caught.value)


OLD: dict[str, tuple[Callable[[], bytes], str]] = {
    "another magic": (lambda: legacy(1, {}, magic=7), "not a PyTorch file"),
    "big-endian": (lambda: legacy(1, {}, {"little_endian": False}), "byte order is not little"),
    "a function": (lambda: legacy(call("os.system", "true"), {}), "it wants os.system"),
    "a function in the head": (
        lambda: legacy(1, {}, call("os.system", "true")),
        "it wants os.system",
    ),
    "truncated": (lambda: legacy(OLD_FLOATS, {"0": (12, RAW)})[:-1], "the file is truncated"),
    "another size": (lambda: legacy(OLD_FLOATS, {"0": (11, RAW)}), "a storage has another size"),
    "storages missing": (lambda: legacy(OLD_FLOATS, {}), "storages are missing"),
    "storage unknown": (lambda: legacy(1, {"0": (12, RAW)}), "the list of storages"),
    "a view outside": (
        lambda: legacy(storage("FloatStorage", "0", 12, ("v", 10, 3)), {"0": (12, RAW)}),
        "a view of 3 elements at 10",
    ),
    "a tar without data": (lambda: tarred(1, {}, {}).replace(b"tensors", b"tonsors"), "tar"),
    "a tar with a function": (
        lambda: tarred(call("os.system", "true"), {}, {}),
        "it wants os.system",
    ),
    "a tar with a tensor outside": (
        lambda: tarred(1, {99: ("FloatStorage", 12, RAW)}, {1: (99, (13,), (1,), 0)}),
        "needs 52 bytes",
    ),
    "a tar without a storage": (
        lambda: tarred(1, {}, {1: (99, (1,), (1,), 0)}),
        "without its storage",
    ),
    "a tar with a wrong name": (lambda: tarred(Code(put("x") + b"Q"), {}, {}), "does not hold"),
}


@pytest.mark.parametrize("case", OLD)
def test_an_old_file_is_refused(file: Path, case: str) -> None:
    make, message = OLD[case]
    with pytest.raises(DataError, match=message):
        load(file, make())


def test_a_bomb_is_not_inflated(file: Path) -> None:
    """200 MB of zeros, 200 kB in the file."""
    count = 50_000_000
    value = tensor(storage("FloatStorage", "0", count), (count,), (1,))
    content = zipped(value, {"0": bytes(4 * count)}, zipfile.ZIP_DEFLATED)
    with memory_for(64 << 20), pytest.raises(DataError, match="inflates to more than is allowed"):
        load(file, content)


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="torch_load: cannot open the file: ") as caught:
        torch_load(tmp_path / "absent.pt")
    assert "absent.pt" in str(caught.value)


_seen: list[str] = []


_is_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_watching and event in ("import", "exec", "compile", "os.system", "subprocess.Popen"):
        _seen.append(event)


def test_nothing_is_imported_or_run(file: Path) -> None:
    global _is_watching
    value = {name: tensor(FLOATS, *view) for name, view in VIEWS.items() if name != "overlapping"}
    good = zipped(value, {"0": RAW})
    load(file, good)
    sys.addaudithook(_watch)
    _seen.clear()
    for content in (
        good,
        ZIPS["a function"][0](),
        ZIPS["an instance"][0](),
        OLD["a function"][0](),
    ):
        file.write_bytes(content)
        _is_watching = True
        try:
            torch_load(file)
        except DataError:
            pass
        finally:
            _is_watching = False
    assert _seen == []


GOOD = {
    "zip": zipped({"a": tensor(FLOATS, (3, 4), (4, 1)), "b": [1, "x", FLOATS]}, {"0": RAW}),
    "packed": zipped({"a": tensor(FLOATS, (4, 3), (1, 4))}, {"0": RAW}, zipfile.ZIP_DEFLATED),
    "legacy": legacy({"a": tensor(OLD_FLOATS, (2, 2), (4, 1), 5)}, {"0": (12, RAW)}),
    "tar": tarred(
        {"a": Code(put("1") + b"Q")},
        {99: ("FloatStorage", 12, RAW)},
        {1: (99, (3, 4), (4, 1), 0)},
    ).rstrip(b"\0"),
}  # fmt: skip


def check_any_damage(kind: str, content: bytes, folder: Path) -> None:
    path = folder / kind
    path.write_bytes(content)
    for keep_unknown in (False, True):
        with memory_for(256 << 20), contextlib.suppress(DataError):
            torch_load(path, keep_unknown=keep_unknown)


@pytest.mark.parametrize("kind", GOOD)
@given(data=st.data())
def test_any_damage_is_a_data_error(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = data.draw(damaged(GOOD[kind]))
    check_any_damage(kind, content, tmp_path_factory.getbasetemp())


@given(program=st.binary(max_size=200))
def test_any_bytes_are_a_pickle_or_an_error(
    program: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_any_damage("zip", zipped(program, {"0": RAW}), tmp_path_factory.getbasetemp())
