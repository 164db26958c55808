"""Layers, losses, optimizers, and state: what a model is made of.

`nn.data`, `nn.distributions`, `nn.functional`, `nn.init`, `nn.optim`, `nn.schedulers`, `nn.state`
and `nn.utils` are modules; ready data sets are in `tilegrad.nn.datasets`, which is imported by its
name.
"""

from tilegrad.base.absent import refuse_others
from tilegrad.nn import data, distributions, functional, init, optim, schedulers, state, utils
from tilegrad.nn.activations import *
from tilegrad.nn.adaptive import AdaptiveLogSoftmaxWithLoss
from tilegrad.nn.adjustable_activations import *
from tilegrad.nn.attention import MultiheadAttention
from tilegrad.nn.cells import GRUCell, LSTMCell, RNNCell
from tilegrad.nn.columns import Fold, Unfold
from tilegrad.nn.containers import *
from tilegrad.nn.distance_losses import *
from tilegrad.nn.dropout import *
from tilegrad.nn.embedding import Embedding, EmbeddingBag
from tilegrad.nn.fractional import FractionalMaxPool2d, FractionalMaxPool3d
from tilegrad.nn.layers import *
from tilegrad.nn.lazy import *
from tilegrad.nn.losses import *
from tilegrad.nn.module import Module, Parameter
from tilegrad.nn.norms import *
from tilegrad.nn.pooling import *
from tilegrad.nn.recurrent import GRU, LSTM, RNN
from tilegrad.nn.resampling import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d
from tilegrad.nn.shapes import *
from tilegrad.nn.summary import summary
from tilegrad.nn.transformer import *

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "GRU", "LSTM", "RNN", "SELU", "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveLogSoftmaxWithLoss", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "BCELoss", "BCEWithLogitsLoss", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
    "Bilinear", "CTCLoss", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "CosineEmbeddingLoss",
    "CosineSimilarity", "CrossEntropyLoss", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d",
    "Embedding", "EmbeddingBag", "FeatureAlphaDropout", "Flatten", "Fold", "FractionalMaxPool2d",
    "FractionalMaxPool3d", "GRUCell", "GaussianNLLLoss", "GroupNorm", "Hardshrink", "Hardsigmoid",
    "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "Identity", "InstanceNorm",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "KLDivLoss", "L1Loss", "LPPool1d",
    "LPPool2d", "LPPool3d", "LSTMCell", "LayerNorm", "LayerNorm2d", "LazyBatchNorm1d",
    "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear", "LeakyReLU", "Linear",
    "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "Module",
    "ModuleDict", "ModuleList", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "MultiheadAttention", "NLLLoss", "PReLU", "PairwiseDistance", "Parameter",
    "ParameterDict", "ParameterList", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss",
    "QuickGELU", "RMSNorm", "RNNCell", "RReLU", "ReLU", "ReLU6", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "Sequential", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss",
    "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    "Threshold", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerEncoderLayer", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss", "Unflatten", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "data", "distributions",
    "functional", "init", "optim", "schedulers", "state", "summary", "utils",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
