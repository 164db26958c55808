"""`torch._higher_order_ops`: scans by an operation of a program's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.complexes import cat
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.utils._pytree import tree_flatten, tree_leaves

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """The combination by `combine_fn` of all elements up to each one along `dim`: a tree of tensors
    like `xs`. It combines two such trees and is associative. `combine_mode` has no effect.

    Shape: the tensors have one size along `dim`, n; each of log2(n) rounds (Hillis and Steele,
    1986) combines all of them.

    Raises ValueError where there is no tensor, or sizes along `dim` differ, or `combine_fn` gives
    another number of tensors.

    >>> import tilegrad.torch as torch
    >>> from tilegrad.torch._higher_order_ops import associative_scan
    >>> associative_scan(lambda a, b: a * b, torch.tensor([1, 2, 3, 4]), 0).tolist()
    [1, 2, 6, 24]
    """
    leaves, spec = tree_flatten(xs)
    sizes = {leaf.shape[dim] for leaf in leaves}
    if len(sizes) != 1:
        raise ValueError(f"associative_scan: sizes {sorted(sizes)} along axis {dim}, not one")
    (size,) = sizes
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    step = 1
    while step < size:
        earlier = spec.unflatten([leaf.narrow(dim, 0, size - step) for leaf in leaves])
        later = spec.unflatten([leaf.narrow(dim, step, size - step) for leaf in leaves])
        combined = tree_leaves(combine_fn(earlier, later))
        if len(combined) != len(leaves):
            raise ValueError(
                f"associative_scan: combine_fn gave {len(combined)} tensors for {len(leaves)}"
            )
        leaves = [
            cat([leaf.narrow(dim, 0, step), more], dim)
            for leaf, more in zip(leaves, combined, strict=True)
        ]
        step *= 2
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    return spec.unflatten(leaves)


also_known(__name__, ("associative_scan",))

refuse_others(__name__)
