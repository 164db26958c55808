"""The examples in the docstrings of loaders and savers run, in a folder of their own."""

from __future__ import annotations

import doctest
import importlib
import io
import struct
import tarfile
from pathlib import Path

import pytest

import tilegrad.io
from tests.io.test_gguf import written
from tests.io.torch_files import storage, tensor, zipped
from tilegrad import Tensor, dtypes, nn
from tilegrad.io import npz_save

NAMES = [*tilegrad.io.__all__, "save_checkpoint", "load_checkpoint"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    floats = storage("FloatStorage", "0", 12)
    Path("weights.pth").write_bytes(
        zipped({"weight": tensor(floats, (3, 4), (4, 1))}, {"0": bytes(48)})
    )
    pairs = {"general.architecture": struct.pack("<IQ", 8, 5) + b"llama"}
    Path("model.gguf").write_bytes(written(pairs, {"output.weight": ((64, 2), 8, 0)}, bytes(136)))
    with tarfile.open("texts.tar", "w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"hello"))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str, folder: Path) -> None:
    module = importlib.import_module(tilegrad.io._HOME.get(name, "tilegrad.nn.checkpoint"))
    function = getattr(module, name)
    names = {"Tensor": Tensor, "dtypes": dtypes, "nn": nn, "npz_save": npz_save, **vars(module)}
    (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs=names)
    assert example.examples
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.failures == 0


def test_names_are_listed() -> None:
    assert set(tilegrad.io.__all__) == set(tilegrad.io._HOME)
    assert set(tilegrad.io.__all__) <= set(dir(tilegrad.io))
    with pytest.raises(AttributeError, match=r"'tilegrad\.io' has no attribute 'pickle_load'"):
        _ = tilegrad.io.pickle_load
