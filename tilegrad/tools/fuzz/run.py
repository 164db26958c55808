"""The child process: it draws cases or is given scripts, runs them, and says what goes wrong."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from tilegrad.tools.fuzz.case import drawn_case

__all__ = ["failure"]


def failure(lines: Sequence[str]) -> str | None:
    """The fault of the lines when they run here, in a line; None if there is none."""
    try:
        exec(compile("\n".join(lines), "<program>", "exec"), {"__name__": "program"})
    except AssertionError as error:
        return f"differs: {' '.join(str(error).split())[:300]}"
    except Exception as error:
        # Whatever a program raises is reported: none of them should raise anything.
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None


def _listen(questions: SimpleQueue[str]) -> None:
    """Pass questions on. Their end is that of the parent, and then this process ends at once,
    whatever it computes: a program that hangs would outlive who watches it.
    """
    for line in sys.stdin:
        questions.put(line)
    os._exit(1)


def main() -> None:
    """Questions come in, answers go out, a line of JSON each.

    A question is a list of lines of a script, or a seed of a case of the mode that the argument
    names.
    """
    mode = sys.argv[1]
    questions: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    while True:
        asked = json.loads(questions.get())
        lines = drawn_case(asked, mode).lines(mode) if isinstance(asked, int) else asked
        print(json.dumps(failure(lines)), flush=True)


if __name__ == "__main__":
    main()
