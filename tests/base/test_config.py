"""Switches: read in one place, refused if unknown, set per thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest

from tilegrad.base.config import Config, Context, config, getenv, training
from tilegrad.base.errors import ConfigError


def in_process(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a process that has only these switches."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, **environment},
    )


# What a process prints on stderr about a variable that it does not read.
IGNORED = "in the environment is not read: "
SHOW = "from tilegrad.base.config import config; print(config.DEBUG, config.BEAM, config.DEVICE)"


def test_defaults() -> None:
    assert in_process(SHOW).stdout == "0 0 CPU\n"


@pytest.mark.row("X.4")
def test_environment() -> None:
    environment = {"DEBUG": "3", "BEAM": "4", "TILEGRAD_DEVICE": "CUDA"}
    assert in_process(SHOW, **environment).stdout == "3 4 CUDA\n"
    assert in_process(SHOW, DEBUG="").stdout == "0 0 CPU\n"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DEBUG", "loud", "DEBUG: unknown value 'loud'"),
        ("DEBUG", "6", "DEBUG: unknown value '6'"),
        ("NOOPT", "-1", "NOOPT: unknown value '-1'"),
        ("TILEGRAD_SPEED", "1", "TILEGRAD_SPEED: unknown switch in the environment"),
        ("TILEGRAD_CPU_TARGET", "sse9", "CPU_TARGET: unknown value 'sse9'"),
    ],
)
def test_environment_that_is_refused(name: str, value: str, says: str) -> None:
    result = in_process(SHOW, **{name: value})
    assert result.returncode != 0
    assert says in result.stderr


def test_what_is_read_once_is_no_switch_of_a_block() -> None:
    with pytest.raises(ConfigError, match=r"(?s)CPU_TARGET is read once.*TILEGRAD_CPU_TARGET"):
        Context(CPU_TARGET="scalar" if config.CPU_TARGET != "scalar" else "avx2")
    assert Context(CPU_TARGET=config.CPU_TARGET)
    with pytest.raises(ConfigError, match=r"(?s)VIZ is read once.*TILEGRAD_VIZ=1"):
        Context(VIZ=1)


def test_every_switch_may_have_the_prefix_which_then_counts() -> None:
    names = [item.name for item in fields(Config) if isinstance(item.default, int)]
    script = (
        f"from tilegrad.base.config import config; print([getattr(config, n) for n in {names}])"
    )
    found = in_process(script, **{f"TILEGRAD_{name}": "1" for name in names})
    assert found.stdout == f"{[1] * len(names)}\n"
    assert in_process(SHOW, DEBUG="1", TILEGRAD_DEBUG="2").stdout == "2 0 CPU\n"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DEVICE", "EMU", "write TILEGRAD_DEVICE=EMU"),
        ("DEV", "CL", "write TILEGRAD_DEVICE=CL"),
        ("THREADS", "1", "write TILEGRAD_THREADS=1"),
        ("DEUBG", "2", "did you mean DEBUG?"),
        ("NOPT", "1", "did you mean NOOPT?"),
        ("BEAMS", "4", "did you mean BEAM?"),
    ],
)
def test_a_variable_that_looks_like_a_switch_draws_a_warning(
    name: str, value: str, says: str
) -> None:
    result = in_process(SHOW, **{name: value})
    assert result.stdout == "0 0 CPU\n"
    assert f"{name}={value} {IGNORED}{says}" in result.stderr


@pytest.mark.parametrize(
    "name", ["CACHE", "DEV", "DEBUGINFOD_URLS", "HOME", "JITTER", "debug", "LANG"]
)
def test_a_variable_of_another_program_draws_no_warning(name: str) -> None:
    assert in_process(SHOW, **{name: "1"}).stderr == ""


def test_a_switch_takes_true_and_false() -> None:
    with Context(NOOPT=True, VERIFY=False):
        assert (config.NOOPT, config.VERIFY) == (1, 0)


def test_the_page_of_switches_is_made_from_them() -> None:
    """Each switch, with what sets it, its default and its meaning."""
    from tilegrad.tools.switches import page

    shown = (Path(__file__).parents[2] / "docs" / "switches.md").read_text()
    assert shown == page(), "run: python -m tilegrad.tools.switches"
    for item in fields(Config):
        assert f"TILEGRAD_{item.name}`" in shown and item.metadata["doc"] in shown


def test_no_color_takes_any_value() -> None:
    script = "from tilegrad.base.config import config; print(config.NO_COLOR)"
    assert in_process(script, NO_COLOR="yes").stdout == "1\n"
    assert in_process(script, NO_COLOR="").stdout == "0\n"


def test_context_holds_for_a_block() -> None:
    before = config.DEBUG
    with Context(DEBUG=2, NOOPT=1):
        assert (config.DEBUG, config.NOOPT) == (2, 1)
        with Context(DEBUG=4):
            assert (config.DEBUG, config.NOOPT) == (4, 1)
        assert config.DEBUG == 2
    assert config.DEBUG == before


def test_context_ends_with_an_error() -> None:
    before = config.BEAM
    with pytest.raises(ZeroDivisionError), Context(BEAM=3):
        _ = 1 // 0
    assert config.BEAM == before


def test_context_may_be_entered_again() -> None:
    again = Context(DEBUG=2)
    with again:
        with again:
            assert config.DEBUG == 2
        assert config.DEBUG == 2
    assert config.DEBUG != 2 or os.environ.get("DEBUG") == "2"


def test_context_belongs_to_its_thread() -> None:
    seen: list[int] = []
    with Context(BEAM=7):
        thread = threading.Thread(target=lambda: seen.append(config.BEAM))
        thread.start()
        thread.join()
        assert config.BEAM == 7
    assert seen == [0]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"SPEED": 1}, "Context: unknown switch 'SPEED'"),
        ({"DEBUG": 9}, "DEBUG: unknown value 9"),
        ({"DEBUG": "x"}, "DEBUG: unknown value 'x'"),
        ({"DEVICE": 3}, "DEVICE: unknown value 3"),
    ],
)
def test_context_refuses(values: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Context(**values)


def test_code_key_follows_the_switches_that_shape_code() -> None:
    plain = config.code_key()
    for item in fields(Config):
        # VIZ is read once.
        if not isinstance(item.default, int) or item.name in ("NO_COLOR", "VIZ"):
            continue
        with Context(**{item.name: 1 - min(item.default, 1)}):
            assert (config.code_key() != plain) == item.metadata["shapes_code"], item.name


def test_every_switch_is_documented() -> None:
    assert all(item.metadata["doc"] for item in fields(Config))


def test_getenv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "70")
    assert getenv("STEPS", 10) == 70
    assert getenv("STEPS", "ten") == "70"
    assert getenv("OTHER_STEPS", 10) == 10
    monkeypatch.setenv("STEPS", "")
    assert getenv("STEPS", 10) == 10


def test_a_context_before_a_function_holds_for_each_call() -> None:
    @Context(DEBUG=2, TRAINING=0)
    def look(depth: int) -> list[tuple[int, bool]]:
        """What it sees."""
        seen = [(config.DEBUG, training.get())]
        return seen + look(depth - 1) if depth else seen

    assert look(1) == [(2, False)] * 2
    assert (config.DEBUG, training.get(), look.__doc__) == (0, True, "What it sees.")


def test_training_is_a_switch_of_contexts() -> None:
    with Context(TRAINING=1):
        assert training.get()
        with Context(DEBUG=1), Context(TRAINING=0):
            assert not training.get()
        assert training.get()
    assert training.get()
    with pytest.raises(ConfigError, match="TRAINING: unknown value 2"):
        Context(TRAINING=2)
