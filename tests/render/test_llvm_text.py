"""The text for LLVM holds what the code needs and no more: LLVM's time goes with its lines."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Tensor
from tilegrad.device.processors import AARCH64, Processor
from tilegrad.engine.program.stages import to_program
from tilegrad.render.llvm import LLVMRenderer, with_opaque_counters

# Its registers have 64 bytes on any host.
WIDE: Processor = AARCH64["sve512"]


def text_of(tensor: Tensor) -> str:
    """The text of the one kernel behind `tensor`."""
    shaped, program = to_program(kernel_of(tensor, WIDE.target), WIDE.target)
    return LLVMRenderer(WIDE.target.vector_bytes).render(shaped.function, program)


def convolution() -> Tensor:
    """A kernel that packs an operand and unrolls a tile."""
    x, w = Tensor.empty(2, 16, 12, 12).realize(), Tensor.empty(32, 16, 3, 3).realize()
    return x.conv2d(w, padding=1).relu()


def transposed() -> Tensor:
    return Tensor.empty(64, 64).realize().T.contiguous()


@pytest.mark.parametrize("make", [convolution, transposed])
def test_every_value_is_used(make: object) -> None:
    text = text_of(make())  # type: ignore[operator]
    seen = Counter(re.findall(r"%[\w.]+", text))
    made = re.findall(r"^  (%[\w.]+) = ", text, re.MULTILINE)
    assert [name for name in made if seen[name] == 1] == []


def test_an_opaque_counter_is_another_name_and_nothing_else() -> None:
    text = text_of(convolution())
    made = with_opaque_counters(text)
    counters = re.findall(r"^  %i(\d+) = phi", text, re.MULTILINE)
    assert len(counters) > 2
    seen = Counter(re.findall(r"%[\w.]+", made))
    assert all(seen[f"%p{number}"] == 2 for number in counters)
    assert re.findall(r"= freeze i\d+ %p(\d+)\n", made) == counters
    assert re.sub(r"  %i\d+ = freeze .*\n", "", made).replace("%p", "%i") == text


def test_a_block_computes_an_address_once() -> None:
    for block in re.split(r"^\w+:$", text_of(convolution()), flags=re.MULTILINE):
        made = re.findall(r"= (getelementptr .*)$", block, re.MULTILINE)
        assert [each for each, count in Counter(made).items() if count > 1] == []


def test_a_transpose_is_one_shuffle_for_each_merged_vector() -> None:
    """A tile of 16 x 16 is merged in four steps of 16 vectors."""
    text = text_of(transposed())
    assert not re.search(r"select <\d+ x i1> <", text)
    tiles = text.count(" = load <16 x float>") // 16
    assert text.count("shufflevector") == tiles * 64
