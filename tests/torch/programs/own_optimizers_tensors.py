"""What programs make themselves: optimizers (Lion, Lookahead, SAM, LARS), schedulers, parameter groups by layer, gradient
centralisation, a Trainer with callbacks, contexts, decorators, tensor subclasses, monkey patches, mixins, registries.
"""

import contextlib
import functools
import inspect
import math
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import _LRScheduler


class Lion(Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                m, (b1, b2) = state["exp_avg"], group["betas"]
                p.add_((m * b1 + p.grad * (1 - b1)).sign_(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


class Lookahead(Optimizer):
    def __init__(self, base, k=3, alpha=0.5):
        self.base, self.k, self.alpha, self.counter = base, k, alpha, 0
        self.param_groups, self.state, self.defaults = (
            base.param_groups,
            defaultdict(dict),
            base.defaults,
        )
        self.slow = [[p.clone().detach() for p in g["params"]] for g in self.param_groups]

    def zero_grad(self, set_to_none=True):
        self.base.zero_grad(set_to_none)

    def step(self, closure=None):
        loss = self.base.step(closure)
        self.counter += 1
        if self.counter % self.k == 0:
            for g, slows in zip(self.param_groups, self.slow):
                for p, q in zip(g["params"], slows):
                    q.add_(p.data - q, alpha=self.alpha)
                    p.data.copy_(q)
        return loss


class SAM(Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(
            torch.stack(
                [
                    p.grad.norm(p=2)
                    for g in self.param_groups
                    for p in g["params"]
                    if p.grad is not None
                ]
            ),
            p=2,
        )
        for group in self.param_groups:
            for p in group["params"]:
                e = p.grad * (group["rho"] / (norm + 1e-12))
                self.state[p]["old_p"] = p.data.clone()
                p.add_(e)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()


class WarmupPoly(_LRScheduler):
    def __init__(self, optimizer, warmup, total, power=2.0, last_epoch=-1):
        self.warmup, self.total, self.power = warmup, total, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        s = self.last_epoch
        f = (
            (s + 1) / self.warmup
            if s < self.warmup
            else (1 - (s - self.warmup) / (self.total - self.warmup)) ** self.power
        )
        return [b * f for b in self.base_lrs]


REGISTRY = {}


def register(name):
    def deco(cls):
        REGISTRY[name] = cls
        return cls

    return deco


class Callback(ABC):
    @abstractmethod
    def on_step(self, trainer, **kw): ...


@register("norms")
class GradNorms(Callback):
    def __init__(self):
        self.seen = []

    def on_step(self, trainer, **kw):
        self.seen.append(
            math.sqrt(sum(p.grad.square().sum().item() for p in trainer.model.parameters()))
        )


@register("center")
class Centralize(Callback):
    def on_step(self, trainer, **kw):
        for p in trainer.model.parameters():
            if p.grad.dim() > 1:
                p.grad.data.add_(-p.grad.data.mean(dim=tuple(range(1, p.grad.dim())), keepdim=True))


class Trainer:
    def __init__(self, model, optimizer, callbacks=(), scheduler=None):
        self.model, self.optimizer, self.callbacks, self.scheduler = (
            model,
            optimizer,
            callbacks,
            scheduler,
        )

    def fit(self, x, y, steps):
        history = []
        for i in range(steps):
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            for c in self.callbacks:
                c.on_step(self, loss=loss)
            self.optimizer.step()
            if self.scheduler:
                self.scheduler.step()
            history.append(round(loss.item(), 5))
        return history


def net():
    m = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    for i, p in enumerate(m.parameters()):
        p.data = torch.sin(torch.arange(p.numel()) * (0.7 + i)).view_as(p) * 0.4
    return m


x = torch.cos(torch.arange(30.0)).view(10, 3)
y = (x**2).sum(1, keepdim=True)
m = net()
norms = REGISTRY["norms"]()
print(
    Trainer(m, Lion(m.parameters(), 0.01, weight_decay=0.1), [norms]).fit(x, y, 5),
    [round(n, 4) for n in norms.seen[:2]],
)
m = net()
look = Lookahead(torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), k=2)
print(
    Trainer(m, look, [REGISTRY["center"]()], WarmupPoly(look.base, 2, 8)).fit(x, y, 6),
    look.base.param_groups[0]["lr"],
)
m = net()
sam = SAM(m.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
for i in range(4):
    F.mse_loss(m(x), y).backward()
    sam.first_step()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    sam.second_step()
print(loss.item(), sam.param_groups[0]["lr"])
groups = [
    {"params": layer.parameters(), "lr": 0.1 * 0.5**d, "name": f"layer{d}"}
    for d, layer in enumerate(reversed([l for l in net() if list(l.parameters())]))
]
adam = torch.optim.Adam(groups, weight_decay=0.01)
adam.add_param_group({"params": [nn.Parameter(torch.ones(1))], "betas": (0.5, 0.9)})
print([(g.get("name"), g["lr"], g["betas"], len(g["params"])) for g in adam.param_groups])
lion = Lion([nn.Parameter(torch.ones(2))], lr=0.1)
lion.param_groups[0]["params"][0].grad = torch.tensor([1.0, -1.0])
lion.step()
state = lion.state_dict()
other = Lion([nn.Parameter(torch.ones(2))], lr=9.0)
other.load_state_dict(state)
print(
    state["state"][0]["exp_avg"],
    other.param_groups[0]["lr"],
    other.state[other.param_groups[0]["params"][0]]["exp_avg"],
    lion,
)
try:
    Lion([torch.ones(1)], lr=-1)
except ValueError as e:
    print(e)
try:
    torch.optim.SGD([], lr=0.1)
except ValueError as e:
    print("empty" in str(e))


# closures
w = nn.Parameter(torch.tensor([1.5, -1.0]))
lb = torch.optim.LBFGS([w], lr=0.8, max_iter=6, history_size=4, line_search_fn="strong_wolfe")


def closure():
    lb.zero_grad()
    f = (1 - w[0]) ** 2 + 10 * (w[1] - w[0] ** 2) ** 2
    f.backward()
    return f


for _ in range(4):
    v = lb.step(closure)
print(f"{v.item():.4f}", w)


# contexts, decorators, patches
@contextlib.contextmanager
def evaluating(model):
    was = model.training
    try:
        model.eval()
        yield model
    finally:
        model.train(was)


def timed(f):
    @functools.wraps(f)
    def g(*a, **k):
        t0 = time.perf_counter()
        r = f(*a, **k)
        g.calls += 1
        g.total += time.perf_counter() - t0
        return r

    g.calls, g.total = 0, 0.0
    return g


@timed
@torch.no_grad()
def evaluate(model, x):
    return model(x).mean()


with evaluating(m) as e:
    print(e.training, evaluate(e, x).requires_grad, evaluate.calls, evaluate.__name__)
print(m.training)


def describe(self):
    return f"{tuple(self.shape)}:{self.float().mean():.3f}"


torch.Tensor.describe = describe
nn.Module.count = property(lambda self: sum(p.numel() for p in self.parameters()))
print(x.describe(), m.count)
del torch.Tensor.describe, nn.Module.count


class Mixin:
    def freeze(self):
        for p in self.parameters():
            p.requires_grad_(False)
        return self


class Frozen(Mixin, nn.Linear):
    def __init__(self, *a, scale: float = 2.0, **k):
        super().__init__(*a, **k)
        self.scale = scale

    def __call__(self, *a):
        return super().__call__(*a) * self.scale

    def forward(self, inp):
        return super().forward(inp)


fz = Frozen(2, 2, bias=False).freeze()
nn.init.eye_(fz.weight)
print(
    fz(torch.ones(1, 2)),
    any(p.requires_grad for p in fz.parameters()),
    fz,
    list(inspect.signature(Frozen.__init__).parameters),
)
ref = weakref.ref(fz)
cache = weakref.WeakKeyDictionary({fz: 1})
print(ref() is fz, cache[fz], {fz: "k"}[fz], len({w, w, x}))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    s = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([w], 0.1), 1)
    s.step()
print(len(caught) > 0, "before" in str(caught[0].message))
