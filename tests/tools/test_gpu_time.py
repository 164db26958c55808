"""Times from counts: which limit binds, against arithmetic with the published rates."""

from __future__ import annotations

import pytest

from tests.optimize.kernels import buffer, kernel, program, reduce, softmax
from tilegrad.base.errors import ConfigError
from tilegrad.ir.op import Ops
from tilegrad.tools.gpu_counts import Counts
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import RATES, predicted


def test_a_stream_takes_its_bytes_by_the_bandwidth() -> None:
    found = predicted(count(program(kernel(buffer(0, 1 << 24) + 1.0), None), 1), "sm_80")
    assert found.binds == "memory"
    # 64 MiB in and out, at 1,555 GB/s (NVIDIA A100 white paper).
    assert found.limits["memory"] == pytest.approx(2 * (1 << 26) / 1.555e12)


def test_a_row_that_is_read_once_takes_no_longer_than_a_copy() -> None:
    found = predicted(count(program(kernel(softmax(buffer(0, 16384, 1024))), None), 1), "sm_90a")
    assert found.binds == "memory"
    assert found.limits["memory"] == pytest.approx(2 * (1 << 26) / 3.35e12)


def test_few_blocks_wait_for_memory() -> None:
    found = predicted(count(program(kernel(reduce(Ops.ADD, buffer(0, 4096), 0)), None)), "sm_80")
    assert found.binds == "latency"


def test_products_on_matrix_units_take_their_rate() -> None:
    """A warp's instruction is 2,048 multiply-adds, and 108 multiprocessors do 1,024 a cycle."""
    counts = Counts((1, 1080), instructions={"matrix": 1000}, lanes=256)
    found = predicted(counts, "sm_80")
    products = 1080 * 8 * 1000 * 2048
    assert found.binds == "matrix"
    assert found.limits["matrix"] == pytest.approx(products / (108 * 1024 * 1.41e9))


def test_powers_of_two_take_the_units_for_them() -> None:
    """16 lanes of a multiprocessor, so a warp's instruction takes two of its cycles."""
    counts = Counts((1, 1080), instructions={"function": 1000}, lanes=256)
    found = predicted(counts, "sm_90a")
    assert found.binds == "functions"
    assert found.limits["functions"] == pytest.approx(1080 * 8 * 1000 * 2 / (132 * 1.755e9))


def test_what_blocks_read_again_comes_from_the_cache() -> None:
    """1,080 blocks that read the same 64 KiB: memory gives it once."""
    counts = Counts((1, 1080), sectors=2048, buffer_bytes=1 << 16, lanes=256)
    found = predicted(counts, "sm_80")
    assert found.binds == "cache"
    assert found.limits["memory"] == pytest.approx((1 << 16) / 1.555e12)
    assert found.limits["cache"] == pytest.approx(1080 * (1 << 16) / (5120 * 1.41e9))


def test_the_rates_are_those_of_the_data_sheets() -> None:
    """Peaks: 19.5 and 67 TFLOP/s of float32, 312 and 989 of float16 on matrix units."""
    for arch, floats, products in (("sm_80", 19.5e12, 312e12), ("sm_90", 67e12, 989e12)):
        rates = RATES[arch]
        cycles = rates.multiprocessors * rates.clock
        assert 2 * rates.floats * cycles == pytest.approx(floats, rel=0.12)
        assert 2 * rates.products * cycles == pytest.approx(products, rel=0.05)


def test_an_architecture_without_rates() -> None:
    with pytest.raises(ConfigError, match="no rates are known of sm_75"):
        predicted(Counts((1, 1)), "sm_75")
