"""An LSTM that continues a sine, with gradients clipped."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(5)


class Forecaster(nn.Module):
    def __init__(self, hidden_size=12, num_layers=2):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden_size, num_layers, batch_first=True)
        self.fc = nn.Linear(hidden_size, 1)

    def forward(self, x, state=None):
        out, (h, c) = self.lstm(x, state)
        return self.fc(out[:, -1, :]), (h, c)


t = np.linspace(0, 12, 80)
series = np.sin(t).astype(np.float32)
windows = np.stack([series[i : i + 10] for i in range(60)])[..., None]
targets = series[10:70, None]
x, y = torch.from_numpy(windows), torch.from_numpy(targets)

model = Forecaster()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.uniform(-0.3, 0.3, tuple(p.shape)).astype(np.float32)))
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(6):
    prediction, (h, c) = model(x)
    loss = loss_fn(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    optimizer.step()
    print(f"{epoch} {loss.item():.5f} {norm.item():.4f}")
print(h.shape, c.shape)
print(f"{h.abs().mean().item():.4f}")
