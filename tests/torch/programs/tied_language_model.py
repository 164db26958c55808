"""A two-layer LSTM language model with tied weights, truncated backpropagation and clipping."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.RandomState(3)
V, H, B, bptt = 12, 10, 3, 7


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, H)
        self.rnn = nn.LSTM(H, H, num_layers=2)
        self.out = nn.Linear(H, V)
        self.out.weight = self.emb.weight

    def forward(self, x, hidden):
        y, hidden = self.rnn(self.emb(x), hidden)
        return self.out(y.reshape(-1, H)), hidden


model = LM()
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.from_numpy(rng.uniform(-0.3, 0.3, tuple(p.shape)).astype(np.float32)))
print(len(list(model.parameters())), sum(p.numel() for p in model.parameters()))
data = torch.from_numpy(np.cumsum(rng.randint(0, 3, 47 * B)) % V).view(B, -1).t().contiguous()
lr, best = 2.0, None
for epoch in range(4):
    hidden = (torch.zeros(2, B, H), torch.zeros(2, B, H))
    total = 0.0
    for i in range(0, data.size(0) - 1, bptt):
        n = min(bptt, data.size(0) - 1 - i)
        x, y = data[i : i + n], data[i + 1 : i + 1 + n].reshape(-1)
        hidden = tuple(h.detach() for h in hidden)
        model.zero_grad()
        out, hidden = model(x, hidden)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
        total += n * loss.item()
        if i == 14:
            print(
                epoch,
                f"{loss.item():.5f} {float(norm):.5f} {hidden[1].abs().mean().item():.5f} {model.emb.weight.grad[2].sum().item():.6f}",
            )
    mean = total / (data.size(0) - 1)
    if best is None or mean < best - 0.05:
        best = mean
    else:
        lr /= 4.0
    print(f"epoch {epoch} {mean:.5f} lr {lr}")
with torch.no_grad():
    tok, h, text = torch.tensor([[1]]), (torch.zeros(2, 1, H), torch.zeros(2, 1, H)), []
    for _ in range(12):
        out, h = model(tok, h)
        tok = out.argmax(-1, keepdim=True)
        text.append(tok.item())
    print(text)
