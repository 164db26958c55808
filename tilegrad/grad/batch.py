"""Batching: a graph for one example becomes one for many, which are an axis in front.

Nodes that depend on none of the mapped nodes stay as they are, without the axis, and are computed
once for all examples; they are stretched where they meet a node that has the axis. Movement,
reductions and elementwise ops take one axis more. Rows that each example picks from a table of its
own come from all tables in one, and a kernel written by hand gets a loop around it. So nothing is
computed example by example, and the result is a graph like any other: it is differentiated, batched
again, and fused.

An assignment is a value here: each example has its own, in memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import method_names, user_line
from tilegrad.grad.backward import inherit_origin
from tilegrad.grad.forward import stand_in
from tilegrad.grad.lifted import Lifted
from tilegrad.grad.loop_gradients import batched_loop
from tilegrad.grad.partial_writes import spread, where_written
from tilegrad.grad.regions import Region, region_of, register_moved
from tilegrad.grad.summed_gradients import sum_axes
from tilegrad.ir.args import CustomArg, KernelArg, KernelInfo
from tilegrad.ir.loop_building import output_of
from tilegrad.ir.movement import shaped, stretched
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import device_of, memory_of, next_number
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify
from tilegrad.ir.sizes import as_value
from tilegrad.ir.uop import UOp, pointer_of, prod, toposort

__all__ = ["batched"]


def batched(
    roots: Sequence[UOp], mapped: Mapping[UOp, UOp], size: Any, arange: Callable[[], UOp]
) -> list[UOp | None]:
    """Each of `roots` with an axis of `size` examples in front; None for one that is the same for
    all.

    `mapped` has nodes with their values with that axis. `arange` gives the vector 0, 1, ... up to
    `size`, of int32.

    Raises ShapeError for an op that cannot be batched.
    """
    return _Batch(mapped, size, arange).run(roots)


class _Batch(Lifted):
    def __init__(self, mapped: Mapping[UOp, UOp], size: Any, arange: Callable[[], UOp]):
        super().__init__(mapped, size)
        self.arange = arange
        # Nodes that were looked at, whether they depend on a mapped one or not.
        self.seen: dict[UOp, None] = dict.fromkeys(mapped)

    def run(self, roots: Sequence[UOp]) -> list[UOp | None]:
        waiting = self.visit(roots)
        while waiting:
            region = waiting.pop()
            waiting += self.visit(region.nodes)
            register_moved(region, region.replaced(self.done), self.done)
        return [self.done.get(root) for root in roots]

    def visit(self, roots: Sequence[UOp]) -> list[Region]:
        """Batch the nodes that `roots` need; the regions that depend on mapped nodes."""
        regions: dict[Region, None] = {}
        for node in toposort(roots, stop=lambda node: node in self.seen):
            if node in self.seen:
                continue
            self.seen[node] = None
            if any(source in self.done for source in node.src):
                made = self.done[node] = self.node(node)
                if node.origin:
                    inherit_origin(made, node, {self.done.get(each, each) for each in node.src})
                if (found := region_of(node)) is not None:
                    regions[found[0]] = None
        return list(regions)

    def node(self, node: UOp) -> UOp:
        """`node` for a batch, where at least one source is mapped."""
        made = self.plain(node)
        if made is not None:
            return made
        rule = _RULES.get(node.op)
        if rule is None:
            raise ShapeError(
                f"vmap: {node.op.name} has no rule for a batch",
                call=", ".join(method_names(node.origin)) or node.op.name,
                line=user_line(node.origin),
                remedy="call it outside the mapped function, on the whole batch",
            )
        return rule(self, node)

    def behind(self, x: UOp, axes: int = 1) -> UOp:
        """The axis of examples moved behind `axes` others."""
        order = (*range(1, axes + 1), 0, *range(axes + 1, len(x.shape)))
        return UOp(Ops.PERMUTE, x.dtype, (x,), order)

    def front(self, x: UOp, axes: int = 1) -> UOp:
        """Undo `behind`."""
        order = (axes, *range(axes), *range(axes + 1, len(x.shape)))
        return UOp(Ops.PERMUTE, x.dtype, (x,), order)

    def rows_of_all(self, index: UOp, rows: Any) -> UOp:
        """Rows of tables of `rows` as rows of all tables in one; those outside stay outside."""
        most = prod(each if isinstance(each, int) else each.vmax for each in (self.size, rows))
        wide = dtypes.int32 if most < 1 << 31 and index.dtype.itemsize <= 4 else dtypes.int64
        wide = dtypes.int64 if index.dtype is dtypes.uint32 else wide
        row = index.cast(wide)
        limit = as_value(rows, wide)
        inside = (row < 0).logical_not() & (row < limit)
        number = shaped(self.arange().cast(wide), (self.size, *(1 for _ in index.shape[1:])))
        return inside.where(row + stretched(number, index.shape) * limit, -1)

    # whole tensors

    def running(self, node: UOp) -> UOp:
        function, axis = node.arg
        return UOp(node.op, node.dtype, (self.done[node.src[0]],), (function, axis + 1))

    def gather(self, node: UOp) -> UOp:
        table, index = node.src
        if table not in self.done:
            return UOp(Ops.GATHER, node.dtype, (table, self.done[index]))
        if index not in self.done:
            depth = len(index.shape)
            picked = UOp(Ops.GATHER, node.dtype, (self.behind(self.done[table]), index))
            return self.front(picked, depth)
        rows = table.shape[0]
        joined = shaped(self.done[table], (self.size * rows, *table.shape[1:]))
        row = self.rows_of_all(self.done[index], rows)
        return UOp(Ops.GATHER, node.dtype, (joined, row))

    def scatter(self, node: UOp) -> UOp:
        table, index, values = node.src
        if index not in self.done:
            src = (
                self.behind(self.whole(table)),
                index,
                self.behind(self.whole(values), len(index.shape)),
            )
            return self.front(UOp(Ops.SCATTER_ADD, node.dtype, src))
        rows = table.shape[0]
        joined = shaped(self.whole(table), (self.size * rows, *table.shape[1:]))
        row = self.rows_of_all(self.done[index], rows)
        total = UOp(Ops.SCATTER_ADD, node.dtype, (joined, row, self.whole(values)))
        return shaped(total, (self.size, *table.shape))

    def assign(self, node: UOp) -> UOp:
        return UOp(Ops.CONTIGUOUS, node.dtype, (self.whole(node.src[1]),))

    def shard(self, node: UOp) -> UOp:
        axis = node.arg.axis
        arg = node.arg.split_at(None if axis is None else axis + 1)
        return UOp(Ops.SHARD, node.dtype, (self.done[node.src[0]],), arg)

    def after(self, node: UOp) -> UOp:
        memory, assign = node.src
        view = assign.src[0]
        # The same view for all examples: the graph that writes values there, batched.
        value = stand_in(assign.shape, assign.dtype, "")
        base = value if value.op is Ops.BUFFER else value.src[0]
        whole = shaped(self.whole(assign.src[1]), (self.size, *base.shape))
        inner = _Batch({base: whole}, self.size, self.arange)
        new = inner.run([spread(value, view, memory)])[0]
        assert new is not None
        mask = shaped(where_written(view, memory), (1, *memory.shape))
        return stretched(mask, new.shape).where(new, self.whole(memory))

    def loop(self, node: UOp) -> UOp:
        if not isinstance(self.size, int):
            raise ShapeError("vmap: scan needs a batch of fixed size", line=user_line(node.origin))

        def batch(roots: Sequence[UOp], mapped: Mapping[UOp, UOp]) -> list[UOp | None]:
            return _Batch(mapped, self.size, self.arange).run(roots)

        return batched_loop(node, self.done, self.size, batch)

    def output(self, node: UOp) -> UOp:
        found = output_of(self.done[node.src[0]], node.arg)
        if len(found.shape) == len(node.shape):
            return stretched(shaped(found, (1, *node.shape)), (self.size, *node.shape))
        return found if node.arg < node.src[0].arg.carries else self.behind(found)

    def custom(self, node: UOp) -> UOp:
        arg, given = node.arg, [source in self.done for source in node.src]
        if not isinstance(self.size, int):
            raise ShapeError(
                f"vmap: the kernel {arg.name} needs a batch of fixed size",
                line=user_line(node.origin),
            )
        shape = (self.size, *arg.shape)
        src = tuple(self.done.get(source, source) for source in node.src)
        if isinstance(arg, CustomArg):
            function = _each(arg.function, self.size, given)
            return UOp(Ops.CUSTOM, node.dtype, src, CustomArg(arg.name, shape, function))
        ast = _looped(arg.ast, self.size, [True, *given])
        gradient = None if arg.gradient is None else _gradient(node, given, self.size, self.arange)
        return UOp(Ops.CUSTOM, node.dtype, src, KernelArg(arg.name, shape, ast, gradient))


_RULES: dict[Ops, Callable[[_Batch, UOp], UOp]] = {
    Ops.PREFIX_AXIS: _Batch.running,
    Ops.GATHER: _Batch.gather,
    Ops.SCATTER_ADD: _Batch.scatter,
    Ops.ASSIGN: _Batch.assign,
    Ops.SHARD: _Batch.shard,
    Ops.AFTER: _Batch.after,
    Ops.CUSTOM: _Batch.custom,
    Ops.LOOP: _Batch.loop,
    Ops.LOOP_OUTPUT: _Batch.output,
}


def _gradient(
    node: UOp, given: Sequence[bool], size: Any, arange: Callable[[], UOp]
) -> Callable[[UOp, UOp], list[UOp | None]]:
    """The gradient of the kernel `node`, which is for one example, batched; `given` says which of
    its sources are.
    """

    def gradient(g: UOp, whole: UOp) -> list[UOp | None]:
        one = stand_in(node.shape, node.dtype, device_of(node) or "")
        base = one if one.op is Ops.BUFFER else one.src[0]
        mapped = {base: shaped(g, (size, *base.shape)), node: whole}
        for source, value, is_mapped in zip(node.src, whole.src, given, strict=True):
            if is_mapped:
                mapped[source] = value
        gradients = node.arg.gradient(one, node)
        batch = _Batch(mapped, size, arange)
        batch.run([each for each in gradients if each is not None])
        found: list[UOp | None] = []
        for source, each, is_mapped in zip(node.src, gradients, given, strict=True):
            total = None if each is None else batch.whole(each)
            if total is not None and not is_mapped:
                # A source that is the same for all examples has the sum of their gradients.
                total = shaped(sum_axes(total, (0,)), source.shape)
            found.append(total)
        return found

    return gradient


def _each(
    function: Callable[[Sequence[memoryview]], bytes | memoryview], size: int, given: Sequence[bool]
) -> Callable[[Sequence[memoryview]], bytes]:
    """A Python function of whole values, for one example after the other."""

    def on_batch(data: Sequence[memoryview]) -> bytes:
        inputs = [memoryview(each).cast("B") for each in data]
        found: list[bytes] = []
        for number in range(size):
            one = [
                each[number * len(each) // size : (number + 1) * len(each) // size]
                if is_mapped
                else each
                for each, is_mapped in zip(inputs, given, strict=True)
            ]
            found.append(bytes(memoryview(function(one)).cast("B")))
        return b"".join(found)

    return on_batch


def _looped(ast: UOp, size: int, given: Sequence[bool]) -> UOp:
    """A kernel with a loop over examples around it; of the parameters, in the order of their slots,
    those `given` have an element block for each example.

        before   STORE(made, i, LOAD(x, i))
        after    STORE(made, b*n + i, LOAD(x, b*n + i))
    """
    if size == 1:
        return ast
    number = next_number(ast.toposort())
    iteration = UOp.range(size, number, Axis.LOOP)
    sizes: dict[UOp, int] = {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is Ops.DEFINE_GLOBAL:
            if not given[node.arg]:
                return None
            pointer = pointer_of(node)
            sizes[node] = pointer.size
            return node.replace(dtype=pointer.base.ptr(pointer.size * size))
        if node.op is Ops.AFTER:
            return src[0].after(*src[1:])
        if node.op is Ops.DEFINE_LOCAL:
            return node.over((*src, iteration))
        base = memory_of(node.src[0])
        if base not in sizes:
            return None
        return node.over((src[0], simplify(iteration * sizes[base] + src[1]), *src[2:]))

    ops = (Ops.DEFINE_GLOBAL, Ops.AFTER, Ops.DEFINE_LOCAL, Ops.LOAD, Ops.STORE)
    info = ast.arg
    looped = KernelInfo(info.name, (number, *info.order), info.opts)
    return rebuilt(ast, change, ops).replace(arg=looped)
