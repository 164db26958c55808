"""The page for PyTorch's users: every name that it gives is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "from-pytorch.md"


def test_every_name_exists() -> None:
    names = re.findall(r"^\| `torch\.[\w.]+` \| `tilegrad\.([\w.]+)` \|", PAGE.read_text(), re.M)
    assert len(names) > 150
    missing = []
    for name in names:
        found: object = importlib.import_module("tilegrad")
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert not missing
