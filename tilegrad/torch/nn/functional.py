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
    from tilegrad.nn.functional import *
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
