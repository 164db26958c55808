"""What docs/adding-an-op.md says of a new op, done in a copy: with all of its entries the tests
that go through all ops pass, and each entry that is forgotten is found by one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The tests that go through all ops, of `make test`.
TESTS = (
    "tests/ir/test_spec.py", "tests/ir/test_interpret.py", "tests/render/test_every_op.py",
    "tests/grad/test_rules.py", "tests/grad/test_forward.py", "tests/grad/test_vmap.py",
    "tests/schedule/test_counts.py", "tests/docs/test_new_op.py",
)  # fmt: skip

MEANING = """    TRUNC = op(1, "x rounded toward zero"""
# The entries that the page lists: file, the text before which one is put, and the entry.
ENTRIES = {
    "meaning": (
        "tilegrad/ir/op.py",
        MEANING,
        '    CEIL = op(1, "The whole number that is next above x.", '
        'evaluate=lambda x: -(-x // 1.0), symbol="ceil")\n',
    ),
    "check": ("tilegrad/ir/checks.py", "    Ops.EXP, Ops.EXP2, Ops.LOG2", "    Ops.CEIL,\n"),
    "derivative": ("tilegrad/grad/rules.py", "    Ops.TRUNC, Ops.FLOORDIV", "    Ops.CEIL,\n"),
    "llvm": ("tilegrad/render/llvm_values.py", 'Ops.SQRT: "sqrt", Ops', 'Ops.CEIL: "ceil", '),
    "c": ("tilegrad/render/names.py", '    Ops.SQRT: "sqrt", Ops', '    Ops.CEIL: "ceil",\n'),
    "ptx": ("tilegrad/render/ptx_arithmetic.py", '    Ops.TRUNC: "rzi"', '    Ops.CEIL: "rpi",\n'),
    "wgsl": (
        "tilegrad/render/wgsl_rules.py",
        '    Ops.TRUNC: "trunc({0})"',
        '    Ops.CEIL: "ceil({0})",\n',
    ),
}

# The test of its own that the page asks for.
OWN = """
import numpy as np
import pytest
from tilegrad import Tensor
from tilegrad.ir import Ops


@pytest.mark.parametrize("device", ["CPU", "EMU"])
def test_a_new_op_computes(device: str) -> None:
    values = np.array([-1.5, -0.2, 0.0, 0.3, 2.0, 7.1], np.float32)
    x = Tensor(values, device=device).realize()
    np.testing.assert_array_equal((x.alu(Ops.CEIL) + 1).numpy(), np.ceil(values) + 1)
"""


def changed(folder: Path, without: str = "") -> None:
    """A copy of the package and its tests in `folder`, with the new op, but for one entry."""
    for part in ("tilegrad", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests" / "docs" / "test_new_op.py").write_text(OWN)
    for name, (file, before, entry) in ENTRIES.items():
        if name == without:
            continue
        text = (folder / file).read_text()
        assert text.count(before) == 1, f"{file} has another text than this test knows"
        (folder / file).write_text(text.replace(before, entry + before))


def run_tests(folder: Path, *files: str) -> str:
    """What pytest prints of these files of tests."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment["TILEGRAD_CACHE"] = str(folder / "cache")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.nightly
def test_a_new_op_passes_without_a_change_of_any_test(tmp_path: Path) -> None:
    changed(tmp_path)
    found = run_tests(tmp_path, *TESTS)
    assert " passed" in found and " failed" not in found and " error" not in found, found[-3000:]


@pytest.mark.nightly
@pytest.mark.parametrize("entry", [name for name in ENTRIES if name != "meaning"])
def test_a_forgotten_entry_is_found(entry: str, tmp_path: Path) -> None:
    changed(tmp_path, without=entry)
    where = "tests/grad/test_rules.py" if entry == "derivative" else "tests/render/test_every_op.py"
    found = run_tests(tmp_path, where)
    assert " failed" in found or " error" in found, found[-3000:]
    assert "CEIL" in found
