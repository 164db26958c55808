"""The functions and files that a first call passes, and the code lines of the compiler.

    python bench/stops.py               the counts
    python bench/stops.py --files       and for each file how many of its functions are passed
    python bench/stops.py --forwarders  and functions that only hand their arguments on

The call is `(a @ b).softmax(1).tolist()` in a process of its own with an empty cache folder, so it
is scheduled, shaped, lowered, rendered and compiled. Functions count once, however often they run;
those that run while a module is imported, comprehensions and lambdas do not count, nor does the
work of other threads and processes. Code lines are those without docstrings, comments and blanks.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import ROOT, environment

PACKAGE = ROOT.parent / "tilegrad"
COMPILER = (
    "ir", "schedule", "optimize", "lower", "render", "compile", "runtime", "device", "engine",
    "capture",
)  # fmt: skip
_FOLLOWED = """
import json, sys
from pathlib import Path
import tilegrad
from tilegrad import Tensor

root = str(Path(tilegrad.__file__).parent) + "/"
passed, importing = set(), 0

def follow(frame, event, _):
    global importing
    code = frame.f_code
    if code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and code.co_filename.startswith(root):
        passed.add(code)

a = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
b = Tensor([[5.0, 6.0], [7.0, 8.0]]).realize()
sys.setprofile(follow)
(a @ b).softmax(1).tolist()
sys.setprofile(None)
named = [code for code in passed if not code.co_name.startswith("<")]
print(json.dumps([[code.co_filename[len(root):], code.co_qualname] for code in named]))
"""
_PROSE = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
)  # fmt: skip


def passed_functions() -> list[tuple[str, str]]:
    """The file and the name of each function that the call passes."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, "-c", _FOLLOWED],
            env=environment(TILEGRAD_CACHE=folder, PYTHONPATH=str(PACKAGE.parent)),
            check=True,
            capture_output=True,
            text=True,
        )
    # Rules are compiled to functions of files such as `<rules simplify>`.
    return sorted((file, name) for file, name in json.loads(found.stdout) if file[0] != "<")


def code_lines(text: str) -> int:
    """The lines of a file without docstrings, comments and blanks."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _PROSE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def forwarders(text: str) -> Iterator[tuple[int, str]]:
    """The functions whose body is one call with their own arguments in their order, and the line
    of each.
    """
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        *prose, last = node.body
        is_only = not prose or (len(prose) == 1 and isinstance(prose[0], ast.Expr))
        if not is_only or not isinstance(last, ast.Return | ast.Expr):
            continue
        call = last.value
        own = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        if isinstance(call, ast.Call) and not call.keywords and call.args:
            given = [ast.unparse(each) for each in call.args]
            if given in (own, own[1:]):
                yield node.lineno, f"{node.name} -> {ast.unparse(call)}"


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, path.read_text()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", action="store_true", help="functions passed, by file")
    parser.add_argument("--forwarders", action="store_true", help="functions that only hand on")
    options = parser.parse_args(argv)
    passed = passed_functions()
    by_file = Counter(file for file, _ in passed)
    print(f"{len(passed)} functions in {len(by_file)} files are passed by a first call")
    lines = {
        folder: [code_lines(text) for _, text in _texts(PACKAGE / folder)] for folder in COMPILER
    }
    for folder, counts in lines.items():
        print(f"{folder:10} {sum(counts):6,} code lines in {len(counts):2} files")
    print(f"compiler   {sum(map(sum, lines.values())):6,} code lines")
    names = Counter(path.name for path, _ in _texts(PACKAGE) if path.name != "__init__.py")
    print(f"{sum(count > 1 for count in names.values())} file names occur more than once")
    if options.files:
        for file, count in by_file.most_common():
            print(f"{count:4} {file}")
    if options.forwarders:
        for path, text in _texts(PACKAGE):
            for line, each in forwarders(text):
                print(f"{path.relative_to(PACKAGE)}:{line} {each}")


if __name__ == "__main__":
    main()
