"""Stores that go around the caches, for results that no cache will hold until they are read.

Such a store writes whole lines to memory without first reading them, which is a third of the
traffic of a copy. Processors ask for two things: addresses that are a multiple of the vector's
size, and a fence before another thread may look. The index shows the first for the element's place
in its buffer; that the buffer itself begins at such an address is tested at each launch, by an
entry that chooses between two renderings of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import Place, Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["entry", "streamed"]


def streamed(program: Sequence[UOp], cache_bytes: int, vector_bytes: int) -> frozenset[UOp]:
    """The stores of whole vectors to buffers larger than the last cache, of which the kernel itself
    reads nothing.
    """
    if not cache_bytes:
        return frozenset()
    read = {node.src[0] for node in program if node.op is Ops.LOAD}
    found = []
    for node in program:
        if node.op is not Ops.STORE or node.arg is not None or len(node.src) != 3:
            continue
        pointer, index, value = node.src
        memory = pointer.dtype
        if (
            isinstance(memory, Pointer)
            and memory.place is Place.GLOBAL
            and memory.size * memory.base.itemsize > cache_bytes
            and value.dtype.itemsize * value.dtype.lanes == vector_bytes
            and index.divisor % value.dtype.lanes == 0
            and pointer not in read
        ):
            found.append(node)
    return frozenset(found)


def entry(name: str, streaming: str, plain: str, slots: Sequence[int], vector_bytes: int) -> str:
    """The kernel `name`: `streaming` where the parameters in `slots` are aligned, else `plain`."""
    lines = [f"define void @{name}(ptr noalias %args, i64 %chunk) #0 {{"]
    total = "0"
    for slot in slots:
        lines.append(f"  %at{slot} = getelementptr i64, ptr %args, i64 {slot}")
        lines.append(f"  %address{slot} = load i64, ptr %at{slot}")
        lines.append(f"  %all{slot} = or i64 %address{slot}, {total}")
        total = f"%all{slot}"
    lines += [
        f"  %rest = urem i64 {total}, {vector_bytes}",
        "  %is_aligned = icmp eq i64 %rest, 0",
        "  br i1 %is_aligned, label %stream, label %plain",
        "stream:",
        f"  call void @{streaming}(ptr %args, i64 %chunk)",
        "  fence seq_cst",
        "  ret void",
        "plain:",
        f"  call void @{plain}(ptr %args, i64 %chunk)",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
