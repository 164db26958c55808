"""Many programs in child processes: a crash or a hang is a failure like another."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tilegrad.tools.fuzz.program import Program
from tilegrad.tools.fuzz.run import MODES, draw, script
from tilegrad.tools.fuzz.shrink import shrink

__all__ = ["Child", "fuzz"]

_PATIENCE_S = 30.0


class Child:
    """A process of one mode that runs scripts; a new one is started when it ends or hangs.

    `planted` is Python to run before, which may break something on purpose.
    """

    def __init__(self, mode: str, planted: str = "", patience: float = _PATIENCE_S):
        self._mode, self._planted, self._patience = mode, planted, patience
        self._process: subprocess.Popen[str] | None = None

    def failure(self, lines: Sequence[str]) -> str | None:
        """What goes wrong with a script, in a line."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(list(lines)) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], self._patience)
            answer = process.stdout.readline() if ready else None
        except OSError:
            answer = ""
        if not answer:
            self.close()
            what = "hangs" if answer is None else f"crashes with status {process.returncode}"
            return f"the process {what}"
        found: str | None = json.loads(answer)
        return found

    def _start(self) -> subprocess.Popen[str]:
        switches, _ = MODES[self._mode]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilegrad.tools.fuzz.run", *filter(None, [self._planted])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **switches},
        )
        return self._process

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def fuzz(
    minutes: float,
    seed: int,
    folder: Path,
    *,
    modes: Sequence[str] = tuple(MODES),
    planted: str = "",
    first_only: bool = False,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Run programs from `seed` on for so many minutes; the files of those that fail."""
    end = time.monotonic() + minutes * 60
    children = {mode: Child(mode, planted) for mode in modes}
    found: list[Path] = []
    kinds: set[str] = set()
    count = 0
    try:
        while time.monotonic() < end and not (found and first_only):
            program, mode = draw(seed + count), modes[count % len(modes)]
            count += 1
            failure = children[mode].failure(script(program, mode))
            if failure is None:
                continue

            def fails(smaller: Program, mode: str = mode) -> bool:
                return children[mode].failure(script(smaller, mode)) is not None

            small = shrink(program, fails)
            kind = f"{mode} {[step.name for step in small]}"
            if kind in kinds:
                continue
            kinds.add(kind)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"fuzz_{seed + count - 1}_{mode.replace(' ', '_')}.py"
            path.write_text("\n".join(script(small, mode)) + "\n", encoding="utf-8")
            found.append(path)
            say(f"{path}: {failure}")
    finally:
        for child in children.values():
            child.close()
    say(f"{count} programs from seed {seed} on, {len(found)} failures")
    return found
