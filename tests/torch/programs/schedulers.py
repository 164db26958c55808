"""The rates of many schedules, and their state."""

import torch
from torch import nn
from torch.optim import SGD, lr_scheduler


def rates(make, steps=8, momentum=0.9):
    optimizer = SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=momentum)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps):
        optimizer.step()
        found.append(round(scheduler.get_last_lr()[0], 6))
        scheduler.step()
    return found


print(rates(lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5)))
print(rates(lambda o: lr_scheduler.MultiStepLR(o, milestones=[2, 5], gamma=0.1)))
print(rates(lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9)))
print(rates(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=6, eta_min=0.01)))
print(rates(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2)))
print(rates(lambda o: lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=4)))
print(rates(lambda o: lr_scheduler.ConstantLR(o, factor=0.5, total_iters=3)))
print(rates(lambda o: lr_scheduler.PolynomialLR(o, total_iters=6, power=2.0)))
print(rates(lambda o: lr_scheduler.LambdaLR(o, lr_lambda=lambda epoch: 0.95**epoch)))
print(rates(lambda o: lr_scheduler.MultiplicativeLR(o, lr_lambda=lambda epoch: 0.8)))
print(rates(lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=10)))
print(rates(lambda o: lr_scheduler.CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=3)))


def warm(o):
    first = lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=3)
    rest = lr_scheduler.ExponentialLR(o, gamma=0.5)
    return lr_scheduler.SequentialLR(o, schedulers=[first, rest], milestones=[3])


print(rates(warm))
optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
plateau = lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1)
for metric in (1.0, 0.9, 0.95, 0.97, 0.99, 0.5, 0.6):
    plateau.step(metric)
    print(optimizer.param_groups[0]["lr"], end=" ")
print()


class Halving(lr_scheduler.LRScheduler):
    def get_lr(self):
        return [base / (1 + self.last_epoch) for base in self.base_lrs]


optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
halving = Halving(optimizer)
for _ in range(3):
    optimizer.step()
    halving.step()
print(halving.get_last_lr(), halving.last_epoch)
step = lr_scheduler.StepLR(optimizer, 2)
optimizer.step()
step.step()
state = step.state_dict()
other = lr_scheduler.StepLR(optimizer, 2)
other.load_state_dict(state)
print(other.last_epoch, other.step_size if hasattr(other, "step_size") else 2)
