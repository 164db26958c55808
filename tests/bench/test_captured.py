"""Each workload of the benchmarks is captured once and replayed ever after: one that a read which
no guard covers keeps from being captured would be as right, and slower without a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tilegrad.capture.jit import _all as jits

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from models import with_tilegrad
from models.inputs import inputs
from rows import rows

DECODER = {"layers": 2, "heads": 2, "width": 16, "context": 8, "tokens": 32}
PATCHES = {"layers": 2, "heads": 2, "width": 16, "context": 197, "tokens": 10}
CONVOLUTION = {
    "batch": 1, "channels": 4, "to": 4, "side": 6, "kernel": 3, "stride": 1, "groups": 1
}  # fmt: skip
# The workloads of the table, at sizes that compute in no time.
SMALL: dict[str, dict[str, Any]] = {
    "matmul": {"m": 8, "k": 8, "n": 8},
    "matmul_bfloat16": {"m": 8, "k": 8, "n": 8},
    "matmul_int8": {"m": 8, "k": 8, "n": 8},
    "convolution": CONVOLUTION,
    "convolution_backward": CONVOLUTION,
    "softmax": {"rows": 4, "columns": 8},
    "layernorm": {"rows": 4, "columns": 8},
    "gelu": {"size": 64},
    "sum": {"size": 64},
    "copy": {"rows": 4, "columns": 8},
    "transpose": {"rows": 4, "columns": 8},
    "gather": {"rows": 10, "columns": 4, "count": 6},
    "cumsum": {"rows": 4, "columns": 8},
    "sort": {"size": 32},
    "topk": {"size": 32, "k": 3},
    "attention": {"heads": 2, "length": 8, "width": 4},
    "attention_backward": {"heads": 2, "length": 8, "width": 4},
    "mlp_step": {"batch": 4},
    "convnet_step": {"batch": 2},
    "resnet_step": {"batch": 2, "side": 32},
    "resnet": {"batch": 1, "side": 32},
    "gpt2_decode": {"config": DECODER, "at": 3, "room": 8},
    "gpt2_prefill": {"config": DECODER, "length": 6},
    "vit": {"config": PATCHES, "batch": 1},
    "transformer_step": {"config": DECODER, "batch": 2},
    "chain": {"steps": 3, "size": 4},
}
# Whose kernels take seconds to compile.
LARGE = {"resnet", "resnet_step", "convnet_step", "vit", "transformer_step"}


def test_every_workload_of_the_table_is_here() -> None:
    assert {row.kind for row in rows()} == set(SMALL)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.nightly if kind in LARGE else ()) for kind in SMALL],
)
def test_a_workload_is_captured_once(kind: str) -> None:
    before = set(jits)
    sizes = SMALL[kind]
    run = with_tilegrad.Tilegrad(1).make(kind, inputs(kind, sizes), sizes, "").run
    for _ in range(3):
        run()
    used = [each for each in jits if each not in before and each._calls]
    assert [each.captures for each in used] == [1]
    entries = list(used[0]._entries)
    run()
    run()
    assert used[0]._entries == entries
    assert used[0]._calls == 2
