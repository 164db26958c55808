"""The networks, written once over the operations of a library.

`ops` is one of the libraries of this folder; `w` is a dictionary of weights by PyTorch's names,
float32 arrays or what a library makes of them. Linear weights are (out, in), convolutions' (out,
in, rows, columns).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "DECODER", "GPT2_SMALL", "VIT_SMALL", "Transformer", "convnet",
    "convnet_weights", "decoder", "decoder_weights", "mlp", "mlp_weights", "resnet",
    "resnet_weights", "vit", "vit_weights",
]  # fmt: skip

Weights = dict[str, Any]
# Of a ResNet-18: each stage but the first halves the image and has twice as many channels.
_STAGES, _BLOCKS = 4, 2


@dataclass(frozen=True)
class Transformer:
    """Sizes of a transformer.

    Attributes:
        context: places that have an embedding.
        tokens: of the vocabulary, or classes.
    """

    layers: int
    heads: int
    width: int
    context: int
    tokens: int

    @property
    def product_weights(self) -> int:
        """Weights that every token is multiplied by."""
        return 12 * self.layers * self.width**2 + self.tokens * self.width


GPT2_SMALL = Transformer(layers=12, heads=12, width=768, context=1024, tokens=50257)
DECODER = Transformer(layers=4, heads=4, width=256, context=128, tokens=1024)
VIT_SMALL = Transformer(layers=12, heads=6, width=384, context=197, tokens=1000)


class _Made:
    """Weights by name, random by a seed."""

    def __init__(self, seed: int):
        self.found: Weights = {}
        self._numbers = np.random.default_rng(seed)

    def normal(self, name: str, *shape: int, scale: float) -> None:
        values = self._numbers.standard_normal(shape, np.float32)
        self.found[name] = values * np.float32(scale)

    def product(self, name: str, to: int, *rest: int, bias: bool = True) -> None:
        self.normal(f"{name}.weight", to, *rest, scale=1 / math.sqrt(math.prod(rest)))
        if bias:
            self.normal(f"{name}.bias", to, scale=0.02)

    def norm(self, name: str, size: int, *, running: bool = False) -> None:
        self.normal(f"{name}.weight", size, scale=0.1)
        self.found[f"{name}.weight"] += 1
        self.normal(f"{name}.bias", size, scale=0.02)
        if running:
            self.normal(f"{name}.running_mean", size, scale=0.1)
            self.normal(f"{name}.running_var", size, scale=0.1)
            self.found[f"{name}.running_var"] **= 2
            self.found[f"{name}.running_var"] += 1


# perceptron


def mlp_weights(inputs: int = 784, hidden: int = 512, classes: int = 10) -> Weights:
    made = _Made(1)
    made.product("first", hidden, inputs)
    made.product("second", classes, hidden)
    return made.found


def mlp(ops: Any, w: Weights, x: Any) -> Any:
    x = ops.relu(ops.linear(x, w["first.weight"], w["first.bias"]))
    return ops.linear(x, w["second.weight"], w["second.bias"])


# a small network of convolutions, for images of 28x28


def convnet_weights(classes: int = 10) -> Weights:
    made = _Made(2)
    made.product("conv1", 32, 1, 5, 5)
    made.product("conv2", 32, 32, 5, 5)
    made.norm("norm1", 32, running=True)
    made.product("conv3", 64, 32, 3, 3)
    made.product("conv4", 64, 64, 3, 3)
    made.norm("norm2", 64, running=True)
    made.product("head", classes, 576)
    return made.found


def convnet(ops: Any, w: Weights, x: Any) -> Any:
    for pair, norm in ((("conv1", "conv2"), "norm1"), (("conv3", "conv4"), "norm2")):
        for name in pair:
            x = ops.relu(ops.conv(x, w[f"{name}.weight"], w[f"{name}.bias"]))
        x = ops.max_pool(ops.batchnorm(x, w, norm), 2, 2, 0)
    return ops.linear(ops.flat(x), w["head.weight"], w["head.bias"])


# ResNet-18, by torchvision's names


def resnet_weights(classes: int = 1000, first: int = 64) -> Weights:
    made = _Made(3)
    made.product("conv1", first, 3, 7, 7, bias=False)
    made.norm("bn1", first, running=True)
    channels = first
    for stage in range(1, _STAGES + 1):
        width = first << stage - 1
        for block in range(_BLOCKS):
            name = f"layer{stage}.{block}"
            made.product(f"{name}.conv1", width, channels, 3, 3, bias=False)
            made.norm(f"{name}.bn1", width, running=True)
            made.product(f"{name}.conv2", width, width, 3, 3, bias=False)
            made.norm(f"{name}.bn2", width, running=True)
            if width != channels:
                made.product(f"{name}.downsample.0", width, channels, 1, 1, bias=False)
                made.norm(f"{name}.downsample.1", width, running=True)
            channels = width
    made.product("fc", classes, channels)
    return made.found


def resnet(ops: Any, w: Weights, x: Any) -> Any:
    x = ops.relu(ops.batchnorm(ops.conv(x, w["conv1.weight"], None, 2, 3), w, "bn1"))
    x = ops.max_pool(x, 3, 2, 1)
    for stage in range(1, _STAGES + 1):
        for block in range(_BLOCKS):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = ops.conv(x, w[f"{name}.conv1.weight"], None, stride, 1)
            y = ops.relu(ops.batchnorm(y, w, f"{name}.bn1"))
            y = ops.batchnorm(ops.conv(y, w[f"{name}.conv2.weight"], None, 1, 1), w, f"{name}.bn2")
            if f"{name}.downsample.0.weight" in w:
                x = ops.conv(x, w[f"{name}.downsample.0.weight"], None, stride, 0)
                x = ops.batchnorm(x, w, f"{name}.downsample.1")
            x = ops.relu(y + x)
    return ops.linear(ops.mean_of_pixels(x), w["fc.weight"], w["fc.bias"])


# transformers, by GPT-2's names


def _block_weights(made: _Made, name: str, width: int) -> None:
    made.norm(f"{name}.ln_1", width)
    made.product(f"{name}.attn.c_attn", 3 * width, width)
    made.product(f"{name}.attn.c_proj", width, width)
    made.norm(f"{name}.ln_2", width)
    made.product(f"{name}.mlp.c_fc", 4 * width, width)
    made.product(f"{name}.mlp.c_proj", width, 4 * width)


def decoder_weights(sizes: Transformer) -> Weights:
    made = _Made(4)
    made.normal("wte.weight", sizes.tokens, sizes.width, scale=0.05)
    made.normal("wpe.weight", sizes.context, sizes.width, scale=0.05)
    for layer in range(sizes.layers):
        _block_weights(made, f"h.{layer}", sizes.width)
    made.norm("ln_f", sizes.width)
    return made.found


def _block(ops: Any, w: Weights, name: str, x: Any, heads: int, gelu: str, attend: Any) -> Any:
    """One layer of a transformer; `attend(q, k, v)` over (batch, heads, places, width)."""

    def linear(x: Any, part: str) -> Any:
        return ops.linear(x, w[f"{name}.{part}.weight"], w[f"{name}.{part}.bias"])

    def norm(x: Any, part: str) -> Any:
        return ops.layernorm(x, w[f"{name}.{part}.weight"], w[f"{name}.{part}.bias"])

    q, k, v = ops.heads(linear(norm(x, "ln_1"), "attn.c_attn"), heads)
    x = x + linear(ops.joined(attend(q, k, v)), "attn.c_proj")
    return x + linear(ops.gelu(linear(norm(x, "ln_2"), "mlp.c_fc"), gelu), "mlp.c_proj")


def decoder(
    ops: Any,
    w: Weights,
    sizes: Transformer,
    tokens: Any,
    *,
    at: Any = None,
    caches: Any = None,
    last_only: bool = False,
) -> Any:
    """Scores of the next token for each place, or after the last one. With `caches`, one token
    that stands at place `at`; `ops.cached_attention` then sees and moves the cache of a layer.
    """
    places = w["wpe.weight"]
    here = ops.first_rows(places, tokens.shape[-1]) if at is None else ops.row(places, at)
    x = ops.rows(w["wte.weight"], tokens) + here
    for layer in range(sizes.layers):

        def attend(q: Any, k: Any, v: Any, layer: int = layer) -> Any:
            if caches is None:
                return ops.attention(q, k, v, True)
            return ops.cached_attention(q, k, v, caches, layer, at)

        x = _block(ops, w, f"h.{layer}", x, sizes.heads, "tanh", attend)
    if last_only:
        x = ops.last_place(x)
    x = ops.layernorm(x, w["ln_f.weight"], w["ln_f.bias"])
    return ops.linear(x, w["wte.weight"], None)


def vit_weights(sizes: Transformer, patch: int = 16) -> Weights:
    made = _Made(5)
    made.product("patches", sizes.width, 3, patch, patch)
    made.normal("class_token", 1, 1, sizes.width, scale=0.05)
    made.normal("places", 1, sizes.context, sizes.width, scale=0.05)
    for layer in range(sizes.layers):
        _block_weights(made, f"h.{layer}", sizes.width)
    made.norm("ln_f", sizes.width)
    made.product("head", sizes.tokens, sizes.width)
    return made.found


def vit(ops: Any, w: Weights, sizes: Transformer, x: Any, patch: int = 16) -> Any:
    x = ops.pixels_last(ops.conv(x, w["patches.weight"], w["patches.bias"], patch, 0))
    x = ops.prepended(x, w["class_token"]) + w["places"]
    for layer in range(sizes.layers):

        def attend(q: Any, k: Any, v: Any) -> Any:
            return ops.attention(q, k, v, False)

        x = _block(ops, w, f"h.{layer}", x, sizes.heads, "none", attend)
    x = ops.layernorm(ops.first_place(x), w["ln_f.weight"], w["ln_f.bias"])
    return ops.linear(x, w["head.weight"], w["head.bias"])
