"""The graph: one node class for tensors, kernels and programs.

op, uop, args                 every op with its meaning; the node; arguments that need more infer,
bounds, proof          the shape of a node, its range of values, proofs about indices pattern,
matcher, rewrite     rules, sets of rules, and the driver that applies them rules/
the equations that several stages use, and `simplify` checks, spec                  the checks of
each op, and the contents of a graph at each stage text, show                    graphs as text that
parses back interpret                     the meaning of a graph, in plain Python sizes, view, runs
shapes with variables; movement as algebra; the axes a reshape mixes ranges, loops
replacing ranges; building the loops of a scan copies, operands, slices      direct copies, operand
layouts, and slices at variable offsets
"""

from tilegrad.ir.definition import Stage
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.uop import UOp, Variable

__all__ = [
    "Axis", "Ops", "PatternMatcher", "Rule", "Stage", "UOp", "UPat", "Variable", "graph_rewrite",
]  # fmt: skip
