"""Checkpoints in several files: written whole or not at all, read as one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from tests.io.damage import damaged, refused_or_whole
from tilegrad import Tensor
from tilegrad.base.errors import DataError
from tilegrad.io import shards
from tilegrad.io.weights import safe_load, safe_load_metadata, safe_save

INDEX = "model.safetensors.index.json"


def tensors(factor: int = 1) -> dict[str, Tensor]:
    return {f"w{at}": Tensor.full((4, at + 1), at * factor) for at in range(5)}


def check(path: Path, factor: int = 1) -> None:
    found = safe_load(path)
    assert list(found) == [f"w{at}" for at in range(5)]
    for at in range(5):
        assert np.array_equal(found[f"w{at}"].numpy(), np.full((4, at + 1), at * factor))


def test_tensors_are_spread_over_files(tmp_path: Path) -> None:
    """Tensors of 16, 32, 48, 64 and 80 bytes in files of 64."""
    safe_save(tensors(), tmp_path / INDEX, {"note": "x"}, shard_bytes=64)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [*[f"model-0000{at}-of-00004.safetensors" for at in (1, 2, 3, 4)], INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": 240}
    assert list(index["weight_map"].values()) == [names[at] for at in (0, 0, 1, 2, 3)]
    assert safe_load_metadata(tmp_path / names[0]) == {"note": "x"}
    check(tmp_path / INDEX)


def test_a_new_checkpoint_takes_the_place_of_the_old(tmp_path: Path) -> None:
    safe_save(tensors(), tmp_path / INDEX, shard_bytes=64)
    before = {path.name for path in tmp_path.iterdir()}
    loaded = safe_load(tmp_path / INDEX)
    safe_save(tensors(7), tmp_path / INDEX, shard_bytes=64)
    assert {path.name for path in tmp_path.iterdir()} & before == {INDEX}
    assert len(list(tmp_path.iterdir())) == 5
    check(tmp_path / INDEX, 7)
    # What was loaded before still has its file.
    assert loaded["w4"].tolist() == [[4] * 5] * 4


def test_an_interrupted_write_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe_save(tensors(), tmp_path / INDEX, shard_bytes=64)
    before = sorted(tmp_path.iterdir())
    write, calls = shards.write_safetensors, []

    def interrupted(*given: object) -> None:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(shards, "write_safetensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        safe_save(tensors(7), tmp_path / INDEX, shard_bytes=64)
    assert sorted(tmp_path.iterdir()) == before
    check(tmp_path / INDEX)


DAMAGED = {
    "no JSON": ("{", "the index is not JSON"),
    "nested deep": ("[" * 100_000, "the index is not JSON"),
    "a list": ("[]", "no weight_map"),
    "no table": ('{"weight_map": 3}', "no weight_map"),
    "a file above": ('{"weight_map": {"w": "../x.safetensors"}}', "not beside it"),
    "a file elsewhere": ('{"weight_map": {"w": "/etc/x.safetensors"}}', "not beside it"),
    "a file below": ('{"weight_map": {"w": "a\\\\x.safetensors"}}', "not beside it"),
    "no text": ('{"weight_map": {"w": 3}}', "not beside it"),
    "another kind": ('{"weight_map": {"w": "x.bin"}}', "not beside it"),
    "a zero byte": ('{"weight_map": {"w": "x\\u0000.safetensors"}}', "not beside it"),
    "absent": ('{"weight_map": {"w": "x.safetensors"}}', "cannot open the file"),
    "without the tensor": ('{"weight_map": {"w": "y.safetensors"}}', "a tensor is missing"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_index_is_refused(tmp_path: Path, case: str) -> None:
    text, message = DAMAGED[case]
    safe_save({"v": Tensor.ones(2)}, tmp_path / "y.safetensors")
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(DataError, match=message):
        safe_load(tmp_path / INDEX)


@given(content=damaged(b'{"metadata": {"total_size": 8}, "weight_map": {"v": "y.safetensors"}}'))
def test_any_damage_to_an_index_is_a_data_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    if not (folder / "y.safetensors").exists():
        safe_save({"v": Tensor.ones(2)}, folder / "y.safetensors")
    (folder / INDEX).write_bytes(content)
    refused_or_whole(lambda: safe_load(folder / INDEX))


def test_an_index_has_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no name of an index"):
        safe_save(tensors(), tmp_path / "model.safetensors", shard_bytes=64)
    assert not list(tmp_path.iterdir())
