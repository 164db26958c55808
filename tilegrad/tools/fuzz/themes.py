"""Statements that meet in a short loop (`drawn_loops.py`): what a mistake is about, one at a time.

A loop of a few statements that are drawn from all kinds has two that touch the same rule once in
some thousand loops. Kinds of one theme touch it in most.
"""

from __future__ import annotations

import random

from tilegrad.tools.fuzz.statements import STATEMENTS, StatementKind

__all__ = ["THEMES", "of_a_theme"]


def _names(*words: str) -> tuple[str, ...]:
    """The statements with one of `words` in their names."""
    return tuple([name for name in STATEMENTS if any(word in name for word in words)])


THEMES: dict[str, tuple[str, ...]] = {
    # Numbers that are equal to a constant of a method, to a length, or to each other.
    "numbers": (
        "times", "plus", "minus", "less", "affine", "three_quarters", "share", "by_length",
        "inverse_length", "masked", "at_most", "scale", "fill", "set_number", "step",
        "captured_with_number", "gradient", *_names("beside"),
    ),
    # Values whose sizes are unknowns, or equal by chance.
    "sizes": (
        "sum", "mean", "beside_mean", "by_length", "joined", "lengthen", "matrix_product",
        "transposed_product", "softmax", "spread", "product", "sum_of", "cumsum", "expanded",
        "tril", "flat", "halves", "gradient_of_product", "gradient_by_backward", "captured_sum",
    ),
    # Slices of memory, at positions that change, and what is computed of two of them.
    "slices": (
        "row", "slice", "slice_and_length", "slice_beside_half", "first", "last", "columns",
        "column", "element", "halves", "both_halves", "transposed", "product", "sum_of",
        "times_item_of_view", "times_element", "set_row", "joined", "rows_added", "flat",
    ),
    # One memory or two, what sees a write, and what is held while it is overwritten.
    "aliases": (
        *_names("either", "changes", "write_", "halving"), "average", "set_row", "set_slice",
        "add_to_row", "decay", "assign", "copy", "decay_and_add", "product", "slice",
    ),
    "writes": (
        *_names("set_", "write_", "assign", "copy", "what_a_view"), "add_to_row", "decay", "scale",
        "fill", "shift_rows", "decay_and_add", "row", "first", "slice", "times_element",
    ),
    "captures": (*_names("captured"), "set_row", "average", "decay", "slice", "times"),
    "gradients": (
        *_names("gradient", "predict"), "train", "product", "times", "row", "sum", "either",
    ),
    # Pending values are computed in the middle of a step.
    "reads": (
        *_names("times_item", "realized", "rarely", "counted", "error", "branch"), "average",
        "times_element", "set_number", "product", "repeated", "decay",
    ),
    # Operands that are one, or have one shape by chance.
    "operands": (
        *_names("either", "joined", "stacked", "chosen"), "repeated", "product", "quotient",
        "larger", "matrix_product", "sum_of", "greater",
    ),
}  # fmt: skip


def of_a_theme(chance: random.Random) -> list[StatementKind]:
    """Some kinds of a theme, and now and then one of another theme."""
    theme, other = chance.sample(list(THEMES), 2)
    found = chance.sample(THEMES[theme], chance.choice((2, 3, 3, 4)))
    if chance.random() < 0.3:
        found.append(chance.choice(THEMES[other]))
    return [STATEMENTS[name] for name in dict.fromkeys(found)]
