"""LLVM IR of memory: addresses, loads and stores, and blocks behind a gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilegrad.base.dtype import DType, truncate
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.uop import UOp
from tilegrad.render.llvm_lines import mangled, memory_type, type_of
from tilegrad.render.llvm_values import Values

__all__ = ["LLVMMemory", "split_offset"]


class LLVMMemory(Values):
    """As `Values`, with accesses to memory.

    `streamed` stores go around the caches; an `early` load also asks for what lies that many
    elements ahead, in such a nearness.
    """

    def __init__(
        self,
        name: str,
        streamed: frozenset[UOp] = frozenset(),
        early: Mapping[UOp, tuple[int, int]] | None = None,
        line_bytes: int = 64,
    ):
        super().__init__(name)
        self.streamed, self.early, self.line_bytes = streamed, early or {}, line_bytes
        # The addresses that this block has, by their terms.
        self.addresses: dict[str, str] = {}

    def label(self, name: str) -> None:
        super().label(name)
        self.addresses.clear()

    def operands(self, node: UOp) -> tuple[UOp, ...]:
        """The nodes that the lines of `node` use the values of."""
        if node.op is Ops.LOAD or node.op is Ops.STORE:
            if node.src[1].dtype.lanes > 1:
                start, apart = _lanes_apart(node.src[1])
                starts = () if start is None else (split_offset(start)[0],)
                return (node.src[0], *starts, apart, *node.src[2:])
            index, offset = split_offset(node.src[1])
            is_first = node.op is Ops.LOAD and node.is_gated and node.dtype.lanes == 1
            if offset and not is_first:
                return (node.src[0], index, *node.src[2:])
        return super().operands(node)

    def element_of(self, pointer: UOp) -> str:
        """The type of the elements that `pointer` points to, as it lies in memory."""
        return memory_type(memory_of(pointer).dtype.base)  # type: ignore[attr-defined]

    def address(self, pointer: UOp, index: UOp, *, is_masked: bool = False) -> str:
        """Where an element lies. A constant in the index is added last, to the address, where it is
        part of the instruction: as part of the index, each of many neighbours would need a register
        of its own, and a widening of it.

        An address that is masked lane by lane may begin outside of the memory, and so may one to
        which a constant is added: neither is said to be `inbounds`, which would make it poison.
        """
        index, offset = split_offset(index)
        inbounds = "" if offset or is_masked else " inbounds"
        return self.element_at("ptr", pointer, index, offset, inbounds)

    def element_at(
        self, kind: str, pointer: UOp, index: UOp, offset: int, inbounds: str = ""
    ) -> str:
        """The address of an element behind a pointer of type `kind`, computed once in a block."""
        element = self.element_of(pointer)
        text = (
            f"getelementptr{inbounds} {element}, {kind} {self.values[pointer]}, "
            f"{type_of(index.dtype)} {self.use(index)}"
        )
        address = self.addresses.get(text)
        if address is None:
            address = self.addresses[text] = self.make(text)
        if not offset:
            return address
        return self.make(f"getelementptr {element}, {kind} {address}, i64 {offset}")

    def load(self, node: UOp) -> None:
        gate = node.gate if node.is_gated else None
        if gate is None:
            value = self.load_always(node)
        elif gate.dtype.lanes > 1:
            mask = self.use(gate)
            other = self.widen(self.use(node.other), node.dtype)
            at = self.address(node.src[0], node.src[1], is_masked=True)
            if _is_one_condition(gate):
                # Where the page of a load is not mapped, a processor takes hundreds of cycles to
                # find that all of its lanes are closed.
                start = self.values[node.src[0]]
                at = self.make(f"select i1 {self.use(gate.src[0])}, ptr {at}, ptr {start}")
            value = self.load_masked(at, node.dtype, (type_of(gate.dtype), mask), other)
            self.ask_ahead(node, at)
        elif node.dtype.lanes > 1:
            value = self.load_or_skip(node, self.use(gate))
        else:
            value = self.load_or_first(node, self.use(gate))
        self.values[node] = self.narrow(value, node.dtype)

    def load_always(self, node: UOp) -> str:
        at = self.address(node.src[0], node.src[1])
        align = node.dtype.itemsize
        value = self.make(f"load {memory_type(node.dtype)}, ptr {at}, align {align}")
        self.ask_ahead(node, at)
        return value

    def load_masked(self, at: str, dtype: DType, mask: tuple[str, str], other: str) -> str:
        """The lanes that `mask` (type, value) allows, and those of `other`."""
        kind = memory_type(dtype)
        operands = (("ptr", at), ("i32", str(dtype.itemsize)), mask, (kind, other))
        return self.call("masked.load", kind, *operands, suffix=f"{mangled(kind)}.p0")

    def load_or_first(self, node: UOp, gate: str) -> str:
        """A load under a gate: of the first element where it is shut, which is always there."""
        pointer, index, other, _ = node.src
        kind, where = memory_type(node.dtype), type_of(index.dtype)
        safe = self.make(f"select i1 {gate}, {where} {self.use(index)}, {where} 0")
        element = self.element_of(pointer)
        at = self.make(
            f"getelementptr inbounds {element}, ptr {self.values[pointer]}, {where} {safe}"
        )
        value = self.make(f"load {kind}, ptr {at}, align {node.dtype.itemsize}")
        shut = self.widen(self.use(other), node.dtype)
        return self.make(f"select i1 {gate}, {kind} {value}, {kind} {shut}")

    def load_or_skip(self, node: UOp, gate: str) -> str:
        """A vector load under one gate: a branch, as a slice of the vector at a safe address could
        still lie outside.
        """
        pointer, index, other, _ = node.src
        kind = memory_type(node.dtype)
        before = self.block
        shut = self.widen(self.use(other), node.dtype)
        number = self.open_gate(gate)
        at = self.address(pointer, index)
        value = self.make(f"load {kind}, ptr {at}, align {node.dtype.itemsize}")
        self.close_gate(number)
        return self.make(f"phi {kind} [ {value}, %then{number} ], [ {shut}, %{before} ]")

    def ask_ahead(self, node: UOp, at: str) -> None:
        """Prefetch memory that is needed soon, some way behind `at`, where a load is to
        ask for it.
        """
        if node not in self.early:
            return
        size = node.dtype.itemsize
        further, nearness = self.early[node]
        name = "llvm.prefetch.p0"
        self.declared[name] = f"declare void @{name}(ptr, i32, i32, i32)"
        for offset in range(0, size * node.dtype.lanes, self.line_bytes):
            line = self.make(f"getelementptr i8, ptr {at}, i64 {further * size + offset}")
            # For reading, and of data.
            self.line(f"call void @{name}(ptr {line}, i32 0, i32 {nearness}, i32 1)")

    def store(self, node: UOp) -> None:
        gate = node.gate if node.is_gated else None
        if node.src[1].dtype.lanes > 1:
            self.store_apart(node)
        elif gate is None:
            self.store_always(node)
        elif gate.dtype.lanes > 1 and not _is_one_condition(gate):
            self.store_masked(node, gate)
        else:
            # A jump over a store costs less than its mask.
            number = self.open_gate(self.use(gate.src[0] if gate.dtype.lanes > 1 else gate))
            self.store_always(node)
            self.close_gate(number)

    def store_always(self, node: UOp) -> None:
        pointer, index, value = node.src[:3]
        kind, align, hint = memory_type(value.dtype), value.dtype.itemsize, ""
        at, text = self.address(pointer, index), self.use(value)
        if node.arg is not None:
            found = self.make(f"load {kind}, ptr {at}, align {align}")
            text = self.binary(node.arg, value.dtype, self.narrow(found, value.dtype), text)
        text = self.widen(text, value.dtype)
        if node in self.streamed:
            align, hint = align * value.dtype.lanes, ", !nontemporal !0"
        self.line(f"store {kind} {text}, ptr {at}, align {align}{hint}")

    def store_apart(self, node: UOp) -> None:
        """The lanes of a vector, each at its own index."""
        pointer, index, value = node.src
        element, kind = self.element_of(pointer), memory_type(value.dtype)
        start, apart = _lanes_apart(index)
        address = self.values[pointer] if start is None else self.address(pointer, start)
        each = self.make(
            f"getelementptr {element}, ptr {address}, {type_of(apart.dtype)} {self.use(apart)}"
        )
        lanes = value.dtype.lanes
        flags = f"<{lanes} x i1>"
        full = f"llvm.masked.scatter.{mangled(kind)}.v{lanes}p0"
        self.declared[full] = f"declare void @{full}({kind}, <{lanes} x ptr>, i32, {flags})"
        self.line(
            f"call void @{full}({kind} {self.use(value)}, <{lanes} x ptr> {each}, "
            f"i32 {value.dtype.itemsize}, {flags} splat (i1 true))"
        )

    def store_masked(self, node: UOp, gate: UOp) -> None:
        lanes = _constant_lanes(gate)
        if lanes is not None and sum(lanes) == 1:
            self.store_lane(node, lanes.index(True))
            return
        pointer, index, value = node.src[:3]
        kind, flags = memory_type(value.dtype), type_of(gate.dtype)
        at, text = self.address(pointer, index, is_masked=True), self.use(value)
        if node.arg is not None:
            # Where nothing is written, nothing may be read.
            mask = (flags, self.use(gate))
            found = self.load_masked(at, value.dtype, mask, "zeroinitializer")
            text = self.binary(node.arg, value.dtype, self.narrow(found, value.dtype), text)
        text = self.widen(text, value.dtype)
        full = f"llvm.masked.store.{mangled(kind)}.p0"
        self.declared[full] = f"declare void @{full}({kind}, ptr, i32, {flags})"
        self.line(
            f"call void @{full}({kind} {text}, ptr {at}, i32 {value.dtype.itemsize}, {flags} "
            f"{self.use(gate)})"
        )

    def store_lane(self, node: UOp, lane: int) -> None:
        """One lane of a vector. For AVX-512, LLVM 22 makes a masked store of narrowed integers
        whose mask is constant, with one lane open, a store of the wide integer: also of the bytes
        behind the element.
        """
        pointer, index, value = node.src[:3]
        dtype = value.dtype.scalar
        first = self.address(pointer, index, is_masked=True)
        at = self.make(f"getelementptr {self.element_of(pointer)}, ptr {first}, i64 {lane}")
        text = self.make(f"extractelement {type_of(value.dtype)} {self.use(value)}, i32 {lane}")
        kind = memory_type(dtype)
        if node.arg is not None:
            found = self.make(f"load {kind}, ptr {at}, align {dtype.itemsize}")
            text = self.binary(node.arg, dtype, self.narrow(found, dtype), text)
        self.line(f"store {kind} {self.widen(text, dtype)}, ptr {at}, align {dtype.itemsize}")

    def open_gate(self, gate: str) -> int:
        """Begin the block that runs only where `gate` holds; its number, for `close_gate`."""
        self.count += 1
        number = self.count
        self.line(f"br i1 {gate}, label %then{number}, label %join{number}")
        self.label(f"then{number}")
        return number

    def close_gate(self, number: int) -> None:
        self.line(f"br label %join{number}")
        self.label(f"join{number}")


def split_offset(index: UOp) -> tuple[UOp, int]:
    """An index without the constant that is added to it, and this."""
    if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
        return index.src[0], index.src[1].arg
    return index, 0


def _lanes_apart(index: UOp) -> tuple[UOp | None, UOp]:
    """A vector of indices as the common part of its lanes, if it says so, and the rest."""
    if index.op is Ops.ADD and index.src[0].op is Ops.VECTORIZE and len(set(index.src[0].src)) == 1:
        return index.src[0].src[0], index.src[1]
    return None, index


def _constant_lanes(gate: UOp) -> list[bool] | None:
    """Which lanes of a gate are open, where it depends on nothing."""
    found: dict[UOp, list[Any]] = {}
    for node in gate.toposort():
        if node.op is Ops.CONST:
            found[node] = [node.arg] * node.dtype.lanes
        elif node.op is Ops.VECTORIZE:
            found[node] = [found[source][0] for source in node.src]
        elif node.op is Ops.CAST:
            found[node] = [truncate(value, node.dtype) for value in found[node.src[0]]]
        elif node.op.evaluate is not None:
            rows = zip(*[found[source] for source in node.src])
            found[node] = [truncate(node.op.evaluate(*row), node.dtype) for row in rows]
        else:
            return None
    return found[gate]


def _is_one_condition(gate: UOp) -> bool:
    """Whether all lanes are open or none."""
    return gate.op is Ops.VECTORIZE and len(set(gate.src)) == 1
