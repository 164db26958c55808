"""Ten optimizers on Rosenbrock's valley, from the same start."""

import torch


def rosenbrock(xy):
    x, y = xy
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


MAKE = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9),
    "Nesterov": lambda p: torch.optim.SGD(p, 1e-4, 0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=1e-4),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
    "maximize": lambda p: torch.optim.SGD(p, lr=1e-5, maximize=True),
}
for name, make in MAKE.items():
    point = torch.tensor([-1.5, 1.2], requires_grad=True)
    optimizer = make([point])
    for _ in range(8):
        optimizer.zero_grad()
        loss = rosenbrock(point)
        loss.backward()
        optimizer.step()
    print(name, f"{loss.item():.4f}", [round(v, 4) for v in point.tolist()])
