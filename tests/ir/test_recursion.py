"""No function that walks graphs calls itself, as graphs are deeper than Python's stack; those that
do go over something whose depth is bounded, and stand here with what that is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tilegrad

ROOT = Path(tilegrad.__file__).parent
FOLDERS = ("ir", "schedule", "optimize", "lower", "grad", "engine", "render")


def functions(tree: ast.AST, around: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions and methods, by the names of what they are in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = around + node.name
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, around)


def called(function: ast.AST) -> Iterator[str]:
    """The names that a function calls, or hands on: `f(x)`, `self.f(x)`, `map(f, xs)`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("self", "cls"):
                yield f"self.{node.attr}"


def recursive(source: str) -> set[str]:
    """Functions of a file that call themselves, by way of others in it or not."""
    found = dict(functions(ast.parse(source)))
    calls: dict[str, set[str]] = {}
    for name, function in found.items():
        owner, _, _ = name.rpartition(".")
        known = {f"self.{each.removeprefix(f'{owner}.')}": each for each in found} | {
            each.rpartition(".")[2]: each for each in found if "." not in each
        }
        # A function inside this one, or beside it in the same function.
        for around in (owner, name):
            inner = [each for each in found if each.rpartition(".")[0] == around]
            if around in found:
                known |= {each.rpartition(".")[2]: each for each in inner}
        calls[name] = {known[each] for each in called(function) if each in known}
    result = set()
    for name in found:
        reached, waiting = set[str](), [*calls[name]]
        while waiting:
            each = waiting.pop()
            if each not in reached:
                reached.add(each)
                # What is written inside a function is called by it.
                waiting += calls[each]
        if name in reached:
            result.add(name)
    return result


def test_the_search_finds_what_calls_itself() -> None:
    source = """
def direct(n): return direct(n - 1)
def first(n): return second(n)
def second(n): return list(map(first, n))
def plain(n): return n
class Walker:
    def walk(self, n): return self.step(n)
    def step(self, n): return self.walk(n)
    def direct(self, n): return direct(n)
def outer(n):
    def visit(m): return visit(m)
    return visit(n)
"""
    wanted = {"direct", "first", "second", "Walker.walk", "Walker.step", "outer.visit"}
    assert recursive(source) == wanted


# schedule.large stores what lies more than 200 operations deep in a kernel.
KERNEL = "an expression of a kernel, whose depth schedule.large bounds"
TEXT = "what a pattern, an argument or a name is made of: written by hand, a few levels"
LOOPS = "loops within loops, as the program has them"
ONCE = "once more with what it made simpler: the second call goes no further"
BOUNDED = {
    "ir/matcher.py": TEXT, "ir/text.py": TEXT, "ir/sizes.py": "an axis size, written by hand",
    "ir/proof.py": ONCE, "schedule/collapse.py": KERNEL, "schedule/parts.py": KERNEL,
    "schedule/phases.py": KERNEL, "schedule/running.py": ONCE, "optimize/borders.py": KERNEL,
    "optimize/opts.py": "the name of an Opt, or a list of them", "lower/dots.py": KERNEL,
    "lower/linearize.py": KERNEL, "lower/reduce.py": KERNEL, "lower/skip.py": KERNEL,
    "lower/skip_products.py": KERNEL, "lower/window.py": KERNEL, "grad/backward.py": LOOPS,
    "grad/forward.py": LOOPS, "grad/rules.py": "halves of the axes of a product",
    "grad/sums.py": "three operations deep", "engine/pipeline.py": "folders of the package",
    "engine/realize.py": "a method of a buffer, of the same name",
    "engine/plan.py": LOOPS, "engine/plans.py": LOOPS, "engine/run.py": LOOPS,
    "render/llvm_values.py": "a cast by way of another dtype", "render/stream.py": KERNEL,
}  # fmt: skip


def test_what_calls_itself_has_a_bound() -> None:
    found = {
        file.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if recursive(file.read_text())
    }
    assert found == BOUNDED.keys()
