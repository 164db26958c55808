"""Loaders, samplers, whole modules in files, an optimizer and a schedule of one's own, scalars."""

import math

import numpy as np
import torch

rng = np.random.default_rng(17)


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


import dataclasses
import os
import pickle
import tempfile

from torch import nn as N
from torch import optim
from torch.nn.functional import cross_entropy
from torch.nn.modules.utils import _pair
from torch.optim import Adam
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
    random_split,
)

print(
    torch.__version__.split(".")[0].isdigit(),
    torch.cuda.is_available(),
    torch.cuda.device_count(),
    torch.backends.cudnn.benchmark,
    torch.get_default_dtype(),
    torch.get_num_threads() > 0,
    torch.is_grad_enabled(),
    torch.are_deterministic_algorithms_enabled(),
    torch.initial_seed() >= 0,
    _pair(3),
)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
torch.use_deterministic_algorithms(False)
torch.set_float32_matmul_precision("high")
torch.cuda.manual_seed_all(0)
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_num_threads(1)


class Warm(LRScheduler):
    def __init__(self, o, w, last_epoch=-1):
        self.w = w
        super().__init__(o, last_epoch)

    def get_lr(self):
        return [b * min(1.0, (self.last_epoch + 1) / self.w) for b in self.base_lrs]


m = N.Linear(3, 2)
o = Adam(m.parameters(), lr=0.1)
s = Warm(o, 4)
for _ in range(5):
    print(f"{s.get_last_lr()[0]:.4f}", end=" ")
    o.step()
    s.step()
print()


class Lamb(optim.Optimizer):
    def __init__(self, params, lr=0.01, mom=0.9):
        super().__init__(params, dict(lr=lr, mom=mom))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if len(st) == 0:
                    st["step"] = 0
                    st["m"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                st["step"] += 1
                st["m"].mul_(g["mom"]).add_(p.grad, alpha=1 - g["mom"])
                p.add_(st["m"], alpha=-g["lr"])
        return loss


fixed(m)
o = Lamb(m.parameters())
X = rnd(8, 3)
Y = torch.arange(8) % 2
for _ in range(3):
    o.zero_grad()
    l = cross_entropy(m(X), Y)
    l.backward()
    o.step()
    print(f"{l:.6f}")
print(o, sorted(o.state_dict()["state"][0]))
d = tempfile.mkdtemp()
f = os.path.join(d, "ck.pt")
torch.save(m, f)
m2 = torch.load(f, weights_only=False)
print(m2, torch.equal(m2.weight, m.weight))
torch.save(m.state_dict(), f)
m3 = N.Linear(3, 2)
print(m3.load_state_dict(torch.load(f, map_location=torch.device("cpu"), weights_only=True)))
torch.save([torch.ones(2), {"a": (1, torch.zeros(1))}], f)
print(torch.load(f))
torch.save(o.state_dict(), f)
o.load_state_dict(torch.load(f))
print(o.state[m.weight]["step"])
try:
    torch.load(os.path.join(d, "none.pt"))
except FileNotFoundError:
    print("FileNotFoundError")
ds = TensorDataset(torch.arange(10.0), torch.arange(10))
print(len(ds), ds[3], ds[2:4], ds.tensors[0].shape)
tr, va, te = random_split(ds, [0.6, 0.2, 0.2])
print(len(tr), len(va), len(te), len(ConcatDataset([tr, va])), len(tr + va), Subset(ds, [1, 3])[0])
dl = DataLoader(ds, batch_size=4, sampler=SubsetRandomSampler([0, 1, 2, 3, 4]), drop_last=False)
print(len(dl), sorted(int(i) for b in dl for i in b[1]))
dl = DataLoader(
    ds, 3, collate_fn=lambda b: (torch.stack([x for x, _ in b]) * 2, [int(y) for _, y in b])
)
print(list(dl)[-1])
print(
    default_collate([{"a": 1, "b": [1.0, 2.0]}, {"a": 3, "b": [4.0, 5.0]}]),
    default_collate([(np.float32(1), "x"), (np.float32(2), "y")]),
    default_collate([np.ones(2), np.zeros(2)]),
)
it = iter(
    DataLoader(
        ds,
        batch_size=5,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=2,
        worker_init_fn=lambda i: None,
    )
)
print(next(it))
print(next(it)[1])
try:
    next(it)
except StopIteration:
    print("stop")
R = RandomSampler(ds, replacement=True, num_samples=7)
print(
    len(R),
    len(list(R)),
    len(list(BatchSampler(SequentialSampler(ds), 3, True))),
    list(BatchSampler(SequentialSampler(ds), 4, False)),
)
for i, (a, b) in enumerate(DataLoader(ds, batch_size=6, shuffle=False)):
    print(i, a, b)


@dataclasses.dataclass
class Cfg:
    lr: float = 0.1
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32


c = Cfg()
print(c, dataclasses.asdict(c))
print(
    torch.device("cpu") == torch.device("cpu"),
    torch.device("cuda", 0),
    torch.device("cuda:0").index,
    torch.device(type="cpu").type,
    hash(torch.device("cpu")) == hash(torch.device("cpu")),
    {torch.float32: 1}[torch.float32],
    torch.float == torch.float32,
    getattr(torch, "float16"),
    str(torch.int64).split(".")[-1],
    isinstance(torch.float32, torch.dtype),
)
with tempfile.TemporaryDirectory() as t:
    p = os.path.join(t, "x.pkl")
    pickle.dump({"m": m.state_dict(), "t": torch.ones(2)}, open(p, "wb"))
    print(pickle.load(open(p, "rb"))["t"])
net = torch.compile(m)
print(torch.allclose(net(X), m(X)))
sc = torch.jit.script(N.ReLU()) if False else None
tj = torch.jit.trace(m, X)
print(torch.allclose(tj(X), m(X)))
print(
    torch.stack([t for t in ds.tensors[0].split(5)]).shape,
    sum([torch.ones(2), torch.ones(2)]),
    max(torch.tensor([1, 5, 2])),
    min(torch.tensor([3.0, 1.0])).item(),
    sorted([torch.tensor(3), torch.tensor(1)]),
    list(torch.arange(3)),
    tuple(torch.arange(2)),
    [int(i) for i in torch.arange(3)],
    torch.tensor([1, 2]) in [1] if False else "",
    2 in torch.tensor([1, 2]),
    torch.arange(6).reshape(2, 3).tolist(),
    np.array(torch.ones(2)),
    np.asarray(torch.ones(2)).dtype,
    np.mean(torch.ones(3).numpy()),
    torch.ones(2) * np.float32(2),
    np.float64(2) * torch.ones(2),
    torch.from_numpy(np.eye(2)).dtype,
    torch.tensor(np.int32(3)).dtype,
    torch.tensor(np.array([1.0, 2.0], dtype=np.float16)),
    round(torch.tensor(2.567).item(), 2),
    math.sqrt(torch.tensor(4.0)),
    float(torch.tensor(1.5)),
    int(torch.tensor(3)),
    range(torch.tensor(3)),
    [10, 20, 30][torch.tensor(1)],
    "%.3f" % torch.tensor(1.23456),
    f"{torch.tensor(3.14):5.1f}",
    f"{torch.tensor(5)}",
    f"{torch.tensor([1.5, 2.5])}",
    torch.tensor(3) == 3,
    not torch.tensor(0),
    hash(torch.tensor(1)) is not None,
    torch.Tensor.add(torch.ones(1), 1),
    torch.ones(1).__class__.__name__,
    torch.ones(2).add_(1).mul_(3).sub_(1).div_(2),
    torch.zeros(2).fill_(3).clamp_(max=2).neg_(),
    torch.arange(3.0).sqrt_().pow_(2),
    torch.zeros(2, 2).normal_().shape,
    torch.zeros(2).uniform_(1, 1),
    torch.eye(2).t_(),
    torch.zeros(1, 2).squeeze_().unsqueeze_(0).shape,
    torch.zeros(3).random_(1, 2),
    torch.arange(4).view(2, 2).transpose_(0, 1),
    torch.ones(3).zero_(),
    torch.rand(2).ge_(2.0),
    torch.ones(3).cumsum_(0),
    torch.tensor([3, 1]).bitwise_or_(torch.tensor([4, 4])),
    torch.ones(2).index_fill_(0, torch.tensor([0]), 5),
    torch.ones(2).masked_fill_(torch.tensor([True, False]), 7),
    torch.empty(3).bernoulli_(1.0),
    torch.ones(2).copy_(torch.tensor([3, 4])),
    torch.ones(2).lerp_(torch.zeros(2), 0.5),
    torch.ones(2).addcmul_(torch.ones(2), torch.ones(2), value=2),
    torch.ones(2).addcdiv_(torch.ones(2), torch.full((2,), 4.0)),
    torch.ones(2, 2).addmm_(torch.ones(2, 2), torch.ones(2, 2)),
    torch.ones(2, 2).tril_(),
    torch.zeros(2, 2).fill_diagonal_(1),
    torch.ones(2).exponential_().shape,
    torch.ones(2).ndim,
    torch.ones(2).T.shape,
    torch.ones(2, 3).H.shape,
    torch.ones(2, 3, 4).mT.shape,
)
print(
    torch.ones(2, 3).sum(dim=(0, 1)),
    torch.ones(2, 3).sum(0, keepdim=True),
    torch.ones(2, 3).mean(-1),
    torch.ones(2, 3).std(dim=1, unbiased=False),
    torch.arange(4.0).norm(p=1),
    torch.arange(6.0).view(2, 3).amax((0, 1)),
    torch.arange(4.0).argmax(),
    torch.arange(4).max(),
    torch.arange(4.0).var(correction=0),
    torch.all(torch.ones(2, 2), dim=1),
    torch.ones(2, dtype=torch.uint8).all(),
    torch.arange(4.0).prod(0),
    torch.arange(6.0).view(2, 3).softmax(-1).argmax(-1, keepdim=True),
    torch.tensor([1.0, 2.0]).dot(torch.tensor([3.0, 4.0])),
    torch.tensor([[1.0, 2.0]]).matmul(torch.tensor([3.0, 4.0])),
    torch.arange(4).float().quantile(0.5),
    torch.tensor([1, 2, 3]).sum(dtype=torch.float),
    torch.ones(2, 3).numel(),
    torch.sum(torch.ones(2, 3), 1),
    torch.mean(torch.ones(2), 0),
    torch.max(torch.tensor([1, 2]), torch.tensor([2, 1])),
    torch.cumsum(torch.arange(3), 0),
    torch.minimum(torch.tensor(1), torch.tensor(2)),
    torch.numel(torch.ones(3)),
)
