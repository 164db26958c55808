"""Programs as LLVM IR text: `void @kernel(ptr args, i64 chunk)`.

Vectors, loops and the order of instructions come ready from lowering, so that LLVM has to do what
it is best at: select instructions, allocate registers, schedule. Accumulators are stack slots,
which `mem2reg` turns into registers. There are no fast-math flags: floats mean what the graph says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilegrad.base.dtype import DType, Place, Pointer
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.uop import UOp
from tilegrad.render.llvm_values import Values, constant_of, mangled, memory_type, type_of
from tilegrad.render.stream import ahead, entry, read_once, streamed

__all__ = ["Function", "LLVMRenderer"]

# The nearness that a prefetch asks for: the second cache; the first alone, for one use.
_NEAR, _ONCE = 2, 0


class LLVMRenderer:
    """Renders programs for a CPU whose vectors are at most `vector_bytes` long, and whose last
    cache holds `cache_bytes` (0: not known) in lines of `line_bytes`. `attributes` of the functions
    say what else LLVM is to know, such as the least length of vectors that have no fixed one.
    """

    def __init__(
        self,
        vector_bytes: int = 64,
        cache_bytes: int = 0,
        attributes: str = "",
        line_bytes: int = 64,
    ):
        self.vector_bytes, self.cache_bytes = vector_bytes, cache_bytes
        self.attributes, self.line_bytes = attributes, line_bytes

    def render(self, name: str, program: list[UOp]) -> str:
        """The IR module with one kernel."""
        stores = streamed(program, self.cache_bytes, self.vector_bytes)
        early = {node: (step, _NEAR) for node, step in ahead(program, self.cache_bytes).items()}
        for node, step in read_once(program, self.cache_bytes).items():
            early.setdefault(node, (step, _ONCE))
        if not stores:
            function = Function(name, program, early=early, line_bytes=self.line_bytes)
            functions, texts = [function], [function.text("void")]
        else:
            streaming = Function(f"{name}_streaming", program, stores, early, self.line_bytes)
            plain = Function(f"{name}_plain", program, early=early, line_bytes=self.line_bytes)
            functions = [streaming, plain]
            slots = sorted({store.src[0].arg for store in stores})
            texts = [each.text("internal void") for each in functions]
            texts.append(entry(name, streaming.name, plain.name, slots, self.vector_bytes))
        bits = self.vector_bytes * 8
        attributes = (
            f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" "no-builtins"'
        )
        texts += sorted({line for each in functions for line in each.declared.values()})
        more = f" {self.attributes}" if self.attributes else ""
        texts.append(f"attributes #0 = {{ nounwind {attributes}{more} }}")
        if stores:
            texts.append("!0 = !{i32 1}")
        return "\n".join(texts) + "\n"


class Function(Values):
    """The function of one program, written instruction by instruction.

    `streamed` stores go around the caches; an `early` load also asks for what lies so many elements
    ahead, in such a nearness.
    """

    def __init__(
        self,
        name: str,
        program: list[UOp],
        streamed: frozenset[UOp] = frozenset(),
        early: Mapping[UOp, tuple[int, int]] | None = None,
        line_bytes: int = 64,
    ):
        super().__init__(name)
        self.program, self.streamed = program, streamed
        self.early, self.line_bytes = early or {}, line_bytes
        self.entry: list[str] = []
        self.heads: dict[UOp, tuple[str, str]] = {}
        pointers = [node for node in program if node.op is Ops.DEFINE_GLOBAL]
        self.slots = 1 + max((node.arg for node in pointers), default=-1)
        self.variables = [node for node in program if node.op is Ops.DEFINE_VAR]

    def text(self, kind: str) -> str:
        """The definition; `kind` is its linkage and what it gives."""
        for node in self.program:
            self.emit(node)
        lines = [
            f"define {kind} @{self.name}(ptr noalias %args, i64 %chunk) #0 {{",
            "entry:",
            *self.entry,
            "  br label %start",
            "start:",
            *self.body,
            "  ret void",
            "}",
        ]
        return "\n".join(lines)

    # one instruction

    @staticmethod
    def handlers() -> Mapping[Ops, Callable[[Any, UOp], None]]:
        """The ops that are no arithmetic, and what writes each."""
        return _HANDLERS

    def emit(self, node: UOp) -> None:
        handler = self.handlers().get(node.op)
        if handler is not None:
            handler(self, node)
        elif node.op.is_alu:
            self.values[node] = self.alu(node)
        else:
            raise CompileError(f"llvm: a {node.op} has no meaning on a CPU", kernel=self.name)

    def define_global(self, node: UOp) -> None:
        self.values[node] = f"%data{node.arg}"
        # Arguments are words of 64 bits, where pointers are shorter too.
        self.entry.append(f"  %slot{node.arg} = getelementptr i64, ptr %args, i64 {node.arg}")
        self.entry.append(f"  %data{node.arg} = load ptr, ptr %slot{node.arg}")

    def define_var(self, node: UOp) -> None:
        place = self.slots + self.variables.index(node)
        name = f"%var{place}"
        self.entry.append(f"  {name}.p = getelementptr i64, ptr %args, i64 {place}")
        self.entry.append(f"  {name}.w = load i64, ptr {name}.p")
        kind = type_of(node.dtype)
        self.entry.append(
            f"  {name} = add i64 {name}.w, 0"
            if kind == "i64"
            else f"  {name} = trunc i64 {name}.w to {kind}"
        )
        self.values[node] = name

    def define_local(self, node: UOp) -> None:
        pointer = node.dtype
        assert isinstance(pointer, Pointer)
        if pointer.place is Place.SHARED:
            raise CompileError("llvm: a CPU kernel has no shared memory", kernel=self.name)
        name = f"%scratch{node.arg}"
        self.entry.append(
            f"  {name} = alloca [{pointer.size} x {memory_type(pointer.base)}], align 64"
        )
        self.values[node] = name

    def define_acc(self, node: UOp) -> None:
        name = f"%acc{node.arg}"
        kind = type_of(node.dtype)
        self.entry.append(f"  {name} = alloca {kind}")
        self.line(f"store {kind} {self.use(node.src[0])}, ptr {name}")
        self.values[node] = name

    def assign(self, node: UOp) -> None:
        accumulator, value = node.src
        self.line(f"store {type_of(node.dtype)} {self.use(value)}, ptr {self.values[accumulator]}")

    def after(self, node: UOp) -> None:
        source = node.src[0]
        if source.op is Ops.DEFINE_ACC:
            self.values[node] = self.use(source)
        elif source.op is Ops.CONST:
            self.values[node] = constant_of(source.arg, source.dtype)
        else:
            self.values[node] = self.values[source]

    def special(self, node: UOp) -> None:
        if node.arg[0] != "chunk":
            raise CompileError(f"llvm: a CPU launch has no {node.arg[0]}", kernel=self.name)
        kind = type_of(node.dtype)
        self.values[node] = "%chunk" if kind == "i64" else self.make(f"trunc i64 %chunk to {kind}")

    # loops

    def range(self, node: UOp) -> None:
        extent = self.use(node.src[0])
        kind = type_of(node.dtype)
        self.count += 1
        number = self.count
        head, foot = f"loop{number}", f"done{number}"
        if node.src[0].vmin < 1:
            some = self.make(f"icmp sgt {kind} {extent}, 0")
            before = self.block
            self.line(f"br i1 {some}, label %{head}, label %{foot}")
        else:
            before = self.block
            self.line(f"br label %{head}")
        self.label(head)
        self.values[node] = f"%i{number}"
        # The back edge is known at the END; its line is filled in there.
        self.heads[node] = (head, foot)
        self.line(f"%i{number} = phi {kind} [ 0, %{before} ], [ %n{number}, %latch{number} ]")

    def end(self, node: UOp) -> None:
        loop = node.src[0]
        head, foot = self.heads[loop]
        number = head[4:]
        kind = type_of(loop.dtype)
        self.line(f"br label %latch{number}")
        self.label(f"latch{number}")
        self.line(f"%n{number} = add nuw nsw {kind} %i{number}, 1")
        again = self.make(f"icmp slt {kind} %n{number}, {self.use(loop.extent)}")
        self.line(f"br i1 {again}, label %{head}, label %{foot}")
        self.label(foot)

    # memory

    def element_of(self, pointer: UOp) -> str:
        """The type of the elements that `pointer` points to, as it lies in memory."""
        return memory_type(memory_of(pointer).dtype.base)  # type: ignore[attr-defined]

    def address(self, pointer: UOp, index: UOp, *, is_masked: bool = False) -> str:
        """Where an element lies. A constant in the index is added last, to the address, where it is
        part of the instruction: as part of the index, each of many neighbours would need a register
        of its own, and a widening of it.

        What is masked lane by lane may begin outside of the memory, and so may what a constant is
        added to: neither is said to be `inbounds`, which would make it poison.
        """
        kind = self.element_of(pointer)
        offset = 0
        if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
            index, offset = index.src[0], index.src[1].arg
        inbounds = "" if offset or is_masked else " inbounds"
        place = self.make(
            f"getelementptr{inbounds} {kind}, ptr {self.values[pointer]}, {type_of(index.dtype)} "
            f"{self.use(index)}"
        )
        return self.make(f"getelementptr {kind}, ptr {place}, i64 {offset}") if offset else place

    def load(self, node: UOp) -> None:
        gate = node.gate if node.is_gated else None
        if gate is None:
            value = self.load_always(node)
        elif gate.dtype.lanes > 1:
            mask = self.use(gate)
            other = self.widen(self.use(node.src[2]), node.dtype)
            place = self.address(node.src[0], node.src[1], is_masked=True)
            value = self.load_masked(place, node.dtype, (type_of(gate.dtype), mask), other)
            self.ask_ahead(node, place)
        elif node.dtype.lanes > 1:
            value = self.load_or_skip(node, self.use(gate))
        else:
            value = self.load_or_first(node, self.use(gate))
        self.values[node] = self.narrow(value, node.dtype)

    def load_always(self, node: UOp) -> str:
        place = self.address(node.src[0], node.src[1])
        align = node.dtype.itemsize
        value = self.make(f"load {memory_type(node.dtype)}, ptr {place}, align {align}")
        self.ask_ahead(node, place)
        return value

    def load_masked(self, place: str, dtype: DType, mask: tuple[str, str], other: str) -> str:
        """The lanes that `mask` (type, value) allows, and those of `other`."""
        kind = memory_type(dtype)
        parts = (("ptr", place), ("i32", str(dtype.itemsize)), mask, (kind, other))
        return self.call("masked.load", kind, *parts, suffix=f"{mangled(kind)}.p0")

    def load_or_first(self, node: UOp, gate: str) -> str:
        """A load under a gate: of the first element where it is shut, which is always there."""
        pointer, index, other, _ = node.src
        kind, where = memory_type(node.dtype), type_of(index.dtype)
        safe = self.make(f"select i1 {gate}, {where} {self.use(index)}, {where} 0")
        element = self.element_of(pointer)
        place = self.make(
            f"getelementptr inbounds {element}, ptr {self.values[pointer]}, {where} {safe}"
        )
        value = self.make(f"load {kind}, ptr {place}, align {node.dtype.itemsize}")
        shut = self.widen(self.use(other), node.dtype)
        return self.make(f"select i1 {gate}, {kind} {value}, {kind} {shut}")

    def load_or_skip(self, node: UOp, gate: str) -> str:
        """A vector load under one gate: a branch, as a part of the vector at a safe place could
        still lie outside.
        """
        pointer, index, other, _ = node.src
        kind = memory_type(node.dtype)
        before = self.block
        shut = self.widen(self.use(other), node.dtype)
        number = self.open_gate(gate)
        place = self.address(pointer, index)
        value = self.make(f"load {kind}, ptr {place}, align {node.dtype.itemsize}")
        self.close_gate(number)
        return self.make(f"phi {kind} [ {value}, %then{number} ], [ {shut}, %{before} ]")

    def ask_ahead(self, node: UOp, place: str) -> None:
        """Have memory brought near that is needed soon, some way behind `place`, where a load is to
        ask for it.
        """
        if node not in self.early:
            return
        size = node.dtype.itemsize
        further, nearness = self.early[node]
        name = "llvm.prefetch.p0"
        self.declared[name] = f"declare void @{name}(ptr, i32, i32, i32)"
        for offset in range(0, size * node.dtype.lanes, self.line_bytes):
            line = self.make(f"getelementptr i8, ptr {place}, i64 {further * size + offset}")
            # For reading, and of data.
            self.line(f"call void @{name}(ptr {line}, i32 0, i32 {nearness}, i32 1)")

    def store(self, node: UOp) -> None:
        gate = node.gate if node.is_gated else None
        if gate is None:
            self.store_always(node)
        elif gate.dtype.lanes > 1:
            self.store_masked(node, gate)
        else:
            number = self.open_gate(self.use(gate))
            self.store_always(node)
            self.close_gate(number)

    def store_always(self, node: UOp) -> None:
        pointer, index, value = node.src[:3]
        kind, align, hint = memory_type(value.dtype), value.dtype.itemsize, ""
        place, text = self.address(pointer, index), self.use(value)
        if node.arg is not None:
            found = self.make(f"load {kind}, ptr {place}, align {align}")
            text = self.binary(node.arg, value.dtype, self.narrow(found, value.dtype), text)
        text = self.widen(text, value.dtype)
        if node in self.streamed:
            align, hint = align * value.dtype.lanes, ", !nontemporal !0"
        self.line(f"store {kind} {text}, ptr {place}, align {align}{hint}")

    def store_masked(self, node: UOp, gate: UOp) -> None:
        pointer, index, value = node.src[:3]
        kind, flags = memory_type(value.dtype), type_of(gate.dtype)
        place, text = self.address(pointer, index, is_masked=True), self.use(value)
        if node.arg is not None:
            # Where nothing is written, nothing may be read.
            mask = (flags, self.use(gate))
            found = self.load_masked(place, value.dtype, mask, "zeroinitializer")
            text = self.binary(node.arg, value.dtype, self.narrow(found, value.dtype), text)
        text = self.widen(text, value.dtype)
        full = f"llvm.masked.store.{mangled(kind)}.p0"
        self.declared[full] = f"declare void @{full}({kind}, ptr, i32, {flags})"
        self.line(
            f"call void @{full}({kind} {text}, ptr {place}, i32 {value.dtype.itemsize}, {flags} "
            f"{self.use(gate)})"
        )

    def open_gate(self, gate: str) -> int:
        """Begin what happens only where `gate` holds; its number, for `close_gate`."""
        self.count += 1
        number = self.count
        self.line(f"br i1 {gate}, label %then{number}, label %join{number}")
        self.label(f"then{number}")
        return number

    def close_gate(self, number: int) -> None:
        self.line(f"br label %join{number}")
        self.label(f"join{number}")


def _nothing(function: Function, node: UOp) -> None:
    del function, node


_HANDLERS: dict[Ops, Callable[[Function, UOp], None]] = {
    Ops.DEFINE_GLOBAL: Function.define_global,
    Ops.DEFINE_VAR: Function.define_var,
    Ops.DEFINE_LOCAL: Function.define_local,
    Ops.DEFINE_ACC: Function.define_acc,
    Ops.ASSIGN: Function.assign,
    Ops.AFTER: Function.after,
    Ops.SPECIAL: Function.special,
    Ops.RANGE: Function.range,
    Ops.END: Function.end,
    Ops.LOAD: Function.load,
    Ops.STORE: Function.store,
    Ops.VECTORIZE: Function.vectorize,
    Ops.GEP: Function.gep,
    Ops.CAST: Function.cast,
    Ops.BITCAST: Function.bitcast,
    Ops.WMMA: Function.dot,
    Ops.CONST: _nothing,
    Ops.SINK: _nothing,
}
