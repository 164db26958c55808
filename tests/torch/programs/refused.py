"""What PyTorch refuses, and as which class it is caught."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def attempt(label, f):
    try:
        out = f()
        print(label, "gave", out if not isinstance(out, torch.Tensor) else tuple(out.shape))
    except Exception as e:
        kinds = [
            k.__name__
            for k in (
                IndexError,
                KeyError,
                TypeError,
                ValueError,
                NotImplementedError,
                AttributeError,
                RuntimeError,
            )
            if isinstance(e, k)
        ]
        print(label, kinds[0] if len(kinds) else type(e).__name__)


def kind(label, expected, f):
    try:
        f()
    except expected:
        print(label, "caught", expected.__name__)
    except Exception as e:
        print(label, "other", type(e).__name__, str(e)[:80])
    else:
        print(label, "nothing raised")


a, b = torch.ones(2, 3), torch.ones(4, 5)
kind("matmul", RuntimeError, lambda: a @ b)
kind("add", RuntimeError, lambda: a + b)
kind("cat", RuntimeError, lambda: torch.cat([a, b]))
kind("stack", RuntimeError, lambda: torch.stack([a, b]))
kind("view", RuntimeError, lambda: a.view(5))
kind("view t", RuntimeError, lambda: a.t().view(6))
kind("index", IndexError, lambda: a[5])
kind("index list", IndexError, lambda: a[[0, 7]])
kind("too many", IndexError, lambda: a[0, 0, 0])
kind("dim", IndexError, lambda: a.sum(dim=3))
kind("squeeze", IndexError, lambda: a.squeeze(5))
kind("transpose", IndexError, lambda: a.transpose(0, 4))
kind("permute", RuntimeError, lambda: a.permute(0))
kind("item", RuntimeError, lambda: a.item())
kind("bool", RuntimeError, lambda: bool(a))
kind("len", TypeError, lambda: len(torch.tensor(1)))
kind("iter", TypeError, lambda: list(torch.tensor(1)))
kind("linear", RuntimeError, lambda: nn.Linear(3, 4)(b))
kind("conv", RuntimeError, lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 2, 8, 8)))
kind("bn", ValueError, lambda: nn.BatchNorm2d(3)(torch.ones(2, 3)))
kind("bn train", ValueError, lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)))
kind("embedding", IndexError, lambda: nn.Embedding(3, 2)(torch.tensor([5])))
kind("embedding float", RuntimeError, lambda: nn.Embedding(3, 2)(torch.tensor([1.0])))
kind("nll", IndexError, lambda: F.nll_loss(torch.randn(2, 3), torch.tensor([0, 5])))
kind("ce size", ValueError, lambda: F.cross_entropy(torch.randn(2, 3), torch.tensor([0, 1, 2])))
kind("mse", RuntimeError, lambda: F.mse_loss(a, b))
kind("bce", RuntimeError, lambda: F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0])))
kind("bce size", ValueError, lambda: F.binary_cross_entropy(torch.rand(2), torch.rand(3)))
kind("inplace leaf", RuntimeError, lambda: torch.ones(2, requires_grad=True).add_(1))
kind("int grad", RuntimeError, lambda: torch.tensor([1], requires_grad=True))
kind("chunk", RuntimeError, lambda: a.chunk(0))
kind("split", RuntimeError, lambda: a.split([1, 5]))
kind("expand", RuntimeError, lambda: a.expand(4, 3))
kind("repeat", RuntimeError, lambda: a.repeat(2))
kind("dropout", ValueError, lambda: nn.Dropout(1.5))
kind("f dropout", ValueError, lambda: F.dropout(a, 2.0))
kind("group", ValueError, lambda: nn.GroupNorm(3, 10))
kind("conv groups", ValueError, lambda: nn.Conv2d(3, 4, 3, groups=2))
kind("optimizer empty", ValueError, lambda: torch.optim.SGD([], lr=0.1))
kind("optimizer lr", ValueError, lambda: torch.optim.Adam(nn.Linear(1, 1).parameters(), lr=-1))
kind("optimizer tensor", TypeError, lambda: torch.optim.SGD(torch.ones(2), lr=0.1))
kind(
    "optimizer betas",
    ValueError,
    lambda: torch.optim.Adam(nn.Linear(1, 1).parameters(), betas=(1.0, 0.9)),
)
kind(
    "optimizer nonleaf",
    ValueError,
    lambda: torch.optim.SGD([torch.ones(2, requires_grad=True) * 2], lr=0.1),
)
kind(
    "nesterov",
    ValueError,
    lambda: torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, nesterov=True),
)
kind("einsum", RuntimeError, lambda: torch.einsum("ij,jk->ik", a, b))
kind("einsum2", RuntimeError, lambda: torch.einsum("ijk->i", a))
kind("gather", RuntimeError, lambda: a.gather(1, torch.tensor([[5]])))
kind("scatter", RuntimeError, lambda: torch.zeros(2, 2).scatter(1, torch.tensor([[3]]), 1.0))
kind("gather dtype", RuntimeError, lambda: a.gather(1, torch.tensor([[0.0]])))
kind("cholesky", RuntimeError, lambda: print(torch.linalg.cholesky(-torch.eye(2))))
kind("inv", RuntimeError, lambda: torch.linalg.inv(torch.ones(2, 3)))
kind("inv sing", RuntimeError, lambda: print(torch.linalg.inv(torch.zeros(2, 2))))
kind("det", RuntimeError, lambda: torch.linalg.det(torch.ones(2, 3)))
kind("mm dims", RuntimeError, lambda: torch.mm(torch.ones(2), a))
kind("dot dims", RuntimeError, lambda: torch.dot(a, a))
kind("dtype mm", RuntimeError, lambda: a @ torch.ones(3, 2, dtype=torch.float64))
kind("linear dtype", RuntimeError, lambda: nn.Linear(3, 2)(a.double()))
kind("assign", RuntimeError, lambda: a.__setitem__(0, torch.ones(7)))
kind("mask", IndexError, lambda: a[torch.tensor([True, False, True])])
kind("mean int", RuntimeError, lambda: torch.arange(3).mean())
kind("std int", RuntimeError, lambda: torch.arange(3).std())
kind("max empty", RuntimeError, lambda: torch.tensor([]).max())
kind("bitwise", RuntimeError, lambda: a & a)
kind("neg bool", RuntimeError, lambda: -torch.tensor([True]))
kind("sub bool", RuntimeError, lambda: torch.tensor([True]) - torch.tensor([True]))
kind("inplace type", RuntimeError, lambda: torch.arange(3).add_(0.5))
kind("div inplace", RuntimeError, lambda: torch.arange(3).div_(2))
kind("bad tensor", ValueError, lambda: torch.tensor([[1, 2], [3]]))
kind("bad tensor2", TypeError, lambda: torch.tensor([1, "a"]))
kind("string", TypeError, lambda: torch.tensor("abc"))
kind("zeros", RuntimeError, lambda: torch.zeros(-1))
kind("reshape", RuntimeError, lambda: a.reshape(-1, 4))
kind("reshape2", RuntimeError, lambda: a.reshape(-1, -1))
kind("arange", RuntimeError, lambda: torch.arange(5, 1))
kind("kthvalue", RuntimeError, lambda: torch.ones(3).kthvalue(5))
kind("topk", RuntimeError, lambda: torch.ones(3).topk(5))
kind("unfold", RuntimeError, lambda: torch.ones(3).unfold(0, 5, 1))
kind("multinomial", RuntimeError, lambda: torch.multinomial(torch.ones(3), 5))
kind("quantile", RuntimeError, lambda: torch.quantile(torch.ones(3), 1.5))
kind("numpy grad", RuntimeError, lambda: torch.ones(2, requires_grad=True).numpy())
kind("load", RuntimeError, lambda: nn.Linear(2, 3).load_state_dict(nn.Linear(3, 3).state_dict()))
kind("lstm", RuntimeError, lambda: nn.LSTM(3, 4)(torch.ones(2, 2, 5)))
kind("device", RuntimeError, lambda: torch.device("nonsense"))
kind("pad", RuntimeError, lambda: F.pad(torch.ones(1, 1, 3), (5, 5), mode="reflect"))
kind("interpolate", ValueError, lambda: F.interpolate(torch.ones(1, 1, 3)))
kind("one_hot", RuntimeError, lambda: F.one_hot(torch.tensor([5]), 3))
kind("maxpool", RuntimeError, lambda: F.max_pool2d(torch.ones(1, 1, 2, 2), 5))
kind("conv small", RuntimeError, lambda: F.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 5, 5)))
kind("layer norm", RuntimeError, lambda: F.layer_norm(a, (4,)))
kind("reduction", ValueError, lambda: F.mse_loss(a, a, reduction="x"))
kind("to", RuntimeError, lambda: a.to("nonsense"))
kind("attr", AttributeError, lambda: a.nonsense)
kind(
    "set grad",
    RuntimeError,
    lambda: setattr(torch.ones(2, requires_grad=True), "grad", torch.ones(3)),
)
kind("kw", TypeError, lambda: torch.sum(a, nonsense=1))
kind("linear kw", TypeError, lambda: nn.Linear(2, 3, nonsense=1))
kind("clip", RuntimeError, lambda: nn.utils.clip_grad_norm_([_nan()], 1.0, error_if_nonfinite=True))


def _nan():
    t = torch.ones(1, requires_grad=True)
    t.grad = torch.tensor([float("nan")])
    return t


kind(
    "clip2", RuntimeError, lambda: nn.utils.clip_grad_norm_([_nan()], 1.0, error_if_nonfinite=True)
)
kind("step", RuntimeError, lambda: torch.ones(1).backward())
kind(
    "lr",
    KeyError,
    lambda: torch.optim.lr_scheduler.StepLR(
        torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), 1, last_epoch=5
    ),
)
kind(
    "lambda",
    ValueError,
    lambda: torch.optim.lr_scheduler.LambdaLR(
        torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), [lambda e: 1, lambda e: 2]
    ),
)
kind(
    "plateau",
    ValueError,
    lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(
        torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), factor=1.5
    ),
)
