"""The graph: one node class for tensors, kernels and programs."""

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
