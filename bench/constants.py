"""The worth of each constant of optimize/: moved by a quarter, which kernels change, and how much.

    python bench/constants.py                    110 programs of the corpus, every constant
    python bench/constants.py --only shaper      constants whose module or name contains `shaper`
    python bench/constants.py --count 330 --print

Each constant is made a quarter less and a quarter more. Where the default Opts of a kernel are then
others, both shapes run in turns on one thread; Opts that differ in chunks alone are counted and not
timed. `loses` is how many times as long changed kernels take, as a geometric mean: a constant whose
moves change no kernel, or make none slower, has no reason here, and goes.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import pkgutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from common import keep, record_of
from corpus import SEED, kernels_of, launched, least_seconds, memory_of
from families import FAMILIES, cases

# Modules whose constants choose no default: search, its moves, and how Opts are written.
_OTHERS = ("actions", "dots", "explain", "findings", "matrix", "model", "name", "opt", "opts")
_OTHERS += ("search", "group", "heuristic_simt", "stage", "prepack")
_SHARES = (0.75, 1.25)
# Kernels whose change is timed, for each move of a constant.
_MOST_TIMED = 4


@dataclass(frozen=True)
class Constant:
    """A number at the head of a module."""

    module: ModuleType
    name: str

    @property
    def value(self) -> float:
        return float(getattr(self.module, self.name))

    @property
    def title(self) -> str:
        return f"{self.module.__name__.rpartition('.')[2]}.{self.name}"

    def moved(self, share: float) -> float:
        """The value times `share`; of an integer the nearest other one."""
        value = getattr(self.module, self.name)
        if isinstance(value, float):
            return value * share
        return (
            round(value * share) if round(value * share) != value else value + (share > 1) * 2 - 1
        )


def modules() -> list[ModuleType]:
    """The modules of tilegrad.optimize."""
    package = importlib.import_module("tilegrad.optimize")
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(each.name) for each in found if not each.ispkg]


def constants(only: str) -> Iterator[Constant]:
    """The constants that choose default Opts, each in the module that defines it."""
    for module in modules():
        short = module.__name__.rpartition(".")[2]
        if short in _OTHERS:
            continue
        with open(str(module.__file__)) as file:
            text = file.read()
        for name, value in vars(module).items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            is_own = f"\n{name} = " in text or f"\n{name}, " in text or f", {name} = " in text
            is_own |= f", {name}, " in text
            if name.isupper() and is_number and is_own and only in f"{short}.{name}":
                yield Constant(module, name)


def defaults(kernels: Sequence[Any], target: Any) -> list[tuple[Any, ...]]:
    """The default Opts of each kernel."""
    from tilegrad.optimize.generators.heuristic import heuristic

    return [tuple(heuristic(kernel, target)) for kernel in kernels]


def with_value(constant: Constant, value: float, kernels: Sequence[Any], target: Any) -> list[Any]:
    """The default Opts where `constant` is `value`, in every module that has it."""
    own = getattr(constant.module, constant.name)
    holders = [each for each in modules() if vars(each).get(constant.name) is own]
    for holder in holders:
        setattr(holder, constant.name, value)
    try:
        return defaults(kernels, target)
    finally:
        for holder in holders:
            setattr(holder, constant.name, own)


def _without(opts: Any, op: Any) -> list[Any]:
    return [opt for opt in opts if opt.op is not op]


def loss(ast: Any, before: Any, after: Any) -> float:
    """How many times as long a kernel takes with the Opts `after`; NaN where one is too long, or
    only chunks differ.
    """
    from tilegrad.optimize.opts.opt import OptOps

    if _without(before, OptOps.THREAD) == _without(after, OptOps.THREAD):
        return math.nan
    memory = memory_of(ast)
    runs = [launched(ast, opts, memory) for opts in (before, after)]
    if runs[0] is None or runs[1] is None:
        return math.nan
    first, second = least_seconds([runs[0], runs[1]])
    return second / first


def drawn(count: int, seed: int) -> list[Any]:
    """The kernels of `count` programs, each graph once."""
    found: dict[Any, None] = {}
    for case in cases(count, seed):
        found |= dict.fromkeys(kernels_of(case))
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10 * len(FAMILIES), help="programs")
    parser.add_argument("--seed", type=int, default=SEED, help="of other programs")
    parser.add_argument("--only", default="", help="constants whose title contains this")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    given = parser.parse_args()
    os.environ["TILEGRAD_THREADS"] = "1"
    from tilegrad import Device
    from tilegrad.optimize.opts.opts import start

    target = Device["CPU"].target
    asts = drawn(given.count, given.seed)
    kernels = [start(ast, target) for ast in asts]
    before, rows = defaults(kernels, target), []
    print(f"{len(kernels)} kernels", flush=True)
    for constant in constants(given.only):
        changed, ratios = 0, []
        for share in _SHARES:
            after = with_value(constant, constant.moved(share), kernels, target)
            others = [each for each in zip(asts, before, after, strict=True) if each[1] != each[2]]
            changed += len(others)
            ratios += [loss(*each) for each in others[:_MOST_TIMED]]
        known = [ratio for ratio in ratios if not math.isnan(ratio)]
        mean = math.exp(statistics.fmean(map(math.log, known))) if known else 1.0
        rows.append({"constant": constant.title, "changed": changed, "loses": round(mean, 3)})
        print(f"{constant.title:44} {constant.value:10g}  changes {changed:4d}  loses {mean:6.3f}")
        sys.stdout.flush()
    if not given.print:
        keep("constants", record_of({"seed": given.seed, "count": given.count, "table": rows}))


if __name__ == "__main__":
    main()
