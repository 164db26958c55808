"""Programs as LLVM IR text: `void @kernel(ptr args, i64 chunk)`.

Vectors, loops and the order of instructions come ready from lowering, so that LLVM has to do what
it is best at: select instructions, allocate registers, schedule. Accumulators are stack slots,
which `mem2reg` turns into registers. There are no fast-math flags: floats mean what the graph says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from tilegrad.base.dtype import DType, Place, Pointer, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.stream import ahead, entry, streamed

__all__ = ["LLVMRenderer"]

_FLOATS = {
    dtypes.float16: "half",
    dtypes.bfloat16: "bfloat",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_FLOAT_OPS = {Ops.ADD: "fadd", Ops.SUB: "fsub", Ops.MUL: "fmul", Ops.FDIV: "fdiv"}
_INT_OPS = {
    Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor",
    Ops.SHL: "shl",
}  # fmt: skip
_FLOAT_TESTS = {Ops.CMPLT: "olt", Ops.CMPNE: "une", Ops.CMPEQ: "oeq"}
# Of a dot unit the instruction, and the type of its operands by how many halves or bytes they hold.
_DOTS = {
    "dot2.bfloat16.bfloat16.float32": ("x86.avx512bf16.dpbf16ps", "<{0} x bfloat>"),
    "dot4.uint8.int8.int32": ("x86.avx512.vpdpbusd", "<{1} x i8>"),
}
# Bytes of a line of the caches.
_LINE = 64
_MATH = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc"}


def type_of(dtype: DType) -> str:
    """The LLVM type of values of `dtype`."""
    scalar = dtype.scalar
    name = "i1" if scalar is dtypes.bool else _FLOATS.get(scalar) or f"i{scalar.itemsize * 8}"
    return name if dtype.lanes == 1 else f"<{dtype.lanes} x {name}>"


def memory_type(dtype: DType) -> str:
    """The LLVM type under which `dtype` lies in memory: a bool takes a byte."""
    return type_of(dtypes.uint8.vec(dtype.lanes)) if dtype.scalar is dtypes.bool else type_of(dtype)


def _mangled(kind: str) -> str:
    """The type as intrinsic names spell it: `v16f32`, `i32`."""
    if kind.startswith("<"):
        count, _, inner = kind[1:-1].partition(" x ")
        return f"v{count}{_mangled(inner)}"
    return _SUFFIX.get(kind, kind)


def constant_of(value: object, dtype: DType) -> str:
    """A constant's text: floats by their bits, so that every value survives."""
    if dtype.lanes > 1:
        return f"splat ({type_of(dtype.scalar)} {constant_of(value, dtype.scalar)})"
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))  # type: ignore[call-overload]
    if dtype is dtypes.float16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if dtype is dtypes.bfloat16:
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class LLVMRenderer:
    """Renders programs for a CPU whose vectors are at most `vector_bytes` long, and whose last
    cache holds `cache_bytes` (0: not known).
    """

    def __init__(self, vector_bytes: int = 64, cache_bytes: int = 0):
        self.vector_bytes, self.cache_bytes = vector_bytes, cache_bytes

    def render(self, name: str, program: list[UOp]) -> str:
        """The IR module with one kernel."""
        stores = streamed(program, self.cache_bytes, self.vector_bytes)
        early = ahead(program, self.cache_bytes)
        if not stores:
            function = _Function(name, program, early=early)
            functions, texts = [function], [function.text("void")]
        else:
            streaming = _Function(f"{name}_streaming", program, stores, early)
            plain = _Function(f"{name}_plain", program, early=early)
            functions = [streaming, plain]
            slots = sorted({store.src[0].arg for store in stores})
            texts = [each.text("internal void") for each in functions]
            texts.append(entry(name, streaming.name, plain.name, slots, self.vector_bytes))
        bits = self.vector_bytes * 8
        attributes = (
            f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" "no-builtins"'
        )
        texts += sorted({line for each in functions for line in each.declared.values()})
        texts.append(f"attributes #0 = {{ nounwind {attributes} }}")
        if stores:
            texts.append("!0 = !{i32 1}")
        return "\n".join(texts) + "\n"


class _Function:
    def __init__(
        self,
        name: str,
        program: list[UOp],
        streamed: frozenset[UOp] = frozenset(),
        early: Mapping[UOp, int] | None = None,
    ):
        self.name, self.program, self.streamed = name, program, streamed
        self.early = early or {}
        self.entry: list[str] = []
        self.body: list[str] = []
        self.values: dict[UOp, str] = {}
        self.declared: dict[str, str] = {}
        self.count = 0
        self.block = "start"
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

    # small helpers

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.body.append("  " + text)

    def make(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.body.append(f"{name}:")
        self.block = name

    def call(
        self, intrinsic: str, kind: str, *arguments: tuple[str, str], suffix: str | None = None
    ) -> str:
        """A call of an LLVM intrinsic that is overloaded on `kind`."""
        full = f"llvm.{intrinsic}.{suffix or _mangled(kind)}"
        self.declared[full] = f"declare {kind} @{full}({', '.join(each for each, _ in arguments)})"
        return self.make(
            f"call {kind} @{full}({', '.join(f'{each} {value}' for each, value in arguments)})"
        )

    def use(self, node: UOp) -> str:
        """The value of `node` here; an accumulator is read at this moment."""
        if node.op is Ops.CONST:
            return constant_of(node.arg, node.dtype)
        if node.op is Ops.DEFINE_ACC:
            return self.make(f"load {type_of(node.dtype)}, ptr {self.values[node]}")
        return self.values[node]

    # one instruction

    def emit(self, node: UOp) -> None:
        handler = _HANDLERS.get(node.op)
        if handler is not None:
            handler(self, node)
        elif node.op.is_alu:
            self.values[node] = self.alu(node)
        else:
            raise CompileError(f"llvm: a {node.op} has no meaning on a CPU", kernel=self.name)

    def define_global(self, node: UOp) -> None:
        self.values[node] = f"%data{node.arg}"
        self.entry.append(f"  %slot{node.arg} = getelementptr ptr, ptr %args, i64 {node.arg}")
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
        again = self.make(f"icmp slt {kind} %n{number}, {self.use(loop.src[0])}")
        self.line(f"br i1 {again}, label %{head}, label %{foot}")
        self.label(foot)

    def address(self, pointer: UOp, index: UOp) -> str:
        """Where an element lies. A constant in the index is added last, to the address, where it is
        part of the instruction: as part of the index, each of many neighbours would need a register
        of its own, and a widening of it.
        """
        base = pointer
        while base.op is Ops.AFTER:
            base = base.src[0]
        kind = memory_type(base.dtype.base)  # type: ignore[attr-defined]
        offset = 0
        if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
            index, offset = index.src[0], index.src[1].arg
        # What the constant is added to may lie outside.
        inbounds = "" if offset else " inbounds"
        place = self.make(
            f"getelementptr{inbounds} {kind}, ptr {self.values[pointer]}, {type_of(index.dtype)} "
            f"{self.use(index)}"
        )
        return self.make(f"getelementptr {kind}, ptr {place}, i64 {offset}") if offset else place

    def load(self, node: UOp) -> None:
        pointer, index, *rest = node.src
        kind = memory_type(node.dtype)
        align = node.dtype.itemsize
        if not rest:
            place = self.address(pointer, index)
            value = self.make(f"load {kind}, ptr {place}, align {align}")
            if node in self.early:
                self.ask_for(place, self.early[node] * align, align * node.dtype.lanes)
        elif rest[1].dtype.lanes > 1:
            mask = self.use(rest[1])
            other = self.widen(self.use(rest[0]), node.dtype)
            flags = type_of(rest[1].dtype)
            parts = (
                ("ptr", self.address(pointer, index)),
                ("i32", str(align)),
                (flags, mask),
                (kind, other),
            )
            value = self.call("masked.load", kind, *parts, suffix=f"{_mangled(kind)}.p0")
        else:
            gate = self.use(rest[1])
            where = type_of(index.dtype)
            safe = self.make(f"select i1 {gate}, {where} {self.use(index)}, {where} 0")
            base = pointer
            while base.op is Ops.AFTER:
                base = base.src[0]
            if node.dtype.lanes > 1:
                self.load_or_skip(node, gate, kind, align)
                return
            inner = memory_type(base.dtype.base)  # type: ignore[attr-defined]
            place = self.make(
                f"getelementptr inbounds {inner}, ptr {self.values[pointer]}, {where} {safe}"
            )
            value = self.make(f"load {kind}, ptr {place}, align {align}")
            other = self.widen(self.use(rest[0]), node.dtype)
            value = self.make(f"select i1 {gate}, {kind} {value}, {kind} {other}")
        self.values[node] = self.narrow(value, node.dtype)

    def ask_for(self, place: str, further: int, nbytes: int) -> None:
        """Have memory brought near that is needed soon, so many bytes behind `place`."""
        name = "llvm.prefetch.p0"
        self.declared[name] = f"declare void @{name}(ptr, i32, i32, i32)"
        for offset in range(0, nbytes, _LINE):
            line = self.make(f"getelementptr i8, ptr {place}, i64 {further + offset}")
            # For reading, to the second cache, data.
            self.line(f"call void @{name}(ptr {line}, i32 0, i32 2, i32 1)")

    def load_or_skip(self, node: UOp, gate: str, kind: str, align: int) -> None:
        """A vector load under one gate: a branch, as a part of the vector at a safe place could
        still lie outside.
        """
        self.count += 1
        number = self.count
        before = self.block
        other = self.widen(self.use(node.src[2]), node.dtype)
        self.line(f"br i1 {gate}, label %then{number}, label %join{number}")
        self.label(f"then{number}")
        value = self.make(
            f"load {kind}, ptr {self.address(node.src[0], node.src[1])}, align {align}"
        )
        self.line(f"br label %join{number}")
        self.label(f"join{number}")
        joined = self.make(f"phi {kind} [ {value}, %then{number} ], [ {other}, %{before} ]")
        self.values[node] = self.narrow(joined, node.dtype)

    def widen(self, value: str, dtype: DType) -> str:
        """A bool as its byte in memory."""
        if dtype.scalar is not dtypes.bool:
            return value
        return self.make(f"zext {type_of(dtype)} {value} to {memory_type(dtype)}")

    def narrow(self, value: str, dtype: DType) -> str:
        if dtype.scalar is not dtypes.bool:
            return value
        zero = "0" if dtype.lanes == 1 else "zeroinitializer"
        return self.make(f"icmp ne {memory_type(dtype)} {value}, {zero}")

    def store(self, node: UOp) -> None:
        pointer, index, value, *gate = node.src
        kind = memory_type(value.dtype)
        align = value.dtype.itemsize
        is_masked = bool(gate) and gate[0].dtype.lanes > 1
        number = 0
        if gate and not is_masked:
            self.count += 1
            number = self.count
            self.line(f"br i1 {self.use(gate[0])}, label %then{number}, label %join{number}")
            self.label(f"then{number}")
        place = self.address(pointer, index)
        text = self.use(value)
        if node.arg is not None:
            if is_masked:
                # Where nothing is written, nothing may be read.
                parts = (
                    ("ptr", place),
                    ("i32", str(align)),
                    (type_of(gate[0].dtype), self.use(gate[0])),
                    (kind, "zeroinitializer"),
                )
                found = self.call("masked.load", kind, *parts, suffix=f"{_mangled(kind)}.p0")
            else:
                found = self.make(f"load {kind}, ptr {place}, align {align}")
            text = self.binary(node.arg, value.dtype, self.narrow(found, value.dtype), text)
        text = self.widen(text, value.dtype)
        if is_masked:
            flags = type_of(gate[0].dtype)
            full = f"llvm.masked.store.{_mangled(kind)}.p0"
            self.declared[full] = f"declare void @{full}({kind}, ptr, i32, {flags})"
            self.line(
                f"call void @{full}({kind} {text}, ptr {place}, i32 {align}, {flags} "
                f"{self.use(gate[0])})"
            )
        else:
            hint = ""
            if node in self.streamed:
                align, hint = align * value.dtype.lanes, ", !nontemporal !0"
            self.line(f"store {kind} {text}, ptr {place}, align {align}{hint}")
        if number:
            self.line(f"br label %join{number}")
            self.label(f"join{number}")

    def vectorize(self, node: UOp) -> None:
        kind, inner = type_of(node.dtype), type_of(node.dtype.scalar)
        lanes = node.dtype.lanes
        if all(part.op is Ops.CONST for part in node.src):
            parts = ", ".join(f"{inner} {constant_of(part.arg, part.dtype)}" for part in node.src)
            self.values[node] = f"<{parts}>"
            return
        if all(part is node.src[0] for part in node.src):
            one = self.make(f"insertelement {kind} poison, {inner} {self.use(node.src[0])}, i64 0")
            self.values[node] = self.make(
                f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer"
            )
            return
        vector = "poison"
        for lane, part in enumerate(node.src):
            vector = self.make(
                f"insertelement {kind} {vector}, {inner} {self.use(part)}, i64 {lane}"
            )
        self.values[node] = vector

    def gep(self, node: UOp) -> None:
        vector = node.src[0]
        kind, text = type_of(vector.dtype), self.use(vector)
        if len(node.arg) == 1:
            self.values[node] = self.make(f"extractelement {kind} {text}, i64 {node.arg[0]}")
            return
        lanes, bits = vector.dtype.lanes, vector.dtype.lanes * vector.dtype.itemsize * 8
        if (
            bits in (32, 64)
            and vector.dtype.kind != "bool"
            and lanes > 1
            and node.arg == (*range(lanes),) * (len(node.arg) // lanes)
        ):
            self.values[node] = self.repeated(text, kind, bits, node)
            return
        picks = ", ".join(f"i32 {lane}" for lane in node.arg)
        self.values[node] = self.make(
            f"shufflevector {kind} {text}, {kind} poison, <{len(node.arg)} x i32> <{picks}>"
        )

    def repeated(self, text: str, kind: str, bits: int, node: UOp) -> str:
        """A short vector again and again: as one number, which a load repeats by itself."""
        times = node.dtype.lanes * node.dtype.itemsize * 8 // bits
        one = self.make(f"bitcast {kind} {text} to i{bits}")
        wide = f"<{times} x i{bits}>"
        first = self.make(f"insertelement {wide} poison, i{bits} {one}, i64 0")
        whole = self.make(
            f"shufflevector {wide} {first}, {wide} poison, <{times} x i32> zeroinitializer"
        )
        return self.make(f"bitcast {wide} {whole} to {type_of(node.dtype)}")

    def cast(self, node: UOp) -> None:
        (value,) = node.src
        self.values[node] = self.converted(self.use(value), value.dtype, node.dtype)

    def converted(self, text: str, old: DType, new: DType) -> str:
        """A conversion; floats to integers saturate at 32 or 64 bits, NaN gives 0, and narrower
        integers then wrap.
        """
        a, b = type_of(old), type_of(new)
        zero = "zeroinitializer" if old.lanes > 1 else ("0.0" if old.is_float else "0")
        if new.scalar is dtypes.bool:
            test = "fcmp une" if old.is_float else "icmp ne"
            return self.make(f"{test} {a} {text}, {zero}")
        if old.is_float and new.is_float:
            if old.itemsize == new.itemsize:
                return self.converted(
                    self.converted(text, old, dtypes.float32.vec(old.lanes)),
                    dtypes.float32.vec(old.lanes),
                    new,
                )
            if old.itemsize == 8 and new.itemsize == 2:
                single = dtypes.float32.vec(old.lanes)
                return self.converted(self.rounded_to_odd(text, old), single, new)
            return self.make(
                f"{'fpext' if new.itemsize > old.itemsize else 'fptrunc'} {a} {text} to {b}"
            )
        if old.is_float:
            if new.scalar is dtypes.uint64:
                return self.call("fptoui.sat", b, (a, text), suffix=f"{_mangled(b)}.{_mangled(a)}")
            middle = (
                dtypes.int64 if new.itemsize == 8 or new.scalar is dtypes.uint32 else dtypes.int32
            ).vec(new.lanes)
            whole = self.call(
                "fptosi.sat",
                type_of(middle),
                (a, text),
                suffix=f"{_mangled(type_of(middle))}.{_mangled(a)}",
            )
            return (
                whole
                if middle.itemsize == new.itemsize
                else self.make(f"trunc {type_of(middle)} {whole} to {b}")
            )
        is_signed = old.kind == "int"
        if new.is_float:
            return self.make(f"{'sitofp' if is_signed else 'uitofp'} {a} {text} to {b}")
        if new.bits == old.bits:
            return text
        if new.bits < old.bits:
            return self.make(f"trunc {a} {text} to {b}")
        return self.make(f"{'sext' if is_signed else 'zext'} {a} {text} to {b}")

    def rounded_to_odd(self, x: str, dtype: DType) -> str:
        """A double as a float whose last bit says that digits were lost, so that rounding it again
        gives what rounding once would; no processor here turns a double into a half.
        """
        lanes, kind = dtype.lanes, type_of(dtype)
        flags, whole = type_of(dtypes.bool.vec(lanes)), type_of(dtypes.int32.vec(lanes))
        short = type_of(dtypes.float32.vec(lanes))
        single = self.make(f"fptrunc {kind} {x} to {short}")
        back = self.make(f"fpext {short} {single} to {kind}")
        lost = self.make(f"fcmp one {kind} {back}, {x}")
        sizes = [self.call("fabs", kind, (kind, value)) for value in (back, x)]
        larger = self.make(f"fcmp ogt {kind} {sizes[0]}, {sizes[1]}")
        bits = self.make(f"bitcast {short} {single} to {whole}")
        less = self.make(f"zext {flags} {larger} to {whole}")
        odd = self.make(f"sub {whole} {bits}, {less}")
        odd = self.make(f"or {whole} {odd}, {constant_of(1, dtypes.int32.vec(lanes))}")
        chosen = self.make(f"select {flags} {lost}, {whole} {odd}, {whole} {bits}")
        return self.make(f"bitcast {whole} {chosen} to {short}")

    def dot(self, node: UOp) -> None:
        """A dot unit. The instructions take whole registers, by their bits."""
        unit = node.arg
        a, b, total = node.src
        kind = type_of(node.dtype)
        bits = node.dtype.itemsize * node.dtype.lanes * 8
        name, inner = _DOTS[unit.name]
        operand = inner.format(bits // 16, bits // 8)
        sides = [
            self.make(f"bitcast {type_of(side.dtype)} {self.use(side)} to {operand}")
            if type_of(side.dtype) != operand
            else self.use(side)
            for side in (a, b)
        ]
        self.values[node] = self.call(
            name, kind, (kind, self.use(total)), *((operand, side) for side in sides),
            suffix=str(bits),
        )  # fmt: skip

    def bitcast(self, node: UOp) -> None:
        (value,) = node.src
        old, new = value.dtype, node.dtype
        text = self.widen(self.use(value), old)
        a, b = memory_type(old), memory_type(new)
        self.values[node] = self.narrow(
            text if a == b else self.make(f"bitcast {a} {text} to {b}"), new
        )

    # arithmetic

    def alu(self, node: UOp) -> str:
        op, dtype = node.op, node.dtype
        if op is Ops.WHERE:
            condition, yes, no = node.src
            kind = type_of(dtype)
            return self.make(
                f"select {type_of(condition.dtype)} {self.use(condition)}, {kind} "
                f"{self.use(yes)}, {kind} {self.use(no)}"
            )
        if op is Ops.MULACC:
            parts = [(type_of(dtype), self.use(part)) for part in node.src]
            if dtype.is_float:
                return self.call("fma", type_of(dtype), *parts)
            product = self.binary(Ops.MUL, dtype, parts[0][1], parts[1][1])
            return self.binary(Ops.ADD, dtype, product, parts[2][1])
        if len(node.src) == 1:
            return self.unary(op, dtype, self.use(node.src[0]))
        left, right = node.src
        if op is Ops.MAX and dtype.is_float and right.op is Ops.CONST and right.arg == right.arg:
            kind, x, c = type_of(dtype), self.use(left), self.use(right)
            test = self.make(f"fcmp ogt {kind} {c}, {x}")
            return self.make(
                f"select {type_of(dtypes.bool.vec(dtype.lanes))} {test}, {kind} {c}, {kind} {x}"
            )
        return self.binary(op, left.dtype, self.use(left), self.use(right))

    def unary(self, op: Ops, dtype: DType, x: str) -> str:
        kind = type_of(dtype)
        if op is Ops.NEG:
            zero = "zeroinitializer" if dtype.lanes > 1 else "0"
            return self.make(f"fneg {kind} {x}" if dtype.is_float else f"sub {kind} {zero}, {x}")
        if op is Ops.RECIP:
            return self.make(f"fdiv {kind} {constant_of(1.0, dtype)}, {x}")
        if op is Ops.TRUNC and not dtype.is_float:
            return x
        if op in _MATH:
            return self.call(_MATH[op], kind, (kind, x))
        raise CompileError(f"llvm: {op} should have been decomposed", kernel=self.name)

    def binary(self, op: Ops, dtype: DType, x: str, y: str) -> str:
        kind = type_of(dtype)
        if op.is_boolean:
            if dtype.is_float:
                return self.make(f"fcmp {_FLOAT_TESTS[op]} {kind} {x}, {y}")
            less = "slt" if dtype.kind == "int" else "ult"
            test = {Ops.CMPLT: less, Ops.CMPNE: "ne", Ops.CMPEQ: "eq"}[op]
            return self.make(f"icmp {test} {kind} {x}, {y}")
        if op is Ops.MAX:
            return self.maximum(dtype, kind, x, y)
        if dtype.is_float:
            return self.make(f"{_FLOAT_OPS[op]} {kind} {x}, {y}")
        if dtype.scalar is dtypes.bool and op in (Ops.ADD, Ops.MUL):
            return self.make(f"{'or' if op is Ops.ADD else 'and'} {kind} {x}, {y}")
        if op in (Ops.IDIV, Ops.MOD):
            prefix = "s" if dtype.kind == "int" else "u"
            return self.make(f"{prefix}{'div' if op is Ops.IDIV else 'rem'} {kind} {x}, {y}")
        if op is Ops.SHR:
            return self.make(f"{'ashr' if dtype.kind == 'int' else 'lshr'} {kind} {x}, {y}")
        return self.make(f"{_INT_OPS[op]} {kind} {x}, {y}")

    def maximum(self, dtype: DType, kind: str, x: str, y: str) -> str:
        """The larger, NaN if either is: a plain maximum passes on a NaN in `y`, one in `x` is
        chosen after it.
        """
        flags = type_of(dtypes.bool.vec(dtype.lanes))
        if not dtype.is_float:
            test = self.make(f"icmp {'sgt' if dtype.kind == 'int' else 'ugt'} {kind} {x}, {y}")
            return self.make(f"select {flags} {test}, {kind} {x}, {kind} {y}")
        test = self.make(f"fcmp ogt {kind} {x}, {y}")
        larger = self.make(f"select {flags} {test}, {kind} {x}, {kind} {y}")
        is_number = self.make(f"fcmp ord {kind} {x}, {x}")
        return self.make(f"select {flags} {is_number}, {kind} {larger}, {kind} {x}")


def _nothing(function: _Function, node: UOp) -> None:
    del function, node


_HANDLERS: dict[Ops, Callable[[_Function, UOp], None]] = {
    Ops.DEFINE_GLOBAL: _Function.define_global,
    Ops.DEFINE_VAR: _Function.define_var,
    Ops.DEFINE_LOCAL: _Function.define_local,
    Ops.DEFINE_ACC: _Function.define_acc,
    Ops.ASSIGN: _Function.assign,
    Ops.AFTER: _Function.after,
    Ops.SPECIAL: _Function.special,
    Ops.RANGE: _Function.range,
    Ops.END: _Function.end,
    Ops.LOAD: _Function.load,
    Ops.STORE: _Function.store,
    Ops.VECTORIZE: _Function.vectorize,
    Ops.GEP: _Function.gep,
    Ops.CAST: _Function.cast,
    Ops.BITCAST: _Function.bitcast,
    Ops.WMMA: _Function.dot,
    Ops.CONST: _nothing,
    Ops.SINK: _nothing,
}
