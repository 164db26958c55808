"""`bench/gpu.py` on a machine without a GPU, and what it does with one on a stand-in."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import gpu
from models.library import Made


def no_gpu(name: str) -> tuple[str, str]:
    return f"{name}: no driver is here", "install the driver"


def test_without_a_gpu_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu.Device, "refusal", no_gpu)
    out = tmp_path / "gpu.json"
    assert gpu.main(["--out", str(out)]) == 2
    printed = capsys.readouterr().out
    assert "no GPU that tilegrad can use is here" in printed
    assert "pip install 'tilegrad[nvidia]'" in printed
    found = json.loads(out.read_text())
    assert found["device"] is None
    assert found["not_here"]["NV"] == "no driver is here; install the driver"
    assert set(found["not_here"]) == set(gpu.GPUS)


def test_an_implementation_on_the_processor_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.Device, "refusal", lambda name: ("", ""))
    monkeypatch.setattr(gpu, "_is_gpu", lambda name: name == "NV")
    assert "NV" not in gpu.refusals()
    assert "runs on the processor" in gpu.refusals()["CL"]


class _Quick:
    """Stands for a library whose second row fails."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def make(self, row: Any, arrays: Any) -> Any:
        self.made.append(row.name)
        if len(self.made) == 2:
            raise MemoryError("no room")
        return Made(lambda: None, list).run

    def wait(self) -> None:
        return

    def launches(self, graph: bool) -> Any:
        return lambda: None


def test_a_row_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = _Quick()
    few = [gpu.Row(name, "sum", {"size": 8}, nbytes=32.0) for name in ("a", "b", "c")]
    monkeypatch.setattr(gpu, "Ours", lambda device: quick)
    monkeypatch.setattr(gpu, "Theirs", lambda device: (_ for _ in ()).throw(ImportError("none")))
    monkeypatch.setattr(gpu, "rows", lambda: few)
    monkeypatch.setattr(gpu, "_SAMPLE_SECONDS", 1e-4)
    left_out: list[str] = []
    kept: list[Any] = []
    found = gpu.compared("CPU", gpu.Clock(60), left_out, kept.append)
    assert found["b"]["tilegrad"] == {"failed": "MemoryError: no room"}
    assert found["c"]["tilegrad"]["median"] > 0
    assert found["without_torch"] == "none"
    assert len(kept) == 5 and kept[-1] == found, "after two kinds of launch and each of three rows"
    assert not left_out


def test_what_a_row_warns_of_stands_beside_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that could not be captured has no time of a graph."""
    monkeypatch.setattr(gpu, "_SAMPLE_SECONDS", 1e-4)

    def make() -> Any:
        return lambda: warnings.warn("jit: chain runs anew\n  line: 3", stacklevel=1)

    found = gpu._taken(make, lambda: None, gpu.Clock(60))
    assert found["median"] > 0 and found["warned"] == ["jit: chain runs anew"]
    assert "warned" not in gpu._taken(lambda: lambda: None, lambda: None, gpu.Clock(60))


def test_rows_that_time_has_run_out_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "Ours", lambda device: _Quick())
    monkeypatch.setattr(gpu, "Theirs", lambda device: _Quick())
    monkeypatch.setattr(gpu, "rows", lambda: [gpu.Row("late", "sum", {"size": 8})])
    monkeypatch.setattr(gpu, "_SAMPLE_SECONDS", 1e-4)
    left_out: list[str] = []
    gpu.compared("CPU", gpu.Clock(-1), left_out, lambda found: None)
    assert left_out == ["launch", "launch in a graph", "late"]


class _Slow:
    """A clock that shows one second less with each look at it."""

    def __init__(self, seconds: float):
        self._left = seconds

    @property
    def left(self) -> float:
        self._left -= 1
        return self._left


def test_a_slow_row_ends_with_the_time() -> None:
    """One call behind the end at most, and no half of a measurement."""
    runs: list[int] = []
    with pytest.raises(gpu.TimeUpError):
        gpu.measured(lambda: runs.append(1), lambda: None, _Slow(3))
    assert len(runs) == 3
    runs.clear()
    found = gpu.measured(lambda: runs.append(1), lambda: None, _Slow(4.5))
    assert len(runs) == 4 and found["median"] == found["least"] > 0


def test_what_was_measured_is_there_when_a_driver_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ending(_Quick):
        def make(self, row: Any, arrays: Any) -> Any:
            if row.name == "b":
                raise KeyboardInterrupt
            return super().make(row, arrays)

    few = [gpu.Row(name, "copy", {"rows": 8, "columns": 8}, nbytes=512.0) for name in "ab"]
    monkeypatch.setattr(gpu, "refusals", dict)
    monkeypatch.setattr(gpu, "conformance", lambda device, clock: {"ran": 0})
    monkeypatch.setattr(gpu, "Ours", lambda device: Ending())
    monkeypatch.setattr(gpu, "Theirs", lambda device: Ending())
    monkeypatch.setattr(gpu, "rows", lambda: few)
    monkeypatch.setattr(gpu, "_SAMPLE_SECONDS", 1e-4)
    out = tmp_path / "gpu.json"
    with pytest.raises(KeyboardInterrupt):
        gpu.main(["--device", "CPU", "--out", str(out)])
    found = json.loads(out.read_text())
    assert found["rows"]["a"]["torch"]["median"] > 0 and "b" not in found["rows"]
    assert not found["is_whole"]
    assert set(found["marks"]) == {"a, of the pace of PyTorch", "seconds of a kernel in a graph"}


def test_marks_are_of_what_both_have_measured() -> None:
    found = {
        "product 1024 float16": {"tilegrad": {"median": 2.0}, "torch": {"median": 1.0}},
        "product 2048 float16": {"tilegrad": {"failed": "no room"}, "torch": {"median": 1.0}},
        "launch in a graph": {"tilegrad": {"median": 2e-6}},
    }
    assert gpu.marks(found) == {
        "product 1024 float16, of the pace of PyTorch": {"wanted": 0.9, "found": 0.5},
        "seconds of a kernel in a graph": {"wanted": 3e-6, "found": 2e-6},
    }


@pytest.mark.parametrize("row", list(gpu.rows()), ids=lambda row: row.name)
def test_each_row_is_one_that_both_libraries_have(row: gpu.Row) -> None:
    """By its kind, with sizes that its inputs take."""
    import inspect

    from models import inputs
    from models.with_tilegrad import Tilegrad

    assert hasattr(Tilegrad, row.kind)
    inspect.signature(inputs._MADE[row.kind]).bind(**row.sizes)
    written = (Path(gpu.__file__).parent / "models" / "with_torch.py").read_text()
    networks = (Path(gpu.__file__).parent / "models" / "networks.py").read_text()
    assert f"def {row.kind}(" in written + networks
