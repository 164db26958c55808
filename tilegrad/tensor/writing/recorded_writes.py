"""Writes that a gradient flows through: the tensor is another result from then on.

    out = torch.zeros(n, m)
    out[:, 0] = h           where(indices == 0, h, out), whose gradient goes to `h`

The memory of such a tensor is not written to, as the gradient of an earlier value may need it. So
where no other tensor looks at it, the write is a call that waits like any other.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.config import gradients
from tilegrad.tensor.handle.aliases import is_alone
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.replaced import exchange
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import writes

__all__ = ["become_another", "can_become_another"]


def can_become_another(tensor: Any, value: Any) -> bool:
    """Whether `tensor`, in which a part takes `value`, may be another result that requires a
    gradient: no view, and no hook on its gradient, would see a difference.
    """
    is_tensor = isinstance(value, Core)
    if tensor._requires_grad:
        # Hooks on a node are known by that alone.
        if tensor._is_leaf or tensor._call is None or not gradients.get():
            return False
    elif not (is_tensor and value._requires_grad):
        return False
    call = tensor._call
    if call is not None and (call.pool is not this_thread.pool or call.stop is not None):
        return False
    if tensor._symbols or not is_alone(tensor) or writes.is_expanded(tensor):
        return False
    if is_tensor and not (writes.is_ours(value) and tensor.device == value.device):
        return False
    return writes.assignments_wait() and writes.is_memory_unknown(tensor)


def become_another(tensor: Any, made: Any) -> bool:
    """Let `tensor`, which `can_become_another` allows, be the result `made`, which has no other
    holder; False, and nothing has happened, unless that is another one of its shape and dtype.
    """
    if (
        made is tensor
        or made.shape != tensor.shape
        or made.dtype is not tensor.dtype
        or not made._requires_grad
    ):
        return False
    exchange(tensor, made)
    tensor._is_leaf = False
    return True
