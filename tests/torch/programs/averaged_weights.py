"""Averages of weights, their rates, and names of modules that programs import."""

import torch
import torch.nn.modules.conv as conv
from torch.nn.modules import Linear
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.utils import _pair
from torch.optim.optimizer import Optimizer
from torch.optim.swa_utils import SWALR
from torch.utils.data.dataloader import default_collate

p = torch.nn.Parameter(torch.zeros(2))
for kw in (dict(anneal_epochs=3), dict(anneal_epochs=4, anneal_strategy="linear")):
    o = torch.optim.SGD([p], lr=1.0)
    cos = torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)
    s = SWALR(o, swa_lr=0.05, **kw)
    for i in range(9):
        o.step()
        (cos if i < 3 else s).step()
        print(f"{o.param_groups[0]['lr']:.6f}", end=" ")
    print()
print(
    isinstance(torch.nn.BatchNorm2d(2), _BatchNorm),
    isinstance(torch.nn.Conv1d(1, 1, 1), conv._ConvNd),
    _pair(3),
    issubclass(torch.optim.Adam, Optimizer),
    default_collate([1, 2]),
    isinstance(torch.nn.Linear(1, 1), (conv._ConvNd, Linear)),
)
print(torch.arange(6.0).view(2, 3).max(dim=1))
print(torch.sort(torch.tensor([3, 1, 2])))
torch.testing.assert_close(torch.ones(2), torch.ones(2) + 1e-7)
try:
    torch.testing.assert_close(torch.ones(2), torch.ones(2) + 1e-3)
    print("no")
except AssertionError:
    print("AssertionError")
w = torch.randn(3, dtype=torch.float64, requires_grad=True)
print(torch.autograd.gradcheck(lambda v: v.sin() * v.sum(), (w,)))


@torch.jit.script
def gelu(x):
    return x * torch.sigmoid(1.702 * x)


print(gelu(torch.tensor(1.0)), torch.nn.DataParallel(torch.nn.Linear(2, 1)).state_dict().keys())
print(
    torch.zeros(2, 3).dtype,
    torch.zeros(2, dtype=torch.half).dtype,
    str(torch.int64).split(".")[-1],
    {torch.float32: 1}[torch.ones(1).dtype],
)
