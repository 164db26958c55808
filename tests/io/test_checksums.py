"""A bit that flips in an archive is found, wherever it is: what loads is what was saved."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.errors import DataError
from tilegrad.io import npz_load, torch_load
from tilegrad.io.archive import zip_extract

VALUES = {"weight": np.arange(6, dtype=np.float32) / 7, "count": np.array([3, 4], dtype=np.int64)}

# {"a": storage of 4 float32, contiguous} as `torch.save` writes it.
PICKLE = (
    b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00"
    b"storageq\x03ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x04tq"
    b"\x07QK\x00K\x04\x85q\x08K\x01\x85q\t\x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs."
)
STORAGE = np.arange(1, 5, dtype=np.float32).tobytes()


def npz(compressed: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **VALUES)
    return file.getvalue()


def pth(has_checksums: bool = True) -> bytes:
    """PyTorch's zip; one that was told to write no checksums has zeros for them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (("m/data.pkl", PICKLE), ("m/data/0", STORAGE)):
            archive.writestr(zipfile.ZipInfo(name), content)
        sums = [entry.CRC for entry in archive.infolist()]
    raw = file.getvalue()
    for number in sums if not has_checksums else ():
        raw = raw.replace(number.to_bytes(4, "little"), bytes(4))
    return raw


def values_of(found: Any) -> dict[str, list[Any]]:
    return {name: value.tolist() for name, value in found.items() if isinstance(value, Tensor)}


CASES: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "npz": (npz(False), npz_load),
    "npz compressed": (npz(True), npz_load),
    "torch": (pth(), torch_load),
    "zip_extract": (npz(False), zip_extract),
}


@pytest.mark.parametrize("case", CASES)
def test_one_bit_anywhere_is_refused_or_changes_nothing(case: str, tmp_path: Path) -> None:
    raw, load = CASES[case]
    path = tmp_path / "file"
    path.write_bytes(raw)
    right = values_of(load(path))
    assert right
    refused = 0
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ (1 << place % 8)]) + raw[place + 1 :])
        try:
            assert values_of(load(path)) == right, place
        except DataError:
            refused += 1
    assert refused > len(raw) // 3


@pytest.mark.parametrize("case", ["npz", "torch", "zip_extract"])
def test_each_byte_of_a_member_counts(case: str, tmp_path: Path) -> None:
    raw, load = CASES[case]
    path = tmp_path / "file"
    path.write_bytes(raw)
    with zipfile.ZipFile(path) as archive:
        contents = [archive.read(entry) for entry in archive.infolist()]
    for content in contents:
        begin = raw.index(content)
        for place in range(begin, begin + len(content)):
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 0x10]) + raw[place + 1 :])
            with pytest.raises(DataError, match="damaged") as caught:
                load(path)
            assert "CRC" in str(caught.value)


def test_an_archive_without_checksums_loads(tmp_path: Path) -> None:
    """As PyTorch writes it after `set_crc32_options(False)`."""
    path = tmp_path / "file"
    path.write_bytes(pth(has_checksums=False))
    assert torch_load(path)["a"].tolist() == [1.0, 2.0, 3.0, 4.0]
