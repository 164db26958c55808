"""The corpus: programs with random sizes, timed beside a search, estimates, or peers.

    python bench/corpus.py                   330 programs: the default against BEAM=8, for hours
    python bench/corpus.py --candidates 12   estimates of 12 shapes of each kernel, and their times
    python bench/corpus.py --near 8          the default against shapes a change away, in minutes
    python bench/corpus.py --peers           beside PyTorch, JAX and onnxruntime
    python bench/corpus.py --seed 7 --count 44 --family convolutions --print
    TILEGRAD_CPU_TARGET=sse python bench/corpus.py     for x86-64-v2; `avx2` for x86-64-v3

Programs come from families.py by `--seed`, in equal shares of the families. Each is timed in a
child process, on one thread: the figure is the least CPU time of many samples, and what is compared
alternates, so that other work on the machine changes ratios little.

With `--peers`, a ratio above one says that tilegrad is faster than the best of PyTorch (in the
better of its two layouts for images), JAX and onnxruntime (values alone), where a gradient is
computed together with the value, as a step of training is; in a search, that the search found a
faster kernel than the default; with `--near`, that a neighbour of the default is faster: of those
that the estimate likes best, or of three others. With `--candidates`, a ratio is the rank
correlation of estimates and times.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from common import keep, record_of
from families import FAMILIES, Case, cases

SEED = 20240607
# Seconds of a sample at least, and samples of each program, interleaved.
_SAMPLE_SECONDS, _SAMPLES, _MOST_SECONDS = 3e-4, 40, 1.5
# Times that differ by less than this share are taken as equal: two runs of one shape do.
_NOISE = 0.03
# A shape whose program is longer takes too long to compile here.
_MOST_INSTRUCTIONS = 2500


def least_seconds(
    runs: Sequence[Callable[[], object]], clock: Callable[[], float] = time.thread_time
) -> list[float]:
    """The least CPU time of this thread for each of `runs`, which alternate; `clock` tells of other
    threads too.
    """
    calls = []
    for run in runs:
        run()
        start = clock()
        run()
        taken = clock() - start
        calls.append(max(1, int(_SAMPLE_SECONDS / max(taken, 1e-7))))
    least = [math.inf] * len(runs)
    end = time.monotonic() + _MOST_SECONDS * len(runs)
    for sample in range(_SAMPLES):
        if sample > 4 and time.monotonic() > end:
            break
        for number, (run, count) in enumerate(zip(runs, calls, strict=True)):
            start = clock()
            for _ in range(count):
                run()
            least[number] = min(least[number], (clock() - start) / count)
    return least


def arrays(case: Case) -> list[Any]:
    """The inputs of a case, as NumPy's arrays."""
    import numpy as np

    numbers = np.random.default_rng(0)
    return [
        numbers.integers(0, each.below, each.shape)
        if each.below
        else numbers.standard_normal(each.shape, dtype=np.float32)
        for each in case.inputs
    ]


def own_functional() -> Any:
    """`torch.nn.functional` of tilegrad, `cat`, `pad` and `copy`, for tilegrad's own tensors."""
    import tilegrad.torch.nn.functional as functional
    from tilegrad import Tensor

    functional.cat = lambda tensors, axis: Tensor.cat(*tensors, dim=axis)
    functional.pad = Tensor.pad
    functional.copy = Tensor.contiguous
    return functional


def of_tilegrad(case: Case) -> Callable[[], Any]:
    """The captured program; a warning that it cannot be captured is an error."""
    from tilegrad import Tensor, jit

    functional = own_functional()
    inputs = [Tensor(each).realize() for each in arrays(case)]
    with Tensor.train(False):
        shape = case.compute(functional, *inputs).shape
    ones = Tensor.ones(*shape).contiguous().realize()

    def run_once(*given: Any) -> Any:
        value = case.compute(functional, *given[:-1])
        if case.wrt:
            wanted = (given[number] for number in case.wrt)
            gradients = Tensor.gradient(value, *wanted, gradient=given[-1])
            return Tensor.realize(value, *gradients)
        return value.realize()

    warnings.simplefilter("error", RuntimeWarning)
    run = jit(run_once)
    for _ in range(3):
        run(*inputs, ones)
    if not repr(run).endswith(" 1 captured>"):
        raise RuntimeError(f"{case.name}: jit does not capture it")
    return lambda: run(*inputs, ones)


def of_pytorch(case: Case) -> list[Callable[[], Any]]:
    """The eager program, for images in both layouts."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    functional.cat = torch.cat
    functional.copy = lambda x: x.clone(memory_format=torch.contiguous_format)
    runs: list[Callable[[], Any]] = []
    is_image = any(len(each.shape) == 4 and not each.below for each in case.inputs)
    layouts = [torch.contiguous_format]
    layouts += [torch.channels_last] * (is_image and case.family != "attention")
    for layout in layouts:
        inputs = [
            each.contiguous(memory_format=layout) if each.ndim == 4 else each
            for each in map(torch.from_numpy, arrays(case))
        ]
        if case.wrt:
            wanted = [inputs[place].requires_grad_() for place in case.wrt]
            ones = torch.ones_like(case.compute(functional, *inputs))

            def run_once(inputs: Any = inputs, wanted: Any = wanted, ones: Any = ones) -> Any:
                value = case.compute(functional, *inputs)
                return value, torch.autograd.grad(value, wanted, ones)

            runs.append(run_once)
        else:
            runs.append(lambda inputs=inputs: case.compute(functional, *inputs))
    return runs


def computed(case: Case) -> Any:
    """The value of a case, as a tensor that is not computed yet."""
    from tilegrad import Tensor

    inputs = [Tensor(each).realize() for each in arrays(case)]
    value = case.compute(own_functional(), *inputs)
    if case.wrt:
        ones = Tensor.ones(*value.shape).contiguous().realize()
        (value,) = Tensor.gradient(value, *(inputs[each] for each in case.wrt), gradient=ones)
    return value


def kernel_of(case: Case) -> Any:
    """The kernel of a case that does most of its work, before any Opt."""
    from search import kernel_of

    return kernel_of(computed(case))


def kernels_of(case: Case) -> list[Any]:
    """All kernels of a case, before any Opt."""
    from tilegrad import Device
    from tilegrad.engine.plans.plans import normalise
    from tilegrad.ir.uop import UOp
    from tilegrad.schedule.schedule import make_schedule

    graph = normalise(UOp.sink(computed(case).uop)).numbered()
    schedule = make_schedule(graph, {"CPU": Device["CPU"].target}, "CPU", plain=False)
    return [item.ast for item in schedule.items if item.ast is not None]


def beside_peers(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """Times of tilegrad, PyTorch, JAX and onnxruntime, whose values are compared before: in what
    PyTorch exports for onnxruntime, `index_add` keeps one of several rows for a position.
    """
    import corpus_peers
    import numpy as np

    if hasattr(os, "sched_setaffinity"):
        # Libraries that have threads of their own share one processor, and their time counts.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    makers = {"jax": corpus_peers.of_jax, "onnxruntime": corpus_peers.of_onnxruntime}
    own, layouts = of_tilegrad(case), of_pytorch(case)
    runs = [("us", own), *(("pytorch_us", layout) for layout in layouts)]
    expected = layouts[0]()
    expected = [expected[0], *expected[1]] if case.wrt else [expected]
    for name, maker in makers.items():
        made = maker(case, arrays(case))
        if made is None:
            continue
        pairs = [(value, other.detach().numpy()) for value, other in zip(made[1], expected)]
        if all(np.allclose(*pair, rtol=1e-2, atol=1e-2, equal_nan=True) for pair in pairs):
            runs.append((f"{name}_us", made[0]))
        elif name == "jax":
            raise ValueError(f"{case.name}: JAX computes something else")
    for _ in range(3):
        own()
    found: dict[str, float] = {}
    taken = least_seconds([run for _, run in runs], time.process_time)
    for (name, _), seconds in zip(runs, taken, strict=True):
        found[name] = min(found.get(name, math.inf), round(seconds * 1e6, 2))
    best = min(value for name, value in found.items() if name != "us")
    return {**found, "ratio": round(best / found["us"], 3)}


def beside_search(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    import search

    found = search.measure(search.Case(case.name, kernel_of(case)), given.beam, given.seconds)
    return {key: found[key] for key in ("ratio", "default_opts", "opts", "error") if key in found}


def launched(ast: Any, opts: Any, memory: dict[int, int]) -> Callable[[], Any] | None:
    """A function that runs a shape of a kernel on this thread; None where it is too long."""
    from tilegrad import Device
    from tilegrad.device.cpu import CpuProgram
    from tilegrad.engine.program.stages import to_program
    from tilegrad.ir.op import Ops
    from tilegrad.runtime.protocol import launch_dims

    backend = Device["CPU"]
    _, program = to_program(ast, backend.target, opts)
    if len(program) > _MOST_INSTRUCTIONS:
        return None
    largest = {node.arg[0]: node.arg[2] for node in program if node.op is Ops.DEFINE_VAR}
    chunks = launch_dims(program, largest).global_size[0]
    loaded = CpuProgram("candidate", backend.compile(backend.render("candidate", program)))
    words = (ctypes.c_int64 * len(memory))(*(memory[slot] for slot in sorted(memory)))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address)
    address = ctypes.addressof(words)

    def run() -> Any:
        for chunk in range(chunks):
            call(address, chunk)
        return words, loaded

    return run


def memory_of(ast: Any) -> dict[int, int]:
    """Memory for the parameters of a kernel, by slot, with numbers in it."""
    import numpy as np

    from tilegrad import Device
    from tilegrad.device.trial import parameters_of

    runtime, numbers, found = Device["CPU"].runtime, np.random.default_rng(0), {}
    for each in parameters_of(ast):
        address = runtime.allocate(max(each.size * each.dtype.itemsize, 64))
        if each.dtype.is_float and each.dtype.itemsize == 4:
            data = numbers.uniform(0.5, 1.5, each.size).astype(np.float32).tobytes()
        else:
            small = numbers.integers(0, each.below or 2, each.size)
            data = small.astype(f"i{each.dtype.itemsize}").tobytes()
        runtime.copy_in(address, memoryview(data))
        found[each.slot] = address
    return found


def beside_estimate(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """Estimate and time of some shapes: the default, the plain one, and lists a change away."""
    from tilegrad import Device
    from tilegrad.optimize.generators.heuristic import heuristic
    from tilegrad.optimize.opts.opt import OptOps
    from tilegrad.optimize.opts.opts import start
    from tilegrad.optimize.search.actions import edits
    from tilegrad.optimize.search.search import Shapes

    # One thread takes all chunks here, so that no shape has any.
    ast, target = kernel_of(case), replace(Device["CPU"].target, threads=0)
    kernel = start(ast, target)
    shapes, choice = Shapes(kernel, target), random.Random(case.name)
    default = tuple(heuristic(kernel, target))
    lists = [default]
    for origin, count in ((default, given.candidates * 2 // 3), ((), given.candidates // 3)):
        around = list(dict.fromkeys(edits(origin, shapes.shaped, target)))
        choice.shuffle(around)
        legal = (
            opts
            for opts in around
            if all(opt.op is not OptOps.THREAD for opt in opts) and shapes.shaped(opts) is not None
        )
        lists += [origin, *itertools.islice(legal, count)]
    shown = timed_shapes(ast, lists, shapes)
    found = correlation(*zip(*(each[:2] for each in shown), strict=True))
    return {"ratio": round(found, 3), "shapes": shown}


def timed_shapes(ast: Any, lists: Sequence[Any], shapes: Any) -> list[list[Any]]:
    """Estimate in cycles, time in nanoseconds, and text of each list of Opts that is legal."""
    memory, rows, runs = memory_of(ast), [], []
    for opts in dict.fromkeys(lists):
        option = shapes.option(opts)
        run = launched(ast, opts, memory) if option is not None else None
        if option is not None and run is not None:
            rows.append((option.cycles, repr(list(opts))))
            runs.append(run)
    taken = least_seconds(runs)
    return [[round(cycles), round(t * 1e9), text] for (cycles, text), t in zip(rows, taken)]


def beside_neighbours(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """The default beside lists a change away: the best by their estimates, and three others."""
    from tilegrad import Device
    from tilegrad.optimize.generators.heuristic import heuristic
    from tilegrad.optimize.opts import start
    from tilegrad.optimize.opts.opt import OptOps
    from tilegrad.optimize.search import Shapes
    from tilegrad.optimize.search.actions import edits

    ast, target = kernel_of(case), replace(Device["CPU"].target, threads=0)
    kernel = start(ast, target)
    shapes, default = Shapes(kernel, target), tuple(heuristic(kernel, target))
    around = [
        opts
        for opts in dict.fromkeys(edits(default, shapes.shaped, target))
        if all(opt.op is not OptOps.THREAD for opt in opts)
    ]
    # Of shapes that are alike, one.
    legal = {option.key: option for opts in around if (option := shapes.option(opts)) is not None}
    ordered = sorted(legal.values(), key=lambda option: option.cycles)
    near, others = ordered[: given.near], ordered[given.near :]
    random.Random(case.name).shuffle(others)
    shown = timed_shapes(ast, [default, *(each.opts for each in [*near, *others[:3]])], shapes)
    best = min(shown, key=lambda each: each[1])
    ratio = shown[0][1] / best[1]
    return {"ratio": round(ratio if ratio > 1 + _NOISE else 1.0, 3), "shapes": shown}


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation, of values that differ by less than _NOISE as equal ones; 1 where
    one of the two does not vary.
    """
    ranks = [_ranks(_levels(each)) for each in (first, second)]
    if len(first) < 2 or any(max(each) == min(each) for each in ranks):
        return 1.0
    return statistics.correlation(*ranks)


def _levels(values: Sequence[float]) -> list[int]:
    """Values in order, each with the number of gaps wider than _NOISE below it."""
    order, level = sorted(set(values)), 0
    found = dict.fromkeys(order[:1], 0)
    for below, value in itertools.pairwise(order):
        level += value > below * (1 + _NOISE)
        found[value] = level
    return [found[value] for value in values]


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(order)))}
    counts = {value: order.count(value) for value in first}
    return [first[value] + (counts[value] - 1) / 2 for value in values]


def in_child(work: Callable[[], dict[str, Any]], seconds: int) -> dict[str, Any]:
    """What `work` gives, in a process that may fail or be ended."""
    import signal

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reader)
            signal.alarm(seconds)
            with os.fdopen(writer, "w") as out:
                json.dump(work(), out)
            status = 0
        except BaseException:
            traceback.print_exc(limit=-3)
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as given:
        text = given.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if not status else {"error": f"ended by {status}"}


def table(rows: Sequence[dict[str, Any]], is_estimate: bool) -> list[str]:
    """A line for each family."""
    found = []
    for family in [*FAMILIES, ""]:
        own = [row for row in rows if row["family"] == (family or row["family"]) and "ratio" in row]
        if not own:
            continue
        ratios = sorted(row["ratio"] for row in own)
        if is_estimate:
            pairs = [each[:2] for row in own for each in row["shapes"]]
            text = f"mean of kernels {statistics.fmean(ratios):6.3f}  least {ratios[0]:6.3f}"
            text += f"  over all shapes {correlation(*zip(*pairs)):6.3f}"
        else:
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
            text = f"geometric mean {mean:6.3f}  least {ratios[0]:6.3f}  most {ratios[-1]:6.3f}"
            text += f"  below 0.9: {sum(ratio < 0.9 for ratio in ratios)}"
        found.append(f"{family or 'all':24} {len(own):4d}  {text}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=330, help="programs")
    parser.add_argument("--seed", type=int, default=SEED, help="of other programs")
    parser.add_argument("--family", action="append", default=[], choices=list(FAMILIES))
    parser.add_argument("--peers", action="store_true", help="beside PyTorch, JAX and onnxruntime")
    parser.add_argument("--near", type=int, default=0, help="neighbours of the default to time")
    parser.add_argument("--candidates", type=int, default=0, help="shapes of each kernel to time")
    parser.add_argument("--beam", type=int, default=8, help="the width of the search")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each search")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    given = parser.parse_args()
    mode = "peers" if given.peers else "near" if given.near else "search"
    mode = "estimate" if given.candidates else mode
    measure = {
        "peers": beside_peers,
        "estimate": beside_estimate,
        "near": beside_neighbours,
        "search": beside_search,
    }[mode]
    os.environ["TILEGRAD_THREADS"] = "1"
    if not hasattr(os, "fork"):
        raise SystemExit("corpus.py: needs a system that forks")
    if given.peers:
        # Imported once, for all children; none of them starts a thread before it is used.
        for name in ("torch", "jax", "onnxruntime", "onnx"):
            importlib.import_module(name)
    rows = []
    for case in cases(given.count, given.seed, given.family):
        row = in_child(lambda case=case: measure(case, given), 120)
        rows.append({"family": case.family, "name": case.name, **row})
        figures = f"{row.get('ratio', math.nan):6.2f} {row.get('us', math.nan):9.1f}"
        print(f"{figures}  {case.family:22} {case.name}", flush=True)
    is_estimate = mode == "estimate"
    print("", *table(rows, is_estimate), sep="\n")
    if not given.print:
        options = {"seed": given.seed, "count": given.count, "mode": mode, "table": rows}
        limit = os.environ.get("TILEGRAD_CPU_TARGET", "")
        name = "-".join(filter(None, ["corpus", mode, limit]))
        keep(name, record_of({**options, "summary": table(rows, is_estimate)}))


if __name__ == "__main__":
    main()
