"""Optimizers: rules that move parameters against their gradients.

A step writes the parameters and all state in place, in one schedule, so that they keep their
memory. Values that change from step to step, the learning rate included, are tensors and not
numbers in a kernel: nothing is compiled again, and a captured step (`jit`) sees the change. State
and update are computed in at least float32, for half parameters too.
"""

from tilegrad.base.absent import refuse_others
from tilegrad.nn.optim.adam import Adam, AdamW, SparseAdam
from tilegrad.nn.optim.adam_variants import LAMB, Adamax, NAdam, RAdam
from tilegrad.nn.optim.adaptive_rates import Adadelta, Adafactor, Adagrad, RMSprop, Rprop
from tilegrad.nn.optim.lbfgs import LBFGS
from tilegrad.nn.optim.momentum import ASGD, LARS, SGD, Lion, Muon
from tilegrad.nn.optim.optimizer import Optimizer, ParamGroup

__all__ = [
    "ASGD", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW",
    "Adamax", "Lion", "Muon", "NAdam", "Optimizer", "ParamGroup", "RAdam", "RMSprop", "Rprop",
    "SparseAdam",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
