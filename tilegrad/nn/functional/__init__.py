"""Functions under the names and arguments of PyTorch's `nn.functional`."""

from tilegrad.base.absent import refuse_others
from tilegrad.nn.functional.activations import *
from tilegrad.nn.functional.columns import fold, unfold
from tilegrad.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tilegrad.nn.functional.ctc import ctc_loss
from tilegrad.nn.functional.distances import cosine_similarity, pairwise_distance, pdist
from tilegrad.nn.functional.dropout import *
from tilegrad.nn.functional.embedding import embedding, embedding_bag, one_hot
from tilegrad.nn.functional.fractional import fractional_max_pool2d, fractional_max_pool3d
from tilegrad.nn.functional.losses import *
from tilegrad.nn.functional.margins import *
from tilegrad.nn.functional.norms import *
from tilegrad.nn.functional.pooling import *
from tilegrad.nn.functional.products import bilinear, linear, scaled_dot_product_attention
from tilegrad.nn.functional.resampling import affine_grid, grid_sample, interpolate, upsample
from tilegrad.nn.functional.shapes import channel_shuffle, pad, pixel_shuffle, pixel_unshuffle
from tilegrad.nn.functional.softmaxes import gumbel_softmax, log_softmax, softmax, softmin

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "fractional_max_pool2d", "fractional_max_pool3d",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gumbel_softmax", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss", "instance_norm",
    "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "local_response_norm",
    "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss",
    "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "mish", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance",
    "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6",
    "rms_norm", "rrelu", "scaled_dot_product_attention", "selu", "sigmoid", "silu",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink",
    "softsign", "tanh", "tanhshrink", "threshold", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
