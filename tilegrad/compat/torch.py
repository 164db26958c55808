"""Scripts written for PyTorch, run by tilegrad without a change.

    python -m tilegrad.compat.torch script.py [arguments]

While the script runs, `torch` and its modules are those of `tilegrad.torch`, whatever is installed.
They are known to this process only, and gone when the script ends.
"""

from __future__ import annotations

import contextvars
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

import tilegrad
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError
from tilegrad.device.registry import Device
from tilegrad.torch.absent import hint_of

__all__ = ["installed", "main", "run"]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `torch` and what is below it, and nothing else: each is the module of tilegrad.torch
    with that name.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_theirs(fullname):
            return None
        if importlib.util.find_spec(_ours(fullname)) is None:
            hint = hint_of(fullname) or "docs/moving-from-pytorch.md says what there is"
            raise ModuleNotFoundError(f"{fullname}: not in tilegrad.torch; {hint}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ours(spec.name))
        # The import gives the module the spec of the name that was asked for.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing but its own spec back: the module has run."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _is_theirs(fullname: str) -> bool:
    return fullname == "torch" or fullname.startswith("torch.")


def _ours(fullname: str) -> str:
    return f"tilegrad.{fullname}"


def _forget() -> dict[str, ModuleType]:
    """Take `torch` and its modules out of `sys.modules`; what was there."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_theirs(name)}


@contextmanager
def installed() -> Iterator[None]:
    """A block in which `import torch` gives tilegrad's names."""
    finder = _Finder()
    before, default = _forget(), dtypes.default_float
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget()
        sys.modules.update(before)
        setattr(dtypes, "default_float", default)  # noqa: B010


def run(path: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run a script as Python would, with PyTorch's names; the names that it defined.

    Raises DataError where there is no such file, and what the script raises.
    """
    if not os.path.isfile(path):
        raise DataError("compat: there is no such script", file=path)
    return contextvars.copy_context().run(_run, path, arguments)


def _run(path: str, arguments: Sequence[str]) -> dict[str, Any]:
    argv, places, device = sys.argv, sys.path[:], Device._default
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        with installed():
            return runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:], Device._default = argv, places, device


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr if not given else sys.stdout)
        return 0 if given else 2
    if not os.path.isfile(given[0]):
        print(f"compat: there is no such script: {given[0]}", file=sys.stderr)
        return 2
    # As `python script.py`: the script's folder stands first, not the folder of the moment.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        first = os.path.abspath(sys.path.pop(0))
        if first == os.path.dirname(os.path.dirname(tilegrad.__file__)):
            sys.path.append(first)
    try:
        run(given[0], given[1:])
    except Exception as error:
        traceback.print_exception(error.with_traceback(_from(given[0], error.__traceback__)))
        return 1
    return 0


def _from(path: str, trace: TracebackType | None) -> TracebackType | None:
    """The part of a trace that begins in the file `path`, or all of it."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename != path:
        part = part.tb_next
    return part or trace


if __name__ == "__main__":
    sys.exit(main())
