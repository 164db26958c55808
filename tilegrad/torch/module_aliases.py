"""Modules under further names: `torch.nn.modules.conv` holds what `torch.nn` does."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["also_known"]


class _Names(ModuleType):
    """A module whose names are those of another, and a few of its own."""

    def __init__(self, name: str, source: ModuleType, own: Mapping[str, Any]):
        super().__init__(name, source.__doc__)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.__dict__.update(own)
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        return getattr(self._source, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._source)})


def also_known(
    module: str,
    names: Iterable[str],
    source: ModuleType | None = None,
    own: Mapping[str, Any] | None = None,
) -> None:
    """Let `module.name` be a module with the names of `source`, or of `module` itself, and with
    `own`, for each of `names`. A function of that name stays what the module has.
    """
    package = sys.modules[module]
    for name in names:
        made = _Names(f"{module}.{name}", source or package, own or {})
        sys.modules[made.__name__] = made
        if name not in package.__dict__:
            setattr(package, name, made)
