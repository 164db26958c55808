"""The names that PyTorch gives to the gradients of its operations, as `grad_fn` shows them.

Most are the operation's name and a number. Where the arguments decide, a function tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.tensor.handle.core import Core

__all__ = ["BY_ARGUMENTS", "FUNCTIONS", "LAYERS", "METHODS", "ORDERS"]

_PLAIN = """
    abs acos acosh add addbmm addcdiv addcmul addmm addmv addr amax amin aminmax asin asinh atan
    atan2 atanh baddbmm bernoulli bmm cat ceil celu cholesky cholesky_inverse cholesky_solve
    clone copysign cos cosh cummax cummin cumprod cumsum diag_embed diagonal diagonal_scatter
    digamma dist div dot elu erf erfc erfinv exp exp2 expand expm1 flip floor fmax fmin frac
    frexp gather gelu hardsigmoid hardswish hardtanh hypot i0 index_add index_copy index_fill
    index_put index_select kthvalue ldexp leaky_relu lerp lgamma log log10 log1p log2
    log_softmax logaddexp logaddexp2 logcumsumexp logit logsumexp masked_fill masked_scatter
    masked_select max maximum mean median min minimum mish mm mode mul mv nan_to_num nanmedian
    nansum neg nextafter permute polygamma pow prod reciprocal relu remainder renorm repeat roll
    rot90 round rsqrt scatter scatter_add select select_scatter sgn sigmoid sign silu sin sinc
    sinh slice_scatter softmax softplus sort split sqrt squeeze stack std sub sum t take tan
    tanh topk trace transpose tril triu trunc unbind unfold unsqueeze var view where xlogy
"""
# method=name, where PyTorch computes what has another name.
_OTHERS = """
    absolute=abs adjoint=transpose arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh
    arctan=atan arctan2=atan2 arctanh=atanh bfloat16=to_copy broadcast_to=expand chunk=split
    __mod__=remainder
    __rmod__=remainder cross=linalg_cross deg2rad=deg2_rad det=linalg_det diagflat=diag_embed
    divide=div double=to_copy expand_as=expand fix=trunc flatten=view fliplr=flip flipud=flip
    half=to_copy inverse=linalg_inv_ex inv=linalg_inv_ex eigh=linalg_eigh solve=linalg_solve_ex
    pinv=linalg_pinv vector_norm=linalg_vector_norm matrix_exp=linalg_matrix_exp
    moveaxis=permute movedim=permute msort=sort multiply=mul nanmean=div negative=neg
    pinverse=linalg_pinv quantile=squeeze rad2deg=rad2_deg ravel=view repeat_interleave=view
    reshape=view reshape_as=view slogdet=linalg_slogdet subtract=sub swapaxes=transpose
    swapdims=transpose tensor_split=slice tile=repeat true_divide=div unflatten=view
    view_as=view to=to_copy cast=to_copy float=to_copy type=to_copy type_as=to_copy
    conv2d=convolution conv_transpose2d=convolution max_pool2d=MaxPool2DWithIndices
    avg_pool2d=AvgPool2D __getitem__=index matmul=mm norm=linalg_vector_norm log1p=log1_p
    linear=addmm einsum=view swish=silu __add__=add __radd__=add __iadd__=add __sub__=sub
    __isub__=sub __mul__=mul __rmul__=mul __imul__=mul __truediv__=div __itruediv__=div
    __neg__=neg __abs__=abs __matmul__=mm square=pow __pow__=pow svd=linalg_svd qr=linalg_qr
    outer=mul ger=mul selu=elu relu6=hardtanh softsign=div logsigmoid=log_sigmoid
    scaled_dot_product_attention=ScaledDotProductFlashAttentionForCpu inner=dot kron=unsafe_view
    logdet=where corrcoef=clamp cov=squeeze float_power=pow nanquantile=squeeze narrow=slice
"""
# Whole names, with a number other than 0 or none.
_WHOLE = {
    "clamp": "ClampBackward1", "clip": "ClampBackward1", "clamp_min": "ClampMinBackward0",
    "clamp_max": "ClampMaxBackward0", "__rsub__": "RsubBackward1", "__rpow__": "PowBackward2",
    "diff": "SubBackward0", "diag": "DiagonalBackward0_copy", "corrcoef": "ClampBackward1",
    "quantile": "SqueezeBackward4", "nanquantile": "SqueezeBackward4", "copy_": "CopyBackwards",
    "__rtruediv__": "MulBackward0", "fill_diagonal_": "CopySlices",
}  # fmt: skip
# Methods with a form that writes in place, which has the same name.
_IN_PLACE = """
    abs acos add asin atan ceil clamp clamp_max clamp_min clip cos cosh cumprod cumsum div erf exp
    exp2 expm1 floor frac hypot log log10 log1p log2 logit mul multiply neg pow reciprocal relu
    remainder round rsqrt sigmoid sign sin sinh sqrt square sub tan tanh tril triu trunc masked_fill
    index_add index_copy index_fill index_put scatter scatter_add addmm addcmul addcdiv lerp
"""


def _spelled(name: str) -> str:
    if name[:1].isupper():
        return f"{name}Backward0"
    return "".join(word[:1].upper() + word[1:] for word in name.split("_")) + "Backward0"


METHODS: dict[str, str] = {name: _spelled(name) for name in _PLAIN.split()}
METHODS |= {name: _spelled(other) for name, other in (pair.split("=") for pair in _OTHERS.split())}
METHODS |= _WHOLE
METHODS |= {f"{name}_": METHODS[name] for name in _IN_PLACE.split()}

_PLAIN_FUNCTIONS = """
    binary_cross_entropy binary_cross_entropy_with_logits celu channel_shuffle elu gelu glu
    hardshrink hardsigmoid hardswish hardtanh huber_loss leaky_relu log_softmax mish mse_loss
    multi_margin_loss nll_loss pdist pixel_shuffle pixel_unshuffle relu sigmoid silu
    smooth_l1_loss soft_margin_loss softmax softplus softshrink tanh embedding bilinear
"""
FUNCTIONS = {
    "adaptive_avg_pool2d": "AdaptiveAvgPool2DBackward0", "avg_pool2d": "AvgPool2DBackward0",
    "adaptive_avg_pool3d": "AdaptiveAvgPool3DBackward0", "avg_pool3d": "AvgPool3DBackward0",
    "adaptive_max_pool2d": "AdaptiveMaxPool2DBackward0",
    "adaptive_max_pool3d": "AdaptiveMaxPool3DBackward0",
    "max_pool2d": "MaxPool2DWithIndicesBackward0", "max_pool3d": "MaxPool3DWithIndicesBackward0",
    "conv1d": "ConvolutionBackward0", "conv2d": "ConvolutionBackward0",
    "conv3d": "ConvolutionBackward0", "conv_transpose1d": "ConvolutionBackward0",
    "conv_transpose2d": "ConvolutionBackward0", "conv_transpose3d": "ConvolutionBackward0",
    "batch_norm": "NativeBatchNormBackward0", "layer_norm": "NativeLayerNormBackward0",
    "group_norm": "NativeGroupNormBackward0", "instance_norm": "ViewBackward0",
    "pad": "ConstantPadNdBackward0", "unfold": "Im2ColBackward0", "fold": "Col2ImBackward0",
    "cosine_similarity": "SumBackward1", "logsigmoid": "LogSigmoidBackward0",
    "cross_entropy": "NllLossBackward0", "relu6": "HardtanhBackward0", "selu": "EluBackward0",
    "softmin": "SoftmaxBackward0", "softsign": "DivBackward0", "tanhshrink": "SubBackward0",
    "prelu": "PreluKernelBackward0", "rrelu": "RreluWithNoiseBackward0",
    "dropout": "MulBackward0", "dropout2d": "MulBackward0", "normalize": "DivBackward0",
    "l1_loss": "MeanBackward0", "kl_div": "MeanBackward0", "poisson_nll_loss": "MeanBackward0",
    "gaussian_nll_loss": "MeanBackward0", "hinge_embedding_loss": "MeanBackward0",
    "cosine_embedding_loss": "MeanBackward0", "margin_ranking_loss": "MeanBackward0",
    "triplet_margin_loss": "MeanBackward0", "multilabel_soft_margin_loss": "MeanBackward0",
    "rms_norm": "MulBackward0", "pairwise_distance": "NormBackward1",
    "adaptive_avg_pool1d": "SqueezeBackward1", "adaptive_max_pool1d": "SqueezeBackward1",
    "max_pool1d": "SqueezeBackward1", "avg_pool1d": "SqueezeBackward1", "linear": "AddmmBackward0",
    "gumbel_softmax": "SoftmaxBackward0", "grid_sample": "GridSampler2DBackward0",
    "scaled_dot_product_attention": "ScaledDotProductFlashAttentionForCpuBackward0",
}  # fmt: skip
FUNCTIONS |= {name: _spelled(name) for name in _PLAIN_FUNCTIONS.split()}

# Layers whose function is none of those above, or that call tilegrad's own.
LAYERS = {
    "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm",
    "SyncBatchNorm": "batch_norm",
    "LayerNorm": "layer_norm", "GroupNorm": "group_norm", "RMSNorm": "rms_norm",
    "Embedding": "embedding", "MSELoss": "mse_loss", "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss", "L1Loss": "l1_loss", "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss", "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "KLDivLoss": "kl_div",
    "TripletMarginLoss": "triplet_margin_loss", "CosineEmbeddingLoss": "cosine_embedding_loss",
    "Conv1d": "conv1d", "Conv2d": "conv2d", "Conv3d": "conv3d", "MaxPool2d": "max_pool2d",
    "MaxPool1d": "max_pool1d", "AvgPool2d": "avg_pool2d", "Dropout": "dropout", "PReLU": "prelu",
    "ConvTranspose2d": "conv_transpose2d", "AdaptiveAvgPool2d": "adaptive_avg_pool2d",
    "SELU": "selu", "CELU": "celu", "GLU": "glu", "LogSigmoid": "logsigmoid", "Mish": "mish",
}  # fmt: skip


# where the arguments decide


def _axes(stem: str, alone: int = 0, with_axis: int = 1) -> Callable[..., str]:
    """Without a first argument one number, with one another."""

    def choose(self: Any, *args: Any) -> str:
        has_axis = bool(args) and args[0] is not None
        return f"{stem}Backward{with_axis if has_axis else alone}"

    return choose


def _extreme(stem: str) -> Callable[..., str]:
    plain = _axes(stem, 1, 0)

    def choose(self: Any, *args: Any) -> str:
        return f"{stem}imumBackward0" if args and hasattr(args[0], "uop") else plain(self, *args)

    return choose


def _beside(stem: str, number: int = 0, tensor: int = 1) -> Callable[..., str]:
    """With a number one, with a tensor another."""

    def choose(self: Any, other: Any = None, *args: Any) -> str:
        return f"{stem}Backward{tensor if hasattr(other, 'uop') else number}"

    return choose


def _matmul(self: Any, other: Any, *args: Any) -> str:
    left, right = self.ndim, other.ndim
    if left == right == 1:
        return "DotBackward0"
    if left <= 2 and right <= 2:
        return (
            "MmBackward0" if left == right else "MvBackward0" if right == 1 else "SqueezeBackward4"
        )
    return "BmmBackward0" if left == right == 3 else "UnsafeViewBackward0"


def _linear(self: Any, weight: Any = None, bias: Any = None, *args: Any) -> str:
    if self.ndim == 2:
        return "MmBackward0" if bias is None else "AddmmBackward0"
    if bias is not None:
        return "ViewBackward0"
    return "SqueezeBackward4" if self.ndim == 1 else "UnsafeViewBackward0"


def _item(self: Any, key: Any) -> str:
    """The last step of an index: one for each of its parts."""
    keys = [each for each in (key if isinstance(key, tuple) else (key,)) if each is not Ellipsis]
    if any((isinstance(each, Core) and each.ndim) or isinstance(each, list) for each in keys):
        return "IndexBackward0"
    for each in reversed(keys):
        if each is None:
            return "UnsqueezeBackward0"
        if not isinstance(each, slice):
            return "SelectBackward0"
        if each != slice(None):
            return "SliceBackward0"
    return "SliceBackward0" if keys else "AliasBackward0"


def _squeeze(self: Any, dim: Any = None, *args: Any) -> str:
    return f"SqueezeBackward{0 if dim is None else 2 if isinstance(dim, tuple) else 1}"


BY_ARGUMENTS: dict[str, Callable[..., str]] = {
    "sum": _axes("Sum"), "mean": _axes("Mean"), "prod": _axes("Prod"),
    "median": _axes("Median"), "nanmedian": _axes("Nanmedian"),
    "max": _extreme("Max"), "min": _extreme("Min"), "squeeze": _squeeze,
    "pow": _beside("Pow"), "__pow__": _beside("Pow"), "__mod__": _beside("Remainder"),
    "pow_": _beside("Pow"),
    "float_power": _beside("Pow"), "fmod": _beside("Fmod"), "remainder": _beside("Remainder"),
    "xlogy": _beside("Xlogy", 2, 0), "copysign": _beside("Copysign", 1, 0),
    "clamp": _beside("Clamp", 1, 0), "clamp_min": _beside("ClampMin"),
    "clamp_max": _beside("ClampMax"), "matmul": _matmul, "__matmul__": _matmul, "linear": _linear,
    "__getitem__": _item,
    "__rtruediv__": lambda self, other: "MulBackward0",
    "scatter": lambda self, dim, index, source, *args: _beside("Scatter", 1, 0)(self, source),
}  # fmt: skip


def _bias_first(self: Any, weight: Any, bias: Any = None, *args: Any) -> tuple[Any, ...]:
    return (self, weight) if bias is None else (bias, self, weight)


# The order of the operands in `next_functions`, where it is another than that of the arguments.
ORDERS: dict[str, Callable[..., tuple[Any, ...]]] = {"linear": _bias_first}
