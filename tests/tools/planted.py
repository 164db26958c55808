# ruff: noqa: E501 - a table: one plant an entry
"""Bugs planted on purpose in a copy of the package, which the fuzz has to find.

python -m tests.tools.planted              all of them
python -m tests.tools.planted NAME ...     some, by name

What was found is written to docs/planted.md; a run of some keeps the rows of the others.

Each is a text of one file and what stands there instead: in the algebra of views, the rules, the
schedule, the lowering, the code of the CPU, gradients, captures and methods. A bug counts as found
if the file that the fuzz made of it fails with the bug and passes without.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tilegrad
from tilegrad.tools.fuzz.loop import Child, Found, fuzz

__all__ = ["PLANTED", "Plant", "look_for", "planted"]

# Programs, after which a bug counts as not found.
MOST = 4000
PACKAGE = Path(tilegrad.__file__).parent
# Programs until a bug was found, and the lines of its file; None: it was not.
Row = tuple[int, int] | None
_NOT_RUN, _NOT_FOUND = "not run yet", "not found"
PAGE = PACKAGE.parent / "docs" / "planted.md"


@dataclass(frozen=True)
class Plant:
    """`text` of `file` becomes `instead`; looked for in `modes`."""

    file: str
    text: str
    instead: str
    modes: Sequence[str] = ("eager", "NOOPT", "jit")


_LOOPS = ("short loops",)
PLANTED = {
    # ir: views and rules
    "a permuted view loses its mask": Plant("ir/view.py", "mask = None if self.mask is None else tuple(self.mask[axis] for axis in axes)", "mask = None"),
    "a flipped view begins one element later": Plant("ir/view.py", "offset = offset + strides[axis] * (size - 1)", "offset = offset + strides[axis] * size"),
    "a flipped view keeps its mask as it was": Plant("ir/view.py", "mask[axis] = (size - high, size - low)", "mask[axis] = (low, high)"),
    "a shrunk view forgets where its mask ends": Plant("ir/view.py", "smaller(high - start, extent)", "extent"),
    "(x // a) // b is x // (a + b)": Plant("ir/rules/division.py", "x // fold(c0 * c1), ", "x // fold(c0 + c1), "),
    "x % c is x where x may be c": Plant("ir/rules/division.py", "0 <= x.vmin and x.vmax < c0", "0 <= x.vmin and x.vmax <= c0"),
    "x // a < b is x < a * b - a": Plant("ir/rules/division.py", "x < fold(c0 * c1), ", "x < fold(c0 * c1 - c0), "),
    "x + a < b is x < b + a": Plant("ir/rules/division.py", 'Rule("move-const-lt",    (x + c0) < c1,          x < fold(c1 - c0))', 'Rule("move-const-lt",    (x + c0) < c1,          x < fold(c1 + c0))'),
    "x % 2 is 0": Plant("ir/rules/folding.py", "i % 1,                  0)", "i % 2,                  0)"),
    "x >> 1 is x": Plant("ir/rules/folding.py", "x >> 0,                 x)", "x >> 1,                 x)"),
    "the maximum begins at 0": Plant("ir/op.py", "identity=lambda d: d.min", "identity=lambda d: 0"),
    # schedule
    "padding has an element too many": Plant("schedule/kernel_graphs.py", "inside & (at < before + size)", "inside & (at < before + size + 1)"),
    "the gate of padding is dropped": Plant("schedule/kernel_graphs.py", "        return _or_zero(inside, (yield source, _under(tuple(moved), both), both))", "        return (yield source, _under(tuple(moved), both), both)"),
    "the last row of a table is outside": Plant("schedule/kernel_graphs.py", "(row < table.shape[0])", "(row < table.shape[0] - 1)"),
    "the second axis of a reshape is not wrapped": Plant("schedule/kernel_graphs.py", "at if axis == 0 else at % size", "at if axis <= 1 else at % size"),
    "who writes runs before who reads": Plant("schedule/order.py", "self.before[writer].add(reader)", "self.before[reader].add(writer)"),
    "both words of a random block are one": Plant("schedule/random_words.py", "(position_in_stream % 2).eq(0).where(x0, x1)", "x0"),
    "a closed gate is taken for granted": Plant("schedule/collapse.py", "    if load.is_gated and is_const(load.other, 0) and _covers(load.gate, g):\n        return load.replace(src=(*load.src[:3], g if load.gate is g else g & load.gate))", "    if load.is_gated and is_const(load.other, 0):\n        return load"),
    # lower
    "a shift beyond the width wraps around": Plant("lower/integers.py", "return (amount < bits).where(inside, beyond)", "return inside"),
    "floor division truncates": Plant("lower/integers.py", "lower.where(quotient - 1, quotient)", "quotient"),
    "a remainder has the sign of the dividend": Plant("lower/integers.py", "wrong.where(remainder + safe, remainder)", "remainder"),
    "a prefix goes on in the next row": Plant("lower/accumulators.py", "outer = tuple(sorted(around.difference(loops), key=lambda loop: loop.number))", "outer = ()"),
    "times 2**n shifts one too far": Plant("lower/decompose.py", "x << (int(c.arg).bit_length() - 1)", "x << int(c.arg).bit_length()"),
    "bfloat16 rounds down": Plant("lower/decompose.py", "(wide + ((wide >> 16) & 1) + 0x7FFF) & 0xFFFF0000", "wide & 0xFFFF0000"),
    "long sums go into one accumulator": Plant("lower/levels.py", "MOST_TERMS = 512", "MOST_TERMS = 1 << 60"),
    # render
    "an accumulator is not reset": Plant("render/llvm.py", 'self.line(f"store {kind} {self.use(node.src[0])}, ptr {name}")', 'self.entry.append(f"  store {kind} {self.use(node.src[0])}, ptr {name}")'),
    "a gated load gives what it read": Plant("render/llvm_memory.py", 'return self.make(f"select i1 {gate}, {kind} {value}, {kind} {shut}")', "return value"),
    "the lanes of a vector behind its end are read": Plant("render/llvm_memory.py", "value = self.load_masked(at, node.dtype, (type_of(gate.dtype), mask), other)", "value = self.load_always(node)"),
    "the lanes of a vector behind its end are written": Plant("render/llvm_memory.py", "            self.store_masked(node, gate)", "            self.store_always(node)"),
    "the maximum passes over NaN": Plant("render/llvm_values.py", 'return self.make(f"select {flags} {is_number}, {kind} {larger}, {kind} {y}")', "return larger"),
    "unsigned numbers compare as signed ones": Plant("render/llvm_values.py", 'less = "slt" if dtype.kind == "int" else "ult"', 'less = "slt"'),
    "shifts right forget the sign": Plant("render/llvm_values.py", "{'ashr' if dtype.kind == 'int' else 'lshr'}", "lshr"),
    "wider integers forget the sign": Plant("render/llvm_values.py", "{'sext' if is_signed else 'zext'}", "zext"),
    "casts of large floats wrap": Plant("render/llvm_values.py", 'inside = self.make(f"select {flags} {below}, {a} {inside}, {a} {high}")', "pass"),
    # gradients
    "equal operands of a maximum both get all": Plant("grad/rules.py", "a.eq(b).where(g * 0.5, g)", "a.eq(b).where(g, g)"),
    "equal maxima each get all": Plant("grad/rules.py", "share = stretched((g.cast(wide) / count.cast(wide)).cast(g.dtype), x.shape)", "share = stretched(g, x.shape)"),
    "the branches of where are swapped": Plant("grad/rules.py", "y.src[0].where(g, 0.0), y.src[0].where(0.0, g)", "y.src[0].where(0.0, g), y.src[0].where(g, 0.0)"),
    "copies get half the sum": Plant("grad/rules.py", "return (sum_axes(g, tuple(", "return (sum_axes(g * 0.5, tuple("),
    "a quotient's divisor pulls the wrong way": Plant("grad/rules.py", "-(g / y.src[1] * y)", "(g / y.src[1] * y)"),
    "the gradient of padding is not moved": Plant("grad/rules.py", "window = tuple((before, plus(before, size))", "window = tuple((0, size)"),
    "the gradient is permuted forward": Plant("grad/rules.py", "inverse = tuple(y.arg.index(axis) for axis in range(len(y.arg)))", "inverse = y.arg"),
    # captures and random numbers
    "draws do not move on": Plant("tensor/indexing/generator.py", "self.drawn += words", "self.drawn += 0"),
    "a replay draws from the start of its words": Plant("capture/entry.py", 'self.program.set_value(("offset", number), offset + number)', 'self.program.set_value(("offset", number), offset)', ("jit",)),
    "a replay keeps the captured size": Plant("capture/entry.py", "if node is not self._last[number]:", "if False:", ("jit",)),
    "a replay keeps the captured input": Plant("capture/entry.py", "            self._bound[slot] = buffer\n            self.program.set_buffer(slot, buffer)\n        known", "            self._bound[slot] = buffer\n            if before is None:\n                self.program.set_buffer(slot, buffer)\n        known", ("jit",)),
    # methods
    "dilation is 1": Plant("tensor/views/patches.py", "length = n * times + d", "length = n * times + 1"),
    "the border of a maximum is 0": Plant("tensor/products/pooling_methods.py", "ceil_mode, self.dtype.min", "ceil_mode, 0"),
    "equal elements are sorted backwards": Plant("tensor/ordering/sort.py", "positions.reshape(1, size) < positions.reshape(size, 1)", "positions.reshape(1, size) > positions.reshape(size, 1)"),
    "negative numbers sort backwards": Plant("tensor/ordering/sort.py", "is_negative.where(~bits, bits | sign)", "is_negative.where(bits, bits | sign)"),
    "NaN is sorted by its bits": Plant("tensor/ordering/sort.py", "keys = x.ne(x).where(dtype.max, keys)", "keys = keys"),
    # what a loop meets again: templates, segments, plans for ranges of sizes, numbers, positions
    "all lengths read the position of the first": Plant("tensor/storage/sized_segments.py", "for name in [each for each in seen[0] if each not in own]:", "for name in seen[0]:", _LOOPS),
    "a slice that a call makes follows one of memory": Plant("tensor/storage/noted_runs.py", "fixed = set(self.made)", "fixed: set[UOp] = set()", _LOOPS),
    "a segment keeps the numbers of its first run": Plant("tensor/storage/signatures.py", "if wanted is not None and wanted != leaf.bits:", "if kind.variable and wanted != leaf.bits:", _LOOPS),
    "a pattern of sizes does not look at fixed ones": Plant("ir/size_patterns.py", "                if size != wanted:\n                    return None", "                pass", _LOOPS),
    "a plan keeps the positions of its slices": Plant("engine/realize/bindings.py", "fixed = [number for number in request.slices if number not in self.variable_slices]", "fixed: list[int] = []", _LOOPS),
    "a short signature has no place for the second operand": Plant("tensor/calls/short_signatures.py", "return (own, other.kind, kind, grad, device, kind, more), (*inputs, other)", "return (own, kind, grad, device, kind, more), (*inputs, other)", _LOOPS),
    "a number that is equal to a constant is taken for it": Plant("tensor/storage/noted_runs.py", "leaves = [() if user in self.fixed else self.uses.get(user, ()) for user in users]", "leaves = [self.uses.get(user, ()) for user in users]", _LOOPS),
    "one variable is two numbers": Plant("engine/realize/bindings.py", "if seen.setdefault(group, value) != value:", "if seen.setdefault(group, value) is None:", _LOOPS),
    "a captured function gives a view of the slice that it saw first": Plant("capture/inputs.py", "if self.look is not None and self.look != look(tensor)[1:]:", "if False:", _LOOPS),
    "a replay writes to what a slice was computed to": Plant("tensor/writing/assignment.py", "elif memory.base_of(node) is not memory.base_of(own) or look(self).root is None:", "elif False:", _LOOPS),
    "a replay copies a slice before it writes to the memory": Plant("capture/entry.py", "text = self._set_slots(found) or self._overlap()", "text = self._set_slots(found)", _LOOPS),
    "two inputs of a replay may be one memory": Plant("capture/entry.py", "            if id(buffer) in self.slots:\n                label", "            if False:\n                label", _LOOPS),
    "a replay writes to a result that is held": Plant("capture/results.py", "if getrefcount(self.leaf) != self._count or is_overwritten(self.leaf):", "if is_overwritten(self.leaf):", _LOOPS),
    "moves from memory to a leaf may be others": Plant("tensor/storage/leaf_kinds.py", "        return moves is kind.moves or moves == kind.moves", "        return moves is kind.moves or len(moves) == len(kind.moves or ())", _LOOPS),
    "one offset of two slices serves both": Plant("tensor/storage/leaf_kinds.py", "        if values.setdefault(name, start) != start:", "        if values.setdefault(name, start) is None:", _LOOPS),
    "two leaves of a segment are one memory or two": Plant("tensor/storage/signatures.py", "            base = leaf.value.leaf or leaf.value\n            if bases.setdefault(base, len(bases)) != kind.base:", "            base = leaf.value.leaf or leaf.value\n            if bases.setdefault(base if kind.base in bases.values() else object(), kind.base) != kind.base:", _LOOPS),
    "the code of a segment takes any number for a constant": Plant("tensor/storage/segment_code.py", '        writer.unless(f"{leaf}.bits != {kind.bits}")', "        pass", _LOOPS),
    "the code of a segment takes one memory for two": Plant("tensor/storage/segment_code.py", '            writer.unless(f"base is not b{kind.base}")', "            pass", _LOOPS),
    "the code of a segment takes two operands for one": Plant("tensor/storage/segment_code.py", "        writer.unless(*known)", "        pass", _LOOPS),
    "a mean at another length divides by the first": Plant("tensor/storage/sized_segments.py", "for name, (formula, dtype) in self.shares.items():", "for name, (formula, dtype) in ():", _LOOPS),
    "two lengths of a segment may part": Plant("tensor/storage/sized_segments.py", "                if _size_at(leaves[other], other_axis) != size + more:\n                    return None", "                pass", _LOOPS),
    "two sizes of one unknown may differ": Plant("engine/realize/explained.py", "                if sizes[position] != expected:", "                if sizes[position] > expected:", _LOOPS),
    "a template's number loses its sign": Plant("tensor/calls/template_table.py", "one = Number.of(-value if is_negated else value, dtype)", "one = Number.of(value, dtype)", _LOOPS),
    "a call that recorded no gradients is one that does": Plant("tensor/calls/recent_calls.py", "(self.records is None or self.records is records_gradients())", "(self.records is None or True)", _LOOPS),
    "a short signature does not say where a slice begins": Plant("tensor/calls/short_signatures.py", "rest += slice, *ends\n", "rest += slice, *ends[1:]\n", _LOOPS),
    "two operands that are one are two": Plant("tensor/calls/short_signatures.py", "            rest += kind, number\n", "            rest.append(kind)\n", _LOOPS),
    "a call's gradient is that of all of its leaves": Plant("tensor/calls/below.py", "key += leaf.dtype, len(leaf.shape), leaf.__class__ is Number, target is not None", "key += leaf.dtype, len(leaf.shape), leaf.__class__ is Number", _LOOPS),
    "an alias does not see a write that waits": Plant("tensor/storage/writes.py", "            exchange(each.alias, same)", "            pass", _LOOPS),
    "a view of memory begins where that begins": Plant("tensor/storage/viewed.py", "                start += pair[0] * step", "                start = pair[0] * step", _LOOPS),
}  # fmt: skip


@contextmanager
def planted(plant: Plant, cache: Path | None = None) -> Iterator[dict[str, str]]:
    """A copy of the package with the bug, as the environment of a process that imports it. What is
    in a `cache` says which sources it was made by, so that several plants may have one.
    """
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / PACKAGE.name
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / plant.file
        source = path.read_text(encoding="utf-8")
        assert source.count(plant.text) >= 1, f"{plant.file} has no {plant.text!r}"
        path.write_text(source.replace(plant.text, plant.instead, 1), encoding="utf-8")
        yield {"PYTHONPATH": folder, "TILEGRAD_CACHE": str(cache or Path(folder) / "cache")}


def look_for(
    plant: Plant, folder: Path, programs: int = MOST, seed: int = 0, cache: Path | None = None
) -> Found | None:
    """The first failure that is the bug's, among so many programs: without the bug, the case that
    failed and its file pass.
    """
    whole = {mode: Child(mode) for mode in plant.modes}
    tried = 0
    try:
        with planted(plant, cache) as environment:

            def is_known(lines: Sequence[str], mode: str) -> bool:
                with whole[mode].lock:
                    return whole[mode].failure(lines) is not None

            while tried < programs:
                found = fuzz(
                    60.0, seed + tried, folder, modes=plant.modes, environment=environment,
                    first_only=True, is_known=is_known, programs=programs - tried,
                    say=lambda text: None,
                )  # fmt: skip
                for each in found:
                    each.cases += tried
                    lines = each.path.read_text(encoding="utf-8").splitlines()
                    if each.is_alone and not is_known(lines, each.mode):
                        return each
                tried = max([each.cases for each in found], default=programs)
    finally:
        for child in whole.values():
            child.close()
    return None


def page(rows: Mapping[str, Row]) -> str:
    """The page: by bug, after how many programs it was found, and the lines of its file."""
    found = sum(rows.get(name) is not None for name in PLANTED)
    lines = [
        "# Planted bugs",
        "",
        "Bugs that are planted in a copy of the package, one at a time, and looked for by",
        f"[random programs](debugging.md#random-programs), {MOST} at most. *Programs* is how many",
        "ran until one of them failed by the bug, *lines* is the length of the file that was made of",
        "it. Made by `python -m tests.tools.planted`; do not edit.",
        "",
        f"{found} of {len(PLANTED)} bugs were found.",
        "",
        "| bug | file | modes | programs | lines |",
        "|---|---|---|---|---|",
    ]
    for name, plant in PLANTED.items():
        programs, length = rows.get(name, (_NOT_RUN, "")) or (_NOT_FOUND, "")
        modes = ", ".join(plant.modes)
        lines.append(f"| {name} | `{plant.file}` | {modes} | {programs} | {length} |")
    return "\n".join([*lines, ""])


def rows_of(text: str) -> dict[str, Row]:
    """What a page says of the bugs that were looked for."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if ".py`" in line]
    found: dict[str, Row] = {}
    for name, _, _, programs, *length in cells:
        if name in PLANTED and programs != _NOT_RUN:
            found[name] = None if programs == _NOT_FOUND else (int(programs), int(length[0]))
    return found


def main(names: Sequence[str]) -> int:
    """A row for each bug: what it is, after how many programs and seconds, lines of its file."""
    with tempfile.TemporaryDirectory(prefix="planted-cache-") as cache:
        missed = sum([not _look(name, Path(cache)) for name in names or PLANTED])
    print(f"{len(names or PLANTED) - missed} of {len(names or PLANTED)} found")
    return int(missed > 0)


def _look(name: str, cache: Path) -> bool:
    """Look for one bug, and write its row; whether it was found."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = look_for(PLANTED[name], Path(folder), cache=cache)
        lines = len(found.path.read_text().splitlines()) if found else 0
    how = "MISSED" if found is None else f"{found.cases:5} programs, {lines:2} lines"
    print(f"{name:52} {how}, {time.monotonic() - start:5.0f} s", flush=True)
    rows = rows_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    rows[name] = None if found is None else (found.cases, lines)
    PAGE.write_text(page(rows), encoding="utf-8")
    return found is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
