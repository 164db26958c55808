"""Short shapes: less text, the same values to the last bit, and none where there is no choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.plans import plan
from tilegrad import Context, Device, Tensor, dtypes
from tilegrad.engine.build import pipeline
from tilegrad.engine.build.pipeline import CompiledKernel, best_key, make_kernel
from tilegrad.engine.plans import plans
from tilegrad.engine.program.stages import to_program
from tilegrad.hardware import cuda_target
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.heuristic import shape, short_shape
from tilegrad.optimize.opts.opt import OptOps
from tilegrad.optimize.opts.opts import start

Array = np.ndarray


def values(*sizes: int) -> Array:
    return np.random.default_rng(sum(sizes)).normal(size=sizes).astype(np.float32)


def padded(x: Array) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))


def slices(x: Array, size: int) -> Array:
    """x[n, c, i + a, j + b] at [n, c, i, j, a, b]."""
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))


def conv(x: Array, w: Array) -> Array:
    return np.einsum("ncijab,ocab->noij", slices(padded(x), 3), w)


Program = tuple[Callable[[], Tensor], Callable[[], Array]]

x, w = values(2, 16, 24, 24), values(64, 16, 3, 3)
a, b, c = values(128, 96), values(96, 160), values(160, 96)
g = values(2, 64, 24, 24)

PROGRAMS: dict[str, Program] = {
    "product": (lambda: Tensor(a) @ Tensor(b), lambda: a.astype(float) @ b),
    "product with the contraction along rows": (
        lambda: Tensor(a) @ Tensor(c).transpose(),
        lambda: a.astype(float) @ c.T,
    ),
    "product with an epilogue": (
        lambda: (Tensor(a) @ Tensor(b) + 1.5).relu(),
        lambda: np.maximum(a.astype(float) @ b + 1.5, 0),
    ),
    "convolution with padding": (
        lambda: Tensor(x).conv2d(Tensor(w), padding=1),
        lambda: conv(x.astype(float), w),
    ),
    "gradient of its weight": (
        lambda: gradient(1),
        lambda: np.einsum("ncijab,noij->ocab", slices(padded(x.astype(float)), 3), g),
    ),
    "gradient of its image": (
        lambda: gradient(0),
        lambda: conv(g.astype(float), w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]),
    ),
    "batched product": (
        lambda: Tensor(values(3, 20, 33)) @ Tensor(values(3, 33, 24)),
        lambda: values(3, 20, 33).astype(float) @ values(3, 33, 24),
    ),
}


def gradient(of: int) -> Tensor:
    image, weight = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
    (image.conv2d(weight, padding=1) * Tensor(g)).sum().backward()
    found = (image, weight)[of].grad
    assert found is not None
    return found


def kernels(name: str) -> list[UOp]:
    items = plan(PROGRAMS[name][0]()).items
    return [item.ast for item in items if item.ast is not None]


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_shapes_compute_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one plan first with kernels in short shapes, then with the best ones."""
    monkeypatch.setattr(plans, "count_of_helpers", lambda: 1)
    compute, wanted = PROGRAMS[name]
    made: list[CompiledKernel] = []
    remember = pipeline._remember

    def noted(kernel: CompiledKernel) -> CompiledKernel:
        made.append(kernel)
        return remember(kernel)

    monkeypatch.setattr(pipeline, "_remember", noted)
    with Context(SHORT=1, DISABLE_COMPILER_CACHE=1, KEEP_KERNELS=0):
        short = compute().numpy()
    assert any(kernel.lines for kernel in made)
    made.clear()
    with Context(SHORT=0, DISABLE_COMPILER_CACHE=1, KEEP_KERNELS=0):
        best = compute().numpy()
    assert made and not any(kernel.lines for kernel in made)
    assert np.array_equal(short.view(np.int32), best.view(np.int32))
    assert np.allclose(short, wanted(), rtol=1e-4, atol=1e-4)


def test_short_shapes_have_less_text() -> None:
    backend, key = Device["CPU"], "0" * 40
    few: dict[str, int] = {}
    many: dict[str, int] = {}
    for name in PROGRAMS:
        for ast in kernels(name):
            started = start(ast, backend.target)
            found, differs = short_shape(started, backend.target)
            if not differs:
                assert found is shape(started, backend.target)
                continue
            short = make_kernel(ast, backend, key, is_short=True)
            assert short.lines > 0 and short.key != key and best_key(short.key) == key
            assert short.graph == str(ast)
            shaped, program = to_program(ast, backend.target, is_short=True)
            assert shaped.is_short
            few[name] = few.get(name, 0) + len(program)
            shaped, program = to_program(ast, backend.target)
            assert not shaped.is_short
            many[name] = many.get(name, 0) + len(program)
    assert few.keys() == PROGRAMS.keys()
    assert sum(few.values()) < 0.75 * sum(many.values()), (few, many)


def test_what_has_one_shape_has_no_short_one() -> None:
    target = Device["CPU"].target
    small = Tensor(a[:2, :2].copy())
    for item in plan(small * 2 + 1, small.flip(1)).items:
        assert item.ast is not None
        started = start(item.ast, target)
        assert short_shape(started, target) == (shape(started, target), False)
        assert make_kernel(item.ast, Device["CPU"], "1" * 40, is_short=True).lines == 0


def test_a_short_shape_of_a_plain_kernel_has_one_vector() -> None:
    target = Device["CPU"].target
    (item,) = plan(Tensor(a) * 2 + 1).items
    assert item.ast is not None
    started = start(item.ast, target)
    short, differs = short_shape(started, target)
    width = target.lanes_of(dtypes.float32)
    assert differs and width > 1
    assert [opt.arg for opt in short.arg.opts if opt.op is OptOps.UPCAST] == [width]


def test_the_best_shape_does_not_depend_on_the_short_one() -> None:
    """Nothing that a short shape found is left where the best one is looked for."""
    target = Device["CPU"].target
    for ast in kernels("product"):
        started = start(ast, target)
        before = shape(started, target)
        short, differs = short_shape(started, target)
        assert differs and short is not before and shape(started, target) is before


def test_blocks_of_lanes_have_no_short_shapes() -> None:
    target = cuda_target("sm_80")
    for ast in kernels("product"):
        started = start(ast, target)
        assert short_shape(started, target) == (shape(started, target), False)
