"""What the last additions of each kind touched, from the history of the repository.

python -m tests.docs.additions          a line for each of the last three ops, rules, Opts, ...

An addition is the first line that declares a name. It touched the files of the package in which the
same commit added a line with that name. This counts the declaration and each place that had to
learn of the name. It misses code that the addition needed and that does not name it, so a line also
says how many files of the package the whole commit changed: an upper bound, with all that came in
the same commit.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["KINDS", "Addition", "has_history", "last_additions"]

ROOT = Path(__file__).parents[2]


class Kind(NamedTuple):
    """Where things of a kind are declared, how, how lines name them, and the file of its own that
    each has. NAME stands for the name, LOWER for that in small letters.
    """

    files: tuple[str, ...]
    declared: str
    named: str
    own: str = "(?!)"


class Addition(NamedTuple):
    """A name that a commit declared first, the files of the package that it named it in, and how
    many files of the package the commit changed.
    """

    name: str
    commit: str
    files: tuple[str, ...]
    changed: int


# The rows of "Where a new one goes", docs/architecture.md.
KINDS = {
    "op": Kind(("ir/op.py",), r"    ([A-Z]\w*) = op\(", r"Ops\.NAME\b|^ *NAME = op\("),
    "rewrite rule": Kind(
        ("ir/rules", "lower", "schedule"), r' +(?:Rule|\w+\.rule)\(\s*"([\w-]+)"', '"NAME"'
    ),
    # Earlier commits had it in the folder above.
    "Opt": Kind(
        ("optimize/opts/opt.py", "optimize/opt.py"),
        r'    ([A-Z]+) = "',
        r'OptOps\.NAME\b|^    NAME = "',
    ),
    "generator of Opts": Kind(
        ("optimize",),
        r"from tilegrad\.optimize\.(?:generators\.)?(heuristic_\w+) import",
        r"tilegrad\.optimize\.(?:generators\.)?NAME\b",
        r"optimize/(?:generators/)?NAME\.py",
    ),
    "device": Kind(
        ("device/registry.py",),
        r'    "([A-Z0-9]+)": "tilegrad\.device',
        r'tilegrad\.device\.LOWER\b|"NAME"',
        r"device/LOWER\.py",
    ),
    "dtype": Kind(
        ("base/dtype.py",),
        r"    ([a-z]\w*)(?:: Final)? = DType\(",
        r'dtypes\.NAME\b|"NAME"|^    NAME(: Final)? = DType',
    ),
    "switch": Kind(("base/config.py",), r"    ([A-Z_]+): (?:int|str|bool|float)", r"\bNAME\b"),
    "fact of the hardware": Kind(
        ("target.py",), r"    ([a-z_]+): [a-z]", r"target\.NAME\b|\bNAME=|^    NAME: "
    ),
}


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def has_history() -> bool:
    """Whether all commits are here: not in an archive, nor in a shallow clone."""
    try:
        return _git("rev-parse", "--is-shallow-repository").strip() == "false"
    except (OSError, subprocess.CalledProcessError):
        return False


def _declared(kind: Kind) -> set[str]:
    """The names that are declared today."""
    paths = [ROOT / "tilegrad" / file for file in kind.files]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    lines = (line for file in files for line in file.read_text().splitlines())
    return {found[1] for line in lines if (found := re.match(kind.declared, line))}


def last_additions(kind: str, count: int = 3) -> list[Addition]:
    """The last additions of a kind, the oldest first, of names that still are."""
    files, declared, *_ = KINDS[kind]
    first: dict[str, str] = {}
    commit = ""
    options = ("-p", "-U0", "--reverse", "--no-renames", "--format=commit %h")
    paths = [f"tilegrad/{file}" for file in files]
    for line in _git("log", *options, "--", *paths).splitlines():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line.startswith("+") and (found := re.match(declared, line[1:])):
            first.setdefault(found[1], commit)
    known = _declared(KINDS[kind])
    kept = [each for each in first.items() if each[0] in known]
    return [
        Addition(name, commit, tuple(sorted(_touched(name, commit, KINDS[kind]))), _changed(commit))
        for name, commit in kept[-count:]
    ]


def _changed(commit: str) -> int:
    """How many files of the package a commit changed."""
    return len(_git("show", "--format=", "--name-only", commit, "--", "tilegrad").splitlines())


def _touched(name: str, commit: str, kind: Kind) -> Iterator[str]:
    """The files of the package in which a commit added lines with a name, and the name's own."""
    pattern, own = (
        text.replace("NAME", name).replace("LOWER", name.lower()) for text in (kind.named, kind.own)
    )
    shown = _git("show", "--format=", "-U0", "--no-renames", commit, "--", "tilegrad")
    for text in re.split(r"^diff --git .*$", shown, flags=re.M)[1:]:
        file = re.search(r"^\+\+\+ b/tilegrad/(.*)$", text, re.M)
        lines = re.findall(r"^\+(?!\+\+ )(.*)$", text, re.M)
        if file is None:
            continue
        if re.fullmatch(own, file[1]) or any(re.search(pattern, each) for each in lines):
            yield file[1]


if __name__ == "__main__":
    for kind in KINDS:
        for name, commit, files, changed in last_additions(kind):
            count = f"{len(files):2} of {changed:3}"
            print(f"{kind:20} {name:25} {commit} {count}  {', '.join(files)}")
