"""`torch.distributed` for one process: a group whose only member is this process, so that what it
sums, gathers or sends to all is what it has.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent_hints import absent, refusing
from tilegrad.torch.module_aliases import also_known

__all__ = [
    "DeviceMesh", "GroupMember", "ProcessGroup", "ReduceOp", "Work", "all_gather",
    "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "barrier", "broadcast", "broadcast_object_list",
    "destroy_process_group", "gather", "gather_object", "get_backend", "get_rank",
    "get_world_size", "group", "init_process_group", "is_available", "is_initialized",
    "is_torchelastic_launched", "monitored_barrier", "new_group", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter",
]  # fmt: skip


class ReduceOp:
    """The kind of a reduction over the processes; over one, it does nothing."""

    SUM, PRODUCT, MIN, MAX, AVG = "sum", "product", "min", "max", "avg"
    BAND, BOR, BXOR = "band", "bor", "bxor"


class ProcessGroup:
    """This process alone."""

    def __init__(self, backend: str):
        self.backend = backend

    def rank(self) -> int:
        """0."""
        return 0

    def size(self) -> int:
        """1."""
        return 1


class DeviceMesh:
    """Processes in rows and columns: there is one. Making one raises NotImplementedError."""

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError(absent("torch.distributed", type(self).__name__, ()))


class Work:
    """The result of an operation with `async_op=True`: it is through."""

    def wait(self, timeout: Any = None) -> bool:
        """True, at once."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


class group:
    """The groups that stand for a choice: all processes."""

    WORLD: ProcessGroup | None = None


GroupMember = group


def is_available() -> bool:
    """False: there are no other processes. `init_process_group` of one process works."""
    return False


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return group.WORLD is not None


def is_torchelastic_launched() -> bool:
    """Whether a launcher of several processes started this one."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    **options: Any,
) -> None:
    """Make the group of this process. `world_size` and `rank` are 1 and 0, those of the environment
    (WORLD_SIZE, RANK) where they are not given.

    Raises NotImplementedError for a larger group, ValueError for another rank or a second call.
    """
    size = world_size if world_size != -1 else int(os.environ.get("WORLD_SIZE", "1"))
    own = rank if rank != -1 else int(os.environ.get("RANK", "0"))
    if size != 1:
        raise NotImplementedError(
            f"torch.distributed.init_process_group: a group of {size} processes; one process "
            "computes so far: world_size=1"
        )
    if own != 0:
        raise ValueError(f"torch.distributed.init_process_group: rank {own} in a group of 1")
    if group.WORLD is not None:
        raise ValueError("torch.distributed.init_process_group: there is a group already")
    group.WORLD = ProcessGroup(backend or "gloo")


def destroy_process_group(group: Any = None) -> None:
    """The end of the group; of one that `new_group` made, nothing.

    Raises ValueError where there is none.
    """
    _asked(group)
    if group is None or group is _World.WORLD:
        _World.WORLD = None


_World = group


def _asked(given: Any) -> ProcessGroup:
    """The group: the one of all processes unless another is given."""
    found = given or _World.WORLD
    if found is None:
        raise ValueError(
            "torch.distributed: there is no group of processes; call init_process_group first"
        )
    assert isinstance(found, ProcessGroup)
    return found


def _only(name: str, rank: int, role: str) -> None:
    if rank != 0:
        raise ValueError(f"torch.distributed.{name}: {role} {rank} in a group of 1 process")


def _through(async_op: bool) -> Work | None:
    return Work() if async_op else None


def get_rank(group: Any = None) -> int:
    """0. Raises ValueError where there is no group."""
    return _asked(group).rank()


def get_world_size(group: Any = None) -> int:
    """1. Raises ValueError where there is no group."""
    return _asked(group).size()


def get_backend(group: Any = None) -> str:
    """The backend that `init_process_group` was told."""
    return _asked(group).backend


def new_group(ranks: Sequence[int] | None = None, **options: Any) -> ProcessGroup:
    """A group of this process.

    Raises ValueError where `ranks` has others, or there is no group of all.
    """
    if ranks is not None and list(ranks) != [0]:
        raise ValueError(f"torch.distributed.new_group: ranks {list(ranks)} of 1 process")
    return ProcessGroup(_asked(None).backend)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Nothing: there is no other process to wait for."""
    _asked(group)
    return _through(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Nothing: there is no other process to wait for."""
    _asked(group)


def all_reduce(
    tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`tensor` stays: it is the sum, product or extreme of all processes' tensors."""
    _asked(group)
    return _through(async_op)


def reduce(
    tensor: Any, dst: int = 0, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """As `all_reduce`. Raises ValueError for a `dst` other than 0."""
    _only("reduce", dst, "dst")
    return all_reduce(tensor, op, group, async_op)


def broadcast(tensor: Any, src: int = 0, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor` stays. Raises ValueError for a `src` other than 0."""
    _only("broadcast", src, "src")
    _asked(group)
    return _through(async_op)


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: Any = None, device: Any = None
) -> None:
    """The objects stay. Raises ValueError for a `src` other than 0."""
    _only("broadcast_object_list", src, "src")
    _asked(group)


def _one(name: str, into: Any) -> None:
    if len(into) != 1:
        raise ValueError(f"torch.distributed.{name}: a list of {len(into)} for 1 process")


def all_gather(
    tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write `tensor` to the only one of `tensor_list`. Raises ValueError for more or fewer."""
    _asked(group)
    _one("all_gather", tensor_list)
    tensor_list[0].copy_(tensor)
    return _through(async_op)


def gather(
    tensor: Any, gather_list: Any = None, dst: int = 0, group: Any = None, async_op: bool = False
) -> Work | None:
    """As `all_gather`. Raises ValueError for a `dst` other than 0."""
    _only("gather", dst, "dst")
    return all_gather(gather_list or [], tensor, group, async_op)


def scatter(
    tensor: Any, scatter_list: Any = None, src: int = 0, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write the only one of `scatter_list` to `tensor`. Raises ValueError for more or fewer."""
    _only("scatter", src, "src")
    return reduce_scatter(tensor, scatter_list or [], group=group, async_op=async_op)


def reduce_scatter(
    output: Any, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write the only one of `input_list` to `output`. Raises ValueError for more or fewer."""
    _asked(group)
    _one("reduce_scatter", input_list)
    output.copy_(input_list[0])
    return _through(async_op)


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write `input_tensor` to `output_tensor`, which has as many elements."""
    _asked(group)
    output_tensor.copy_(input_tensor.reshape(output_tensor.shape))
    return _through(async_op)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write `input` to `output`, which has as many elements."""
    return all_gather_into_tensor(output, input, group, async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put `obj` into `object_list`, which has one entry. Raises ValueError for more or fewer."""
    _asked(group)
    _one("all_gather_object", object_list)
    object_list[0] = obj


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None
) -> None:
    """As `all_gather_object`. Raises ValueError for a `dst` other than 0."""
    _only("gather_object", dst, "dst")
    all_gather_object(object_gather_list or [], obj, group)


also_known(__name__, ("device_mesh", "distributed_c10d"))


if not TYPE_CHECKING:
    _refuse = refusing(__name__)

    def __getattr__(name: str) -> Any:
        if name == "nn":
            return importlib.import_module("tilegrad.torch.distributed_values")
        return _refuse(name)
