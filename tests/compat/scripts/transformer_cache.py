# One attention layer that reads its keys and values from a cache, as language models do.
import numpy as np
from tinygrad import Tensor, TinyJit, Variable, nn

DIM, HEADS, CONTEXT = 8, 2, 6


class Attention:
    def __init__(self):
        self.c_attn, self.c_proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.cache = Tensor.zeros(2, 1, HEADS, CONTEXT, DIM // HEADS).contiguous().realize()

    def __call__(self, x, start_pos):
        q, k, v = self.c_attn(x).reshape(1, 1, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        self.cache[:, :, :, start_pos : start_pos + 1, :].assign(Tensor.stack(k, v)).realize()
        keys = self.cache[0, :, :, : start_pos + 1, :]
        values = self.cache[1, :, :, : start_pos + 1, :]
        out = q.scaled_dot_product_attention(keys, values)
        return self.c_proj(out.transpose(1, 2).reshape(1, 1, DIM)).realize()


layer = Attention()
step = TinyJit(layer.__call__)
pos = Variable("start_pos", 0, CONTEXT - 1)
x = np.random.default_rng(14).standard_normal((1, CONTEXT, DIM)).astype(np.float32)
got = [step(Tensor(x[:, n : n + 1]), pos.bind(n)).numpy() for n in range(CONTEXT)]

w, b = layer.c_attn.weight.numpy(), layer.c_attn.bias.numpy()
q, k, v = (x[0] @ w.T + b).reshape(CONTEXT, 3, HEADS, -1).transpose(1, 2, 0, 3)
scores = q @ k.swapaxes(1, 2) / np.sqrt(DIM // HEADS)
scores = np.exp(np.where(np.tril(np.ones((CONTEXT, CONTEXT), bool)), scores, -np.inf))
mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(CONTEXT, DIM)
want = mixed @ layer.c_proj.weight.numpy().T + layer.c_proj.bias.numpy()
np.testing.assert_allclose(np.concatenate(got, 1)[0], want, rtol=1e-4, atol=1e-5)
checked = CONTEXT
