"""Pruning: elements, slices, several parameters, masks of a program's own."""

import torch
import torch.nn.utils.prune as prune
from torch import nn

torch.manual_seed(0)
m = nn.Conv2d(1, 6, 3)
with torch.no_grad():
    m.weight.copy_(torch.linspace(-1, 1.1, 54).reshape(6, 1, 3, 3))
    m.bias.copy_(torch.linspace(-0.3, 0.6, 6))
print([n for n, _ in m.named_parameters()], [n for n, _ in m.named_buffers()])
prune.l1_unstructured(m, name="bias", amount=3)
print([n for n, _ in m.named_parameters()], [n for n, _ in m.named_buffers()])
print(m.bias, m.bias_mask)
prune.ln_structured(m, name="weight", amount=0.5, n=2, dim=0)
print(m.weight[:, 0, 0])
print(list(m.state_dict().keys()))
print([type(h).__name__ for h in m._forward_pre_hooks.values()])
print(prune.is_pruned(m))
prune.remove(m, "weight")
print([n for n, _ in m.named_parameters()])
prune.remove(m, "bias")
print(prune.is_pruned(m), sorted(n for n, _ in m.named_parameters()))
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
with torch.no_grad():
    for i, p in enumerate(net.parameters()):
        p.copy_(torch.sin(torch.arange(p.numel()).float() + i).reshape(p.shape))
prune.global_unstructured(
    [(net[0], "weight"), (net[2], "weight")], pruning_method=prune.L1Unstructured, amount=0.4
)
print(net[0].weight, net[2].weight_mask)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.linspace(-1, 1, 20).reshape(5, 4)
for i in range(3):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"{loss.item():.5f}")
print(net[0].weight, net[0].weight_orig.grad)
l = nn.Linear(3, 3, bias=False)
with torch.no_grad():
    l.weight.copy_(torch.arange(9.0).reshape(3, 3) - 4)
prune.custom_from_mask(l, "weight", mask=torch.eye(3))
print(l.weight)
prune.l1_unstructured(l, "weight", amount=1)
print(l.weight_mask, [type(h).__name__ for h in l._forward_pre_hooks.values()])


class FooBar(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def foobar(module, name):
    FooBar.apply(module, name)
    return module


k = nn.Linear(2, 3)
foobar(k, "bias")
print(k.bias_mask)
l2 = nn.Linear(4, 2)
prune.random_unstructured(l2, "weight", amount=0.5)
print(int(l2.weight_mask.sum()))
prune.random_structured(nn.Linear(4, 2), "weight", amount=1, dim=1)
try:
    prune.l1_unstructured(nn.Linear(2, 2), "weight", amount=7)
except ValueError as e:
    print(e)
try:
    prune.remove(nn.Linear(2, 2), "weight")
except ValueError as e:
    print(e)
