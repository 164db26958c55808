"""Layers, losses, optimizers, and state: what a model is made of.

`nn.optim`, `nn.state` and `nn.functional` are modules; data sets are in `tilegrad.nn.datasets`,
which is imported by its name.
"""

from tilegrad.nn import functional, optim, state
from tilegrad.nn.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dropout,
    Embedding,
    Linear,
)
from tilegrad.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from tilegrad.nn.norms import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "CrossEntropyLoss", "Dropout", "Embedding", "GroupNorm", "HuberLoss", "InstanceNorm", "L1Loss",
    "LayerNorm", "LayerNorm2d", "Linear", "MSELoss", "NLLLoss", "RMSNorm", "SmoothL1Loss",
    "functional", "optim", "state",
]  # fmt: skip
