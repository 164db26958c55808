"""Layers, losses and what belongs to them, under the names of `torch.nn`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilegrad.base.absent import as_asked
from tilegrad.torch.absent_hints import absent
from tilegrad.torch.nn import functional, init, parameter, utils
from tilegrad.torch.nn.module import Module
from tilegrad.torch.nn.parallel import DataParallel
from tilegrad.torch.nn.parameter import Buffer, Parameter

if TYPE_CHECKING:
    from tilegrad.nn.activations import *
    from tilegrad.nn.adaptive import *
    from tilegrad.nn.adjustable_activations import *
    from tilegrad.nn.attention import *
    from tilegrad.nn.cells import *
    from tilegrad.nn.columns import *
    from tilegrad.nn.containers import *
    from tilegrad.nn.distance_losses import *
    from tilegrad.nn.dropout import *
    from tilegrad.nn.embedding import *
    from tilegrad.nn.fractional import *
    from tilegrad.nn.layers import *
    from tilegrad.nn.lazy import *
    from tilegrad.nn.losses import *
    from tilegrad.nn.norms import *
    from tilegrad.nn.pooling import *
    from tilegrad.nn.recurrent import *
    from tilegrad.nn.resampling import *
    from tilegrad.nn.shapes import *
    from tilegrad.nn.transformer import *
    from tilegrad.torch.nn.synchronized import SyncBatchNorm
else:
    from tilegrad.torch.nn.derived_layers import layers

    globals().update(layers())

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "GRU", "LSTM", "RNN", "SELU", "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveLogSoftmaxWithLoss", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear",
    "Buffer", "CTCLoss", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "CosineEmbeddingLoss",
    "CosineSimilarity", "CrossEntropyLoss", "DataParallel", "Dropout", "Dropout1d", "Dropout2d",
    "Dropout3d", "Embedding", "EmbeddingBag", "FeatureAlphaDropout", "Flatten", "Fold",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "GRUCell", "GaussianNLLLoss", "GroupNorm",
    "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss",
    "Identity", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "KLDivLoss", "L1Loss",
    "LPPool1d", "LPPool2d", "LPPool3d", "LSTMCell", "LayerNorm", "LazyBatchNorm1d",
    "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear", "LeakyReLU", "Linear",
    "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "Module",
    "ModuleDict", "ModuleList", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "MultiheadAttention", "NLLLoss", "PReLU", "PairwiseDistance", "Parameter",
    "ParameterDict", "ParameterList", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RMSNorm",
    "RNNCell", "RReLU", "ReLU", "ReLU6", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Sequential", "SiLU", "Sigmoid",
    "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
    "Softsign", "SyncBatchNorm", "Tanh", "Tanhshrink", "Threshold", "Transformer",
    "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unflatten",
    "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d",
    "ZeroPad3d", "functional", "init", "parameter", "utils",
]  # fmt: skip


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("attention", "modules", "parallel"):
            return importlib.import_module(f"tilegrad.torch.nn.{name}")
        if name in ("RNNBase", "RNNCellBase"):
            return getattr(importlib.import_module("tilegrad.torch.nn.modules"), name)
        raise as_asked(AttributeError(absent("torch.nn", name, __all__), name=name))
