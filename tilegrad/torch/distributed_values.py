"""`torch.distributed.nn`: what a group sums, gathers or sends as values, through which gradients
go. A group is one process, so they are what it has.
"""

from __future__ import annotations

from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.distributed import ReduceOp, get_world_size

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "scatter"]


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """The tensor. Raises ValueError where there is no group."""
    get_world_size(group)
    return tensor.clone()


def reduce(tensor: Any, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """The tensor. Raises ValueError where there is no group."""
    return all_reduce(tensor, op, group)


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """The tensor. Raises ValueError where there is no group."""
    return all_reduce(tensor, group=group)


def all_gather(tensor: Any, group: Any = None) -> tuple[Any, ...]:
    """The tensor alone. Raises ValueError where there is no group."""
    return (all_reduce(tensor, group=group),)


def gather(tensor: Any, dst: int = 0, group: Any = None) -> tuple[Any, ...]:
    """The tensor alone. Raises ValueError where there is no group."""
    return all_gather(tensor, group)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    """The only one of `tensors`. Raises ValueError where there is no group, or another number."""
    (tensor,) = tensors
    return all_reduce(tensor, group=group)


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> Any:
    """The only one of the inputs. Raises ValueError where there is no group, or more."""
    (tensor,) = input_tensor_list
    return all_gather(tensor, group)


refuse_others(__name__, "torch.distributed.nn")
