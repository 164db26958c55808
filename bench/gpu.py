"""Everything that needs a GPU, in one call of less than ten minutes: the sample of the conformance
suite, single kernels, launches, and networks, each beside PyTorch on the same GPU where it is
installed.

    python bench/gpu.py                      # the first GPU that is here, to gpu.json
    python bench/gpu.py --device NV --seconds 300 --out mine.json

Without a GPU it says what each device lacks and what to install, and the file says the same. The
file has no more of the machine than the names of GPU, driver and versions: it is made to be sent.
It is written again after each row, so what was measured is there even if a driver ends the process.
What does not fit into the time is named in `left_out`, and `marks` has what was wanted of each
kernel beside what was found.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from models.inputs import inputs
from models.nets import GPT2_SMALL

from tilegrad import Context, Device, Tensor, jit

__all__ = ["GPUS", "Clock", "Row", "TimeUpError", "main", "marks", "refusals", "rows"]

# In the order in which one is chosen.
GPUS = ("NV", "CUDA", "AMD", "HIP", "METAL", "CL", "WEBGPU")
_SECONDS = 540.0
# A sample is long enough for the clock, and there are several.
_SAMPLE_SECONDS, _SAMPLES = 0.05, 5
# Share of the time that the conformance sample may take.
_CONFORMANCE = 0.25
_LAUNCHES = 100
# What is wanted: of the pace of PyTorch's products, of the bandwidth of its copy, and of the time
# of a kernel in a graph, in seconds.
_OF_PRODUCTS, _OF_BANDWIDTH, _REPLAY = 0.9, 0.9, 3e-6


@dataclass(frozen=True)
class Row:
    """A function that both libraries have under its `kind` (bench/models), and its inputs."""

    name: str
    kind: str
    sizes: dict[str, Any]
    flops: float = 0.0
    nbytes: float = 0.0
    half: bool = False


def rows() -> Iterator[Row]:
    """The most telling first, as time may run out."""
    for half in (True, False):
        for n in (1024, 2048, 4096, 8192):
            name = f"product {n} {'float16' if half else 'float32'}"
            size = 2 if half else 4
            yield Row(
                name, "matmul", {"m": n, "k": n, "n": n}, 2.0 * n**3, 3.0 * size * n * n, half
            )
    big = 1 << 26
    yield Row("copy of 256 MiB", "copy", {"rows": big >> 10, "columns": 1 << 10}, nbytes=8.0 * big)
    yield Row("sum of 256 MiB", "sum", {"size": big}, nbytes=4.0 * big)
    for rows_, columns in ((16384, 1024), (4096, 768), (512, 50257)):
        sizes, nbytes = {"rows": rows_, "columns": columns}, 8.0 * rows_ * columns
        yield Row(f"softmax {rows_}x{columns}", "softmax", sizes, nbytes=nbytes)
        yield Row(f"layernorm {rows_}x{columns}", "layernorm", sizes, nbytes=nbytes)
    yield Row("cumsum 16384x1024", "cumsum", {"rows": 16384, "columns": 1024},
              nbytes=8.0 * (1 << 24))  # fmt: skip
    for half in (True, False):
        heads, length, width = 64, 2048, 64
        yield Row(f"attention {heads}x{length}x{width} {'float16' if half else 'float32'}",
                  "attention", {"heads": heads, "length": length, "width": width},
                  4.0 * heads * length * length * width, half=half)  # fmt: skip
    conv = {"batch": 32, "channels": 64, "to": 64, "side": 56, "kernel": 3, "stride": 1,
            "groups": 1}  # fmt: skip
    for half in (True, False):
        yield Row(f"convolution 3x3, 32x64x56x56 {'float16' if half else 'float32'}",
                  "convolution", conv, 2.0 * 32 * 64 * 56 * 56 * 64 * 9, half=half)  # fmt: skip
    yield Row("ResNet-18 step, batch 64, 64x64", "resnet_step", {"batch": 64, "side": 64})
    gpt2 = asdict(GPT2_SMALL)
    yield Row("GPT-2-small, next token", "gpt2_decode", {"config": gpt2, "at": 128, "room": 256},
              nbytes=4.0 * GPT2_SMALL.product_weights)  # fmt: skip
    yield Row("GPT-2-small, prompt of 256", "gpt2_prefill", {"config": gpt2, "length": 256})


class Clock:
    """The time that is left."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


def refusals() -> dict[str, str]:
    """Why each kind of GPU cannot be used here, and what to do; nothing for one that can."""
    found = {}
    for name in GPUS:
        if name not in Device:
            found[name] = "not in this version of tilegrad"
            continue
        why, remedy = Device.refusal(name)
        if not why and not _is_gpu(name):
            why, remedy = "no GPU behind it, it runs on the processor", "the GPU's own driver"
        if why:
            found[name] = f"{why.removeprefix(f'{name}: ')}{f'; {remedy}' if remedy else ''}"
    return found


def _is_gpu(name: str) -> bool:
    """PoCL and lavapipe are OpenCL and Vulkan for processors."""
    hardware = str(Device[name].hardware).lower()
    return not any(word in hardware for word in ("pocl", "portable computing language", "llvmpipe",
                                               "lavapipe", "cpu-"))  # fmt: skip


class TimeUpError(Exception):
    """The time ends before a row is measured."""


def measured(run: Callable[[], Any], wait: Callable[[], None], clock: Clock) -> dict[str, float]:
    """Seconds of one call, after what is compiled in the first ones.

    Raises TimeUpError where there is no time for one more call.
    """

    def seconds_of(calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        return (time.perf_counter() - began) / calls

    if clock.left < 0:
        raise TimeUpError
    first = seconds_of(1)
    # The third call of a captured function is the first that replays.
    for _ in range(3):
        if clock.left < 0:
            raise TimeUpError
        once = max(seconds_of(1), 1e-6)
    samples = [once]
    calls = max(1, min(int(_SAMPLE_SECONDS / once), 10_000))
    if calls * once * _SAMPLES < clock.left:
        samples = [seconds_of(calls) for _ in range(_SAMPLES)]
    return {"median": statistics.median(samples), "least": min(samples), "first_call": first}


class Ours:
    """tilegrad, captured."""

    def __init__(self, device: str):
        from models.with_tilegrad import Tilegrad

        self.library, self.device = Tilegrad(1), device

    def make(self, row: Row, arrays: tuple[Any, ...]) -> Callable[[], Any]:
        run: Callable[[], Any] = self.library.make(row.kind, arrays, row.sizes, "tilegrad").run
        return run

    def wait(self) -> None:
        Device[self.device].runtime.synchronize()

    def launches(self, graph: bool) -> Callable[[], Any]:
        """`_LAUNCHES` kernels that next to nothing happens in, one after the other."""
        x = Tensor.zeros(256).contiguous().realize()

        def chain(x: Tensor) -> Tensor:
            for _ in range(_LAUNCHES):
                x = (x + 1).contiguous()
            return x.realize()

        function = jit(chain) if graph else chain
        return lambda: function(x)


class Theirs:
    """PyTorch, eager."""

    def __init__(self, device: str):
        import torch
        from models.with_torch import Torch

        self.torch, self.name = torch, {"NV": "cuda", "CUDA": "cuda", "AMD": "cuda", "HIP": "cuda",
                                        "METAL": "mps"}.get(device, "")  # fmt: skip
        module = {"cuda": torch.cuda, "mps": torch.backends.mps}.get(self.name)
        if module is None or not module.is_available():
            raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU for {device}")
        self.library = Torch(1, self.name)

    def make(self, row: Row, arrays: tuple[Any, ...]) -> Callable[[], Any]:
        run: Callable[[], Any] = self.library.make(row.kind, arrays, row.sizes, "torch").run
        return run

    def wait(self) -> None:
        (self.torch.cuda if self.name == "cuda" else self.torch.mps).synchronize()

    def launches(self, graph: bool) -> Callable[[], Any]:
        torch = self.torch
        x = torch.zeros(256, device=self.name)

        def chain() -> Any:
            y = x
            for _ in range(_LAUNCHES):
                y = y + 1
            return y

        if not graph:
            return chain
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            chain()
        replay: Callable[[], Any] = captured.replay
        return replay


def conformance(device: str, clock: Clock) -> dict[str, Any]:
    """The cases of the suite's sample, as many as there is time for."""
    try:
        from tests.conformance.cases import SAMPLE
    except ImportError as error:
        return {"left_out": f"no checkout with tests: {error}"}
    end = clock.left * (1 - _CONFORMANCE)
    failed: dict[str, str] = {}
    ran = 0
    # Spread over the ops: neighbours in the list are much alike.
    order = [case for step in range(16) for case in SAMPLE[step::16]]
    with Context(DEVICE=device):
        for case in order:
            if clock.left < end:
                break
            ran += 1
            try:
                case.check()
            except Exception as error:  # all of them are reported
                failed[case.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"ran": ran, "of": len(SAMPLE), "failed": failed}


def compared(
    device: str, clock: Clock, left_out: list[str], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Seconds of each row, of tilegrad and of PyTorch; `keep` is given all so far, each time."""
    sides: dict[str, Any] = {"tilegrad": Ours(device)}
    why = ""
    try:
        sides["torch"] = Theirs(device)
    except (ImportError, RuntimeError) as error:
        why = str(error)
    found: dict[str, Any] = {"without_torch": why} if why else {}
    with Context(DEVICE=device):
        for name, graph in (("launch", False), ("launch in a graph", True)):
            try:
                found[name] = {
                    side: _taken(partial(library.launches, graph), library.wait, clock, _LAUNCHES)
                    for side, library in sides.items()
                }  # fmt: skip
            except TimeUpError:
                left_out.append(name)
            for warned in found.get(name, {}).get("tilegrad", {}).get("warned", ()):
                print(f"{name}: {warned}")
            keep(found)
        for row in rows():
            if clock.left < 0:
                left_out.append(row.name)
                continue
            arrays = tuple(inputs(row.kind, row.sizes))
            if row.half:
                arrays = tuple([array.astype(np.float16) for array in arrays])
            try:
                seconds = {
                    side: _taken(partial(library.make, row, arrays), library.wait, clock)
                    for side, library in sides.items()
                }
            except TimeUpError:
                left_out.append(row.name)
                continue
            found[row.name] = {"flops": row.flops, "bytes": row.nbytes, **seconds}
            keep(found)
            print(_line(row, seconds), flush=True)
    return found


def marks(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What is wanted, beside what `compared` has found; nothing of what was not measured."""
    wanted: dict[str, dict[str, float]] = {}

    def of(name: str, side: str) -> float | None:
        value = found.get(name, {}).get(side, {}).get("median")
        return None if value is None else float(value)

    for row in rows():
        ours, theirs = of(row.name, "tilegrad"), of(row.name, "torch")
        if ours is not None and theirs is not None and row.kind in ("matmul", "copy"):
            share = _OF_PRODUCTS if row.kind == "matmul" else _OF_BANDWIDTH
            wanted[f"{row.name}, of the pace of PyTorch"] = {
                "wanted": share, "found": theirs / ours
            }  # fmt: skip
    replay = of("launch in a graph", "tilegrad")
    if replay is not None:
        wanted["seconds of a kernel in a graph"] = {"wanted": _REPLAY, "found": replay}
    return wanted


def _taken(
    make: Callable[[], Callable[[], Any]], wait: Callable[[], None], clock: Clock, per: int = 1
) -> dict[str, Any]:
    """The seconds of what `make` gives, or what went wrong: one row does not end the run. What was
    warned of stands beside them, as that a function could not be captured.
    """
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found: dict[str, Any] = {
                name: value / per for name, value in measured(make(), wait, clock).items()
            }
        except TimeUpError:
            raise
        except Exception as error:  # what fails is part of the report
            found = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    said = [str(each.message).splitlines()[0] for each in heard]
    return found | ({"warned": list(dict.fromkeys(said))} if said else {})


def _line(row: Row, seconds: dict[str, Any]) -> str:
    parts = []
    for side, found in seconds.items():
        if "failed" in found:
            parts.append(f"{side} failed: {found['failed'][:60]}")
            continue
        for warned in found.get("warned", ()):
            print(f"{row.name}: {side}: {warned}")
        took = found["median"]
        rate = f", {row.flops / took / 1e12:.1f} TFLOP/s" if row.flops else ""
        rate = rate or (f", {row.nbytes / took / 1e9:.0f} GB/s" if row.nbytes else "")
        parts.append(f"{side} {took * 1e3:.3f} ms{rate}")
    return f"{row.name:34} {' | '.join(parts)}"


def versions() -> dict[str, str]:
    """Of Python and the packages that matter."""
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in ("tilegrad", "torch", "numpy", "cuda-bindings"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _write(path: Path, report: dict[str, Any]) -> None:
    """The report as a file, whole at any time."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(report, indent=1) + "\n")
    beside.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", help=f"one of {', '.join(GPUS)}; else the first that is here")
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    options = parser.parse_args(arguments)
    # Examples and tests, where this is a checkout.
    sys.path.append(str(Path(__file__).parents[1]))
    clock, left_out = Clock(options.seconds), list[str]()
    refused = refusals()
    here = [name for name in GPUS if name not in refused]
    device = options.device or next(iter(here), None)
    report: dict[str, Any] = {"device": device, "versions": versions(), "not_here": refused}
    if device is None:
        print("no GPU that tilegrad can use is here:")
        print("\n".join(f"  {name:7} {why}" for name, why in refused.items()))
        print(
            "a GPU's driver comes from its vendor; for NVIDIA's, pip install 'tilegrad[nvidia]' too"
        )
        _write(options.out, report)
        return 2
    backend = Device[device]
    report |= {
        "hardware": backend.hardware,
        "target": f"{backend.target.name} {backend.target.isa}",
    }
    print(f"{device}: {report['target'].strip()}, {backend.hardware}")
    report |= {"left_out": left_out, "is_whole": False}
    report["conformance"] = conformance(device, clock)

    def keep(found: dict[str, Any]) -> None:
        _write(options.out, report | {"rows": found, "marks": marks(found)})

    keep({})
    found = compared(device, clock, left_out, keep)
    report["is_whole"] = True
    keep(found)
    for name, each in marks(found).items():
        print(f"{name}: {each['found']:.3g}, wanted {each['wanted']:.3g}")
    print(f"{options.out} holds all of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
