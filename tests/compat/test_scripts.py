"""Scripts written for tinygrad run as they are. Each asserts its values against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilegrad import Tensor, nn
from tilegrad.compat.renamed_layers import BatchNorm, Embedding
from tilegrad.compat.tinygrad import run

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
# Of each kind one; the others run at night.
QUICK = (
    "context_default_float", "device_facts", "disk_windows", "float8_helpers", "function_decorator",
    "jit_captured", "older_paths", "quickstart_creation", "readme_gradient",
    "readme_gradient_plain", "variable_without_jit", "whole_imports",
)  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.nightly)
        for path in SCRIPTS
    ],
)
def test_a_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(str(script))
    assert names["checked"] > 0


def test_there_are_enough() -> None:
    assert len(SCRIPTS) >= 60
    assert {path.stem for path in SCRIPTS} >= set(QUICK)


def test_layers_in_a_list_hold_their_weights() -> None:
    """Also those that differ from ours by the order of their arguments."""
    layers = [nn.Linear(2, 2, bias=False), BatchNorm(2), Embedding(3, 2)]
    names = [name for name in nn.state.get_state_dict(layers) if "tracked" not in name]
    assert names == [
        "0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var", "2.weight",
    ]  # fmt: skip


def test_what_was_there_before_takes_no_part() -> None:
    """A tensor of the launching process with the value of one of the script's."""
    outside = [Tensor.eye(3), Tensor.eye(3)]
    script = next(path for path in SCRIPTS if path.stem == "readme_gradient_plain")
    assert run(str(script))["checked"] == 5
    assert all(tensor.grad is None for tensor in outside)
