"""A learning-rate finder, early stopping, and the best state restored."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, TensorDataset


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


rng = np.random.RandomState(0)
x = torch.from_numpy(rng.randn(80, 5).astype(np.float32))
y = (x[:, :1] * x[:, 1:2] + 0.3 * x[:, 2:3]).tanh()
train, valid = torch.utils.data.random_split(
    TensorDataset(x, y), [60, 20], generator=torch.Generator().manual_seed(0)
)
train = torch.utils.data.Subset(TensorDataset(x, y), range(60))
valid = torch.utils.data.Subset(TensorDataset(x, y), range(60, 80))
train_loader, valid_loader = DataLoader(train, batch_size=20), DataLoader(valid, batch_size=20)
model = init(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)))
saved = copy.deepcopy(model.state_dict())
optimizer = optim.SGD(model.parameters(), lr=1e-3)
finder = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 10 ** (step / 4))
losses, rates = [], []
it = iter(train_loader)
for step in range(12):
    try:
        xb, yb = next(it)
    except StopIteration:
        it = iter(train_loader)
        xb, yb = next(it)
    optimizer.zero_grad()
    loss = F.mse_loss(model(xb), yb)
    loss.backward()
    optimizer.step()
    rates.append(finder.get_last_lr()[0])
    finder.step()
    losses.append(loss.item())
best_rate = rates[int(np.argmin(np.gradient(losses)))]
print([f"{l:.4f}" for l in losses], f"{best_rate:.4f}")
model.load_state_dict(saved)
optimizer = optim.RMSprop(model.parameters(), lr=0.02, alpha=0.9)
plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
best, best_state, bad = float("inf"), None, 0
for epoch in range(15):
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        F.mse_loss(model(xb), yb).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        v = sum(F.mse_loss(model(xb), yb, reduction="sum").item() for xb, yb in valid_loader) / len(
            valid
        )
    plateau.step(v)
    print(epoch, f"{v:.5f}", optimizer.param_groups[0]["lr"])
    if v < best - 1e-4:
        best, best_state, bad = v, copy.deepcopy(model.state_dict()), 0
    else:
        bad += 1
        if bad == 3:
            print("stopped")
            break
print(model.load_state_dict(best_state), f"{best:.5f}")
