"""Stochastic weight averaging, moving averages, and batch statistics made anew."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
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
x = torch.from_numpy(rng.randn(48, 6).astype(np.float32))
y = x @ torch.from_numpy(rng.randn(6, 1).astype(np.float32)) + 0.1
loader = DataLoader(TensorDataset(x, y), batch_size=16)
model = init(nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1)))
swa = AveragedModel(model)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = optim.SGD(model.parameters(), lr=0.05)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=3)
for epoch in range(8):
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(xb), yb)
        loss.backward()
        optimizer.step()
        ema.update_parameters(model)
        total += loss.item()
    if epoch >= 4:
        swa.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(epoch, f"{total:.5f}", f"{optimizer.param_groups[0]['lr']:.5f}")
update_bn(loader, swa)
swa.eval(), ema.eval()
print(
    f"{F.mse_loss(swa(x), y).item():.5f} {F.mse_loss(ema(x), y).item():.5f}", swa.n_averaged.item()
)
print([n for n, _ in swa.named_parameters()][:2], swa.module[1].running_mean[:3])
