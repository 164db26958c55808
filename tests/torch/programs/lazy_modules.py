"""Lazy layers, module containers, parameter lists, apply, and a model in print."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.LazyLinear(4), "b": nn.Linear(4, 2, bias=False)})
        self.scales = nn.ParameterList([nn.Parameter(torch.full((2,), i + 1.0)) for i in range(2)])
        self.steps = nn.ModuleList()
        self.steps.append(nn.Tanh())
        self.steps.extend([nn.Identity(), nn.ReLU()])
        self.register_buffer("count", torch.tensor(0), persistent=False)
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x):
        x = self.layers["b"](self.layers["a"](x))
        for step, scale in zip(self.steps, self.scales):
            x = step(x * scale)
        self.count += 1
        return x + self.offset


model = Model()
model(torch.ones(1, 3))


def init(m):
    if isinstance(m, nn.Linear):
        nn.init.constant_(m.weight, 0.25)
        if m.bias is not None:
            nn.init.constant_(m.bias, 0.1)


model.apply(init)
out = model(torch.ones(2, 3))
print(out.tolist(), model.count.item())
print([name for name, _ in model.named_parameters()])
print(list(model.state_dict()), [n for n, _ in model.named_buffers()])
print([type(m).__name__ for m in model.modules()])
print(model.get_submodule("layers.b").weight.shape, len(model.steps), model.layers.keys())
model.double()
print(model.offset.dtype is torch.float64, model.count.dtype is torch.int64)
model.float().eval()
print(model.training, model.layers["a"].training)
model.requires_grad_(False)
print(any(p.requires_grad for p in model.parameters()))
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False))
print(net)
print(net[0].in_features, len(net), net[-1].out_features, isinstance(net[1], nn.ReLU))
del net[1]
net.append(nn.Sigmoid())
print([type(m).__name__ for m in net], [tuple(p.shape) for p in net.parameters()])
