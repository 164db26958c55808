"""Checkpoints of everything: models, optimizers, schedulers, scalers, generators, SWA and EMA averages; training that resumes to
the last digit; partial loads, renamed keys, dtype moves, frozen parts, map_location, pathlib and file objects, atomic writes.
"""

import copy
import hashlib
import io
import os
import pathlib
import tempfile
import warnings
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler as S
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_avg_fn, update_bn

warnings.filterwarnings("ignore")


def build(seed=1):
    net = nn.Sequential(
        OrderedDict(
            a=nn.Linear(4, 6),
            bn=nn.BatchNorm1d(6),
            act=nn.ReLU(),
            drop=nn.Dropout(0.0),
            b=nn.Linear(6, 2),
        )
    )
    for i, (n, p) in enumerate(net.named_parameters()):
        p.data = (
            torch.sin(torch.arange(p.numel()) * (0.5 + 0.3 * i + seed)).view_as(p) * 0.5
            if p.dim() > 1
            else torch.ones_like(p) * (n == "bn.weight")
        )
    return net


X = torch.cos(torch.arange(64.0) * 0.7).view(16, 4)
Y = (X.sum(1) > 0).long()
batches = [(X[i : i + 4], Y[i : i + 4]) for i in range(0, 16, 4)]
makers = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.1, weight_decay=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.02, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.02, weight_decay=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, 0.02),
    "radam": lambda p: torch.optim.RAdam(p, 0.02),
    "adamax": lambda p: torch.optim.Adamax(p, 0.02),
    "rms": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, 1.0),
    "asgd": lambda p: torch.optim.ASGD(p, 0.1, t0=2),
    "rprop": lambda p: torch.optim.Rprop(p, 0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, 0.05),
}
scheds = {
    "sgd": lambda o: S.StepLR(o, 2, 0.5),
    "nesterov": lambda o: S.MultiStepLR(o, [1, 3], 0.3),
    "adam": lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2),
    "adamw": lambda o: S.OneCycleLR(o, 0.05, total_steps=9),
    "nadam": lambda o: S.ExponentialLR(o, 0.9),
    "radam": lambda o: S.CyclicLR(o, 0.001, 0.05, 2, cycle_momentum=False),
    "adamax": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 2), S.ExponentialLR(o, 0.9)]),
    "rms": lambda o: S.PolynomialLR(o, 6, 2.0),
    "adagrad": lambda o: S.MultiplicativeLR(o, lambda e: 0.95),
    "adadelta": lambda o: S.LambdaLR(o, lambda e: 1 / (e + 1)),
    "asgd": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.2, total_iters=2), S.CosineAnnealingLR(o, 5)], [2]
    ),
    "rprop": lambda o: S.LinearLR(o, 0.5),
    "adafactor": lambda o: S.ReduceLROnPlateau(o, patience=0),
}


def run(net, opt, sched, steps, start=0):
    out = []
    for k in range(start, start + steps):
        x, y = batches[k % 4]
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        sched.step(loss.item()) if isinstance(sched, S.ReduceLROnPlateau) else sched.step()
        out.append(loss.item())
    return out


with tempfile.TemporaryDirectory() as tmp:
    tmp = pathlib.Path(tmp)
    for name in makers:
        net = build()
        opt = makers[name](net.parameters())
        sched = scheds[name](opt)
        first = run(net, opt, sched, 3)
        path = tmp / f"{name}.pt"
        part = path.with_suffix(".part")
        torch.save(
            {
                "net": net.state_dict(),
                "opt": opt.state_dict(),
                "sched": sched.state_dict(),
                "rng": torch.get_rng_state(),
                "np": np.random.get_state()[1][:2].tolist(),
                "step": 3,
            },
            part,
        )
        os.replace(part, path)
        whole = first + run(net, opt, sched, 3, 3)
        net2 = build(9)
        opt2 = makers[name](net2.parameters())
        sched2 = scheds[name](opt2)
        ck = torch.load(path, map_location="cpu", weights_only=True)
        (
            net2.load_state_dict(ck["net"]),
            opt2.load_state_dict(ck["opt"]),
            sched2.load_state_dict(ck["sched"]),
        )
        torch.set_rng_state(ck["rng"])
        again = run(net2, opt2, sched2, 3, ck["step"])
        same = all(abs(a - b) < 1e-6 for a, b in zip(whole[3:], again))
        state = opt2.state_dict()["state"][0]
        print(
            name,
            [f"{v:.5f}" for v in whole],
            same,
            sorted(state),
            f"{opt2.param_groups[0]['lr']:.6f}",
            sorted(
                k
                for k in opt2.state_dict()["param_groups"][0]
                if k not in ("params", "decoupled_weight_decay")
            ),
        )
    print(sorted(p.name for p in tmp.iterdir())[:3], path.stat().st_size > 100)
    legacy = tmp / "w.bin"
    with open(legacy, "wb") as f:
        torch.save(net.state_dict(), f)
    with legacy.open("rb") as f:
        sd = torch.load(f)
    digest = (
        hashlib.sha256(b"".join(v.numpy().tobytes() for v in sd.values())).hexdigest()
        == hashlib.sha256(
            b"".join(v.cpu().numpy().tobytes() for v in net.state_dict().values())
        ).hexdigest()
    )
    print(digest, list(sd)[:3])
    try:
        torch.load(tmp / "nope.pt")
    except FileNotFoundError:
        print("absent")
    (tmp / "bad.pt").write_bytes(b"not a file of tensors")
    try:
        torch.load(tmp / "bad.pt")
    except Exception:
        print("bad")

net = build()
ema, swa = AveragedModel(net, avg_fn=get_ema_avg_fn(0.9)), AveragedModel(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
swalr = SWALR(opt, anneal_strategy="linear", anneal_epochs=3, swa_lr=0.02)
for k in range(6):
    x, y = batches[k % 4]
    opt.zero_grad(set_to_none=False)
    F.cross_entropy(net(x), y).backward()
    opt.step(), ema.update_parameters(net)
    if k > 2:
        swa.update_parameters(net), swalr.step()
update_bn(batches, swa)
print(
    swa.n_averaged,
    swa.module.bn.running_mean,
    ema.module.b.weight[0],
    swa.module.b.weight[0],
    opt.param_groups[0]["lr"],
    sorted(swa.state_dict())[:2],
)
soup = {
    k: torch.stack([m.state_dict()[k].float() for m in (net, ema.module, swa.module)]).mean(0)
    for k in net.state_dict()
}
mixed = build()
mixed.load_state_dict(soup)
mixed.eval()
print(mixed(X[:2]), {k: tuple(v.shape) for k, v in soup.items() if "num" in k})
src = {f"module.{k}": v for k, v in net.state_dict().items()}
clean = OrderedDict(
    (k.removeprefix("module."), v) for k, v in src.items() if not k.endswith("b.weight")
)
own = mixed.state_dict()
own.update({k: v for k, v in clean.items() if k in own and v.shape == own[k].shape})
print(mixed.load_state_dict(own), mixed.load_state_dict(clean, strict=False).missing_keys)
for p in mixed.a.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, mixed.parameters()), 1e-2)
before = mixed.a.weight.clone()
mixed.train()
F.cross_entropy(mixed(X), Y).backward()
opt.step()
print(torch.equal(before, mixed.a.weight), mixed.a.weight.grad, len(opt.param_groups[0]["params"]))
buf = io.BytesIO()
torch.save(
    [
        torch.arange(3),
        {"x": torch.ones(2, dtype=torch.float16), "s": "text", "n": None, "t": (1, 2.5)},
        torch.tensor([True]),
    ],
    buf,
)
print(
    torch.load(io.BytesIO(buf.getvalue())),
    copy.deepcopy(opt.state_dict())["param_groups"][0]["betas"],
)
a = torch.arange(6.0)
buf = io.BytesIO()
torch.save({"a": a, "view": a[2:4]}, buf)
buf.seek(0)
both = torch.load(buf)
print(both["view"], both["a"].sum())
