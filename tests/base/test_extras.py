"""Test files import what the extra `test` installs; peers are asked for, skipped where absent."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# What only the extra `peers` installs.
PEERS = {"jax", "onnx", "onnxruntime", "tinygrad", "torch", "torchvision"}
FOLDERS = sorted({p.parent for p in TESTS.rglob("test_*.py")} | {TESTS})


def imported(tree: ast.Module) -> set[str]:
    """The packages that run when the module is imported, of its statements outside functions."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(TESTS)))
def test_peers_are_skipped_where_absent(folder: Path) -> None:
    files = [*folder.glob("test_*.py"), *folder.glob("conftest.py")]
    found = {p.name: imported(ast.parse(p.read_text("utf-8"))) & PEERS for p in files}
    wrong = {name: peers for name, peers in found.items() if peers}
    assert not wrong, f'use pytest.importorskip("torch") instead of an import: {wrong}'


def test_an_import_of_a_peer_is_seen() -> None:
    assert imported(ast.parse("import torch.nn as nn\nfrom jax import numpy")) == {"torch", "jax"}
    assert imported(ast.parse("def f():\n    import torch\n")) == set()
