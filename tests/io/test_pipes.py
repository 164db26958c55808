"""A pipe in place of a file is refused at once: opening one waits until somebody writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilegrad.base.errors import DataError
from tilegrad.nn.state import gguf_load, safe_load, torch_load


@pytest.mark.parametrize(
    ("load", "name"),
    [(safe_load, "x.safetensors"), (gguf_load, "x.gguf"), (torch_load, "x.pt")],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused(
    tmp_path: Path, load: Callable[[Any], Any], name: str, kind: str
) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="a pipe, a socket or a device"):
        load(path)
