"""The table of `bench/peers.py`: rows are kept one by one, slow peers once, and what goes wrong is
said in the row.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import peers
from models.reference import Result
from rows import Row

ROWS = [
    Row("products", f"matmul {n}", "matmul", {"m": n, "k": n, "n": n}, 1.0, ("numpy", "jax"),
        flops=2.0 * n**3, nbytes=12.0 * n**2)
    for n in (8, 16)
]  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of rows that are measured, which gives them a made-up figure."""
    names: list[str] = []

    def measure(self: Any, row: Row) -> dict[str, Any]:
        names.append(row.name)
        if len(names) == 3:
            raise KeyboardInterrupt
        engines = {"tilegrad": {"median_ms": 1.0, "quartiles_ms": [1.0, 1.0], "kernels": 1}}
        return {"part": row.part, "work": row.name, "goal": row.goal, "also": {}, "limit_ms": None,
                "others": 0.0, "engines": engines}  # fmt: skip

    monkeypatch.setattr(peers.Suite, "measure", measure)
    monkeypatch.setattr(peers, "rows", lambda scale: ROWS)
    return names


def bench(*arguments: str, results: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["peers.py", "--results", str(results), *arguments])
    return peers.main()


def test_a_run_goes_on_where_it_was_stopped(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("matmul 8", results=tmp_path, monkeypatch=monkeypatch) == 0
    assert bench(results=tmp_path, monkeypatch=monkeypatch) == 0
    assert measured == ["matmul 8", "matmul 16"]
    with pytest.raises(KeyboardInterrupt):
        bench("--again", results=tmp_path, monkeypatch=monkeypatch)
    (kept,) = tmp_path.glob("*.json")
    assert kept.stem == peers.result_name()
    assert [row["work"] for row in json.loads(kept.read_text())["figures"]] == measured[:2]
    assert "| matmul 16 | 1.00 |" in kept.with_suffix(".md").read_text()


def test_other_sizes_and_peers_are_never_kept(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        bench("--scale", "2", results=tmp_path, monkeypatch=monkeypatch)
    assert bench("--print", results=tmp_path, monkeypatch=monkeypatch) == 0
    assert not measured[2:] and not list(tmp_path.iterdir())


def test_a_slow_peer_is_kept_for_its_row_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slow.json"
    peers.Slow(path).keep(ROWS[0], "numpy", {"median_ms": 9.0})
    slow = peers.Slow(path)
    assert slow.of(ROWS[0], "numpy") == {"median_ms": 9.0, "kept": True}
    assert slow.of(ROWS[1], "numpy") is None
    monkeypatch.setattr(peers, "version", lambda library: "newer")
    assert slow.of(ROWS[0], "numpy") is None


def test_a_row_of_small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of NumPy in place of all libraries; the wrong, the slow and the absent ones are
    said to be that.
    """
    asked: list[str] = []

    class Worker(peers.Worker):
        def __init__(self, library: str, threads: int, *, keeping: bool, busy: bool):
            super().__init__("numpy", threads, keeping=keeping, busy=busy)

        def ask(self, patience: float = 9.0, **command: Any) -> Any:
            asked.extend(command)
            if "limits" in command:
                return {"flops": {"float32": 1e9}, "copies": [[1 << 20, 1e9]]}
            answer = super().ask(patience, **command)
            if "take" in command:
                answer = {"tilegrad": 2.0, "numpy": 10.0, "jax": 3.0, "torch": 1.0}[command["take"]]
            elif command["make"]["engines"] == ["torch"]:
                answer["torch"]["values"][5] += 1
            elif command["make"]["engines"] == ["tinygrad"]:
                self._end("gone")
            return answer

    monkeypatch.setattr(peers, "Worker", Worker)
    row = Row(**{**vars(ROWS[0]), "peers": ("numpy", "jax", "torch", "tinygrad", "absent")})
    workers, kept = peers.Workers(), []
    slow = peers.Slow(None)
    monkeypatch.setattr(slow, "keep", lambda row, engine, figure: kept.append(engine))
    suite = peers.Suite(
        workers, peers.Quiet(0), slow, 3, ["numpy", "jax", "torch", "tinygrad"]
    )  # fmt: skip
    found = suite.measure(row)
    workers.only([])
    engines = found["engines"]
    assert {name: each.get("median_ms") for name, each in engines.items()} == {
        "tilegrad": 2.0, "numpy": 10.0, "jax": 3.0, "torch": None, "tinygrad": None
    }  # fmt: skip
    assert engines["jax"]["ratio"] == 1.5
    assert engines["torch"]["error"].startswith("differs from the reference by ")
    assert engines["tinygrad"]["error"] == "gone"
    # 1,024 operations at 1e9 a second; 768 bytes take less.
    assert found["limit_ms"] == pytest.approx(1.024e-3, abs=1e-4)
    assert kept == ["numpy"]
    assert peers.best_peer(found) == "jax"
    assert asked.count("take") == 9


def test_a_process_that_ends_is_gone() -> None:
    worker = peers.Worker("numpy", 1, keeping=True)
    made = {"kind": "softmax", "sizes": {"rows": 2, "columns": 2}, "engines": ["numpy"]}
    assert worker.ask(make=made) == {"numpy": {"error": "not written for it"}}
    with pytest.raises(peers.Gone, match="no answer within 0 s"):
        worker.ask(0.0, make=made)
    with pytest.raises(peers.Gone, match="the process ended"):
        worker.ask(make=made)


def test_difference() -> None:
    assert peers.difference([1.0, -4.0], [1.0, -3.0]) == 0.25
    assert peers.difference([1.0], [1.0, 2.0]) == float("inf")
    assert peers.difference([1.0], [float("nan")]) == float("inf")
    assert Result([1.0]).flops == 0
