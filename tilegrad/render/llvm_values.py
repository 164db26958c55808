"""LLVM IR of values: the instructions that make one value of others.

`render.llvm` has the code around them: the function and its loops; `render.llvm_memory` its memory.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.llvm_lines import Lines, constant_of, mangled, memory_type, type_of

__all__ = ["Values"]

_FLOAT_OPS = {Ops.ADD: "fadd", Ops.SUB: "fsub", Ops.MUL: "fmul", Ops.FDIV: "fdiv"}
_INT_OPS = {
    Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor",
    Ops.SHL: "shl",
}  # fmt: skip
_FLOAT_TESTS = {Ops.CMPLT: "olt", Ops.CMPNE: "une", Ops.CMPEQ: "oeq"}
# For each dot unit: the instruction, and the type of its operands by how many halves or bytes they
# hold.
_DOTS = {
    "dot2.bfloat16.bfloat16.float32": ("x86.avx512bf16.dpbf16ps", "<{0} x bfloat>"),
    "dot4.uint8.int8.int32": ("x86.avx512.vpdpbusd", "<{1} x i8>"),
}
# A vector, and for each lane of a result the one of it that is taken.
Side = tuple[UOp, tuple[int, ...]]
_MATH = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc"}


class Values(Lines):
    """The name of each node's value in the lines of one function."""

    def operands(self, node: UOp) -> tuple[UOp, ...]:
        """The nodes that the lines of `node` use the values of."""
        if node.op is Ops.WHERE and (sides := _blended(node)) is not None:
            return (node.src[0], *(vector for vector, _ in sides))
        return node.src

    # lanes

    def vectorize(self, node: UOp) -> None:
        kind, inner = type_of(node.dtype), type_of(node.dtype.scalar)
        lanes = node.dtype.lanes
        if all(element.op is Ops.CONST for element in node.src):
            operands = ", ".join(
                f"{inner} {constant_of(element.arg, element.dtype)}" for element in node.src
            )
            self.values[node] = f"<{operands}>"
            return
        if all(element is node.src[0] for element in node.src):
            one = self.make(f"insertelement {kind} poison, {inner} {self.use(node.src[0])}, i64 0")
            self.values[node] = self.make(
                f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer"
            )
            return
        vector = "poison"
        for lane, element in enumerate(node.src):
            vector = self.make(
                f"insertelement {kind} {vector}, {inner} {self.use(element)}, i64 {lane}"
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

    def blend(self, condition: UOp, yes: Side, no: Side) -> str:
        """Lanes of two vectors, as known constants choose: one shuffle of both."""
        kind, lanes = type_of(yes[0].dtype), yes[0].dtype.lanes
        picks = ", ".join(
            f"i32 {first if flag.arg else lanes + second}"
            for flag, first, second in zip(condition.src, yes[1], no[1], strict=True)
        )
        return self.make(
            f"shufflevector {kind} {self.use(yes[0])}, {kind} {self.use(no[0])}, "
            f"<{len(condition.src)} x i32> <{picks}>"
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
        # The largest float in range: not every one has bits for the last integer.
        beyond, digits = int(new.max) + 1, 24 if old.itemsize == 4 else 53
        most = beyond - max(1, beyond >> digits)
        low, high = constant_of(float(new.min), old), constant_of(float(most), old)
        is_number = self.make(f"fcmp ord {a} {x}, {x}")
        x = self.make(f"select {flags} {is_number}, {a} {x}, {a} zeroinitializer")
        above = self.make(f"fcmp ogt {a} {x}, {low}")
        inside = self.make(f"select {flags} {above}, {a} {x}, {a} {low}")
        below = self.make(f"fcmp olt {a} {inside}, {high}")
        inside = self.make(f"select {flags} {below}, {a} {inside}, {a} {high}")
        # Integers narrower than 32 bits fit them with a sign, as machines convert.
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
        gives the same as rounding once; no processor here turns a double into a half.
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
            sides = _blended(node)
            if sides is not None:
                return self.blend(condition, *sides)
            return self.make(
                f"select {type_of(condition.dtype)} {self.use(condition)}, {kind} "
                f"{self.use(yes)}, {kind} {self.use(no)}"
            )
        if op is Ops.MULACC:
            operands = [(type_of(dtype), self.use(element)) for element in node.src]
            if dtype.is_float:
                return self.call("fma", type_of(dtype), *operands)
            product = self.binary(Ops.MUL, dtype, operands[0][1], operands[1][1])
            return self.binary(Ops.ADD, dtype, product, operands[2][1])
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
        operands = [(kind, x), (kind, y), (kind, "zeroinitializer"), (mask, "-1")]
        rounding = [("i32", "4")] * (bits == 512)
        return self.call(name, kind, *operands, *rounding, suffix=str(bits))

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


def _blended(node: UOp) -> tuple[Side, Side] | None:
    """The sides of a choice between lanes of two vectors by constants, if the vectors are alike."""
    condition, yes, no = node.src
    if condition.op is not Ops.VECTORIZE or any(flag.op is not Ops.CONST for flag in condition.src):
        return None
    sides = _side(yes), _side(no)
    return sides if sides[0][0].dtype is sides[1][0].dtype else None


def _side(value: UOp) -> Side:
    """The vector that `value` takes its lanes from, and which; an accumulator is read at the node
    that says so.
    """
    if value.op is Ops.GEP and value.src[0].op is not Ops.DEFINE_ACC and len(value.arg) > 1:
        return value.src[0], value.arg
    return value, tuple(range(value.dtype.lanes))
