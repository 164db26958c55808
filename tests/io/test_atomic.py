"""What a killed writer leaves beside a file is removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tilegrad import Tensor
from tilegrad.nn.state import safe_load, safe_save

_KILLED = """
import os, signal, sys
from pathlib import Path
from tilegrad.io.atomic import atomic_write
with atomic_write(Path(sys.argv[1])) as file:
    file.write(b"x" * 100)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_the_next_save_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".part-")
    safe_save({"a": Tensor([1.0])}, str(path))
    assert left.exists(), "it may be another process's, which still writes"
    _age(left, 7200)
    safe_save({"a": Tensor([2.0])}, str(path))
    assert [each.name for each in tmp_path.iterdir()] == ["model.safetensors"]
    assert safe_load(str(path))["a"].tolist() == [2.0]


def test_files_of_other_names_stay(tmp_path: Path) -> None:
    names = [".part-1", ".part-x-01234567", ".part-1-0123456g", "a.part-1-01234567", ".part-1-abc"]
    (tmp_path / ".part-2-01234567").mkdir()
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
        _age(tmp_path / name, 1e6)
    _age(tmp_path / ".part-2-01234567", 1e6)
    safe_save({"a": Tensor([1.0])}, str(tmp_path / "m.safetensors"))
    found = {each.name for each in tmp_path.iterdir()}
    assert found == {*names, ".part-2-01234567", "m.safetensors"}
