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
    from tilegrad.nn import CELU as CELU
    from tilegrad.nn import ELU as ELU
    from tilegrad.nn import GELU as GELU
    from tilegrad.nn import GLU as GLU
    from tilegrad.nn import GRU as GRU
    from tilegrad.nn import LSTM as LSTM
    from tilegrad.nn import RNN as RNN
    from tilegrad.nn import SELU as SELU
    from tilegrad.nn import AdaptiveAvgPool1d as AdaptiveAvgPool1d
    from tilegrad.nn import AdaptiveAvgPool2d as AdaptiveAvgPool2d
    from tilegrad.nn import AdaptiveAvgPool3d as AdaptiveAvgPool3d
    from tilegrad.nn import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
    from tilegrad.nn import AdaptiveMaxPool1d as AdaptiveMaxPool1d
    from tilegrad.nn import AdaptiveMaxPool2d as AdaptiveMaxPool2d
    from tilegrad.nn import AdaptiveMaxPool3d as AdaptiveMaxPool3d
    from tilegrad.nn import AlphaDropout as AlphaDropout
    from tilegrad.nn import AvgPool1d as AvgPool1d
    from tilegrad.nn import AvgPool2d as AvgPool2d
    from tilegrad.nn import AvgPool3d as AvgPool3d
    from tilegrad.nn import BatchNorm1d as BatchNorm1d
    from tilegrad.nn import BatchNorm2d as BatchNorm2d
    from tilegrad.nn import BatchNorm3d as BatchNorm3d
    from tilegrad.nn import BCELoss as BCELoss
    from tilegrad.nn import BCEWithLogitsLoss as BCEWithLogitsLoss
    from tilegrad.nn import Bilinear as Bilinear
    from tilegrad.nn import ChannelShuffle as ChannelShuffle
    from tilegrad.nn import CircularPad1d as CircularPad1d
    from tilegrad.nn import CircularPad2d as CircularPad2d
    from tilegrad.nn import CircularPad3d as CircularPad3d
    from tilegrad.nn import ConstantPad1d as ConstantPad1d
    from tilegrad.nn import ConstantPad2d as ConstantPad2d
    from tilegrad.nn import ConstantPad3d as ConstantPad3d
    from tilegrad.nn import Conv1d as Conv1d
    from tilegrad.nn import Conv2d as Conv2d
    from tilegrad.nn import Conv3d as Conv3d
    from tilegrad.nn import ConvTranspose1d as ConvTranspose1d
    from tilegrad.nn import ConvTranspose2d as ConvTranspose2d
    from tilegrad.nn import ConvTranspose3d as ConvTranspose3d
    from tilegrad.nn import CosineEmbeddingLoss as CosineEmbeddingLoss
    from tilegrad.nn import CosineSimilarity as CosineSimilarity
    from tilegrad.nn import CrossEntropyLoss as CrossEntropyLoss
    from tilegrad.nn import CTCLoss as CTCLoss
    from tilegrad.nn import Dropout as Dropout
    from tilegrad.nn import Dropout1d as Dropout1d
    from tilegrad.nn import Dropout2d as Dropout2d
    from tilegrad.nn import Dropout3d as Dropout3d
    from tilegrad.nn import Embedding as Embedding
    from tilegrad.nn import EmbeddingBag as EmbeddingBag
    from tilegrad.nn import FeatureAlphaDropout as FeatureAlphaDropout
    from tilegrad.nn import Flatten as Flatten
    from tilegrad.nn import Fold as Fold
    from tilegrad.nn import FractionalMaxPool2d as FractionalMaxPool2d
    from tilegrad.nn import FractionalMaxPool3d as FractionalMaxPool3d
    from tilegrad.nn import GaussianNLLLoss as GaussianNLLLoss
    from tilegrad.nn import GroupNorm as GroupNorm
    from tilegrad.nn import GRUCell as GRUCell
    from tilegrad.nn import Hardshrink as Hardshrink
    from tilegrad.nn import Hardsigmoid as Hardsigmoid
    from tilegrad.nn import Hardswish as Hardswish
    from tilegrad.nn import Hardtanh as Hardtanh
    from tilegrad.nn import HingeEmbeddingLoss as HingeEmbeddingLoss
    from tilegrad.nn import HuberLoss as HuberLoss
    from tilegrad.nn import Identity as Identity
    from tilegrad.nn import InstanceNorm1d as InstanceNorm1d
    from tilegrad.nn import InstanceNorm2d as InstanceNorm2d
    from tilegrad.nn import InstanceNorm3d as InstanceNorm3d
    from tilegrad.nn import KLDivLoss as KLDivLoss
    from tilegrad.nn import L1Loss as L1Loss
    from tilegrad.nn import LayerNorm as LayerNorm
    from tilegrad.nn import LazyBatchNorm1d as LazyBatchNorm1d
    from tilegrad.nn import LazyBatchNorm2d as LazyBatchNorm2d
    from tilegrad.nn import LazyBatchNorm3d as LazyBatchNorm3d
    from tilegrad.nn import LazyConv1d as LazyConv1d
    from tilegrad.nn import LazyConv2d as LazyConv2d
    from tilegrad.nn import LazyConv3d as LazyConv3d
    from tilegrad.nn import LazyConvTranspose1d as LazyConvTranspose1d
    from tilegrad.nn import LazyConvTranspose2d as LazyConvTranspose2d
    from tilegrad.nn import LazyConvTranspose3d as LazyConvTranspose3d
    from tilegrad.nn import LazyInstanceNorm1d as LazyInstanceNorm1d
    from tilegrad.nn import LazyInstanceNorm2d as LazyInstanceNorm2d
    from tilegrad.nn import LazyInstanceNorm3d as LazyInstanceNorm3d
    from tilegrad.nn import LazyLinear as LazyLinear
    from tilegrad.nn import LeakyReLU as LeakyReLU
    from tilegrad.nn import Linear as Linear
    from tilegrad.nn import LocalResponseNorm as LocalResponseNorm
    from tilegrad.nn import LogSigmoid as LogSigmoid
    from tilegrad.nn import LogSoftmax as LogSoftmax
    from tilegrad.nn import LPPool1d as LPPool1d
    from tilegrad.nn import LPPool2d as LPPool2d
    from tilegrad.nn import LPPool3d as LPPool3d
    from tilegrad.nn import LSTMCell as LSTMCell
    from tilegrad.nn import MarginRankingLoss as MarginRankingLoss
    from tilegrad.nn import MaxPool1d as MaxPool1d
    from tilegrad.nn import MaxPool2d as MaxPool2d
    from tilegrad.nn import MaxPool3d as MaxPool3d
    from tilegrad.nn import MaxUnpool1d as MaxUnpool1d
    from tilegrad.nn import MaxUnpool2d as MaxUnpool2d
    from tilegrad.nn import MaxUnpool3d as MaxUnpool3d
    from tilegrad.nn import Mish as Mish
    from tilegrad.nn import ModuleDict as ModuleDict
    from tilegrad.nn import ModuleList as ModuleList
    from tilegrad.nn import MSELoss as MSELoss
    from tilegrad.nn import MultiheadAttention as MultiheadAttention
    from tilegrad.nn import MultiLabelMarginLoss as MultiLabelMarginLoss
    from tilegrad.nn import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
    from tilegrad.nn import MultiMarginLoss as MultiMarginLoss
    from tilegrad.nn import NLLLoss as NLLLoss
    from tilegrad.nn import PairwiseDistance as PairwiseDistance
    from tilegrad.nn import ParameterDict as ParameterDict
    from tilegrad.nn import ParameterList as ParameterList
    from tilegrad.nn import PixelShuffle as PixelShuffle
    from tilegrad.nn import PixelUnshuffle as PixelUnshuffle
    from tilegrad.nn import PoissonNLLLoss as PoissonNLLLoss
    from tilegrad.nn import PReLU as PReLU
    from tilegrad.nn import ReflectionPad1d as ReflectionPad1d
    from tilegrad.nn import ReflectionPad2d as ReflectionPad2d
    from tilegrad.nn import ReflectionPad3d as ReflectionPad3d
    from tilegrad.nn import ReLU as ReLU
    from tilegrad.nn import ReLU6 as ReLU6
    from tilegrad.nn import ReplicationPad1d as ReplicationPad1d
    from tilegrad.nn import ReplicationPad2d as ReplicationPad2d
    from tilegrad.nn import ReplicationPad3d as ReplicationPad3d
    from tilegrad.nn import RMSNorm as RMSNorm
    from tilegrad.nn import RNNCell as RNNCell
    from tilegrad.nn import RReLU as RReLU
    from tilegrad.nn import Sequential as Sequential
    from tilegrad.nn import Sigmoid as Sigmoid
    from tilegrad.nn import SiLU as SiLU
    from tilegrad.nn import SmoothL1Loss as SmoothL1Loss
    from tilegrad.nn import SoftMarginLoss as SoftMarginLoss
    from tilegrad.nn import Softmax as Softmax
    from tilegrad.nn import Softmax2d as Softmax2d
    from tilegrad.nn import Softmin as Softmin
    from tilegrad.nn import Softplus as Softplus
    from tilegrad.nn import Softshrink as Softshrink
    from tilegrad.nn import Softsign as Softsign
    from tilegrad.nn import Tanh as Tanh
    from tilegrad.nn import Tanhshrink as Tanhshrink
    from tilegrad.nn import Threshold as Threshold
    from tilegrad.nn import Transformer as Transformer
    from tilegrad.nn import TransformerDecoder as TransformerDecoder
    from tilegrad.nn import TransformerDecoderLayer as TransformerDecoderLayer
    from tilegrad.nn import TransformerEncoder as TransformerEncoder
    from tilegrad.nn import TransformerEncoderLayer as TransformerEncoderLayer
    from tilegrad.nn import TripletMarginLoss as TripletMarginLoss
    from tilegrad.nn import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
    from tilegrad.nn import Unflatten as Unflatten
    from tilegrad.nn import Unfold as Unfold
    from tilegrad.nn import Upsample as Upsample
    from tilegrad.nn import UpsamplingBilinear2d as UpsamplingBilinear2d
    from tilegrad.nn import UpsamplingNearest2d as UpsamplingNearest2d
    from tilegrad.nn import ZeroPad1d as ZeroPad1d
    from tilegrad.nn import ZeroPad2d as ZeroPad2d
    from tilegrad.nn import ZeroPad3d as ZeroPad3d
    from tilegrad.torch.nn.synchronized import SyncBatchNorm as SyncBatchNorm
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
