"""A script as a user writes it, fully typed: `make lint` checks it with mypy --strict, and a test
runs it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilegrad import Context, Device, GlobalCounters, Tensor, Variable, dtypes, func, jit, nn


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.1) -> None:
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.up(self.norm(x)).gelu()
        return x + self.dropout(self.down(hidden))


class Net(nn.Module):
    def __init__(self, features: int, width: int, classes: int, depth: int = 2) -> None:
        self.stem = nn.Linear(features, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes, bias=False)
        self.scale = nn.Parameter(Tensor.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale)


def batches(x: Tensor, y: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    found: list[tuple[Tensor, Tensor]] = []
    for start in range(0, int(x.shape[0]), size):
        found.append((x[start : start + size], y[start : start + size]))
    return found


def accuracy(net: Net, x: Tensor, y: Tensor) -> float:
    net.eval()
    share: Tensor = (net(x).argmax(1) == y).float().mean()
    net.train()
    return float(share.item())


def train(net: Net, x: Tensor, y: Tensor, epochs: int = 2) -> list[float]:
    optimizer = nn.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = nn.schedulers.CosineAnnealingLR(optimizer, T_max=epochs)
    losses: list[float] = []

    @jit
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    for _ in range(epochs):
        for images, labels in batches(x, y, 32):
            losses.append(float(step(images.contiguous(), labels.contiguous()).item()))
        schedule.step()
    return losses


def elementwise(x: Tensor) -> list[Tensor]:
    mask = (x > 0) & ~(x >= 2)
    y = mask.where(x.exp(), x.abs() ** 0.5)
    y = y.clamp(0, 3).maximum(0.5) / 2 - 1
    found = [y.sum(), y.mean(dim=-1, keepdim=True), y.max(dim=0), y.min(), y.std(dim=1), y.var()]
    found += [
        y.softmax(-1),
        y.log_softmax(1),
        y.cumsum(1),
        y.relu().sqrt(),
        -y,
        1 - y,
        2 * y,
        1 / y.exp(),
    ]
    return found


def moved(x: Tensor) -> list[Tensor]:
    y = x.reshape(2, -1).permute(1, 0).flip(0).unsqueeze(0).expand(3, -1, -1)
    z = Tensor.cat([y, y], dim=0)
    w = Tensor.stack([x, x], dim=1)
    first, second = x.split(32, dim=0)
    halves = list(x.chunk(2, dim=0))
    padded = x.pad((1, 1, 0, 0), value=0.0)
    return [
        y,
        z,
        w,
        first,
        second,
        *halves,
        padded,
        x.T,
        x.flatten(),
        x[0],
        x[1:, ::2],
        x[..., -1],
        x[x > 0],
    ]


def in_place(x: Tensor) -> Tensor:
    y: Tensor = x.clone()
    y[0] = 1.0
    y[:, 1] += 2.0
    y.add_(1.0).mul_(2.0)
    y += 1
    return y


def loss_of(weight: Tensor) -> Tensor:
    return (weight * weight).sum()


def derivatives() -> tuple[Tensor, Tensor]:
    slope: Tensor = func.grad(loss_of)(Tensor([1.0, 2.0]))
    w = Tensor([3.0], requires_grad=True)
    (w * w).sum().backward()
    assert w.grad is not None
    return slope, w.grad


def symbolic(x: Tensor) -> float:
    length = Variable("length", 1, 4)
    return float(x[: length.bind(2)].sum().item())


def files(net: Net, folder: Path) -> None:
    path = folder / "net.safetensors"
    nn.state.safe_save(nn.state.get_state_dict(net), str(path))
    nn.state.load_state_dict(net, nn.state.safe_load(str(path)))


def main(folder: Path) -> None:
    Tensor.manual_seed(1)
    x = Tensor(np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32))
    y = (x.sum(1) > 0).cast(dtypes.int32).realize()
    net = Net(8, 16, 2)
    losses = train(net, x, y)
    print(f"{Device.DEFAULT}: {losses[0]:.3f} to {losses[-1]:.3f}, {accuracy(net, x, y):.0%}")
    with Context(NOOPT=1):
        print(x.sum().item())
    for tensor in elementwise(x) + moved(x) + [in_place(x), *derivatives()]:
        values: list[float] = tensor.numpy().ravel().tolist()
        print(tensor.shape, tensor.dtype, len(values))
    print(symbolic(x), GlobalCounters.kernel_count)
    files(net, folder)


if __name__ == "__main__":
    main(Path("."))
