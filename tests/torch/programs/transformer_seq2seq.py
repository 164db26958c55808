"""nn.Transformer with source, target and memory masks."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(9)
model = nn.Transformer(
    d_model=8,
    nhead=2,
    num_encoder_layers=1,
    num_decoder_layers=2,
    dim_feedforward=12,
    dropout=0.0,
    batch_first=True,
)
embed, head = nn.Embedding(10, 8), nn.Linear(8, 10)
parameters = [*model.parameters(), *embed.parameters(), *head.parameters()]
with torch.no_grad():
    for p in parameters:
        if p.ndim > 1:
            p.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape)).astype("float32")))
        else:
            p.fill_(0.05)
src = torch.tensor(rng.integers(0, 10, (3, 5)))
tgt = torch.tensor(rng.integers(0, 10, (3, 4)))
src_padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
tgt_padding = torch.tensor([[False] * 4, [False] * 3 + [True], [False] * 4])
causal = nn.Transformer.generate_square_subsequent_mask(3)
print(causal.tolist())
optimizer = torch.optim.SGD(parameters, lr=0.05)
for _ in range(4):
    out = model(
        embed(src),
        embed(tgt[:, :-1]),
        tgt_mask=causal,
        src_key_padding_mask=src_padding,
        tgt_key_padding_mask=tgt_padding[:, :-1].float() * -1e9,
        memory_key_padding_mask=src_padding,
    )
    loss = nn.functional.cross_entropy(
        head(out).reshape(-1, 10), tgt[:, 1:].reshape(-1), ignore_index=0
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
print(out.shape, sum(p.numel() for p in model.parameters()))
