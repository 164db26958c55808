"""The rows that are networks, for a library that computes those of `nets` as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models import nets
from models.library import Library, Made

__all__ = ["Networks"]


class Networks(Library):
    """A subclass gives `_network` and `_training`; a forward function takes operations, weights and
    the row's arrays.
    """

    def _network(self, w: nets.Weights, forward: Callable[..., Any], *arrays: Any) -> Made:
        """`forward` of the arrays, with these weights."""
        raise NotImplementedError

    def _training(
        self, kind: str, w: nets.Weights, forward: Callable[..., Any], x: Any, y: Any
    ) -> Made:
        """A training step of `forward` on the classes `y` of `x`."""
        raise NotImplementedError

    def mlp_step(self, x: Any, y: Any) -> Made:
        return self._training("mlp_step", nets.mlp_weights(), nets.mlp, x, y)

    def convnet_step(self, x: Any, y: Any) -> Made:
        return self._training("convnet_step", nets.convnet_weights(), nets.convnet, x, y)

    def resnet(self, x: Any) -> Made:
        return self._network(nets.resnet_weights(), nets.resnet, x)

    def resnet_step(self, x: Any, y: Any) -> Made:
        return self._training("resnet_step", nets.resnet_weights(), nets.resnet, x, y)

    def gpt2_prefill(self, tokens: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)

        def forward(ops: Any, w: nets.Weights, tokens: Any) -> Any:
            return nets.decoder(ops, w, sizes, tokens, last_only=True)

        return self._network(nets.decoder_weights(sizes), forward, tokens)

    def vit(self, x: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)
        forward = lambda ops, w, x: nets.vit(ops, w, sizes, x)  # noqa: E731
        return self._network(nets.vit_weights(sizes), forward, x)

    def transformer_step(self, x: Any, y: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)
        forward = lambda ops, w, x: nets.decoder(ops, w, sizes, x)  # noqa: E731
        return self._training("transformer_step", nets.decoder_weights(sizes), forward, x, y)
