"""docs/conformance.md: every op with every dtype, and how exact it is.

    python -m tests.conformance.report            run all cases, and write the page
    python -m tests.conformance.report --list     write its lists anew, and keep what was measured
    python -m tests.conformance.report --devices  run the sample on the other devices alone, or with
                                                  `--only HIP,AMD` on some of them

All cases run, on one thread of the default device: several minutes. What the page lists, without
what was measured, is compared with the cases by a test.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.case import Case
from tests.conformance.cases import CASES, SAMPLE
from tests.conformance.devices import EVIDENCE, Agreed, device_rows, measure_devices, read_devices
from tests.conformance.elementwise import ELEMENTWISE
from tests.conformance.values import EVERY, measured
from tilegrad import Device
from tilegrad.base.dtype import DType, dtypes

__all__ = ["Measured", "main", "read", "render"]

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
SHORT = {dtype: f"{dtype.kind[0]}{dtype.bits}" for dtype in EVERY} | {
    dtypes.bool: "bool",
    dtypes.bfloat16: "bf16",
}
HEAD = """\
# Conformance

Each op against its exact result: NumPy's float64, Python's integers, or a closed form. Made from
the cases in `tests/conformance/` by `make conformance`, which runs all of them; do not edit.
`make test` runs a part of them each time, also on the emulator and with narrower vectors.

In the tables of ops a row is an op, and a column the dtype of its arguments:

* `=`: every result is the nearest number of its dtype, or the very integer;
* a number: the largest error found, in units of the last place of the result, or of the terms where
  those cancel, as in a sum;
* `passes`: within a bound of another kind, that of a method of linear algebra for one;
* `refused`: a DTypeError says why;
* empty: the op promotes such arguments first (docs/dtypes.md), or has none.

Functions of integers give float32, and their errors are those of float32.
[How far results may be off](accuracy.md) has the bounds of long sums, products, scans and their
gradients, by length and axis and beside PyTorch's errors.
"""
BOUNDS = """
## How exact functions are

The bound that is published and tested for float32, and the largest error found: on a dense sample
of float32 (every 40,009th of all bit patterns, and 180,000 numbers of the usual sizes), and on all
65,536 values of each half type, which are computed in float32 and rounded once. Units are those of
the last place of the result, *of 1* if the result is smaller than 1.

| function | bound | float32 | float16 | bfloat16 |
|---|---|---|---|---|"""


@dataclass
class Measured:
    """What running the cases found: by op and dtype, for the dense samples alone, and on other
    devices.
    """

    worst: dict[tuple[str, str, DType], float] = field(default_factory=dict)
    dense: dict[tuple[str, DType], float] = field(default_factory=dict)
    devices: Agreed = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0


def measure(cases: Iterable[Case]) -> Measured:
    """Run the cases."""
    found, start = Measured(), time.process_time()
    for case in cases:
        with measured() as errors:
            try:
                case.check()
            except Exception as error:  # all of them are reported
                found.failed.append(f"{case.name}: {error}")
                errors.append(math.inf)
        place, worst = (case.group, case.op, case.dtype), max(errors, default=0.0)
        found.worst[place] = max(found.worst.get(place, 0.0), worst)
        if case.pattern == "dense":
            found.dense[case.op, case.dtype] = worst
    found.seconds = time.process_time() - start
    return found


def number(error: float | None) -> str:
    """An error in two digits, rounded up."""
    if error is None:
        return "·"
    if error == 0:
        return "="
    if math.isinf(error):
        return "fails"
    scale = 100 if error < 1 else 10 if error < 10 else 1
    return f"{math.ceil(error * scale - 1e-6) / scale or 1 / scale:g}"


def cell(cases: list[Case], worst: float | None) -> str:
    if not cases:
        return ""
    if all(case.pattern == "refused" for case in cases):
        return "refused" if worst != math.inf else "fails"
    if all(case.is_loose for case in cases):
        return "passes" if worst != math.inf else "fails"
    return number(worst)


def render(cases: list[Case], found: Measured) -> str:
    """The page, with a dot for what was not measured."""
    groups: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        groups[case.group][case.op].append(case)
    return "\n".join([HEAD, *counts(groups), *results(groups, found), *bounds(found),
                      *device_rows(found.devices), *patterns(groups), ""])  # fmt: skip


Groups = dict[str, dict[str, list[Case]]]


def counts(groups: Groups) -> Iterator[str]:
    total = [0, 0, 0]
    yield "## How many"
    yield ""
    yield "| group | ops | ops × patterns of arguments | × dtypes |"
    yield "|---|---|---|---|"
    for group, ops in groups.items():
        kinds = {(case.op, case.pattern) for cases in ops.values() for case in cases}
        row = [len(ops), len(kinds), sum(map(len, ops.values()))]
        total = [a + b for a, b in zip(total, row)]
        yield f"| {group} | {row[0]} | {row[1]} | {row[2]} |"
    yield f"| all | {total[0]} | {total[1]} | {total[2]} |"


def results(groups: Groups, found: Measured) -> Iterator[str]:
    for group, ops in groups.items():
        columns = [d for d in EVERY if any(c.dtype is d for cs in ops.values() for c in cs)]
        yield f"\n## {group.capitalize()}\n"
        yield f"| op | {' | '.join(SHORT[dtype] for dtype in columns)} |"
        yield "|---" * (len(columns) + 1) + "|"
        for op, cases in ops.items():
            row = [
                cell([case for case in cases if case.dtype is dtype],
                     found.worst.get((group, op, dtype)))
                for dtype in columns
            ]  # fmt: skip
            yield f"| `{op}` | {' | '.join(row)} |"


def bounds(found: Measured) -> Iterator[str]:
    yield BOUNDS
    shown = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
    for op in ELEMENTWISE:
        if op.is_dense:
            errors = [number(found.dense.get((op.name, dtype))) for dtype in shown]
            of_one = " *of 1*" if op.magnitude is not None else ""
            yield f"| `{op.name}` | {op.ulp or 0.5:g}{of_one} | {' | '.join(errors)} |"


def patterns(groups: Groups) -> Iterator[str]:
    yield "\n## Patterns of arguments\n"
    yield "| op | patterns |"
    yield "|---|---|"
    for ops in groups.values():
        for op, cases in ops.items():
            names = dict.fromkeys(case.pattern for case in cases)
            yield f"| `{op}` | {', '.join(names)} |"


def read(page: str) -> Measured:
    """What was measured, of a page that `render` made."""
    known = {"=": 0.0, "passes": 0.0, "refused": 0.0, "fails": math.inf}
    columns = {short: dtype for dtype, short in SHORT.items()} | {d.name: d for d in EVERY}
    found, group, heads = Measured(devices=read_devices(page)), "", [""]
    for line in page.splitlines():
        group = line.removeprefix("## ").lower() if line.startswith("## ") else group
        cells = [part.strip().strip("`") for part in line.split("|")[1:-1]]
        if line.startswith(("| op |", "| function |")):
            heads = cells
        elif line.startswith("| `") and group != "devices":
            for head, text in zip(heads[1:], cells[1:]):
                if head not in columns or not text or text == "·":
                    continue
                error = known[text] if text in known else float(text)
                if heads[0] == "op":
                    found.worst[group, cells[0], columns[head]] = error
                else:
                    found.dense[cells[0], columns[head]] = error
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run all cases and write the page; gives 1 if one of them fails."""
    parser = argparse.ArgumentParser("python -m tests.conformance.report", description=main.__doc__)
    parser.add_argument("--list", action="store_true", help="run nothing; renew the lists")
    parser.add_argument("--devices", action="store_true", help="run the sample on other devices")
    parser.add_argument("--only", default="", help="of the other devices, these, with commas")
    parser.add_argument("--new", action="store_true", help="run what the page has no number of")
    parser.add_argument("ops", nargs="*", help="run these ops, and keep the numbers of the others")
    options = parser.parse_args(arguments)
    is_part = options.list or options.new or options.devices or options.ops
    known = read(PAGE.read_text(encoding="utf-8")) if is_part and PAGE.is_file() else Measured()
    cases = CASES
    if is_part:
        cases = [
            case
            for case in CASES
            if case.op in options.ops
            or (options.new and (case.group, case.op, case.dtype) not in known.worst)
        ]
    print(f"{len(cases)} cases on {Device.DEFAULT}")
    found = measure(cases)
    devices = known.devices
    if options.devices or not is_part:
        some = [each for each in options.only.split(",") if each] or list(EVIDENCE)
        devices = dict(known.devices) | dict(measure_devices(SAMPLE, found.failed, some))
        devices = {each: devices[each] for each in EVIDENCE if each in devices}
    print("\n\n".join(found.failed))
    print(f"{len(cases)} cases on {Device.DEFAULT}, {len(found.failed)} failures in all; "
          f"{found.seconds:.0f} s")  # fmt: skip
    whole = Measured(known.worst | found.worst, known.dense | found.dense, devices)
    PAGE.write_text(render(CASES, whole), encoding="utf-8")
    return bool(found.failed)


if __name__ == "__main__":
    sys.exit(main())
