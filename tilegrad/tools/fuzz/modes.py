"""How programs are run: the switches of a process, and whether the program is captured."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field

__all__ = ["MODES", "Mode"]


@dataclass(frozen=True)
class Mode:
    """One way to run programs.

    Attributes:
        switches: environment variables of the process.
        is_captured: whether the program is a function under `jit`.
        is_torch: whether it is written with PyTorch's names.
        torch: the module of these names: PyTorch, to check what the program is said to mean, or the
            package's own.
        is_repeated: whether it runs so often that templates, segments and plans for ranges of sizes
            are used, which the first calls make.
        is_looped: whether the programs are loops (`loops.py`).
        is_short: whether these have few statements.
        most_elements: the size of the largest value.
    """

    switches: dict[str, str] = field(default_factory=dict)
    is_captured: bool = False
    is_torch: bool = False
    torch: str = "torch"
    is_repeated: bool = False
    is_looped: bool = False
    is_short: bool = False
    most_elements: int = 3000


def _modes() -> dict[str, Mode]:
    modes = {
        "eager": Mode(),
        "jit": Mode(is_captured=True),
        "NOOPT": Mode({"TILEGRAD_NOOPT": "1"}),
        "scalar": Mode({"TILEGRAD_CPU_TARGET": "scalar"}),
        "sse": Mode({"TILEGRAD_CPU_TARGET": "sse"}),
        "avx2": Mode({"TILEGRAD_CPU_TARGET": "avx2"}),
        "one thread": Mode({"TILEGRAD_THREADS": "1"}),
        "two threads": Mode({"TILEGRAD_THREADS": "2"}, is_captured=True),
        "EMU": Mode({"TILEGRAD_DEVICE": "EMU"}, most_elements=200),
    }
    modes |= {
        "warm": Mode(is_repeated=True),
        "templates": Mode({"TILEGRAD_TEMPLATES": "2", "TILEGRAD_SIZES": "2"}, is_repeated=True),
        "segments": Mode({"TILEGRAD_SEGMENTS": "2"}, is_repeated=True),
        "loops": Mode(is_looped=True),
        "checked loops": Mode(
            {"TILEGRAD_TEMPLATES": "2", "TILEGRAD_SIZES": "2", "TILEGRAD_SEGMENTS": "2"},
            is_looped=True,
        ),
        "short loops": Mode(is_looped=True, is_short=True),
        "checked short loops": Mode(
            {"TILEGRAD_TEMPLATES": "2", "TILEGRAD_SIZES": "2", "TILEGRAD_SEGMENTS": "2"},
            is_looped=True,
            is_short=True,
        ),
        "torch names": Mode(
            is_torch=True, torch="tilegrad.torch", is_repeated=True, most_elements=1000
        ),
    }
    if importlib.util.find_spec("torch") is not None:
        modes["PyTorch"] = Mode(is_torch=True, most_elements=1000)
    return modes


MODES = _modes()
