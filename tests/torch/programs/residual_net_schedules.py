"""A residual net by loaders with workers, and the rates of every schedule."""

import math

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(1)


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


from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader, Dataset, Subset, random_split


class Shapes(Dataset):
    def __init__(self, n, transform=None):
        self.x = rng.standard_normal((n, 3, 12, 12)).astype(np.float32)
        self.y = rng.integers(0, 4, n)
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        if self.transform:
            x = self.transform(x)
        return (x, int(self.y[i]))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.MaxPool2d(2),
        )
        self.layers = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2))
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(16, classes)
        self._init()

    def _init(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = self.layers(self.stem(x))
        x = torch.flatten(self.pool(x), 1)
        return self.head(x)


def normalize(x):
    mean = torch.tensor([0.1, 0.2, 0.3]).view(-1, 1, 1)
    std = torch.tensor([0.5, 0.6, 0.7])[:, None, None]
    return (x - mean) / std


full = Shapes(40, normalize)
train, val = random_split(full, [32, 8], generator=torch.Generator().manual_seed(0))
print(len(train), len(val), sorted(train.indices + val.indices) == list(range(40)))
train, val = (Subset(full, range(32)), Subset(full, range(32, 40)))
dl = DataLoader(train, batch_size=8, shuffle=False, num_workers=2, pin_memory=False, drop_last=True)
vl = DataLoader(val, batch_size=8)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = fixed(Net()).to(device)
print(model)
print(sum(p.numel() for p in model.parameters() if p.requires_grad))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0005, nesterov=True)
print(opt)
sched = CosineAnnealingLR(opt, T_max=4)
crit = nn.CrossEntropyLoss(label_smoothing=0.1)
for epoch in range(3):
    model.train()
    running, correct, total = (0.0, 0, 0)
    for i, (x, y) in enumerate(dl):
        x, y = (x.to(device, non_blocking=True), y.to(device))
        opt.zero_grad(set_to_none=True)
        out = model(x)
        loss = crit(out, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running += loss.item() * x.size(0)
        correct += (out.argmax(1) == y).sum().item()
        total += y.size(0)
    sched.step()
    model.eval()
    with torch.no_grad():
        vloss = sum((crit(model(x), y).item() for x, y in vl)) / len(vl)
    print(
        f"epoch {epoch} loss {running / total:.4f} norm {norm:.3f} val {vloss:.4f} lr {sched.get_last_lr()[0]:.5f} total {total}"
    )
print({k: tuple(v.shape) for k, v in list(model.state_dict().items())[:4]})


def lrs(make, n=8, **kw):
    p = nn.Parameter(torch.zeros(1))
    o = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    s = make(o)
    r = []
    for i in range(n):
        o.step()
        s.step(*([1.0 / (i // 3 + 1)] if isinstance(s, ReduceLROnPlateau) else []))
        r.append(o.param_groups[0]["lr"])
    print(type(s).__name__, " ".join(f"{v:.5f}" for v in r))


lrs(lambda o: StepLR(o, 3, 0.5))
lrs(lambda o: MultiStepLR(o, [2, 5], 0.1))
lrs(lambda o: ExponentialLR(o, 0.9))
lrs(lambda o: LambdaLR(o, lambda e: 0.95**e))
lrs(lambda o: MultiplicativeLR(o, lambda e: 0.9))
lrs(lambda o: OneCycleLR(o, 0.5, total_steps=10))
lrs(lambda o: CosineAnnealingWarmRestarts(o, 3, 2))
lrs(lambda o: PolynomialLR(o, 6, 2.0))
lrs(lambda o: ConstantLR(o, 0.5, 3))
lrs(lambda o: LinearLR(o, 0.2, 1.0, 4))
lrs(lambda o: CyclicLR(o, 0.01, 0.1, 3))
lrs(lambda o: ReduceLROnPlateau(o, patience=1, factor=0.5))
lrs(
    lambda o: SequentialLR(
        o, [LinearLR(o, 0.1, total_iters=3), CosineAnnealingLR(o, 5)], milestones=[3]
    )
)
lrs(lambda o: ChainedScheduler([ConstantLR(o, 0.1, 2), ExponentialLR(o, 0.9)]))
