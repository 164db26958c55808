"""A transformer encoder that sorts sequences into two classes, with a padding mask."""

import math

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(8)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=50):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(0)]


class Classifier(nn.Module):
    def __init__(self, tokens=12, d_model=8):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(tokens, d_model)
        self.position = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead=2, dim_feedforward=16, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 2)

    def forward(self, src, mask):
        x = self.position(self.embedding(src) * math.sqrt(self.d_model))
        x = self.encoder(x, src_key_padding_mask=mask)
        weights = (~mask).float().t().unsqueeze(-1)
        return self.head((x * weights).sum(0) / weights.sum(0))


model = Classifier()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() > 1:
            p.copy_(torch.tensor(rng.normal(0, 0.3, tuple(p.shape)), dtype=torch.float32))
        elif name.endswith("bias"):
            nn.init.zeros_(p)
src = torch.tensor(rng.integers(1, 12, (6, 4)))
mask = torch.zeros(4, 6, dtype=torch.bool)
mask[1, 4:] = True
mask[3, 2:] = True
target = torch.tensor([0, 1, 1, 0])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
for step in range(5):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(src, mask), target)
    loss.backward()
    optimizer.step()
    print(f"step {step}: {loss.item():.5f}")
print("pe" in dict(model.named_buffers()), "position.pe" in model.state_dict())
print(f"{model.position.pe.sum().item():.4f}")
