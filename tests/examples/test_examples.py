"""The examples run, end cleanly when interrupted, and write what they say."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.errors import DataError
from tilegrad.nn.datasets import Dataset, digits

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = [sys.executable, str(EXAMPLES / "demo.py"), "--data", "digits"]


def run(*command: str, code: int = 0) -> str:
    """What a command prints; it is to end with `code`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def percent(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.row("M4.14", "M3.6")
def test_demo_learns_and_writes_what_it_says(tmp_path: Path) -> None:
    out = run(*DEMO, "--steps", "50", "--out", str(tmp_path))
    assert "data: digits, 1437 images to learn from, 360 to test" in out
    assert percent(r"test accuracy ([\d.]+)% after 50 steps", out) > 90
    head = (tmp_path / "demo.png").read_bytes()[:8]
    assert head == b"\x89PNG\r\n\x1a\n"
    assert re.search(r"\[=+ *\] *\d+/50 loss", out), "no bar"
    rows = out[out.index("\nkernel ") :].splitlines()[1:]
    assert len([row for row in rows if re.search(r"\d+\.\dus .*%.*%$", row)]) == 10
    again = run(*DEMO, "--steps", "1", "--out", str(tmp_path), "--resume")
    assert percent(r"resumed from .*: ([\d.]+)% of the test images right", again) > 90


def test_ctrl_c_ends_the_demo_between_two_steps(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [*DEMO, "--steps", "400", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    # The first of the bar's lines: training is under way.
    for line in child.stdout:
        if "40/400" in line:
            break
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=300)
    assert child.returncode == 0 and not error
    assert "\ninterrupted\ntest accuracy" in f"\n{out}"
    assert 40 <= percent(r"after (\d+) steps", out) < 400
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.png", "digits.safetensors"]


def test_resuming_from_nothing_is_an_error_in_words(tmp_path: Path) -> None:
    out = run(*DEMO, "--steps", "1", "--out", str(tmp_path / "none"), "--resume", code=1)
    assert "digits.safetensors" in out


@pytest.mark.parametrize("option", ["--steps", "--batch"])
def test_numbers_below_one_are_refused(option: str) -> None:
    assert "0 is less than 1" in run(*DEMO, option, "0", code=2)


@pytest.mark.nightly
@pytest.mark.row("M3.6")
def test_beautiful_mnist_learns_and_lists_all_kernels() -> None:
    out = run(sys.executable, str(EXAMPLES / "beautiful_mnist.py"))
    found = [float(text) for text in re.findall(r"test accuracy +([\d.]+)%", out)]
    assert len(found) == 10 and found[-1] > 95 > found[0]
    count = int(re.findall(r"(\d+) kernels, ", out)[0])
    assert len(re.findall(r"^\w[\w…]* +\d+ +[\d.]+us ", out, re.M)) == count


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs an example's file and gives its names."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: runpy.run_path(str(EXAMPLES / name))


def test_fashion_mnist_trains_on_images_of_28x28(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = np.random.RandomState(0)
    images = numbers.randint(0, 256, (100, 28, 28)).astype(np.uint8)
    labels = numbers.randint(0, 10, 100).astype(np.int32)
    # Something to learn: a bright row for each class.
    images[np.arange(100), labels + 8] = 255
    data = Dataset("made", "here", images, labels, images, labels, tuple("0123456789"), 255)
    main = example("fashion_mnist.py")["main"]
    monkeypatch.setattr(main.__globals__["datasets"], "fashion_mnist", lambda: data)
    monkeypatch.setattr(sys, "argv", ["fashion_mnist.py", "--steps", "3", "--batch", "8"])
    assert main() is None
    assert "after 3 steps of 8 images" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--at-least", "1.1"])
    assert main() == "below 110.00%"


def test_the_best_data_set_that_is_there_is_taken(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilegrad.nn import datasets

    def absent(download: bool) -> Dataset:
        assert not download
        raise DataError("not here")

    load_data = example("demo.py")["load_data"]
    there = digits()
    monkeypatch.setattr(datasets, "mnist", absent)
    monkeypatch.setattr(datasets, "fashion_mnist", lambda download: there)
    assert load_data("best") is there
    monkeypatch.setattr(datasets, "fashion_mnist", absent)
    found = load_data("best")
    assert found is not there and found.name == "digits"


def test_the_rate_rises_then_falls(example: Any) -> None:
    names = example("training.py")
    rates = [names["_share_of_rate"](step, 100) for step in range(1, 101)]
    assert 0 < rates[0] < 0.2 and max(rates) == max(rates[: names["WARM_UP"] + 1])
    assert rates[-1] < 0.001


def test_a_picture_without_steps_and_without_mistakes(example: Any, tmp_path: Path) -> None:
    Tensor.manual_seed(0)
    training = example("training.py")["Training"](digits(), 8)
    training.predictions = lambda: training.data.y_test
    training.picture(tmp_path / "deep" / "none.png")
    assert (tmp_path / "deep" / "none.png").stat().st_size > 10_000
