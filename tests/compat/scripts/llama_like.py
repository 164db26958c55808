# A small LLaMA: rotary positions as pairs, RMSNorm, grouped queries, a cache over a symbolic
# position, sampling with temperature; beside the same in NumPy.

import math

import numpy as np
from tinygrad import Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.helpers import getenv

DIM, HEADS, KV, LAYERS, VOCAB, CONTEXT = 16, 4, 2, 2, 19, 12


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0) -> Tensor:
    freqs = 1.0 / (theta ** (Tensor.arange(0, dim, 2)[: (dim // 2)] / dim))
    freqs = Tensor.arange(end).unsqueeze(dim=1) * freqs.unsqueeze(dim=0)
    return Tensor.stack(freqs.cos(), freqs.sin(), dim=-1).reshape(1, end, 1, dim // 2, 2)


def complex_mult(A, c, d):
    a, b = A[..., 0:1], A[..., 1:2]
    ro = a * c - b * d
    co = a * d + b * c
    return ro.cat(co, dim=-1)


def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor):
    xq = xq.reshape(*xq.shape[0:-1], -1, 2)
    xk = xk.reshape(*xk.shape[0:-1], -1, 2)
    c, d = freqs_cis[..., 0:1], freqs_cis[..., 1:2]
    return complex_mult(xq, c, d).flatten(3), complex_mult(xk, c, d).flatten(3)


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    bs, seqlen, n_kv_heads, head_dim = x.shape
    if n_rep == 1:
        return x
    return x.repeat((1, 1, 1, n_rep)).reshape(bs, seqlen, n_kv_heads * n_rep, head_dim)


class Attention:
    def __init__(self):
        self.head_dim = DIM // HEADS
        self.wq = nn.Linear(DIM, HEADS * self.head_dim, bias=False)
        self.wk = nn.Linear(DIM, KV * self.head_dim, bias=False)
        self.wv = nn.Linear(DIM, KV * self.head_dim, bias=False)
        self.wo = nn.Linear(HEADS * self.head_dim, DIM, bias=False)

    def __call__(self, x: Tensor, start_pos, freqs_cis: Tensor, mask):
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.reshape(xq.shape[0], xq.shape[1], HEADS, self.head_dim)
        xk = xk.reshape(xk.shape[0], xk.shape[1], KV, self.head_dim)
        xv = xv.reshape(xv.shape[0], xv.shape[1], KV, self.head_dim)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
        bsz, seqlen, _, _ = xq.shape
        if not hasattr(self, "cache_kv"):
            self.cache_kv = (
                Tensor.zeros(2, bsz, CONTEXT, KV, self.head_dim, dtype=x.dtype)
                .contiguous()
                .realize()
            )
        self.cache_kv[:, :, start_pos : start_pos + seqlen, :, :].assign(
            Tensor.stack(xk, xv)
        ).realize()
        keys = self.cache_kv[0, :, 0 : start_pos + seqlen, :, :]
        values = self.cache_kv[1, :, 0 : start_pos + seqlen, :, :]
        keys, values = repeat_kv(keys, HEADS // KV), repeat_kv(values, HEADS // KV)
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        attn = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return self.wo(attn.reshape(bsz, seqlen, -1))


class FeedForward:
    def __init__(self, hidden=24):
        self.w1, self.w3 = nn.Linear(DIM, hidden, bias=False), nn.Linear(DIM, hidden, bias=False)
        self.w2 = nn.Linear(hidden, DIM, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.w2(self.w1(x).silu() * self.w3(x))


class Block:
    def __init__(self):
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM, 1e-5), nn.RMSNorm(DIM, 1e-5)

    def __call__(self, x, start_pos, freqs_cis, mask):
        h = x + self.attention(self.attention_norm(x), start_pos, freqs_cis, mask)
        return (h + self.feed_forward(self.ffn_norm(h))).contiguous()


class Transformer:
    def __init__(self):
        self.layers = [Block() for _ in range(LAYERS)]
        self.norm = nn.RMSNorm(DIM, 1e-5)
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        self.freqs_cis = (
            precompute_freqs_cis(DIM // HEADS, CONTEXT * 2).contiguous().requires_grad_(False)
        )
        self.forward_jit = TinyJit(self.forward)

    def forward(self, tokens: Tensor, start_pos):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        freqs_cis = self.freqs_cis.cast(h.dtype)[:, start_pos : start_pos + seqlen, :, :, :]
        mask = (
            Tensor.full((1, 1, seqlen, start_pos + seqlen), float("-inf"), dtype=h.dtype).triu(
                start_pos + 1
            )
            if seqlen > 1
            else None
        )
        for layer in self.layers:
            h = layer(h, start_pos, freqs_cis, mask)
        return self.output(self.norm(h)).float()[:, -1, :].realize()

    def __call__(self, tokens: Tensor, start_pos: int):
        if tokens.shape[0:2] == (1, 1) and start_pos != 0 and getenv("JIT", 1):
            return self.forward_jit(tokens, Variable("start_pos", 1, CONTEXT - 1).bind(start_pos))
        return self.forward(tokens, start_pos)


Tensor.manual_seed(11)
model = Transformer()
W = {k: v.numpy() for k, v in nn.state.get_state_dict(model).items()}


def reference(tokens):
    hd = DIM // HEADS

    def norm(x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def rotate(x):
        n = np.arange(len(x))[:, None] / 10000 ** (np.arange(0, hd, 2) / hd)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * n)[:, None, :]
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    h = W["tok_embeddings.weight"][tokens]
    for i in range(LAYERS):
        p = f"layers.{i}."
        y = norm(h, W[p + "attention_norm.weight"])
        q = rotate((y @ W[p + "attention.wq.weight"].T).reshape(-1, HEADS, hd))
        k = rotate((y @ W[p + "attention.wk.weight"].T).reshape(-1, KV, hd))
        v = (y @ W[p + "attention.wv.weight"].T).reshape(-1, KV, hd)
        # As the script repeats them: all heads once, then again.
        k, v = (
            np.tile(t, (1, HEADS // KV, 1)) if False else t.reshape(len(t), KV, hd).repeat(1, 1)
            for t in (k, v)
        )
        k = np.concatenate([k] * (HEADS // KV), -1).reshape(len(k), HEADS, hd)
        v = np.concatenate([v] * (HEADS // KV), -1).reshape(len(v), HEADS, hd)
        s = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(hd)
        s = np.where(np.tri(len(h), dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v).reshape(len(h), -1)
        h = h + o @ W[p + "attention.wo.weight"].T
        y = norm(h, W[p + "ffn_norm.weight"])
        a = y @ W[p + "feed_forward.w1.weight"].T
        h = (
            h
            + (a / (1 + np.exp(-a)) * (y @ W[p + "feed_forward.w3.weight"].T))
            @ W[p + "feed_forward.w2.weight"].T
        )
    return (norm(h, W["norm.weight"]) @ W["output.weight"].T)[-1]


toks, start = [3, 7, 1], 0
for step in range(7):
    logits = model(Tensor([toks[start:]]), start)
    expected = reference(np.array(toks))
    assert np.abs(logits.numpy()[0] - expected).max() < 1e-4, (
        step,
        np.abs(logits.numpy()[0] - expected).max(),
    )
    start = len(toks)
    toks.append(int(logits.argmax(-1).item()))
picked = (model(Tensor([[5]]), 0) / 0.7).softmax(-1).multinomial().item()
assert 0 <= picked < VOCAB and dtypes.default_float.itemsize == 4
checked = 8
