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


# schedule.limits stores what lies more than 200 operations deep in a kernel.
KERNEL = "an expression of a kernel, whose depth schedule.limits bounds"
LOOPS = "loops within loops, as the program has them"
ARGUMENT = "an argument of a node: a tuple of tuples, or a graph of a loop's step"
ONCE = "a second call, with what the first made simpler, is the last"
WRITTEN = "what a rule's pattern is made of, as it stands in the source"
BOUNDED = {
    "engine/build/pipeline.py": {"_sources": "folders of the package"},
    "engine/realize/values_of_runs.py": dict.fromkeys(["_at", "_of_lengths"], ARGUMENT),
    "engine/plans/plan.py": dict.fromkeys(["_fields_of", "_plan_of", "_loop_plan_of"], LOOPS),
    "engine/plans/plans.py": dict.fromkeys(["_make", "_loop_plan", "plan_for"], LOOPS),
    "engine/realize/computed_nodes.py": {"_names_node": ARGUMENT},
    "engine/run/run.py": dict.fromkeys(["_run_steps", "_run_loop"], LOOPS) | {"ready_plan": ONCE},
    "grad/backward.py": {"pullback": LOOPS},
    "grad/forward.py": {"pushforward": LOOPS},
    "grad/rules.py": {"_leave_one_out": "halves of the axes of a product"},
    "grad/summed_gradients.py": {"_narrow": "_DEPTH operations", "sum_axes": ONCE},
    "ir/matcher.py": dict.fromkeys(
        [
            "_RuleSource.build", "_RuleSource.has_dtype", "_RuleSource.match",
            "_RuleSource.number_of",
        ],
        WRITTEN,
    ),
    "ir/counterexample.py": {"_variables": LOOPS},
    "ir/exact_products.py": {"_exact": "choices in each other, of one term of a sum"},
    "ir/sized_templates.py": dict.fromkeys(["_fitted_kernel", "fitted", "made"], ARGUMENT),
    "ir/sizes.py": {"products": "an axis size, as a program writes it"},
    "ir/text.py": dict.fromkeys(["_argument", "_nodes_in"], ARGUMENT),
    "lower/dot_operands.py": dict.fromkeys(["_join", "_joined_values", "_spread"], KERNEL),
    "lower/integers.py": {"_OrderedSums.ordered": "a vector of indices, and its first lane"},
    "lower/linearize.py": dict.fromkeys(["_Emitter._effects", "_Emitter._feet"], LOOPS),
    "lower/accumulators.py": {"reduce_to_accumulator": KERNEL},
    "lower/skip.py": {"_bounds": KERNEL, "_is_always_zero": KERNEL},
    "lower/lane_accesses.py": dict.fromkeys(
        ["_lane_of", "_load_open", "load_and_shuffle"], KERNEL
    ),
    "render/llvm_lines.py": dict.fromkeys(["constant_of", "mangled"], "a vector's scalar"),
    "render/llvm_values.py": dict.fromkeys(
        [
            "Values.converted", "Values.float_to_float", "Values.float_to_integer",
            "Values.saturated",
        ],
        "a cast by way of another dtype",
    ),
    "schedule/collapse.py": dict.fromkeys(["_as_choice", "_choice_of"], KERNEL),
    "schedule/online_reductions.py": dict.fromkeys(
        [
            "_Slicer._correction", "_Slicer._filled", "_Slicer._reduce", "_Slicer._found",
            "_Slicer._gather", "_Slicer._visit", "_Slicer.inside", "_Slicer.whole",
        ],
        KERNEL,
    ),
    "schedule/scans.py": dict.fromkeys(["_joined", "in_slices"], "fewer parts each time"),
    "render/ptx_logic.py": {
        "_may_change": "a lane of a vector of lanes", "_value": "_MOST_ON_THE_WAY ops",
    },
    "render/wgsl_long.py": {"functions": "functions of the package that call others"},
}  # fmt: skip
"""By file and function, what bounds the depth of a call."""


def test_what_calls_itself_has_a_bound() -> None:
    found = {
        file.relative_to(ROOT).as_posix(): names
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if (names := recursive(file.read_text()))
    }
    assert found == {file: set(names) for file, names in BOUNDED.items()}
