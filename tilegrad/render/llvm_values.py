"""LLVM IR of values: types, constants, and the instructions that make one value of others.

`render.llvm` has what is around them: the function, its loops, its memory.
"""

from __future__ import annotations

import struct

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Values", "constant_of", "mangled", "memory_type", "type_of"]

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
_MATH = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc"}


def type_of(dtype: DType) -> str:
    """The LLVM type of values of `dtype`."""
    scalar = dtype.scalar
    name = "i1" if scalar is dtypes.bool else _FLOATS.get(scalar) or f"i{scalar.itemsize * 8}"
    return name if dtype.lanes == 1 else f"<{dtype.lanes} x {name}>"


def memory_type(dtype: DType) -> str:
    """The LLVM type under which `dtype` lies in memory: a bool takes a byte."""
    return type_of(dtypes.uint8.vec(dtype.lanes)) if dtype.scalar is dtypes.bool else type_of(dtype)


def mangled(kind: str) -> str:
    """The type as intrinsic names spell it: `v16f32`, `i32`."""
    if kind.startswith("<"):
        count, _, inner = kind[1:-1].partition(" x ")
        return f"v{count}{mangled(inner)}"
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


class Values:
    """Lines of one function, and the name of each node's value in them."""

    def __init__(self, name: str):
        self.name = name
        self.body: list[str] = []
        self.values: dict[UOp, str] = {}
        self.declared: dict[str, str] = {}
        self.count = 0
        self.block = "start"

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
        full = f"llvm.{intrinsic}.{suffix or mangled(kind)}"
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

    # lanes

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

    # conversions

    def cast(self, node: UOp) -> None:
        (value,) = node.src
        self.values[node] = self.converted(self.use(value), value.dtype, node.dtype)

    def converted(self, text: str, old: DType, new: DType) -> str:
        """A conversion; a float that an integer cannot hold becomes the nearest, NaN 0."""
        a, b = type_of(old), type_of(new)
        zero = "zeroinitializer" if old.lanes > 1 else ("0.0" if old.is_float else "0")
        if new.scalar is dtypes.bool:
            test = "fcmp une" if old.is_float else "icmp ne"
            return self.make(f"{test} {a} {text}, {zero}")
        if old.is_float:
            convert = self.float_to_float if new.is_float else self.float_to_integer
            return convert(text, old, new)
        is_signed = old.kind == "int"
        if new.is_float:
            return self.make(f"{'sitofp' if is_signed else 'uitofp'} {a} {text} to {b}")
        if new.bits == old.bits:
            return text
        if new.bits < old.bits:
            return self.make(f"trunc {a} {text} to {b}")
        return self.make(f"{'sext' if is_signed else 'zext'} {a} {text} to {b}")

    def float_to_float(self, text: str, old: DType, new: DType) -> str:
        single = dtypes.float32.vec(old.lanes)
        if old.itemsize == new.itemsize:
            # Between the two half types.
            return self.converted(self.converted(text, old, single), single, new)
        if old.itemsize == 8 and new.itemsize == 2:
            return self.converted(self.rounded_to_odd(text, old), single, new)
        instruction = "fpext" if new.itemsize > old.itemsize else "fptrunc"
        return self.make(f"{instruction} {type_of(old)} {text} to {type_of(new)}")

    def float_to_integer(self, text: str, old: DType, new: DType) -> str:
        if new.lanes > 1:
            return self.saturated(text, old, new)
        a, b, sign = type_of(old), type_of(new), "u" if new.kind == "uint" else "s"
        return self.call(f"fpto{sign}i.sat", b, (a, text), suffix=f"{mangled(b)}.{mangled(a)}")

    def saturated(self, x: str, old: DType, new: DType) -> str:
        """Floats as the nearest integers of `new` that they reach, NaN as 0. LLVM has an intrinsic
        for it, but makes of a vector of them code for one lane after the other.
        """
        if old.itemsize == 2:
            single = dtypes.float32.vec(old.lanes)
            x, old = self.float_to_float(x, old, single), single
        a, b, flags = type_of(old), type_of(new), type_of(dtypes.bool.vec(old.lanes))
        # The largest float below what is beyond: not every one has bits for the last integer.
        beyond, digits = int(new.max) + 1, 24 if old.itemsize == 4 else 53
        most = beyond - max(1, beyond >> digits)
        low, high = constant_of(float(new.min), old), constant_of(float(most), old)
        is_number = self.make(f"fcmp ord {a} {x}, {x}")
        x = self.make(f"select {flags} {is_number}, {a} {x}, {a} zeroinitializer")
        above = self.make(f"fcmp ogt {a} {x}, {low}")
        inside = self.make(f"select {flags} {above}, {a} {x}, {a} {low}")
        below = self.make(f"fcmp olt {a} {inside}, {high}")
        inside = self.make(f"select {flags} {below}, {a} {inside}, {a} {high}")
        # What is narrower than 32 bits fits them with a sign, as machines convert.
        middle = dtypes.int32.vec(new.lanes) if new.itemsize < 4 else new
        sign, wide = "u" if middle.kind == "uint" else "s", type_of(middle)
        whole = self.make(f"fpto{sign}i {a} {inside} to {wide}")
        if middle is not new:
            return self.make(f"trunc {wide} {whole} to {b}")
        if most == new.max:
            return whole
        reached = self.make(f"fcmp oge {a} {x}, {constant_of(float(beyond), old)}")
        return self.make(f"select {flags} {reached}, {b} {constant_of(new.max, new)}, {b} {whole}")

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

    def bitcast(self, node: UOp) -> None:
        (value,) = node.src
        old, new = value.dtype, node.dtype
        text = self.widen(self.use(value), old)
        a, b = memory_type(old), memory_type(new)
        self.values[node] = self.narrow(
            text if a == b else self.make(f"bitcast {a} {text} to {b}"), new
        )

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
        if op is Ops.SCALE:
            return self.scaled(dtype, kind, x, y)
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
        """The larger, `x` of equal ones, NaN if either is: a plain maximum passes on a NaN in `x`,
        one in `y` is chosen after it.
        """
        flags = type_of(dtypes.bool.vec(dtype.lanes))
        if not dtype.is_float:
            test = self.make(f"icmp {'sgt' if dtype.kind == 'int' else 'ugt'} {kind} {x}, {y}")
            return self.make(f"select {flags} {test}, {kind} {x}, {kind} {y}")
        test = self.make(f"fcmp ogt {kind} {y}, {x}")
        larger = self.make(f"select {flags} {test}, {kind} {y}, {kind} {x}")
        is_number = self.make(f"fcmp ord {kind} {y}, {y}")
        return self.make(f"select {flags} {is_number}, {kind} {larger}, {kind} {y}")

    def scaled(self, dtype: DType, kind: str, x: str, y: str) -> str:
        """An instruction of AVX-512, of all lanes, with the rounding that there is."""
        bits = dtype.itemsize * dtype.lanes * 8
        name = f"x86.avx512.mask.scalef.{'ps' if dtype.itemsize == 4 else 'pd'}"
        mask = f"i{max(dtype.lanes, 8)}"
        parts = [(kind, x), (kind, y), (kind, "zeroinitializer"), (mask, "-1")]
        rounding = [("i32", "4")] * (bits == 512)
        return self.call(name, kind, *parts, *rounding, suffix=str(bits))

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
