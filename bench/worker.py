"""A process with one library: it makes the work that a line of JSON asks for, and takes samples.

    {"make": {"kind": ..., "sizes": ..., "engines": [...]}}    values and facts, by engine
    {"take": engine}                                           milliseconds of a call
    {"limits": true}                                           of the machine, by tilegrad
    {"memory": true}                                           megabytes, the most so far

An answer is a line of JSON too.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = {
    "tilegrad": ("models.with_tilegrad", "Tilegrad"),
    "torch": ("models.with_torch", "Torch"),
    "jax": ("models.with_jax", "Jax"),
    "onnxruntime": ("models.with_onnxruntime", "Onnx"),
    "tinygrad": ("models.with_tinygrad", "Tinygrad"),
    "numpy": ("models.with_numpy", "Numpy"),
}
# These take as many threads as they have processors.
_BY_PROCESSORS = ("jax", "tinygrad")
# The least time of a sample and the least number of calls in it, unless they take too long.
_SAMPLE_S, _SAMPLE_CALLS, _SAMPLE_MOST_S = 0.15, 3, 4.0
_WARM_UP_CALLS, _WARM_UP_S = 3, 3.0


def sample(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """The median milliseconds of a call."""
    found: list[float] = []
    begun = time.perf_counter()
    while True:
        start = clock()
        run()
        found.append((clock() - start) * 1e3)
        taken = time.perf_counter() - begun
        if taken > _SAMPLE_MOST_S or (taken > _SAMPLE_S and len(found) >= _SAMPLE_CALLS):
            return statistics.median(found)


class Server:
    def __init__(self, library: Any, clock: Callable[[], float]):
        self._library, self._clock = library, clock
        self._ready: dict[str, Callable[[], Any]] = {}

    def answer(self, command: dict[str, Any]) -> Any:
        if "take" in command:
            return sample(self._ready[command["take"]], self._clock)
        if "limits" in command:
            return importlib.import_module("models.with_tilegrad").limits()
        if "memory" in command:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        wanted = command["make"]
        self._ready.clear()
        gc.collect()
        return {
            engine: self._made(wanted["kind"], wanted["sizes"], engine)
            for engine in wanted["engines"]
        }

    def _made(self, kind: str, sizes: dict[str, Any], engine: str) -> dict[str, Any]:
        from models.inputs import inputs

        if not hasattr(self._library, kind):
            return {"error": "not written for it"}
        try:
            start = time.perf_counter()
            made = self._library.make(kind, inputs(kind, sizes), sizes, engine)
            values = [float(value) for value in made.values()]
            first = time.perf_counter() - start
            begun = time.perf_counter()
            for _ in range(_WARM_UP_CALLS):
                made.run()
                if time.perf_counter() - begun > _WARM_UP_S:
                    break
            facts = made.facts()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        self._ready[engine] = made.run
        return {"values": values, "first_s": round(first, 3), **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--busy", action="store_true", help="time that this process ran")
    options = parser.parse_args()
    if options.library in _BY_PROCESSORS and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[: options.threads])
    # What libraries print is for people.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    sys.path.append(str(Path(__file__).parents[1]))
    module, name = LIBRARIES[options.library]
    library = getattr(importlib.import_module(module), name)(options.threads)
    server = Server(library, time.process_time if options.busy else time.perf_counter)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
