"""Many small tensors in memory are joined by a copy: the values are NumPy's, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close
from tilegrad import Context, Tensor, dtypes, jit
from tilegrad.base.trace import counters


def _parts(random: np.random.Generator, count: int) -> list[tuple[Tensor, Any]]:
    """Tensors of shape (2, 3), made in every way, beside arrays of the same values."""
    table = random.normal(size=(9, 2, 3)).astype(np.float32)
    held = Tensor(table).realize()
    wide = random.normal(size=(3, 2)).astype(np.float32)
    found: list[tuple[Tensor, Any]] = []
    for number in range(count):
        array = random.normal(size=(2, 3)).astype(np.float32)
        match number % 8:
            case 0:
                found.append((Tensor(array), array))
            case 1:
                found.append((Tensor(array).realize(), array))
            case 2:
                found.append((held[number % 9], table[number % 9]))
            case 3:
                found.append((Tensor(wide).T, wide.T))
            case 4:
                found.append((Tensor.full((2, 3), 1.5), np.full((2, 3), 1.5, np.float32)))
            case 5:
                found.append((Tensor(array.tolist()), array))
            case 6:
                found.append((Tensor(array).flip(1).detach(), array[:, ::-1]))
            case _:
                found.append((Tensor(array) * 2 + 1, array * 2 + 1))
    order = random.permutation(count)
    return [found[at] for at in order]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
def test_parts_made_in_every_way(seed: int, dim: int) -> None:
    parts = _parts(np.random.default_rng(seed), 5 + 7 * seed)
    tensors, arrays = [each for each, _ in parts], [array for _, array in parts]
    close(Tensor.stack(tensors, dim=dim), np.stack(arrays, dim))
    if -2 <= dim < 2:
        close(Tensor.cat(tensors, dim=dim), np.concatenate(arrays, dim))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_elements_keep_their_bits(dtype: str) -> None:
    rows = [Tensor([number, 0, number + 1]).cast(dtype).realize() for number in range(5)]
    joined = rows[0].cat(*rows[1:])
    assert joined.dtype.name == dtype
    wanted = [value for number in range(5) for value in (number, 0, number + 1)]
    as_bool = [bool(value) for value in wanted]
    assert joined.tolist() == (as_bool if dtype == "bool" else wanted)


def test_what_is_written_later_changes_no_join() -> None:
    rows = [Tensor(np.full(3, number, np.float32)).realize() for number in range(5)]
    joined = Tensor.stack(rows)
    rows[1].assign(rows[1] + 10)
    rows[2][1] = 7
    rows[3] += 1
    close(joined, np.repeat(np.arange(5, dtype=np.float32)[:, None], 3, 1))
    joined[0] = 5
    close(rows[0], np.zeros(3))


def test_what_was_written_before_is_in_it() -> None:
    base = Tensor(np.zeros((4, 3), np.float32)).realize()
    rows = [base[at] for at in range(4)]
    base[1] = 5
    rows[2].assign(Tensor.full((3,), 8.0))
    other = base.detach()
    other += 1
    close(Tensor.stack(rows), np.array([[1.0] * 3, [6.0] * 3, [9.0] * 3, [1.0] * 3]))


def test_gradients_go_to_the_parts() -> None:
    rows = [Tensor(np.full(3, number, np.float32), requires_grad=True) for number in range(5)]
    (Tensor.stack(rows) ** 2).sum().backward()
    for number, row in enumerate(rows):
        assert row.grad is not None
        close(row.grad, np.full(3, 2.0 * number))
    mixed = [Tensor([1.0, 2.0]).realize() for _ in range(4)]
    last = Tensor([3.0, 4.0], requires_grad=True)
    (mixed[0].cat(*mixed[1:], last) ** 2).sum().backward()
    assert last.grad is not None
    close(last.grad, np.array([6.0, 8.0]))


def test_a_join_that_became_a_leaf_has_its_gradient() -> None:
    rows = [Tensor(np.full(2, number, np.float32)).realize() for number in range(4)]
    joined = Tensor.stack(rows).requires_grad_()
    (joined**2).sum().backward()
    assert joined.grad is not None
    close(joined.grad, 2.0 * np.repeat(np.arange(4)[:, None], 2, 1))


def test_a_captured_join_reads_its_inputs_anew() -> None:
    @jit
    def joined(rows: list[Tensor]) -> Tensor:
        return Tensor.stack(rows).realize()

    for start in range(5):
        rows = [Tensor(np.full(2, start + at, np.float32)).realize() for at in range(5)]
        close(joined(rows), np.repeat(np.arange(start, start + 5.0)[:, None], 2, 1))


def test_errors_are_those_of_fewer_parts() -> None:
    rows = [Tensor([1.0, 2.0]).realize() for _ in range(5)]
    for wrong in ([*rows, Tensor([1.0])], [*rows, Tensor([[1.0, 2.0]])]):
        with pytest.raises(Exception, match="stack: shapes differ"):
            Tensor.stack(wrong)
    with pytest.raises(Exception, match=r"axis|dim"):
        Tensor.stack(rows, dim=3)
    assert Tensor.stack([*rows, Tensor([1, 2])]).dtype is dtypes.float32


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_parts_without_elements(shape: tuple[int, ...]) -> None:
    rows = [Tensor(np.ones(shape, np.float32)) for _ in range(5)]
    assert Tensor.stack(rows).shape == (5, *shape)
    assert rows[0].cat(*rows[1:]).shape == (5 * shape[0], *shape[1:])


def test_a_batch_of_a_replay_memory_compiles_once() -> None:
    random = np.random.default_rng(3)
    memory = [random.normal(size=(1, 4)).astype(np.float32) for _ in range(20)]
    weight = random.normal(size=(4, 2)).astype(np.float32)
    held, matrix = [Tensor(each) for each in memory], Tensor(weight)
    with Context(TEMPLATES=1, SEGMENTS=1):
        for step in range(12):
            chosen = random.integers(0, len(memory), 16)
            newest = random.normal(size=(1, 4)).astype(np.float32)
            memory.append(2 * newest)
            held.append(Tensor(newest) * 2)
            batch = Tensor.cat([*[held[at] for at in chosen], held[-1]])
            wanted = np.concatenate([*[memory[at] for at in chosen], memory[-1]]) @ weight
            before = counters.schedules
            close((batch @ matrix).sum(1), wanted.sum(1), 1e-5)
            assert step < 3 or counters.schedules == before
