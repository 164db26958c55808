"""The disk cache: damage is a miss, writers do not meet, an unwritable folder warns once."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilegrad.base import cache
from tilegrad.base.config import Context


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with Context(CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def only_file(folder: Path) -> Path:
    (found,) = [path for path in folder.rglob("*") if path.is_file()]
    return found


def test_put_and_get(folder: Path) -> None:
    key = cache.digest("a")
    assert cache.get("kernels", key) is None
    assert not folder.exists()
    cache.put("kernels", key, b"payload")
    assert cache.get("kernels", key) == b"payload"
    assert cache.get("other", key) is None
    cache.put("kernels", key, b"")
    assert cache.get("kernels", key) == b""


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 40])
def test_damaged_entry_is_a_miss_and_goes(folder: Path, damage: bytes) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    path = only_file(folder)
    path.write_bytes(damage)
    assert cache.get("kernels", key) is None
    assert not path.exists()
    cache.put("kernels", key, b"payload")
    assert cache.get("kernels", key) == b"payload"


def test_truncated_entry_is_a_miss(folder: Path) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, bytes(1000))
    path = only_file(folder)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get("kernels", key) is None


def test_writers_do_not_meet(folder: Path) -> None:
    """Readers see one whole entry or another, and nothing is left over."""
    key = cache.digest("a")
    payloads = [bytes([number]) * 5000 for number in range(8)]
    seen: set[bytes | None] = set()

    def work(payload: bytes) -> None:
        for _ in range(30):
            cache.put("kernels", key, payload)
            seen.add(cache.get("kernels", key))

    # A thread has switches of its own: each gets a copy of this one's.
    contexts = [contextvars.copy_context() for _ in payloads]
    threads = [
        threading.Thread(target=context.run, args=(work, payload))
        for context, payload in zip(contexts, payloads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= set(payloads)
    only_file(folder)


def test_unwritable_folder_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(cache, "_warned", False)
    with Context(CACHE=str(blocked)):
        with pytest.warns(RuntimeWarning, match="cannot be written .*set TILEGRAD_CACHE"):
            cache.put("kernels", cache.digest("a"), b"payload")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache.put("kernels", cache.digest("a"), b"payload")
        assert cache.get("kernels", cache.digest("a")) is None


@pytest.mark.row("F4.8")
def test_switched_off(folder: Path) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    with Context(DISABLE_COMPILER_CACHE=1):
        assert cache.get("kernels", key) is None
        cache.put("kernels", cache.digest("b"), b"payload")
    assert cache.get("kernels", cache.digest("b")) is None
    assert cache.get("kernels", key) == b"payload"


def test_another_process_reads_it(folder: Path) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    script = (
        "from tilegrad.base import cache; from tilegrad.base.config import Context\n"
        f"with Context(CACHE={str(folder)!r}): print(cache.get('kernels', {key!r}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert result.stdout == "b'payload'\n"


def test_digest_tells_parts_apart() -> None:
    parts = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), (b"abc",), ("abd",)]
    digests = [cache.digest(*part) for part in parts]
    assert len(set(digests)) == 5
    assert cache.digest("abc") == cache.digest(b"abc")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_default_folder(monkeypatch: pytest.MonkeyPatch, platform: str, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    with Context(CACHE=""):
        assert tmp_path in cache.folder().parents
        assert "tilegrad" in str(cache.folder())


def test_cache_home_of_the_desktop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Context(CACHE=""):
        assert cache.folder() == tmp_path / "tilegrad"
