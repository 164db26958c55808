"""An optimizer and a layer that a program writes itself."""

import math

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer


class MySGD(Optimizer):
    def __init__(self, params, lr=0.01, momentum=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(p)
                buffer = state["buffer"]
                buffer.mul_(group["momentum"]).add_(p.grad)
                p.add_(buffer, alpha=-group["lr"])
        return loss


class ScaledLinear(nn.Module):
    __constants__ = ["inside"]

    def __init__(self, inside, outside):
        super().__init__()
        self.inside = inside
        self.weight = nn.Parameter(torch.empty(outside, inside))
        self.register_parameter("bias", None)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)
        self.plain = torch.ones(3)
        bound = 1 / math.sqrt(inside)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x):
        return self.scale * torch.nn.functional.linear(x, self.weight, self.bias)

    def extra_repr(self):
        return f"inside={self.inside}"


rng = np.random.default_rng(33)
net = nn.Sequential(ScaledLinear(4, 3), nn.Softplus(), ScaledLinear(3, 1))
print(net[0], len(list(net.parameters())), list(net.state_dict()))
for p in net.parameters():
    if p.requires_grad:
        p.data = torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape)).astype(np.float32))
optimizer = MySGD(
    [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.05}],
    lr=0.1,
    momentum=0.8,
)
x = torch.from_numpy(rng.normal(size=(9, 4)).astype(np.float32))
for step in range(5):
    optimizer.zero_grad()
    loss = (net(x) - 1).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
print([g["lr"] for g in optimizer.param_groups], len(optimizer.state))
