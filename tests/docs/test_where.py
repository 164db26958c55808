"""docs/architecture.md, "Where a new one goes": the files that it names exist, are three at most,
and hold all that there is of each kind. The last additions touched no more, but for those that the
page lists.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.docs.additions import KINDS, has_history, last_additions
from tilegrad.base.config import Config
from tilegrad.base.dtype import dtypes
from tilegrad.device.registry import Devices
from tilegrad.grad.rules import DERIVATIVES, NO_DERIVATIVE
from tilegrad.ir.op import Ops
from tilegrad.optimize.opts.opt import OptOps
from tilegrad.target import Target

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tilegrad"


def named(kind: str) -> list[Path]:
    """The files and folders of one row; those without a folder lie beside the one before."""
    table = (ROOT / "docs/architecture.md").read_text().partition("## Where a new one goes")[2]
    row = re.search(rf"^\| {kind} \|(.*)$", table.partition("\n## ")[0], re.M)
    assert row is not None, f"docs/architecture.md has no row for a new {kind}"
    found: list[Path] = []
    for text in re.findall(r"`([\w/*]+(?:\.py|/))`", row[1]):
        is_beside = "/" not in text and text not in (
            "target.py", "hardware.py", "matrix_units.py"
        )  # fmt: skip
        here = found[-1].parent if is_beside else PACKAGE
        assert list(here.glob(text.rstrip("/"))), f"{kind}: {text} does not exist"
        found.append(here / text)
    return found


def is_named(file: Path, kind: str) -> bool:
    return any(file.match(str(each)) or each in file.parents for each in named(kind))


def assigned(file: str) -> set[str]:
    """The names that a file assigns, at its head and in classes."""
    tree = ast.parse((PACKAGE / file).read_text())
    targets = (
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_three_files_at_most(kind: str) -> None:
    assert 1 <= len(named(kind)) <= 3


@pytest.mark.skipif(not has_history(), reason="the history of the repository is not here")
def test_the_last_additions_of_each_kind_touched_three_files_or_are_listed() -> None:
    text = (ROOT / "docs/architecture.md").read_text().partition("These touched more: ")[2]
    listed = dict(re.findall(r"`(\w+)` (\d+)", text.partition("\n\n")[0]))
    found = {
        each.name: str(len(each.files))
        for kind in KINDS
        for each in last_additions(kind)
        if len(each.files) > 3
    }
    assert found == listed


def test_every_op_stands_in_its_file_and_says_how_it_is_differentiated() -> None:
    assert {op.name for op in Ops} <= assigned("ir/op.py")
    # Lowering makes these two, of ops that have a derivative.
    computing = {op for op in Ops if op.is_alu} - {Ops.SCALE, Ops.EXP2_APPROX}
    assert computing <= {*DERIVATIVES, *NO_DERIVATIVE}


def test_every_opt_is_named_and_moved_in_its_files() -> None:
    assert {op.name for op in OptOps} <= assigned("optimize/opts/opt.py")
    moves = (PACKAGE / "optimize/opts/opts.py").read_text().partition("_MOVES: ")[2]
    assert {op.name for op in OptOps} == set(re.findall(r"OptOps\.(\w+):", moves))
    tried = set(re.findall(r"OptOps\.(\w+)", (PACKAGE / "optimize/search/actions.py").read_text()))
    assert {op.name for op in OptOps} - tried == {"MERGE", "SCAN", "SLICE"}


def test_every_rule_of_several_stages_or_of_a_pass_stands_where_the_table_says() -> None:
    holders = {file for file in PACKAGE.rglob("*.py") if 'PatternMatcher("' in file.read_text()}
    passes = {"ir/rules", "schedule", "lower"}
    assert {file.parent.relative_to(PACKAGE).as_posix() for file in holders} == passes
    assert is_named(PACKAGE / "ir/rules/sums.py", "rewrite rule")


def test_every_generator_has_a_file_that_the_first_one_asks() -> None:
    folder = PACKAGE / "optimize/generators"
    generators = set(folder.glob("heuristic_*.py"))
    assert all(is_named(file, "generator of Opts") for file in generators)
    reached, left = set[str](), ["heuristic"]
    while left:
        text = (folder / f"{left.pop()}.py").read_text()
        fresh = set(re.findall(r"tilegrad\.optimize\.generators\.(\w+)", text)) - reached
        reached |= fresh
        left += fresh
    assert {file.stem for file in generators} <= reached


def test_every_device_is_a_file_with_a_name_in_the_registry() -> None:
    text = (PACKAGE / "device/registry.py").read_text()
    for name in Devices():
        found = re.search(rf'"{name}": "tilegrad\.device\.(\w+)"', text)
        assert found is not None and is_named(PACKAGE / f"device/{found[1]}.py", "device")


def test_every_dtype_and_switch_and_fact_stands_in_its_file() -> None:
    assert {dtype.name for dtype in dtypes.all} <= {"bool"} | assigned("base/dtype.py")
    assert {each.name for each in fields(Config)} <= assigned("base/config.py")
    assert {each.name for each in fields(Target)} <= assigned("target.py")
