"""What the transformers here share: a layer of attention and a small network, both beside the
input, with the normalisation first. Names are GPT-2's.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad import Tensor, nn

# Queries, keys and values, each (batch, heads, places, size), to one value for each query.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Attention:
    def __init__(self, width: int, heads: int):
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        batch, places, width = x.shape
        parts = self.c_attn(x).reshape(batch, places, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, number].transpose(1, 2) for number in range(3))
        return self.c_proj(attend(q, k, v).transpose(1, 2).reshape(batch, places, width))


class Perceptron:
    def __init__(self, width: int, gelu: str):
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = gelu

    def __call__(self, x: Tensor) -> Tensor:
        return self.c_proj(self.c_fc(x).gelu(approximate=self.gelu))


class Layer:
    """`gelu` is "tanh" or "none", as in `Tensor.gelu`."""

    def __init__(self, width: int, heads: int, gelu: str):
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), Perceptron(width, gelu)

    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        x = x + self.attn(self.ln_1(x), attend)
        return x + self.mlp(self.ln_2(x))
