"""The table of cases: an op, a pattern of arguments, a dtype. `python -m tests.conformance.cases`
runs the sample of small ones on the default device.
"""

from __future__ import annotations

import itertools
import sys

from tests.conformance.case import Case
from tests.conformance.composed import COMPOSED, composed_cases
from tests.conformance.draws import draw_cases
from tests.conformance.folds import fold_cases
from tests.conformance.gradients import gradient_cases
from tests.conformance.moves import cast_cases, creation_cases, move_cases
from tests.conformance.named import NAMED
from tests.conformance.patterns import elementwise_cases
from tests.conformance.products import product_cases

__all__ = ["CASES", "SAMPLE"]

CASES: list[Case] = [
    *elementwise_cases(),
    *fold_cases(),
    *product_cases(),
    *move_cases(),
    *cast_cases(),
    *creation_cases(),
    *composed_cases([*COMPOSED, *NAMED]),
    *draw_cases(),
    *gradient_cases(),
]


def sample() -> list[Case]:
    """Small cases of every op: one on special values, and two of its patterns, in turning
    dtypes.
    """
    found: list[Case] = []
    groups = itertools.groupby([case for case in CASES if case.small], lambda case: case.op)
    for number, (_, cases) in enumerate(groups):
        known = list(cases)
        special = [case for case in known if case.pattern == "special"]
        rest = [case for case in known if case.pattern not in ("special", "empty")]
        if special:
            found.append(special[number % len(special)])
        if rest:
            found += [rest[(7 * number + step) % len(rest)] for step in (0, len(rest) // 2 + 1)]
    return list({case.name: case for case in found}.values())


SAMPLE: list[Case] = sample()

if __name__ == "__main__":
    # The sample; with a number n every n-th case of it, with `all` every small case there is.
    asked = sys.argv[1] if len(sys.argv) > 1 else "1"
    small = [case for case in CASES if case.small]
    chosen = small if asked == "all" else SAMPLE[:: int(asked)]
    wrong = []
    for each in chosen:
        try:
            each.check()
        except Exception as error:  # all of them are reported
            wrong.append(f"{each.name}: {error}")
    print("\n\n".join(wrong))
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} agree")
    sys.exit(bool(wrong))
