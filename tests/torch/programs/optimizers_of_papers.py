"""Optimizers written as subclasses of torch.optim.Optimizer: Lion, LARS, sharpness-aware steps,
Lookahead around another one, factored second moments; their states saved and taken up again.
"""

import copy
import io
import math
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
from torch.optim.optimizer import Optimizer, required


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
                exp_avg, (beta1, beta2) = state["exp_avg"], group["betas"]
                update = exp_avg * beta1 + p.grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


class LARS(Optimizer):
    def __init__(self, params, lr=required, momentum=0.9, weight_decay=0, trust=0.001):
        if lr is not required and lr < 0.0:
            raise ValueError(lr)
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust)
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("trust", 0.001)

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if dp is None:
                    continue
                if p.ndim > 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    param_norm, update_norm = torch.norm(p), torch.norm(dp)
                    one = torch.ones_like(param_norm)
                    q = torch.where(
                        param_norm > 0.0,
                        torch.where(update_norm > 0, g["trust"] * param_norm / update_norm, one),
                        one,
                    )
                    dp = dp.mul(q)
                param_state = self.state[p]
                if "mu" not in param_state:
                    param_state["mu"] = torch.zeros_like(p)
                mu = param_state["mu"]
                mu.mul_(g["momentum"]).add_(dp)
                p.add_(mu, alpha=-g["lr"])


class SAM(Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, adaptive=False, **kwargs):
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = torch.norm(
            torch.stack(
                [
                    ((torch.abs(p) if g["adaptive"] else 1.0) * p.grad).norm(p=2)
                    for g in self.param_groups
                    for p in g["params"]
                    if p.grad is not None
                ]
            ),
            p=2,
        )
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                e_w = (torch.pow(p, 2) if group["adaptive"] else 1.0) * p.grad * scale.to(p)
                p.add_(e_w)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is not None
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        loss = closure()
        self.second_step()
        return loss


class Lookahead:
    def __init__(self, optimizer, k=3, alpha=0.5):
        self.optimizer, self.k, self.alpha = optimizer, k, alpha
        self.param_groups, self.defaults = optimizer.param_groups, optimizer.defaults
        self.state = defaultdict(dict)
        self.fast_state = optimizer.state
        for group in self.param_groups:
            group["counter"] = 0

    def update(self, group):
        for fast in group["params"]:
            param_state = self.state[fast]
            if "slow_param" not in param_state:
                param_state["slow_param"] = torch.zeros_like(fast.data)
                param_state["slow_param"].copy_(fast.data)
            slow = param_state["slow_param"]
            slow += (fast.data - slow) * self.alpha
            fast.data.copy_(slow)

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        for group in self.param_groups:
            if group["counter"] == 0:
                self.update(group)
            group["counter"] = (group["counter"] + 1) % self.k
        return loss


class Factored(Optimizer):
    """Second moments kept by row and by column; a step size that follows the root mean square."""

    def __init__(self, params, lr=None, eps=(1e-30, 1e-3), clip=1.0, decay=-0.8):
        super().__init__(params, dict(lr=lr, eps=eps, clip=clip, decay=decay))

    @staticmethod
    def rms(t):
        return t.norm(2) / (t.numel() ** 0.5)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in filter(lambda q: q.grad is not None, group["params"]):
                grad, state, factored = p.grad, self.state[p], p.dim() >= 2
                if not state:
                    state["step"] = 0
                    if factored:
                        state["row"] = torch.zeros(p.shape[:-1]).to(grad)
                        state["col"] = torch.zeros(p.shape[:-2] + p.shape[-1:]).to(grad)
                    else:
                        state["square"] = torch.zeros_like(grad)
                state["step"] += 1
                scale = max(group["eps"][1], self.rms(p).item())
                lr = group["lr"] or min(1e-2, 1.0 / math.sqrt(state["step"])) * scale
                beta = 1.0 - math.pow(state["step"], group["decay"])
                update = grad**2 + group["eps"][0]
                if factored:
                    state["row"].mul_(beta).add_(update.mean(dim=-1), alpha=1.0 - beta)
                    state["col"].mul_(beta).add_(update.mean(dim=-2), alpha=1.0 - beta)
                    r = (
                        (state["row"] / state["row"].mean(dim=-1, keepdim=True))
                        .rsqrt_()
                        .unsqueeze(-1)
                    )
                    update = torch.mul(r, state["col"].unsqueeze(-2).rsqrt()).mul_(grad)
                else:
                    state["square"].mul_(beta).add_(update, alpha=1.0 - beta)
                    update = state["square"].rsqrt().mul_(grad)
                update.div_((self.rms(update) / group["clip"]).clamp_(min=1.0)).mul_(lr)
                p.add_(-update)


rng = np.random.RandomState(0)
x = torch.from_numpy(rng.randn(24, 5).astype(np.float32))
y = (x[:, 0] * x[:, 1] > 0).long()


def network():
    net = nn.Sequential(nn.Linear(5, 12), nn.Softsign(), nn.Linear(12, 2))
    r = np.random.RandomState(1)
    for p in net.parameters():
        p.data.copy_(torch.from_numpy(r.uniform(-0.5, 0.5, p.shape)))
    return net


def train(net, optimizer, steps, closure=False):
    criterion, losses = nn.CrossEntropyLoss(label_smoothing=0.05), []
    for _ in range(steps):

        def compute():
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            return loss

        loss = compute()
        if closure:
            optimizer.step(compute)
        else:
            optimizer.step()
        losses.append(loss.item())
    return losses


def split(net):
    decay = [p for p in net.parameters() if p.ndim > 1]
    return [
        {"params": decay, "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.ndim == 1]},
    ]


makes = {
    "lion": lambda n: Lion(split(n), lr=0.01),
    "lars": lambda n: LARS(split(n), lr=0.5, trust=0.1),
    "sam": lambda n: SAM(n.parameters(), torch.optim.SGD, lr=0.2, momentum=0.9, rho=0.1),
    "asam": lambda n: SAM(n.parameters(), torch.optim.AdamW, lr=0.02, rho=0.5, adaptive=True),
    "lookahead": lambda n: Lookahead(torch.optim.Adam(n.parameters(), lr=0.03)),
    "factored": lambda n: Factored(n.parameters()),
    "factored lr": lambda n: Factored(n.parameters(), lr=0.02),
}
for name, make in makes.items():
    net = network()
    optimizer = make(net)
    losses = train(net, optimizer, 7, closure="sam" in name)
    weights = sum(p.abs().sum().item() for p in net.parameters())
    print(name, [f"{v:.5f}" for v in losses], f"{weights:.4f}", len(optimizer.param_groups))

for name in ("lion", "lars", "factored"):
    net = network()
    optimizer = makes[name](net)
    train(net, optimizer, 3)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    ahead = train(net, optimizer, 2)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = network()
    other.load_state_dict(saved["net"])
    again = makes[name](other)
    again.load_state_dict(saved["optimizer"])
    keys = {k: sorted(v) for k, v in saved["optimizer"]["state"].items()}
    print(
        name,
        keys[0],
        again.state_dict()["param_groups"][0]["params"],
        train(other, again, 2) == ahead,
    )

net = network()
optimizer = Lion([net[0].weight], lr=0.1)
optimizer.add_param_group({"params": net[2].parameters(), "lr": 0.05})
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
calls = []
handle = optimizer.register_step_post_hook(lambda opt, args, kwargs: calls.append(len(opt.state)))
before = optimizer.register_step_pre_hook(lambda opt, args, kwargs: calls.append(-1))
print([f"{v:.5f}" for v in train(net, optimizer, 2)], calls)
scheduler.step()
handle.remove()
before.remove()
print(
    [f"{v:.5f}" for v in train(net, optimizer, 2)], calls, [g["lr"] for g in optimizer.param_groups]
)
print(optimizer)
twin = copy.deepcopy(optimizer)
print(len(twin.state), twin.param_groups[1]["betas"])
for wrong in (
    lambda: Lion([]),
    lambda: Lion(net.parameters(), lr=-1),
    lambda: LARS(net.parameters()),
    lambda: optimizer.add_param_group({"params": net[0].weight}),
):
    try:
        wrong()
        print("nothing")
    except (ValueError, TypeError):
        print("refused")
