"""`torch.multiprocessing`: Python's own. Tensors go to another process as copies."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from typing import Any

from tilegrad.base.absent import as_asked
from tilegrad.torch.absent_hints import absent

__all__ = [
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
]  # fmt: skip

_STRATEGY = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The ways to share memory that are accepted; tensors are copied."""
    return {_STRATEGY, "file_system"}


def get_sharing_strategy() -> str:
    """The usual way."""
    return _STRATEGY


def set_sharing_strategy(new_strategy: str) -> None:
    """Nothing: tensors are copied."""
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"set_sharing_strategy: {new_strategy!r} is none of PyTorch's")


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> list[Any] | None:
    """Run `fn(number, *args)` in `nprocs` processes; the processes, unless it waits for them.

    Raises RuntimeError where one of them fails.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes = [
        context.Process(target=fn, args=(number, *args), daemon=daemon) for number in range(nprocs)
    ]
    for process in processes:
        process.start()
    if not join:
        return processes
    for process in processes:
        process.join()
    for number, process in enumerate(processes):
        if process.exitcode:
            raise RuntimeError(f"spawn: process {number} ended with exit code {process.exitcode}")
    return None


def __getattr__(name: str) -> Any:
    if not name.startswith("__") and hasattr(multiprocessing, name):
        return getattr(multiprocessing, name)
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"multiprocessing.{name}")
        except ModuleNotFoundError:
            pass
    raise as_asked(AttributeError(absent("torch.multiprocessing", name, __all__), name=name))
