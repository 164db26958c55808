"""What it costs to compile networks: cold and warm, kernels and bytes, and the memory of a step.

    python bench/compile.py
    python bench/compile.py --peers      also the memory of the libraries that are installed

Each sample is a process of its own; cold is an empty cache folder, warm one that an earlier process
has filled. The time is that of the first call less that of a later one, so that it is the
scheduler's and the compilers' alone; weights and inputs are there before. `processor_s` is what the
first call took of all processors, helpers included. `kernels` and `bytes` are of one call. Of a
ResNet-18 training step the memory that the plans say they need beyond what is there is compared
with the most that was counted, and with the largest resident size of the process that of other
libraries. `bench/results/compile.json` keeps the last run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from importlib.util import find_spec
from typing import Any

from common import ROOT, Spread, keep, record_of
from start import child

# Seconds.
BUDGETS = {
    "ResNet-50 forward, cold": 3.0,
    "ResNet-50 forward, warm": 0.5,
    "ResNet-18 training step, cold": 5.0,
    "GPT-2-small decoding step, cold": 6.0,
}
_SETUP = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT.parent)!r}]
from tilegrad import GlobalCounters, Tensor, nn
from tilegrad.nn.state import get_parameters, get_state_dict
from examples.models.gpt2 import GPT2, Decoder
from examples.models.resnet import ResNet

def there(*shape, dtype="float32"):
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()

def realized(model):
    for tensor in get_state_dict(model).values():
        tensor.assign(Tensor.zeros(*tensor.shape, dtype=tensor.dtype).contiguous()).realize()
    return model

def training(model, x, y, optimizer):
    realized(optimizer)
    def step():
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()
    return step
"""
_MODELS = {
    "ResNet-50 forward": """
model, x = realized(ResNet(50)), there(1, 3, 224, 224)
call = Tensor.train(False)(lambda: model(x).realize())
""",
    "ResNet-18 training step": """
model = realized(ResNet(18))
x, y = there(16, 3, 64, 64), there(16, dtype="int32")
call = training(model, x, y, nn.optim.SGD(get_parameters(model), 0.01, momentum=0.9))
""",
    "GPT-2-small decoding step": """
decoder, token = Decoder(realized(GPT2()), room=256), there(1, 1, dtype="int32")
place = decoder._place.bind(128)
call = lambda: decoder._step(token, place)
""",
}
_STEP = "ResNet-18 training step"
_TIMED = """
import json, os, time
from tilegrad.base.trace import counters
before, spent = vars(counters).copy(), sum(os.times()[:4])
seconds = []
for _ in range(4):
    GlobalCounters.reset()
    start = time.perf_counter()
    call()
    seconds.append(time.perf_counter() - start)
    if len(seconds) == 1:
        work = {name: value - before[name] for name, value in vars(counters).items()}
        spent = sum(os.times()[:4]) - spent
print(json.dumps({"seconds": max(seconds[0] - min(seconds[1:]), 0.0), "call": min(seconds),
    "processor_s": round(spent, 3),
    "kernels": GlobalCounters.kernel_count, "bytes": GlobalCounters.global_mem, **work}))
"""
_MEMORY = """
import gc, json
from tilegrad.engine.realize import realize
from tilegrad.engine.run import run
run_plan, run_step = run.run_plan, run.run_step
plans, before = [], 0
def counted(*given, **rest):
    run_step(*given, **rest)
    plans[-1]["counted"] = max(plans[-1]["counted"], GlobalCounters.mem_used - before)
def watched(plan, *rest):
    global before
    before = GlobalCounters.mem_used
    plans.append({"predicted": plan.peak_bytes, "counted": 0, "before": before})
    return run_plan(plan, *rest)
run.run_step, realize.run_plan = counted, watched
for _ in range(3):
    gc.collect()
    gc.disable()
    plans.clear()
    call()
    gc.enable()
print(json.dumps(plans))
"""


def times(count: int, models: str) -> dict[str, Any]:
    """Of each network whose name matches, cold and warm."""
    found = {}
    for name, made in _MODELS.items():
        if not re.search(models, name):
            continue
        code = _SETUP + made + _TIMED
        with tempfile.TemporaryDirectory() as filled:
            child(code, filled)
            for kind in ("cold", "warm"):
                samples = []
                for _ in range(count):
                    with tempfile.TemporaryDirectory() as empty:
                        samples.append(child(code, filled if kind == "warm" else empty))
                figure = dict(samples[0])
                seconds = [figure.pop("seconds"), *(sample["seconds"] for sample in samples[1:])]
                figure |= Spread(seconds).record("s", 3)
                show(f"{name}, {kind}", figure)
                found[f"{name}, {kind}"] = figure
    return found


def show(name: str, figure: dict[str, Any]) -> None:
    text = f"{name:36} {figure['median_s']:7.2f} s"
    if name.endswith("warm") and figure["compiles"]:
        text += "  NOT WARM: is the source being edited?"
    if name in BUDGETS:
        figure["budget_s"] = BUDGETS[name]
        word = "within" if figure["median_s"] < BUDGETS[name] else "OVER"
        text += f"  {word} {BUDGETS[name]} s"
    text = f"{text:58} {figure['processor_s']:6.2f} s of processors"
    print(f"{text} {figure['kernels']} kernels, {figure['bytes'] / 1e6:,.1f} MB,"
          f" {figure['compiles']} compiled", flush=True)  # fmt: skip


def memory(peers: bool) -> dict[str, Any]:
    """Of the training step: what was predicted and counted, and resident sizes by library."""
    with tempfile.TemporaryDirectory() as cache:
        plans = child(_SETUP + _MODELS[_STEP] + _MEMORY, cache)
    peak = max(plan["before"] + plan["counted"] for plan in plans)
    expected = max(plan["before"] + plan["predicted"] for plan in plans)
    print(f"{_STEP}: {expected:,} bytes predicted, {peak:,} counted")
    found: dict[str, Any] = {"predicted": expected, "counted": peak, "resident_mb": {}}
    for library in ("tilegrad", "torch", "jax", "tinygrad") if peers else ("tilegrad",):
        if find_spec(library) is not None:
            found["resident_mb"][library] = size = resident(library)
            print(f"{_STEP}: {library} {size['after']} MB at most, {size['first']} the first time,"
                  f" {size['before']} before")  # fmt: skip
    return found


def resident(library: str) -> dict[str, int]:
    """Megabytes, at most, of a process that has only imported the library, of one that has trained,
    and of one that has done so after it, with what the first left on disk.
    """
    from peers import Worker
    from rows import rows

    row = next(row for row in rows() if row.kind == "resnet_step")
    found: dict[str, int] = {}
    for which in ("first", "after"):
        worker = Worker(library, row.threads, keeping=False)
        found.setdefault("before", worker.ask(memory=True))
        made = worker.ask(make={"kind": row.kind, "sizes": row.sizes, "engines": [library]})
        found[which] = worker.ask(memory=True)
        worker.stop()
        if "error" in made[library]:
            sys.exit(f"{library}: {made[library]['error']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=3, help="processes for each figure")
    parser.add_argument("--peers", action="store_true", help="also the memory of other libraries")
    parser.add_argument("--only", choices=("times", "memory"), help="one part")
    parser.add_argument("--models", default="", help="pattern of networks")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if options.only != "memory":
        figures["times"] = times(options.count, options.models)
    if options.only != "times":
        figures["memory"] = memory(options.peers)
    if not (options.print or options.only or options.models):
        keep("compile", record_of(figures))


if __name__ == "__main__":
    main()
