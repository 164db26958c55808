"""What large graphs cost: building, planning and running chains, fans and diamonds.

    python bench/graphs.py

Each case is a process of its own with an empty cache, so that nothing of the plan or its kernels is
known. A chain is x = x * a + b, a value stored now and then as a user's loop would; a fan sums many
views of one tensor; in a diamond two values each use both values before them. The ratio is the time
for ten times the nodes; the memory is the most that the process held. `bench/results/graphs.json`
keeps the last run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from common import keep, record_of

_CHILD = """
import json, resource, time
from tilegrad import Tensor, GlobalCounters
x = Tensor.ones(16).contiguous().realize()
(x + 1).realize()
start = time.perf_counter()
def chain(count):
    value = x
    for step in range(count // 2):
        value = value * 0.5 + 1
        if step % 500 == 499:
            value = value.contiguous()
    return value, lambda: 2.0
def fan(count):
    parts = [x + number / count for number in range(count // 2)]
    while len(parts) > 1:
        parts = [sum(parts[at : at + 4], 0.0) for at in range(0, len(parts), 4)]
    return parts[0], lambda: sum(1.0 + number / count for number in range(count // 2))
def diamond(count):
    a, b = x, x * 2
    for step in range(count // 4):
        a, b = (a + b) * 0.5, (a - b) * 0.5
        if step % 200 == 199:
            a, b = a.contiguous(), b.contiguous()
    def expected():
        a, b = 1.0, 2.0
        for _ in range(count // 4):
            a, b = (a + b) * 0.5, (a - b) * 0.5
        return a
    return a, expected
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tensor, expected = {{"chain": chain, "fan": fan, "diamond": diamond}}["{case}"]({count})
nodes = len(tensor.uop.toposort())
built = time.perf_counter()
value = tensor.tolist()[0]
end = time.perf_counter()
assert abs(value - expected()) <= 1e-4 * max(abs(expected()), 1e-3), (value, expected())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{
    "nodes": nodes, "build_s": built - start, "run_s": end - built,
    "seconds": end - start, "grown_mb": (after - before) / 1024,
    "kernels": GlobalCounters.kernel_count,
}}))
"""


def child(case: str, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD.format(case=case, count=count)],
            capture_output=True, text=True, env={**os.environ, "TILEGRAD_CACHE": cache},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(large: int, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for case in ("chain", "fan", "diamond"):
        small, big = [], []
        for _ in range(rounds):
            small.append(child(case, large // 10))
            big.append(child(case, large))
        more = [b["nodes"] / s["nodes"] for s, b in zip(small, big)]
        ratios = [b["seconds"] / s["seconds"] for s, b in zip(small, big)]
        memory = [b["grown_mb"] / max(s["grown_mb"], 1) for s, b in zip(small, big)]
        rows.append({
            "graph": case,
            "nodes": big[0]["nodes"],
            "kernels": big[0]["kernels"],
            "times_the_nodes": round(more[0], 2),
            "times_the_seconds": round(statistics.median(ratios), 2),
            "times_the_memory": round(statistics.median(memory), 2),
            "build_s": round(statistics.median(each["build_s"] for each in big), 2),
            "run_s": round(statistics.median(each["run_s"] for each in big), 2),
            "grown_mb": round(statistics.median(each["grown_mb"] for each in big)),
        })  # fmt: skip
        print(*(f"{name} {value}" for name, value in rows[-1].items()), sep=", ")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000, help="about, of the larger graphs")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each figure")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    rows = measure(options.nodes, options.rounds)
    if not options.print:
        keep("graphs", record_of(rows))


if __name__ == "__main__":
    main()
