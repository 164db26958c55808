"""Scripts of PyTorch run unchanged by `python -m tilegrad.compat.torch`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilegrad.base.errors import DataError
from tilegrad.compat.torch import installed, run

ROOT = Path(__file__).parents[2]
REGRESSION = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.lr_scheduler import StepLR

x = torch.arange(8, dtype=torch.float32).view(-1, 1) / 8
loader = DataLoader(TensorDataset(x, 2 * x), batch_size=8)
model = nn.Linear(1, 1)
nn.init.zeros_(model.weight)
nn.init.zeros_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = StepLR(optimizer, 2, 0.5)
for epoch in range(int(sys.argv[1])):
    for inputs, targets in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(repr(loss.item()))
"""
SORTING = """
import torch

values, indices = torch.tensor([[3.0, 1.0, 2.0]]).max(dim=1)
print(values.item(), indices.item(), torch.cat([torch.arange(2), torch.tensor([7])]).tolist())
"""


def _descended(steps: int) -> list[float]:
    """The losses of the same regression in NumPy."""
    x = np.arange(8) / 8
    w = b = 0.0
    rate, losses = 0.5, []
    for step in range(steps):
        error = w * x + b - 2 * x
        losses.append(float((error**2).mean()))
        w, b = w - rate * 2 * (error * x).mean(), b - rate * 2 * error.mean()
        rate *= 0.5 if step % 2 else 1.0
    return losses


def _launched(script: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tilegrad.compat.torch", str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_training_script_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REGRESSION)
    printed = [float(line) for line in _launched(script, "4").split()]
    np.testing.assert_allclose(printed, _descended(4), rtol=1e-5)


def test_a_script_of_tensors_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "tensors.py"
    script.write_text(SORTING)
    assert _launched(script) == "3.0 0 [0, 1, 7]\n"


def test_torch_is_known_only_while_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "known.py"
    script.write_text("import torch\nfound = torch.__name__\n")
    before = sys.modules.get("torch")
    assert run(str(script))["found"] == "tilegrad.torch"
    assert sys.modules.get("torch") is before


def test_modules_are_those_of_tilegrad_torch() -> None:
    import tilegrad.torch.nn.functional as ours

    with installed():
        import torch.nn.functional as theirs

        assert theirs is ours
        assert ours.__spec__ is not None
        assert ours.__spec__.name == "tilegrad.torch.nn.functional"


def test_a_module_that_is_absent_says_what_to_do() -> None:
    with installed(), pytest.raises(ModuleNotFoundError, match="keeps the weights"):
        import torch.export  # noqa: F401


def test_a_script_that_is_absent_is_refused() -> None:
    with pytest.raises(DataError, match="no such script"):
        run("nowhere.py")
