"""Random words are the published threefry-2x32, and do not depend on what is computed when."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import RandArg
from tilegrad.ir.interpret import threefry
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.schedule.random_words import random_variables, random_word
from tilegrad.tensor.indexing.generator import generator

# Counter, key, result: the known answers that Random123 publishes for 20 rounds.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.fixture(autouse=True)
def _own_stream() -> Iterator[None]:
    seed, drawn = generator.seed, generator.drawn
    yield
    generator.seed, generator.drawn = seed, drawn


def word_of(seed: int, offset: int, position: int) -> int:
    """What the kernel's arithmetic gives for one element, with its launch-time values put in."""
    variables = random_variables(0)
    values = (seed & 0xFFFFFFFF, seed >> 32, offset)
    given = {
        variable: UOp.const(variable.dtype, value)
        for variable, value in zip(variables, values, strict=True)
    }
    word = random_word(RandArg((1,), 0, 0, "CPU"), UOp.const(dtypes.index, position))
    found = simplify(word.substitute(given))
    assert found.op is Ops.CONST
    return int(found.arg)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(
    counter: tuple[int, int], key: tuple[int, int], result: tuple[int, int]
) -> None:
    assert threefry(counter, key) == result
    seed = key[0] | key[1] << 32
    first = 2 * (counter[0] | counter[1] << 32)
    assert (word_of(seed, 0, first), word_of(seed, 0, first + 1)) == result


def test_an_offset_is_a_position() -> None:
    assert word_of(7, 1000, 1) == word_of(7, 0, 1001) == word_of(7, 1001, 0)


def test_known_answers_come_from_a_device() -> None:
    Tensor.manual_seed(0)
    assert Tensor.random_bits(2).tolist() == list(KNOWN[0][2])


@pytest.mark.parametrize("start", [0, 1, 2**33 - 3, 2**40 + 1, 2**61])
def test_a_device_counts_in_64_bits(start: int) -> None:
    """The counter's low word overflows into its high word, for even and odd first elements."""
    low, high = KNOWN[2][1]
    generator.seed, generator.drawn = low | high << 32, start
    expected = []
    for place in range(start, start + 7):
        block, half = divmod(place, 2)
        expected.append(threefry((block & 0xFFFFFFFF, block >> 32), (low, high))[half])
    assert Tensor.random_bits(7).tolist() == expected


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_numbers_do_not_depend_on_the_order_of_computation(order: tuple[int, ...]) -> None:
    sizes = (3, 4, 5)
    Tensor.manual_seed(11)
    words = Tensor.random_bits(sum(sizes)).tolist()
    Tensor.manual_seed(11)
    draws = [Tensor.random_bits(size) for size in sizes]
    found = {place: draws[place].tolist() for place in order}
    assert found[0] + found[1] + found[2] == words


def test_numbers_do_not_depend_on_what_shares_a_kernel() -> None:
    def drawn() -> tuple[Tensor, Tensor]:
        Tensor.manual_seed(5)
        return Tensor.rand(4, 6), Tensor.rand(4, 6)

    a, b = drawn()
    first, second = a.tolist(), b.tolist()
    a, b = drawn()
    both = (a + b).numpy()
    assert (both == np.float32(first) + np.float32(second)).all()
    a, b = drawn()
    Tensor.realize(b, a)
    assert (a.tolist(), b.tolist()) == (first, second)
    a, b = drawn()
    assert b[1:3, ::2].tolist() == [row[::2] for row in second[1:3]]
    assert a.T.contiguous().T.tolist() == first
    with Context(NOOPT=1):
        a, b = drawn()
        assert (b.tolist(), a.tolist()) == (second, first)


def test_a_draw_that_is_used_twice_is_one_draw() -> None:
    x = Tensor.rand(100)
    assert (x - x).tolist() == [0.0] * 100
    later = x * 2
    values = x.tolist()
    assert later.tolist() == [2 * value for value in values]
    assert x.tolist() == values


def test_draws_of_one_form_are_one_kernel() -> None:
    """Each launch has the numbers of its own draw, whichever the kernel was made for."""
    schedule = plan(Tensor.rand(6), Tensor.rand(6) + Tensor.rand(6), Tensor.rand(6))
    first, both, last = kernels(schedule)
    assert first.ast is last.ast
    assert [item.draws for item in (first, both, last)] == [(0,), (1, 2), (3,)]
    Tensor.manual_seed(11)
    apart = [Tensor.rand(6).tolist() for _ in range(4)]
    Tensor.manual_seed(11)
    a, b, c, d = [Tensor.rand(6) for _ in range(4)]
    total = b + c
    Tensor.realize(a, total, d)
    assert [a.tolist(), d.tolist()] == [apart[0], apart[3]]
    np.testing.assert_allclose(
        total.numpy(), np.float32(apart[1]) + np.float32(apart[2]), rtol=1e-6
    )


def test_assigned_draws_stay_apart() -> None:
    """Weights that are drawn into memory are as many launches of one kernel."""
    weights = [Tensor.empty(5).realize() for _ in range(3)]
    found = kernels(plan(*[each.assign(Tensor.rand(5)) for each in weights]))
    assert len(found) == 3
    assert len({item.ast for item in found}) == 1
    Tensor.manual_seed(12)
    Tensor.realize(*[each.assign(Tensor.rand(5)) for each in weights])
    Tensor.manual_seed(12)
    assert [each.tolist() for each in weights] == [Tensor.rand(5).tolist() for _ in weights]
