"""Programs as LLVM IR text: `void @kernel(ptr args, i64 chunk)`.

Vectors, loops and the order of instructions come ready from lowering, so that LLVM has to do what
it is best at: select instructions, allocate registers, schedule. Accumulators are stack slots,
which `mem2reg` turns into registers. There are no fast-math flags: floats mean what the graph says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tilegrad.base.dtype import AddressSpace
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.render.llvm_lines import constant_of, memory_type, type_of
from tilegrad.render.llvm_memory import LLVMMemory
from tilegrad.render.stream import ahead, entry, read_once, streamed

__all__ = ["Function", "LLVMRenderer", "with_opaque_counters"]

# The nearness that a prefetch asks for: the second cache; the first alone, for one use.
_NEAR, _ONCE = 2, 0

# The counter of a loop.
_COUNTER = re.compile(r"%i(\d+) = phi (\w+) (.*)")


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


def with_opaque_counters(text: str) -> str:
    """A module whose loop counters tell LLVM nothing of the addresses that they are part of. A
    quarter of its time goes to have pointers move along with each loop instead; the code is as fast
    in the mean, and a tenth slower at worst.

    before   %i9 = phi i32 [ 0, %start ], [ %n9, %latch9 ]
    after    %p9 = phi i32 [ 0, %start ], [ %n9, %latch9 ]
             %i9 = freeze i32 %p9
    """
    return _COUNTER.sub(r"%p\1 = phi \2 \3\n  %i\1 = freeze \2 %p\1", text)


class Function(LLVMMemory):
    """The function of one program, written instruction by instruction.

    `streamed` stores go around the caches; an `early` load also asks for what lies that many
    elements ahead, in such a nearness.
    """

    def __init__(
        self,
        name: str,
        program: list[UOp],
        streamed: frozenset[UOp] = frozenset(),
        early: Mapping[UOp, tuple[int, int]] | None = None,
        line_bytes: int = 64,
    ):
        super().__init__(name, streamed, early, line_bytes)
        self.program = program
        self.entry: list[str] = []
        self.heads: dict[UOp, tuple[str, str]] = {}
        pointers = [node for node in program if node.op is Ops.DEFINE_GLOBAL]
        self.slots = 1 + max((node.arg for node in pointers), default=-1)
        self.variables = [node for node in program if node.op is Ops.DEFINE_VAR]

    def text(self, kind: str) -> str:
        """The definition; `kind` is its linkage and the type of its result."""
        needed = {source for node in self.program for source in self.operands(node)}
        for node in self.program:
            if node in needed or not (node.op.is_alu or node.op in _LANES):
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
        """The ops that are no arithmetic, and the method that writes each."""
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
        position = self.slots + self.variables.index(node)
        name = f"%var{position}"
        self.entry.append(f"  {name}.p = getelementptr i64, ptr %args, i64 {position}")
        self.entry.append(f"  {name}.w = load i64, ptr {name}.p")
        self.narrow_word(node, name)

    def narrow_word(self, node: UOp, name: str) -> None:
        """Name a variable, which comes as the word `name`.w, in its own type."""
        kind = type_of(node.dtype)
        value = f"add i64 {name}.w, 0" if kind == "i64" else f"trunc i64 {name}.w to {kind}"
        self.entry.append(f"  {name} = {value}")
        self.values[node] = name

    def define_local(self, node: UOp) -> None:
        pointer = pointer_of(node)
        if pointer.space is AddressSpace.SHARED:
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
        if node.name != "chunk":
            raise CompileError(f"llvm: a CPU launch has no {node.name}", kernel=self.name)
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


def _nothing(function: Function, node: UOp) -> None:
    del function, node


_LANES = (Ops.GEP, Ops.VECTORIZE)
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
