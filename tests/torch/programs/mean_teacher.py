"""A mean teacher: EMA of weights and buffers by lerp_, consistency ramp, batches of two kinds."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(5)
student = nn.Sequential(
    nn.Linear(4, 10), nn.BatchNorm1d(10, momentum=0.3), nn.LeakyReLU(0.1), nn.Linear(10, 3)
)
with torch.no_grad():
    for p in student.parameters():
        p.copy_(torch.from_numpy(rng.uniform(-0.6, 0.6, tuple(p.shape)).astype(np.float32)))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False
teacher.eval()
opt = torch.optim.SGD(student.parameters(), lr=0.2, momentum=0.9, nesterov=True)
for step in range(12):
    x = torch.from_numpy(rng.randn(6, 4).astype(np.float32))
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    u = torch.from_numpy(rng.randn(5 + step % 3, 4).astype(np.float32))
    ramp = math.exp(-5 * (1 - min(step / 8, 1)) ** 2)
    with torch.no_grad():
        target = teacher(u).softmax(1)
    logits = student(torch.cat([x, u + 0.05]))
    sup = F.cross_entropy(logits[:6], y)
    cons = F.mse_loss(logits[6:].softmax(1), target)
    loss = sup + 3 * ramp * cons
    opt.zero_grad()
    loss.backward()
    opt.step()
    a = min(1 - 1 / (step + 1), 0.9)
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 1 - a)
        for t, s in zip(teacher.buffers(), student.buffers()):
            if t.dtype.is_floating_point:
                t.mul_(a).add_(s, alpha=1 - a)
            else:
                t.copy_(s)
    print(
        step,
        f"{sup.item():.5f} {cons.item():.6f} {ramp:.4f} {teacher[0].weight.sum().item():.5f} {teacher[1].running_var.mean().item():.5f}",
        teacher[1].num_batches_tracked.item(),
    )
