"""The table: what is measured, how much work it is, and what is wanted.

A row names its kind, a method that each library in `models/` may have, and the sizes that the
method takes. `flops` counts the multiply-adds of convolutions and matrix products alone, two
operations each; those of a network are counted by its reference. `nbytes` is what the work cannot
do without moving: inputs and results, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from models.nets import DECODER, GPT2_SMALL, VIT_SMALL

__all__ = ["Row", "rows"]

TORCH, KEPT, GIVEN = "torch", "torch, kept memory", "torch, given buffer"
LAST, COMPILED = "torch, channels last", "torch, compiled"
JAX, ONNX, TINYGRAD, NUMPY = "jax", "onnxruntime", "tinygrad", "numpy"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        kind, sizes: the method of a library that makes it, and its arguments.
        peers: who is asked, and in which ways.
        goal: the ratio to the best peer that is wanted.
        also: what is wanted besides: ratios to peers by their names, "limit" for a share of that.
        unit: whose operations bound it: "float32", "bfloat16" or "int8".
        tolerance: the largest difference to the reference, as a share of the largest value.
        part: of the table.
    """

    part: str
    name: str
    kind: str
    sizes: dict[str, Any]
    goal: float
    peers: tuple[str, ...]
    flops: float = 0
    nbytes: float = 0
    unit: str = "float32"
    threads: int = 2
    tolerance: float = 1e-4
    also: dict[str, float] = field(default_factory=dict)

    @property
    def definition(self) -> dict[str, Any]:
        """What a kept figure belongs to: another one is another row."""
        return {key: asdict(self)[key] for key in ("kind", "sizes", "unit", "threads")}


_EVERY = (TORCH, KEPT, JAX, ONNX, TINYGRAD)
_GIVEN = (TORCH, GIVEN, COMPILED, JAX, ONNX, TINYGRAD)
_IMAGES = (TORCH, KEPT, LAST, JAX, ONNX, TINYGRAD)
_NETS = (TORCH, KEPT, COMPILED, JAX, ONNX, TINYGRAD)
_TRAINED = (TORCH, KEPT, COMPILED, JAX, TINYGRAD)


@dataclass
class _Table:
    """Collects rows; `scale` divides sizes, for a quick look."""

    scale: int
    found: list[Row] = field(default_factory=list)

    def add(self, *given: Any, **more: Any) -> None:
        self.found.append(Row(*given, **more))

    def of(self, size: int, least: int = 8) -> int:
        return max(size // self.scale, min(least, size))


def rows(scale: int = 1) -> list[Row]:
    """All rows, with sizes `scale` times smaller along each axis for a quick look."""
    table = _Table(scale)
    _products(table)
    _convolutions(table)
    _row_wise(table)
    _moved(table)
    _attention(table)
    _networks(table)
    names = [row.name for row in table.found]
    assert len(set(names)) == len(names)
    return table.found


def _products(table: _Table) -> None:
    shapes = [(n, n, n) for n in (256, 512, 1024, 2048)] + [(1000, 999, 1001)]
    for m, k, n in shapes:
        m, k, n = table.of(m), table.of(k), table.of(n)
        for threads in (1, 2):
            few = "one thread" if threads == 1 else "two threads"
            also = {TORCH: 1.1, "limit": 0.92 if threads == 1 else 0.9}
            table.add(
                "products", f"matmul {m}x{k}x{n}, {few}", "matmul", {"m": m, "k": k, "n": n},
                1.0, (TORCH, GIVEN, JAX, ONNX, TINYGRAD, NUMPY), flops=2.0 * m * k * n,
                nbytes=4.0 * (m * k + k * n + m * n), threads=threads, tolerance=2e-5,
                also=also if m * table.scale >= 512 else {},
            )  # fmt: skip
    for n in (table.of(1024), table.of(2048)):
        sizes, flops = {"m": n, "k": n, "n": n}, 2.0 * n**3
        table.add(
            "products", f"matmul {n}, bfloat16", "matmul_bfloat16", sizes, 0.95,
            (TORCH, GIVEN, JAX), flops=flops, nbytes=6.0 * n**2, unit="bfloat16", tolerance=1e-2,
            also={"limit": 0.85},
        )  # fmt: skip
        table.add(
            "products", f"matmul {n}, int8 to int32", "matmul_int8", sizes, 0.95,
            (TORCH, JAX, ONNX), flops=flops, nbytes=6.0 * n**2, unit="int8", tolerance=0,
            also={"limit": 0.85},
        )  # fmt: skip


def _convolutions(table: _Table) -> None:
    side, batch = table.of(56), table.of(32, 2)

    def convolution(
        name: str, goal: float, channels: int, to: int, kernel: int, backward: bool = False,
        stride: int = 1, groups: int = 1, **also: float,
    ) -> None:  # fmt: skip
        out = (side - 1) // stride + 1
        sizes = {
            "batch": batch, "channels": channels, "to": to, "side": side, "kernel": kernel,
            "stride": stride, "groups": groups,
        }  # fmt: skip
        flops = 2.0 * batch * to * out**2 * channels // groups * kernel**2
        moved = 4.0 * (batch * (channels * side**2 + to * out**2))
        peers = tuple(each for each in _IMAGES if each != ONNX) if backward else _IMAGES
        table.add(
            "convolutions", f"{name}, {side}x{side}, batch {batch}",
            "convolution_backward" if backward else "convolution", sizes, goal, peers,
            flops=flops * (2 if backward else 1), nbytes=moved * (2 if backward else 1), also=also,
        )  # fmt: skip

    convolution("conv 3x3, 64 to 64", 0.95, 64, 64, 3, torch=1.5)
    convolution("conv 1x1, 64 to 256", 1.2, 64, 256, 1)
    convolution("conv 3x3, depthwise, 128", 1.2, 128, 128, 3, groups=128)
    convolution("conv 3x3, stride 2, 64 to 128", 1.0, 64, 128, 3, stride=2)
    convolution("conv 3x3, 8 groups, 128 to 128", 1.0, 128, 128, 3, groups=8)
    convolution("conv 3x3, 64 to 64, backward", 1.0, 64, 64, 3, backward=True)


def _row_wise(table: _Table) -> None:
    wide, long = table.of(4096), (1 << 26) // table.scale**2
    square = {"rows": wide, "columns": wide}
    both = 8.0 * wide**2
    table.add("rows", f"softmax {wide}x{wide}", "softmax", square, 1.2, _GIVEN, nbytes=both)
    table.add("rows", f"layernorm {wide}x{wide}", "layernorm", square, 1.5, _GIVEN, nbytes=both)
    name = f"GELU of {long >> 20}M" if long >> 20 else f"GELU of {long}"
    table.add("rows", name, "gelu", {"size": long}, 1.5, _GIVEN, nbytes=8.0 * long)
    table.add(
        "rows", name.replace("GELU", "sum"), "sum", {"size": long}, 0.95, _EVERY, nbytes=4.0 * long
    )


def _moved(table: _Table) -> None:
    wide, million = table.of(4096), (1 << 20) // table.scale**2
    square, both = {"rows": wide, "columns": wide}, 8.0 * wide**2
    plain = (TORCH, GIVEN, JAX, ONNX, TINYGRAD)
    table.add("moved", f"copy {wide}x{wide}", "copy", square, 1.5, plain, nbytes=both)
    table.add("moved", f"transpose {wide}x{wide}", "transpose", square, 1.5, plain, nbytes=both)
    words, ids = table.of(50000), table.of(8192)
    sizes = {"rows": words, "columns": 512, "count": ids}
    name = f"gather {ids} of {words} rows of 512"
    table.add("moved", name, "gather", sizes, 0.95, plain, nbytes=8.0 * ids * 512, tolerance=0)
    table.add("moved", f"cumsum {wide}x{wide}", "cumsum", square, 1.2, plain, nbytes=both)
    found = (*plain[:-1], NUMPY)
    sizes = {"size": million}
    table.add("moved", f"sort of {million:,}", "sort", sizes, 1.2, (*found, TINYGRAD),
              nbytes=8.0 * million, tolerance=0)  # fmt: skip
    sizes = {"size": million, "k": 100}
    table.add("moved", f"largest 100 of {million:,}", "topk", sizes, 1.2, (*found, TINYGRAD),
              nbytes=4.0 * million, tolerance=0)  # fmt: skip


def _attention(table: _Table) -> None:
    length = table.of(1024)
    sizes = {"heads": 8, "length": length, "width": 64}
    once = 2.0 * 8 * length**2 * 64
    moved = 4.0 * 4 * 8 * length * 64
    table.add("attention", f"attention 8x{length}x64", "attention", sizes, 1.1, _NETS,
              flops=2 * once, nbytes=moved)  # fmt: skip
    # With the forward pass, whose two products come again as five.
    table.add("attention", f"attention 8x{length}x64, forward and backward", "attention_backward",
              sizes, 1.1, _TRAINED, flops=7 * once, nbytes=2 * moved)  # fmt: skip


def _networks(table: _Table) -> None:
    def net(name: str, kind: str, goal: float, peers: Sequence[str], **sizes: Any) -> None:
        nbytes = sizes.pop("nbytes", 0.0)
        # A step of Adam turns the last digits of small gradients into whole steps.
        tolerance = 5e-3 if kind.endswith("step") else 1e-3
        table.add("networks", name, kind, sizes, goal, tuple(peers), nbytes=nbytes,
                  tolerance=tolerance)  # fmt: skip

    few = table.scale > 1
    batch = table.of(256)
    net(f"MLP 784-512-10 step, batch {batch}, Adam", "mlp_step", 1.0, _TRAINED, batch=batch)
    trained = (TORCH, KEPT, LAST, COMPILED, JAX, TINYGRAD)
    batch = table.of(512)
    net(f"conv-net step, batch {batch}, Adam", "convnet_step", 1.0, trained, batch=batch)
    batch, side = table.of(8, 1), table.of(224, 32)
    seen = (TORCH, KEPT, LAST, COMPILED, JAX, ONNX, TINYGRAD)
    net(f"ResNet-18, batch {batch}, {side}x{side}", "resnet", 1.0, seen, batch=batch, side=side)
    # Fewer pixels in the last stage have no variance to normalise by.
    batch, side = table.of(16, 8), table.of(64, 64)
    net(f"ResNet-18 step, batch {batch}, {side}x{side}", "resnet_step", 1.0, trained, batch=batch,
        side=side)  # fmt: skip
    gpt2 = replace(GPT2_SMALL, layers=2) if few else GPT2_SMALL
    cache = 4.0 * 2 * gpt2.layers * 128 * gpt2.width
    net("GPT-2-small, next token, batch 1", "gpt2_decode", 1.5, _NETS, config=asdict(gpt2),
        at=128, room=256, nbytes=4.0 * gpt2.product_weights + cache)  # fmt: skip
    length = table.of(256)
    net(f"GPT-2-small, prompt of {length}", "gpt2_prefill", 1.1, _NETS, config=asdict(gpt2),
        length=length)  # fmt: skip
    vit = replace(VIT_SMALL, layers=2) if few else VIT_SMALL
    batch = table.of(4, 1)
    net(f"ViT-S/16, batch {batch}, 224x224", "vit", 1.0, _NETS, config=asdict(vit), batch=batch)
    decoder = replace(DECODER, layers=1) if few else DECODER
    batch = table.of(8, 2)
    net(f"transformer step, batch {batch} of {decoder.context}, AdamW", "transformer_step", 1.0,
        _TRAINED, config=asdict(decoder), batch=batch)  # fmt: skip
    steps = 50
    sizes = {"steps": steps, "size": 16}
    table.add("networks", f"{steps} dependent 16x16 products", "chain", sizes, 1.0,
              (TORCH, COMPILED, JAX, ONNX, TINYGRAD, NUMPY),
              flops=2.0 * 16**3 * steps, nbytes=4.0 * 256 * (steps + 2))  # fmt: skip
