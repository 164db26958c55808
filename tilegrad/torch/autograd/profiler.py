"""`torch.autograd.profiler`: the profiler under its older name."""

from __future__ import annotations

from typing import Any

from tilegrad.torch import profiler
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.profiler import record_function
from tilegrad.torch.profiler.events import EventList

__all__ = ["EventList", "profile", "record_function"]


class profile(profiler.profile):
    """As `torch.profiler.profile`, in one block; with `enabled=False` nothing is recorded."""

    def __init__(self, enabled: bool = True, **options: Any):
        super().__init__()
        self.enabled = enabled

    def start(self) -> None:
        """Begin to record, if it is enabled."""
        if self.enabled:
            super().start()

    def table(self, *args: Any, **options: Any) -> str:
        """The events as text."""
        return self.events().table(*args, **options)

    def total_average(self) -> Any:
        """All events as one."""
        return self.events().total_average()


refuse_others(__name__)
