"""Operations on models as they are: on all gradients or parameters at once, on one weight, on
sequences of several lengths.
"""

from tilegrad.base.absent import refuse_others
from tilegrad.nn.utils import parametrizations, parametrize, rnn
from tilegrad.nn.utils.average import EMA
from tilegrad.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from tilegrad.nn.utils.gradient_norms import *
from tilegrad.nn.utils.reparametrized import *
from tilegrad.nn.utils.vectors import parameters_to_vector, vector_to_parameters

__all__ = [
    "EMA", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_linear_bn_eval", "get_total_norm", "parameters_to_vector", "parametrizations",
    "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
