"""PyTorch programs as people write them, run eagerly by PyTorch and, with their import lines
changed and nothing else, by `tilegrad.torch`.

    python bench/moved.py              the programs, each in a process of its own
    python bench/moved.py gpt gan      those programs
    python bench/moved.py --steps 20   fewer steps

Each process begins with an empty cache and has both libraries, on one thread, whose steps take
turns. *steady* is PyTorch's time over tilegrad's in the median of the last half of the steps,
*first* the seconds of tilegrad's first two steps, compiles included. What the two compute differs
by their random numbers; `tests/torch` compares values. `bench/results/moved.json` keeps the last
run of all programs.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import keep, record_of
from step_loops import arguments, mean, run_inside

STEPS = 40
_PATIENCE_S = 900.0
PROGRAMS: dict[str, Callable[[Any], Iterator[float]]] = {}


def program(step: Callable[[Any], Iterator[float]]) -> Callable[[Any], Iterator[float]]:
    """A generator that does one step of training or of generating each time it is asked; it is
    given the module `torch`, or that which takes its place.
    """
    PROGRAMS[step.__name__] = step
    return step


def _numbers(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _gpt_of(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int, heads: int):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.qkv(self.ln1(x)).split(width, dim=2)
            q, k, v = (
                part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                for part in parts
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).contiguous().view(batch, length, width)
            x = x + self.drop(self.proj(y))
            return x + self.drop(self.mlp(self.ln2(x)))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, words: int = 65, width: int = 128, layers: int = 4, length: int = 64):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, index: Any) -> Any:
            x = self.words(index) + self.places(torch.arange(index.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT()


@program
def gpt(torch: Any) -> Iterator[float]:
    """A language model on characters, trained with clipped gradients and AdamW."""
    F = torch.nn.functional
    model = _gpt_of(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    data = torch.tensor(_numbers(1).integers(0, 65, 20_000))
    while True:
        starts = torch.randint(len(data) - 64, (12,))
        x = torch.stack([data[start : start + 64] for start in starts])
        y = torch.stack([data[start + 1 : start + 65] for start in starts])
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


@program
def generate(torch: Any) -> Iterator[float]:
    """Twenty tokens of that model, without a cache, by `cat` and the most likely twenty."""
    F = torch.nn.functional
    model = _gpt_of(torch)
    model.eval()
    while True:
        index = torch.zeros((1, 1), dtype=torch.long)
        with torch.no_grad():
            for _ in range(20):
                logits = model(index[:, -64:])[:, -1, :] / 0.8
                best, _ = torch.topk(logits, 20)
                logits[logits < best[:, [-1]]] = -float("inf")
                chosen = torch.multinomial(F.softmax(logits, dim=-1), 1)
                index = torch.cat((index, chosen), 1)
        yield float(index.sum().item())


@program
def resnet(torch: Any) -> Iterator[float]:
    """Small images by a residual network with batch normalisation, momentum and a schedule."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
            self.beside = nn.Sequential()
            if stride != 1 or before != after:
                self.beside = nn.Sequential(
                    nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                )

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
            return F.relu(y + self.beside(x))

    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for before, after, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        layers += [Block(before, after, stride), Block(after, after, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    images, labels = torch.randn(320, 3, 32, 32), torch.randint(0, 10, (320,))
    data = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            schedule.step()
            yield loss.item() + (out.argmax(1) == y).float().mean().item()


@program
def words(torch: Any) -> Iterator[float]:
    """A language model of two LSTM layers whose state goes from batch to batch."""
    nn, F = torch.nn, torch.nn.functional
    table, lstm = nn.Embedding(100, 64), nn.LSTM(64, 128, 2, batch_first=True, dropout=0.2)
    head = nn.Linear(128, 100)
    params = [*table.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(params, lr=1e-3)
    data = torch.tensor(_numbers(2).integers(0, 100, (20, 5000)))
    state = None
    for start in itertools.cycle(range(0, 4000, 35)):
        x, y = data[:, start : start + 35], data[:, start + 1 : start + 36]
        out, state = lstm(table(x), state)
        state = tuple(each.detach() for each in state)
        loss = F.cross_entropy(head(out).reshape(-1, 100), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.25)
        optimizer.step()
        yield loss.item()


@program
def vae(torch: Any) -> Iterator[float]:
    """A variational autoencoder of digits."""
    nn, F = torch.nn, torch.nn.functional
    first, mean, spread = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
    back, last = nn.Linear(20, 400), nn.Linear(400, 784)
    params = [each for layer in (first, mean, spread, back, last) for each in layer.parameters()]
    optimizer = torch.optim.Adam(params, 1e-3)
    images = torch.rand(1280, 1, 28, 28)
    for batch in itertools.cycle(range(10)):
        x = images[batch * 128 : (batch + 1) * 128].view(-1, 784)
        hidden = F.relu(first(x))
        mu, logvar = mean(hidden), spread(hidden)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        made = torch.sigmoid(last(F.relu(back(z))))
        loss = F.binary_cross_entropy(made, x, reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@program
def dqn(torch: Any) -> Iterator[float]:
    """Q-learning from a memory of transitions, with a second network that follows slowly."""
    nn, F = torch.nn, torch.nn.functional
    numbers, chance = _numbers(3), random.Random(3)

    def network() -> Any:
        return nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
        )

    def observed() -> Any:
        return torch.tensor(numbers.normal(size=(1, 4)), dtype=torch.float32)

    policy, target = network(), network()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
    memory: deque[Any] = deque(maxlen=10_000)
    state = observed()
    for step in itertools.count(1):
        if chance.random() > 0.5:
            with torch.no_grad():
                action = policy(state).max(1).indices.view(1, 1)
        else:
            action = torch.tensor([[chance.randrange(2)]], dtype=torch.long)
        following = observed() if step % 17 else None
        memory.append((state, action, following, torch.tensor([numbers.normal()])))
        state = observed() if following is None else following
        if len(memory) < 16:
            continue
        states, actions, nexts, rewards = zip(*chance.choices(memory, k=32), strict=True)
        mask = torch.tensor([each is not None for each in nexts], dtype=torch.bool)
        others = torch.cat([each for each in nexts if each is not None])
        values = policy(torch.cat(states)).gather(1, torch.cat(actions))
        ahead = torch.zeros(32)
        with torch.no_grad():
            ahead[mask] = target(others).max(1).values
        wanted = (ahead * 0.99 + torch.cat(rewards).float()).unsqueeze(1)
        loss = F.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        theirs, ours = target.state_dict(), policy.state_dict()
        for name in ours:
            theirs[name] = ours[name] * 0.005 + theirs[name] * 0.995
        target.load_state_dict(theirs)
        yield loss.item()


@program
def diffusion(torch: Any) -> Iterator[float]:
    """A small U-Net that learns to take noise away."""
    nn, F = torch.nn, torch.nn.functional

    def twice(before: int, after: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
        )  # fmt: skip

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.middle = twice(1, 16), twice(16, 32), twice(32, 64)
            self.up2, self.up1 = twice(96, 32), twice(48, 16)
            self.out, self.time = nn.Conv2d(16, 1, 1), nn.Linear(32, 64)

        def forward(self, x: Any, t: Any) -> Any:
            waves = torch.exp(-math.log(10_000) * torch.arange(16) / 16)
            angle = t[:, None].float() * waves[None]
            time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
            a = self.down1(x)
            b = self.down2(F.max_pool2d(a, 2))
            c = self.middle(F.max_pool2d(b, 2)) + time[:, :, None, None]
            y = self.up2(torch.cat([F.interpolate(c, scale_factor=2, mode="nearest"), b], 1))
            y = self.up1(torch.cat([F.interpolate(y, scale_factor=2, mode="nearest"), a], 1))
            return self.out(y)

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), 2e-4)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    while True:
        x, t = torch.randn(16, 1, 28, 28), torch.randint(0, 1000, (16,))
        noise = torch.randn_like(x)
        share = kept[t][:, None, None, None]
        found = model(share.sqrt() * x + (1 - share).sqrt() * noise, t)
        loss = F.mse_loss(found, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@program
def gan(torch: Any) -> Iterator[float]:
    """Two networks that train against each other."""
    nn = torch.nn
    maker = nn.Sequential(
        nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 256), nn.BatchNorm1d(256),
        nn.LeakyReLU(0.2), nn.Linear(256, 784), nn.Tanh(),
    )  # fmt: skip
    judge = nn.Sequential(
        nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(256, 1)
    )
    of_maker = torch.optim.Adam(maker.parameters(), 2e-4, betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), 2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    while True:
        real, fake = torch.rand(64, 784), maker(torch.randn(64, 64))
        judged = criterion(judge(real), torch.ones(64, 1))
        judged = judged + criterion(judge(fake.detach()), torch.zeros(64, 1))
        of_judge.zero_grad()
        judged.backward()
        of_judge.step()
        made = criterion(judge(fake), torch.ones(64, 1))
        of_maker.zero_grad()
        made.backward()
        of_maker.step()
        yield judged.item() + made.item()


@program
def sentences(torch: Any) -> Iterator[float]:
    """A transformer that classifies padded sentences of every length."""
    nn, F = torch.nn, torch.nn.functional
    numbers = _numbers(4)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    table, head = nn.Embedding(1000, 128, padding_idx=0), nn.Linear(128, 4)
    params = [*encoder.parameters(), *table.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(params, 3e-4)
    while True:
        lengths = numbers.integers(4, 40, 16)
        given = numbers.integers(1, 1000, (16, lengths.max()))
        given[np.arange(lengths.max()) >= lengths[:, None]] = 0
        x, y = torch.tensor(given), torch.tensor(numbers.integers(0, 4, 16))
        padding = x == 0
        found = encoder(table(x), src_key_padding_mask=padding)
        there = (~padding).unsqueeze(-1)
        pooled = (found * there).sum(1) / there.sum(1)
        loss = F.cross_entropy(head(pooled), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@program
def actor(torch: Any) -> Iterator[float]:
    """An actor and a critic, by episodes of eight steps that sample their actions."""
    nn, F = torch.nn, torch.nn.functional
    numbers = _numbers(5)
    body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    policy, critic = nn.Linear(64, 4), nn.Linear(64, 1)
    params = [*body.parameters(), *policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.RMSprop(params, 7e-4)
    while True:
        logs, values, rewards, entropies = [], [], [], []
        for _ in range(8):
            hidden = body(torch.tensor(numbers.normal(size=8), dtype=torch.float32))
            chances = torch.distributions.Categorical(logits=policy(hidden))
            action = chances.sample()
            logs.append(chances.log_prob(action))
            values.append(critic(hidden))
            entropies.append(chances.entropy())
            rewards.append(float(numbers.normal()) + action.item() * 0.1)
        total, returns = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        wanted, found = torch.tensor(returns), torch.cat(values)
        gain = wanted - found.detach()
        loss = -(torch.stack(logs) * gain).mean() + 0.5 * F.mse_loss(found, wanted)
        loss = loss - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def run_program(name: str, steps: int) -> dict[str, float]:
    """Both libraries, interleaved, in this process."""
    import torch

    import tilegrad.torch

    torch.set_num_threads(1)
    loops = []
    for module in (tilegrad.torch, torch):
        module.manual_seed(0)
        loops.append(PROGRAMS[name](module))
    times: list[list[float]] = [[], []]
    for step in range(steps):
        for loop, taken in zip(loops, times, strict=True):
            start = time.perf_counter()
            found = next(loop)
            taken.append(time.perf_counter() - start)
            if not math.isfinite(found):
                raise ArithmeticError(f"{name}: step {step} gave {found}")
    ours, theirs = (statistics.median(each[steps // 2 :]) for each in times)
    return {
        "ours_ms": ours * 1e3,
        "theirs_ms": theirs * 1e3,
        "steady": theirs / ours,
        "first_s": sum(times[0][:2]),
    }


def main() -> int:
    given = arguments(__doc__, STEPS)
    if given.inside:
        print(json.dumps(run_program(given.programs[0], given.steps)))
        return 0
    rows: dict[str, dict[str, float]] = {}
    print(f"{'program':12} {'ours ms':>9} {'torch ms':>9} {'steady':>8} {'first s':>8}")
    for name in given.programs or PROGRAMS:
        row = run_inside(__file__, name, given.steps, _PATIENCE_S, TILEGRAD_THREADS="1")
        if isinstance(row, str):
            print(f"{name:12} failed: {row}")
            continue
        rows[name] = row
        print(
            f"{name:12} {row['ours_ms']:9.2f} {row['theirs_ms']:9.2f} {row['steady']:8.3f} "
            f"{row['first_s']:8.2f}",
            flush=True,
        )
    if rows:
        steady = mean([row["steady"] for row in rows.values()])
        print(f"geometric mean {steady:.3f} steady, of {len(rows)} programs")
        if len(rows) == len(PROGRAMS):
            figures = {"steady": steady, "steps": given.steps, "programs": rows}
            keep("moved", record_of(figures, ("numpy", "llvmlite", "torch")))
    return 0 if len(rows) == len(given.programs or PROGRAMS) else 1


if __name__ == "__main__":
    sys.exit(main())
