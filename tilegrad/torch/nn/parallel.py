"""`torch.nn.parallel`: a module on all GPUs that there are; without any, the module itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.distributed import get_world_size
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.nn.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """A module whose batches would be shared among GPUs. One device computes so far, so calls go to
    the module, as in PyTorch without a GPU; the weights' names begin with `module.` as there.
    """

    def __init__(
        self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ):
        self.module = module

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.module(*args, **options)


class DistributedDataParallel(DataParallel):
    """A module whose gradients would be summed over the processes of a group. A group is one
    process (`torch.distributed.init_process_group`), so they are what they are.

    Raises ValueError where there is no group.
    """

    def __init__(self, module: Any, device_ids: Any = None, **options: Any):
        super().__init__(module, device_ids)
        get_world_size(options.get("process_group"))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block after which gradients would not be summed: nothing changes."""
        yield


also_known(__name__, ("data_parallel", "distributed", "scatter_gather"))

refuse_others(__name__)
