"""The benchmarks run, small and without other libraries, and their arithmetic is right."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


def run(script: str, *options: str) -> str:
    """What a benchmark prints; it keeps no results."""
    command = [sys.executable, str(BENCH / script), "--print", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file of the folder as a module."""
    monkeypatch.syspath_prepend(str(BENCH))

    def found(name: str) -> Any:
        spec = spec_from_file_location(name, BENCH / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return found


def figures(text: str, unit: str) -> dict[str, float]:
    """The median of each row."""
    rows = re.findall(rf"^(\S.*?) +([\d,.-]+) {unit} ", text, re.MULTILINE)
    return {name: float(number.replace(",", "")) for name, number in rows}


def test_start_a_warm_process_compiles_nothing() -> None:
    text = run("start.py", "--count", "1", "--steps", "0")
    medians = figures(text, "ms")
    assert len(medians) == 3
    assert min(medians.values()) > 0
    cold, warm = re.findall(r"rewrites (\d+) schedules (\d+) renders (\d+) compiles (\d+)", text)[
        1:
    ]
    assert min(map(int, cold)) > 0
    assert set(warm) == {"0"}


@pytest.mark.nightly
def test_start_a_warm_training_step_compiles_nothing_and_takes_the_memory_it_said() -> None:
    text = run("start.py", "--count", "1", "--steps", "1")
    assert len(figures(text, "ms")) == 5
    work = re.findall(r"rewrites (\d+) schedules (\d+) renders (\d+) compiles (\d+)", text)
    assert int(work[-2][3]) > 10
    assert set(work[-1]) == {"0"}
    plans = re.findall(r"plan of .* ([\d,]+) bytes predicted, +([\d,]+) counted", text)
    assert plans
    assert all(predicted == counted for predicted, counted in plans)


def test_launch() -> None:
    medians = figures(run("launch.py", "--count", "1"), "ns")
    assert "native launch, 1 chunk" in medians
    assert min(medians.values()) > 0


def test_jit() -> None:
    medians = figures(run("jit.py", "--count", "1"), "ns")
    assert medians["training step, replay"] > 0
    assert "per tensor assigned" in medians


def test_graphs() -> None:
    text = run("graphs.py", "--nodes", "1000", "--rounds", "1")
    assert re.findall(r"graph (\w+), nodes", text) == ["chain", "fan", "diamond"]


def test_peers_without_them() -> None:
    options = "--alone", "--scale", "8", "--rounds", "1", "--patience", "0"
    text = run("peers.py", *options, "--only", "512")
    assert set(figures(text.replace("tilegrad", ""), "ms")) == {
        "MLP 784-512-10 step, batch 32",
        "softmax 512x512",
        "layernorm 512x512",
    }


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_peers_says_how_to_install_them() -> None:
    command = [sys.executable, str(BENCH / "peers.py"), "--print"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'PyTorch is not installed: pip install -e ".[peers]"\n'


def test_work_of_tilegrad_is_what_it_is_called(load: Any) -> None:
    """Small works whose result NumPy has too."""
    load("common")
    peers = load("peers")
    library = peers.Tilegrad()
    a, b = peers.randn(15, 17).astype(np.float64), peers.randn(17, 19, seed=1)
    np.testing.assert_allclose(library.matmul(15, 17, 19).values(), (a @ b).ravel(), atol=1e-5)
    x = peers.randn(16, 16).astype(np.float64)
    shares = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(library.softmax(16).values(), shares.ravel(), atol=1e-6)
    (total,) = library.sum(64).values()
    assert total == pytest.approx(np.abs(peers.randn(64)).astype(np.float64).sum())


def test_operations_of_the_works(load: Any) -> None:
    load("common")
    peers = load("peers")
    works = {work.kind: work for work in peers.works(1)}
    assert works["matmul"].flops == 2 * 1000 * 999 * 1001
    # Each of 32 x 64 x 56 x 56 results is a sum of 64 x 9 products.
    assert works["convolution"].flops == 32 * 64 * 56 * 56 * 64 * 9 * 2
    forward = [28 * 28 * 32 * 9, 14 * 14 * 64 * 32 * 9, 10 * 64 * 7 * 7]
    assert works["inference"].flops == 512 * 2 * sum(forward)
    assert works["training_step"].flops == 512 * 2 * (3 * sum(forward) - forward[0])


def test_samples_in_turns(load: Any) -> None:
    common = load("common")
    order: list[str] = []

    def taker(name: str) -> Any:
        def take() -> float:
            order.append(name)
            return len(order)

        return take

    found = common.in_turns({"a": taker("a"), "b": taker("b")}, 3)
    assert order == ["a", "b"] * 3
    assert found == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_spread(load: Any) -> None:
    samples = [9.0, 1.0, 4.0, 16.0, 25.0, 2.0]
    spread = load("common").Spread(samples)
    expected = np.percentile(samples, [0, 25, 50, 75])
    np.testing.assert_allclose([spread.least, spread.lower, spread.median, spread.upper], expected)


def test_a_process_of_its_own_has_the_default_switches(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEGRAD_DEBUG", "4")
    monkeypatch.setenv("TILEGRAD_CACHE", "somewhere")
    given = load("common").environment(EXTRA="1")
    assert (given["TILEGRAD_CACHE"], given["EXTRA"]) == ("somewhere", "1")
    assert "TILEGRAD_DEBUG" not in given
