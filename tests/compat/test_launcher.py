"""What surrounds a script: its arguments, its errors, and that nothing is left behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from tilegrad.base.config import Context, config
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError
from tilegrad.compat import helpers
from tilegrad.compat.module_names import MODULES, find
from tilegrad.compat.tinygrad import installed, main, run
from tilegrad.device.registry import Device
from tilegrad.tensor.tensor import Tensor


def write(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def launch(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tilegrad.compat.tinygrad", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "neighbour.py").write_text("from tinygrad import Tensor\nONE = 1\n")
    (tmp_path / "neighbour.py").write_text("ONE = 'of the folder of the moment'\n")
    script = write(
        tmp_path / "below",
        "import sys\n"
        "from neighbour import ONE\n"
        "from tinygrad import Device, Tensor, getenv\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], (Tensor([1, 2]) + ONE).tolist(), getenv('N', 1), Device.DEFAULT)\n"
        "    sys.exit(3)\n",
    )
    done = launch(script, "a", "--b", cwd=tmp_path, N="7", DEV="EMU")
    assert done.stdout == "['a', '--b'] [2, 3] 7 EMU\n", done.stderr
    assert done.returncode == 3


def test_from_the_folder_that_holds_tilegrad(tmp_path: Path) -> None:
    """The folder of the moment comes after the script's, but tilegrad's helpers still find it."""
    root = str(Path(__file__).parents[2])
    script = write(tmp_path, "import sys\nprint(*sys.path, sep='\\n')\n")
    places = launch(script, cwd=Path(root), PYTHONPATH="").stdout.splitlines()
    assert places[0] == str(tmp_path) and places.count(root) >= 1 and places[1] != root


def test_an_error_begins_in_the_script(tmp_path: Path) -> None:
    script = write(tmp_path, "from tinygrad import Tensor\n\nTensor([1]).as_param(2)\n")
    done = launch(script, cwd=tmp_path)
    assert done.returncode == 1 and not done.stdout
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback") and f'"{script}", line 3' in lines[1]
    assert "has no attribute 'as_param'" in done.stderr
    assert lines[-1].startswith("tilegrad has no tinygrad.Tensor.as_param: docs/")


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "script.py" in capsys.readouterr().out
    assert main(["no such file"]) == 2
    assert "no such script" in capsys.readouterr().err


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is an installed tinygrad hidden from anyone else."""
    package = tmp_path / "tinygrad"
    package.mkdir()
    (package / "__init__.py").write_text("REAL = True\n")
    (package / "codegen.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "tinygrad"]:
        monkeypatch.delitem(sys.modules, name)
    import tinygrad

    assert tinygrad.REAL
    script = write(
        tmp_path,
        "import tinygrad, tinygrad.nn.state\n"
        "assert not hasattr(tinygrad, 'REAL')\n"
        "try:\n    import tinygrad.codegen\n    seen = 'the real one'\n"
        "except ImportError:\n    seen = None\n"
        "from tinygrad import Context, Tensor, dtypes\n"
        "Context(NOOPT=1).__enter__()\n"
        "assert not Tensor.training\n"
        "Tensor.training, dtypes.default_float = True, dtypes.half\n",
    )
    before = sys.argv, sys.path[:], sys.meta_path[:], Device.DEFAULT
    methods = Tensor.gelu, Tensor.numpy
    assert run(script, ["x"])["seen"] is None
    assert sys.modules["tinygrad"] is tinygrad
    assert [name for name in sys.modules if name.startswith("tinygrad.")] == []
    assert before == (sys.argv, sys.path, sys.meta_path, Device.DEFAULT)
    assert (Tensor.gelu, Tensor.numpy) == methods
    assert Tensor.training and config.NOOPT == 0
    assert dtypes.default_float is dtypes.float32
    with pytest.raises(ImportError):
        run(write(tmp_path, "from tinygrad import nothing_of_this_name"))
    assert before == (sys.argv, sys.path, sys.meta_path, Device.DEFAULT)
    monkeypatch.delitem(sys.modules, "tinygrad")


def test_threads_of_a_script_find_the_names() -> None:
    found = []

    def work() -> None:
        from tinygrad.helpers import prod

        found.append(prod([2, 3]))

    with installed():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [6]


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(DataError, match="no such script"):
        run("nowhere.py")


def test_mnist_from_the_cache_folder(tmp_path: Path) -> None:
    place = tmp_path / "datasets" / "mnist"
    place.mkdir(parents=True)
    images = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    labels = np.array([1, 0, 9], np.uint8)
    for name, x in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes([0, 0, 8, x.ndim]) + b"".join(n.to_bytes(4, "big") for n in x.shape)
        for part in ("train", "t10k"):
            (place / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(head + x.tobytes()))
    script = write(
        tmp_path,
        "from tinygrad import dtypes\n"
        "from tinygrad.nn.datasets import mnist\n"
        "X_train, Y_train, X_test, Y_test = mnist()\n"
        "assert X_train.shape == (3, 1, 2, 2) and X_train.dtype == dtypes.uint8\n"
        "x, y = X_test.numpy(), Y_train.numpy()\n",
    )
    with Context(CACHE=str(tmp_path)):
        names = run(script)
    np.testing.assert_array_equal(names["x"], images[:, None])
    np.testing.assert_array_equal(names["y"], labels)
    with Context(CACHE=str(tmp_path / "empty")), pytest.raises(DataError, match="put the four"):
        run(script)


def test_cifar_from_the_archive_that_was_fetched(tmp_path: Path) -> None:
    rows = np.arange(12 * 3073, dtype=np.uint64).reshape(12, 3073).astype(np.uint8)
    names = [*[f"data_batch_{number}" for number in range(1, 6)], "test_batch"]
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    folder = tmp_path / "downloads"
    folder.mkdir()
    packed = folder / hashlib.md5(url.encode()).hexdigest()
    with tarfile.open(packed, "w:gz") as archive:
        for number, name in enumerate(names):
            content = rows[2 * number : 2 * number + 2].tobytes()
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    script = write(
        tmp_path,
        "from tinygrad.nn.datasets import cifar\n"
        "X_train, Y_train, X_test, Y_test = [each.numpy() for each in cifar()]\n",
    )
    with Context(CACHE=str(tmp_path)):
        found = run(script)
    np.testing.assert_array_equal(found["X_train"], rows[:10, 1:].reshape(10, 3, 32, 32))
    np.testing.assert_array_equal(found["Y_train"], rows[:10, 0])
    np.testing.assert_array_equal(found["X_test"], rows[10:, 1:].reshape(2, 3, 32, 32))
    np.testing.assert_array_equal(found["Y_test"], rows[10:, 0])


def test_fetch_finds_what_a_cache_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(helpers, "OSX", False)
    theirs = tmp_path / "tinygrad" / "downloads" / "models"
    theirs.mkdir(parents=True)
    (theirs / "a.bin").write_bytes(b"theirs")
    ours = tmp_path / "ours" / "downloads"
    ours.mkdir(parents=True)
    url = "https://example.com/a.bin.gz"
    with Context(CACHE=str(tmp_path / "ours")):
        assert helpers.fetch(url, "a.bin", subdir="models").read_bytes() == b"theirs"
        with pytest.raises(DataError, match="opens no connection") as caught:
            helpers.fetch(url)
        # What the message says to do helps.
        place = Path(str(caught.value.details["looked_for"]).split()[0])
        assert place.parent == ours and f"-o '{place}'" in str(caught.value)
        place.write_bytes(gzip.compress(b"unpacked"))
        assert helpers.fetch(url) == place
        assert helpers.fetch(url, gunzip=True).read_bytes() == b"unpacked"
        place.write_bytes(b"no gzip")
        with pytest.raises(DataError, match="not a gzip file"):
            helpers.fetch(url, gunzip=True)
        with pytest.raises(DataError, match="no such file"):
            helpers.fetch("file:///nowhere/at/all")
    assert os.listdir(theirs) == ["a.bin"]


def test_a_step_outside_training_is_refused_to_scripts_of_tinygrad(tmp_path: Path) -> None:
    """tinygrad's own rule; tilegrad's optimizers ask for no mode."""
    script = write(
        tmp_path,
        "from tinygrad import Tensor, nn\n"
        "w = Tensor([1.0], requires_grad=True)\n"
        "optimizer = nn.optim.SGD([w], lr=0.5)\n"
        "w.sum().backward()\n"
        "try:\n    optimizer.step()\n    refused = ''\n"
        "except Exception as error:\n    refused = str(error)\n"
        "with Tensor.train():\n    optimizer.step()\n"
        "value = w.item()\n",
    )
    found = run(script)
    assert found["refused"].startswith("SGD.step: Tensor.training is off")
    assert found["value"] == 0.5


@pytest.mark.parametrize("module", [name for name in MODULES if any(MODULES[name])])
def test_every_name_that_is_listed_is_somewhere(module: str) -> None:
    for name in filter(None, MODULES[module]):
        assert find(module, name) is not None, name
