"""Weights packed once: train, pack, assign, infer, and whatever else writes to memory."""

from __future__ import annotations

import ctypes
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor, dtypes, jit, nn
from tilegrad.base.config import config
from tilegrad.base.errors import OutOfMemoryError
from tilegrad.capture import packs
from tilegrad.device.cpu import cpu_target
from tilegrad.io import safe_load, safe_save
from tilegrad.nn.state import get_parameters, load_state_dict
from tilegrad.runtime.buffer import Buffer, LRUAllocator

RANDOM = np.random.default_rng(9)
ROWS, IN, OUT = 24, 160, 192


def weights(seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((OUT, IN), np.float32)


def stored(array: Any) -> Tensor:
    """In memory of its own."""
    return Tensor(array).clone().realize()


X = RANDOM.standard_normal((ROWS, IN), np.float32)
GIVEN = stored(X)


def check(result: Tensor, weight: Any, x: Any = X) -> None:
    expected = x.astype(np.float64) @ np.asarray(weight, np.float64).T
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


def program(function: Any) -> Any:
    """Of the last capture."""
    return function._entries[0][1].program


def packed(function: Any, *args: Any, count: int = 1) -> Any:
    """The function, captured and replayed once; it has packed `count` operands."""
    for _ in range(3):
        function(*args)
    assert len(program(function).packs) == count
    return function


def repacked(function: Any) -> int:
    """How often a capture has made its copies anew."""
    found: int = program(function)._repacked
    return found


def test_train_pack_assign_infer() -> None:
    layer = nn.Linear(IN, OUT, bias=False)
    optimizer = nn.optim.SGD(get_parameters(layer), lr=0.01)
    target = stored(RANDOM.standard_normal((ROWS, OUT), np.float32))

    @jit
    def step() -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = (layer(GIVEN) - target).square().mean().backward()
            optimizer.step()
        return loss

    infer = jit(lambda: layer(GIVEN))
    for _ in range(3):
        step()
    assert not program(step).packs, "its weights change at each call"
    packed(infer)
    check(infer(), layer.weight.numpy())
    assert repacked(infer) == 1
    step()
    for _ in range(2):
        check(infer(), layer.weight.numpy())
    assert repacked(infer) == 2
    layer.weight.assign(stored(weights(1)))
    check(infer(), weights(1))
    layer.weight.assign(Tensor(weights(3)))
    check(infer(), weights(3))
    load_state_dict(layer, {"weight": stored(weights(2))})
    check(infer(), weights(2))
    step()
    check(infer(), layer.weight.numpy())
    assert infer.captures == 1 and len(program(infer).packs) == 1


def test_a_plain_training_step_between_captured_calls() -> None:
    layer = nn.Linear(IN, OUT, bias=False)
    optimizer = nn.optim.Adam(get_parameters(layer), lr=0.1)
    infer = packed(jit(lambda x: layer(x)), GIVEN)
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            layer(GIVEN).square().mean().backward()
            optimizer.step()
            check(infer(GIVEN), layer.weight.numpy())


def test_writes_of_parts() -> None:
    weight = stored(weights())
    infer = packed(jit(lambda x: x @ weight.T), GIVEN)
    weight[3:5] = 7.0
    changed = weights()
    changed[3:5] = 7.0
    check(infer(GIVEN), changed)
    column = weight[:, 2]
    column.assign(Tensor.zeros(OUT))
    changed[:, 2] = 0
    check(infer(GIVEN), changed)


def test_state_that_is_written_beside_weights() -> None:
    """What a replay writes itself does not make it look through its copies."""
    weight, total = stored(weights()), stored(np.zeros((ROWS, OUT), np.float32))

    def run(x: Tensor) -> Tensor:
        return total.assign(total + x @ weight.T).realize()

    infer = packed(jit(run), GIVEN)
    before = Buffer.writes
    infer(GIVEN)
    assert Buffer.writes == before and repacked(infer) == 1
    check(total, 4 * weights())


def test_captures_share_a_copy() -> None:
    weight = stored(weights())
    first = packed(jit(lambda x: x @ weight.T), GIVEN)
    second = packed(jit(lambda x: (x @ weight.T).relu()), GIVEN)
    one, other = program(first).packs[0], program(second).packs[0]
    assert one.copy is other.copy
    weight.assign(stored(weights(1)))
    expected = np.maximum(X.astype(np.float64) @ weights(1).T, 0)
    np.testing.assert_allclose(second(GIVEN).numpy(), expected, rtol=1e-4, atol=1e-4)
    # The second call made it, and the first finds it as it should be.
    check(first(GIVEN), weights(1))
    assert repacked(first) + repacked(second) == 2


def test_arguments_are_packed_at_each_call() -> None:
    product = jit(lambda x, weight: x @ weight.T)
    for seed in range(5):
        check(product(GIVEN, stored(weights(seed))), weights(seed))
    assert not program(product).packs
    # Nor is state that is an argument too.
    weight = stored(weights())
    twice = jit(lambda x: x @ weight.T)
    for _ in range(3):
        twice(weight)
    assert not program(twice).packs
    check(twice(weight), weights(), weights())


def test_state_that_is_another_object_at_each_call() -> None:
    layer = nn.Linear(IN, OUT, bias=False)
    layer.weight = stored(weights())
    infer = packed(jit(lambda: layer(GIVEN)))
    for seed in (1, 2, 1, 3):
        layer.weight = stored(weights(seed))
        check(infer(), weights(seed))
    assert infer.captures == 1


def test_what_is_written_again_and_again_is_packed_by_the_kernels() -> None:
    weight = stored(weights())
    infer = packed(jit(lambda x: x @ weight.T), GIVEN)
    for seed in range(18):
        weight.assign(stored(weights(seed))).realize()
        check(infer(GIVEN), weights(seed))
    assert not program(infer).packs
    check(infer(GIVEN), weights(17))


def test_what_changed_since_the_last_call_is_not_packed() -> None:
    weight = stored(weights())
    infer = jit(lambda x: x @ weight.T)
    infer(GIVEN)
    weight.assign(stored(weights(1))).realize()
    check(infer(GIVEN), weights(1))
    assert not program(infer).packs


@pytest.mark.usefixtures("nothing_known")
def test_copies_are_counted_and_go_with_the_capture() -> None:
    weight = stored(weights())
    infer = packed(jit(lambda x: x @ weight.T), GIVEN)
    size = program(infer).packed_bytes
    assert size >= weights().nbytes
    assert f"packed beforehand: 1 operands, {size} bytes" in infer.explain()
    assert infer._entries[0][1].nbytes >= size
    memory = weakref.ref(program(infer).packs[0].copy.buffer)
    before = GlobalCounters.mem_used
    infer.reset()
    gc.collect()
    assert memory() is None and GlobalCounters.mem_used <= before - size


def test_weights_are_freed() -> None:
    layer = nn.Linear(IN, OUT, bias=False)
    layer.weight = stored(weights())
    infer = packed(jit(lambda: layer(GIVEN)))
    memory = weakref.ref(program(infer)._buffers[program(infer).packs[0].source])
    copy = weakref.ref(program(infer).packs[0].copy)
    layer.weight = stored(weights(1))
    check(infer(), weights(1))
    gc.collect()
    assert memory() is None and copy() is None


def test_where_there_is_no_memory_kernels_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = stored(weights())
    infer = jit(lambda x: x @ weight.T)
    for _ in range(2):
        infer(GIVEN)
    size = program(infer).packed_bytes
    allocate = LRUAllocator.allocate

    def full(self: LRUAllocator, nbytes: int) -> Any:
        if nbytes == size:
            raise OutOfMemoryError("allocate: no memory")
        return allocate(self, nbytes)

    monkeypatch.setattr(LRUAllocator, "allocate", full)
    check(infer(GIVEN), weights())
    assert not program(infer).packs
    check(infer(GIVEN), weights())


def test_copies_take_a_part_of_the_machine_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, other = stored(weights()), stored(weights(1))
    infer = jit(lambda x: (x @ weight.T).realize() + (x @ other.T).realize())
    taken = sum(each.buffer.nbytes for found in packs._copies.values() for each in found.values())
    monkeypatch.setattr(packs, "machine_bytes", lambda: 12 * weights().nbytes + 8 * taken)
    for _ in range(3):
        check(infer(GIVEN), weights() + weights(1))
    assert len(program(infer).packs) == 1


def test_memory_that_others_may_write() -> None:
    """Takers must not write to it, but what they could write is not taken as it was."""
    weight = stored(weights())
    infer = packed(jit(lambda x: x @ weight.T), GIVEN)
    taken = np.from_dlpack(weight)
    changed = weights(1)
    ctypes.memmove(taken.ctypes.data, changed.ctypes.data, changed.nbytes)
    check(infer(GIVEN), changed)
    changed = weights(2)
    ctypes.memmove(taken.ctypes.data, changed.ctypes.data, changed.nbytes)
    check(infer(GIVEN), changed)
    theirs = weights(3)
    wrapped = Tensor.from_dlpack(theirs)
    infer = jit(lambda x: x @ wrapped.T)
    for _ in range(3):
        check(infer(GIVEN), theirs)
    assert not program(infer).packs


def test_weights_in_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "weights.safetensors")
    safe_save({"weight": stored(weights())}, path)
    weight = safe_load(path)["weight"]
    if weight.device != GIVEN.device:
        weight = weight.to(GIVEN.device)
    infer = jit(lambda x: x @ weight.T)
    for _ in range(3):
        check(infer(GIVEN), weights())


def test_short_floats() -> None:
    """Packed where the processor multiplies them; elsewhere each is converted as it is read."""
    units = cpu_target(config.CPU_TARGET).matrix_units
    count = int(any(unit.dtype_in is dtypes.bfloat16 for unit in units))
    weight, given = stored(weights()).cast("bfloat16").realize(), GIVEN.cast("bfloat16").realize()
    infer = packed(jit(lambda x: x @ weight.T), given, count=count)
    for scale in (1, 2):
        expected = given.float().numpy().astype(np.float64) @ weight.float().numpy().T
        found = infer(given).float().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-1 * scale)
        weight.assign(weight * 2)
