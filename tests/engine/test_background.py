"""A thread that compiles while the next kernel is lowered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.schedule.plans import plan
from tilegrad import Context, Device, Tensor
from tilegrad.base.errors import CompileError
from tilegrad.base.trace import counters
from tilegrad.engine.build import kernels
from tilegrad.engine.build.background import BackgroundThread
from tilegrad.engine.plans import plans
from tilegrad.ir.uop import UOp


def graphs() -> list[UOp]:
    """Three kernels, the first of them twice."""
    x = Tensor.empty(3, 4)
    schedule = plan((x * 3 + 1).sum(), (x * 5).max(1), x.sin() - 7)
    found = [item.ast for item in schedule.items if item.ast is not None]
    return [*found, found[0]]


def compiled(compiler: Callable[[str], bytes], cores: int, patch: pytest.MonkeyPatch) -> list[Any]:
    patch.setattr(kernels, "count_of_helpers", lambda: cores - 1)
    patch.setattr(kernels, "recall_kernel", lambda key, is_short: None)
    backend = replace(Device["CPU"], compile=compiler)
    return kernels.compile_kernels([(ast, backend) for ast in graphs()])


@pytest.mark.parametrize(("cores", "is_beside"), [(1, False), (2, True)])
def test_with_a_second_core_a_thread_compiles(
    cores: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def compiler(source: str) -> bytes:
        threads.append(threading.get_ident())
        return Device["CPU"].compile(source)

    with Context(DISABLE_COMPILER_CACHE=1):
        before = counters.compiles
        made = compiled(compiler, cores, monkeypatch)
    assert len(threads) == len({*threads}) + 2 == 3
    assert (threads[0] != threading.get_ident()) is is_beside
    assert counters.compiles - before == 3
    assert made[0] is made[3] and all(kernel.binary for kernel in made)


def test_the_error_of_a_compiler_in_a_thread_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiler(source: str) -> bytes:
        raise CompileError("no such instruction")

    with pytest.raises(CompileError, match="no such instruction"):
        compiled(compiler, 2, monkeypatch)


def test_after_an_error_the_thread_leaves_what_waits() -> None:
    begun, go = threading.Event(), threading.Event()
    sources: list[str] = []

    def compiler(source: str) -> bytes:
        sources.append(source)
        begun.set()
        go.wait()
        return b""

    def failing() -> None:
        with BackgroundThread() as beside:
            beside.begin(partial(compiler, "first"))
            beside.begin(partial(compiler, "second"))
            begun.wait()
            threading.Timer(0.01, go.set).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert sources == ["first"]


def test_the_device_is_made_ready_beside_its_first_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    runtime = Device["CPU"].runtime
    monkeypatch.setattr(
        runtime, "preparation", lambda: lambda: threads.append(threading.get_ident())
    )
    monkeypatch.setattr(plans, "count_of_helpers", lambda: 1)
    with Context(DISABLE_COMPILER_CACHE=1):
        (Tensor.empty(7, 11) * 3).sum(1).realize()
    assert len(threads) == 1 and threads[0] != threading.get_ident()
