"""The words of the glossary in docs/architecture.md: what they replaced does not come back."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {
    # Constant folding.
    "FOLDING", "fold", "folded", "folding", "fold_cast", "fold_constants", "fold_gep",
    # Names of NumPy and of the public interface; locks are held, and writes are in place.
    "put_along_axis", "sliding_window_view", "take_along_axis", "KEEP_KERNELS", "KEEP_SECONDS",
    "keep_unknown", "held_at_fork", "_IN_PLACE", "_in_place", "in_place", "take_along_dim",
    # Windows of signals, and of filters.
    "hann_window", "hamming_window", "blackman_window", "kaiser_window", "bartlett_window",
    "_make_window", "window", "window_length", "filter_window", "find_filter_window",
    "FilterWindow",
    # PyTorch's names.
    "Fold", "keep_vars", "three_phase", "windows",
}  # fmt: skip
# The argument and attribute of PyTorch's `ComposeTransform`.
ALLOWED_IN = {"distributions": {"parts"}, "transforms": {"parts"}}
FILES = sorted((ROOT / "tilegrad").rglob("*.py"))
# Folders of the package, whose files a test looks at together: a test for each takes longer than
# to look at it.
FOLDERS = sorted({path.relative_to(ROOT / "tilegrad").parts[0] for path in FILES})


def files_of(folder: str) -> list[Path]:
    """The files of a folder of the package, and those below it; or one file beside the folders."""
    return [path for path in FILES if path.relative_to(ROOT / "tilegrad").parts[0] == folder]


@functools.cache
def banned() -> dict[str, str]:
    """The words of the glossary's last table, and what is said instead."""
    table = (ROOT / "docs/architecture.md").read_text().partition("| not | but |")[2]
    rows = re.findall(r"^\| ([a-z, ]+) \| ([^|]+) \|$", table, re.M)
    return {word: instead for words, instead in rows for word in words.split(", ")}


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        for field in ("id", "arg", "attr", "name", "asname"):
            found = getattr(node, field, None)
            if isinstance(found, str):
                yield found, getattr(node, "lineno", 0)


@functools.cache
def names_in(path: Path) -> tuple[dict[str, int], list[str]]:
    """The identifiers of a file, each with its last line, and the names of its classes."""
    tree = ast.parse(path.read_text())
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {path.stem: 0, **dict(identifiers(tree))}, classes


def wrong_in(name: str, words: dict[str, str]) -> list[str]:
    """The banned words in an identifier or a file name."""
    if name in ALLOWED:
        return []
    parts = re.split(r"_+|\.|(?<=[a-z0-9])(?=[A-Z])", name)
    return [part.lower() for part in parts if part.lower() in words]


def test_the_glossary_names_the_words_that_are_gone() -> None:
    words = banned()
    assert {"fold", "turn", "part", "place", "window", "kept", "along", "form"} <= words.keys()
    assert wrong_in("_fold_of_turns", words) == ["fold", "turns"]
    assert wrong_in("FoldParts", words) == ["fold", "parts"]
    assert wrong_in("reduction_of", words) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_the_words_of_the_glossary(folder: str) -> None:
    words = banned()
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}: not {word!r} but {words[word].strip()}"
        for path in files_of(folder)
        for name, line in names_in(path)[0].items()
        if name not in ALLOWED_IN.get(path.stem, ())
        for word in wrong_in(name, words)
    ]
    assert not wrong


# Phrases of sentences that have to be read twice.
RIDDLES = re.compile(r"\b(of which|so many|of what|nobody|whoever)\b", re.I)
# Openings that keep the subject of a sentence for its end: a capital stands where one begins.
OPENINGS = re.compile(r"\b(What|Whose|None of|Of)\b(?! course)")


def prose_of(text: str) -> list[tuple[int, str]]:
    """The lines of comments and docstrings of a file, with their numbers."""
    return [
        (token.start[0] + number, line)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT or token.string.startswith('"""')
        for number, line in enumerate(token.string.split("\n"))
    ]


def test_a_riddle_is_found() -> None:
    text = '"""One of them,\nof which there are two."""\n\nx = "so many"  # Nobody reads it.\n'
    found = [number for number, line in prose_of(text) if RIDDLES.search(line)]
    assert found == [2, 4]


def test_an_opening_without_a_subject_is_found() -> None:
    text = '"""What it is.\n\nOf two, one."""\n\nx = "What"  # None of it. So what, of course.\n'
    found = [number for number, line in prose_of(text) if OPENINGS.search(line)]
    assert found == [1, 3, 5]


@pytest.mark.parametrize("pattern", [RIDDLES, OPENINGS], ids=["riddles", "openings"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_and_docstrings_are_plain_sentences(folder: str, pattern: re.Pattern[str]) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files_of(folder)
        # A file is taken apart only where the words stand somewhere.
        if pattern.search(text := path.read_text())
        for number, line in prose_of(text)
        if pattern.search(line)
    ]
    assert not wrong


# Files of users, in examples.
EXAMPLES = {"mine.py", "mnist.py", "other.py", "script.py", "train.py"}


def missing_files(text: str, folder: Path) -> list[str]:
    """The Python files that comments and docstrings of `text`, a file in `folder`, name, and that
    are neither there nor in a folder above.
    """
    if ".py" not in text:
        return []
    prose = "\n".join(line for _, line in prose_of(text))
    names = set(re.findall(r"\b[\w/]+\.py\b", prose))
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(ROOT)]
    return [
        name
        for name in sorted(names)
        if Path(name).name not in EXAMPLES and not any((each / name).exists() for each in above)
    ]


def test_a_file_that_is_gone_is_found() -> None:
    text = '"""See fuse.py, keep.py and ir/op.py."""\n\nx = "gone.py"  # tests/docs/gone.py\n'
    assert missing_files(text, ROOT / "tilegrad/schedule") == ["keep.py", "tests/docs/gone.py"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_that_comments_name_exist(folder: str) -> None:
    missing = {
        str(path.relative_to(ROOT)): found
        for path in files_of(folder)
        if (found := missing_files(path.read_text(), path.parent))
    }
    assert missing == {}


# Folders of the compiler: a reader has several of their files open at once.
COMPILER = (
    "ir", "schedule", "optimize", "lower", "render", "compile", "runtime", "grad", "engine",
    "capture",
)  # fmt: skip
# Names that stand twice: of two devices, of an interface beside what has it, or of other stages.
TWICE = {
    "Before", "Dimension", "Helpers", "Job", "Kernel", "Rule", "TileCopies",
}  # fmt: skip


def test_a_class_of_the_compiler_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = {}
    for folder in COMPILER:
        for path in (ROOT / "tilegrad" / folder).rglob("*.py"):
            for name in names_in(path)[1]:
                found.setdefault(name.lstrip("_"), []).append(path.name)
    assert {name for name, files in found.items() if len(files) > 1} <= TWICE


# Folders whose files are called as what they are for elsewhere: a kind of hardware, a module of
# PyTorch or a chapter of the Array API, an instruction of random programs.
HARDWARE = ("render", "compile", "device", "runtime")
ELSEWHERE = ("torch", "array_api", "tools")


def is_named_for_a_reason(folders: list[Path]) -> bool:
    """Whether files of one name in `folders`, but for those that are called as what they are for
    elsewhere, are one, or for one kind of hardware, or layers beside their functions.
    """
    if [folder.as_posix() for folder in folders] == ["nn", "nn/functional"]:
        return True
    rest = [folder.parts[0] for folder in folders if folder.parts[0] not in ELSEWHERE]
    return len(rest) < 2 or set(rest) <= set(HARDWARE)


def test_a_file_name_stands_once_or_twice_for_a_reason() -> None:
    folders: dict[str, list[Path]] = {}
    for path in FILES:
        if path.name != "__init__.py":
            folder = path.parent.relative_to(ROOT / "tilegrad")
            folders.setdefault(path.stem, []).append(folder)
    several = {name: sorted(found) for name, found in folders.items() if len(found) > 1}
    without = {name for name, found in several.items() if not is_named_for_a_reason(found)}
    assert without == set()
    assert len(several) <= 39
