"""Images to train on, as NumPy arrays: real ones, from files.

`digits` is inside the scikit-learn wheel and needs no network. `mnist` and `fashion_mnist` are four
files each, looked for in the cache folder, then where a Debian package puts them, then downloaded
into the cache folder. A download counts only if its checksum is right, and no length that a file
states is believed beyond a limit.

Import this module by its name (`from tilegrad.nn.datasets import mnist`): it loads network code,
which `import tilegrad` shall not.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import importlib.util
import io
import math
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilegrad.base import cache
from tilegrad.base.errors import DataError
from tilegrad.io.atomic import atomic_write

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["FASHION_MNIST_URL", "MNIST_URL", "Dataset", "digits", "fashion_mnist", "mnist"]

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"

# The largest real file is 26 MB, unpacked 47 MB.
_MAX_PACKED_BYTES = 1 << 26
_MAX_BYTES = 1 << 28
_TIMEOUT_S = 20


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images for training and test.

    Args:
        name: name of the data set.
        source: where it comes from.
        x_train: uint8 (images, rows, columns), 0 to `peak`.
        y_train: int32 (images,), the class of each.
        x_test: as `x_train`.
        y_test: as `y_train`.
        classes: names of the classes.
        peak: the largest value of a pixel.

    Shape: arrays of NumPy, of the shapes named above.

    >>> data = nn.datasets.digits()
    >>> len(data.x_train), len(data.x_test), data.peak
    (1437, 360, 16)
    """

    name: str
    source: str
    x_train: npt.NDArray[np.uint8]
    y_train: npt.NDArray[np.int32]
    x_test: npt.NDArray[np.uint8]
    y_test: npt.NDArray[np.int32]
    classes: tuple[str, ...]
    peak: int


def digits() -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, 0 to 16, that scikit-learn carries (UCI Optical
    Recognition of Handwritten Digits, 1998).

    Returns a `Dataset`: x uint8 (1437, 8, 8) and (360, 8, 8), y int32.

    Raises DataError where scikit-learn is not installed.

    >>> nn.datasets.digits().x_train.shape
    (1437, 8, 8)
    """
    import numpy as np

    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError(
            "digits: scikit-learn, whose files hold the images, is not installed",
            remedy="pip install scikit-learn, or pip install 'tilegrad[demo]'",
        )
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    lines = _unpack(_read(path), path).decode("ascii", "replace").split()
    try:
        table = np.array([[int(text) for text in line.split(",")] for line in lines], np.int64)
        pixels, labels = table[:, :64], table[:, 64]
        fits = table.shape == (1797, 65) and table.min() >= 0
    except (ValueError, OverflowError, IndexError):
        fits = False
    if not fits or pixels.max() > 16 or labels.max() > 9:
        raise DataError(
            "digits: the file is not the one that scikit-learn ships",
            file=path,
            expected="1,797 lines of 64 pixels, 0 to 16, and a digit",
            got=f"{len(lines)} lines, or other values in them",
            remedy="pip install --force-reinstall scikit-learn",
        )
    order = np.random.RandomState(0).permutation(1797)
    x = pixels.reshape(-1, 8, 8)[order].astype(np.uint8)
    y = labels[order].astype(np.int32)
    names = tuple("0123456789")
    return Dataset("digits", str(path), x[:1437], y[:1437], x[1437:], y[1437:], names, peak=16)


# Images and labels for training, then for the test.
_FILES = (
    "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)  # fmt: skip


@dataclass(frozen=True)
class _Source:
    """Where a set of four files may be. `sums` are the SHA-256 of the unpacked files."""

    name: str
    classes: tuple[str, ...]
    sums: tuple[str, str, str, str]
    url: str
    installed: Path | None = None
    package: str | None = None


# The sums are of the unpacked files because mirrors and Debian pack them in their own ways. Those
# of MNIST are what many projects publish, all alike; those of Fashion-MNIST are of Debian's files.
_MNIST = _Source(
    name="mnist",
    classes=tuple("0123456789"),
    sums=(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    url=MNIST_URL,
)
_FASHION_MNIST = _Source(
    name="fashion-mnist",
    classes=(
        "T-shirt", "trouser", "pullover", "dress", "coat",
        "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
    sums=(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    url=FASHION_MNIST_URL,
    installed=Path("/usr/share/datasets/fashion-mnist"),
    package="dataset-fashion-mnist",
)  # fmt: skip


def mnist(
    *, download: bool = True, url: str | None = None, checksums: Mapping[str, str] | None = None
) -> Dataset:
    """MNIST: 60,000 handwritten digits of 28x28 pixels for training, 10,000 for the test (LeCun et
    al. 1998).

    They are read from `<cache folder>/datasets/mnist`; where that is not complete, 11 MB are
    downloaded into it.

    Args:
        download: whether to download.
        url: where from, by default `MNIST_URL`.
        checksums: SHA-256 of the unpacked files by the packed ones' names; by default those of the
            originals.

    Returns a `Dataset`: x uint8 (n, 28, 28), y int32 (n,).

    Raises DataError for files that are absent, damaged or have another checksum.
    """
    return _images(_MNIST, download, url, checksums)


def fashion_mnist(
    *, download: bool = True, url: str | None = None, checksums: Mapping[str, str] | None = None
) -> Dataset:
    """Fashion-MNIST: 60,000 pictures of clothes of 28x28 pixels for training, 10,000 for the test
    (Xiao et al. 2017, arXiv:1708.07747).

    They are read from `<cache folder>/datasets/fashion-mnist`, else from where Debian's
    `dataset-fashion-mnist` puts them; where neither is complete, 30 MB are downloaded into the
    former.

    Args:
        download: whether to download.
        url: where from, by default `FASHION_MNIST_URL`.
        checksums: as for `mnist`.

    Returns a `Dataset`: x uint8 (n, 28, 28), y int32 (n,).

    Raises DataError for files that are absent, damaged or have another checksum.
    """
    return _images(_FASHION_MNIST, download, url, checksums)


def _images(
    source: _Source, download: bool, url: str | None, checksums: Mapping[str, str] | None
) -> Dataset:
    cached = cache.folder() / "datasets" / source.name
    folder = next((p for p in (cached, source.installed) if p and _is_complete(p)), None)
    if folder is None:
        if not download:
            raise _absent(source, cached, "not tried, since download=False")
        sums = dict(zip(_FILES, source.sums, strict=True)) if checksums is None else checksums
        for file in _FILES:
            if not (cached / file).is_file():
                _download(source, cached / file, url or source.url, sums.get(file))
        folder = cached
    x_train, y_train, x_test, y_test = (_parse_idx(folder / file) for file in _FILES)
    for x, y, file in ((x_train, y_train, _FILES[1]), (x_test, y_test, _FILES[3])):
        if x.ndim != 3 or y.shape != x.shape[:1] or y.max(initial=0) >= len(source.classes):
            raise DataError(
                f"{source.name}: images and labels do not belong together",
                file=folder / file,
                expected=f"(n, rows, columns) images and n labels below {len(source.classes)}",
                got=f"images {x.shape}, labels {y.shape} up to {y.max(initial=0)}",
                remedy=_replace_hint(folder),
            )
    y_train, y_test = y_train.astype("int32"), y_test.astype("int32")
    return Dataset(
        source.name, str(folder), x_train, y_train, x_test, y_test, source.classes, peak=255
    )


def _is_complete(folder: Path) -> bool:
    return all((folder / file).is_file() for file in _FILES)


def _download(source: _Source, path: Path, folder_url: str, checksum: str | None) -> None:
    """Get `path` from below `folder_url`, if its unpacked bytes have the `checksum`."""
    url = f"{folder_url.rstrip('/')}/{path.name}"
    if checksum is None:
        raise DataError(
            f"{source.name}: a download needs a checksum",
            url=url,
            remedy=f"checksums={{{path.name!r}: SHA-256 of the unpacked file, ...}}",
        )
    if not url.startswith(("http://", "https://")):
        raise DataError(
            f"{source.name}: cannot download from {url}", expected="an http or https address"
        )
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            packed: bytes = answer.read(_MAX_PACKED_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _absent(source, path.parent, f"{url}: {error}") from error
    if len(packed) > _MAX_PACKED_BYTES:
        raise DataError(
            f"{source.name}: a download is too long",
            url=url,
            expected=f"at most {_MAX_PACKED_BYTES} bytes",
        )
    found = hashlib.sha256(_unpack(packed, url)).hexdigest()
    if found != checksum:
        raise DataError(
            f"{source.name}: a download has another checksum, and was not kept",
            url=url,
            expected=checksum,
            got=found,
            remedy="try again, or from another url=",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(packed)
    except OSError as error:
        raise DataError(
            f"{source.name}: a download could not be kept: {error.strerror or error}",
            file=path,
            needed=f"{len(packed)} bytes",
            remedy="free space on the disk, or name another folder in TILEGRAD_CACHE",
        ) from error


def _absent(source: _Source, cached: Path, download: str) -> DataError:
    looked_in = str(cached)
    ways = [f"put the four files ({', '.join(_FILES)}) into {cached}"]
    if source.installed:
        looked_in += f", {source.installed}"
        ways.insert(0, f"apt-get install {source.package}")
    else:
        ways.append(f"run once with a connection to {source.url}")
    return DataError(
        f"{source.name}: the files are not on this machine, and were not downloaded",
        looked_in=looked_in,
        download=download,
        remedy="; or ".join(ways),
    )


def _parse_idx(path: Path) -> npt.NDArray[Any]:
    """The bytes of a packed IDX file, in the shape that its head states.

    Two zero bytes, 8 for bytes, the number of axes; then each size in 4 bytes, most significant
    first; then the values.
    """
    import numpy as np

    raw = _unpack(_read(path), path)
    axes = raw[3] if len(raw) >= 4 else 0
    if raw[:3] != b"\0\0\x08" or axes not in (1, 3):
        raise _damaged(path, "magic 00 00 08 and 1 or 3 axes", f"magic {raw[:4].hex(' ')}")
    head = 4 + 4 * axes
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, head, 4))
    if len(raw) < head or len(raw) - head != math.prod(shape):
        expected = f"{head + math.prod(shape)} bytes for a shape of {shape}"
        raise _damaged(path, expected, f"{len(raw)} bytes")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_PACKED_BYTES)
    except OSError as error:
        raise DataError(f"datasets: cannot read a file: {error.strerror}", file=path) from error


def _unpack(packed: bytes, origin: Path | str) -> bytes:
    try:
        with gzip.open(io.BytesIO(packed)) as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(origin, "a whole gzip file", f"{len(packed)} bytes: {error}") from error
    if len(raw) > _MAX_BYTES:
        raise _damaged(origin, f"at most {_MAX_BYTES} bytes", "more, unpacked")
    return raw


def _damaged(origin: Path | str, expected: str, got: str) -> DataError:
    remedy = _replace_hint(origin.parent) if isinstance(origin, Path) else "try again"
    return DataError(
        "datasets: a file is damaged", file=origin, expected=expected, got=got, remedy=remedy
    )


def _replace_hint(folder: Path) -> str:
    return f"replace the file, or remove it from {folder} and run again"
