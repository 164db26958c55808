"""PyTorch's names, computed by tilegrad.

    import tilegrad.torch as torch
    import tilegrad.torch.nn as nn
    import tilegrad.torch.nn.functional as F

A PyTorch program runs with its import lines changed. Tensors here have PyTorch's semantics where
those of tilegrad differ (tensor.py); all else is tilegrad. Modules load when they are first used.
docs/moving-from-pytorch.md says what differs.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import TYPE_CHECKING, Any

from tilegrad.base.absent import as_asked
from tilegrad.base.dtype import DType as dtype
from tilegrad.base.dtype import dtypes as _dtypes
from tilegrad.torch import complexes as _complexes
from tilegrad.torch import configuration as _configuration
from tilegrad.torch import legacy as _legacy
from tilegrad.torch import saving as _saving
from tilegrad.torch import tabled as _tabled
from tilegrad.torch.absent_hints import absent
from tilegrad.torch.compiling import compile
from tilegrad.torch.complex import polar, view_as_complex, view_as_real
from tilegrad.torch.complex_dtypes import complex32, complex64, complex128
from tilegrad.torch.complexes import *
from tilegrad.torch.configuration import *
from tilegrad.torch.device_names import device
from tilegrad.torch.functions import (
    bartlett_window,
    binomial,
    blackman_window,
    broadcast_shapes,
    broadcast_tensors,
    chain_matmul,
    combinations,
    frobenius_norm,
    from_dlpack,
    gradient,
    hamming_window,
    hann_window,
    istft,
    kaiser_window,
    norm,
    numel,
    poisson,
    qr,
    repeat_interleave,
    rsub,
    split,
    std,
    std_mean,
    stft,
    svd,
    typename,
    unique,
    var,
    var_mean,
    vmap,
)
from tilegrad.torch.legacy import *
from tilegrad.torch.low_rank_factors import lobpcg, pca_lowrank, svd_lowrank
from tilegrad.torch.made_tensors import arange, frombuffer, tril_indices, triu_indices
from tilegrad.torch.made_tensors import range_ as range
from tilegrad.torch.random import *
from tilegrad.torch.random_tensors import (
    bernoulli,
    multinomial,
    normal,
    randint,
    randint_like,
    randperm,
)
from tilegrad.torch.rounded import fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine
from tilegrad.torch.saving import *
from tilegrad.torch.segment_reduce import segment_reduce
from tilegrad.torch.size import Size
from tilegrad.torch.special import polygamma
from tilegrad.torch.tabled import *
from tilegrad.torch.tensor import Tensor
from tilegrad.torch.tensor_printing import set_printoptions
from tilegrad.torch.thread_modes import (
    autocast,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from tilegrad.torch import (
        accelerator,
        amp,
        autograd,
        backends,
        compiler,
        cuda,
        distributions,
        fft,
        func,
        jit,
        linalg,
        nn,
        optim,
        profiler,
        random,
        signal,
        sparse,
        special,
        testing,
        types,
        utils,
        version,
    )
    from tilegrad.torch.amp import GradScaler
    from tilegrad.torch.nn.functional import (
        adaptive_avg_pool1d,
        alpha_dropout,
        avg_pool1d,
        batch_norm,
        bilinear,
        binary_cross_entropy_with_logits,
        celu,
        celu_,
        channel_shuffle,
        conv1d,
        conv2d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
        cosine_embedding_loss,
        cosine_similarity,
        ctc_loss,
        dropout,
        embedding,
        embedding_bag,
        feature_alpha_dropout,
        group_norm,
        hardshrink,
        hinge_embedding_loss,
        instance_norm,
        kl_div,
        layer_norm,
        margin_ranking_loss,
        max_pool1d,
        max_pool2d,
        max_pool3d,
        pairwise_distance,
        pixel_shuffle,
        pixel_unshuffle,
        poisson_nll_loss,
        prelu,
        rms_norm,
        rrelu,
        rrelu_,
        selu,
        selu_,
        threshold,
        threshold_,
        triplet_margin_loss,
    )
    from tilegrad.torch.sparse import mm as spmm
    from tilegrad.torch.sparse import sparse_coo_tensor, sparse_csr_tensor

bfloat16 = _dtypes.bfloat16
bool = _dtypes.bool
double = _dtypes.double
float = _dtypes.float
float16 = _dtypes.float16
float32 = _dtypes.float32
float64 = _dtypes.float64
half = _dtypes.half
int = _dtypes.int
int16 = _dtypes.int16
int32 = _dtypes.int32
int64 = _dtypes.int64
int8 = _dtypes.int8
long = _dtypes.long
short = _dtypes.short
uint8 = _dtypes.uint8
uint16 = _dtypes.uint16
uint32 = _dtypes.uint32
uint64 = _dtypes.uint64
float8_e4m3fn = _dtypes.float8_e4m3fn
float8_e4m3fnuz = _dtypes.float8_e4m3fnuz
float8_e5m2fnuz = _dtypes.float8_e5m2fnuz
float8_e5m2 = _dtypes.float8_e5m2

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
newaxis = None
# The memory layout is the compiler's choice.
chalf, cfloat, cdouble = complex32, complex64, complex128
strided, sparse_coo, sparse_csr = "torch.strided", "torch.sparse_coo", "torch.sparse_csr"
contiguous_format = legacy_contiguous_format = "contiguous_format"
preserve_format = "preserve_format"
channels_last, channels_last_3d = "channels_last", "channels_last_3d"
layout = memory_format = str
__version__ = "2.13.0+tilegrad"

_MODULES = frozenset([
    "_C", "_custom_ops", "_dynamo", "_higher_order_ops", "_subclasses", "accelerator", "amp",
    "ao", "autograd", "backends", "compiler", "cpu", "cuda", "distributed", "distributions",
    "fft", "func", "fx", "hub", "jit", "library", "linalg", "mps", "multiprocessing", "nn",
    "onnx", "ops", "optim", "overrides", "profiler", "random", "serialization", "signal",
    "sparse", "special", "testing", "types", "utils", "version", "xpu",
])  # fmt: skip
# Names that few programs use, and the modules that have them.
_ELSEWHERE = {
    "Event": "absent_gpus", "GradScaler": "amp", "Stream": "absent_gpus",
    "sparse_coo_tensor": "sparse", "sparse_csr_tensor": "sparse",
    "spmm": "sparse.mm",
    **dict.fromkeys(
        (
            "SymBool", "SymFloat", "SymInt", "_assert", "_assert_async", "_check", "_check_index",
            "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_type",
            "_check_value", "_check_with", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min",
            "sym_not", "sym_sqrt", "sym_sum",
        ),
        "symbolic_checks",
    ),
    **dict.fromkeys(
        (
            "alias_copy", "as_strided_copy", "constant_pad_nd", "detach_copy", "diagonal_copy",
            "expand_copy", "fill", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d",
            "histogramdd", "lu_unpack", "narrow_copy", "permute_copy", "select_copy", "slice_copy",
            "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy",
            "triangular_solve", "unbind_copy", "unfold_copy", "unsafe_chunk", "unsafe_split",
            "unsafe_split_with_sizes", "unsqueeze_copy", "view_as_complex_copy",
            "view_as_real_copy", "view_copy",
        ),
        "seldom",
    ),
}  # fmt: skip

__all__ = [
    "Generator", "GradScaler", "Size", "Tensor", "accelerator", "adaptive_avg_pool1d",
    "alpha_dropout", "amp", "arange",
    "autocast", "autograd", "avg_pool1d", "backends", "bartlett_window", "batch_norm",
    "bernoulli", "bfloat16", "bilinear", "binary_cross_entropy_with_logits", "binomial",
    "blackman_window", "bool", "broadcast_shapes", "broadcast_tensors",
    "cdouble", "celu", "celu_", "cfloat", "chain_matmul", "channel_shuffle",
    "channels_last", "channels_last_3d", "combinations", "compile", "compiler",
    "complex32", "complex64", "complex128", "contiguous_format", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "ctc_loss", "cuda", "default_generator", "device", "distributions",
    "double", "dropout",
    "dtype", "e", "embedding", "embedding_bag", "enable_grad",
    "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
    "feature_alpha_dropout", "fft", "float", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float16",
    "float32", "float64", "fork_rng", "frobenius_norm", "from_dlpack", "frombuffer",
    "func", "get_rng_state", "gradient", "group_norm", "half", "hamming_window",
    "hann_window", "hardshrink", "hinge_embedding_loss", "inf", "inference_mode",
    "initial_seed", "instance_norm", "int", "int8", "int16", "int32", "int64",
    "is_grad_enabled", "is_inference_mode_enabled", "istft", "jit", "kaiser_window", "kl_div",
    "layer_norm", "layout", "legacy_contiguous_format", "linalg", "lobpcg",
    "long", "manual_seed",
    "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "memory_format",
    "multinomial", "nan", "newaxis", "nn", "no_grad", "norm", "normal", "numel",
    "optim", "pairwise_distance", "pca_lowrank", "pi", "pixel_shuffle", "pixel_unshuffle",
    "poisson", "poisson_nll_loss", "polar", "polygamma", "prelu", "preserve_format", "profiler",
    "qr", "randint", "randint_like", "random", "randperm", "range",
    "repeat_interleave", "rms_norm", "rrelu", "rrelu_", "rsub",
    "seed", "segment_reduce", "selu", "selu_", "set_grad_enabled", "set_printoptions",
    "set_rng_state", "short", "signal", "sparse", "sparse_coo", "sparse_coo_tensor",
    "sparse_csr", "sparse_csr_tensor",
    "special", "split", "spmm", "std", "std_mean", "stft", "strided", "svd", "svd_lowrank",
    "testing", "threshold", "threshold_", "tril_indices", "triplet_margin_loss",
    "triu_indices", "typename", "types", "uint8", "uint16", "uint32", "uint64", "unique",
    "utils", "var", "var_mean", "version", "view_as_complex", "view_as_real", "vmap",
]  # fmt: skip
__all__ += _complexes.__all__
__all__ += _configuration.__all__
__all__ += _legacy.__all__
__all__ += _saving.__all__
__all__ += _tabled.__all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "torch":
            # As in PyTorch, whose own module is among its names.
            return sys.modules[__name__]
        if name in _MODULES:
            return importlib.import_module(f"tilegrad.torch.{name}")
        if name in _ELSEWHERE:
            module, _, own = _ELSEWHERE[name].partition(".")
            return getattr(importlib.import_module(f"tilegrad.torch.{module}"), own or name)
        if name in __all__:
            # All others are functions that `torch.nn.functional` has as well.
            found = getattr(importlib.import_module("tilegrad.torch.nn.functional"), name)
            globals()[name] = found
            return found
        if name.startswith("_foreach_"):
            foreach = importlib.import_module("tilegrad.torch.foreach")
            if name in foreach.NAMES:
                return foreach.foreach(name)
        raise as_asked(AttributeError(absent("torch", name, __all__), name=name))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
