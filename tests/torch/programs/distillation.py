"""Knowledge distillation with a temperature, label smoothing and mixup."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


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
x = torch.from_numpy(rng.randn(64, 10).astype(np.float32))
y = torch.from_numpy((rng.rand(64) * 4).astype(np.int64))
teacher = init(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)), 1)
student = init(nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 4)), 2)
opt_t = optim.AdamW(teacher.parameters(), lr=1e-2)
smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(10):
    lam = float(rng.beta(0.4, 0.4))
    perm = torch.from_numpy(rng.permutation(64))
    mixed = lam * x + (1 - lam) * x[perm]
    out = teacher(mixed)
    loss = lam * smooth(out, y) + (1 - lam) * smooth(out, y[perm])
    opt_t.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
    opt_t.step()
    if step % 3 == 0:
        print(step, f"{loss.item():.5f}", f"{grad_norm(teacher):.4f}")
teacher.eval()
T, alpha = 3.0, 0.7
opt_s = optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for step in range(10):
    with torch.no_grad():
        target = F.softmax(teacher(x) / T, dim=-1)
    logits = student(x)
    soft = F.kl_div(F.log_softmax(logits / T, dim=-1), target, reduction="batchmean") * T * T
    hard = F.cross_entropy(logits, y)
    loss = alpha * soft + (1 - alpha) * hard
    opt_s.zero_grad()
    loss.backward()
    opt_s.step()
    print(step, f"{soft.item():.5f} {hard.item():.5f}")
print((student(x).argmax(1) == teacher(x).argmax(1)).float().mean().item())
