"""The states of optimizers and schedules: their keys, and training that goes on from them."""

import copy

import torch
from torch import nn, optim
from torch.optim import lr_scheduler as S


def net():
    m = nn.Linear(3, 2)
    with torch.no_grad():
        m.weight.copy_(torch.arange(6.0).view(2, 3) / 10)
        m.bias.zero_()
    return m


x = torch.linspace(-1, 1, 12).view(4, 3)
makers = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "SGDplain": lambda p: optim.SGD(p, lr=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adamax": lambda p: optim.Adamax(p),
    "NAdam": lambda p: optim.NAdam(p),
    "RAdam": lambda p: optim.RAdam(p),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.5),
    "Rprop": lambda p: optim.Rprop(p),
    "ASGD": lambda p: optim.ASGD(p),
    "Adafactor": lambda p: optim.Adafactor(p),
}
for name, make in makers.items():
    m = net()
    opt = make(m.parameters())

    def closure():
        opt.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        opt.step(closure)
    d = copy.deepcopy(opt.state_dict())
    print(name, sorted(d["param_groups"][0]))
    first = d["state"].get(0, {})
    print(
        "  ",
        {
            k: (tuple(v.shape), str(v.dtype)) if torch.is_tensor(v) else type(v).__name__
            for k, v in sorted(first.items())
        },
    )
    n = net()
    n.load_state_dict(m.state_dict())
    other = make(n.parameters())
    other.load_state_dict(d)
    opt.step(closure)
    n(x).square().sum().backward()
    other.step()
    print("  ", torch.allclose(m.weight, n.weight), m.weight[0])
opt = optim.SGD(net().parameters(), lr=0.1, momentum=0.9)
schedules = {
    "Step": S.StepLR(opt, 2),
    "MultiStep": S.MultiStepLR(opt, [2, 3]),
    "Exponential": S.ExponentialLR(opt, 0.9),
    "Cosine": S.CosineAnnealingLR(opt, 5),
    "Restarts": S.CosineAnnealingWarmRestarts(opt, 3),
    "Linear": S.LinearLR(opt),
    "Constant": S.ConstantLR(opt),
    "Polynomial": S.PolynomialLR(opt, 4),
    "Lambda": S.LambdaLR(opt, lambda e: 0.9**e),
    "Mult": S.MultiplicativeLR(opt, lambda e: 0.9),
    "Plateau": S.ReduceLROnPlateau(opt),
    "Sequential": S.SequentialLR(opt, [S.ConstantLR(opt), S.ExponentialLR(opt, 0.9)], [2]),
    "Chained": S.ChainedScheduler([S.ConstantLR(opt), S.ExponentialLR(opt, 0.9)]),
}
for name, s in schedules.items():
    print(name, sorted(s.state_dict()))
