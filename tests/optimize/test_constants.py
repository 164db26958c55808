"""Constants of optimize/ and schedule/: each says its bench case or the limit that it is, and there
are no more of them than there were. Facts of the hardware stand in `Target`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file
    for folder in ("optimize", "schedule")
    for file in (ROOT / "tilegrad" / folder).rglob("*.py")
)
# No choice of speed: how Opts and kernels are printed, the bits of a set, a random generator.
NAMES = {"_RED", "_RANK", "VERSION", "_EXPANDED", "_ROTATIONS", "_PARITY"}
# Targets with blocks of lanes, whose constants `bench/gpu.py` times as a whole.
BLOCKS = {"heuristic_simt", "heuristic_units", "slices_on_units", "stage", "stage_shared"}
# May only become less: docs/model.md says what is wanted.
MOST_TUNED, MOST_OF_BLOCKS, MOST_LIMITS, MOST_LITERALS = 40, 50, 34, 65


class Constant(NamedTuple):
    """Numbers that one line at the head of a module names; `text` is the comment of its block."""

    module: str
    names: list[str]
    text: str

    @property
    def is_limit(self) -> bool:
        return re.search("# Limits of (compile time|a search)", self.text) is not None

    @property
    def is_of_blocks(self) -> bool:
        return self.module in BLOCKS or "bench/gpu.py" in self.text


def numbers(tree: ast.AST) -> list[float]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    ]


def constants(file: Path) -> Iterator[Constant]:
    text = file.read_text()
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or not numbers(node.value):
            continue
        names = [each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)]
        is_table = "PatternMatcher" in ast.unparse(node.value) or "UPat" in ast.unparse(node.value)
        if not names or not names[0].isupper() or is_table or names[0] in NAMES:
            continue
        first = node.lineno - 1
        while first and lines[first - 1].strip():
            first -= 1
        yield Constant(file.stem, names, "\n".join(lines[first : node.lineno]))


FOUND = [each for file in FILES for each in constants(file)]


def test_a_constant_names_its_bench_case_or_the_limit_that_it_is() -> None:
    for constant in FOUND:
        benches = re.findall(r"`(bench/\w+\.py)", constant.text)
        named = constant.is_limit or benches or constant.module in BLOCKS
        assert named, f"{constant.module}.{constant.names[0]}"
        assert all((ROOT / bench).exists() for bench in benches)


def test_there_are_no_more_constants_than_there_were() -> None:
    limits = sum(len(each.names) for each in FOUND if each.is_limit)
    blocks = sum(len(each.names) for each in FOUND if each.is_of_blocks)
    tuned = sum(len(each.names) for each in FOUND) - limits - blocks
    found = tuned, blocks, limits
    most = MOST_TUNED, MOST_OF_BLOCKS, MOST_LIMITS
    assert all(count <= limit for count, limit in zip(found, most, strict=True)), found


def test_no_more_numbers_stand_in_functions_than_there_were() -> None:
    """Of more than 4: smaller ones are positions of sources and halves."""
    found = 0
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found += sum(value > 4 or value != int(value) for value in numbers(node))
    assert found <= MOST_LITERALS, found


def test_no_file_but_target_knows_sizes_of_the_hardware() -> None:
    facts = re.compile(r"^_?(LINE|CACHE|PAGE|REGISTERS|LATENCY|PORTS|BANKS)\w* = ", re.M)
    assert not [file.name for file in FILES if facts.search(file.read_text())]
