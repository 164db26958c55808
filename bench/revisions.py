"""Times of the benchmark's rows with two revisions of tilegrad, whose processes take turns.

    python bench/revisions.py REV                 all rows of this tree beside a revision
    python bench/revisions.py REV 'conv|softmax'  the rows that match

A row is made by a process for each revision, with that revision's package and models, and both take
turns, round by round. Its figure is the median of the rounds' ratios, this tree's time over the
revision's: above 1 where this tree is slower. A row that differs by more than 3% is taken again, in
fresh processes: where memory lies moves a figure by as much. `kernels.py` says which rows have
other kernels.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path

from common import ROOT, Spread, in_turns, tree_of
from peers import Worker
from report import OWN
from rows import Row, rows

# Rounds for a figure, and how often a row that differs is taken.
_ROUNDS, _TRIES = 7, 3
_NEAR = 0.03


def ratios(row: Row, old: Path, new: Path, rounds: int) -> list[float]:
    """The time of a row with `new` over that with `old`, in each round."""
    workers = {tree: Worker(OWN, row.threads, keeping=False, tree=tree) for tree in (old, new)}
    try:
        wanted = {"kind": row.kind, "sizes": row.sizes, "engines": [OWN]}
        for worker in workers.values():
            found = worker.ask(make=wanted)[OWN]
            if "error" in found:
                raise SystemExit(f"{row.name}: {found['error']}")
        takers = {str(tree): worker.taker(OWN) for tree, worker in workers.items()}
        taken = in_turns(takers, rounds)
    finally:
        for worker in workers.values():
            worker.stop()
    return [after / before for before, after in zip(taken[str(old)], taken[str(new)])]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("rows", nargs="?", default="", help="pattern of rows by name or part")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    given = parser.parse_args()
    found: dict[str, float] = {}
    with tree_of(given.revision) as old:
        for row in rows():
            if not re.search(given.rows, f"{row.part} {row.name}"):
                continue
            tries: list[float] = []
            while len(tries) < _TRIES:
                spread = Spread(ratios(row, old, ROOT.parent, given.rounds))
                tries.append(spread.median)
                if abs(spread.median - 1) <= _NEAR:
                    break
            # Nearest to 1: a difference that is there is there each time.
            found[row.name] = min(tries, key=lambda ratio: abs(math.log(ratio)))
            shown = ", ".join(f"{each:.3f}" for each in tries)
            print(f"{row.name:50} {found[row.name]:6.3f}   {shown}", flush=True)
    mean = math.exp(sum(map(math.log, found.values())) / max(len(found), 1))
    print(json.dumps({"mean": round(mean, 3), "slower": [n for n, r in found.items() if r > 1.03]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
