"""The graph: one node class for tensors, kernels and programs.

op, definition, uop, args     every op with its meaning; the node; arguments that need more
infer, bounds, proof          the shape of a node, its range of values, proofs about indices
pattern, matcher, rewrite     rules, sets of rules, and the driver that applies them
rules/                        the equations that several stages use, and `simplify`
queries, walks                the common questions about a graph; its nodes in an order
checks, spec                  the checks of each op, and what a graph holds at each stage
text, constructor_text        graphs as text that parses back
interpret                     the meaning of a graph, in plain Python
sizes, view, runs             shapes with variables; movement as algebra; axes of a reshape
ranges, loop_building         replacing ranges; building the loops of a scan
direct_copies, operands       copies that write to their final memory; operand layouts of loops
slices, lengths               slices at variable offsets; sizes that are variables of a launch
graph_templates               graphs that are recorded once and made by one loop
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
