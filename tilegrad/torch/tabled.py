"""The functions of `torch` that are methods of tensors under the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegrad.torch.calling import as_function
from tilegrad.torch.tensor import Tensor

__all__ = [
    "abs", "abs_", "absolute", "acos", "acos_", "acosh", "acosh_", "add", "addbmm", "addcdiv",
    "addcmul", "addmm", "addmv", "addmv_", "addr", "adjoint", "all", "amax", "amin", "aminmax",
    "any", "arccos", "arccos_", "arccosh", "arccosh_", "arcsin", "arcsin_", "arcsinh", "arcsinh_",
    "arctan", "arctan2", "arctan_", "arctanh", "arctanh_", "argmax", "argmin", "argsort",
    "argwhere", "as_strided", "asin", "asin_", "asinh", "asinh_", "atan", "atan2", "atan_", "atanh",
    "atanh_", "baddbmm", "bincount", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_to", "bucketize", "cdist",
    "ceil", "ceil_", "cholesky", "cholesky_inverse", "cholesky_solve", "chunk", "clamp", "clamp_",
    "clamp_max", "clamp_max_", "clamp_min", "clamp_min_", "clip", "clip_", "clone", "cond",
    "conj_physical", "copysign", "corrcoef", "cos", "cos_", "cosh", "cosh_", "count_nonzero", "cov",
    "cross", "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "deg2rad", "deg2rad_",
    "det", "detach", "detach_", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter",
    "diff", "digamma", "dist", "div", "divide", "dot", "dsplit", "eq", "erf", "erf_", "erfc",
    "erfc_", "erfinv", "exp", "exp2", "exp2_", "exp_", "expm1", "expm1_", "fill_", "fix", "fix_",
    "flatten", "flip", "fliplr", "flipud", "float_power", "floor", "floor_", "floor_divide", "fmax",
    "fmin", "fmod", "frac", "frac_", "frexp", "gather", "gcd", "gcd_", "ge", "ger", "get_device",
    "greater", "greater_equal", "gt", "heaviside", "histc", "histogram", "hsplit", "hypot", "i0",
    "i0_", "igamma", "igammac", "index_add", "index_copy", "index_fill", "index_put", "index_put_",
    "index_reduce", "index_select", "inner", "inverse", "is_conj", "is_floating_point",
    "is_inference", "is_neg", "is_nonzero", "is_same_size", "is_signed", "isclose", "isfinite",
    "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "kron", "kthvalue", "lcm", "lcm_",
    "ldexp", "ldexp_", "le", "lerp", "less", "less_equal", "lgamma", "log", "log1p", "log1p_",
    "log2", "log2_", "log10", "log10_", "log_", "log_softmax", "logaddexp", "logaddexp2",
    "logcumsumexp", "logdet", "logical_and", "logical_not", "logical_or", "logical_xor", "logit",
    "logit_", "logsumexp", "lstsq", "lt", "lu", "lu_solve", "masked_fill", "masked_scatter",
    "masked_select", "matmul", "matrix_exp", "matrix_power", "matrix_rank", "max", "maximum",
    "mean", "median", "min", "minimum", "mm", "mode", "moveaxis", "movedim", "msort", "mul",
    "multiply", "mv", "mvlgamma", "nan_to_num", "nan_to_num_", "nanmean", "nanmedian",
    "nanquantile", "nansum", "narrow", "ne", "neg", "neg_", "negative", "negative_", "nextafter",
    "nonzero", "nonzero_static", "not_equal", "orgqr", "outer", "pdist", "permute", "pinverse",
    "positive", "pow", "prod", "put", "quantile", "rad2deg", "rad2deg_", "ravel", "reciprocal",
    "reciprocal_", "relu", "relu_", "remainder", "renorm", "reshape", "resize_as_", "resolve_conj",
    "resolve_neg", "roll", "rot90", "round", "round_", "rsqrt", "rsqrt_", "scatter", "scatter_add",
    "scatter_reduce", "searchsorted", "select", "select_scatter", "sgn", "sigmoid", "sigmoid_",
    "sign", "signbit", "sin", "sin_", "sinc", "sinc_", "sinh", "sinh_", "slice_scatter", "slogdet",
    "softmax", "solve", "sort", "split_with_sizes", "sqrt", "sqrt_", "square", "square_", "squeeze",
    "sub", "subtract", "sum", "swapaxes", "swapdims", "t", "take", "take_along_dim", "tan", "tan_",
    "tanh", "tanh_", "tensor_split", "tile", "topk", "trace", "transpose", "trapezoid", "trapz",
    "tril", "triu", "true_divide", "trunc", "trunc_", "unbind", "unflatten", "unique_consecutive",
    "unravel_index", "unsqueeze", "vander", "vdot", "vsplit", "xlogy", "xlogy_", "zero_",
]  # fmt: skip

if TYPE_CHECKING:
    abs = Tensor.abs
    abs_ = Tensor.abs_
    absolute = Tensor.absolute
    acos = Tensor.acos
    acos_ = Tensor.acos_
    acosh = Tensor.acosh
    acosh_ = Tensor.acosh_
    add = Tensor.add
    addbmm = Tensor.addbmm
    addcdiv = Tensor.addcdiv
    addcmul = Tensor.addcmul
    addmm = Tensor.addmm
    addmv = Tensor.addmv
    addmv_ = Tensor.addmv_
    addr = Tensor.addr
    adjoint = Tensor.adjoint
    all = Tensor.all
    allclose = Tensor.allclose
    amax = Tensor.amax
    amin = Tensor.amin
    aminmax = Tensor.aminmax
    any = Tensor.any
    arccos = Tensor.arccos
    arccos_ = Tensor.arccos_
    arccosh = Tensor.arccosh
    arccosh_ = Tensor.arccosh_
    arcsin = Tensor.arcsin
    arcsin_ = Tensor.arcsin_
    arcsinh = Tensor.arcsinh
    arcsinh_ = Tensor.arcsinh_
    arctan = Tensor.arctan
    arctan2 = Tensor.arctan2
    arctan_ = Tensor.arctan_
    arctanh = Tensor.arctanh
    arctanh_ = Tensor.arctanh_
    argmax = Tensor.argmax
    argmin = Tensor.argmin
    argsort = Tensor.argsort
    argwhere = Tensor.argwhere
    as_strided = Tensor.as_strided
    asin = Tensor.asin
    asin_ = Tensor.asin_
    asinh = Tensor.asinh
    asinh_ = Tensor.asinh_
    atan = Tensor.atan
    atan2 = Tensor.atan2
    atan_ = Tensor.atan_
    atanh = Tensor.atanh
    atanh_ = Tensor.atanh_
    baddbmm = Tensor.baddbmm
    bincount = Tensor.bincount
    bitwise_and = Tensor.bitwise_and
    bitwise_left_shift = Tensor.bitwise_left_shift
    bitwise_not = Tensor.bitwise_not
    bitwise_or = Tensor.bitwise_or
    bitwise_right_shift = Tensor.bitwise_right_shift
    bitwise_xor = Tensor.bitwise_xor
    bmm = Tensor.bmm
    broadcast_to = Tensor.broadcast_to
    bucketize = Tensor.bucketize
    cdist = Tensor.cdist
    ceil = Tensor.ceil
    ceil_ = Tensor.ceil_
    cholesky = Tensor.cholesky
    cholesky_inverse = Tensor.cholesky_inverse
    cholesky_solve = Tensor.cholesky_solve
    chunk = Tensor.chunk
    clamp = Tensor.clamp
    clamp_ = Tensor.clamp_
    clamp_max = Tensor.clamp_max
    clamp_max_ = Tensor.clamp_max_
    clamp_min = Tensor.clamp_min
    clamp_min_ = Tensor.clamp_min_
    clip = Tensor.clip
    clip_ = Tensor.clip_
    clone = Tensor.clone
    cond = Tensor.cond
    conj_physical = Tensor.conj_physical  # type: ignore[misc]
    copysign = Tensor.copysign
    corrcoef = Tensor.corrcoef
    cos = Tensor.cos
    cos_ = Tensor.cos_
    cosh = Tensor.cosh
    cosh_ = Tensor.cosh_
    count_nonzero = Tensor.count_nonzero
    cov = Tensor.cov
    cross = Tensor.cross
    cummax = Tensor.cummax
    cummin = Tensor.cummin
    cumprod = Tensor.cumprod
    cumsum = Tensor.cumsum
    cumulative_trapezoid = Tensor.cumulative_trapezoid
    deg2rad = Tensor.deg2rad
    deg2rad_ = Tensor.deg2rad_
    det = Tensor.det
    detach = Tensor.detach
    detach_ = Tensor.detach_
    diag = Tensor.diag
    diag_embed = Tensor.diag_embed
    diagflat = Tensor.diagflat
    diagonal = Tensor.diagonal
    diagonal_scatter = Tensor.diagonal_scatter
    diff = Tensor.diff
    digamma = Tensor.digamma
    dist = Tensor.dist
    div = Tensor.div
    divide = Tensor.divide
    dot = Tensor.dot
    dsplit = Tensor.dsplit
    eq = Tensor.eq
    equal = Tensor.equal
    erf = Tensor.erf
    erf_ = Tensor.erf_
    erfc = Tensor.erfc
    erfc_ = Tensor.erfc_
    erfinv = Tensor.erfinv
    exp = Tensor.exp
    exp2 = Tensor.exp2
    exp2_ = Tensor.exp2_
    exp_ = Tensor.exp_
    expm1 = Tensor.expm1
    expm1_ = Tensor.expm1_
    fill_ = Tensor.fill_
    fix = Tensor.fix
    fix_ = Tensor.fix_
    flatten = Tensor.flatten
    flip = Tensor.flip
    fliplr = Tensor.fliplr
    flipud = Tensor.flipud
    float_power = Tensor.float_power
    floor = Tensor.floor
    floor_ = Tensor.floor_
    floor_divide = Tensor.floor_divide
    fmax = Tensor.fmax
    fmin = Tensor.fmin
    fmod = Tensor.fmod
    frac = Tensor.frac
    frac_ = Tensor.frac_
    frexp = Tensor.frexp
    gather = Tensor.gather
    gcd = Tensor.gcd
    gcd_ = Tensor.gcd_
    ge = Tensor.ge
    ger = Tensor.ger
    get_device = Tensor.get_device
    greater = Tensor.greater
    greater_equal = Tensor.greater_equal
    gt = Tensor.gt
    heaviside = Tensor.heaviside
    histc = Tensor.histc
    histogram = Tensor.histogram
    hsplit = Tensor.hsplit
    hypot = Tensor.hypot
    i0 = Tensor.i0
    i0_ = Tensor.i0_
    igamma = Tensor.igamma
    igammac = Tensor.igammac
    index_add = Tensor.index_add
    index_copy = Tensor.index_copy
    index_fill = Tensor.index_fill
    index_put = Tensor.index_put
    index_put_ = Tensor.index_put_
    index_reduce = Tensor.index_reduce
    index_select = Tensor.index_select
    inner = Tensor.inner
    inverse = Tensor.inverse
    is_conj = Tensor.is_conj
    is_floating_point = Tensor.is_floating_point
    is_inference = Tensor.is_inference
    is_neg = Tensor.is_neg
    is_nonzero = Tensor.is_nonzero
    is_same_size = Tensor.is_same_size
    is_signed = Tensor.is_signed
    isclose = Tensor.isclose
    isfinite = Tensor.isfinite
    isin = Tensor.isin
    isinf = Tensor.isinf
    isnan = Tensor.isnan
    isneginf = Tensor.isneginf
    isposinf = Tensor.isposinf
    isreal = Tensor.isreal
    kron = Tensor.kron
    kthvalue = Tensor.kthvalue
    lcm = Tensor.lcm
    lcm_ = Tensor.lcm_
    ldexp = Tensor.ldexp
    ldexp_ = Tensor.ldexp_
    le = Tensor.le
    lerp = Tensor.lerp
    less = Tensor.less
    less_equal = Tensor.less_equal
    lgamma = Tensor.lgamma
    log = Tensor.log
    log10 = Tensor.log10
    log10_ = Tensor.log10_
    log1p = Tensor.log1p
    log1p_ = Tensor.log1p_
    log2 = Tensor.log2
    log2_ = Tensor.log2_
    log_ = Tensor.log_
    log_softmax = Tensor.log_softmax
    logaddexp = Tensor.logaddexp
    logaddexp2 = Tensor.logaddexp2
    logcumsumexp = Tensor.logcumsumexp
    logdet = Tensor.logdet
    logical_and = Tensor.logical_and
    logical_not = Tensor.logical_not
    logical_or = Tensor.logical_or
    logical_xor = Tensor.logical_xor
    logit = Tensor.logit
    logit_ = Tensor.logit_
    logsumexp = Tensor.logsumexp
    lstsq = Tensor.lstsq
    lt = Tensor.lt
    lu = Tensor.lu
    lu_solve = Tensor.lu_solve
    masked_fill = Tensor.masked_fill
    masked_scatter = Tensor.masked_scatter
    masked_select = Tensor.masked_select
    matmul = Tensor.matmul
    matrix_exp = Tensor.matrix_exp
    matrix_power = Tensor.matrix_power
    matrix_rank = Tensor.matrix_rank
    max = Tensor.max
    maximum = Tensor.maximum
    mean = Tensor.mean
    median = Tensor.median
    min = Tensor.min
    minimum = Tensor.minimum
    mm = Tensor.mm
    mode = Tensor.mode
    moveaxis = Tensor.moveaxis
    movedim = Tensor.movedim
    msort = Tensor.msort
    mul = Tensor.mul
    multiply = Tensor.multiply
    mv = Tensor.mv
    mvlgamma = Tensor.mvlgamma
    nan_to_num = Tensor.nan_to_num
    nan_to_num_ = Tensor.nan_to_num_
    nanmean = Tensor.nanmean
    nanmedian = Tensor.nanmedian
    nanquantile = Tensor.nanquantile
    nansum = Tensor.nansum
    narrow = Tensor.narrow
    ne = Tensor.ne
    neg = Tensor.neg
    neg_ = Tensor.neg_
    negative = Tensor.negative
    negative_ = Tensor.negative_
    nextafter = Tensor.nextafter
    nonzero = Tensor.nonzero
    nonzero_static = Tensor.nonzero_static
    not_equal = Tensor.not_equal
    orgqr = Tensor.orgqr
    outer = Tensor.outer
    pdist = Tensor.pdist
    permute = Tensor.permute
    pinverse = Tensor.pinverse
    positive = Tensor.positive
    pow = Tensor.pow
    prod = Tensor.prod
    put = Tensor.put
    quantile = Tensor.quantile
    rad2deg = Tensor.rad2deg
    rad2deg_ = Tensor.rad2deg_
    ravel = Tensor.ravel
    reciprocal = Tensor.reciprocal
    reciprocal_ = Tensor.reciprocal_
    relu = Tensor.relu
    relu_ = Tensor.relu_
    remainder = Tensor.remainder
    renorm = Tensor.renorm
    reshape = Tensor.reshape
    resize_as_ = Tensor.resize_as_
    resolve_conj = Tensor.resolve_conj  # type: ignore[misc]
    resolve_neg = Tensor.resolve_neg  # type: ignore[misc]
    roll = Tensor.roll
    rot90 = Tensor.rot90
    round = Tensor.round
    round_ = Tensor.round_
    rsqrt = Tensor.rsqrt
    rsqrt_ = Tensor.rsqrt_
    scatter = Tensor.scatter
    scatter_add = Tensor.scatter_add
    scatter_reduce = Tensor.scatter_reduce
    searchsorted = Tensor.searchsorted
    select = Tensor.select
    select_scatter = Tensor.select_scatter
    sgn = Tensor.sgn
    sigmoid = Tensor.sigmoid
    sigmoid_ = Tensor.sigmoid_
    sign = Tensor.sign
    signbit = Tensor.signbit
    sin = Tensor.sin
    sin_ = Tensor.sin_
    sinc = Tensor.sinc
    sinc_ = Tensor.sinc_
    sinh = Tensor.sinh
    sinh_ = Tensor.sinh_
    slice_scatter = Tensor.slice_scatter
    slogdet = Tensor.slogdet
    softmax = Tensor.softmax
    solve = Tensor.solve
    sort = Tensor.sort
    split_with_sizes = Tensor.split_with_sizes
    sqrt = Tensor.sqrt
    sqrt_ = Tensor.sqrt_
    square = Tensor.square
    square_ = Tensor.square_
    squeeze = Tensor.squeeze
    sub = Tensor.sub
    subtract = Tensor.subtract
    sum = Tensor.sum
    swapaxes = Tensor.swapaxes
    swapdims = Tensor.swapdims
    t = Tensor.t
    take = Tensor.take
    take_along_dim = Tensor.take_along_dim
    tan = Tensor.tan
    tan_ = Tensor.tan_
    tanh = Tensor.tanh
    tanh_ = Tensor.tanh_
    tensor_split = Tensor.tensor_split
    tile = Tensor.tile
    topk = Tensor.topk
    trace = Tensor.trace
    transpose = Tensor.transpose
    trapezoid = Tensor.trapezoid
    trapz = Tensor.trapz
    tril = Tensor.tril
    triu = Tensor.triu
    true_divide = Tensor.true_divide
    trunc = Tensor.trunc
    trunc_ = Tensor.trunc_
    unbind = Tensor.unbind
    unflatten = Tensor.unflatten
    unique_consecutive = Tensor.unique_consecutive
    unravel_index = Tensor.unravel_index
    unsqueeze = Tensor.unsqueeze
    vander = Tensor.vander
    vdot = Tensor.vdot
    vsplit = Tensor.vsplit
    xlogy = Tensor.xlogy
    xlogy_ = Tensor.xlogy_
    zero_ = Tensor.zero_
else:
    # The last two have namesakes that take complex numbers as well.
    _names = [*__all__, "allclose", "equal"]
    globals().update({name: as_function(name) for name in _names})
