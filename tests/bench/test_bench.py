"""The benchmarks run, small and without other libraries, and their arithmetic is right."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
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
    plans = re.findall(r"plan of +(\d+) .* ([\d,]+) bytes predicted, +([\d,]+) counted", text)
    assert plans
    for kernels, *both in plans:
        predicted, counted = (int(each.replace(",", "")) for each in both)
        # Blocks are up to a sixteenth larger, and at least 64 bytes.
        assert predicted <= counted <= predicted * 17 / 16 + 64 * int(kernels)


def test_launch() -> None:
    medians = figures(run("launch.py", "--count", "1"), "ns")
    assert "native launch, 1 chunk" in medians
    assert min(medians.values()) > 0


@pytest.mark.nightly
def test_jit() -> None:
    medians = figures(run("jit.py", "--count", "1"), "ns")
    assert medians["training step, replay"] > 0
    assert "per tensor assigned" in medians


@pytest.mark.nightly
def test_graphs() -> None:
    text = run("graphs.py", "--nodes", "1000", "--rounds", "1")
    assert re.findall(r"graph (\w+), nodes", text) == ["chain", "fan", "diamond"]


@pytest.mark.nightly
def test_compile_a_warm_network_compiles_nothing() -> None:
    text = run("compile.py", "--count", "1", "--only", "times", "--models", "GPT")
    rows = re.findall(
        r"^GPT.*, (cold|warm) +([\d.]+) s.* (\d+) kernels.* (\d+) compiled", text, re.M
    )
    (_, cold, kernels, made), (_, warm, again, none) = rows
    assert float(cold) > float(warm)
    assert kernels == again and int(kernels) > 100
    assert int(made) > 10 and none == "0"


def peers(*options: str) -> str:
    small = "--scale", "8", "--rounds", "1", "--patience", "0"
    return run("peers.py", *small, "--peers", "^$", *options)


@pytest.mark.nightly
def test_peers_without_them() -> None:
    rows = re.findall(r"^(\S.*?)  +tilegrad +[\d.]+ ms", peers("MLP|softmax"), re.MULTILINE)
    assert rows == ["softmax 512x512", "MLP 784-512-10 step, batch 32, Adam"]


def test_peers_names_the_rows_if_none_matches() -> None:
    command = [sys.executable, str(BENCH / "peers.py"), "no such row"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no row matches 'no such row'; there are:" in done.stderr
    assert "  rows: softmax 4096x4096\n" in done.stderr


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
