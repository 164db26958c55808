"""Tensors in tuples, lists and dicts: taken out, and put back where they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.errors import DataError
from tilegrad.nn.tree import Paired

__all__ = ["flatten", "map_pairs", "same_tree"]

Rebuild = Callable[[Sequence[Any]], Any]


def flatten(tree: Any, inside: tuple[int, ...] = ()) -> tuple[list[Any], Rebuild]:
    """The leaves of tuples, lists and dicts, in order, and a function that builds the same with
    other leaves; `inside` are the containers that `tree` lies in, so that none is in itself.
    """
    if isinstance(tree, (dict, tuple, list)):
        if id(tree) in inside:
            raise DataError(f"a {type(tree).__name__} that contains itself")
        inside = (*inside, id(tree))
    if isinstance(tree, dict):
        keys = list(tree)
        leaves, rebuild = _flatten_all([tree[key] for key in keys], inside)
        return leaves, lambda found: type(tree)(zip(keys, rebuild(found)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        leaves, rebuild = _flatten_all(tree, inside)
        return leaves, lambda found: type(tree)(*rebuild(found))
    if isinstance(tree, (tuple, list)):
        leaves, rebuild = _flatten_all(tree, inside)
        kind = tuple if isinstance(tree, tuple) else list
        return leaves, lambda found: kind(rebuild(found))
    if isinstance(tree, Paired) and tree._is_its_pair:
        return [tree.pair], lambda found: type(tree)(found[0])  # type: ignore[call-arg]
    return [tree], lambda found: found[0]


def _flatten_all(
    trees: Sequence[Any], inside: tuple[int, ...]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    pairs = [flatten(tree, inside) for tree in trees]
    counts = [len(leaves) for leaves, _ in pairs]

    def rebuild(found: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        start = 0
        for (_, one), count in zip(pairs, counts):
            made.append(one(found[start : start + count]))
            start += count
        return made

    return [leaf for leaves, _ in pairs for leaf in leaves], rebuild


def same_tree(first: Any, second: Any) -> bool:
    """Whether two values hold as much at the same positions."""
    if isinstance(first, dict):
        return (
            isinstance(second, dict)
            and first.keys() == second.keys()
            and all(same_tree(leaf, second[key]) for key, leaf in first.items())
        )
    if isinstance(first, (tuple, list)):
        return (
            isinstance(second, (tuple, list))
            and len(first) == len(second)
            and all(map(same_tree, first, second))
        )
    return not isinstance(second, (dict, tuple, list))


def map_pairs(prefix: Any, tree: Any) -> list[Any] | None:
    """For each part of `tree` what `prefix` says: one value for a whole tuple, list or dict, or one
    for each of its parts; None if it says too many or too few.
    """
    if not isinstance(prefix, (tuple, list, dict)):
        return [prefix] * len(flatten(tree)[0])
    if isinstance(prefix, dict):
        if not isinstance(tree, dict) or prefix.keys() != tree.keys():
            return None
        pairs = [(prefix[key], leaf) for key, leaf in tree.items()]
    elif not isinstance(tree, (tuple, list)) or len(prefix) != len(tree):
        return None
    else:
        pairs = list(zip(prefix, tree))
    found: list[Any] = []
    for one, leaf in pairs:
        below = map_pairs(one, leaf)
        if below is None:
            return None
        found += below
    return found
