"""bfloat16 products under autocast, with a gradient scaler that has nothing to do."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(26)
net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
for p in net.parameters():
    p.data = torch.tensor(rng.normal(0, 0.2, tuple(p.shape)), dtype=torch.float32)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.tensor(rng.normal(size=(8, 16)), dtype=torch.float32)
target = torch.tensor(rng.normal(size=(8, 4)), dtype=torch.float32)
for step in range(3):
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        output = net(x)
        assert output.dtype is torch.bfloat16
        loss = nn.functional.mse_loss(output.float(), target)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    print(f"loss {loss.item():.1f}")
print(net[0].weight.dtype is torch.float32, torch.is_autocast_enabled())
half = nn.Linear(4, 2).to(torch.bfloat16)
nn.init.constant_(half.weight, 0.5)
nn.init.zeros_(half.bias)
print(half(torch.ones(1, 4, dtype=torch.bfloat16)).tolist(), half.weight.dtype.itemsize)
