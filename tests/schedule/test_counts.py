"""How many kernels a value takes: the map's numbers in the plain plan, fewer by default.

A number beside a case is what must be stored and no more: in the plain plan every reduced value
that is expanded or reduced again, by default only what the loops of one kernel cannot share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.plans import kernels, loops, plan, sizes
from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, dtypes
from tilegrad.engine.build.kernel import Kernel
from tilegrad.engine.run.run import recording
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Axis, Ops
from tilegrad.nn import BatchNorm2d, Linear
from tilegrad.nn.optim import SGD, Adam, Optimizer
from tilegrad.render.cstyle import ClangRenderer

Make = Callable[[], Tensor]


def floats(*shape: int) -> Tensor:
    return Tensor.empty(*shape)


def attention() -> Tensor:
    query, key, value = [floats(2, 4, 16, 8) for _ in range(3)]
    return query.scaled_dot_product_attention(key, value)


def convolution() -> Tensor:
    return floats(2, 3, 8, 8).conv2d(floats(4, 3, 3, 3), floats(4), padding=1).relu()


def normalised() -> Tensor:
    x = floats(8, 64)
    return x * ((x * x).mean(1, keepdim=True) + 1e-5).rsqrt()


def indices(count: int) -> Tensor:
    return Tensor.empty(count, dtype=dtypes.int)


CASES: dict[str, tuple[int, int, Make]] = {
    # a reduced value that is expanded: stored in the plain plan, one row at a time by default
    "softmax": (3, 1, lambda: floats(8, 64).softmax(1)),
    "log_softmax": (3, 1, lambda: floats(8, 64).log_softmax(1)),
    "layernorm": (4, 1, lambda: floats(8, 64).layernorm()),
    "rms norm": (2, 1, normalised),
    "var": (2, 1, lambda: floats(8, 64).var(1)),
    "var of all": (2, 1, lambda: floats(8, 64).var()),
    "std": (2, 1, lambda: floats(8, 64).std(1)),
    "logsumexp": (2, 1, lambda: floats(8, 64).logsumexp(1)),
    "attention": (4, 3, attention),
    # what rows are added to is filled where it is wanted
    "rows added to zeros": (
        2,
        2,
        lambda: Tensor.zeros(8, 4).index_add(0, indices(5), floats(5, 4)),
    ),
    # and memory, also as it is seen by a movement, is copied once
    "rows added to memory": (
        2,
        2,
        lambda: floats(8, 4).index_add(0, indices(5), floats(5, 4)),
    ),
    "rows added to transposed memory": (
        2,
        2,
        lambda: floats(4, 8).T.index_add(0, indices(5), floats(5, 4)),
    ),
    "softmax, contiguous": (3, 1, lambda: floats(8, 64).softmax(1).contiguous()),
    # an arange is its index by default, wherever it is needed
    "argmax": (3, 1, lambda: floats(8, 64).argmax(1)),
    "lower triangle": (2, 1, lambda: floats(8, 8).tril()),
    "one-hot rows of a table": (2, 1, lambda: indices(8).one_hot(9).float() @ floats(9, 4)),
    "cross entropy": (5, 2, lambda: floats(8, 64).sparse_categorical_crossentropy(indices(8))),
    # work before and after one reduction
    "sum": (1, 1, lambda: floats(8, 64).sum(1)),
    "mean of squares": (1, 1, lambda: floats(8, 64).square().mean(1).sqrt()),
    "max": (1, 1, lambda: floats(8, 64).max(1)),
    "product, bias, relu": (1, 1, lambda: (floats(8, 64) @ floats(64, 32) + floats(32)).relu()),
    "convolution": (1, 1, convolution),
    "max pooling": (1, 1, lambda: floats(2, 3, 8, 8).max_pool2d()),
    "average pooling": (1, 1, lambda: floats(2, 3, 8, 8).avg_pool2d()),
    "two products": (2, 2, lambda: (floats(8, 64) @ floats(64, 32)).relu() @ floats(32, 5)),
    "one sum after another": (2, 2, lambda: floats(8, 64).sum(0).exp().sum()),
    # windows that overlap: one fold each
    "cumsum": (1, 1, lambda: floats(8, 64).cumsum(1)),
    "cumprod": (1, 1, lambda: floats(8, 64).cumprod(1)),
    # no reduction at all
    "cat": (1, 1, lambda: floats(8, 64).cat(floats(8, 64) + 1, dim=0)),
    "stack": (1, 1, lambda: floats(8, 64).stack(floats(8, 64) * 2, dim=0)),
    "pad": (1, 1, lambda: floats(8, 64).pad(((1, 1), (1, 1))) + 1),
    "gelu": (1, 1, lambda: floats(8, 64).gelu()),
    "random words": (1, 1, lambda: Tensor.rand(10)),
    "normal numbers": (1, 1, lambda: Tensor.randn(10)),
    "rows of a table": (1, 1, lambda: floats(100, 4)[indices(8)]),
    "counting": (1, 1, lambda: Tensor.arange(100)),
}


@pytest.mark.row("F2.2", "F2.3")
@pytest.mark.parametrize("name", CASES)
def test_kernels_of(name: str) -> None:
    plain, default, make = CASES[name]
    value = make()
    assert len(kernels(plan(value, plain=True))) == plain
    assert len(kernels(plan(value))) == default


def test_one_hot_needs_no_table_of_its_columns() -> None:
    (item,) = kernels(plan(indices(8).one_hot(10)))
    assert all(axis is Axis.LOOP for _, axis in loops(item))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_a_sum_that_picks_has_no_loop(dtype: str) -> None:
    """Whatever integers name what is picked: labels are often wider than a counter."""
    labels = Tensor.empty(8, 1, dtype=dtype)
    picked = Tensor.arange(64).eq(labels).where(floats(8, 64), 0.0).sum(1)
    (item,) = kernels(plan(picked))
    assert [size for size, _ in loops(item)] == [8]


@pytest.mark.row("F2.11")
def test_outputs_that_take_one_pass_over_an_input_are_one_kernel() -> None:
    """Where the loops agree and what is read is the same; a product has its registers for itself,
    and nothing is gained where nothing is shared.
    """
    x, y, a = floats(8, 64), floats(8, 64), floats(64, 64)
    for together in ((x.sum(1), (x * y).sum(1)), (x.max(0), (x * x).sum(0))):
        (item,) = kernels(plan(*together))
        assert len(item.ast.src) == 2
        assert len(kernels(plan(*together, plain=True))) == 2
    for apart in ((x.sum(0), x.sum(1)), (x @ a, (x * 2) @ a), (x + 1, x * 2), (x.sum(1), y.max(1))):
        assert len(kernels(plan(*apart))) == 2


@pytest.mark.row("F2.4")
@pytest.mark.parametrize("axis", [0, 1, None])
def test_work_before_and_after_a_reduction_is_in_its_kernel(axis: int | None) -> None:
    value = (floats(8, 64) * 2 + 1).exp().sum(axis).sqrt() * 3 - 1
    assert len(kernels(plan(value))) == 1


@pytest.mark.row("M2.5")
def test_axes_that_are_neighbours_in_memory_are_one_loop() -> None:
    (item,) = kernels(plan(floats(4, 6, 5) + 1))
    assert loops(item) == [(120, Axis.LOOP)]


@pytest.mark.row("R3.4")
def test_counting_from_0_loops_over_its_elements_alone() -> None:
    (item,) = kernels(plan(Tensor.arange(15) * floats(15)))
    assert loops(item) == [(15, Axis.LOOP)]


@pytest.mark.row("R3.5")
@pytest.mark.parametrize("args", [(5, 50, 3), (50, 5, -3), (0.0, 15.0, 1.0), (-3, 12)])
def test_counting_by_any_step_loops_over_its_elements_alone(args: tuple[float, ...]) -> None:
    (item,) = kernels(plan(Tensor.arange(*args) * floats(15)))
    assert loops(item) == [(15, Axis.LOOP)]


@pytest.mark.row("M11.6")
def test_two_kernels_of_one_shape_have_two_names() -> None:
    x = Tensor([1.0] * 4703).realize()
    with recording() as record:
        (x + 1).realize(x * x.sum())
        (x.exp() - 3).realize()
    names = [launch.kernel.name for launch in record if launch.kernel is not None]
    alike = [name for name in names if name.startswith("E_")]
    assert len(alike) >= 2
    assert len(set(alike)) == len(alike)


def test_an_axis_stored_along_and_folded_is_no_loop_of_both() -> None:
    """The gradients of an image and of what was taken from each of its rows, through a pooling."""
    weights = np.random.default_rng(0).standard_normal((1, 3, 98), np.float32)
    x, rows = Tensor.ones(1, 5, 100).realize(), Tensor.zeros(5, 1).realize()
    pooled = (x - rows).avg_pool2d(3, 1) * Tensor(weights).realize()
    of_x, of_rows = pooled.sum().gradient(x, rows)
    of_rows.realize(of_x)
    expected = np.zeros((1, 5, 100))
    for row in range(3):
        for column in range(3):
            expected[:, row : row + 3, column : column + 98] += weights / 9
    np.testing.assert_allclose(of_x.numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(of_rows.numpy(), -expected.sum((0, 2))[:, None], rtol=1e-4)


def test_variance_allocates_one_mean_and_one_result() -> None:
    """Subtract, square and scale are in the second kernel: nothing has the four elements of x."""
    schedule = plan(floats(4).var(), plain=True)
    first, second = kernels(schedule)
    assert sizes(schedule) == [1, 1]
    assert first.ast is not None
    assert second.ast is not None
    # Beside the squares, what the mean was rounded by.
    folds = [node for node in second.ast.toposort() if node.op is Ops.REDUCE]
    (fold,) = [node for node in folds if node.src[0].op is Ops.MUL]
    assert len(folds) == 2
    inside = [node.op for node in fold.src[0].toposort()]
    assert Ops.ADD in inside
    assert fold.src[0].op is Ops.MUL
    assert fold.src[0].src[0] is fold.src[0].src[1]
    (store,) = second.ast.src
    assert store.src[2].op is Ops.MUL
    assert store.src[2].src[1].arg == pytest.approx(1 / 3)
    (mean,) = first.ast.src
    assert mean.src[2].op is Ops.MUL
    assert mean.src[2].src[1].arg == 0.25


@pytest.mark.row("M2.5")
def test_a_kernel_sees_the_axes_of_a_square_as_one() -> None:
    (item,) = kernels(plan(floats(4, 4) + floats(4, 4)))
    assert [extent for extent, _ in loops(item)] == [16]


def test_inference_of_a_batchnorm_is_elementwise() -> None:
    norm = BatchNorm2d(3).eval()
    Tensor.realize(norm.weight, norm.bias, norm.running_mean, norm.running_var)
    (item,) = kernels(plan(norm(floats(2, 3, 8, 8))))
    assert all(axis is Axis.LOOP for _, axis in loops(item))


@pytest.mark.usefixtures("by_nodes")
def test_training_of_a_batchnorm_reads_no_intermediate_image() -> None:
    """Mean, variance, result; with the running statistics, which also need both, one more. The
    plain plan joins nothing: the sum beside the squares is a kernel of its own.
    """
    norm = BatchNorm2d(3)
    Tensor.realize(norm.weight, norm.bias, norm.running_mean, norm.running_var)
    x = floats(2, 3, 8, 8)
    with Tensor.train():
        result = norm(x)
        assert len(kernels(plan(result, plain=True))) == 4
        assert len(kernels(plan(result))) == 1
        schedule = plan(result, norm.running_mean, norm.running_var)
    assert len(kernels(schedule)) == 4
    # Beside mean and variance, what the mean was rounded by.
    assert sorted(sizes(schedule)) == [3, 3, 3, x.numel()]


@pytest.mark.row("F2.1")
def test_a_dot_product_is_two_copies_and_a_kernel() -> None:
    product = Tensor([1, 2, 3]).dot(Tensor([3, 4, 5]))
    schedule = plan(product, plain=True)
    assert [item.is_copy for item in schedule.items] == [True, True, False]
    assert len(schedule.items) == 3
    with Context(NOOPT=1), recording() as record:
        assert product.item() == 26
    assert [launch.kernel is None for launch in record] == [True, True, False]
    assert record[2].kernel is not None
    assert record[2].kernel.name.startswith("r_3")


@pytest.mark.row("B1.1")
def test_two_concrete_sizes_are_two_unrolled_kernels() -> None:
    """Each size has a program of its own, in which nothing loops."""
    sources = set()
    for size in (4, 8):
        (item,) = kernels(plan(floats(size).sum()))
        assert item.ast is not None
        kernel = Kernel(item.ast, "CLANG").hand_coded_optimizations()
        assert Kernel(item.ast, "CLANG").name == f"r_{size}"
        program = kernel.to_program()
        assert not [node for node in program.uops if node.op is Ops.RANGE]
        assert "for (" not in program.src
        sources.add(program.src)
    assert len(sources) == 2


@pytest.mark.row("B1.1")
def test_two_concrete_sizes_run_as_two_kernels() -> None:
    with recording() as record, Context(SIZES=0):
        for size in (4, 8):
            assert Tensor([1.0] * size).realize().sum().item() == size
    names = [launch.kernel.name for launch in record if launch.kernel is not None]
    assert [name.split("n")[0] for name in names] == ["r_4", "r_8"]
    keys = {launch.kernel.key for launch in record if launch.kernel is not None}
    assert len(keys) == 2


@pytest.mark.row("P.12")
@pytest.mark.row("R5.2")
def test_everything_is_elementwise_work_reductions_and_movement() -> None:
    x, y = floats(8, 16), floats(16, 4)
    values = {
        "mean": x.mean(1),
        "max": x.max(1),
        "softmax": x.softmax(1),
        "product": x @ y,
        "convolution": convolution(),
        "attention": attention(),
        "variance": x.var(1),
    }
    for name, value in values.items():
        for node in value.uop.toposort():
            is_primitive = node.op.is_alu or node.op.is_movement
            is_leaf = node.op in (Ops.BUFFER, Ops.CONST, Ops.DETACH)
            fits = is_primitive or is_leaf or node.op in (Ops.REDUCE_AXIS, Ops.CAST)
            assert fits, f"{name} holds {node.op}"
    known = {op.name for op in Ops}
    for absent in ("MATMUL", "DOT", "CONV", "CONV2D", "SOFTMAX", "MEAN", "ATTENTION", "POOL"):
        assert absent not in known
    # What a back end must say: few operations on values, no composed one among them. The others
    # lower.decompose and lower.integers make of these, where a target lacks them.
    made = {
        Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.RECIP, Ops.MAX, Ops.MULACC,
        Ops.FLOORDIV, Ops.FLOORMOD, Ops.FMOD, Ops.TANH, Ops.SIGMOID,
    }  # fmt: skip
    # What it may say besides, if it is an instruction.
    made.add(Ops.SCALE)
    # Bounds, not counts: one more op that hardware has is no reason to change a test.
    assert sum(op.is_alu and Stage.TENSOR in op.definition.stages for op in Ops) < 40
    assert sum(op.is_alu for op in set(Ops) - made) < 30


@pytest.mark.row("R5.3")
def test_sum_and_max_are_one_loop() -> None:
    """The two programs differ in the accumulator's start and in one operation; so do the texts."""
    x = floats(5, 7)
    programs = []
    for value in (x.sum(1), x.max(1)):
        (item,) = kernels(plan(value, plain=True))
        assert item.ast is not None
        programs.append(Kernel(item.ast, renderer=ClangRenderer()).to_program())
    adds, largest = programs
    assert adds.name == largest.name == "r_5_7"
    assert len(adds.uops) == len(largest.uops)
    different = [
        (one, other)
        for one, other in zip(adds.uops, largest.uops, strict=True)
        if (one.op, one.dtype, one.arg) != (other.op, other.dtype, other.arg)
    ]
    assert [(one.op, other.op) for one, other in different] == [
        (Ops.CONST, Ops.CONST),
        (Ops.ADD, Ops.MAX),
    ]
    assert (different[0][0].arg, different[0][1].arg) == (0.0, float("-inf"))
    texts = [program.src.splitlines() for program in programs]
    only = [
        [line.strip() for line in one if line not in other] for one, other in (texts, texts[::-1])
    ]
    assert only[0] == ["float acc0 = 0.0f;", "acc0 = (acc0+val0);"]
    assert all("acc0" in line for line in only[1])


def pending(optimizer: Optimizer) -> None:
    for number, tensor in enumerate(optimizer.params):
        tensor.grad = Tensor(numbers(*tensor.shape, seed=number)).realize()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_an_update_of_a_parameter_is_one_kernel(kind: str) -> None:
    """Its state and its value are written by one pass; Adam's three counts take one more."""
    params = [
        Tensor(numbers(3 + place, 4, seed=place), requires_grad=True).realize()
        for place in range(4)
    ]
    if kind == "SGD":
        optimizer: Optimizer = SGD(params, lr=0.1, momentum=0.9)
    else:
        optimizer = Adam(params, lr=0.1)
    with Tensor.train():
        pending(optimizer)
        optimizer.step()  # the state gets its memory
        pending(optimizer)
        with recording() as record:
            optimizer.step()
    written = {"SGD": 2, "Adam": 3}[kind]
    names = [launch.kernel.name for launch in record if launch.kernel is not None]
    updates = [name for name in names if name.startswith(f"E{written}_")]
    assert len(updates) == len(names)
    assert len(names) == 4 + (kind == "Adam")


def test_several_outputs_give_the_values_of_several_kernels() -> None:
    """What runs as one kernel under its `2` is what two kernels would give."""
    first, second = numbers(4, 4), numbers(4, 4, seed=1)
    results = []
    for noopt in (0, 1):
        a, b = Tensor(first).realize(), Tensor(second).realize()
        with Context(NOOPT=noopt), recording() as record:
            grown = a.assign(a * 0.5 + b)
            Tensor.realize(grown, b.assign(b - grown))
        assert len(record) == (2 if noopt else 1)
        assert record[0].kernel is not None
        assert record[0].kernel.name.startswith("E_16" if noopt else "E2_16")
        close(a, first * np.float32(0.5) + second)
        results.append((a.tolist(), b.tolist()))
    assert results[0] == results[1]


def trained(when: str) -> tuple[list[float], int, int]:
    """The losses of two steps, read `when`, and the kernels and bytes of the second."""
    Tensor.manual_seed(7)
    layers = [Linear(16, 32), Linear(32, 32), Linear(32, 8)]
    optimizer = SGD([part for each in layers for part in (each.weight, each.bias)], lr=0.1)
    x, y = Tensor.rand(24, 16).realize(), Tensor.rand(24, 8).realize()
    found, kernels, touched = [], 0, 0
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            kernels, touched = GlobalCounters.kernel_count, GlobalCounters.global_mem
            value = x
            for layer in layers:
                value = layer(value).relu()
            loss = ((value - y) ** 2).mean()
            loss.backward()
            if when == "before":
                found.append(loss.item())
            optimizer.step()
            if when == "after":
                found.append(loss.item())
    count = GlobalCounters.kernel_count - kernels
    return found, count, GlobalCounters.global_mem - touched


def test_a_loss_costs_the_same_before_and_after_the_step() -> None:
    """What it is made of is computed once, and it is that of the weights it was made with."""
    before, after = trained("before"), trained("after")
    assert before[0] == pytest.approx(after[0], rel=1e-6)
    # Two schedules share a value, which one of them would fuse.
    assert before[1] <= after[1] + 1
    assert before[2] < after[2] * 1.2
