# A small GPT: token and position embeddings, causal attention with a cache over a symbolic
# position, training on a repeated text, and generation under TinyJit.

from tinygrad import Device, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.helpers import DEBUG, JIT, Timing, getenv

MAX_CONTEXT = getenv("MAX_CONTEXT", 24)


class Attention:
    def __init__(self, dim, n_heads):
        self.c_attn = nn.Linear(dim, 3 * dim, bias=True)
        self.c_proj = nn.Linear(dim, dim, bias=True)
        self.n_heads = n_heads
        self.dim = dim
        self.head_dim = dim // n_heads

    def __call__(self, x: Tensor, start_pos: Variable | int, mask: Tensor | None) -> Tensor:
        xqkv = self.c_attn(x).reshape(None, None, 3, self.n_heads, self.head_dim)
        xq, xk, xv = [xqkv[:, :, i, :, :] for i in range(3)]
        bsz, seqlen, _, _ = xq.shape

        if start_pos is None:  # training
            q, k, v = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
            out = q.scaled_dot_product_attention(k, v, is_causal=True)
            return self.c_proj(out.transpose(1, 2).reshape(bsz, seqlen, self.dim))

        if not hasattr(self, "cache_kv"):
            self.cache_kv = (
                Tensor.zeros(2, bsz, MAX_CONTEXT, self.n_heads, self.head_dim, dtype=x.dtype)
                .contiguous()
                .realize()
            )
        self.cache_kv.shrink((None, None, (start_pos, start_pos + seqlen), None, None)).assign(
            Tensor.stack(xk, xv)
        ).realize()
        if start_pos > 0:
            keys = self.cache_kv[0].shrink((None, (0, start_pos + seqlen), None, None))
            values = self.cache_kv[1].shrink((None, (0, start_pos + seqlen), None, None))
        else:
            keys, values = xk, xv
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        return self.c_proj(
            xq.scaled_dot_product_attention(keys, values, mask)
            .transpose(1, 2)
            .reshape((bsz, seqlen, self.dim))
        )


class FeedForward:
    def __init__(self, dim, hidden_dim):
        self.c_fc = nn.Linear(dim, hidden_dim, bias=True)
        self.c_proj = nn.Linear(hidden_dim, dim, bias=True)

    def __call__(self, x: Tensor) -> Tensor:
        return self.c_proj(self.c_fc(x).gelu())


class TransformerBlock:
    def __init__(self, dim, n_heads, norm_eps):
        self.attn = Attention(dim, n_heads)
        self.mlp = FeedForward(dim, 4 * dim)
        self.ln_1 = nn.LayerNorm(dim, norm_eps)
        self.ln_2 = nn.LayerNorm(dim, norm_eps)

    def __call__(self, x: Tensor, start_pos, mask: Tensor | None):
        h = x + self.attn(self.ln_1(x), start_pos, mask).float()
        return h + self.mlp(self.ln_2(h))


class Transformer:
    def __init__(self, dim, n_heads, n_layers, norm_eps, vocab_size, max_seq_len=MAX_CONTEXT):
        self.vocab_size = vocab_size
        self.wte = nn.Embedding(vocab_size, dim)
        self.wpe = nn.Embedding(max_seq_len, dim)
        self.h = [TransformerBlock(dim, n_heads, norm_eps) for _ in range(n_layers)]
        self.ln_f = nn.LayerNorm(dim, norm_eps)
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)
        self.forward_jit = TinyJit(self.forward)

    def logits(self, tokens: Tensor, start_pos=None):
        seqlen = tokens.shape[1]
        if not hasattr(self, "allpos"):
            self.allpos = Tensor.arange(0, MAX_CONTEXT).reshape(1, -1).realize()
        begin = 0 if start_pos is None else start_pos
        h = self.wte(tokens) + self.wpe(self.allpos.shrink((None, (begin, begin + seqlen))))
        mask = None
        if start_pos is not None and seqlen > 1:
            mask = Tensor.full((1, 1, seqlen, seqlen), float("-inf"), dtype=h.dtype).triu(1)
        for hi in self.h:
            h = hi(h, start_pos, mask)
        return self.lm_head(self.ln_f(h))

    def forward(self, tokens: Tensor, start_pos: Variable | int, temperature: float = 0.0):
        logits = self.logits(tokens, start_pos)[:, -1, :]
        if temperature < 1e-6:
            return logits.argmax(-1).realize()
        return (logits / temperature).softmax().multinomial().flatten().realize()

    def __call__(self, tokens: Tensor, start_pos, temperature: float = 0.0) -> Tensor:
        forward = self.forward_jit if JIT and tokens.shape[1] == 1 else self.forward
        return forward(tokens, start_pos, temperature)


if __name__ == "__main__":
    print(f"using {Device.DEFAULT} backend")
    Tensor.manual_seed(7)
    text = "the cat sat on the mat. "
    letters = sorted(set(text))
    code = {c: i for i, c in enumerate(letters)}
    data = [code[c] for c in text * 3]
    model = Transformer(dim=32, n_heads=4, n_layers=2, norm_eps=1e-5, vocab_size=len(letters))
    for p in nn.state.get_parameters(model):
        p.requires_grad = True
    opt = nn.optim.AdamW(
        [p for p in nn.state.get_parameters(model) if p.dtype == dtypes.float32],
        lr=1e-2,
        weight_decay=0.0,
    )
    starts = list(range(len(text)))
    x = Tensor([data[s : s + MAX_CONTEXT] for s in starts])
    y = Tensor([data[s + 1 : s + MAX_CONTEXT + 1] for s in starts])

    @TinyJit
    def step() -> Tensor:
        with Tensor.train():
            opt.zero_grad()
            loss = (
                model.logits(x)
                .reshape(-1, len(letters))
                .sparse_categorical_crossentropy(y.reshape(-1))
            )
            loss.backward()
            opt.step()
            return loss.realize()

    with Timing("training: ", enabled=DEBUG >= 1):
        for _ in range(30):
            loss = step().item()
    assert loss < 0.6, loss

    # generation, one token after another, the position a variable
    prompt = "the cat"
    toks = [code[c] for c in prompt]
    start_pos = 0
    for i in range(12):
        GlobalCounters.reset()
        if i == 0:
            tokens = Tensor([toks])
            tok = model(tokens, 0)
        else:
            tokens = Tensor([[toks[-1]]])
            tok = model(tokens, Variable("start_pos", 1, MAX_CONTEXT - 1).bind(start_pos))
        start_pos = len(toks)
        toks.append(int(tok.item()))
    out = "".join(letters[t] for t in toks)
    print(out)
    assert out == (text * 2)[: len(out)], out
    checked = 1
