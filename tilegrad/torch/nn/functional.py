"""`torch.nn.functional`: tilegrad's functions of that name, and those that write in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegrad.nn import functional as ours
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.complex import Complex
from tilegrad.torch.complex_families import linear as linear_in
from tilegrad.torch.complex_families import real_or
from tilegrad.torch.nn.attention_function import multi_head_attention_forward
from tilegrad.torch.nn.forwarding import asked_by_rows, forwarded, in_place, of_some_axis

if TYPE_CHECKING:
    from tilegrad.nn.functional import adaptive_avg_pool1d as adaptive_avg_pool1d
    from tilegrad.nn.functional import adaptive_avg_pool2d as adaptive_avg_pool2d
    from tilegrad.nn.functional import adaptive_avg_pool3d as adaptive_avg_pool3d
    from tilegrad.nn.functional import adaptive_max_pool1d as adaptive_max_pool1d
    from tilegrad.nn.functional import adaptive_max_pool2d as adaptive_max_pool2d
    from tilegrad.nn.functional import adaptive_max_pool3d as adaptive_max_pool3d
    from tilegrad.nn.functional import affine_grid as affine_grid
    from tilegrad.nn.functional import alpha_dropout as alpha_dropout
    from tilegrad.nn.functional import avg_pool1d as avg_pool1d
    from tilegrad.nn.functional import avg_pool2d as avg_pool2d
    from tilegrad.nn.functional import avg_pool3d as avg_pool3d
    from tilegrad.nn.functional import batch_norm as batch_norm
    from tilegrad.nn.functional import bilinear as bilinear
    from tilegrad.nn.functional import binary_cross_entropy as binary_cross_entropy
    from tilegrad.nn.functional import (
        binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    )
    from tilegrad.nn.functional import celu as celu
    from tilegrad.nn.functional import channel_shuffle as channel_shuffle
    from tilegrad.nn.functional import conv1d as conv1d
    from tilegrad.nn.functional import conv2d as conv2d
    from tilegrad.nn.functional import conv3d as conv3d
    from tilegrad.nn.functional import conv_transpose1d as conv_transpose1d
    from tilegrad.nn.functional import conv_transpose2d as conv_transpose2d
    from tilegrad.nn.functional import conv_transpose3d as conv_transpose3d
    from tilegrad.nn.functional import cosine_embedding_loss as cosine_embedding_loss
    from tilegrad.nn.functional import cosine_similarity as cosine_similarity
    from tilegrad.nn.functional import cross_entropy as cross_entropy
    from tilegrad.nn.functional import ctc_loss as ctc_loss
    from tilegrad.nn.functional import dropout as dropout
    from tilegrad.nn.functional import dropout1d as dropout1d
    from tilegrad.nn.functional import dropout2d as dropout2d
    from tilegrad.nn.functional import dropout3d as dropout3d
    from tilegrad.nn.functional import elu as elu
    from tilegrad.nn.functional import embedding as embedding
    from tilegrad.nn.functional import embedding_bag as embedding_bag
    from tilegrad.nn.functional import feature_alpha_dropout as feature_alpha_dropout
    from tilegrad.nn.functional import fold as fold
    from tilegrad.nn.functional import fractional_max_pool2d as fractional_max_pool2d
    from tilegrad.nn.functional import fractional_max_pool3d as fractional_max_pool3d
    from tilegrad.nn.functional import gaussian_nll_loss as gaussian_nll_loss
    from tilegrad.nn.functional import gelu as gelu
    from tilegrad.nn.functional import glu as glu
    from tilegrad.nn.functional import grid_sample as grid_sample
    from tilegrad.nn.functional import group_norm as group_norm
    from tilegrad.nn.functional import gumbel_softmax as gumbel_softmax
    from tilegrad.nn.functional import hardshrink as hardshrink
    from tilegrad.nn.functional import hardsigmoid as hardsigmoid
    from tilegrad.nn.functional import hardswish as hardswish
    from tilegrad.nn.functional import hardtanh as hardtanh
    from tilegrad.nn.functional import hinge_embedding_loss as hinge_embedding_loss
    from tilegrad.nn.functional import huber_loss as huber_loss
    from tilegrad.nn.functional import instance_norm as instance_norm
    from tilegrad.nn.functional import interpolate as interpolate
    from tilegrad.nn.functional import kl_div as kl_div
    from tilegrad.nn.functional import l1_loss as l1_loss
    from tilegrad.nn.functional import layer_norm as layer_norm
    from tilegrad.nn.functional import leaky_relu as leaky_relu
    from tilegrad.nn.functional import linear as linear
    from tilegrad.nn.functional import local_response_norm as local_response_norm
    from tilegrad.nn.functional import log_softmax as log_softmax
    from tilegrad.nn.functional import logsigmoid as logsigmoid
    from tilegrad.nn.functional import lp_pool1d as lp_pool1d
    from tilegrad.nn.functional import lp_pool2d as lp_pool2d
    from tilegrad.nn.functional import lp_pool3d as lp_pool3d
    from tilegrad.nn.functional import margin_ranking_loss as margin_ranking_loss
    from tilegrad.nn.functional import max_pool1d as max_pool1d
    from tilegrad.nn.functional import max_pool2d as max_pool2d
    from tilegrad.nn.functional import max_pool3d as max_pool3d
    from tilegrad.nn.functional import max_unpool1d as max_unpool1d
    from tilegrad.nn.functional import max_unpool2d as max_unpool2d
    from tilegrad.nn.functional import max_unpool3d as max_unpool3d
    from tilegrad.nn.functional import mish as mish
    from tilegrad.nn.functional import mse_loss as mse_loss
    from tilegrad.nn.functional import multi_margin_loss as multi_margin_loss
    from tilegrad.nn.functional import multilabel_margin_loss as multilabel_margin_loss
    from tilegrad.nn.functional import multilabel_soft_margin_loss as multilabel_soft_margin_loss
    from tilegrad.nn.functional import nll_loss as nll_loss
    from tilegrad.nn.functional import normalize as normalize
    from tilegrad.nn.functional import one_hot as one_hot
    from tilegrad.nn.functional import pad as pad
    from tilegrad.nn.functional import pairwise_distance as pairwise_distance
    from tilegrad.nn.functional import pdist as pdist
    from tilegrad.nn.functional import pixel_shuffle as pixel_shuffle
    from tilegrad.nn.functional import pixel_unshuffle as pixel_unshuffle
    from tilegrad.nn.functional import poisson_nll_loss as poisson_nll_loss
    from tilegrad.nn.functional import prelu as prelu
    from tilegrad.nn.functional import relu as relu
    from tilegrad.nn.functional import relu6 as relu6
    from tilegrad.nn.functional import rms_norm as rms_norm
    from tilegrad.nn.functional import rrelu as rrelu
    from tilegrad.nn.functional import scaled_dot_product_attention as scaled_dot_product_attention
    from tilegrad.nn.functional import selu as selu
    from tilegrad.nn.functional import sigmoid as sigmoid
    from tilegrad.nn.functional import silu as silu
    from tilegrad.nn.functional import smooth_l1_loss as smooth_l1_loss
    from tilegrad.nn.functional import soft_margin_loss as soft_margin_loss
    from tilegrad.nn.functional import softmax as softmax
    from tilegrad.nn.functional import softmin as softmin
    from tilegrad.nn.functional import softplus as softplus
    from tilegrad.nn.functional import softshrink as softshrink
    from tilegrad.nn.functional import softsign as softsign
    from tilegrad.nn.functional import tanh as tanh
    from tilegrad.nn.functional import tanhshrink as tanhshrink
    from tilegrad.nn.functional import threshold as threshold
    from tilegrad.nn.functional import triplet_margin_loss as triplet_margin_loss
    from tilegrad.nn.functional import (
        triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
    )
    from tilegrad.nn.functional import unfold as unfold
    from tilegrad.nn.functional import upsample as upsample
else:
    globals().update({name: forwarded(getattr(ours, name)) for name in ours.__all__})

unfold, fold = (real_or(linear_in(each.__name__, each, Complex), each) for each in (unfold, fold))
softmax, softmin, log_softmax = map(of_some_axis, (softmax, softmin, log_softmax))
embedding, embedding_bag = asked_by_rows(embedding), asked_by_rows(embedding_bag)

celu_ = in_place(celu)
elu_ = in_place(elu)
hardtanh_ = in_place(hardtanh)
leaky_relu_ = in_place(leaky_relu)
relu_ = in_place(relu)
rrelu_ = in_place(rrelu)
selu_ = in_place(selu)
threshold_ = in_place(threshold)

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "elu", "elu_", "embedding", "embedding_bag",
    "feature_alpha_dropout", "fold", "fractional_max_pool2d", "fractional_max_pool3d",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample",
    "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hardtanh_", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear", "local_response_norm",
    "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss",
    "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "mish", "mse_loss", "multi_head_attention_forward", "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss",
    "prelu", "relu", "relu6", "relu_", "rms_norm", "rrelu", "rrelu_",
    "scaled_dot_product_attention", "selu", "selu_", "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold", "threshold_", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """As `interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """As `interpolate` with mode "bilinear" and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


refuse_others(__name__)
