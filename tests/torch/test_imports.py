"""Import lines of PyTorch programs: what is there, and what an absent module or name says."""

from __future__ import annotations

import argparse
import importlib
import io
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import tilegrad.torch as ours
from tests.torch.spawned import write_twice

theirs = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])

LINES = [
    "import torch.backends.cudnn as cudnn",
    "from torch.backends import cuda, mps, mkldnn, mkl, openmp",
    "import torch.backends.openmp",
    "from torch.optim.adamw import AdamW",
    "from torch.optim.sgd import SGD",
    "from torch.nn.utils.weight_norm import weight_norm",
    "from torch.nn.utils.clip_grad import clip_grad_norm_",
    "from torch.nn.parallel.data_parallel import DataParallel",
    "from torch.nn.common_types import _size_2_t",
    "from torch.cuda.amp.grad_scaler import GradScaler",
    "from torch.amp.autocast_mode import autocast",
    "import torch.cpu.amp",
    "from torch.autograd.variable import Variable",
    "from torch.autograd.grad_mode import no_grad",
    "from torch.autograd.gradcheck import gradcheck",
    "from torch.utils.data._utils.collate import default_collate",
    "from torch.utils.hooks import RemovableHandle",
    "import torch.multiprocessing as mp",
    "from torch.serialization import add_safe_globals, safe_globals",
    "import torch.cuda.random, torch.cuda.memory",
]


@pytest.mark.parametrize("line", LINES)
def test_an_import_line_works_as_in_pytorch(line: str) -> None:
    expected: dict[str, Any] = {}
    found: dict[str, Any] = {}
    exec(line, expected)
    exec(line.replace("torch", "tilegrad.torch", line.count("torch") if "," in line else 1), found)
    assert expected.keys() - {"torch"} <= found.keys()


ABSENT = [
    ("from tilegrad.torch.nn.functional import rellu", "did you mean torch.nn.functional.relu?"),
    ("from tilegrad.torch.optim import Adm", "did you mean torch.optim.Adam?"),
    ("from tilegrad.torch.fx import Interpreter", "torch.compile is what there is"),
    ("from tilegrad.torch.nn import CrossMapLRN2d", "torch.nn.LocalResponseNorm"),
    ("from tilegrad.torch.autograd import forward_ad", "torch.func.jvp"),
    ("from tilegrad.torch.utils.tensorboard import SummaryWriter", "write a file of your own"),
    ("from tilegrad.torch.onnx import export", "keeps the weights"),
    ("import tilegrad.torch.nothing.below", "docs/moving-from-pytorch.md"),
    ("from tilegrad import jitt", "did you mean jit?"),
    ("from tilegrad.nn import Relu", "did you mean ReLU?"),
    ("from tilegrad.nn.state import safe_loda", "did you mean safe_load?"),
    ("from tilegrad.io import ggufload", "did you mean gguf_load?"),
]


@pytest.mark.parametrize(("line", "told"), ABSENT, ids=[line for line, _ in ABSENT])
def test_an_import_of_what_is_absent_says_what_to_write(line: str, told: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(line, {})
    assert told in str(caught.value)


def test_asking_for_what_is_absent_is_no_import() -> None:
    for name in ("tilegrad", "tilegrad.torch", "tilegrad.torch.nn.functional"):
        module = importlib.import_module(name)
        assert not hasattr(module, "nothing_like_it")
        with pytest.raises(AttributeError):
            getattr(module, "nothing_like_it")  # noqa: B009
    with pytest.raises(ImportError):
        importlib.import_module("tilegrad.torch.nothing")


@BOTH
def test_switches_of_libraries_are_set_and_read(torch: Any) -> None:
    backends = torch.backends
    before = backends.cudnn.benchmark
    backends.cudnn.benchmark = True
    assert backends.cudnn.benchmark
    backends.cudnn.benchmark = before
    with backends.cudnn.flags(enabled=False, deterministic=True):
        assert not backends.mps.is_available()
    assert not backends.cuda.is_built() or torch.cuda.is_available()
    backends.cuda.enable_flash_sdp(True)
    assert isinstance(backends.cuda.math_sdp_enabled(), bool)
    assert torch.cpu.is_available()
    torch.cpu.synchronize()


def test_functions_run_in_processes_of_their_own(tmp_path: Path) -> None:
    mp = importlib.import_module("tilegrad.torch.multiprocessing")
    mp.set_sharing_strategy("file_system")
    mp.spawn(write_twice, args=(str(tmp_path),), nprocs=2)
    assert [(tmp_path / str(n)).read_text() for n in range(2)] == ["0", "2"]
    assert mp.Queue is multiprocessing.Queue or callable(mp.Queue)
    assert mp.cpu_count() == multiprocessing.cpu_count()
    with pytest.raises(RuntimeError, match="ended with exit code"):
        mp.spawn(write_twice, args=(str(tmp_path / "absent"),), nprocs=1)


@BOTH
def test_a_file_names_only_classes_that_are_let_through(torch: Any) -> None:
    held = io.BytesIO()
    options = argparse.Namespace(lr=0.5, layers=[1, 2])
    torch.save({"args": options, "weight": torch.ones(2)}, held)
    held.seek(0)
    with pytest.raises(Exception, match=r"argparse\.Namespace"):
        torch.load(held)
    held.seek(0)
    with torch.serialization.safe_globals([argparse.Namespace]):
        found = torch.load(held)
    assert (found["args"], found["weight"].tolist()) == (options, [1, 1])
    held.seek(0)
    with pytest.raises(Exception, match="Namespace"):
        torch.load(held, weights_only=True)
    held.seek(0)
    assert torch.load(held, weights_only=False)["args"] == options
    torch.serialization.add_safe_globals([argparse.Namespace])
    assert argparse.Namespace in torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    assert not torch.serialization.get_safe_globals()


@BOTH
def test_a_statement_is_timed(torch: Any) -> None:
    benchmark = importlib.import_module(f"{torch.__name__}.utils.benchmark")
    calls: list[int] = []
    space = {"x": torch.ones(4), "calls": calls}
    timer = benchmark.Timer(
        stmt="calls.append(1)\ny + x", setup="y = x * 2", globals=space, label="sums",
        sub_label="small", description="plain",
    )  # fmt: skip
    found = timer.timeit(7)
    assert len(calls) >= 7
    assert found.number_per_run == 7
    assert found.mean == found.median > 0
    assert "sums" in repr(found)
    several = timer.blocked_autorange(min_run_time=1e-3)
    assert len(several.times) >= 1
    text = str(benchmark.Compare([found]))
    assert "small" in text
    assert "plain" in text
