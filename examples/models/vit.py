"""The vision transformer: an image as a sequence of patches, and one place more for its class.

Dosovitskiy et al., "An Image is Worth 16x16 Words" (2020). The defaults are ViT-S/16.
"""

from __future__ import annotations

from tilegrad import Tensor, nn

from .transformer import Layer


class ViT:
    def __init__(
        self,
        side: int = 224,
        patch: int = 16,
        layers: int = 12,
        heads: int = 6,
        width: int = 384,
        classes: int = 1000,
    ):
        self.patches = nn.Conv2d(3, width, patch, patch)
        count = (side // patch) ** 2
        self.class_token = Tensor.normal(1, 1, width, std=0.02, requires_grad=True)
        self.places = Tensor.normal(1, count + 1, width, std=0.02, requires_grad=True)
        self.h = [Layer(width, heads, gelu="none") for _ in range(layers)]
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def __call__(self, x: Tensor) -> Tensor:
        """Scores (N, classes) of images (N, 3, side, side)."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        first = self.class_token.expand(x.shape[0], 1, x.shape[2])
        x = first.cat(x, dim=1) + self.places
        for layer in self.h:
            x = layer(x, lambda q, k, v: q.scaled_dot_product_attention(k, v))
        return self.head(self.ln_f(x[:, 0]))
