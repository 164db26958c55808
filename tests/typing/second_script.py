"""Other kinds of use, with types: own layers and data, recurrent and convolutional models, files,
transforms of functions, distributions, symbolic sizes, masks, and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar, assert_type

import numpy as np

import tilegrad
from tilegrad import (
    Context,
    Device,
    GlobalCounters,
    Tensor,
    TinyJit,
    Variable,
    dtypes,
    func,
    jit,
    nn,
)
from tilegrad.base.errors import ShapeError, TilegradError

T = TypeVar("T")


@dataclass
class History(Generic[T]):
    values: list[T] = field(default_factory=list)

    def add(self, value: T) -> T:
        self.values.append(value)
        return value


class Gate(nn.Module):
    """A layer with a parameter, a buffer and an option."""

    def __init__(self, size: int, *, slope: float = 0.5) -> None:
        super().__init__()
        self.slope = slope
        self.scale = Tensor.ones(size, requires_grad=True)
        self.register_buffer("seen", Tensor.zeros(1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        gated = (x * self.scale).sigmoid() * x
        return gated if mask is None else mask.where(gated, x * self.slope)


class Reader(nn.Module):
    """Words to classes: an embedding, an LSTM, a head."""

    def __init__(self, words: int, size: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.rnn = nn.LSTM(size, size, batch_first=True)
        self.gate = Gate(size)
        self.head = nn.Linear(size, classes)

    def forward(self, words: Tensor) -> Tensor:
        output, (hidden, cell) = self.rnn(self.embed(words))
        assert_type(output, Tensor)
        return self.head(self.gate(hidden[-1] + cell[-1] * 0))


def batches(x: np.ndarray, y: np.ndarray, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(x), size):
        yield Tensor(x[start : start + size]), Tensor(y[start : start + size])


def train(model: nn.Module, data: Callable[[], Iterator[tuple[Tensor, Tensor]]]) -> History[float]:
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.02)
    schedule = nn.schedulers.CosineAnnealingLR(optimizer, 4)
    history: History[float] = History()
    for _ in range(3):
        for words, labels in data():
            loss = nn.functional.cross_entropy(model(words), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(nn.state.get_parameters(model), 1.0)
            optimizer.step()
            history.add(loss.item())
        schedule.step()
    return history


@jit
def scores(x: Tensor, weight: Tensor) -> Tensor:
    return (x @ weight).softmax(-1)


@TinyJit
def doubled(x: Tensor) -> Tensor:
    return (x * 2).realize()


def energy(x: Tensor) -> Tensor:
    return (x.square().sum() + x.sin().sum()) * 0.5


def reductions(x: Tensor) -> list[float]:
    best = x.max(dim=1)
    assert_type(best, Tensor)
    values, indices = x.sort(dim=-1, descending=True)
    assert_type(values, Tensor)
    assert_type(indices, Tensor)
    top, _ = x.topk(2, dim=1)
    spread = x.std(dim=0, keepdim=True)
    both = Tensor.stack(x, x.flip(0), dim=0).cat(x.unsqueeze(0), dim=0)
    picked = x[x > 0.0]
    return [
        best.sum().item(), values[0, 0].item(), float(indices[0, 0].item()), top.mean().item(),
        spread.sum().item(), both.sum().item(), picked.numpy().sum().item(),
    ]  # fmt: skip


def functions(x: Tensor) -> None:
    slope = func.grad(energy)(x)
    assert_type(slope, Tensor)
    curvature = func.hessian(energy)(x)
    assert_type(curvature, Tensor)
    both, value = func.grad_and_value(energy)(x)
    assert_type(both, Tensor)
    assert_type(value, Tensor)
    rows = func.vmap(lambda row: row.sum() * row)(Tensor.ones(3, 2))
    assert slope.shape == x.shape
    assert len(curvature.shape) == 2
    assert rows.shape == (3, 2)


def densities() -> float:
    normal = nn.distributions.Normal(Tensor([0.0, 1.0]), 2.0)
    choice = nn.distributions.Categorical(logits=Tensor([0.1, 0.2, 0.3]))
    drawn = normal.rsample((4,))
    assert_type(drawn, Tensor)
    return float((normal.log_prob(drawn).sum() + choice.entropy()).item())


def symbolic(cache: Tensor, sizes: Sequence[int]) -> list[list[float]]:
    found: list[list[float]] = []
    for size in sizes:
        n = Variable("n", 1, 8).bind(size)
        found.append(cache[:n].sum(1).tolist())
    return found


def refused() -> str:
    try:
        return str((Tensor.ones(2, 3) @ Tensor.ones(2, 3)).shape)
    except ShapeError as error:
        known: TilegradError = error
        return str(known)


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    Tensor.manual_seed(0)
    model = Reader(12, 6, 3)
    words, labels = rng.integers(0, 12, (16, 5)), rng.integers(0, 3, 16)
    history = train(model, lambda: batches(words, labels, 8))
    assert history.values[-1] < history.values[0]
    state: dict[str, Tensor] = model.state_dict()
    nn.state.safe_save(state, str(folder / "model.safetensors"))
    again = Reader(12, 6, 3)
    nn.state.load_state_dict(again, nn.state.safe_load(str(folder / "model.safetensors")))
    model.eval()
    again.eval()
    with tilegrad.no_grad(), Context(DEBUG=0):
        first, second = model(Tensor(words)), again(Tensor(words))
    assert (first - second).abs().max().item() == 0
    x = Tensor(rng.normal(size=(3, 4)).astype(np.float32))
    assert scores(x, Tensor.eye(4)).shape == (3, 4)
    assert doubled(x).dtype is dtypes.float32
    picture = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.MaxPool2d(2))
    assert picture(Tensor.randn(1, 1, 4, 4)).shape == (1, 2, 2, 2)
    functions(Tensor([0.3, -0.2]))
    before: int = GlobalCounters.kernel_count
    shown = [len(reductions(x)), len(symbolic(Tensor.ones(8, 2), (2, 5)))]
    assert refused().startswith("matmul")
    print(f"{Device.DEFAULT}: {shown} {densities() < 0} {GlobalCounters.kernel_count > before}")
