"""The graph: one node class for tensors, kernels and programs."""

from tilegrad.ir.op import Axis, Ops, Stage
from tilegrad.ir.rewrite import PatternMatcher, Rule, UPat, graph_rewrite
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
