"""The data sets: which place is taken, what is refused, and that nothing half-done stays behind.

No test leaves this machine: downloads come from a server on 127.0.0.1.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import importlib.util
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad.base.config import Context
from tilegrad.base.errors import DataError
from tilegrad.nn import datasets
from tilegrad.nn.datasets import Dataset, digits, fashion_mnist, mnist

TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
FASHION_MNIST = datasets._FASHION_MNIST
NOBODY = "http://127.0.0.1:9"  # the discard port: no server of ours


def idx(values: np.ndarray[Any, Any]) -> bytes:
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


PIXELS = np.arange(5 * 4 * 3).reshape(5, 4, 3)
LABELS = np.array([3, 1, 4, 1, 5])
UNPACKED = dict(zip(FILES, map(idx, (PIXELS, LABELS, PIXELS[:2] + 9, LABELS[:2] + 4)), strict=True))
PACKED = {name: gzip.compress(raw, mtime=0) for name, raw in UNPACKED.items()}
SUMS = {name: hashlib.sha256(raw).hexdigest() for name, raw in UNPACKED.items()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache folder; and no Debian package unless a test says so, and no proxy."""
    monkeypatch.setenv("no_proxy", "*")
    fashion = dataclasses.replace(FASHION_MNIST, installed=tmp_path / "debian")
    monkeypatch.setattr(datasets, "_FASHION_MNIST", fashion)
    with Context(CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache" / "datasets"


def fill(place: Path, files: dict[str, bytes] = PACKED) -> Path:
    place.mkdir(parents=True)
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


class Server:
    """Serves `files` below any folder; remembers what was asked for."""

    def __init__(self, files: dict[str, bytes]):
        self.files, self.asked = files, list[str]()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                content = outer.files.get(self.path.rpartition("/")[2])
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *args: object) -> None:
                pass

        self.http = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/data"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(dict(PACKED))
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def check(found: Dataset, place: Path) -> None:
    assert found.source == str(place)
    assert found.peak == 255
    assert len(found.classes) == 10
    assert found.x_train.dtype == found.x_test.dtype == np.uint8
    assert found.y_train.dtype == found.y_test.dtype == np.int32
    assert np.array_equal(found.x_train, PIXELS)
    assert np.array_equal(found.y_train, LABELS)
    assert np.array_equal(found.x_test, PIXELS[:2] + 9)
    assert np.array_equal(found.y_test, LABELS[:2] + 4)


def test_digits_are_the_ones_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    found = digits()
    order = np.random.RandomState(0).permutation(1797)
    x = np.concatenate([found.x_train, found.x_test])
    assert np.array_equal(x.reshape(1797, 64), images[order])
    assert np.array_equal(np.concatenate([found.y_train, found.y_test]), labels[order])
    assert found.x_train.shape == (1437, 8, 8)
    assert found.x_test.shape == (360, 8, 8)
    assert found.x_train.dtype == np.uint8
    assert found.y_train.dtype == np.int32
    assert found.peak == x.max() == 16


def test_the_split_of_the_digits_never_changes() -> None:
    found = digits()
    arrays = (found.x_train, found.y_train, found.x_test, found.y_test)
    raw = b"".join(array.astype(np.uint8).tobytes() for array in arrays)
    assert hashlib.sha256(raw).hexdigest() == (
        "25bb209edf45b4003a539309c103e25e19c4f663e9b7887c34213131060a2cfc"
    )


def test_digits_load_no_scikit_learn() -> None:
    code = "import sys; from tilegrad.nn.datasets import digits; digits()"
    code += "; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"digits: scikit-learn.* is not installed") as caught:
        digits()
    assert "pip install" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["cannot read a file: No such file"]),
        (gzip.compress(b"1,2\n3,4\n", mtime=0), ["1,797 lines of 64 pixels", "2 lines"]),
        (gzip.compress(b"1,2\n3,x\n", mtime=0), ["1,797 lines of 64 pixels", "2 lines"]),
        (gzip.compress(("17," * 64 + "1\n").encode() * 1797, mtime=0), ["other values"]),
        (
            gzip.compress(("1," * 64 + "99999999999999999999\n").encode() * 1797, mtime=0),
            ["other values"],
        ),
        (b"not packed", ["a file is damaged", "a whole gzip file"]),
    ],
)
def test_digits_refuse_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, parts: list[str]
) -> None:
    package = fill(tmp_path / "sklearn", {"__init__.py": b""})
    file = package / "datasets" / "data" / "digits.csv.gz"
    if content is not None:
        fill(file.parent, {file.name: content})
    spec = importlib.util.spec_from_file_location("sklearn", package / "__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    with pytest.raises(DataError) as caught:
        digits()
    for part in [str(file), *parts]:
        assert part in str(caught.value)


def test_the_cache_folder_comes_first(cache: Path, tmp_path: Path) -> None:
    place = fill(cache / "fashion-mnist")
    fill(tmp_path / "debian", dict.fromkeys(FILES, b"damaged"))
    check(fashion_mnist(url=NOBODY), place)
    place = fill(cache / "mnist")
    check(mnist(url=NOBODY), place)


def test_debians_package_comes_second(cache: Path, tmp_path: Path) -> None:
    place = fill(tmp_path / "debian")
    fill(cache / "fashion-mnist", {TRAIN_X: PACKED[TRAIN_X]})
    check(fashion_mnist(url=NOBODY), place)


@pytest.mark.parametrize(("load", "name"), [(mnist, "mnist"), (fashion_mnist, "fashion-mnist")])
def test_a_download_comes_last_and_once(cache: Path, server: Server, load: Any, name: str) -> None:
    for url in (server.url, server.url + "/"):
        check(load(url=url, checksums=SUMS), cache / name)
    assert server.asked == [f"/data/{file}" for file in FILES]
    assert sorted(p.name for p in (cache / name).iterdir()) == sorted(FILES)


def test_a_download_completes_what_is_there(cache: Path, server: Server) -> None:
    place = fill(cache / "mnist", {TRAIN_X: PACKED[TRAIN_X], TEST_Y: PACKED[TEST_Y]})
    check(mnist(url=server.url, checksums=SUMS), place)
    assert server.asked == [f"/data/{TRAIN_Y}", f"/data/{TEST_X}"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (PACKED[TEST_X], ["another checksum, and was not kept", SUMS[TRAIN_Y], SUMS[TEST_X]]),
        (PACKED[TRAIN_Y][:-1], ["damaged", "a whole gzip file", "end-of-stream"]),
        (PACKED[TRAIN_Y][:15] + b"x" + PACKED[TRAIN_Y][16:], ["damaged", "a whole gzip file"]),
        (b"<html>", ["damaged", "a whole gzip file", "6 bytes"]),
        (None, ["the files are not on this machine", "404"]),
    ],
    ids=["another file", "cut", "altered", "a web page", "not found"],
)
def test_a_bad_download_is_not_kept(
    cache: Path, server: Server, content: bytes | None, parts: list[str]
) -> None:
    del server.files[TRAIN_Y]
    if content is not None:
        server.files[TRAIN_Y] = content
    with pytest.raises(DataError) as caught:
        mnist(url=server.url, checksums=SUMS)
    for part in [f"{server.url}/{TRAIN_Y}", *parts]:
        assert part in str(caught.value)
    assert [p.name for p in (cache / "mnist").iterdir()] == [TRAIN_X]


def test_a_download_is_bounded(
    cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files[TRAIN_X] = gzip.compress(bytes(100_000))
    monkeypatch.setattr(datasets, "_MAX_BYTES", 99_999)
    with pytest.raises(DataError, match="at most 99999 bytes"):
        mnist(url=server.url, checksums=SUMS)
    monkeypatch.setattr(datasets, "_MAX_PACKED_BYTES", 50)
    with pytest.raises(DataError, match="a download is too long"):
        mnist(url=server.url, checksums=SUMS)
    assert not cache.exists()


def test_originals_are_what_the_default_checksums_ask_for(cache: Path, server: Server) -> None:
    for load in (mnist, fashion_mnist):
        with pytest.raises(DataError, match="another checksum"):
            load(url=server.url)
    with pytest.raises(DataError, match="a download needs a checksum"):
        mnist(url=server.url, checksums={})
    assert not cache.exists()


def test_debians_files_have_the_default_checksums() -> None:
    place = FASHION_MNIST.installed
    if place is None or not place.is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    for file, expected in zip(FILES, FASHION_MNIST.sums, strict=True):
        raw = gzip.decompress((place / file).read_bytes())
        assert hashlib.sha256(raw).hexdigest() == expected


def test_absent_and_offline_names_the_ways_out(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        fashion_mnist(url=NOBODY)
    message = str(caught.value)
    assert message.startswith("fashion-mnist: the files are not on this machine")
    assert f"{cache / 'fashion-mnist'}, {tmp_path / 'debian'}" in message
    assert f"{NOBODY}/{TRAIN_X}: " in message
    assert "apt-get install dataset-fashion-mnist" in message
    assert f"into {cache / 'fashion-mnist'}" in message
    with pytest.raises(DataError) as caught:
        mnist(download=False)
    message = str(caught.value)
    assert "not tried, since download=False" in message
    assert f"into {cache / 'mnist'}" in message
    assert "with a connection to https://" in message
    assert not cache.exists()


def test_only_web_addresses_are_opened(tmp_path: Path) -> None:
    place = fill(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="an http or https address"):
        mnist(url=place.as_uri(), checksums=SUMS)


def test_a_cache_folder_that_cannot_be_written(tmp_path: Path, server: Server) -> None:
    (tmp_path / "plain").write_bytes(b"")
    with (
        Context(CACHE=str(tmp_path / "plain")),
        pytest.raises(DataError, match="a download could not be kept") as caught,
    ):
        mnist(url=server.url, checksums=SUMS)
    assert "TILEGRAD_CACHE" in str(caught.value)


ALTERED: dict[str, tuple[str, bytes, list[str]]] = {
    "empty": (TEST_X, b"", [TEST_X, "magic 00 00 08"]),
    "not packed": (TEST_X, UNPACKED[TEST_X], ["a whole gzip file"]),
    "cut": (TRAIN_X, PACKED[TRAIN_X][:40], [TRAIN_X, "a whole gzip file", "40 bytes"]),
    "floats": (TEST_X, b"\0\0\x0d\3" + UNPACKED[TEST_X][4:], ["magic 00 00 0d 03"]),
    "five axes": (TEST_X, b"\0\0\x08\5" + UNPACKED[TEST_X][4:], ["1 or 3 axes", "08 05"]),
    "head cut": (TEST_X, UNPACKED[TEST_X][:9], ["9 bytes"]),
    "too short": (TRAIN_X, UNPACKED[TRAIN_X][:-1], ["76 bytes for a shape of (5, 4, 3)", "75"]),
    "too long": (TRAIN_X, UNPACKED[TRAIN_X] + b"\0", ["76 bytes", "77 bytes"]),
    "sizes absurd": (TEST_X, b"\0\0\x08\3" + b"\xff" * 12, ["(4294967295, ", "16 bytes"]),
    "labels too few": (TRAIN_Y, idx(LABELS[:4]), ["images (5, 4, 3), labels (4,) up to 4"]),
    "a label too high": (TEST_Y, idx(np.array([1, 10])), ["n labels below 10", "up to 10"]),
    "images for labels": (TRAIN_Y, UNPACKED[TRAIN_X], [TRAIN_Y, "labels (5, 4, 3)"]),
    "labels for images": (TRAIN_X, UNPACKED[TRAIN_Y], ["images (5,)"]),
}


@pytest.mark.parametrize("case", ALTERED)
def test_a_damaged_file_is_refused(cache: Path, case: str) -> None:
    """The message names the file, what was expected and what is, and the remedy."""
    name, content, parts = ALTERED[case]
    packed = content if case in ("not packed", "cut") else gzip.compress(content, mtime=0)
    place = fill(cache / "mnist", PACKED | {name: packed})
    with pytest.raises(DataError) as caught:
        mnist(url=NOBODY)
    for part in [str(place), "expected:", "got:", "remedy:", *parts]:
        assert part in str(caught.value)
