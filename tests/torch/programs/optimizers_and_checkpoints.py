"""Every optimizer with its options, groups, averages, hooks, and a run that is saved and goes on."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(7)


def rnd(*s):
    return torch.from_numpy(rng.standard_normal(s).astype(np.float32))


@torch.no_grad()
def fixed(model):
    for k, p in enumerate(model.parameters()):
        p.copy_(
            torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 0.7 + k).view_as(p)
            * (0.5 / math.sqrt(max(1, p.shape[-1] if p.ndim else 1)))
        )
    return model


import copy
import io

A, B = (rnd(16, 5), rnd(16, 2))


def net():
    torch.manual_seed(0)
    return fixed(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)))


def run(make, n=6, closure=False):
    m = net()
    o = make(m.parameters())
    ls = []
    for _ in range(n):

        def c():
            o.zero_grad()
            l = F.mse_loss(m(A), B)
            l.backward()
            return l

        if closure:
            l = o.step(c)
        else:
            l = c()
            o.step()
        ls.append(float(l.detach()))
    print(
        type(o).__name__,
        " ".join(f"{v:.6f}" for v in ls),
        f"{sum(p.abs().sum() for p in m.parameters()).item():.5f}",
    )
    sd = o.state_dict()
    print(
        sorted(sd),
        [sorted(map(str, v)) for v in list(sd["state"].values())[:1]],
        {
            k: v
            for k, v in sd["param_groups"][0].items()
            if k
            not in (
                "fused",
                "foreach",
                "capturable",
                "differentiable",
                "decoupled_weight_decay",
                "maximize",
            )
        },
    )
    o2 = make(copy.deepcopy(m).parameters())
    o2.load_state_dict(sd)
    return (m, o)


O = torch.optim
run(lambda p: O.SGD(p, 0.1))
run(lambda p: O.SGD(p, 0.1, momentum=0.9, dampening=0.1, weight_decay=0.01))
run(lambda p: O.SGD(p, 0.1, momentum=0.9, nesterov=True))
run(lambda p: O.SGD(p, 0.1, maximize=True))
run(lambda p: O.Adam(p, 0.02, betas=(0.8, 0.9), eps=1e-06, weight_decay=0.1, amsgrad=True))
run(lambda p: O.AdamW(p, 0.02, weight_decay=0.3))
run(lambda p: O.AdamW(p, 0.02, amsgrad=True, maximize=True))
run(lambda p: O.NAdam(p, 0.02, weight_decay=0.1, momentum_decay=0.01))
run(lambda p: O.NAdam(p, 0.02, weight_decay=0.1, decoupled_weight_decay=True))
run(lambda p: O.RAdam(p, 0.02), n=9)
run(lambda p: O.Adamax(p, 0.02, weight_decay=0.1))
run(lambda p: O.RMSprop(p, 0.01))
run(lambda p: O.RMSprop(p, 0.01, alpha=0.9, centered=True, momentum=0.5, weight_decay=0.01))
run(lambda p: O.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.2))
run(lambda p: O.Adadelta(p, 1.0, rho=0.8))
run(lambda p: O.ASGD(p, 0.05, lambd=0.01, t0=2))
run(lambda p: O.Rprop(p, 0.01))
run(lambda p: O.LBFGS(p, lr=0.5, max_iter=4, history_size=3), n=3, closure=True)
run(lambda p: O.LBFGS(p, line_search_fn="strong_wolfe"), n=2, closure=True)
run(lambda p: O.SGD(p, 0.1), closure=True)
run(lambda p: O.Adafactor(p, lr=0.05))
m = net()
o = O.AdamW(
    [
        {"params": [p for n, p in m.named_parameters() if "bias" in n], "weight_decay": 0.0},
        {"params": [p for n, p in m.named_parameters() if "weight" in n]},
    ],
    lr=0.01,
    weight_decay=0.1,
)
extra = nn.Parameter(torch.ones(3))
o.add_param_group({"params": extra, "lr": 0.5, "name_": "x"})
print(
    [(len(g["params"]), g["lr"], g["weight_decay"]) for g in o.param_groups],
    o.param_groups[2]["name_"],
)
for g in o.param_groups:
    g["lr"] *= 0.5
l = F.mse_loss(m(A), B) + (extra**2).sum()
l.backward()
o.step()
print(
    extra,
    m[0].bias,
    [g["lr"] for g in o.param_groups],
    o.state[extra]["step"],
    o.state[extra]["exp_avg"],
)
try:
    o.add_param_group({"params": extra})
except ValueError:
    print("ValueError")
try:
    O.SGD([], lr=0.1)
except ValueError:
    print("ValueError")
try:
    O.Adam(m.parameters(), lr=-1)
except ValueError:
    print("ValueError")
try:
    O.Adam(m.parameters(), betas=(1.1, 0.9))
except ValueError:
    print("ValueError")
try:
    O.SGD([torch.zeros(2)], lr=0.1, nesterov=True)
except ValueError:
    print("ValueError")
e = nn.Embedding(6, 3, sparse=True)
with torch.no_grad():
    e.weight.copy_(torch.arange(18.0).view(6, 3) / 10)
so = O.SparseAdam(e.parameters(), lr=0.1)
for _ in range(3):
    so.zero_grad()
    (e(torch.tensor([1, 3, 1])) ** 2).sum().backward()
    so.step()
print(e.weight, 1)
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

m = net()
o = O.SGD(m.parameters(), 0.1)
swa = AveragedModel(m)
ema = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
s = SWALR(o, swa_lr=0.05, anneal_epochs=3)
for i in range(5):
    o.zero_grad()
    F.mse_loss(m(A), B).backward()
    o.step()
    swa.update_parameters(m)
    ema.update_parameters(m)
    s.step()
print(
    swa.n_averaged,
    f"{F.mse_loss(swa(A), B):.6f} {F.mse_loss(ema(A), B):.6f} {o.param_groups[0]['lr']:.4f}",
    list(swa.state_dict())[:3],
)
m = net()
o = O.Adam(m.parameters(), 0.01)
s = O.lr_scheduler.StepLR(o, 2, 0.5)
for i in range(3):
    o.zero_grad()
    F.mse_loss(m(A), B).backward()
    o.step()
    s.step()
buf = io.BytesIO()
torch.save(
    {
        "epoch": 3,
        "model": m.state_dict(),
        "opt": o.state_dict(),
        "sched": s.state_dict(),
        "rng": torch.get_rng_state(),
        "best": torch.tensor(0.5),
        "args": {"lr": 0.01},
    },
    buf,
)
buf.seek(0)
ck = torch.load(buf, weights_only=True, map_location="cpu")
m2 = net()
o2 = O.Adam(m2.parameters(), 0.5)
s2 = O.lr_scheduler.StepLR(o2, 2, 0.5)
print(m2.load_state_dict(ck["model"]))
o2.load_state_dict(ck["opt"])
s2.load_state_dict(ck["sched"])
print(
    ck["epoch"],
    ck["best"],
    ck["args"],
    ck["rng"].dtype,
    s2.last_epoch,
    s2.get_last_lr(),
    o2.param_groups[0]["lr"],
)
for mm, oo in ((m, o), (m2, o2)):
    oo.zero_grad()
    l = F.mse_loss(mm(A), B)
    l.backward()
    oo.step()
    print(f"{l.item():.7f} {mm[0].weight.sum().item():.7f}")
print({k: v for k, v in s.state_dict().items() if not k.startswith("_")})
h = o.register_step_pre_hook(lambda opt, a, k: print("pre", len(opt.param_groups)))
h2 = o.register_step_post_hook(lambda opt, a, k: print("post"))
o.step()
h.remove()
h2.remove()
o.step()
scaler = torch.amp.GradScaler("cpu", enabled=False)
o.zero_grad()
scaler.scale(F.mse_loss(m(A), B)).backward()
scaler.unscale_(o)
scaler.step(o)
scaler.update()
print(scaler.get_scale())
with torch.autocast("cpu", dtype=torch.bfloat16):
    out = m(A)
    print(out.dtype, (out @ out.T).dtype, F.softmax(out, 1).dtype, F.mse_loss(out.float(), B).dtype)
p = nn.Parameter(torch.tensor([3.0, 4.0]))
(p * 2).sum().backward()
print(
    nn.utils.clip_grad_norm_(p, 1.0),
    p.grad,
    nn.utils.get_total_norm([p.grad]),
    nn.utils.parameters_to_vector(m.parameters()).shape,
)
