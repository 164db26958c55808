"""Every schedule of rates, its state, and averages of weights."""

import warnings

import torch
import torch.nn as nn
from torch.optim import lr_scheduler as S


def opt(lr=0.1, **k):
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr, **k)


def two():
    return torch.optim.SGD(
        [
            {"params": [nn.Parameter(torch.ones(1))]},
            {"params": [nn.Parameter(torch.ones(1))], "lr": 1.0},
        ],
        lr=0.1,
        momentum=0.9,
    )


makes = {
    "step": lambda o: S.StepLR(o, 2, 0.5),
    "multi": lambda o: S.MultiStepLR(o, [2, 4, 4], gamma=0.1),
    "exp": lambda o: S.ExponentialLR(o, 0.9),
    "lambda": lambda o: S.LambdaLR(o, lambda e: 0.95**e),
    "mult": lambda o: S.MultiplicativeLR(o, lambda e: 0.8),
    "const": lambda o: S.ConstantLR(o, 0.25, 3),
    "linear": lambda o: S.LinearLR(o, 0.5, 1.0, 4),
    "poly": lambda o: S.PolynomialLR(o, 6, 2.0),
    "cos": lambda o: S.CosineAnnealingLR(o, 5, 0.01),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.001),
    "cyclic": lambda o: S.CyclicLR(o, 0.01, 0.1, 3, mode="triangular2", cycle_momentum=False),
    "cyclic exp": lambda o: S.CyclicLR(
        o, 0.01, 0.1, 2, 3, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "one": lambda o: S.OneCycleLR(o, 1.0, total_steps=9, cycle_momentum=False),
    "one linear": lambda o: S.OneCycleLR(
        o,
        1.0,
        epochs=3,
        steps_per_epoch=3,
        anneal_strategy="linear",
        three_phase=True,
        cycle_momentum=False,
    ),
    "seq": lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)], [3]),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)]),
}
for name, make in makes.items():
    o = opt()
    s = make(o)
    lrs = []
    for _ in range(8):
        o.step()
        lrs.append(round(o.param_groups[0]["lr"], 6))
        s.step()
    print(name, lrs, [round(v, 6) for v in s.get_last_lr()])
    d = s.state_dict()
    if name in ("step", "multi", "exp", "const", "linear", "poly", "cos"):
        print(
            sorted(k for k in d if not k.startswith("_")), d.get("last_epoch"), d.get("_step_count")
        )
o = two()
s = S.OneCycleLR(o, max_lr=[0.5, 2.0], total_steps=6)
for _ in range(5):
    o.step()
    s.step()
    print([(round(g["lr"], 5), round(g["momentum"], 5)) for g in o.param_groups])
o = two()
s = S.LambdaLR(o, [lambda e: e / 10, lambda e: 0.9**e])
o.step()
s.step()
print(s.get_last_lr(), s.base_lrs)
o = two()
s = S.CyclicLR(o, 0.01, 0.1, step_size_up=2)
o.step()
s.step()
print([(round(g["lr"], 5), round(g["momentum"], 5)) for g in o.param_groups])
o = opt()
p = S.ReduceLROnPlateau(
    o, "min", factor=0.5, patience=1, threshold=1e-3, cooldown=1, min_lr=0.01, eps=1e-9
)
for v in (1.0, 0.9, 0.9, 0.9, 0.9, 0.95, 1.0, 1.0, 1.0, 0.1):
    p.step(v)
    print(o.param_groups[0]["lr"], p.num_bad_epochs, p.get_last_lr())
print({k: v for k, v in p.state_dict().items() if k not in ("mode_worse",)})
q = S.ReduceLROnPlateau(opt(), mode="max", threshold_mode="abs")
q.load_state_dict(p.state_dict())
print(q.best, q.mode, q.patience)
q.step(torch.tensor(0.05))
print(q.best)
s = S.CosineAnnealingLR(opt(), 10)
s2 = S.CosineAnnealingLR(opt(), 3)
for _ in range(4):
    s.optimizer.step()
    s.step()
s2.load_state_dict(s.state_dict())
print(s2.T_max, s2.last_epoch, s2.get_last_lr())


class Warm(S.LRScheduler):
    def __init__(self, optimizer, steps, last_epoch=-1):
        self.steps = steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [b * min(1.0, (self.last_epoch + 1) / self.steps) for b in self.base_lrs]


o = opt()
w = Warm(o, 4)
for _ in range(5):
    print(w.get_last_lr(), end=" ")
    o.step()
    w.step()
print(w.state_dict())
o = opt()
s = S.StepLR(o, 1)
with warnings.catch_warnings(record=True) as got:
    warnings.simplefilter("always")
    s.step()
    print(
        len(got), got[0].category.__name__ if got else "", str(got[0].message)[:45] if got else ""
    )
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

o = opt()
sw = SWALR(o, swa_lr=0.05, anneal_epochs=3, anneal_strategy="linear")
for _ in range(4):
    o.step()
    sw.step()
    print(round(o.param_groups[0]["lr"], 5), end=" ")
print()
net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
avg = AveragedModel(net)
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
with torch.no_grad():
    for k in range(3):
        for p in net.parameters():
            p.fill_(float(k))
        avg.update_parameters(net)
        ema.update_parameters(net)
print(avg.module[0].weight, avg.n_averaged, ema.module[0].bias)
update_bn([torch.linspace(0, 1, 8).reshape(4, 2)], avg)
print(avg.module[1].running_mean, avg.module[1].num_batches_tracked)
print(list(avg.state_dict())[:3])
