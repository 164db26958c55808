"""`copy.deepcopy` of tensors that are one storage: their copies are one, too, as in PyTorch."""

from __future__ import annotations

from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.tensor.handle.aliases import Look, is_alone, look

__all__ = ["copied_with_aliases", "look_with_root"]


def copied_with_aliases(tensor: Any, memo: dict[Any, Any]) -> Any:
    """A copy of `tensor`, which requires no gradient. The tensor that it views is copied as a
    whole, once for all that `memo` has copied. A parameter is copied by itself, as PyTorch does.
    """
    is_apart = is_alone(tensor) or getattr(tensor, "_is_parameter", False)
    found = None if is_apart else look_with_root(tensor)
    if found is None or found.root is None:
        return tensor.detach().clone()
    key = copied_with_aliases, id(tensor._alias[0])
    whole = memo.get(key)
    if whole is None:
        root = tensor._of(found.root, tensor.device, tensor._variables)
        whole = memo[key] = root.detach().clone()
        if all(op is Ops.DETACH for op, _ in found.moves) and whole.shape == found.shape:
            return whole
    made = whole.detach()
    if made.shape != found.shape:
        made = made._moved(Ops.RESHAPE, found.shape)
    for op, arg in found.moves:
        if op is Ops.DETACH:
            made = made.detach()
        elif op is not Ops.CONTIGUOUS:
            made = made._moved(op, arg)
    return made


def look_with_root(tensor: Any) -> Look | None:
    """How a tensor looks at its storage, with the node of that; None if no alias shows it."""
    found = look(tensor)
    if found.root is not None:
        return found
    for each in tensor._aliases():
        root = look(each).root
        if root is not None:
            return found._replace(root=root)
    return None
