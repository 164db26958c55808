"""Kernels of networks, what they touch and what memory they take: that may fall, and never grows
unseen.

Only the schedule is made. Nothing is compiled or run, so that networks of their full width take
little time; of equal layers there are two.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from examples.models.gpt2 import GPT2, Decoder
from examples.models.resnet import ResNet
from examples.models.vit import ViT
from tilegrad import Device, GlobalCounters, Tensor, nn
from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.device.backend import Backend
from tilegrad.device.null import NullRuntime
from tilegrad.engine.build import pipeline
from tilegrad.engine.plans import plans
from tilegrad.engine.program.estimate import estimate
from tilegrad.engine.realize import realize
from tilegrad.engine.run import run
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.nn.state import get_parameters, get_state_dict
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

# Of one call: kernels, megabytes that they touch, megabytes of memory beyond what is there. A
# change that lowers a number lowers it here too. The step takes other memory for small parameters,
# 5 MB, which leaves out 72 kernels.
MOST = {
    "resnet-18": (27, 63.6, 2.9),
    "resnet-18 step": (260, 551.7, 109.2),
    "gpt-2 token": (25, 214.7, 0.2),
    "gpt-2 prompt": (19, 258.5, 5.7),
    "vit": (17, 72.0, 7.3),
}


# The same wherever the tests run: AVX-512, caches as of a server's core.
TARGET = Target(
    "counted",
    vector_bytes=64,
    registers=32,
    threads=8,
    cache_bytes=(32 << 10, 1 << 20, 32 << 20),
    has_mask=True,
    missing=frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.RECIP}),
    missing_dtypes=frozenset({dtypes.bfloat16}),
    isa="avx512",
)


def device(name: str, runtime: Runtime | None = None) -> Backend:
    return Backend(name, TARGET, lambda name, program: "", str.encode, runtime or NullRuntime())


def scheduled(ast: UOp) -> pipeline.CompiledKernel:
    """In place of a kernel: what is known of it before it is shaped."""
    ops, mem = estimate(ast)
    names = sorted({node.arg[0] for node in ast.toposort() if node.op is Ops.DEFINE_VAR})
    one = (1, 1, 1)
    kernel = pipeline.CompiledKernel(str(ast.key), "k", "k", "k", one, one, tuple(names), ops, mem)
    return pipeline._remember(kernel)


@pytest.fixture(autouse=True)
def schedule_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plans, "_helpers", lambda graph: nullcontext())
    monkeypatch.setattr(
        plans,
        "compile_kernels",
        lambda items, *rest, **options: [scheduled(ast) for ast, _ in items],
    )
    monkeypatch.setattr(plans, "_recall", lambda key: None)
    Device.register("COUNTED", device)
    try:
        # What runs a second time to be compared would be counted as well.
        with Context(DEVICE="COUNTED", SIZES=1, TEMPLATES=1):
            yield
    finally:
        Device.unregister("COUNTED")


@dataclass
class Peak:
    """Bytes in use before a plan ran, and the most beyond that: as predicted, and as counted."""

    before: int
    predicted: int
    counted: int = 0


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> list[Peak]:
    """Of the plans that run."""
    found: list[Peak] = []
    run_plan, run_step = run.run_plan, run.run_step

    def watched_plan(plan: plans.Plan, *rest: Any) -> Any:
        found.append(Peak(GlobalCounters.mem_used, plan.peak_bytes))
        return run_plan(plan, *rest)

    def watched_step(*given: Any, **rest: Any) -> None:
        run_step(*given, **rest)
        peak = found[-1]
        peak.counted = max(peak.counted, GlobalCounters.mem_used - peak.before)

    # One step after the other, not all in one call.
    monkeypatch.setattr(run, "ready_plan", lambda plan: None)
    monkeypatch.setattr(run, "run_step", watched_step)
    monkeypatch.setattr(realize, "run_plan", watched_plan)
    return found


def there(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def realized(model: Any) -> Any:
    """With memory for all of its tensors, so that none is made in the call that counts."""
    Tensor.realize(*get_state_dict(model).values())
    return model


def step_of(model: Any, x: Tensor, y: Tensor) -> Callable[[], object]:
    optimizer = realized(nn.optim.SGD(get_parameters(realized(model)), 0.01, momentum=0.9))

    def step() -> Tensor:
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()

    return step


def resnet() -> Callable[[], object]:
    model, x = realized(ResNet(18)), there(8, 3, 64, 64)
    return Tensor.train(False)(lambda: model(x).realize())


def resnet_step() -> Callable[[], object]:
    return step_of(ResNet(18), there(16, 3, 64, 64), there(16, dtype="int32"))


def gpt2(tokens: int) -> Callable[[], object]:
    decoder, words = Decoder(realized(GPT2(layers=2)), room=256), there(1, tokens, dtype="int32")
    place = decoder._place.bind(128)
    if tokens == 1:
        return lambda: decoder._step(words, place)
    return lambda: decoder.prefill(words)


def vit() -> Callable[[], object]:
    model, x = realized(ViT(layers=2)), there(4, 3, 224, 224)
    return lambda: model(x).realize()


MADE: dict[str, Callable[[], Callable[[], object]]] = {
    "resnet-18": resnet,
    "resnet-18 step": resnet_step,
    "gpt-2 token": lambda: gpt2(1),
    "gpt-2 prompt": lambda: gpt2(256),
    "vit": vit,
}


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("P.3")
@pytest.mark.parametrize("name", MOST)
def test_kernels_bytes_and_memory_do_not_grow(name: str, peaks: list[Peak]) -> None:
    """And the memory of each plan is what it says that it needs."""
    call = MADE[name]()
    peaks.clear()
    GlobalCounters.reset()
    gc.collect()
    start = GlobalCounters.mem_used
    call()
    assert peaks and all(peak.counted == peak.predicted for peak in peaks)
    memory = max(peak.before - start + peak.counted for peak in peaks)
    found = (
        GlobalCounters.kernel_count,
        *(round(each / 1e6, 1) for each in (GlobalCounters.global_mem, memory)),
    )
    assert all(is_ <= most for is_, most in zip(found, MOST[name])), (
        f"{name}: {found}, more than {MOST[name]}"
    )
