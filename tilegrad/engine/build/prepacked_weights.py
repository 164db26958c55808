"""Operands packed beforehand, for captures whose weights stay as they are.

A kernel that packs an operand does so at each launch. For operands that are `given`, known to be
the same from launch to launch, there is another kernel, which reads them as packed before, and for
each a kernel that packs it. Opts are chosen anew, as copies of these cost nothing then.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.base.recent import Recent
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import (
    CompiledKernel,
    finish_kernel,
    kernel_key,
    recall_kernel,
    store_kernel,
)
from tilegrad.engine.program.fields import parsed, row, text, whole

if TYPE_CHECKING:
    from tilegrad.device.backend import Backend
    from tilegrad.ir.uop import UOp

__all__ = ["Operand", "Prepacked", "prepack"]


@dataclass(frozen=True)
class Operand:
    """An operand packed beforehand: the parameter `slot` is a copy of `size` elements, which
    `kernel` writes as its first parameter, reading the operand as its second.
    """

    slot: int
    kernel: CompiledKernel
    dtype: DType
    size: int

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.nbytes


@dataclass(frozen=True)
class Prepacked:
    """A kernel that takes some of its operands packed."""

    kernel: CompiledKernel
    operands: tuple[Operand, ...]


def prepack(
    device: str, kernel: CompiledKernel, given: Collection[int], *, is_far: bool = False
) -> Prepacked | None:
    """The kernel with those of its parameters `given` packed beforehand for which that pays, from
    memory if they are `is_far`; None if there are none.
    """
    if not kernel.graph or not given:
        return None
    key = cache.digest(kernel.key, "packed", repr(sorted(given)), repr(is_far))
    cached = _recall(key)
    if cached is None:
        made = _make(Device[device], kernel, given, key, is_far=is_far)
        fields = [] if made is None else [_fields(each) for each in made.operands]
        cached = _known.put(key, (made,))
        cache.put("prepacked", key, json.dumps(fields).encode())
    return cached[0]


_known: Recent[str, tuple[Prepacked | None]] = Recent(lambda: config.KEEP_KERNELS)


def _fields(operand: Operand) -> list[object]:
    return [operand.slot, operand.kernel.key, operand.dtype.name, operand.size]


def _recall(key: str) -> tuple[Prepacked | None] | None:
    """The entry cached in this process or on disk; None if there is none yet."""
    found = _known.get(key)
    if found is not None:
        return found
    cached = cache.get("prepacked", key)
    if cached is None:
        return None
    operands: list[Operand] = []
    try:
        for each in row(parsed(cached)):
            slot, packing, dtype, size = row(each, 4)
            kernel = recall_kernel(text(packing))
            if kernel is None:
                return None
            operands.append(
                Operand(whole(slot), kernel, dtypes.from_name(text(dtype)), whole(size))
            )
    except (ValueError, DTypeError):
        return None
    main = recall_kernel(key) if operands else None
    if operands and main is None:
        return None
    made = Prepacked(main, tuple(operands)) if main is not None else None
    return _known.setdefault(key, (made,))


def _make(
    backend: Backend, kernel: CompiledKernel, given: Collection[int], key: str, *, is_far: bool
) -> Prepacked | None:
    from tilegrad.engine.program.estimate import estimate
    from tilegrad.engine.search.kernel_search import best_opts
    from tilegrad.ir.text import parse
    from tilegrad.optimize.generators.heuristic import heuristic
    from tilegrad.optimize.generators.prepack import find_packed, take_out, worth_taking_out
    from tilegrad.optimize.generators.shaper import Shaper
    from tilegrad.optimize.opts.opts import apply_opts, start

    target = backend.target
    graph = parse(kernel.graph)
    found = best_opts(graph, backend) if config.BEAM or config.BEAM_FILE else None
    ast = start(graph, target)
    shaped = apply_opts(ast, found or heuristic(ast, target, given), target)
    slots = worth_taking_out(shaped, given, found or heuristic(ast, target), is_far=is_far)
    if not slots:
        return None
    sizes = {each.slot: each for each in find_packed(shaped)}
    main, packing = take_out(shaped, slots)

    operands: list[Operand] = []
    for slot, each in packing.items():
        shaper = Shaper(each, target)
        shaper.thread()
        # Kernels for other sizes may want the same copy.
        name = kernel_key(shaper.ast, backend)
        packs = recall_kernel(name) or _compiled(shaper.ast, backend, name, estimate(each))
        operands.append(Operand(slot, packs, sizes[slot].dtype, sizes[slot].size))
    made = _compiled(main, backend, key, estimate(graph))
    return Prepacked(made, tuple(operands)) if made.variables == kernel.variables else None


def _compiled(ast: UOp, backend: Backend, key: str, costs: tuple[int, int]) -> CompiledKernel:
    from tilegrad.engine.program.stages import lowered

    shaped, program = lowered(ast, backend.target)
    return store_kernel(finish_kernel(shaped, program, backend, key, costs))
