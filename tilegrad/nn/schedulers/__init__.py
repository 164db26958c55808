"""Learning rates that change from step to step, by PyTorch's names and formulas.

`step()` counts in a tensor and writes the rate of each group from that count, on the device: so it
may stand inside a captured function (`jit`) as well as outside of it. The formulas are closed: they
give the rate of step t from t alone. `LambdaLR` and `MultiplicativeLR` call a Python function of
the step, which cannot be captured: their step() stands outside.

With a scheduler made, the rate is that of step 0.
"""

from tilegrad.base.absent import refuse_others
from tilegrad.nn.schedulers.combined import ChainedScheduler, SequentialLR
from tilegrad.nn.schedulers.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from tilegrad.nn.schedulers.formulas import *
from tilegrad.nn.schedulers.function_rates import LambdaLR, MultiplicativeLR
from tilegrad.nn.schedulers.plateau import ReduceLROnPlateau
from tilegrad.nn.schedulers.scheduler import LRScheduler

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
    "WarmupCosineLR",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
