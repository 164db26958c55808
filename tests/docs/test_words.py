"""The words of the glossary in docs/architecture.md: what they replaced does not come back."""

from __future__ import annotations

import ast
import re
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
ALLOWED_IN = {"transforms": {"parts"}}
FILES = sorted((ROOT / "tilegrad").rglob("*.py"))


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_names_are_the_words_of_the_glossary(path: Path) -> None:
    words = banned()
    found = [(path.stem, 0), *identifiers(ast.parse(path.read_text()))]
    wrong = [
        f"line {line}: {name}: not {word!r} but {words[word].strip()}"
        for name, line in found
        if name not in ALLOWED_IN.get(path.stem, ())
        for word in wrong_in(name, words)
    ]
    assert not wrong
