"""Times without collections of garbage overlap, and leave the process as it was."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from tilegrad.base.collection import make_room, no_collection


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if was_enabled else gc.disable)()


def in_a_thread() -> tuple[threading.Event, threading.Thread]:
    """A thread that is inside, and what lets it leave."""
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with no_collection():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    return leave, thread


def test_the_last_of_several_threads_lets_garbage_be_collected_again() -> None:
    gc.enable()
    leave, thread = in_a_thread()
    with no_collection():
        leave.set()
        thread.join()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_one_that_begins_while_another_is_inside_ends_after_it() -> None:
    gc.enable()
    with no_collection():
        leave, thread = in_a_thread()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_where_none_was_collected_before_none_is_afterwards() -> None:
    gc.disable()
    with no_collection(), no_collection():
        pass
    assert not gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not() -> None:
    gc.enable()
    leave, thread = in_a_thread()
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_come_and_go_leave_it_on() -> None:
    """The switch was left off where a thread turned it off after another had turned it on again."""
    gc.enable()

    def come_and_go() -> None:
        for _ in range(300):
            with no_collection():
                assert not gc.isenabled()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


def test_room_for_the_objects_of_a_step() -> None:
    gc.set_threshold(700, 10, 10)
    make_room(5000)
    assert gc.get_threshold() == (5000, 10, 10)
    make_room(300)
    assert gc.get_threshold() == (5000, 10, 10)
    make_room(9000)
    assert gc.get_threshold() == (9000, 10, 10)
    make_room(1 << 40)
    assert gc.get_threshold()[0] <= 1 << 17


def test_a_threshold_of_the_user_stays() -> None:
    for young in (0, 800, 1234):
        gc.set_threshold(young, 10, 10)
        make_room(5000)
        assert gc.get_threshold() == (young, 10, 10)
