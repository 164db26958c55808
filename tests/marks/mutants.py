"""For each row of docs/feature_rows.txt one way to break its feature: a text of the package, which
stands once in its file, and what takes its place.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """What is broken, and how."""

    what: str
    file: str
    before: str
    after: str


MUTANTS: dict[str, Mutant] = {
    "F1.1": Mutant(
        "products of integers are floats",
        "tilegrad/tensor/linear.py",
        "        return total.cast(promote(self.dtype, other.dtype)) if dtype is None else total\n",
        "        return total.float() if dtype is None else total\n",
    ),
    "F2.4": Mutant(
        "every reduced value is stored before more work is done on it",
        "tilegrad/schedule/fuse.py",
        "        if node in tops:\n            if here.expanded:",
        "        if node.op is Ops.REDUCE_AXIS:\n            chosen[node] = Reason.EXPANDED\n"
        "        elif node in tops:\n            if here.expanded:",
    ),
    "M2.5": Mutant(
        "no two axes become one",
        "tilegrad/schedule/axes.py",
        "        merged = _merge(ast, outer, inner)\n",
        "        merged = None\n",
    ),
    "M4.13": Mutant(
        "a batch of replayed kernels is not counted",
        "tilegrad/capture/graph.py",
        "        report.count(self._ops, self._mem, seconds, count)\n",
        "        report.count(self._ops, self._mem, seconds, 0)\n",
    ),
    "M11.6": Mutant(
        "kernels of one name are not numbered",
        "tilegrad/engine/pipeline.py",
        'return f"n{number}" if number else ""',
        'return ""',
    ),
    "P.1": Mutant(
        "tensors are listed in the order of the attributes",
        "tilegrad/nn/tree.py",
        "below.sort(key=_rank)",
        "pass",
    ),
    "P.10": Mutant(
        "minimum has the sign of the mirrored maximum",
        "tilegrad/tensor/elementwise.py",
        'return left._mirrored()._binary("minimum", Ops.MAX, right._mirrored())._mirrored()',
        'return left._mirrored()._binary("minimum", Ops.MAX, right._mirrored())',
    ),
    "P.12": Mutant(
        "there is an op for products of matrices",
        "tilegrad/ir/op.py",
        '    CMPLT = op(2, "x < y."',
        '    MATMUL = op(2, "x @ y.", evaluate=operator.lt, symbol="@", boolean=True)\n'
        '    CMPLT = op(2, "x < y."',
    ),
    "R3.4": Mutant(
        "no reduction has a closed form",
        "tilegrad/schedule/collapse.py",
        'return graph_rewrite(ast, _RULES, name="schedule.collapse")',
        "return ast",
    ),
    "R3.5": Mutant(
        "no reduction has a closed form",
        "tilegrad/schedule/collapse.py",
        'return graph_rewrite(ast, _RULES, name="schedule.collapse")',
        "return ast",
    ),
    "X.3": Mutant(
        "a seed does not begin its stream anew",
        "tilegrad/tensor/random.py",
        "self.seed, self.drawn, self.forks = seed & (2**64 - 1), 0, 0",
        "self.seed, self.forks = seed & (2**64 - 1), 0",
    ),
    "X.4": Mutant(
        "EXPAND_SSA does nothing",
        "tilegrad/render/clike.py",
        "inlined(program, bool(config.EXPAND_SSA))",
        "inlined(program, False)",
    ),
}
