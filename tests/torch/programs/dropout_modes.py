"""Training and evaluation modes: dropout's share, batch statistics, momentum None."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.ones(200, 50)
drop = nn.Dropout(p=0.3)
out = drop(x)
print(abs((out == 0).float().mean().item() - 0.3) < 0.02, abs(out.max().item() - 1 / 0.7) < 1e-5)
drop.eval()
print(torch.equal(drop(x), x), F.dropout(x, 0.5, training=False).sum().item())
print(abs(F.dropout(x, 0.5).mean().item() - 1) < 0.05)
channels = nn.Dropout2d(0.5)(torch.ones(64, 8, 3, 3))
print(torch.unique(channels.sum((2, 3))).tolist())
rng = np.random.default_rng(52)
data = torch.from_numpy(rng.normal(2, 3, (30, 4)).astype("f4"))
for momentum in (0.1, None):
    norm = nn.BatchNorm1d(4, momentum=momentum)
    for part in data.split(10):
        norm(part)
    print([round(v, 4) for v in norm.running_mean.tolist()], norm.num_batches_tracked.item())
    norm.eval()
    print(f"{norm(data).std().item():.4f} {norm.running_var.mean().item():.4f}")
plain = nn.BatchNorm1d(4, affine=False, track_running_stats=False)
print(f"{plain(data).mean().item():.4f} {list(plain.state_dict())}")


class Noisy(nn.Module):
    def forward(self, x):
        return x + 1 if self.training else x


noisy = nn.Sequential(Noisy(), nn.Sequential(Noisy()))
print(noisy(torch.zeros(1)).item(), noisy.eval()(torch.zeros(1)).item())
noisy[1].train()
print(noisy(torch.zeros(1)).item(), noisy.training, noisy[1][0].training)
