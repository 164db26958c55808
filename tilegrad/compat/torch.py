"""Scripts written for PyTorch, run by tilegrad without a change.

    python -m tilegrad.compat.torch script.py [arguments]

While the script runs, `torch` and its modules are those of `tilegrad.torch`, whatever is installed.
They are known to this process only, and gone when the script ends.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.compat.launcher import launch, run_script
from tilegrad.torch.version import __version__ as torch_version

__all__ = ["installed", "main", "run"]


class _Distribution(importlib.metadata.Distribution):
    """The installed package that libraries ask for before they look for PyTorch, with its
    version.
    """

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {torch_version}\n"

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parents[1].joinpath(path)


class _Finder(importlib.metadata.DistributionFinder, importlib.abc.Loader):
    """Finds `torch` and what is below it, and nothing else: each is the module of tilegrad.torch
    with that name.
    """

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        name = None if context is None else context.name
        return [_Distribution()] if name in (None, "torch") else []

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_theirs(fullname):
            return None
        # Raises an error that says what to do, where there is none.
        importlib.util.find_spec(_ours(fullname))
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
    return run_script(path, arguments, installed)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    return launch(run, __doc__ or "", arguments)


if __name__ == "__main__":
    sys.exit(main())
