"""Tables that forget, what was used longest ago or what came first; no table of the package grows
for ever.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

import tilegrad
from tilegrad.base.recent import Bounded, Recent, SecondTime

ROOT = Path(tilegrad.__file__).parent


def test_what_was_used_longest_ago_goes() -> None:
    table: Recent[str, int] = Recent(lambda: 3)
    for number, name in enumerate("abc"):
        table.put(name, number)
    assert table.get("a") == 0
    table.put("d", 3)
    assert table.get("b") is None
    assert table.values() == [2, 0, 3]
    assert table.setdefault("a", 9) == 0
    assert table.setdefault("e", 9) == 9
    assert len(table) == 3 and "c" not in table


def test_a_lower_limit_holds_from_the_next_entry_on() -> None:
    most = 10
    table: Recent[int, int] = Recent(lambda: most)
    for number in range(10):
        table.put(number, number)
    most = 2
    table.put(10, 10)
    assert table.values() == [9, 10]


def test_threads_share_a_table() -> None:
    table: Recent[int, int] = Recent(lambda: 8)
    wrong: list[int] = []

    def work() -> None:
        for number in range(3000):
            if table.setdefault(number % 32, number % 32) != number % 32:
                wrong.append(number)
            table.get((number * 7) % 32)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(table) <= 8


def test_a_full_table_forgets_what_came_first() -> None:
    table: Bounded[int, int] = Bounded(8)
    for number in range(8):
        assert table.put(number, number * number) == number * number
    table.put(8, 64)
    assert list(table.items()) == [(number, number * number) for number in range(2, 9)]


def test_a_full_table_is_shared_by_threads() -> None:
    table: Bounded[int, int] = Bounded(8)
    wrong: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(3000):
                table.put(first + number % 32, number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(7 * each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each of the threads may have put one since it looked.
    assert not wrong and len(table) <= 8 + 4


def test_what_comes_once_pushes_nothing_out() -> None:
    came = SecondTime(4)
    assert [came.is_now("a"), came.is_now("a"), came.is_now("a")] == [False, True, False]
    for number in range(4):
        assert not came.is_now(number)
    assert not came.is_now("a") and len(came) <= 4


# Every table of a module that may be written to, and what bounds it.
BOUNDED = {
    "engine/build/workers.py _behind": "one process",
    "engine/build/workers.py _helpers": "processes, one less than there are cores",
    "engine/build/workers.py _parents": "helpers of the process that was forked",
    "base/dtype.py _pointers": "weak: the pointers that are alive",
    "base/dtype.py spellings": "packages of other names: tilegrad.torch",
    "base/cache.py _looked": "cache folders that this process writes to",
    "base/forks.py _locks": "weak: the locks that are alive, looked through at each 64th",
    "base/forks.py _taken": "the locks, while a process forks",
    "base/origin.py _inside": "files of the package",
    "base/origin.py users": "_MOST_FILES",
    "capture/objects.py _files": "_MOST_FILES",
    "capture/packs.py _copies": "weak: the buffers that are alive",
    "capture/jit.py _all": "weak: the captured functions that are alive",
    "compat/numbers.py _older": "empty outside a block",
    "compat/environment_switches.py _declared": "switches that a script declares",
    "device/cpu_native.py _pools": "weak: the pools that are alive",
    "device/foreign_threads.py _devices": "weak: the devices of others that are alive",
    "engine/realize/causes.py _recent": "_MOST",
    "torch/hub.py _chosen": "one folder",
    "torch/library.py _known": "operations that a program defines",
    "engine/realize/bindings.py _bindings": "KEEP_KERNELS",
    "engine/realize/noted_writes.py _later": "weak: the nodes that are alive",
    "engine/realize/noted_writes.py _last": "weak: the buffers that are alive",
    "engine/run/leaf_memory.py _leaves": "weak: the leaves that are alive",
    "engine/run/leaf_memory.py _memory": "as _leaves",
    "engine/run/leaf_memory.py _tables": "tables of modules, whose entries are as _leaves",
    "engine/run/leaf_memory.py _stale": "as _leaves",
    "engine/search/kernel_search.py _files": "values of BEAM_FILE",
    "engine/realize/changing_numbers.py _seen": "_MOST_OFFSETS",
    "engine/run/leaf_memory.py _writers": "threads that have written to tensors",
    "grad/regions.py _marks": "weak: the marks that are alive",
    "grad/regions.py _regions": "weak: the nodes that are alive",
    "grad/node_hooks.py _watchers": "weak: the nodes that are alive",
    "ir/bounds.py _limits_of": "dtypes",
    "ir/uop.py _table": "weak: the nodes that are alive",
    "nn/distributions/divergences.py _REGISTERED": "formulas that a program registers",
    "nn/data/loader.py _shared": "two items",
    "runtime/buffer.py _returns": "those who look at lent memory",
    "tensor/calls/number_tables.py _alive": "weak: the nodes that are alive",
    "tensor/calls/number_tables.py number_tables": "weak: the nodes that are alive",
    "tensor/calls/uploads.py _dtypes": "dtypes",
    "tensor/storage/failed_runs.py _failed": "weak: the calls that are alive",
    "tensor/storage/past.py _names": "weak: the nodes that are alive",
    "tensor/storage/host_readable.py _looked": "weak: the memory that is alive",
    "tensor/storage/host_readable.py _uploaded": "weak: the memory that is alive",
    "tensor/handle/device.py _names": "_MOST",
    "tensor/exchange/dlpack_capsules.py _given": "what others hold of ours",
    "tensor/spectral/fourier.py _chirps": "_MOST_KEPT",
    "tensor/storage/graphs.py replayed": "weak: the nodes that are alive",
    "tensor/handle/living.py older_leaves": "weak: the nodes that are alive",
    "tensor/handle/threads.py _older_threads": "weak: the threads that run",
    "tensor/handle/leaf_hooks.py _hooks": "the tensors that are alive and have hooks",
    "tensor/handle/leaf_hooks.py _watched": "the tensors that are alive and have hooks",
    "tensor/handle/living.py ends": "weak: the nodes that are alive",
    "tensor/handle/living.py _old": "the tensors that are alive",
    "tensor/handle/living.py _young": "the tensors that are alive",
    "tensor/handle/living.py generations": "weak: the nodes that are alive",
    "tensor/storage/memory.py _bases": "weak: the nodes that are alive",
    "tensor/storage/memory.py _views": "weak: the nodes that are alive",
    "tensor/storage/memory.py _superseded": "weak: the nodes that are alive",
    "tensor/storage/past_of_graphs.py _of_values": "weak: the nodes that are alive",
    "tensor/storage/running.py _waiting": "weak: the nodes that are alive",
    "engine/run/in_use.py lines_of_others": "functions of the package",
    "capture/modes.py others": "front ends with modes of their own: tilegrad.torch",
    "torch/device_names.py _known": "names of devices",
    "torch/differentiable.py _accumulating": "weak: the leaves that are alive",
    "torch/steps.py _kinds": "names of steps: PyTorch's, and classes of the program",
    "torch/named_pairs.py _kinds": "methods that give pairs",
    "torch/nn/module.py counterparts": "layers of the package",
    "torch/whole_objects.py _safe": "classes that a program names",
    "tensor/calls/recent_calls.py followers": "methods of `torch.Tensor` that are quick",
    "tensor/handle/tracing.py front_ends": "front ends with modes of their own: tilegrad.torch",
}
# Functions whose results are kept without a limit: by the arguments that there are.
CACHED = {
    "base/float8.py values": "two dtypes",
    "array_api/operators.py _function": "operators",
    "capture/frames.py can_watch": "no argument",
    "capture/pure.py _array_functions": "one module",
    "compile/clang.py _found": "values of CC and PATH",
    "optimize/opts/matrix.py _check_layouts": "matrix units of targets",
    "compile/hiprtc.py open_compiler": "no argument",
    "tensor/storage/host_runs.py _arrays": "no argument",
    "torch/airy.py _at_integers": "no argument",
    "compile/nvrtc.py _includes": "no argument",
    "compile/nvrtc.py _library": "no argument",
    "compile/ptxas.py find_ptxas": "no argument",
    "compile/ptxas.py ptxas_release": "paths of ptxas",
    "device/outside.py _installed": "values of sys.path",
    "lower/range_reduction.py _digits_of_pi": "numbers of bits in the package",
    "tensor/composed/incomplete.py _temme": "no argument",
    "compile/llvm.py _initialize": "no argument",
    "compile/llvm.py _machine": "targets and levels of optimization",
    "compile/llvm.py host_target": "no argument",
    "device/cpu.py _cache_sizes": "no argument",
    "device/cpu.py processor_flags": "no argument",
    "device/cpu.py _identity": "no argument",
    "device/cpu.py _vendor": "no argument",
    "device/cpu.py _libc": "no argument",
    "engine/build/pipeline.py sources_digest": "no argument",
    "io/grids.py grid": "names of formats",
    "lower/range_reduction.py _digits": "widths of floats",
    "render/llvm_lines.py type_of": "dtypes, and the numbers of lanes of vectors",
    "runtime/dtype_arithmetic.py bfloat16_values": "no argument",
    "runtime/dtype_arithmetic.py half_values": "no argument",
    "runtime/elf.py _is_served": "no argument",
    "runtime/elf.py _process": "no argument",
    "runtime/elf.py _session": "no argument",
    "runtime/elf.py libc_symbols": "sets of names in the package",
    "tensor/composed/solutions.py best": "lives as long as the call around it",
    "tensor/storage/host_memory.py _knows_half": "no argument",
    "torch/bessel.py _weights": "orders of Bessel functions: 0 and 1",
}
_KINDS = r"(?:\w+\.)?(?:OrderedDict|deque|defaultdict|Weak\w+)\(.*\)"
_EMPTY = rf"(?:\{{\}}|\[\]|set\(\)|dict\(\)|list\(\)|{_KINDS})"
_TABLE = re.compile(rf"^(\w+)(?:: [^=\n]+)? = {_EMPTY}(?:  #.*)?$", re.MULTILINE)
_KEPT = re.compile(r"^ *@(?:functools\.)?cache\b.*\n *def (\w+)", re.MULTILINE)
# Declared as what nobody writes to.
_CONSTANT = {
    "capture/guards.py _NOTHING",
    "capture/access_paths.py _NOTHING",
    "tensor/handle/size_arguments.py NO_VARIABLES",
}


def found(pattern: re.Pattern[str]) -> set[str]:
    return {
        f"{path.relative_to(ROOT).as_posix()} {name}"
        for path in ROOT.rglob("*.py")
        for name in pattern.findall(path.read_text())
    }


def test_every_table_of_a_module_is_bounded() -> None:
    """A new one stands in the list with what bounds it, or is a `Bounded` or a `Recent`."""
    assert found(_TABLE) - _CONSTANT == BOUNDED.keys()


def test_every_function_whose_results_are_kept_has_few_arguments() -> None:
    """Others take `lru_cache(maxsize=...)`."""
    assert found(_KEPT) == CACHED.keys()
    unlimited = re.compile(r"lru_cache\(maxsize=(None)|lru_cache\(\)")
    assert not found(unlimited)
