"""Devices that other packages bring: an entry point of the group `tilegrad.devices`, or a file that
TILEGRAD_DEVICES lists.

    [project.entry-points."tilegrad.devices"]
    MINE = "my_package.device:backend"

    TILEGRAD_DEVICES=/home/me/mine.py:/home/me/other.py      MINE and OTHER

The name of an entry point is the kind; of a file it is the file's name. Either has a function
`backend(name, runtime=None) -> Backend`. Nothing is imported before a device of the kind is opened,
and installed packages are not looked through before a kind is asked for that tilegrad has not.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import DeviceError, TilegradError
from tilegrad.device.backend import Backend
from tilegrad.device.foreign_hooks import raised_in

__all__ = ["GROUP", "Source", "by_sources", "listed_files", "outside"]

GROUP = "tilegrad.devices"

Source = Callable[[], Callable[..., Backend]]
"""Imports the module of an outside device, and gives its factory."""


def outside() -> Mapping[str, Source]:
    """The kinds from outside, by name: those of files, then of installed packages."""
    return {**_installed(tuple(sys.path)), **listed_files()}


def listed_files() -> dict[str, Source]:
    """The kinds of the files that TILEGRAD_DEVICES lists."""
    paths = [path for path in config.DEVICES.split(os.pathsep) if path]
    return {Path(path).stem.upper(): functools.partial(_of_file, path) for path in paths}


@functools.cache
def _installed(path: tuple[str, ...]) -> dict[str, Source]:
    """The kinds of the packages on `path`, which is `sys.path` as it is now."""
    from importlib.metadata import entry_points

    return {
        point.name.upper(): functools.partial(_of_entry_point, point)
        for point in entry_points(group=GROUP)
    }


def _of_file(path: str) -> Callable[..., Backend]:
    kind = Path(path).stem.upper()
    if not os.path.isfile(path):
        raise DeviceError(f"device: {kind} has no file", path=path, remedy="see TILEGRAD_DEVICES")
    name = f"tilegrad_device_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DeviceError(f"device: {kind} is no Python file", path=path)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles find a class's module by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        # Code of others: the error says whose.
        del sys.modules[name]
        raise _not_imported(kind, path, error) from error
    return _marked(kind, path, getattr(module, "backend", None), [Path(path)])


def _of_entry_point(point: Any) -> Callable[..., Backend]:
    try:
        factory = point.load()
    except Exception as error:
        # As above.
        raise _not_imported(point.name.upper(), point.value, error) from error
    module = sys.modules[point.module]
    file = Path(module.__file__ or "")
    is_package = bool(module.__package__)
    sources = sorted(file.parent.rglob("*.py")) if is_package else [file]
    return _marked(point.name.upper(), point.value, factory, sources)


def _not_imported(kind: str, where: str, error: Exception) -> DeviceError:
    return DeviceError(
        f"device: {kind} cannot be imported: {type(error).__name__}: {error}",
        found_in=where,
        raised_in=raised_in(error),
    )


def _marked(kind: str, where: str, factory: Any, sources: Sequence[Path]) -> Callable[..., Backend]:
    """The factory whose back ends are kept apart by the device's sources: code compiled before
    these were edited is stale.
    """
    if not callable(factory):
        raise DeviceError(
            f"device: {kind} has no function backend",
            found_in=where,
            rule="backend(name, runtime=None) gives a Backend; see docs/adding-a-device.md",
        )

    @functools.wraps(factory)
    def opened(*arguments: Any, **options: Any) -> Backend:
        try:
            found = factory(*arguments, **options)
        except TilegradError:
            raise
        except Exception as error:
            raise DeviceError(
                f"device: {kind} cannot be opened: {type(error).__name__}: {error}",
                found_in=where,
                raised_in=raised_in(error),
            ) from error
        if not isinstance(found, Backend):
            raise DeviceError(
                f"device: {kind}: backend gives {type(found).__name__}, not a Backend",
                found_in=where,
            )
        return replace(found, compiler=f"{found.compiler} {_digest(sources)}".strip())

    return opened


def by_sources(backend: Backend, factory: Any, count: int) -> Backend:
    """The back end of a registered factory, kept apart from others of its name: by the files of its
    functions, and by how many of the name the process has opened before. Where there is no file, it
    shares no compiled code with another process.
    """
    functions = [getattr(each, "func", each) for each in (factory, backend.render, backend.compile)]
    files = [Path(code.co_filename) for each in functions if (code := _code_of(each)) is not None]
    known = [file for file in files if file.is_file()]
    mark = _digest(known) if known == files else secrets.token_hex(8)
    return replace(backend, compiler=f"{backend.compiler} {mark} {count or ''}".strip())


def _code_of(function: Any) -> CodeType | None:
    """The code behind wrappers, or None where it is not Python's."""
    return getattr(inspect.unwrap(function), "__code__", None)


def _digest(sources: Sequence[Path]) -> str:
    """Changes with any of the files."""
    states = [(str(path), path.stat()) for path in sources]
    text = "".join(f"{name}{state.st_size}{state.st_mtime_ns}" for name, state in states)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
