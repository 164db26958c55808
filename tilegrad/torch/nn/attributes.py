"""Attributes by layer that PyTorch's layers have beside their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["attributes_of"]


class _Told:
    """An attribute that is computed from the layer, until the layer is given one of its own."""

    def __init__(self, tell: Callable[[Any], Any]):
        self._tell = tell

    def __get__(self, layer: Any, kind: Any = None) -> Any:
        return self if layer is None else self._tell(layer)


def _has(name: str) -> _Told:
    return _Told(lambda layer: layer.__dict__.get(name) is not None)


def _given(name: str, default: Any) -> _Told:
    return _Told(lambda layer: layer.__dict__["_given"].get(name, default))


def _all_weights(layer: Any) -> list[list[Any]]:
    """The tensors of each layer and direction, in PyTorch's order."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    suffixes = [each for at in range(layer.num_layers) for each in layer._suffixes(at)]
    return [
        [
            layer.__dict__[name + suffix]
            for name in names
            if layer.__dict__.get(name + suffix) is not None
        ]
        for suffix in suffixes
    ]


def _mode(layer: Any) -> str:
    is_plain = layer.kind == "RNN"
    return f"RNN_{layer.nonlinearity.upper()}" if is_plain else str(layer.kind)


_SPATIAL = (1, 2, 3)
_RECURRENT: dict[str, Any] = {
    "all_weights": _Told(_all_weights), "bias": _has("bias_ih_l0"), "mode": _Told(_mode),
}  # fmt: skip
_CELL = {"bias": _has("bias_ih")}
_AFFINE = {"elementwise_affine": _has("weight")}
_TABLE: dict[str, dict[str, Any]] = {
    **{f"Conv{axes}d": {"transposed": False, "output_padding": (0,) * axes} for axes in _SPATIAL},
    **{
        f"ConvTranspose{axes}d": {"transposed": True, "padding_mode": "zeros"} for axes in _SPATIAL
    },
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _RECURRENT),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), _CELL),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), _AFFINE),
    "GroupNorm": {"affine": _has("weight")},
    "MultiheadAttention": dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight")),
    "Transformer": {
        "d_model": _given("d_model", 512), "nhead": _given("nhead", 8),
        "batch_first": _given("batch_first", False),
    },
    "Upsample": {"name": "Upsample"},
}  # fmt: skip


def attributes_of(name: str) -> dict[str, Any]:
    """The attributes of the layer `name`, for the namespace of its class."""
    return dict(_TABLE.get(name, {}))
