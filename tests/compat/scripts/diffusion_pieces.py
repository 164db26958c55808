# Pieces of a diffusion model: timestep embedding, GroupNorm, a residual block, attention over a
# context, up and down sampling, and the DDIM update; each beside NumPy.

import math
from collections import namedtuple

import numpy as np
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.nn import Conv2d, GroupNorm, LayerNorm, Linear

rng = np.random.default_rng(6)
Args = namedtuple("Args", ["channels", "emb", "context"])
args = Args(8, 12, 6)


def timestep_embedding(timesteps: Tensor, dim: int, max_period=10000):
    half = dim // 2
    freqs = (-math.log(max_period) * Tensor.arange(half, device=timesteps.device) / half).exp()
    arg = timesteps.unsqueeze(1) * freqs.unsqueeze(0)
    return Tensor.cat(arg.cos(), arg.sin(), dim=-1)


class ResBlock:
    def __init__(self, channels, emb_channels, out_channels):
        self.in_layers = [
            GroupNorm(4, channels),
            Tensor.silu,
            Conv2d(channels, out_channels, 3, padding=1),
        ]
        self.emb_layers = [Tensor.silu, Linear(emb_channels, out_channels)]
        self.out_layers = [
            GroupNorm(4, out_channels),
            Tensor.silu,
            lambda x: x,
            Conv2d(out_channels, out_channels, 3, padding=1),
        ]
        self.skip_connection = (
            Conv2d(channels, out_channels, 1) if channels != out_channels else lambda x: x
        )

    def __call__(self, x, emb):
        h = x.sequential(self.in_layers)
        emb_out = emb.sequential(self.emb_layers)
        h = h + emb_out.reshape(*emb_out.shape, 1, 1)
        h = h.sequential(self.out_layers)
        return self.skip_connection(x) + h


class CrossAttention:
    def __init__(self, query_dim, context_dim, n_heads, d_head):
        self.to_q = Linear(query_dim, n_heads * d_head, bias=False)
        self.to_k = Linear(context_dim, n_heads * d_head, bias=False)
        self.to_v = Linear(context_dim, n_heads * d_head, bias=False)
        self.num_heads, self.head_size = n_heads, d_head
        self.to_out = [Linear(n_heads * d_head, query_dim)]

    def __call__(self, x, context=None):
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = [
            y.reshape(x.shape[0], -1, self.num_heads, self.head_size).transpose(1, 2)
            for y in (q, k, v)
        ]
        attention = Tensor.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return attention.reshape(x.shape[0], -1, self.num_heads * self.head_size).sequential(
            self.to_out
        )


class Upsample:
    def __init__(self, channels):
        self.conv = Conv2d(channels, channels, 3, padding=1)

    def __call__(self, x):
        bs, c, py, px = x.shape
        x = (
            x.reshape(bs, c, py, 1, px, 1)
            .expand(bs, c, py, 2, px, 2)
            .reshape(bs, c, py * 2, px * 2)
        )
        return self.conv(x)


t = Tensor([1, 7])
emb = timestep_embedding(t, 12)
f = np.exp(-math.log(10000) * np.arange(6) / 6)
arg = np.array([[1], [7]]) * f
assert np.allclose(emb.numpy(), np.concatenate([np.cos(arg), np.sin(arg)], -1), atol=1e-5)
Tensor.manual_seed(2)
x = Tensor(rng.normal(size=(2, 8, 4, 4)).astype(np.float32))
block = ResBlock(8, 12, 8)
y = block(x, emb)
assert y.shape == (2, 8, 4, 4)
g = x.numpy().reshape(2, 4, -1)
g = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)).reshape(2, 8, 4, 4)
assert np.abs(block.in_layers[0](x).numpy() - g).max() < 1e-4
up = Upsample(8)
assert up(x).shape == (2, 8, 8, 8)
seq = x.reshape(2, 8, 16).transpose(1, 2)
context = Tensor(rng.normal(size=(2, 3, 6)).astype(np.float32))
att = CrossAttention(8, 6, 2, 4)
q, k, v = (
    (z.numpy() @ w.weight.numpy().T).reshape(2, -1, 2, 4).transpose(0, 2, 1, 3)
    for z, w in ((seq, att.to_q), (context, att.to_k), (context, att.to_v))
)
s = q @ k.transpose(0, 1, 3, 2) / 2
p = np.exp(s - s.max(-1, keepdims=True))
o = (p / p.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(2, 16, 8)
o = o @ att.to_out[0].weight.numpy().T + att.to_out[0].bias.numpy()
assert (
    np.abs(att(LayerNorm(8, elementwise_affine=False)(seq) * 0 + seq, context).numpy() - o).max()
    < 1e-4
)
betas = np.linspace(0.00085**0.5, 0.012**0.5, 20, dtype=np.float32) ** 2
alphas_cumprod = Tensor(np.cumprod(1.0 - betas, axis=0))
timesteps = list(range(1, 20, 5))
alphas = alphas_cumprod[Tensor(timesteps)]
alphas_prev = Tensor([1.0]).cat(alphas[:-1])


@TinyJit
def run(latent, e_t, index, guidance):
    a_t, a_prev = alphas[index], alphas_prev[index]
    pred_x0 = (latent - (1 - a_t).sqrt() * e_t) / a_t.sqrt()
    return (a_prev.sqrt() * pred_x0 + (1.0 - a_prev).sqrt() * e_t * guidance).realize()


latent, ref = Tensor.randn(1, 4, 4, 4), None
ref = latent.numpy()
A = np.cumprod(1.0 - betas)[timesteps]
AP = np.concatenate([[1.0], A[:-1]])
for i in reversed(range(len(timesteps))):
    noise = rng.normal(size=ref.shape).astype(np.float32)
    latent = run(latent, Tensor(noise), Tensor([i]), Tensor([0.9]))
    ref = (
        np.sqrt(AP[i]) * (ref - np.sqrt(1 - A[i]) * noise) / np.sqrt(A[i])
        + np.sqrt(1 - AP[i]) * noise * 0.9
    )
assert np.abs(latent.numpy() - ref).max() < 1e-3
assert (latent.clip(-1, 1) * 127 + 127).cast(dtypes.uint8).dtype == dtypes.uint8
checked = 7
