"""Whatever file of the compiler changes, kernels and plans made before it are made anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilegrad
from tilegrad.engine.build import pipeline
from tilegrad.engine.build.pipeline import sources_digest

ROOT = Path(tilegrad.__file__).parent

# Prints the files of the package that have run once a kernel has been compiled. Tensors, gradients
# and modules stand above the graph, and the graph is in the key itself.
_WHAT_RUNS = """
import sys
from tilegrad.device.registry import Device
from tilegrad.engine.build import kernel, pipeline
from tilegrad.engine.plans import plans
from tilegrad.engine.realize import realize
from tilegrad.engine.search import kernel_search
from tilegrad import Context, Tensor
with Context(DISABLE_COMPILER_CACHE=1):
    assert (Tensor([1.0, 2.0]).realize() + 1).tolist() == [2.0, 3.0]
for name, module in sys.modules.items():
    if name.startswith("tilegrad."):
        print(module.__file__)
"""
_ABOVE_THE_GRAPH = {"tensor", "grad", "nn", "func", "io", "capture", "compat", "tools"}


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that `sources_digest` looks at instead."""
    root = tmp_path / "tilegrad"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(pipeline, "_PACKAGE", root)
    return root


def _digest() -> str:
    sources_digest.cache_clear()
    return sources_digest()


def test_each_file_that_takes_part_in_compiling_is_in_the_key(copied: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-c", _WHAT_RUNS], capture_output=True, text=True, check=True
    )
    ran = {Path(line).relative_to(ROOT) for line in listed.stdout.splitlines()}
    below = {path for path in ran if path.parts[0] not in _ABOVE_THE_GRAPH}
    # And what another kernel would have asked for: all of these folders, however deep.
    below |= {
        path.relative_to(copied)
        for folder in ("ir", "runtime", "lower", "render", "optimize", "schedule", "compile")
        for path in (copied / folder).rglob("*.py")
    }
    below.add(Path("hardware.py"))
    files = {"target.py", "matrix_units.py"}
    assert files | {"ir", "lower", "render", "runtime", "optimize"} <= {
        path.parts[0] for path in below
    }
    assert any(path.parts[:2] == ("ir", "rules") for path in below)
    before = _digest()
    try:
        for path in sorted(below):
            state = (copied / path).stat()
            os.utime(copied / path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))
            after = _digest()
            assert after != before, f"{path} may change and stale code runs"
            before = after
    finally:
        sources_digest.cache_clear()


@pytest.mark.parametrize(
    "folder", ["ir/rules", "runtime/deep/er", "lower/deep", "render/deep/er", "optimize/deep"]
)
def test_a_file_that_is_new_in_a_folder_within_is_in_the_key(copied: Path, folder: str) -> None:
    try:
        before = _digest()
        (copied / folder).mkdir(parents=True, exist_ok=True)
        (copied / folder / "more.py").write_text("")
        assert _digest() != before
    finally:
        sources_digest.cache_clear()
