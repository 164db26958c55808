"""Python values that shape a capture: a changed one is captured anew, and never silently stays."""

from __future__ import annotations

import dataclasses
import enum
import functools
import gc
import types
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Context, Tensor, dtypes, jit
from tilegrad.base.errors import CaptureError
from tilegrad.capture import access_paths

scale = 1.0
settings = {"scale": 1.0, "other": 0}
offsets = [1, 2]
helper: Any = None


class Mode(enum.Enum):
    ADD = 1
    SUBTRACT = 2


def run(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The values for an input of ones."""
    return function(full(1, 2), *args, **kwargs).tolist()[0]


def warm(function: Any, *args: Any, **kwargs: Any) -> None:
    for _ in range(3):
        run(function, *args, **kwargs)


# arguments


@pytest.mark.parametrize(
    "values",
    [
        (1, 2), (1, True), (0.5, 1.5), (0.0, -0.0), (2, 2.0), (1 + 0j, 1), (np.float32(1), 1.0),
        (np.int64(3), 3), ((1, 2), (1, 3)), ((1, 2), [1, 2]), (range(2), range(3)),
        ({"a": 1}, {"a": 2}), ({1}, {2}), (b"a", b"b"), (slice(0, 1), slice(0, 2)),
        (float("nan"), 1.0), (Mode.ADD, Mode.SUBTRACT), (dtypes.float, dtypes.int),
        (None, 0), ("", None),
    ],
)  # fmt: skip
def test_arguments_are_guards(values: tuple[Any, Any]) -> None:
    """Each of two values has a capture of its own, and a repeated one replays."""
    seen = []

    @jit
    def function(x: Tensor, value: Any) -> Tensor:
        seen.append(repr(value))
        return x + 1

    for value in (*values, *values, *values):
        run(function, value)
    assert function.captures == 2
    assert seen == [repr(value) for value in (*values, values[0])]


def test_an_integer_argument() -> None:
    """U2: 10 to 14, where the described system stays at 11."""
    function = jit(lambda x, n: x * 0 + 10 + n)
    assert [run(function, n) for n in range(5)] == [10, 11, 12, 13, 14]
    assert [run(function, n) for n in range(5)] == [10, 11, 12, 13, 14]


def test_a_function_as_an_argument() -> None:
    factor = 2.0

    def double(x: Tensor) -> Tensor:
        return x * factor

    function = jit(lambda x, inner: inner(x))
    warm(function, double)
    assert run(function, double) == 2
    factor = 3.0
    assert run(function, double) == 3
    assert run(function, functools.partial(lambda x, by: x * by, by=7)) == 7
    assert run(function, functools.partial(lambda x, by: x * by, by=8)) == 8


def test_dataclasses_and_named_tuples() -> None:
    @dataclass(frozen=True)
    class Settings:
        scale: float
        bias: Tensor

    class Pair(NamedTuple):
        scale: float
        bias: Tensor

    function = jit(lambda x, s: x * s.scale + s.bias)
    for kind in (Settings, Pair):
        for n in range(4):
            assert run(function, kind(2.0, full(n, 2))) == 2 + n
        assert run(function, kind(3.0, full(5, 2))) == 8
    assert function.captures == 4


def test_more_arguments() -> None:
    function = jit(lambda x, *rest, **named: x + sum(rest) + sum(named.values()))
    warm(function)
    assert run(function, 1) == 2
    assert run(function, 1, 2) == 4
    assert run(function, a=5) == 6
    assert run(function, b=5) == 6
    assert run(function, a=6) == 7
    assert run(function) == 1


# globals and closures


def test_globals() -> None:
    global scale
    function = jit(lambda x: x * scale)
    scale = 1.0
    warm(function)
    for value in (2.0, 3.0, 1.0):
        scale = value
        assert run(function) == value


def test_what_the_collector_calls_is_not_the_functions() -> None:
    """A callback of the collector keeps the time in globals of its own, as test tools do."""
    names: dict[str, Any] = {"__name__": "apart", "calls": 0}
    exec(
        compile("def note(phase, info):\n  global calls\n  calls += 1\n", "apart.py", "exec"),
        names,
    )
    function = jit(lambda x: (x + 1).contiguous() * 2)
    thresholds = gc.get_threshold()
    gc.callbacks.append(names["note"])
    gc.set_threshold(1)
    try:
        warm(function)
        assert [run(function) for _ in range(3)] == [4.0] * 3
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(names["note"])
    assert names["calls"] > 0
    assert gc.isenabled()


def test_items_of_global_containers() -> None:
    function = jit(lambda x: x * settings["scale"] + offsets[0])
    settings["scale"], offsets[0] = 1.0, 1
    warm(function)
    settings["scale"] = 2.0
    assert run(function) == 3
    offsets[0] = 5
    assert run(function) == 7
    captures = function.captures
    settings["other"] += 1
    offsets.append(4)
    assert run(function) == 7
    assert function.captures == captures


def test_whole_containers() -> None:
    function = jit(lambda x: x + sum(offsets) + len(settings))
    warm(function)
    before = run(function)
    offsets.append(10)
    assert run(function) == before + 10
    settings["new"] = 1
    assert run(function) == before + 11
    del settings["new"]


def test_closures() -> None:
    factor, parts = 2.0, {"bias": [1.0]}

    @jit
    def function(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return y * factor + parts["bias"][0]

        return inner(x)

    warm(function)
    assert run(function) == 3
    factor = 5.0
    assert run(function) == 6
    parts["bias"][0] = 3.0
    assert run(function) == 8


def test_globals_of_called_functions() -> None:
    global scale

    def inner(x: Tensor) -> Tensor:
        return x * scale

    function = jit(lambda x: inner(x) + 1)
    scale = 1.0
    warm(function)
    scale = 4.0
    assert run(function) == 5


def test_a_global_function_is_exchanged() -> None:
    global helper
    function = jit(lambda x: helper(x))
    helper = lambda x: x + 1  # noqa: E731
    warm(function)
    helper = lambda x: x + 2  # noqa: E731
    assert run(function) == 3


def test_modules() -> None:
    module = types.ModuleType("settings_of_test")
    module.__file__ = __file__
    module.rate = 2.0  # type: ignore[attr-defined]
    function = jit(lambda x: x * module.rate)
    warm(function)
    module.rate = 3.0  # type: ignore[attr-defined]
    assert run(function) == 3


def test_comprehensions() -> None:
    parts = [full(1, 2), full(2, 2)]
    function = jit(lambda x: sum([x * part for part in parts]))
    warm(function)
    assert run(function) == 3
    parts[1] = full(7, 2)
    assert run(function) == 8
    parts.append(full(1, 2))
    assert run(function) == 9
    parts[0].assign(full(2, 2)).realize()
    assert run(function) == 10


def test_attributes_in_comprehensions() -> None:
    parts = [Options(1.0), Options(2.0)]
    function = jit(lambda x: x * sum([part.rate for part in parts]) + max(p.rate for p in parts))
    warm(function)
    assert run(function) == 5
    parts[0].rate = 4.0
    assert run(function) == 10


# attributes


@dataclass
class Options:
    rate: float = 1.0


# surroundings


def test_training_is_a_guard() -> None:
    function = jit(lambda x: x * (2 if Tensor.training else 1))
    for _ in range(3):
        with Tensor.train(False):
            assert run(function) == 1
        with Tensor.train():
            assert run(function) == 2
    assert function.captures == 2


def test_switches_that_shape_code_are_guards() -> None:
    function = jit(lambda x: (x + 1).contiguous())
    warm(function)
    with Context(NOOPT=1):
        assert run(function) == 2
    assert function.captures == 2
    with Context(DEBUG=0):
        assert run(function) == 2
    assert function.captures == 2


def test_requires_grad_is_a_guard() -> None:
    weight = full(3, 2)

    @jit
    def function(x: Tensor) -> tuple[Tensor, Any]:
        y = (x * weight).sum()
        return y, y.requires_grad

    for _ in range(3):
        assert function(full(1, 2))[1] is None
    weight.requires_grad = True
    for _ in range(3):
        assert function(full(1, 2))[1] is True


def test_a_recapture_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    global scale
    scale = 1.0
    function = jit(lambda x: x * scale)
    warm(function)
    scale = 2.0
    with Context(DEBUG=1):
        run(function)
    assert "JIT recaptures <lambda>: scale is 1.0 no more, but 2.0" in capsys.readouterr().out


def test_old_captures_are_found_again() -> None:
    calls = []

    @jit
    def function(x: Tensor, n: int) -> Tensor:
        calls.append(n)
        return x + n

    for n in (0, 0, 1, 2, 0, 1, 2, 0):
        assert run(function, n) == 1 + n
    assert calls == [0, 0, 1, 2]


# side effects


def test_counters_stop_without_recapture() -> None:
    holder = types.SimpleNamespace(count=0)

    @jit
    def function(x: Tensor) -> Tensor:
        holder.count += 1
        return x + 1

    for _ in range(5):
        run(function)
    assert holder.count == 2
    holder.count = 10
    run(function)
    assert holder.count == 11 and function.captures == 2


def test_a_counter_that_is_computed_with_is_refused() -> None:
    holder = types.SimpleNamespace(count=0)

    @jit
    def function(x: Tensor) -> Tensor:
        holder.count += 1
        return x * holder.count

    found = []
    with pytest.raises(CaptureError, match=r"holder\.count changes from call to call"):
        found.extend(run(function) for _ in range(9))
    assert found == list(range(1, len(found) + 1))


def test_what_a_list_gathered_stays() -> None:
    """A tensor kept beside the results is not overwritten by replays."""
    kept = []

    @jit
    def function(x: Tensor) -> Tensor:
        y = (x + 1).realize()
        kept.append(y)
        return y * 2

    for n in range(5):
        function(full(n, 2))
    assert [each.tolist()[0] for each in kept] == [1, 2]


def test_numbers_brought_from_python_are_part_of_what_is_computed() -> None:
    """A rate made anew from a counter is a constant of the kernels' memory, not of their code."""

    class Schedule:
        def __init__(self) -> None:
            self.steps, self.rate = 0, Tensor([1.0]).realize()

        def step(self) -> None:
            self.steps += 1
            self.rate.assign(Tensor([1.0 / self.steps, 2.0])[:1]).realize()

    schedule, weights = Schedule(), Tensor.ones(3).realize()

    @jit
    def update() -> Tensor:
        schedule.step()
        return (weights * schedule.rate).realize()

    found = []
    with pytest.raises(CaptureError, match=r"\.steps changes from call to call"):
        found.extend(update().tolist()[0] for _ in range(9))
    assert found == pytest.approx([1 / count for count in range(1, len(found) + 1)])


def _own_class() -> Any:
    class Own:
        def __init__(self, x: Tensor, k: float):
            self.x, self.k = x, k

    return Own


def _own_slots() -> Any:
    class Slotted:
        __slots__ = ("k", "x")

        def __init__(self, x: Tensor, k: float):
            self.x, self.k = x, k

    return Slotted


@pytest.mark.parametrize(
    "kind",
    [
        dataclasses.make_dataclass("Plain", ["x", "k"]),
        dataclasses.make_dataclass("Frozen", ["x", "k"], frozen=True),
        NamedTuple("Named", [("x", Any), ("k", float)]),
        _own_class(),
        _own_slots(),
        lambda x, k: types.SimpleNamespace(x=x, k=k),
    ],
)
def test_an_argument_made_anew_for_each_call_is_captured_once(kind: Any) -> None:
    function = jit(lambda batch: batch.x * batch.k)
    found = [function(kind(Tensor([float(n)]).realize(), 2.0)).item() for n in range(6)]
    assert found == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert (function.captures, function._calls) == (1, 2)


def test_a_list_in_a_list_many_times_costs_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place below an argument is named once, whatever stands above it."""
    named = access_paths.name_of
    count = 0

    def counted(key: Any) -> Any:
        nonlocal count
        count += 1
        return named(key)

    monkeypatch.setattr(access_paths, "name_of", counted)
    work: list[int] = []
    for depth in (100, 400):
        given: Any = Tensor([1.0]).realize()
        for _ in range(depth):
            given = [given]

        @jit
        def function(nested: Any) -> Tensor:
            while isinstance(nested, list):
                (nested,) = nested
            return nested + 1

        count = 0
        for _ in range(3):
            assert function(given).tolist() == [2.0]
        work.append(count)
    assert work[0] < work[1] < 6 * work[0]


def test_who_a_tensor_of_the_state_is() -> None:
    """`id` is a guard of a tensor that is state, whose memory is not held by it."""
    state = types.SimpleNamespace(weight=full(1, 2))
    marked = {id(state.weight)}

    @jit
    def function(x: Tensor) -> Tensor:
        return x * 2 if id(state.weight) in marked else x * 3

    warm(function)
    assert run(function) == 2
    old = state.weight
    state.weight = full(1, 2)
    assert [run(function) for _ in range(3)] == [3, 3, 3]
    assert function.captures == 2
    state.weight = old
    assert run(function) == 2
    reference = weakref.ref(old)
    state.weight = None
    del old
    assert reference() is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_who_an_argument_is_cannot_be_guarded() -> None:
    first = full(1, 2)

    @jit
    def function(x: Tensor) -> Tensor:
        return x * 2 if id(x) == id(first) else x * 3

    assert [run(function) for _ in range(5)] == [3] * 5
    assert function(first).tolist() == [2, 2]
    assert function.captures == 0
