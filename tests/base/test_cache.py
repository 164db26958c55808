"""The disk cache: damage is a miss, writers do not meet, an unwritable folder warns once."""

from __future__ import annotations

import contextvars
import os
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilegrad.__main__ import main
from tilegrad.base import cache, trust
from tilegrad.base.config import Context


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with Context(CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def only_file(folder: Path) -> Path:
    (found,) = [path for path in folder.glob("v*/*/*/*") if path.is_file()]
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


def test_an_entry_is_read_in_its_own_size(folder: Path) -> None:
    """No buffer of the largest size that is allowed stands in memory for a moment."""
    key = cache.digest("a")
    cache.put("kernels", key, bytes(1000))
    tracemalloc.start()
    try:
        assert cache.get("kernels", key) == bytes(1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


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


# whose the folder is

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are those of POSIX")


@pytest.fixture
def warned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_warned", False)


@POSIX
def test_folders_and_files_are_the_users_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        cache.put("kernels", cache.digest("a"), b"payload")
    finally:
        os.umask(before)
    found = [folder, *folder.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}


@POSIX
@pytest.mark.usefixtures("warned_anew")
@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("depth", range(5))
def test_what_others_can_write_is_left_alone(folder: Path, depth: int, mode: int) -> None:
    """The cache folder, each folder within, the entry: one warning says which and what to do."""
    key, other = cache.digest("a"), cache.digest("b")
    cache.put("kernels", key, b"payload")
    entry = only_file(folder)
    path = [*reversed(entry.parents[:4]), entry][depth]
    path.chmod(path.stat().st_mode | mode)
    with pytest.warns(RuntimeWarning, match=f"{path} can be written by others") as caught:
        found = [cache.get("kernels", key) for _ in range(2)]
    assert found == [None, None]
    assert len(caught) == 1 and "chmod go-w" in str(caught[0].message)
    assert entry.exists()
    if depth < 3:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache.put("kernels", other, b"payload")
        assert [entry] == [p for p in folder.rglob("*") if p.is_file() and p.name != ".usage"]
    path.chmod(path.stat().st_mode & ~mode)
    assert cache.get("kernels", key) == b"payload"


@POSIX
@pytest.mark.usefixtures("warned_anew")
def test_what_belongs_to_another_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.warns(RuntimeWarning, match=f"belongs to user {mine}, not to you") as caught:
        found = [cache.get("kernels", key), cache.put("kernels", cache.digest("b"), b"payload")]
    assert found == [None, None] and len(caught) == 1
    assert only_file(folder)


@POSIX
@pytest.mark.usefixtures("warned_anew")
def test_an_entry_that_is_a_link_is_left_alone(folder: Path, tmp_path: Path) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    entry = only_file(folder)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert cache.get("kernels", key) is None
    cache.put("kernels", key, b"new")
    assert (tmp_path / "elsewhere").read_bytes().endswith(b"payload")
    assert not entry.is_symlink() and cache.get("kernels", key) == b"new"


@POSIX
@pytest.mark.usefixtures("warned_anew")
def test_a_folder_within_that_is_a_link_is_left_alone(folder: Path, tmp_path: Path) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    table = only_file(folder).parent.parent
    table.rename(tmp_path / "elsewhere")
    table.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="is a link"):
        assert cache.get("kernels", key) is None


@POSIX
def test_a_fifo_in_the_place_of_an_entry_is_a_miss(folder: Path) -> None:
    key = cache.digest("a")
    cache.put("kernels", key, b"payload")
    entry = only_file(folder)
    entry.unlink()
    os.mkfifo(entry)
    assert cache.get("kernels", key) is None


@pytest.mark.parametrize("key", ["", "../../secret", "ab/../../x", "a\0b", "..", "ä" * 40])
def test_what_is_no_key_names_no_file(folder: Path, key: str) -> None:
    cache.put("kernels", key, b"payload")
    assert cache.get("kernels", key) is None
    assert not folder.exists()


# how much it takes


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.glob("v*/*/*/*") if path.is_file()]


def on_disk(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in entries(folder))


def test_what_was_used_longest_ago_goes_at_the_limit(folder: Path) -> None:
    keys = [cache.digest(str(number)) for number in range(400)]
    with Context(CACHE_MEGABYTES=1):
        for number, key in enumerate(keys):
            cache.put("kernels", key, bytes(10_000))
            for path in entries(folder):
                if path.name == key[1:]:
                    os.utime(path, (number, number))
            # The first is used all the time.
            assert cache.get("kernels", keys[0]) is not None
            assert on_disk(folder) <= 1 << 20
    there = [number for number, key in enumerate(keys) if cache.get("kernels", key) is not None]
    assert there[0] == 0
    assert there[1:] == list(range(there[1], 400))
    assert len(there) > 60


def test_the_limit_holds_for_several_processes(folder: Path) -> None:
    script = (
        "import sys; from tilegrad.base import cache; from tilegrad.base.config import Context\n"
        f"with Context(CACHE={str(folder)!r}, CACHE_MEGABYTES=1):\n"
        "    for number in range(40): cache.put('k', cache.digest(sys.argv[1], str(number)), "
        "bytes(20_000))"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    for number in range(4):
        subprocess.run([sys.executable, "-c", script, str(number)], check=True, env=environment)
        assert on_disk(folder) <= 1 << 20
    assert on_disk(folder) > 1 << 19


def test_without_a_limit_all_stays(folder: Path) -> None:
    with Context(CACHE_MEGABYTES=0):
        for number in range(300):
            cache.put("kernels", cache.digest(str(number)), bytes(10_000))
    assert len(entries(folder)) == 300


def test_the_next_writer_removes_what_a_killed_one_left(folder: Path) -> None:
    cache.put("kernels", cache.digest("a"), b"payload")
    (version,) = folder.iterdir()
    old, new = version / ".part-1-abc", version / ".part-2-abc"
    for path in (old, new):
        path.write_bytes(b"half of it")
    os.utime(old, (time.time() - 3600,) * 2)
    script = (
        "from tilegrad.base import cache; from tilegrad.base.config import Context\n"
        f"with Context(CACHE={str(folder)!r}): cache.put('k', cache.digest('b'), b'')"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert not old.exists() and new.exists()


def test_a_write_that_fails_leaves_no_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_warned", False)
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.put("kernels", cache.digest("a"), b"payload")
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_usage_counts_what_is_there_and_clear_removes_it(folder: Path) -> None:
    assert cache.usage() == cache.clear() == ({}, 0, 1024 << 20)
    cache.put("kernels", "a1", b"x" * 5000)
    cache.put("kernels", "b2", b"x")
    cache.put("plans", "a1", b"x")
    with Context(CACHE_MEGABYTES=3):
        assert cache.usage() == ({"kernels": 2, "plans": 1}, 4 * 4096, 3 << 20)
    assert cache.clear().entries == {"kernels": 2, "plans": 1}
    assert cache.usage().entries == {} and cache.get("kernels", "a1") is None
    # And it is used again.
    cache.put("plans", "a1", b"y")
    assert cache.get("plans", "a1") == b"y"


def test_the_command_says_where_and_how_much(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.put("plans", "a1", b"x")
    for arguments, wanted in ((["cache"], "holds    1 entries (1 plans)"),
                              (["cache", "--clear"], "removed  1 entries (1 plans)"),
                              (["cache"], "holds    0 entries")):  # fmt: skip
        assert main(arguments) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == f"folder   {folder}" and printed[1] == wanted
        assert printed[3].startswith("limit    1074 MB (TILEGRAD_CACHE_MEGABYTES;")
