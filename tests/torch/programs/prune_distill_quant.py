"""Smaller models: pruning by magnitude (own mask, structured, global), distillation with temperatures, fake quantisation trained through, low-rank factors, weight statistics."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

rng = np.random.default_rng(27)


def net(hidden):
    model = nn.Sequential(
        nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4)
    )
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
    return model


teacher, student = net(16), net(6)
x = torch.from_numpy(rng.normal(size=(24, 6))).float()
y = torch.from_numpy(rng.integers(0, 4, 24))
prune.l1_unstructured(teacher[0], name="weight", amount=0.3)
prune.l1_unstructured(teacher[2], "bias", amount=3)
prune.ln_structured(teacher[2], name="weight", amount=0.25, n=2, dim=0)
print(
    [n for n, _ in teacher[0].named_buffers()],
    teacher[0].weight_mask.mean(),
    teacher[2].bias_mask.sum(),
    (teacher[2].weight.abs().sum(1) == 0).sum(),
)
prune.l1_unstructured(teacher[0], name="weight", amount=10)
print(
    type(teacher[0]._forward_pre_hooks[next(iter(teacher[0]._forward_pre_hooks))]).__name__
    if teacher[0]._forward_pre_hooks
    else "none",
    teacher[0].weight_mask.sum(),
)
loss = F.cross_entropy(teacher(x), y)
loss.backward()
print(
    loss.item(),
    teacher[0].weight_orig.grad.norm(),
    (teacher[0].weight_orig.grad[teacher[0].weight_mask == 0]).abs().sum(),
)
for module, name in ((teacher[0], "weight"), (teacher[2], "weight"), (teacher[2], "bias")):
    prune.remove(module, name)
print(sorted(teacher.state_dict()), prune.is_pruned(teacher))
other = copy.deepcopy(teacher)
prune.global_unstructured(
    [(other[0], "weight"), (other[2], "weight"), (other[4], "weight")],
    pruning_method=prune.L1Unstructured,
    amount=0.4,
)
total = sum((m.weight == 0).sum().item() for m in (other[0], other[2], other[4]))
print(total, sum(m.weight.numel() for m in (other[0], other[2], other[4])))


class Checker(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


fresh = nn.Linear(4, 4)
Checker.apply(fresh, "weight")
print(fresh.weight_mask.sum(1))
optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
T, alpha = 3.0, 0.7
with torch.no_grad():
    soft = F.log_softmax(teacher(x) / T, -1)
for step in range(4):
    logits = student(x)
    kd = (
        F.kl_div(F.log_softmax(logits / T, -1), soft, log_target=True, reduction="batchmean")
        * T
        * T
    )
    loss = alpha * kd + (1 - alpha) * F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f} {kd.item():.5f}")


class FakeQuantize(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.levels = 2 ** (bits - 1) - 1
        self.register_buffer("peak", torch.tensor(0.0))

    def forward(self, x):
        if self.training:
            self.peak.mul_(0.9).add_(0.1 * x.detach().abs().max())
        scale = (self.peak / self.levels).clamp_min(1e-8)
        q = torch.clamp(torch.round(x / scale), -self.levels, self.levels) * scale
        return x + (q - x).detach()


class QLinear(nn.Linear):
    def forward(self, x):
        s = self.weight.detach().abs().amax(dim=1, keepdim=True) / 7
        w = self.weight + ((self.weight / s).round() * s - self.weight).detach()
        return F.linear(x, w, self.bias)


q = nn.Sequential(FakeQuantize(), QLinear(6, 8), nn.ReLU(), FakeQuantize(), QLinear(8, 4))
for p in q.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
opt = torch.optim.SGD(q.parameters(), lr=0.1)
for step in range(3):
    loss = F.cross_entropy(q(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"quant {step} {loss.item():.5f} {q[0].peak:.5f} {q[3].peak:.5f}")
W = student[0].weight.detach()
U, S, V = torch.svd(W)
low = (U[:, :2] * S[:2]) @ V[:, :2].T
print(torch.linalg.matrix_rank(low), ((W - low).norm() - S[2:].norm()).abs() < 1e-5)
int8 = torch.clamp((W / W.abs().max() * 127).round(), -128, 127).to(torch.int8)
print(
    int8.dtype,
    int8.float().mul(W.abs().max() / 127).sub(W).abs().max() < W.abs().max() / 127,
    int8.element_size(),
)
print(
    torch.quantile(W.flatten(), torch.tensor([0.1, 0.9])),
    torch.histc(W, bins=4),
    W.kthvalue(2, dim=1).values,
)
