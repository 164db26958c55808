"""Every optimizer, its groups, state, hooks and gradients clipped."""

import torch
import torch.nn as nn
from torch.optim import (
    ASGD,
    LBFGS,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)

x = torch.linspace(-1, 1, 30).reshape(10, 3)
y = (x @ torch.tensor([[1.0], [-2.0], [0.5]])) + 0.3


def model():
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(torch.linspace(-0.5, 0.5, p.numel()).reshape(p.shape) + 0.05 * i)
    return m


makes = [
    lambda p: SGD(p, lr=0.1),
    lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    lambda p: SGD(p, 0.1, momentum=0.5, dampening=0.1, maximize=True),
    lambda p: Adam(p, lr=0.05),
    lambda p: Adam(p, 0.05, (0.8, 0.99), 1e-6, 0.01, True),
    lambda p: AdamW(p, lr=0.05, amsgrad=True, weight_decay=0.1),
    lambda p: AdamW(p, fused=None, capturable=False),
    lambda p: Adagrad(p, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1),
    lambda p: Adadelta(p, lr=1.0, rho=0.8, weight_decay=0.01),
    lambda p: Adamax(p, lr=0.05),
    lambda p: ASGD(p, lr=0.1),
    lambda p: NAdam(
        p, lr=0.05, momentum_decay=0.01, decoupled_weight_decay=True, weight_decay=0.01
    ),
    lambda p: RAdam(p, lr=0.05, weight_decay=0.01),
    lambda p: RMSprop(p, lr=0.02, momentum=0.5, centered=True),
    lambda p: Rprop(p, lr=0.01, etas=(0.4, 1.3)),
    lambda p: RMSprop(p, alpha=0.9, eps=1e-6),
]
for make in makes:
    m = model()
    opt = make(m.parameters())
    out = []
    for _ in range(6):
        opt.zero_grad()
        loss = nn.functional.mse_loss(m(x), y)
        loss.backward()
        opt.step()
        out.append(f"{loss.item():.6f}")
    print(type(opt).__name__, out)
    print(opt)
    print(sorted(opt.param_groups[0]))
m = model()
opt = LBFGS(m.parameters(), lr=1, max_iter=5, history_size=4, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    l = nn.functional.mse_loss(m(x), y)
    l.backward()
    return l


for _ in range(3):
    print(f"{opt.step(closure).item():.5f}")
m = model()
opt = SGD(
    [{"params": m[0].parameters(), "lr": 0.01}, {"params": m[2].parameters(), "weight_decay": 0.1}],
    lr=0.1,
    momentum=0.9,
)
print(opt, len(opt.param_groups), [len(g["params"]) for g in opt.param_groups])
opt.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 1.0})
print(len(opt.param_groups), opt.param_groups[-1]["momentum"])
for g in opt.param_groups:
    g["lr"] *= 0.5
print([g["lr"] for g in opt.param_groups])
opt.zero_grad(set_to_none=False)
print(m[0].weight.grad)
loss = m(x).sum()
loss.backward()
opt.step(lambda: loss)
opt.zero_grad()
print(m[0].weight.grad)
print(opt.state[m[0].weight].keys() if m[0].weight in opt.state else None)
named = Adam(m.named_parameters(), lr=0.1)
print(named.param_groups[0].get("param_names"))
h = opt.register_step_pre_hook(lambda o, a, k: print("pre"))
opt.register_step_post_hook(lambda o, a, k: print("post"))
opt.step()
h.remove()
opt.step()
try:
    opt.add_param_group({"params": [m[0].weight]})
except ValueError as e:
    print(e)
try:
    opt.add_param_group({"params": {"a", "b"}})
except TypeError:
    print("TypeError")
total = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
print(total)
m(x).pow(2).sum().backward()
print(
    f"{nn.utils.clip_grad_norm_(m.parameters(), 0.5).item():.4f}",
    f"{sum(p.grad.norm() ** 2 for p in m.parameters()).sqrt().item():.4f}",
)
nn.utils.clip_grad_value_(m.parameters(), 0.01)
print(max(p.grad.abs().max().item() for p in m.parameters()))
print(
    nn.utils.clip_grad_norm_(m.parameters(), 1.0, norm_type=float("inf")),
    nn.utils.get_total_norm([torch.ones(3), torch.ones(1)]),
)
vec = nn.utils.parameters_to_vector(m.parameters())
print(vec.shape, vec[:3])
nn.utils.vector_to_parameters(torch.zeros_like(vec), m.parameters())
print(m[0].bias)
