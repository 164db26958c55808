"""The command line of a launcher: a script, its arguments, and what is shown of its errors."""

from __future__ import annotations

import contextvars
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import tilegrad
from tilegrad.base.errors import DataError
from tilegrad.device.registry import Device

__all__ = ["launch", "run_script"]


def run_script(
    path: str, arguments: Sequence[str], block: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    """Run a script as Python would, in what `block` gives; the names that it defined. State that it
    sets for its thread (switches, Tensor.training) stays in a context of its own.

    Raises DataError where there is no such file, and what the script raises.
    """
    if not os.path.isfile(path):
        raise DataError("compat: there is no such script", file=path)
    return contextvars.copy_context().run(_run, path, arguments, block)


def _run(
    path: str, arguments: Sequence[str], block: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    argv, search_path, device = sys.argv, sys.path[:], Device._default
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        with block():
            return runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:], Device._default = argv, search_path, device


def launch(
    run: Callable[[str, Sequence[str]], object], usage: str, arguments: Sequence[str] | None
) -> int:
    """Run a script by `run`, given its path and arguments; the exit status. `arguments` are those
    of the process if None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(usage, file=sys.stderr if not given else sys.stdout)
        return 0 if given else 2
    if not os.path.isfile(given[0]):
        print(f"compat: there is no such script: {given[0]}", file=sys.stderr)
        return 2
    # As `python script.py`: the script's folder stands first, not the folder of the moment.
    # If tilegrad itself was found in the latter, that is still looked in, last.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        first = os.path.abspath(sys.path.pop(0))
        if first == os.path.dirname(os.path.dirname(tilegrad.__file__)):
            sys.path.append(first)
    try:
        run(given[0], given[1:])
    except Exception as error:
        # As Python would print it: from the script's first line on, without the launcher.
        traceback.print_exception(error.with_traceback(_from(given[0], error.__traceback__)))
        return 1
    return 0


def _from(path: str, trace: TracebackType | None) -> TracebackType | None:
    """The part of a trace that begins in the file `path`, or all of it."""
    entry = trace
    while entry is not None and entry.tb_frame.f_code.co_filename != path:
        entry = entry.tb_next
    return entry or trace
