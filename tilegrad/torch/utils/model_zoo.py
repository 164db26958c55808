"""`torch.utils.model_zoo`, what `torch.hub` has for weights under its older name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


if not TYPE_CHECKING:
    _refuse = refusing(__name__)

    def __getattr__(name: str) -> Any:
        if name == "tqdm":
            # The package of that name, where it is installed.
            return importlib.import_module("tqdm").tqdm
        return _refuse(name)
