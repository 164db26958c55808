"""Who needs memory that is about to be overwritten is found by an index: in-place work costs the
same however many tensors live, and every old value that somebody holds is still right.
"""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.trace import counters
from tilegrad.tensor.handle.living import holders_of, live


def _visits_of_steps(alive: int) -> int:
    """What the walks of ten in-place steps visit while `alive` other tensors live."""
    held = [Tensor([float(number)]).realize() for number in range(alive)]
    pending = [each * 2 for each in held]
    z, x = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 1.0]).realize()
    # The first ones are planned.
    for _ in range(8):
        z += x
        z.realize()
    before = counters.visits
    for _ in range(10):
        z += x
        z.realize()
    visits = counters.visits - before
    assert z.tolist() == [19.0, 20.0]
    assert pending[-1].item() == 2 * (alive - 1)
    return visits


def test_in_place_work_visits_no_more_where_more_tensors_live() -> None:
    # Less than one for ten tensors, in one step: nobody goes through those alive.
    assert max(_visits_of_steps(5000), _visits_of_steps(10)) <= 200


def test_a_pending_value_keeps_what_it_read_whenever_it_was_made() -> None:
    x = Tensor([1.0, 2.0]).realize()
    early = x * 10
    view = x[1:]
    for step in range(4):
        late = x + step
        x += 1
        x.realize()
        assert late.tolist() == [1.0 + 2 * step, 2.0 + 2 * step]
    assert early.tolist() == [10.0, 20.0]
    assert view.tolist() == [6.0]
    assert x.tolist() == [5.0, 6.0]


def test_a_value_in_memory_that_is_overwritten_is_computed_again_for_who_stands_on_it() -> None:
    x = Tensor([1.0, 2.0]).realize()
    doubled = x * 2
    above = doubled + 1
    other = Tensor([0.0, 0.0]).realize()
    other += 1
    # Puts the graph of `above` into the index, before `doubled` is memory.
    other.realize()
    doubled.realize()
    doubled += 100
    doubled.realize()
    assert above.tolist() == [3.0, 5.0]
    assert doubled.tolist() == [102.0, 104.0]


def test_a_view_follows_windows_that_are_written_step_by_step() -> None:
    x = Tensor([0.0, 0.0, 0.0, 0.0]).realize()
    views = [x[place : place + 2] for place in range(3)]
    expected = np.zeros(4)
    for step in range(6):
        x[step % 4] = float(step + 1)
        expected[step % 4] = step + 1
        x.realize()
        for place, view in enumerate(views):
            assert view.tolist() == expected[place : place + 2].tolist()


def test_random_programs_of_reads_and_writes_agree_with_numpy() -> None:
    random = np.random.default_rng(5)
    for _ in range(12):
        ours = [Tensor([float(n), float(n + 1)]).realize() for n in range(3)]
        theirs = [np.array([n, n + 1.0]) for n in range(3)]
        made: list[tuple[Tensor, np.ndarray]] = []
        for _ in range(25):
            a, b = (int(number) for number in random.integers(0, 3, 2))
            kind = int(random.integers(0, 6))
            if kind == 0:
                ours[a] += ours[b] * 0.5
                theirs[a] = theirs[a] + theirs[b] * 0.5
            elif kind == 1:
                made.append((ours[a] - ours[b], theirs[a] - theirs[b]))
            elif kind == 2 and made:
                value, expected = made[int(random.integers(0, len(made)))]
                made.append((value * ours[a], expected * theirs[a]))
            elif kind == 3 and made:
                value, expected = made[int(random.integers(0, len(made)))]
                assert value.numpy() == pytest.approx(expected, rel=1e-4)
            elif kind == 4 and made:
                made.pop(int(random.integers(0, len(made))))
            else:
                assert ours[a].numpy() == pytest.approx(theirs[a], rel=1e-4)
        for value, expected in made:
            assert value.numpy() == pytest.approx(expected, rel=1e-4)


def test_a_node_knows_who_holds_it_and_nobody_who_has_gone() -> None:
    x = Tensor([1.0, 2.0]).realize()
    same = [(x * 3) for _ in range(40)]
    # Who asks for all has them with their nodes.
    assert len(list(live())) > len(same)
    node = same[0].uop
    assert {id(each) for each in holders_of(node)} == {id(each) for each in same}
    same[0].realize()
    assert id(same[0]) not in {id(each) for each in holders_of(node)}
    del same[1:]
    gc.collect()
    assert holders_of(node) == []


def test_tensors_made_in_many_threads_are_all_held() -> None:
    x = Tensor([1.0, 2.0]).realize()
    found: list[list[Tensor]] = [[] for _ in range(8)]

    def make(out: list[Tensor]) -> None:
        out += [x * 7 for _ in range(200)]

    threads = [threading.Thread(target=make, args=(out,)) for out in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everyone = {id(tensor) for out in found for tensor in out}
    assert everyone <= {id(tensor) for tensor in live()}
    assert everyone == {id(tensor) for tensor in holders_of(found[0][0].uop)}
