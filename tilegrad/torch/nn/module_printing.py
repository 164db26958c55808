"""Modules as PyTorch prints them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from tilegrad.nn.lazy import _Lazy
from tilegrad.nn.module import arguments_of as of_class

__all__ = ["arguments_of", "text_of"]

# PyTorch's names of classes that have others here.
_CLASSES = {
    "WeightNorm": "_WeightNorm",
    "SpectralNorm": "_SpectralNorm",
    "Orthogonal": "_Orthogonal",
}
_POOLS = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


def text_of(module: Any) -> str:
    """The class, what `extra_repr` says, and a line for each module below."""
    below = list(_below(module))
    extra = module.extra_repr()
    if type(module).__name__ in ("ParameterList", "ParameterDict"):
        below, extra = [], "\n".join(below)
    head = _CLASSES.get(type(module).__name__, type(module).__name__)
    if not below:
        if "\n" not in extra:
            return f"{head}({extra})"
    lines = [*extra.split("\n"), *below] if extra else below
    return f"{head}(" + "".join(f"\n  {_indented(line)}" for line in lines) + "\n)"


def _below(module: Any) -> Iterator[str]:
    if type(module).__name__ in ("ParameterList", "ParameterDict"):
        children = [
            (name, _of_parameter(module, child)) for name, child in module._parameters.items()
        ]
        yield from (f"  ({name}): {text}" for name, text in children)
        return
    children = [(name, _of_module(module, name, child)) for name, child in module._modules.items()]
    if not isinstance(module, list) or type(module).__name__ != "ModuleList":
        yield from (f"({name}): {text}" for name, text in children)
        return
    # Equal neighbours in a list are one line.
    first = 0
    while first < len(children):
        last, text = first, children[first][1]
        while last + 1 < len(children) and children[last + 1][1] == text:
            last += 1
        count = last - first + 1
        yield f"({first}): {text}" if count == 1 else f"({first}-{last}): {count} x {text}"
        first = last + 1


def _of_module(holder: Any, name: str, module: Any) -> str:
    # PyTorch has a class of its own for the projection behind attention.
    is_projection = name == "out_proj" and type(holder).__name__ == "MultiheadAttention"
    return f"NonDynamicallyQuantizable{module!r}" if is_projection else repr(module)


def _of_parameter(holder: Any, tensor: Any) -> str:
    sizes = "x".join(map(str, tensor.shape))
    kind = f"torch.{tensor.dtype.name}" if isinstance(holder, list) else tensor.type()
    return f"Parameter containing: [{kind} of size {sizes}]"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def arguments_of(module: Any) -> str:
    """Text in the brackets of a layer of this package, also of one that a program derives; empty
    for a layer that a program defines itself.
    """
    if isinstance(module, _Lazy):
        return _of_lazy(module)
    for kind in type(module).__mro__:
        if kind.__module__ == "tilegrad.torch.nn":
            rule = _RULES.get(kind.__name__)
            return of_class(module, kind) if rule is None else rule(module)
    return ""


def _of_lazy(module: Any) -> str:
    """The arguments of the layer that it will be; the size to come is 0."""
    args, options = module.__dict__["_given"]
    kind = module._kind
    bound = inspect.signature(kind).bind(0, *args, **options)
    bound.apply_defaults()
    given = dict(bound.arguments)
    given.setdefault("bias", given.get("affine", True))
    axes = int(kind.__name__[-2]) if kind.__name__[-2:-1].isdecimal() else 1
    for name in ("kernel_size", "stride", "dilation", "output_padding"):
        if isinstance(given.get(name), int):
            given[name] = (given[name],) * axes
    layer = SimpleNamespace(**given, _given=given)
    rule = _RULES.get(kind.__name__)
    return of_class(layer, kind) if rule is None else rule(layer)


def _named(module: Any, *names: str) -> list[str]:
    return [f"{name}={getattr(module, name)!r}" for name in names]


def _given(module: Any, *names: str) -> list[str]:
    """Arguments as the program wrote them, before they were made tuples."""
    given = module.__dict__.get("_given", {})
    return [f"{name}={given.get(name, getattr(module, name, None))!r}" for name in names]


def _has_bias(module: Any) -> bool:
    found = getattr(module, "bias", None)
    return found is not None and found is not False


def _unless(module: Any, **usual: Any) -> list[str]:
    """Arguments that are not the usual ones."""
    return _named(module, *(name for name, value in usual.items() if _attr(module, name) != value))


def _attr(module: Any, name: str) -> Any:
    value = getattr(module, name)
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def _convolution(module: Any) -> str:
    found = [str(module.in_channels), str(module.out_channels)]
    found += _named(module, "kernel_size", "stride")
    given = _given_of(module, "padding", 0)
    if given != 0:
        axes = len(module.kernel_size)
        pads = given if isinstance(given, (str, tuple, list)) else (given,) * axes
        found.append(f"padding={pads if isinstance(pads, str) else tuple(pads)}")
    found += _unless(module, dilation=1)
    if hasattr(module, "output_padding"):
        found += _unless(module, output_padding=0)
    found += _unless(module, groups=1)
    if not _has_bias(module):
        found.append("bias=False")
    if getattr(module, "padding_mode", "zeros") != "zeros":
        found.append(f"padding_mode={module.padding_mode}")
    return ", ".join(found)


def _given_of(module: Any, name: str, default: Any) -> Any:
    found = module.__dict__.get("_given", {}).get(name, default)
    is_plain = isinstance(found, (tuple, list)) and len(set(found)) == 1
    return found[0] if is_plain else found


def _norm(module: Any) -> str:
    bias = ["bias=True" if _has_bias(module) else "bias=False"]
    named = _named(module, "eps", "momentum", "affine")
    tracks = _named(module, "track_running_stats")
    return ", ".join([str(module.num_features), *named, *bias, *tracks])


def _layer_norm(module: Any) -> str:
    affine = getattr(module, "weight", None) is not None
    return (
        f"{tuple(module.normalized_shape)}, eps={module.eps}, elementwise_affine={affine}, "
        f"bias={_has_bias(module)}"
    )


def _group_norm(module: Any) -> str:
    affine = getattr(module, "weight", None) is not None
    return (
        f"{module.num_groups}, {module.num_channels}, eps={module.eps}, affine={affine}, "
        f"bias={_has_bias(module)}"
    )


def _rms_norm(module: Any) -> str:
    shape = module.__dict__.get("_given", {}).get("normalized_shape")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape or module.weight.shape)
    eps = module.__dict__.get("_given", {}).get("eps")
    return f"{sizes}, eps={eps}, elementwise_affine={getattr(module, 'weight', None) is not None}"


def _embedding(module: Any) -> str:
    found = [str(module.num_embeddings), str(module.embedding_dim)]
    given = module.__dict__.get("_given", {})
    usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False,
             "sparse": False}  # fmt: skip
    for name, value in usual.items():
        if given.get(name, value) != value:
            found.append(f"{name}={given[name]!r}")
    if hasattr(module, "mode"):
        found = [each for each in found if not each.startswith("sparse=")]
        found.append(f"mode={module.mode!r}")
    return ", ".join(found)


def _recurrent(module: Any) -> str:
    given = module.__dict__.get("_given", {})
    found = [str(module.input_size), str(module.hidden_size)]
    usual = {
        "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
        "bidirectional": False,
    }  # fmt: skip
    found += [f"{name}={given[name]!r}" for name, value in usual.items()
              if given.get(name, value) != value]  # fmt: skip
    return ", ".join(found)


def _cell(module: Any) -> str:
    found = [str(module.input_size), str(module.hidden_size)]
    given = module.__dict__.get("_given", {})
    found += ["bias=False"] if given.get("bias", True) is False else []
    found += _named(module, "nonlinearity") if given.get("nonlinearity", "tanh") != "tanh" else []
    return ", ".join(found)


def _upsample(module: Any) -> str:
    given = module.__dict__.get("_given", {})
    factor = given.get("scale_factor")
    if isinstance(factor, (int, float)):
        factor = float(factor)
    elif factor is not None:
        factor = tuple(map(float, factor))
    name = type(module).__name__.removeprefix("Upsampling").rstrip("2d").lower()
    mode = given.get("mode", "nearest") if name.startswith("upsample") else name
    size = f"scale_factor={factor!r}" if factor is not None else f"size={given.get('size')!r}"
    return f"{size}, mode={mode!r}"


def _listed(*names: str) -> Callable[[Any], str]:
    return lambda module: ", ".join(_given(module, *names))


def _bare(*names: str) -> Callable[[Any], str]:
    """Values without names."""
    return lambda module: ", ".join(str(getattr(module, name)) for name in names)


def _changed(**usual: Any) -> Callable[[Any], str]:
    """Arguments that a program gave, where they are not the usual ones."""

    def text(module: Any) -> str:
        given = module.__dict__.get("_given", {})
        changed = [name for name, value in usual.items() if given.get(name, value) != value]
        return ", ".join(f"{name}={given[name]}" for name in changed)

    return text


def _dropout(module: Any) -> str:
    given = module.__dict__.get("_given", {})
    return f"p={module.p}, inplace={bool(given.get('inplace', False))}"


def _in_place(module: Any) -> str:
    return "inplace=True" if module.__dict__.get("_given", {}).get("inplace") else ""


def _pool(*names: str) -> Callable[[Any], str]:
    def text(module: Any) -> str:
        given = dict(module.__dict__.get("_given", {}))
        given.setdefault("stride", None)
        if given["stride"] is None:
            given["stride"] = given["kernel_size"]
        usual = {"padding": 0, "dilation": 1, "ceil_mode": False}
        if type(module).__name__ == "AvgPool1d":
            given = {name: value if isinstance(value, tuple) else (value,)
                     for name, value in (usual | given).items()}  # fmt: skip
        return ", ".join(f"{name}={given.get(name, usual.get(name))!r}" for name in names)

    return text


def _power_pool(module: Any) -> str:
    given = module.__dict__["_given"]
    return ", ".join([
        f"norm_type={given['norm_type']}", f"kernel_size={given['kernel_size']}",
        f"stride={given.get('stride')}", f"ceil_mode={given.get('ceil_mode', False)}",
    ])  # fmt: skip


def _response_norm(module: Any) -> str:
    return f"{module.size}, " + ", ".join(_named(module, "alpha", "beta", "k"))


def _softplus(module: Any) -> str:
    given = module.__dict__.get("_given", {})
    return f"beta={float(given.get('beta', 1.0))}, threshold={float(given.get('threshold', 20.0))}"


_SLOPES: dict[str, dict[str, float]] = {
    "LeakyReLU": {"negative_slope": 0.01}, "ELU": {"alpha": 1.0}, "CELU": {"alpha": 1.0},
    "Hardtanh": {"min_val": -1.0, "max_val": 1.0}, "Threshold": {"threshold": 0, "value": 0},
    "RReLU": {"lower": 1 / 8, "upper": 1 / 3},
}  # fmt: skip


def _slope(module: Any) -> str:
    given = module.__dict__.get("_given", {})
    usual = next(
        _SLOPES[kind.__name__] for kind in type(module).__mro__ if kind.__name__ in _SLOPES
    )
    found = [f"{name}={given.get(name, value)}" for name, value in usual.items()]
    return ", ".join([*found, "inplace=True"] if given.get("inplace") else found)


_AXES = ("1d", "2d", "3d")
_RULES: dict[str, Callable[[Any], str]] = {
    **{f"{stem}{axes}": _convolution for stem in ("Conv", "ConvTranspose") for axes in _AXES},
    **{f"{stem}{axes}": _norm for stem in ("BatchNorm", "InstanceNorm") for axes in _AXES},
    **{f"MaxPool{axes}": _pool(*_POOLS) for axes in _AXES},
    **{f"AvgPool{axes}": _pool(*_POOLS[:3]) for axes in _AXES},
    **{f"LPPool{axes}": _power_pool for axes in _AXES},
    **{f"Adaptive{kind}Pool{axes}": _listed("output_size")
       for kind in ("Avg", "Max") for axes in _AXES},
    **{f"{kind}Pad{axes}": _bare("padding")
       for kind in ("Reflection", "Replication", "Zero", "Circular") for axes in _AXES},
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), _cell),
    **dict.fromkeys(
        ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"),
        _dropout,
    ),
    **dict.fromkeys(("ReLU", "ReLU6", "SiLU", "Mish", "SELU"), _in_place),
    **dict.fromkeys(
        (
            "Hardswish", "Hardsigmoid", "LogSigmoid", "Sigmoid", "Softsign", "Tanh", "Tanhshrink",
        ),
        lambda module: "",
    ),
    **dict.fromkeys(("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"), _upsample),
    **dict.fromkeys(
        (
            "MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerDecoder",
            "TransformerEncoderLayer", "TransformerDecoderLayer",
        ),
        lambda module: "",
    ),
    **dict.fromkeys(("LeakyReLU", "ELU", "CELU", "Hardtanh", "Threshold", "RReLU"), _slope),
    "SyncBatchNorm": _norm,
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    "RMSNorm": _rms_norm,
    "Embedding": _embedding,
    "EmbeddingBag": _embedding,
    "Hardshrink": _bare("lambd"),
    "Softshrink": _bare("lambd"),
    "Softplus": _softplus,
    **dict.fromkeys(("FractionalMaxPool2d", "FractionalMaxPool3d"), lambda module: ""),
    **dict.fromkeys(("LogSoftmax", "Softmax", "Softmin"), lambda module: f"dim={module.dim}"),
    "LocalResponseNorm": _response_norm,
    "CosineSimilarity": _changed(dim=1, eps=1e-8),
    "PairwiseDistance": _changed(p=2.0, eps=1e-6, keepdim=False),
    "PReLU": lambda module: f"num_parameters={module.__dict__['_given'].get('num_parameters', 1)}",
}  # fmt: skip
