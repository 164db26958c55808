"""What the programs beside this file share: weights that need no random numbers, and numbers that
are printed. Each runs with PyTorch and with tilegrad, and is to print the same.
"""

from __future__ import annotations

import math
from typing import Any

import torch

__all__ = ["filled", "show", "step", "wave"]


def wave(*shape: int, pace: float = 0.37, start: float = 0.0) -> Any:
    """Values between -1 and 1."""
    numbers = torch.arange(math.prod(shape), dtype=torch.float32)
    return torch.sin(numbers * pace + start).reshape(shape)


def filled(module: Any, scale: float = 0.08) -> Any:
    """`module` with weights that are waves; those of normalisations about 1."""
    with torch.no_grad():
        for number, (name, weight) in enumerate(sorted(module.named_parameters())):
            values = wave(*weight.shape, pace=1.7, start=number) * scale
            is_norm = "norm" in name.lower() or ".ln_" in name
            weight.copy_(values + 1 if is_norm and name.endswith("weight") else values)
    return module


def show(name: str, *values: Any) -> None:
    """Print numbers, and of tensors the first elements, the shape and the sum of magnitudes."""
    texts = []
    for value in values:
        if not torch.is_tensor(value) or value.numel() == 1:
            texts.append(f"{float(value):.5g}")
            continue
        flat = value.detach().double().reshape(-1)
        first = " ".join(f"{each:.4g}" for each in flat[:4].tolist())
        texts.append(f"{first} of {tuple(value.shape)} {flat.abs().sum().item():.5g}")
    print(name, *texts, sep="; ", flush=True)


def step(name: str, module: Any, *args: Any, **options: Any) -> None:
    """Print what a module gives, and norms of the gradients of its mean square."""
    found = module(*args, **options)
    while not torch.is_tensor(found):
        found = found[0] if isinstance(found, (tuple, list)) else found.to_tuple()[0]
    show(name, found)
    found.float().square().mean().backward()
    norms = [each.grad.norm() for each in module.parameters() if each.grad is not None]
    show("gradients", len(norms), *norms[:3], sum(norms))
