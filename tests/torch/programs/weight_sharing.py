"""A language model whose output layer is its embedding; parameter counts and checkpoints."""

import io

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(23)


class LanguageModel(nn.Module):
    def __init__(self, tokens=10, size=6):
        super().__init__()
        self.wte = nn.Embedding(tokens, size)
        self.blocks = nn.ModuleList([nn.Linear(size, size) for _ in range(2)])
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, tokens, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, nn.functional.cross_entropy(logits.view(-1, 10), targets.view(-1))


model = LanguageModel()
print(sum(p.numel() for p in model.parameters()), len(list(model.parameters())))
print(model.head.weight is model.wte.weight, len(model.state_dict()))
for name, p in model.named_parameters():
    if p.dim() >= 2:
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
    elif "bias" in name:
        torch.nn.init.zeros_(p)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
idx = torch.from_numpy(rng.integers(0, 10, (4, 7)))
for step in range(3):
    _, loss = model(idx[:, :-1], idx[:, 1:].contiguous())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
buffer = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, buffer)
buffer.seek(0)
checkpoint = torch.load(buffer)
other = LanguageModel()
print(other.load_state_dict(checkpoint["model"]), checkpoint["step"])
second = torch.optim.AdamW(
    [
        {"params": [p for p in other.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in other.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ],
    lr=1e-2,
)
second.load_state_dict(checkpoint["optimizer"])
for m, o in ((model, optimizer), (other, second)):
    _, loss = m(idx[:, :-1], idx[:, 1:].contiguous())
    o.zero_grad()
    loss.backward()
    o.step()
    print(f"{loss.item():.6f} {m.wte.weight.sum().item():.5f}", o.param_groups[0]["weight_decay"])
