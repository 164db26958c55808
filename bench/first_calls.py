"""First calls of PyTorch programs that nobody has compiled yet, as people type them.

    python bench/first_calls.py                     the programs
    python bench/first_calls.py ddpm text           those whose names have one of these words
    python bench/first_calls.py --revision main~5   each beside a revision's, in turns

Each program is a process of its own with an empty cache; Python's own compiled files are there. Of
a network the first call forward, and the first step of training (forward, backward, Adam), are a
process each. Of a text they are its first twenty words, in several styles. The libraries are loaded
and the parameters are there before the clock starts; *plans* and *kernels* are those of the call.
`bench/results/first-calls.json` keeps the last figures of each program. `compile.py` beside this
file has larger networks, cold and warm.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Spread, environment, keep, record_of, tree_of

Call = Callable[[], object]
# Makes a program's first call of the module `torch`, or of that which takes its place.
Program = Callable[[Any], Call]
PROGRAMS: dict[str, Program] = {}
# Seconds that the first call of any of the networks may take.
BUDGET_S = 5.0
_WORDS, _FIRST_WORDS, _PATIENCE_S = 65, 20, 600.0
_RESULTS = "first-calls"


def _resnet(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.shortcut = nn.Sequential()
            if stride > 1 or before != after:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + self.shortcut(x))

    blocks, before = [], 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Block(before, after, stride), Block(after, after, 1)]
        before = after
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def _unet(torch: Any) -> Any:
    nn = torch.nn

    def twice(before: int, after: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64, 128, 256)
            self.first, self.pool = twice(3, widths[0]), nn.MaxPool2d(2)
            pairs = list(itertools.pairwise(widths))
            self.down = nn.ModuleList([twice(small, large) for small, large in pairs])
            self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs[::-1]])
            self.joined = nn.ModuleList([twice(b, a) for a, b in pairs[::-1]])
            self.out = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x: Any) -> Any:
            seen = [self.first(x)]
            for down in self.down:
                seen.append(down(self.pool(seen[-1])))
            x = seen.pop()
            for up, joined in zip(self.up, self.joined):
                x = joined(torch.cat([seen.pop(), up(x)], dim=1))
            return self.out(x)

    return UNet()


def _ddpm(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int, time: int):
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
            self.conv1 = nn.Conv2d(before, after, 3, padding=1)
            self.conv2 = nn.Conv2d(after, after, 3, padding=1)
            self.time = nn.Linear(time, after)
            self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

        def forward(self, x: Any, time: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
            return self.conv2(F.silu(self.norm2(h))) + self.skip(x)

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int):
            super().__init__()
            self.norm = nn.GroupNorm(8, width)
            self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x: Any) -> Any:
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).reshape(b, 3 * c, h * w).chunk(3, dim=1)
            weights = torch.softmax(q.transpose(1, 2) @ k * c**-0.5, dim=-1)
            return x + self.out((v @ weights.transpose(1, 2)).reshape(b, c, h, w))

    class Denoiser(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            widths, time = (32, 64, 128), 128
            self.time = nn.Sequential(nn.Linear(32, time), nn.SiLU(), nn.Linear(time, time))
            self.first, last = nn.Conv2d(3, 32, 3, padding=1), 32
            self.down, self.up = nn.ModuleList(), nn.ModuleList()
            for width in widths:
                self.down.append(Residual(last, width, time))
                self.down.append(Residual(width, width, time))
                self.down.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                last = width
            self.middle1, self.middle2 = Residual(last, last, time), Residual(last, last, time)
            self.attention = Attention(last)
            for width in widths[::-1]:
                self.up.append(nn.Conv2d(last, width, 3, padding=1))
                self.up.append(Residual(2 * width, width, time))
                last = width
            self.norm, self.out = nn.GroupNorm(8, last), nn.Conv2d(last, 3, 3, padding=1)

        def forward(self, x: Any, t: Any) -> Any:
            rates = torch.exp(-math.log(10_000) * torch.arange(16) / 15)
            angles = t[:, None].float() * rates[None]
            time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
            x, seen = self.first(x), []
            for one, two, halved in zip(self.down[::3], self.down[1::3], self.down[2::3]):
                x = two(one(x, time), time)
                seen.append(x)
                x = halved(x)
            x = self.middle2(self.attention(self.middle1(x, time)), time)
            for conv, block in zip(self.up[::2], self.up[1::2]):
                x = conv(F.interpolate(x, scale_factor=2, mode="nearest"))
                x = block(torch.cat([x, seen.pop()], dim=1), time)
            return self.out(F.silu(self.norm(x)))

    return Denoiser()


class _Styles:
    """How a text is written: positions of a table by number or a slice of it, a mask that is kept
    or made, keys and values computed again or kept and grown by `cat`, words read or not.
    """

    def __init__(self, rows: bool, kept_mask: bool, caches: bool, reads: bool):
        self.rows, self.kept_mask, self.caches, self.reads = rows, kept_mask, caches, reads


def _gpt(torch: Any, style: _Styles) -> Any:
    nn, F = torch.nn, torch.nn.functional
    width, heads, longest = 64, 4, 64

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
            seen = torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest)
            self.register_buffer("seen", seen)

        def forward(self, x: Any, past: Any) -> tuple[Any, Any]:
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(width, dim=2)
            q, k, v = [
                each.view(batch, length, heads, width // heads).transpose(1, 2)
                for each in (q, k, v)
            ]
            if past is not None:
                k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // heads)
            if not style.caches:
                seen = self.seen[:, :, :length, :length]
                if not style.kept_mask:
                    seen = torch.tril(torch.ones(length, length))
                scores = scores.masked_fill(seen == 0, float("-inf"))
            mixed = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous()
            x = x + self.proj(mixed.view(batch, length, width))
            return x + self.mlp(self.ln2(x)), (k, v)

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(_WORDS, width), nn.Embedding(longest, width)
            self.table = nn.Parameter(torch.zeros(1, longest, width))
            self.blocks = nn.ModuleList([Block(), Block()])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, _WORDS, bias=False)

        def forward(self, words: Any, past: Any = None, begin: int = 0) -> tuple[Any, list[Any]]:
            end = begin + words.shape[1]
            if style.rows:
                x = self.words(words) + self.places(torch.arange(begin, end))
            else:
                x = self.words(words) + self.table[:, begin:end]
            kept = []
            for number, block in enumerate(self.blocks):
                x, now = block(x, None if past is None else past[number])
                kept.append(now)
            return self.head(self.ln(x)), kept

    return GPT()


def _parameters_are_there(torch: Any, model: Any) -> Any:
    for parameter in model.parameters():
        values = np.random.default_rng(parameter.numel()).normal(size=tuple(parameter.shape))
        parameter.data.copy_(torch.from_numpy((0.05 * values).astype(np.float32)))
    for each in (*model.parameters(), *model.buffers()):
        each.detach().reshape(-1)[:1].tolist()
    return model


def _there(torch: Any, *shape: int) -> Any:
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return torch.from_numpy(values)


def _inputs(torch: Any, name: str) -> tuple[tuple[Any, ...], Any]:
    """What a network is given, and what it is to give."""
    if name == "resnet":
        return (_there(torch, 16, 3, 64, 64),), torch.tensor(np.arange(16) % 10)
    if name == "unet":
        return (_there(torch, 4, 3, 64, 64),), torch.tensor(np.zeros((4, 64, 64), np.int64))
    if name == "ddpm":
        x = _there(torch, 8, 3, 32, 32)
        return (x, torch.tensor(np.arange(8) * 100)), _there(torch, 8, 3, 32, 32)
    words = np.random.default_rng(1).integers(0, _WORDS, (4, 32))
    return (torch.tensor(words),), torch.tensor(words)


def _network(name: str, torch: Any) -> Any:
    if name == "gpt":
        return _gpt(torch, _Styles(rows=True, kept_mask=True, caches=False, reads=True))
    return {"resnet": _resnet, "unet": _unet, "ddpm": _ddpm}[name](torch)


def _forward(name: str) -> Program:
    def made(torch: Any) -> Call:
        model = _parameters_are_there(torch, _network(name, torch))
        given, _ = _inputs(torch, name)

        def call() -> object:
            with torch.no_grad():
                found = model(*given)
            return (found[0] if isinstance(found, tuple) else found).sum().item()

        return call

    return made


def _step(name: str) -> Program:
    def made(torch: Any) -> Call:
        F = torch.nn.functional
        model = _parameters_are_there(torch, _network(name, torch))
        given, wanted = _inputs(torch, name)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def call() -> object:
            found = model(*given)
            if name == "ddpm":
                loss = F.mse_loss(found, wanted)
            elif name == "gpt":
                loss = F.cross_entropy(found[0].view(-1, _WORDS), wanted.view(-1))
            else:
                loss = F.cross_entropy(found, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return call

    return made


def _text(style: _Styles) -> Program:
    def made(torch: Any) -> Call:
        model = _parameters_are_there(torch, _gpt(torch, style)).eval()

        def call() -> object:
            words = torch.tensor([[3, 1]])
            past, seen = None, words
            with torch.no_grad():
                for _ in range(_FIRST_WORDS):
                    begin = words.shape[1] - seen.shape[1]
                    scores, kept = model(seen, past, begin)
                    best = scores[:, -1].argmax(-1, keepdim=True)
                    words = torch.cat((words, best), dim=1)
                    past, seen = (kept, best) if style.caches else (None, words)
                    if style.reads:
                        best.item()
            return words[0].tolist()

        return call

    return made


for _name in ("resnet", "unet", "ddpm", "gpt"):
    PROGRAMS[f"{_name}, forward"] = _forward(_name)
    PROGRAMS[f"{_name}, step"] = _step(_name)
for _name, _style in {
    "text, rows, kept mask": _Styles(True, True, False, True),
    "text, rows, made mask": _Styles(True, False, False, True),
    "text, slice, kept mask": _Styles(False, True, False, True),
    "text, slice, made mask": _Styles(False, False, False, True),
    "text, rows, cache": _Styles(True, True, True, True),
    "text, slice, cache, unread": _Styles(False, True, True, False),
}.items():
    PROGRAMS[_name] = _text(_style)


def run(name: str, library: str) -> dict[str, Any]:
    """The first call of a program in this process."""
    torch = importlib.import_module(library)
    if library == "torch":
        torch.set_num_threads(2)
    call = PROGRAMS[name](torch)
    work: dict[str, int] = {}
    if library != "torch":
        from tilegrad.base.trace import counters

        before = vars(counters).copy()
    start = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - start
    if library != "torch":
        work = {each: count - before[each] for each, count in vars(counters).items()}
    return {"seconds": seconds, "value": value, **work}


def child(name: str, library: str, tree: Path, python_files: str) -> dict[str, Any]:
    """The first call of a program in a process of its own, with the package of `tree`."""
    code = (
        f"import json, os, sys; sys.path[:0] = [{str(tree)!r}, {str(ROOT)!r}];"
        f"import first_calls; found = first_calls.run({name!r}, {library!r});"
        "print(json.dumps(found))"
    )
    with tempfile.TemporaryDirectory() as cache:
        given = environment(
            TILEGRAD_CACHE=cache,
            PYTHONDONTWRITEBYTECODE="",
            PYTHONPYCACHEPREFIX=python_files,
            PYTHONPATH=str(tree),
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, env=given, cwd=cache, timeout=_PATIENCE_S,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    count: int, words: Sequence[str] = (), revision: str | None = None, peers: bool = True
) -> dict[str, Any]:
    """By program, the seconds of its first call, of this tree's package, of that of a revision,
    and PyTorch's if it is there.
    """
    figures: dict[str, Any] = {}
    with ExitStack() as opened:
        python_files = opened.enter_context(tempfile.TemporaryDirectory())
        takers = {"tilegrad": ("tilegrad.torch", ROOT.parent)}
        if revision is not None:
            takers["before"] = ("tilegrad.torch", opened.enter_context(tree_of(revision)))
        if peers and find_spec("torch") is not None:
            takers["torch"] = ("torch", ROOT.parent)
        for name in PROGRAMS:
            if words and not any(word in name for word in words):
                continue
            samples: dict[str, list[dict[str, Any]]] = {each: [] for each in takers}
            for library, tree in takers.values():
                if not figures:
                    # Python compiles its files.
                    child("gpt, forward", library, tree, python_files)
            for _ in range(count):
                for each, (library, tree) in takers.items():
                    samples[each].append(child(name, library, tree, python_files))
            figures[name] = _figure(name, samples)
    return figures


def _figure(name: str, samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    text = f"{name:28}"
    for library, taken in samples.items():
        found[library] = Spread([each["seconds"] for each in taken]).record("s", 3)
        text += f"{library:>10} {found[library]['median_s']:7.3f} s"
        if "compiles" in taken[0]:
            found[library] |= {
                "plans": taken[0]["schedules"], "kernels": taken[0]["compiles"]
            }  # fmt: skip
            text += f" {taken[0]['schedules']:3} plans {taken[0]['compiles']:4} kernels"
    if not name.startswith("text"):
        found["budget_s"] = BUDGET_S
        if found["tilegrad"]["median_s"] > BUDGET_S:
            text += f"  OVER {BUDGET_S} s"
    print(text, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="of the programs' names")
    parser.add_argument("--count", type=int, default=3, help="processes for each figure")
    parser.add_argument("--revision", help="a revision to compare with")
    parser.add_argument("--no-peers", action="store_true", help="without PyTorch")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    given = parser.parse_args()
    figures = measure(given.count, given.words, given.revision, not given.no_peers)
    if not given.print:
        stored = ROOT / "results" / f"{_RESULTS}.json"
        known = json.loads(stored.read_text())["figures"] if stored.exists() else {}
        every = {name: known.get(name, {}) | figures.get(name, {}) for name in PROGRAMS}
        record = record_of(
            {name: figure for name, figure in every.items() if figure},
            ("numpy", "llvmlite", "torch"),
        )
        keep(_RESULTS, record)


if __name__ == "__main__":
    main()
