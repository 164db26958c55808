"""The protocol of a device that runs programs: memory, copies, launches.

A runtime is the last stage of the data's way. It sees bytes and binaries, never graphs: `load`
takes what the back end's compiler made, `launch` takes what `load` gave, one handle per slot of the
kernel's graph in their order, and one integer per DEFINE_VAR in the order in which they stand in
the program. A program may have no use for some slots: then it has no DEFINE_GLOBAL of theirs.

Required are memory, two copies, `load` and `launch`, and for plans with temporaries, which share
one block, views of memory (`view`). The rest has a default that says "not here"; a device that
can do better derives from `Runtime` and overrides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DeviceError, OutOfMemoryError
from tilegrad.ir.interpret import evaluate_size
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Dims", "LaunchDims", "Runtime", "launch_dims", "variable_names"]

Dims = tuple[int, ...]
T = TypeVar("T")


class Runtime(Protocol):
    """Memory and launches of one device. Handles and programs are whatever the runtime likes;
    None is no handle.
    """

    cache_bytes: int = 1 << 31
    """How many freed bytes the allocator above may keep for reuse."""

    is_timed: bool = True
    """Whether the time of a launch tells how good a kernel is, so that search may measure it."""

    number_types: Mapping[DType, Any] = {}
    """Where a handle is the address of memory that the host reads as soon as a launch has returned:
    by dtype, the class of `ctypes` of one number."""

    def relieve(self) -> int:
        """Give back the memory that waits for reuse, where a driver finds no room at a launch, as
        it may take memory only then; the bytes given back. The allocator sets it.
        """
        return 0

    def in_use(self) -> Mapping[str, str]:
        """Owners of the device's memory, for errors. The allocator sets it."""
        return {}

    def with_room(self, call: Callable[[], T]) -> T:
        """`call()`, of something that takes memory other than by `allocate`: a launch, the code of
        a program. Where there is none, what waits for reuse goes back, and it is called again.

        Raises OutOfMemoryError, with what holds the memory, if there is still none.
        """
        try:
            return call()
        except OutOfMemoryError:
            self.relieve()
        try:
            return call()
        except OutOfMemoryError as error:
            details = {**self.in_use(), **error.details}
            raise OutOfMemoryError(error.headline, **details) from None

    def waited(self, seconds: float) -> None:
        """Tell that the host has waited so long for the device's queue, other than in a launch that
        is timed or in a copy that is itself in the queue. The allocator sets it.
        """
        return None

    def allocate(self, nbytes: int) -> Any:
        """A handle to `nbytes` > 0 bytes, aligned for every dtype. No kernel may count on more
        bytes, nor on more than the alignment of its elements: a buffer may be a slice of another,
        or a NumPy array.

        Raises MemoryError where there is no room; the allocator then gives back what it keeps and
        asks again.
        """
        ...

    def free(self, handle: Any, nbytes: int) -> None:
        """Give back memory that `allocate(nbytes)` returned."""
        ...

    def copy_in(self, handle: Any, data: memoryview) -> None:
        """Write the bytes `data` at the start of the memory; `data` may change as soon as this
        returns.
        """
        ...

    def copy_out(self, data: memoryview, handle: Any) -> None:
        """Read the memory's first bytes into `data`, after every launch made before."""
        ...

    def load(self, name: str, binary: bytes) -> Any:
        """The program `name` of a compiled binary, ready for `launch`. It is unloaded when the
        last reference goes.
        """
        ...

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        """Run a program; with `wait`, until it is done, and return its seconds.

        `global_size` counts blocks, `local_size` lanes of a block; a program with a `chunk` has
        as many chunks as `global_size[0]`. Raises DeviceError if the sizes are more than the
        device has.
        """
        ...

    def sequence(
        self, launches: Sequence[tuple[Any, int, Dims]], is_small: bool
    ) -> Callable[[Sequence[int]], None] | None:
        """Several launches as one call, if the device has that: of each the program, how many
        handles and variables it takes, and the global size. The function takes all of these, one
        launch after the other. Where there is little work (`is_small`), no other thread is woken.
        """
        return None

    def preparation(self) -> Callable[[], None] | None:
        """Function that makes the device ready for its first launch, to be called in another thread
        while the kernels of that launch are made; None where there is nothing to do.
        """
        return None

    def synchronize(self) -> None:
        """Wait until every launch and copy has ended."""
        return None

    def view(self, handle: Any, offset: int, nbytes: int) -> Any:
        """A handle to `nbytes` bytes, `offset` bytes inside `handle`'s memory; it is never freed
        by itself.
        """
        raise DeviceError(
            f"{type(self).__name__}: no handle can point inside a buffer",
            offset=offset,
            rule="a runtime whose kernels share one block of temporaries overrides view",
        )

    def host_view(self, handle: Any, nbytes: int) -> memoryview | None:
        """The memory itself where the host can read and write it in place, else None."""
        return None

    def bytes_at(self, handle: Any, nbytes: int) -> bytes | None:
        """A copy of small memory, where the host reads it as soon as a launch has returned and that
        is quicker than to look at it in place, else None.
        """
        return None

    def wrap(self, memory: memoryview) -> Any:
        """A handle to host memory that someone else owns and keeps alive; None where kernels
        cannot reach it.
        """
        return None

    def transfer(self, target: Any, source: Any, source_runtime: Runtime, nbytes: int) -> bool:
        """Copy straight from another device's memory; False where the bytes must go through the
        host.
        """
        return False


@dataclass(frozen=True)
class LaunchDims:
    """How much of a program runs at once: blocks, and lanes of a block."""

    global_size: Dims = (1, 1, 1)
    local_size: Dims = (1, 1, 1)


def launch_dims(program: Sequence[UOp], variables: Mapping[str, int] | None = None) -> LaunchDims:
    """The blocks and lanes that the SPECIAL nodes of a linear program ask for; absent axes have
    extent 1.
    """
    sizes = {"gidx": [1, 1, 1], "lidx": [1, 1, 1]}
    for node in program:
        if node.op is not Ops.SPECIAL:
            continue
        name, extent = node.arg
        kind, axis = ("gidx", 0) if name == "chunk" else (name[:-1], int(name[-1]))
        sizes[kind][axis] = evaluate_size(extent, variables or {})
    return LaunchDims(
        (sizes["gidx"][0], sizes["gidx"][1], sizes["gidx"][2]),
        (sizes["lidx"][0], sizes["lidx"][1], sizes["lidx"][2]),
    )


def variable_names(program: Sequence[UOp]) -> tuple[str, ...]:
    """The run-time parameters of a linear program, in the order in which `launch` takes their
    values.
    """
    return tuple(node.name for node in program if node.op is Ops.DEFINE_VAR)
