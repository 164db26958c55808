"""Bad input and a lack of memory: what is said, and that nothing half-done remains.

Every message names the op, both values and the user's own line, whether a plan was made for that
line or for another, in a backward pass, and on a replay.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilegrad import Context, Device, GlobalCounters, Tensor, Variable, dtypes, jit, nn
from tilegrad.base.errors import (
    CompileError,
    DataError,
    DeviceError,
    DTypeError,
    IndexBoundsError,
    OutOfMemoryError,
    ShapeError,
    TilegradError,
)
from tilegrad.base.trace import counters
from tilegrad.engine.run import leaf_memory
from tilegrad.tensor.handle.core import live

N = 5000


def line_of(text: str, file: str = __file__) -> str:
    """The place in a file, this one, of the only line that holds `text`."""
    lines = Path(file).read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if text in line and "line_of(" not in line]
    return f"{Path(file).name}:{number}"


def filled(value: float, n: int = N) -> Tensor:
    return (Tensor.full((n,), float(value)).contiguous() * 1).realize()


def state() -> tuple[int, int, int]:
    """Bytes in use, live buffers, live tensors."""
    gc.collect()
    return GlobalCounters.mem_used, len(leaf_memory.buffers()), len(list(live()))


@contextmanager
def room_for(nbytes: int) -> Iterator[None]:
    """The CPU has no more than `nbytes` to give, and nothing comes back meanwhile."""
    gc.collect()
    gc.disable()
    backend = Device["CPU"]
    backend.allocator.flush()
    runtime, left = backend.runtime, nbytes
    allocate = runtime.allocate

    def limited(wanted: int) -> Any:
        nonlocal left
        if wanted > left:
            raise MemoryError(wanted)
        left -= wanted
        return allocate(wanted)

    runtime.allocate = limited
    try:
        yield
    finally:
        del runtime.allocate
        gc.enable()


# what a call refuses

A = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
B = Tensor([1.0, 2.0]).realize()
I = Tensor([1, 2]).realize()  # noqa: E741
C = Tensor([1.0, 2.0], device="CPU:1").realize()
H = Tensor([[0.5, 0.5], [0.5, 0.5]]).realize()
W = Tensor([1.0, 2.0], requires_grad=True).realize()

REFUSED: list[tuple[type[TilegradError], list[str], Callable[[], object]]] = [
    (ShapeError, ["add", "(2, 3)", "(2,)"], lambda: A + B),
    (ShapeError, ["where", "(2, 3)", "(2,)"], lambda: (A > 0).where(A, B)),
    (ShapeError, ["matmul", "3 and 2"], lambda: A @ B),
    (ShapeError, ["reshape", "(2, 3)", "6 elements", "(4, 2)", "8"], lambda: A.reshape(4, 2)),
    (ShapeError, ["expand", "(2, 3)", "(4, 3)"], lambda: A.expand(4, 3)),
    (ShapeError, ["permute", "(0, 0)", "2 axes"], lambda: A.permute(0, 0)),
    (ShapeError, ["shrink", "(1, 9)", "axis 0"], lambda: A.shrink(((1, 9), (0, 3)))),
    (ShapeError, ["pad", "3 pairs", "2 axes"], lambda: A.pad(((0, 1), (0, 1), (0, 1)))),
    (ShapeError, ["cat", "(2, 3)", "(1, 2)"], lambda: A.cat(B.reshape(1, 2))),
    (ShapeError, ["stack", "(2, 3)", "(2,)"], lambda: A.stack(B)),
    (ShapeError, ["split", "(1, 5)", "size 3"], lambda: A.split([1, 5], 1)),
    (ShapeError, ["conv2d", "channels", "3", "2"], lambda: image(3).conv2d(image(2))),
    (ShapeError, ["max_pool2d", "9", "4"], lambda: image(1).max_pool2d(9)),
    (ShapeError, ["item", "(2,)"], lambda: B.item()),
    (ShapeError, ["full", "size -1"], lambda: Tensor.zeros(2, -1)),
    (ShapeError, ["Tensor", "ragged", "1 and 2"], lambda: Tensor([[1], [2, 3]])),
    (ShapeError, ["backward", "(2,)"], lambda: W.exp().backward()),
    (ShapeError, ["assign", "(2,)", "(2, 3)"], lambda: B.assign(A)),
    (ShapeError, ["cross_entropy", "(2, 3)", "(2, 2)"], lambda: A.cross_entropy(H)),
    (IndexBoundsError, ["sum", "axis 2", "2 axes"], lambda: A.sum(2)),
    (IndexBoundsError, ["softmax", "axis -3", "2 axes"], lambda: A.softmax(-3)),
    (IndexBoundsError, ["transpose", "axis 5", "2 axes"], lambda: A.transpose(0, 5)),
    (IndexBoundsError, ["flip", "axis 2", "2 axes"], lambda: A.flip(2)),
    (IndexBoundsError, ["getitem", "index 2", "size 2"], lambda: A[2]),
    (IndexBoundsError, ["getitem", "3 indices", "2 axes"], lambda: A[0, 0, 0]),
    (DTypeError, ["bitwise_and", "float32"], lambda: A & 1),
    (DTypeError, ["add", "300", "uint8"], lambda: A.cast("uint8") + 300),
    (DTypeError, ["add", "str"], lambda: A + "one"),
    (DTypeError, ["getitem", "float32"], lambda: A[B]),
    (DTypeError, ["Tensor", "-1", "uint8"], lambda: Tensor([-1], dtype="uint8")),
    (DTypeError, ["requires_grad", "int32"], lambda: Tensor([1], requires_grad=True)),
    (ShapeError, ["bitcast", "float32", "int64"], lambda: A[:, :3].bitcast(dtypes.int64)),
    (DTypeError, ["randint", "float32"], lambda: Tensor.randint(2, dtype=dtypes.float32)),
    (DTypeError, ["assign", "float32", "int32"], lambda: B.assign(I)),
    (DeviceError, ["add", "CPU and CPU:1", ".to('CPU')"], lambda: B + C),
    (DeviceError, ["dot", "CPU and CPU:1"], lambda: B.dot(C)),
    (DeviceError, ["cat", "CPU:1 and CPU"], lambda: C.cat(B)),
    (DeviceError, ["assign", "CPU and CPU:1"], lambda: B.assign(C)),
]


def image(channels: int) -> Tensor:
    return Tensor.ones(1, channels, 4, 4)


@pytest.mark.parametrize(
    ("kind", "says", "call"),
    REFUSED,
    ids=[f"{says[0]}-{kind.__name__}" for kind, says, _ in REFUSED],
)
def test_a_refusal(kind: type[TilegradError], says: list[str], call: Callable[[], object]) -> None:
    """The op first, both values, the line of the call; and nothing is left of it."""
    with pytest.raises(kind):
        call()
    before = state()
    message = ""
    try:
        call()
    except kind as error:
        message = str(error)
    head = message.splitlines()[0]
    assert head.startswith(f"{says[0]}:"), message
    for part in says[1:]:
        assert part in message, message
    assert f"test_errors.py:{call.__code__.co_firstlineno}" in message.split("line:")[-1], message
    assert not head.endswith(".")
    assert state() == before
    assert (A.tolist(), B.tolist()) == ([[1, 2, 3], [4, 5, 6]], [1, 2])


def test_a_refusal_in_a_layer_names_the_users_line() -> None:
    layer = nn.Linear(4, 2)
    with pytest.raises(ShapeError) as error:
        layer(A)  # through the layer
    assert line_of("# through the layer") in str(error.value)


# the user's line


def test_the_line_of_this_caller_whoever_made_the_plan() -> None:
    """The plan was made for the first line, and is found again for the second."""
    first = filled(1).cos() * 3.5  # made here
    first.realize()
    other = filled(2)
    plans = counters.schedules
    second = other.cos() * 3.5  # found here
    with room_for(0), pytest.raises(OutOfMemoryError) as caught:
        second.realize()
    assert counters.schedules == plans
    assert caught.value.details["line"] == line_of("# found here")


def test_the_line_of_a_plan_from_disk(tmp_path: Path) -> None:
    """Two processes: the second finds the plan of the first, for other lines."""
    import os
    import subprocess
    import sys

    code = """
from tilegrad import Device, Tensor
from tilegrad.base.trace import counters
x = Tensor([1.0] * 5000).realize()
{blank}y = x.sin() + 2
if {short}:
    runtime = Device["CPU"].runtime
    def refuse(nbytes):
        raise MemoryError(nbytes)
    runtime.allocate = refuse
try:
    y.realize()
    print("fine")
except MemoryError as error:
    print(error)
print("rewrites", counters.rewrites, "compiles", counters.compiles)
"""
    environment = os.environ | {
        "PYTHONPATH": ":".join(sys.path),
        "TILEGRAD_CACHE": str(tmp_path / "cache"),
    }
    shown = []
    for blank, short in (("", False), ("\n\n\n", True)):
        script = tmp_path / "script.py"
        script.write_text(code.format(blank=blank, short=short))
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert shown[0].startswith("fine")
    assert "  line:    script.py:8\n" in shown[1]
    assert shown[1].endswith("rewrites 0 compiles 0\n")


def test_the_line_of_a_gradient_is_that_of_the_forward_call() -> None:
    x = filled(2)
    x.requires_grad = True
    y = (x * 3).tanh()  # derived
    y.sum().backward()
    assert x.grad is not None
    with room_for(0), pytest.raises(OutOfMemoryError) as caught:
        x.grad.realize()
    assert line_of("# derived") in str(caught.value)


def test_a_refused_kernel_names_the_line_that_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compiler speaks when `realize` is called, of a kernel that another line asked for."""

    def refuse(source: str) -> Any:
        raise CompileError("llvm: no such instruction", text=source.splitlines()[0])

    x = filled(2)
    wanted = (x * 3.1875).cos() + 0.28125  # refused
    monkeypatch.setitem(Device._open, "CPU", replace(Device["CPU"], compile=refuse))
    with pytest.raises(CompileError) as caught:
        wanted.realize()
    assert "llvm: no such instruction" in str(caught.value)
    assert line_of("# refused") in str(caught.value)


def test_backward_says_which_line_called_it() -> None:
    with pytest.raises(TilegradError) as caught:
        (B * 2).sum().backward()  # nothing to derive
    assert "backward: nothing below this tensor requires a gradient" in str(caught.value)
    assert line_of("# nothing to derive") in str(caught.value)
    with pytest.raises(ShapeError) as other:
        W.exp().backward(Tensor([1.0, 2.0, 3.0]))  # another shape
    assert "backward: the gradient has shape (3,), the tensor (2,)" in str(other.value)
    assert line_of("# another shape") in str(other.value)
    assert W.grad is None


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("mode", [1, 2])
def test_the_line_on_a_replay(mode: int) -> None:
    """A replay finds no room for its result; the next one does."""

    @jit
    def function(x: Tensor) -> Tensor:
        return ((x + 1).contiguous() * 2.5).contiguous()  # captured

    inputs = [filled(number) for number in range(8)]
    with Context(JIT=mode):
        kept = [function(x) for x in inputs[:4]]
        gc.collect()
        before = GlobalCounters.mem_used
        for _ in range(2):
            with room_for(0), pytest.raises(OutOfMemoryError) as caught:
                function(inputs[4])
            assert line_of("# captured") in str(caught.value)
        gc.collect()
        assert GlobalCounters.mem_used <= before
        kept += [function(x) for x in inputs[4:]]
    for number, result in enumerate(kept):
        assert result.tolist() == [2.5 * (number + 1)] * N
    assert function.captures == 1


def test_a_replay_without_room_for_state_that_is_looked_at() -> None:
    """State would move aside for an array that looks at it: it does not, and keeps its value."""
    total = filled(0)

    @jit
    def function(x: Tensor) -> Tensor:
        total.assign(total + x).realize()
        return (total * 2).sum()

    one = filled(1)
    for _ in range(3):
        function(one)
    array = total.numpy()
    with room_for(0), pytest.raises(OutOfMemoryError):
        function(one)
    assert (array == 3).all() and total[0].item() == 3
    assert function(one).item() == 8 * N
    assert (array == 3).all()


def test_a_refusal_inside_a_captured_function() -> None:
    @jit
    def function(x: Tensor, rows: int) -> Tensor:
        return x.reshape(rows, -1) + 1  # inside

    for _ in range(3):
        assert function(A, 3).shape == (3, 2)
    with pytest.raises(ShapeError) as caught:
        function(A, 4)
    assert "reshape:" in str(caught.value)
    assert line_of("# inside") in str(caught.value)
    assert function(A, 3).tolist() == [[2, 3], [4, 5], [6, 7]]


# values known only when it runs


def test_a_variable_outside_its_range() -> None:
    n = Variable("n", 1, 4)
    with pytest.raises(ShapeError) as caught:
        n.bind(5)
    assert "n" in str(caught.value) and "5" in str(caught.value) and "4" in str(caught.value)


# files


@pytest.mark.usefixtures("nothing_known")
def test_weights_that_are_cut_short_change_nothing(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    file = tmp_path / "weights.safetensors"
    nn.state.safe_save(nn.state.get_state_dict(model), str(file))
    file.write_bytes(file.read_bytes()[:-5])
    values, before = model.weight.tolist(), state()
    failed: list[BaseException] = []
    try:
        nn.state.load_state_dict(model, nn.state.safe_load(str(file)))
    except DataError as error:
        failed.append(error)
    assert "weights.safetensors" in str(failed[0])
    failed.clear()
    assert state() == before
    assert model.weight.tolist() == values


def test_what_found_no_room_does_not_outlive_its_error() -> None:
    """Otherwise it is still there to be computed, from the old value, when memory is written. What
    is as long as this is written in place.
    """
    x = filled(1, (1 << 18) + 8)
    with room_for(0):
        with contextlib.suppress(OutOfMemoryError):
            (x[0] + Tensor.rand(N)).realize()
        x.assign(x + 1)
        x.realize()
    assert x[0].item() == 2


def test_an_assignment_waits_for_room_and_is_done_once() -> None:
    x, y = filled(1), filled(2)
    x.assign(y)
    x.assign(x + 1)
    for _ in range(2):
        with room_for(0), pytest.raises(OutOfMemoryError):
            (x * Tensor.rand(N)).realize()
    assert (x[0].item(), y[0].item()) == (3, 2)
