"""Scripts written for tinygrad, run by tilegrad without a change.

    python -m tilegrad.compat.tinygrad script.py [arguments]

While the script runs, `tinygrad` and its modules are those of module_names.py, whatever is
installed. They are known to this process only, and gone when the script ends: so are the module
finder, the switches and the default dtypes that the script set.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tilegrad.base.config import Context
from tilegrad.compat.devices import python_device
from tilegrad.compat.environment_switches import restored_declarations
from tilegrad.compat.launcher import launch, run_script
from tilegrad.compat.module_names import MODULES, absent, find
from tilegrad.compat.numbers import restored_defaults
from tilegrad.tensor.tensor import Tensor

__all__ = ["installed", "main", "run"]


class _Names(ModuleType):
    """A module of tinygrad's: each name is looked up when it is first used."""

    def __getattr__(self, name: str) -> Any:
        try:
            found = find(self.__name__, name)
        except KeyError:
            raise AttributeError(absent(f"{self.__name__}.{name}"), name=name, obj=self) from None
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *MODULES[self.__name__]})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of module_names.py, and no other below `tinygrad`.

    `from tinygrad import x` looks for an attribute, then for a module `tinygrad.x`: so a name that
    is absent ends here too, and ImportError says what to do.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_ours(fullname):
            return None
        if fullname not in MODULES:
            raise ImportError(absent(fullname), name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Names(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are found when they are used."""


def _is_ours(fullname: str) -> bool:
    return fullname == "tinygrad" or fullname.startswith("tinygrad.")


def _forget() -> dict[str, ModuleType]:
    """Take `tinygrad` and its modules out of `sys.modules`; what was there."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}


@contextmanager
def installed() -> Iterator[None]:
    """A block in which `import tinygrad` gives tilegrad's names."""
    finder = _Finder()
    before = _forget()
    sys.meta_path.insert(0, finder)
    try:
        with restored_defaults(), restored_declarations(), python_device():
            yield
    finally:
        sys.meta_path.remove(finder)
        _forget()
        sys.modules.update(before)


def run(path: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run a script as Python would, with tinygrad's names; the names that it defined.

    Raises DataError where there is no such file, and what the script raises. An AttributeError
    about a tensor says what to do.
    """
    return run_script(path, arguments, _as_theirs)


@contextmanager
def _as_theirs() -> Iterator[None]:
    """A block in which tinygrad's names, its device and its switches hold."""
    wanted = os.environ.get("DEV", "").split(":")[0]
    try:
        # tinygrad's scripts train only where they say so.
        with installed(), Context(TRAINING=0, **({"DEVICE": wanted} if wanted else {})):
            yield
    except AttributeError as error:
        if getattr(error, "is_of_tensor", False) or isinstance(error.obj, Tensor):
            error.add_note(absent(f"tinygrad.Tensor.{error.name}"))
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    return launch(run, __doc__ or "", arguments)


if __name__ == "__main__":
    sys.exit(main())
