"""Random training programs in PyTorch's style, for PyTorch and for tilegrad: leaves, layers, an
optimizer and carried state are made once, then one step runs several times in one process, so that
from the third time on its equal calls are known.

python -m tests.torch.random_steps --minutes 10 --seed 1     programs that differ, made short

A step has views, writes in place with and without `no_grad`, through `detach` and `.data`, layers,
backward passes, optimizer steps and reads in any order. PyTorch is the oracle while a program is
made: a line that it refuses is left out.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tilegrad.torch as ours
from tests.torch import program_lines as shared
from tilegrad.base.errors import TilegradError

__all__ = ["Program", "difference_of", "made", "shortened"]

# Of `x` and `y`, tensors made before, and `n`, the number of the step.
VIEWS = (
    *shared.VIEWS,
    "x.T", "x.data", "x.unflatten(0, (-1, 1))", "x.expand(2, *x.shape)", "x.data[0]",
    "x.detach()[1:]", "x.swapaxes(0, -1)", "x.split(1)[-1]", "x.grad", "x.grad.view(-1)",
    "x.grad[0]",
)  # fmt: skip
VALUES = (
    *shared.VALUES,
    "torch.stack([x, y])", "x.softmax(-1)", "x.clone()", "x.double()", "x.float()", "x.half()",
    "x.detach().clone()", "x.tanh()", "F.gelu(x)", "x @ y", "x.log_softmax(-1)",
    "x.exp().clamp(max=4)", "x.norm()", "x.var()", "x + n", "x * (n + 1)",
    "F.dropout(x, 0.5, False)", "x[:, [0]]", "x[..., index[:2]]", "x.cumsum(-1).view(-1)",
    "x.argmax()", "x.long()", "x > 0", "x.to(y.dtype)", "x.amax(0)", "torch.zeros_like(x)",
    "torch.ones_like(x) * n", "x.logsumexp(-1)", "x.contiguous()", "torch.nn.Parameter(x)",
    "torch.nn.Parameter(x.data, False)", "x.requires_grad_()", "x.detach().requires_grad_()",
    "x.clone().detach().requires_grad_(True)",
)  # fmt: skip
LAYERS = (
    "linear(x)", "norm(x)", "batch(x)", "mlp(x)", "F.linear(x, linear.weight)",
    "x @ linear.weight.t()", "table(index)", "x * linear.bias", "linear.weight * 1",
    "mlp(x).relu()", "norm(linear(x) + x)", "F.mse_loss(linear(x), x.detach())",
    "F.cross_entropy(mlp(x), index[:x.shape[0]])", "linear.weight[0]", "linear.weight.data",
    "linear.weight.detach()", "linear.weight.grad", "table.weight", "batch.running_mean",
    "next(mlp.parameters())",
)  # fmt: skip
WRITES = (
    *shared.WRITES,
    "x.data.add_(1)", "x.data.mul_(0.5)", "x.detach().mul_(0.9)", "x.data.copy_(y.detach() * 1)",
    "x.data = y.detach() * 1", "x.data = x.data * 0.9", "x.sub_(y * 1, alpha=0.1)",
    "x.lerp_(y * 1, 0.3)", "x += y * 1", "x -= 0.1", "x *= 0.5", "x.data[0] = 1.5",
    "x[..., 0] = 0.5", "x[0].mul_(2)", "x.mul_(0.9).add_(y.detach() * 1, alpha=0.1)",
    "x.view(-1).add_(1)", "x.t().mul_(0.5)", "x.addcmul_(y * 1, y * 1)", "x.fill_(n)",
    "x[x > 0.2] = 0.1", "x.masked_fill_(x > 0, 0.5)", "x.grad.mul_(0.5)", "x.grad.zero_()",
    "x.grad = None", "x.sub_(0.1 * x.grad)", "x.data.sub_(0.1 * x.grad)",
    "x.data -= 0.1 * x.grad.data", "x.grad = y.detach() * 1",
    "x.index_add_(0, index[:1], y[:1] * 1)", "x.detach_()", "x.retain_grad()",
)  # fmt: skip
STEPS = (
    "(x * x).sum().backward()", "x.mean().backward()", "x.sum().backward()", "opt.step()",
    "(x * y).sum().backward(retain_graph=True)", "x.sum().backward(retain_graph=True)",
    "opt.zero_grad()", "opt.zero_grad(set_to_none=False)", "linear.weight.data.mul_(0.9)",
    "opt.zero_grad(); (x * x).mean().backward(); opt.step()", "linear.zero_grad()",
    "opt.zero_grad(); F.mse_loss(x, x.detach() * 0.5).backward(); opt.step()", "batch.eval()",
    "torch.nn.utils.clip_grad_norm_(list(linear.parameters()), 0.5)", "batch.train()",
    "with torch.no_grad(): linear.weight.copy_(linear.weight * 0.9)", "batch(given)",
    "with torch.no_grad(): linear.bias.sub_(0.1 * linear.bias.grad)", "sched.step()",
    "mlp.load_state_dict({k: v * 0.9 for k, v in mlp.state_dict().items()})",
    "out.append([p.tolist() for p in mlp.parameters()])", "old.append(x)", "x = old[0]",
    "for p in mlp.parameters(): p.data.add_(p.grad, alpha=-0.1)",
    "gs = torch.autograd.grad((x * x).sum(), [leaf]); out.append(gs[0].tolist())",
    "gs = torch.autograd.grad(x.sum(), [linear.weight], retain_graph=True)[0]; x = gs",
    "linear.requires_grad_(n % 2 == 0)", "state.copy_(x.detach() * 1)", "state = x.detach()",
    "state = 0.9 * state + 0.1 * x.detach()", "state.mul_(0.9).add_(leaf.detach() * 1, alpha=0.1)",
)  # fmt: skip
OPTIMIZERS = (
    "torch.optim.SGD(ps, lr=0.05)", "torch.optim.SGD(ps, lr=0.05, momentum=0.9)",
    "torch.optim.Adam(ps, lr=0.01)", "torch.optim.AdamW(ps, lr=0.01)",
    "torch.optim.RMSprop(ps, lr=0.01)", "torch.optim.Adagrad(ps, lr=0.05)",
)  # fmt: skip
MODULES = (
    "layers['linear'] = torch.nn.Linear({width}, {width})",
    "layers['norm'] = torch.nn.LayerNorm({width})",
    "layers['batch'] = torch.nn.BatchNorm1d({width})",
    "layers['table'] = torch.nn.Embedding(3, {width})",
    "layers['mlp'] = torch.nn.Sequential(torch.nn.Linear({width}, 5), torch.nn.ReLU(),"
    " torch.nn.Linear(5, {width}))",
)  # fmt: skip
# What PyTorch leaves open, or where another choice is stated in docs/differences.md, is no line.
_KNOWN = (
    # A view that was taken under no_grad requires no gradient (docs/differences.md).
    "no gradient reaches what requires one", "cannot retain_grad on a tensor",
    "several elements of this view are one element", "a part of what was written to without",
)  # fmt: skip
_REFUSED = (RuntimeError, IndexError, ValueError, TypeError, AttributeError, NameError, KeyError)


class Program(NamedTuple):
    """Python lines: once, then `repeats` times; `end` reads what is there, in some order."""

    setup: tuple[str, ...]
    step: tuple[str, ...]
    end: tuple[str, ...]
    repeats: int

    def text(self) -> str:
        """As one script."""
        body = "\n".join(f"    {line}" for line in self.step or ("pass",))
        head, tail = "\n".join(self.setup), "\n".join(self.end)
        return f"{head}\nfor n in range({self.repeats}):\n{body}\n{tail}\n"


def _array(shape: Sequence[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _weights(torch: Any, module: Any, seed: int) -> None:
    """Give a module the same parameters in both libraries."""
    for number, each in enumerate(module.parameters()):
        array = _array(tuple(each.shape), seed + number).astype(np.float32)
        with torch.no_grad():
            each.copy_(torch.tensor(array).to(each.dtype))


def _setup(chance: random.Random) -> tuple[list[str], list[str]]:
    """Lines that make what a step works with, and the names that they make."""
    shape = chance.choice([(3, 3), (4, 4), (2, 4), (4,), (2, 3, 2)])
    dtype = chance.choice(["float32"] * 4 + ["float64"])
    grown = chance.choice(["0"] * 2 + ["n", "n % 2", "2 * n"])
    first = f"{shape[0]} + {grown}" if grown != "0" else f"{shape[0]}"
    rest = "".join(f", {size}" for size in shape[1:])
    width = shape[-1]
    lines = [
        f"F_, dtype = {width}, torch.{dtype}",
        f"leaf = torch.tensor(array({shape}, 1), dtype=dtype, requires_grad=True)",
        f"other = torch.tensor(array({shape}, 2), dtype=dtype, requires_grad="
        f"{chance.random() < 0.4})",
        f"state = torch.zeros({shape}, dtype=dtype)",
        f"data = lambda n: torch.tensor(array(({first}{rest},), 10 + n), dtype=dtype)",
        "index = torch.tensor([1, 0, 1])",
        "layers = {}",
        *[line.format(width=width) for line in chance.sample(MODULES, chance.choice([0, 1, 2, 3]))],
        "for each in layers.values(): weights(torch, each.to(dtype), 50)",
        "globals().update(layers)",
        "ps = [leaf, *[p for each in layers.values() for p in each.parameters()]]",
        f"opt = {chance.choice(OPTIMIZERS)}",
        "sched = torch.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)",
        "old = []",
    ]
    return lines, ["leaf", "other", "state", "given"]


def _line(chance: random.Random, names: list[str], new: str) -> tuple[str, bool]:
    """A line of a step, and whether it makes the tensor `new`."""
    recent = names[-4:] if chance.random() < 0.6 else names
    first, second = chance.choice(recent), chance.choice(names)
    kinds = chance.choices(
        ["view", "value", "layer", "write", "step", "read"], [25, 26, 10, 17, 16, 6]
    )[0]
    unrecorded = "with torch.no_grad(): " if chance.random() < 0.3 else ""
    sometimes = chance.choice(["if n % 2: ", "if n > 1: ", "if n != 2: "])
    sometimes = sometimes if chance.random() < 0.2 else ""
    if kinds == "read":
        return f"{sometimes}out.append({first}.tolist())", False
    pool = {"view": VIEWS, "value": VALUES, "layer": LAYERS, "write": WRITES, "step": STEPS}[kinds]
    text = chance.choice(pool)
    text = _renamed(text, first, second)
    if kinds in ("view", "value", "layer"):
        return f"{unrecorded}{new} = {text}", True
    if kinds == "write":
        if not sometimes and chance.random() < 0.45:
            sometimes = "with torch.no_grad(): "
        return f"{sometimes}{text}", False
    return (text if text.startswith(("for", "with")) else f"{sometimes}{text}"), False


def _renamed(text: str, first: str, second: str) -> str:
    """`x` and `y` of a line by their names."""
    found, word = [], ""
    for character in [*text, "\0"]:
        if character.isalnum() or character == "_":
            word += character
            continue
        is_attribute = bool(found) and found[-1] == "."
        found.append({"x": first, "y": second}.get(word, word) if not is_attribute else word)
        found.append(character)
        word = ""
    return "".join(found).rstrip("\0")


def made(torch: Any, seed: int) -> Program:
    """A random program that PyTorch runs without an error."""
    chance = random.Random(seed)
    setup, names = _setup(chance)
    repeats = chance.randint(3, 6)
    step = ["given = data(n)"]
    wanted = 1 + chance.randint(3, 10)
    for _ in range(4 * wanted):
        if len(step) == wanted:
            break
        line, is_new = _line(chance, names, f"v{len(step)}")
        if _computes(torch, Program(tuple(setup), (*step, line), (), 3)):
            step.append(line)
            if is_new:
                names.append(line.partition(" = ")[0].rpartition(" ")[2])
    while not _computes(torch, Program(tuple(setup), tuple(step), (), repeats)):
        step.pop()
    end = [f"out.append({name}.tolist())" for name in names]
    end += [
        "out.append(leaf.grad)", "out.append(linear.weight.grad)", "out.append(batch.running_var)",
        "out.append(linear.weight.tolist())", "out.append(other.grad)", "out.append(norm.bias)",
        "out.append([p.grad for p in mlp.parameters()])", "out.append(table.weight.grad)",
    ]  # fmt: skip
    chance.shuffle(end)
    end = [
        line
        for line in end
        if _computes(torch, Program(tuple(setup), tuple(step), (line,), repeats))
    ]
    return Program(tuple(setup), tuple(step), tuple(end), repeats)


def _run(torch: Any, program: Program) -> list[Any]:
    names: dict[str, Any] = {
        "torch": torch, "F": torch.nn.functional, "array": _array, "weights": _weights, "out": [],
    }  # fmt: skip
    names["n"] = 0
    for line in program.setup:
        exec(line, names)
    for number in range(program.repeats):
        names["n"] = number
        for line in program.step:
            exec(line, names)
    for line in program.end:
        exec(line, names)
    return [_plain(each) for each in names["out"]]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.detach().tolist() if hasattr(value, "detach") else value


def _computes(torch: Any, program: Program) -> bool:
    """Whether PyTorch does, and would if it took notice of what is written through `data`: it
    computes gradients from what was overwritten so, where it should raise.
    """
    try:
        _run(torch, program)
        seen = program._replace(step=tuple(map(_noticed, program.step)))
        if seen != program:
            _run(torch, seen)
    except _REFUSED:
        return False
    return True


def _noticed(line: str) -> str:
    line = re.sub(r"(\w+)\.data = (.*)", r"\1.detach().copy_(\2)", line)
    line = re.sub(r"(\w+)\.data -= (.*)", r"\1.detach().sub_(\2)", line)
    return re.sub(r"\.data\b", ".detach()", line)


def _is_equal(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _is_equal(*each, tolerance) for each in zip(one, other, strict=True)
        )
    if one is None or other is None or isinstance(one, list) or isinstance(other, list):
        return one is other
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True))


def difference_of(torch: Any, program: Program) -> tuple[str, str] | None:
    """How tilegrad differs from PyTorch: "value", "internal" or "refused", and the text."""
    if not _computes(torch, program):
        return None
    theirs = _run(torch, program)
    try:
        mine = _run(ours, program)
    except TilegradError as error:
        kind = "internal" if "InternalError" in type(error).__name__ else "refused"
        return kind, f"{type(error).__name__}: {error}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('tilegrad/')[2]}:{where.lineno}"
        return "refused", f"{type(error).__name__} at {place}: {error}"
    tolerance = 2e-2 if "half" in program.text() else 2e-3
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        if not _is_equal(one, other, tolerance):
            return "value", f"value {number}: {one} for {other}"
    return None


def shortened(torch: Any, program: Program, kind: str, text: str = "") -> Program:
    """The same difference with fewer lines and repeats; `text` begins that of an error."""

    def differs(candidate: Program) -> bool:
        found = difference_of(torch, candidate)
        return found is not None and found[0] == kind and found[1].startswith(text)

    for repeats in range(1, program.repeats):
        if differs(program._replace(repeats=repeats)):
            program = program._replace(repeats=repeats)
            break
    for part in ("end", "step", "setup", "step"):
        number = 0
        while number < len(getattr(program, part)):
            lines = getattr(program, part)
            if "weights(" in lines[number]:
                # Without it the two have other parameters.
                number += 1
                continue
            fewer = program._replace(**{part: lines[:number] + lines[number + 1 :]})
            if differs(fewer):
                program = fewer
            else:
                number += 1
    return program


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=10, help="differences, after which it ends")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end, seed, found = time.monotonic() + 60 * given.minutes, given.seed * 1_000_000, 0
    refused: Counter[str] = Counter()
    while time.monotonic() < end and found < given.most:
        seed += 1
        program = made(torch, seed)
        difference = difference_of(torch, program)
        if difference is None:
            continue
        kind, text = difference
        head = text.partition("\n")[0][:60]
        refused[f"{kind}: {head}"] += 1
        if any(known in text for known in _KNOWN):
            continue
        if kind == "refused" and refused[f"{kind}: {head}"] > 1:
            continue
        short = shortened(torch, program, kind, "" if kind == "value" else head[:30])
        print(f"--- seed {seed}: {kind}: {text[:600]}\n{short.text()}", flush=True)
        now = difference_of(torch, short)
        print(f"now: {now and now[1][:600]}", flush=True)
        found += kind != "refused"
    print(f"{seed - given.seed * 1_000_000} programs; {dict(refused)}")
    return int(found > 0)


if __name__ == "__main__":
    raise SystemExit(main())
