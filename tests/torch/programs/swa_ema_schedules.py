"""Averaged weights (SWA, EMA, own averaging function), update_bn, SWALR, and schedules joined: Chained, Sequential, Polynomial, Multiplicative, warm restarts."""

import numpy as np
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as S
from torch.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    update_bn,
)

rng = np.random.default_rng(6)
x = torch.from_numpy(rng.normal(size=(20, 4))).float()
y = (x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])).tanh()
loader = [(x[i : i + 5], y[i : i + 5]) for i in range(0, 20, 5)]


def fresh():
    gen = np.random.default_rng(2)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Softplus(beta=2), nn.Linear(6, 1))
    for p in net.parameters():
        p.data.copy_(torch.from_numpy(gen.normal(0.3, 0.4, tuple(p.shape))))
    return net


model = fresh()
swa_model = AveragedModel(model)
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
slow_model = AveragedModel(model, avg_fn=get_ema_avg_fn(0.5))
own_model = AveragedModel(model, avg_fn=lambda averaged, current, n: 0.2 * current + 0.8 * averaged)
optimizer = optim.SGD(model.parameters(), lr=0.05)
scheduler = S.CosineAnnealingLR(optimizer, T_max=4)
swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2, anneal_strategy="linear")
for epoch in range(5):
    for a, b in loader:
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(a), b, delta=0.5)
        loss.backward()
        optimizer.step()
        ema_model.update_parameters(model)
    if epoch > 1:
        swa_model.update_parameters(model)
        slow_model.update_parameters(model)
        own_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(f"{epoch} {loss.item():.6f} {optimizer.param_groups[0]['lr']:.6f}")
update_bn(loader, swa_model)
for name, each in (
    ("swa", swa_model),
    ("ema", ema_model),
    ("slow", slow_model),
    ("own", own_model),
):
    each.eval()
    print(
        name,
        f"{nn.functional.mse_loss(each(x), y).item():.6f}",
        each.n_averaged.item(),
        f"{each.module[1].running_mean.sum().item():.5f}",
    )
print(sorted(swa_model.state_dict())[:3], len(swa_model.state_dict()))


def run(make, steps=8, momentum=0.9):
    p = nn.Parameter(torch.ones(3))
    opt = optim.SGD([{"params": [p]}], lr=0.4, momentum=momentum)
    s = make(opt)
    rates = []
    for i in range(steps):
        opt.zero_grad()
        p.pow(2).sum().backward()
        opt.step()
        s.step()
        rates.append(opt.param_groups[0]["lr"])
    return rates, p, s


makes = {
    "chained": lambda o: S.ChainedScheduler(
        [S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9)], optimizer=o
    ),
    "sequential": lambda o: S.SequentialLR(
        o,
        [S.LinearLR(o, 0.25, total_iters=3), S.StepLR(o, 2, 0.5), S.ExponentialLR(o, 0.8)],
        [3, 6],
    ),
    "polynomial": lambda o: S.PolynomialLR(o, total_iters=5, power=2.0),
    "multiplicative": lambda o: S.MultiplicativeLR(o, lambda e: 0.95 if e % 2 else 0.8),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.01),
    "multistep": lambda o: S.MultiStepLR(o, [2, 4, 4], gamma=0.3),
    "cyclic": lambda o: S.CyclicLR(o, 0.1, 0.5, step_size_up=3, mode="exp_range", gamma=0.9),
    "triangular2": lambda o: S.CyclicLR(
        o, 0.1, 0.5, step_size_up=2, step_size_down=1, mode="triangular2"
    ),
    "onecycle": lambda o: S.OneCycleLR(
        o, 0.6, total_steps=9, anneal_strategy="linear", three_phase=True
    ),
    "lambda": lambda o: S.LambdaLR(o, [lambda e: 1 / (1 + e)]),
}
for name, make in makes.items():
    rates, p, s = run(make)
    print(
        name,
        " ".join(f"{r:.5f}" for r in rates),
        f"{p.sum().item():.5f}",
        s.last_epoch if name != "chained" else "",
    )
p = nn.Parameter(torch.ones(1))
opt = optim.SGD([p], lr=1.0)
plateau = S.ReduceLROnPlateau(
    opt, factor=0.1, patience=1, threshold=0.1, threshold_mode="abs", cooldown=1, min_lr=1e-3
)
for metric in (1.0, 0.95, 0.93, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5):
    plateau.step(metric)
    print(
        metric,
        f"{opt.param_groups[0]['lr']:.4f}",
        plateau.num_bad_epochs,
        plateau.cooldown_counter,
        plateau.get_last_lr(),
    )
