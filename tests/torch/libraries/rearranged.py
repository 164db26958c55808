"""`einops`, `x-transformers` and `vit-pytorch`."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat
from einops.layers.torch import Rearrange
from shown import filled, show, step, wave
from torch import nn
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

x = wave(2, 3, 8, 8)
show(
    "einops", rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=4),
    reduce(x, "b c h w -> b c", "max"), repeat(x, "b c h w -> (b r) c h w", r=2),
    einsum(x, x, "b c h w, b d h w -> b c d"), pack([x, x[:, :1]], "b * h w")[0],
)  # fmt: skip
step("layer", filled(nn.Sequential(Rearrange("b c h w -> b (c h w)"), nn.Linear(192, 4))), x)
ids = torch.arange(24).reshape(2, 12) % 40
decoder = TransformerWrapper(
    num_tokens=40, max_seq_len=32,
    attn_layers=Decoder(dim=16, depth=2, heads=2, rotary_pos_emb=True),
)  # fmt: skip
step("decoder", filled(decoder).eval(), ids)
text = AutoregressiveWrapper(decoder).generate(ids[:1, :4], 8, temperature=0.0, cache_kv=True)
print("text", text.tolist())
encoder = TransformerWrapper(
    num_tokens=40, max_seq_len=32,
    attn_layers=Encoder(
        dim=16, depth=2, heads=2, alibi_pos_bias=True, use_rmsnorm=True, ff_glu=True
    ),
)  # fmt: skip
step("encoder", filled(encoder).eval(), ids)
