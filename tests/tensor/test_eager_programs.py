"""Random eager loops: each value is that of NumPy bit for bit, with and without segments."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import tilegrad.torch
from tests.tensor.eager_programs import Program
from tilegrad import Context, Tensor
from tilegrad.engine.run import ready
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import segments


@pytest.fixture(autouse=True, params=["often", "once"])
def templates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls wait, whatever switches the tests run with; code for what comes again is written when
    it has come often, or at once.
    """
    if request.param == "once":
        monkeypatch.setattr(segments, "_OFTEN", 1)
        monkeypatch.setattr(ready, "_OFTEN", 1)
    with Context(TEMPLATES=1):
        yield


def run(seed: int, mode: int) -> Program:
    this_thread.pool.end()
    this_thread.pool.count_hit()
    with Context(SEGMENTS=mode):
        return Program(seed).run()


@pytest.mark.parametrize("seed", range(5_000, 5_010))
def test_a_random_program_has_the_values_of_numpy(seed: int) -> None:
    run(seed, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(0, 400, 25))
def test_many_random_programs_have_the_same_bits_with_and_without_segments(start: int) -> None:
    for seed in range(start, start + 25):
        assert run(seed, 1).read == run(seed, 0).read, seed


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(400, 600, 25))
def test_segments_of_random_programs_agree_with_their_nodes(start: int) -> None:
    for seed in range(start, start + 25):
        run(seed, 2)


@pytest.mark.nightly
def test_random_programs_of_the_namespace_of_pytorch() -> None:
    for seed in range(600, 640):
        with Context(SEGMENTS=1):
            Program(seed, tilegrad.torch.tensor).run()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_computes_what_waits() -> None:
    with Context(SEGMENTS=1):
        x = Tensor([1.0, 2.0]).realize()
        for _ in range(8):
            (x * 3 + 1).sum().item()
        y = x * 3 + 1
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if y.tolist() == [4.0, 7.0] and (y * 2).sum().item() == 22.0 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert y.tolist() == [4.0, 7.0]
