"""The graph: one node class for tensors, kernels and programs.

op, uop, args                 every op with its meaning; the node; arguments that need more
infer, bounds, proof          the shape of a node, its range of values, and what follows of them
pattern, matcher, rewrite     rules, sets of them, and the driver that applies them
rules/                        the equations that several stages use, and `simplify`
checks, spec                  what each op asks of a node, and what a graph may hold at a stage
text, show                    graphs as text that parses back, and as one writes them
interpret                     what a graph means, in plain Python
sizes, view, runs             shapes with variables; movement as algebra; what a reshape mixes
ranges, loops                 replacing ranges; building the loops of a scan
copies, operands, windows     what lands where it is wanted, is laid out as it is read, or moves
"""

from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Axis, Ops, Stage
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.uop import UOp, Variable

__all__ = [
    "Axis",
    "Ops",
    "PatternMatcher",
    "Rule",
    "Stage",
    "UOp",
    "UPat",
    "Variable",
    "graph_rewrite",
]
