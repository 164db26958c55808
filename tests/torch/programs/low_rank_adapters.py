"""Low rank adapters."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn


def fill(m, s=0.3):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) * 0.37) * s
                ).view_as(p)
            )


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=2, alpha=4):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / r
        with torch.no_grad():
            self.lora_A.copy_(torch.linspace(-1, 1, self.lora_A.numel()).view_as(self.lora_A))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.lora_B @ self.lora_A * self.scaling
        return self.base

    def extra_repr(self):
        return f"r={self.lora_A.shape[0]}"


net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
fill(net)
orig = copy.deepcopy(net)
for name, child in list(net.named_children()):
    if isinstance(child, nn.Linear):
        setattr(net, name, LoRALinear(child))
print(net)
trainable = sum(p.numel() for p in net.parameters() if p.requires_grad)
total = sum(p.numel() for p in net.parameters())
print(f"{trainable:,} / {total:,} ({trainable / total:.1%})")
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
opt = torch.optim.AdamW(
    filter(lambda p: p.requires_grad, net.parameters()), lr=0.02, weight_decay=0.01
)
x = torch.sin(torch.arange(40.0)).reshape(10, 4)
y = torch.arange(10) % 3
for i in range(6):
    loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    ema.update_parameters(net)
    print(f"{loss:.4f}", f"{F.cross_entropy(ema(x), y).item():.4f}")
print(ema.n_averaged, [k for k in ema.state_dict()][:3])
before = net(x)
merged = nn.Sequential(net[0].merge(), nn.GELU(), net[2].merge())
print(
    torch.allclose(before, merged(x), atol=1e-5),
    [(n, p.grad is None) for n, p in merged.named_parameters()],
)
print(all(torch.equal(a, b) for a, b in zip(orig.parameters(), merged.parameters())))
lora_sd = {k: v for k, v in net.state_dict().items() if "lora_" in k}
print({k: tuple(v.shape) for k, v in lora_sd.items()})
r = net.load_state_dict(lora_sd, strict=False)
print(r, r.missing_keys, r.unexpected_keys)
try:
    net.load_state_dict(lora_sd)
except RuntimeError as e:
    print(str(e))
try:
    nn.Linear(2, 2).load_state_dict(
        {"weight": torch.zeros(3, 3), "bias": torch.zeros(2), "extra": torch.zeros(1)}
    )
except RuntimeError as e:
    print(str(e))


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {
            n: p.clone().detach() for n, p in model.named_parameters() if p.requires_grad
        }
        self.backup = {}

    def update(self, model):
        for n, p in model.named_parameters():
            if p.requires_grad:
                self.shadow[n].mul_(self.decay).add_(p.data, alpha=1 - self.decay)

    def apply(self, model):
        for n, p in model.named_parameters():
            if p.requires_grad:
                self.backup[n] = p.data
                p.data = self.shadow[n]

    def restore(self, model):
        for n, p in model.named_parameters():
            if p.requires_grad:
                p.data = self.backup[n]


e = EMA(net, 0.5)
with torch.no_grad():
    for p in net.parameters():
        p.mul_(2)
e.update(net)
s0 = net[0].lora_A.sum().item()
e.apply(net)
s1 = net[0].lora_A.sum().item()
e.restore(net)
s2 = net[0].lora_A.sum().item()
print(round(s0, 4), round(s1, 4), round(s2, 4), abs(s0 - s2) < 1e-6)
bn = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
fill(bn)
sw = AveragedModel(bn)
sw.update_parameters(bn)
update_bn([x[:5], x[5:]], sw)
print(sw.module[1].running_mean, sw.module[1].num_batches_tracked)
sched = SWALR(torch.optim.SGD(bn.parameters(), lr=0.1), swa_lr=0.05, anneal_epochs=3)
print(sched.get_last_lr())
