"""Trying candidates: what is compared, what is guarded, and that legal moves keep the values."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    HALF,
    INT,
    buffer,
    conv2d,
    expand,
    kernel,
    matmul,
    permute,
    reduce,
    reshape,
    softmax,
)
from tilegrad.base.dtype import DType, dtypes
from tilegrad.device.backend import Backend
from tilegrad.device.host import HostMemory
from tilegrad.device.registry import Device
from tilegrad.device.trial import Loaded, Parameter, Trial, parameters_of
from tilegrad.engine.program.estimate import estimate
from tilegrad.engine.program.stages import to_program
from tilegrad.engine.search import candidate
from tilegrad.engine.search.candidate import _reduced
from tilegrad.ir import UOp
from tilegrad.ir.op import Ops
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt
from tilegrad.optimize.opts.opts import start
from tilegrad.optimize.search.actions import actions
from tilegrad.runtime.protocol import Dims, launch_dims, variable_names
from tilegrad.target import Target

FLOAT = dtypes.float
CPU = Device["CPU"]
Kernel = Callable[..., None]


class Python(HostMemory):
    """A device whose programs are Python functions of arrays of bytes."""

    def load(self, name: str, binary: bytes) -> Any:
        raise NotImplementedError

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        program(*handles, *variables)
        return 1e-6


def backend(**facts: Any) -> Backend:
    target = Target("python", cache_bytes=(1 << 10, 4 << 10, 1 << 20), **facts)
    return Backend("PYTHON", target, lambda name, program: "", lambda text: b"", Python())


def loaded(function: Kernel, *variables: str) -> Loaded:
    return Loaded(function, variables, (1, 1, 1), (1, 1, 1))


def trial(*parameters: Parameter, depth: int = 1) -> Trial:
    return Trial(backend(), parameters, depth, seed=3)


OUT, IN = Parameter(0, FLOAT, 64, False, True), Parameter(1, FLOAT, 64, True, False)


def floats(memory: Any) -> Any:
    return np.frombuffer(memory, np.float32)


def doubles(out: Any, given: Any) -> None:
    floats(out)[:] = floats(given) * 2


def found(function: Kernel, depth: int = 1) -> str | None:
    """What is wrong with a function that should double its input."""
    made = trial(OUT, IN, depth=depth)
    made.expect(loaded(doubles), {})
    return made.difference(loaded(function), {})


def test_the_same_values_are_no_difference() -> None:
    assert found(doubles) is None


@pytest.mark.row("R4.11")
def test_one_wrong_element_is_a_difference() -> None:
    def wrong(out: Any, given: Any) -> None:
        doubles(out, given)
        floats(out)[41] += 1e-4

    assert "data0[41] is " in (found(wrong) or "")


def test_sums_in_another_order_may_differ_a_little() -> None:
    def near(out: Any, given: Any) -> None:
        doubles(out, given)
        floats(out)[7] += 1e-5

    assert found(near) is not None
    assert found(near, depth=100) is None


def test_an_element_that_was_not_written_is_a_difference() -> None:
    def short(out: Any, given: Any) -> None:
        floats(out)[:63] = floats(given)[:63] * 2

    assert "data0[63] is " in (found(short) or "")


def test_nan_and_inf_must_be_where_they_were() -> None:
    def root(out: Any, given: Any) -> None:
        with np.errstate(all="ignore"):
            floats(out)[:] = np.sqrt(floats(given)) / (floats(given) > 1)

    def without(out: Any, given: Any) -> None:
        root(out, given)
        floats(out)[:] = np.nan_to_num(floats(out), nan=1.0)

    made = trial(OUT, IN)
    made.expect(loaded(root), {})
    assert made.difference(loaded(root), {}) is None
    assert "nan" in (made.difference(loaded(without), {}) or "")


def test_memory_that_the_plain_kernel_leaves_alone_is_left_alone() -> None:
    def half(out: Any, given: Any) -> None:
        floats(out)[:32] = floats(given)[:32]

    def more(out: Any, given: Any) -> None:
        floats(out)[:33] = floats(given)[:33]

    made = trial(OUT, IN)
    made.expect(loaded(half), {})
    assert made.difference(loaded(half), {}) is None
    assert made.difference(loaded(more), {}) == "data0 is written where it must not be"
    assert made.difference(loaded(more), {}, may_write_more=True) is None


def test_a_write_beside_the_memory_or_to_an_input_is_found() -> None:
    made = trial(OUT, IN)
    made.expect(loaded(doubles), {})
    block = made._blocks[0].host_view()
    assert block is not None

    def beside(out: Any, given: Any) -> None:
        doubles(out, given)
        block[4096 + 64 * 4] = 1

    def back(out: Any, given: Any) -> None:
        doubles(out, given)
        np.frombuffer(made._sets[0][1].host_view(), np.float32)[3] = 9  # type: ignore[arg-type]

    assert made.difference(loaded(beside), {}) == "memory beside data0 was written"
    block[4096 + 64 * 4] = block[0]
    assert made.difference(loaded(back), {}) == "data1 was written, which is only read"


def test_memory_that_is_read_and_written_begins_anew_each_time() -> None:
    def step(given: Any) -> None:
        floats(given)[:] += 1

    made = trial(Parameter(0, FLOAT, 64, True, True))
    made.expect(loaded(step), {})
    for _ in range(3):
        assert made.seconds(loaded(step), {}) == 1e-6
        assert made.difference(loaded(step), {}) is None


def test_each_set_of_values_of_the_variables_has_its_results() -> None:
    def scale(out: Any, given: Any, n: int) -> None:
        floats(out)[:n] = floats(given)[:n]

    def fixed(out: Any, given: Any, n: int) -> None:
        scale(out, given, 64)

    made = trial(OUT, IN)
    for n in (64, 30):
        made.expect(loaded(scale, "n"), {"n": n})
    assert made.difference(loaded(fixed, "n"), {"n": 64}) is None
    assert made.difference(loaded(fixed, "n"), {"n": 30}) is not None


def test_launches_take_turns_on_copies_beyond_the_private_caches() -> None:
    """Two parameters of 256 bytes against caches of 4 KiB: 32 copies."""
    seen: list[int] = []

    def see(out: Any, given: Any) -> None:
        seen.append(floats(out).ctypes.data)

    made = trial(OUT, IN)
    for _ in range(33):
        made.seconds(loaded(see), {})
    assert len(set(seen[:32])) == 32 and seen[32] == seen[0]


@pytest.mark.parametrize(
    "dtype", [FLOAT, HALF, dtypes.bfloat16, dtypes.double, INT, dtypes.uchar, dtypes.bool]
)
def test_inputs_of_every_dtype_are_compared(dtype: DType) -> None:
    def copy(out: Any, given: Any) -> None:
        out[:] = given

    def off(out: Any, given: Any) -> None:
        copy(out, given)
        out[-1] = out[-1] ^ 0x41

    made = trial(Parameter(0, dtype, 32, False, True), Parameter(1, dtype, 32, True, False))
    made.expect(loaded(copy), {})
    values = bytes(made._sets[0][1].copy_out())
    assert len(set(values)) > 1
    assert made.difference(loaded(copy), {}) is None
    assert "data0[31]" in (made.difference(loaded(off), {}) or "")


# graphs


def graph(value: UOp) -> UOp:
    return kernel(value, target=CPU.target)


def test_parameters_know_what_is_read_and_written() -> None:
    parameters = parameters_of(graph(buffer(0, 4, 6) + buffer(1, 4, 6, dtype=INT).cast(FLOAT)))
    assert parameters == [
        Parameter(0, FLOAT, 24, False, True),
        Parameter(1, FLOAT, 24, True, False),
        Parameter(2, INT, 24, True, False),
    ]


def test_integers_that_are_positions_stay_inside() -> None:
    """Rows picked by their number: bounded by the gate of the table of 50."""
    from tilegrad import Tensor

    seen: list[Mapping[str, Any]] = []
    table, ids = Tensor.ones(50, 8).contiguous().realize(), Tensor([1, 2, 3]).realize()
    with pytest.MonkeyPatch.context() as patch:
        from tilegrad.engine.build import kernels

        make = kernels.make_kernel
        patch.setattr(
            kernels,
            "make_kernel",
            lambda ast, *rest, **more: seen.append(ast) or make(ast, *rest, **more),
        )
        from tilegrad.base.config import Context

        with Context(DISABLE_COMPILER_CACHE=1, TC=0):
            table[ids].realize()
    below = {each.dtype: each.below for each in parameters_of(seen[-1])}  # type: ignore[arg-type]
    assert below == {FLOAT: 0, INT: 50}


def test_the_plain_kernel_of_a_large_one_is_made_of_its_borders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = graph(matmul(buffer(0, 8, 8), buffer(1, 8, 8)))
    assert _reduced(small) == (small, True)
    large, is_whole = _reduced(graph(matmul(buffer(0, 1024, 1024), buffer(1, 1024, 1024))))
    assert large is not None and not is_whole and estimate(large)[0] < 1 << 28
    extents = [node.src[0].arg for node in large.toposort() if node.op is Ops.RANGE]
    assert min(extents) >= 16 and max(extents) == 1024
    monkeypatch.setattr(candidate, "_PLAIN_OPERATIONS", 100)
    assert _reduced(small) == (None, False)


# moves keep the values


def on_cpu(ast: UOp, opts: Sequence[Opt]) -> Loaded:
    _, program = to_program(ast, CPU.target, opts)
    dims = launch_dims(program)
    binary = CPU.compile(CPU.render("candidate", program))
    return Loaded(
        CPU.runtime.load("candidate", binary),
        variable_names(program),
        dims.global_size,
        dims.local_size,
    )


def by_rows() -> UOp:
    row = expand(reshape(buffer(1, 20, dtype=HALF), 1, 20), 8, 20)
    return buffer(0, 8, 20, dtype=HALF) * row


VALUES: dict[str, Callable[[], UOp]] = {
    "matmul": lambda: matmul(buffer(0, 10, 12), buffer(1, 12, 32)) + 1.0,
    "softmax": lambda: softmax(buffer(0, 6, 32)),
    "conv": lambda: conv2d(buffer(0, 2, 3, 6, 6), buffer(1, 4, 3, 3, 3), padding=1),
    "transposed": lambda: permute(buffer(0, 9, 16), 1, 0) * buffer(1, 16, 9),
    "half": lambda: reduce(Ops.MAX, by_rows(), 1),
}


def check_actions(name: str, share: int) -> None:
    ast = graph(VALUES[name]())
    made = Trial(CPU, parameters_of(ast), 32, seed=11)
    made.expect(on_cpu(ast, ()), {})
    bare = start(ast, CPU.target)
    good = tuple(heuristic(bare, CPU.target))
    assert made.difference(on_cpu(ast, good), {}) is None
    found = actions(bare, CPU.target)
    assert len(found) >= 5
    for opt in random.Random(name).sample(found, -(-len(found) // share)):
        assert made.difference(on_cpu(ast, [opt]), {}) is None, opt


@pytest.mark.row("R4.10")
@pytest.mark.parametrize("name", VALUES)
def test_each_action_keeps_the_values(name: str) -> None:
    """Some of them here; all of them at night."""
    check_actions(name, 6)


@pytest.mark.nightly
@pytest.mark.row("R4.10")
@pytest.mark.parametrize("name", VALUES)
def test_all_actions_keep_the_values(name: str) -> None:
    check_actions(name, 1)
