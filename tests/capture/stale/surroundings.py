"""Surroundings: the thread, files, modules, other objects."""

from __future__ import annotations

import contextvars
import enum
import math
import os
import queue
import sys
import threading
import time
import types
import uuid
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from tests.capture.helpers import full
from tests.capture.stale.registry import Box, case, nothing
from tilegrad import Tensor


@case
def a_context_variable() -> Any:
    value: contextvars.ContextVar[float] = contextvars.ContextVar("value", default=1.0)
    return lambda x: x * value.get(), lambda n: value.set(float(n // 2))


@case
def thread_local() -> Any:
    local = threading.local()
    local.k = 1.0
    return lambda x: x * local.k, lambda n: setattr(local, "k", float(n // 2))


@case
def a_subclass_of_thread_local() -> Any:
    class Local(threading.local):
        k = 1.0

    local = Local()
    return lambda x: x * local.k, lambda n: setattr(local, "k", float(n // 2))


@case
def a_queue() -> Any:
    values: queue.Queue[float] = queue.Queue()
    for n in range(40):
        values.put(float(n))
    return lambda x: x * values.get(), nothing


@case
def a_simple_queue() -> Any:
    values: queue.SimpleQueue[float] = queue.SimpleQueue()
    for n in range(40):
        values.put(float(n))
    return lambda x: x * values.get(), nothing


@case
def an_event() -> Any:
    event = threading.Event()
    return lambda x: x * (2 if event.is_set() else 3), lambda n: event.set() if n == 3 else None


@case
def a_lock() -> Any:
    lock = threading.Lock()
    return lambda x: x * (2 if lock.locked() else 3), lambda n: lock.acquire() if n == 3 else None


@case
def the_environment() -> Any:
    return (
        lambda x: x * float(os.environ["STALE_TEST_K"]),
        lambda n: os.environ.__setitem__("STALE_TEST_K", str(n // 2)),
    )


@case
def getenv() -> Any:
    os.environ.pop("STALE_TEST_L", None)

    def change(n: int) -> None:
        if n == 3:
            os.environ["STALE_TEST_L"] = "4"
        if n == 0:
            os.environ.pop("STALE_TEST_L", None)

    return lambda x: x * float(os.getenv("STALE_TEST_L", "2")), change


@case
def a_file() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def function(x: Tensor) -> Tensor:
        with open(path) as file:
            return x * float(file.read())

    return function, lambda n: path.write_text(str(n // 2))


@case
def a_path() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def change(n: int) -> None:
        if n == 3:
            path.write_text("")
        if n == 5:
            path.unlink()

    return lambda x: x * (2 if path.exists() else 3), change


@case
def an_open_file() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"
    path.write_text("\n".join(map(str, range(40))))
    file = open(path)  # noqa: SIM115
    return lambda x: x * float(file.readline()), nothing


def _replace(path: Path, k: int) -> None:
    """Let another file have the name."""
    other = path.with_suffix(".other")
    other.write_bytes(np.full(2, k, np.float32).tobytes())
    os.replace(other, path)


@case
def a_file_of_a_tensor() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def function(x: Tensor) -> Tensor:
        return x * Tensor.empty(2, device=f"DISK:{path}").to("CPU")

    return function, lambda n: _replace(path, n // 2)


@case
def a_file_that_a_tensor_is_written_to() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def function(x: Tensor) -> Tensor:
        Tensor.empty(2, device=f"DISK:{path}").assign(x * 3)
        return x + 1

    def change(n: int) -> None:
        if n:
            # It is there again after each call.
            path.unlink()

    return function, change


@case
def the_working_directory() -> Any:
    return lambda x: x * len(os.getcwd()), lambda n: os.chdir("/" if n % 2 else "/tmp")


@case
def the_recursion_limit() -> Any:
    first = sys.getrecursionlimit()
    return (
        lambda x: x * sys.getrecursionlimit(),
        lambda n: sys.setrecursionlimit(first + (n // 2) * 10 if n < 5 else first),
    )


@case
def a_weak_reference() -> Any:
    box = Box(inner=Box(k=1.0))
    reference = weakref.ref(box.inner)

    def function(x: Tensor) -> Tensor:
        found = reference()
        return x * (found.k if found is not None else 9.0)

    def change(n: int) -> None:
        if n == 3:
            box.inner.k = 2.0
        if n == 5:
            box.inner = None

    return function, change


@case
def a_weak_proxy() -> Any:
    box = Box(k=1.0)
    proxy = weakref.proxy(box)
    box_holder = [box]
    return lambda x: x * proxy.k, lambda n: setattr(box_holder[0], "k", float(n // 2))


@case
def a_weak_dictionary() -> Any:
    keys = [Box(), Box()]
    table: Any = weakref.WeakKeyDictionary(dict.fromkeys(keys, 1.0))
    return lambda x: x * sum(table.values()), lambda n: keys.pop() if n in (3, 5) else None


@case
def modules_that_are_there() -> Any:
    def change(n: int) -> None:
        if n == 0:
            sys.modules.pop("tilegrad_test_module", None)
        if n == 3:
            sys.modules["tilegrad_test_module"] = types.ModuleType("tilegrad_test_module")

    return lambda x: x * (2 if "tilegrad_test_module" in sys.modules else 3), change


@case
def an_import_inside() -> Any:
    def change(n: int) -> None:
        module = types.ModuleType("tilegrad_test_rates")
        module.k = float(n // 2)  # type: ignore[attr-defined]
        sys.modules["tilegrad_test_rates"] = module

    def function(x: Tensor) -> Tensor:
        from tilegrad_test_rates import k  # type: ignore[import-not-found]

        return x * k

    return function, change


@case
def an_attribute_of_a_module() -> Any:
    return (
        lambda x: x * math.tau_of_test,  # type: ignore[attr-defined]
        lambda n: setattr(math, "tau_of_test", float(n // 2)),
    )


@case
def an_enum_member() -> Any:
    class Mode(enum.Enum):
        A = 1
        B = 2

    box = Box(mode=Mode.A)
    return (
        lambda x: x * box.mode.value * (5 if box.mode is Mode.B else 1) + Mode(2).value,
        lambda n: setattr(box, "mode", Mode.B) if n == 3 else None,
    )


@case
def an_attribute_of_an_enum_member() -> Any:
    class Mode(enum.Enum):
        A = 1

    Mode.A.rate = 1.0  # type: ignore[attr-defined]
    return lambda x: x * Mode.A.rate, lambda n: setattr(Mode.A, "rate", float(n // 2))  # type: ignore[attr-defined]


@case
def a_frame() -> Any:
    box = Box(depth=0)
    return lambda x: x * len(sys._getframe().f_code.co_name) * (box.depth + 1), lambda n: setattr(
        box, "depth", n
    )


@case
def identity_of_objects() -> Any:
    box = Box(a=Box(), b=Box())
    return (
        lambda x: x * (2 if box.a is box.b else 3),
        lambda n: setattr(box, "b", box.a) if n == 3 else 0,
    )


@case
def identity_of_lists() -> Any:
    box = Box(a=[1.0], b=[1.0])
    return (
        lambda x: x * (2 if box.a is box.b else 3),
        lambda n: setattr(box, "b", box.a) if n == 3 else 0,
    )


@case
def a_list_becomes_none() -> Any:
    box = Box(a=[1.0])
    return (
        lambda x: x * (2 if box.a is None else 3),
        lambda n: setattr(box, "a", None) if n == 3 else 0,
    )


@case
def an_attribute_of_a_tensor() -> Any:
    weight = full(2, 2)
    return (
        lambda x: x * weight * (2 if weight.requires_grad else 3),
        lambda n: setattr(weight, "requires_grad", True) if n == 3 else None,
    )


@case
def a_context_manager() -> Any:
    class Scaled:
        def __init__(self) -> None:
            self.k = 1.0

        def __enter__(self) -> float:
            return self.k

        def __exit__(self, *exc: object) -> None:
            pass

    scaled = Scaled()

    def function(x: Tensor) -> Tensor:
        with scaled as k:
            return x * k

    return function, lambda n: setattr(scaled, "k", float(n // 2))


@case
def a_callable_object() -> Any:
    class Scale:
        def __init__(self) -> None:
            self.k = 1.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.k

    scale = Scale()

    def change(n: int) -> None:
        scale.k = float(n // 2)
        if n == 5:
            Scale.__call__ = lambda self, x: x * 50  # type: ignore[method-assign]

    return lambda x: scale(x), change


@case
def an_iterable_object() -> Any:
    class Values:
        def __init__(self) -> None:
            self.values = [1.0, 2.0]

        def __iter__(self) -> Any:
            yield from self.values

    values = Values()
    return lambda x: x * sum(values) + max(values), lambda n: values.values.append(float(n))


@case
def the_number_of_threads() -> Any:
    events: list[threading.Event] = []

    def change(n: int) -> None:
        if n == 3:
            event = threading.Event()
            threading.Thread(target=event.wait, args=(5,)).start()
            events.append(event)
        if n == 5:
            events.pop().set()
            time.sleep(0.05)

    return lambda x: x * min(threading.active_count(), 90), change
