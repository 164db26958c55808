"""Loads and stores of PTX kernels.

An address is a register and a number of bytes: `[%rd4+16]`. Registers are shared by accesses whose
indices differ by a constant; each loop forgets those made in it. The
invariant terms of an address in a loop are made before it, and one multiply-add gives the address
of an iteration. Where a gate is
closed nothing is accessed: the instruction has a predicate, there is no branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, pointer_of, toposort
from tilegrad.render.ptx_arithmetic import compute
from tilegrad.render.ptx_code import Code, kind_of, letter, root, uniform
from tilegrad.render.shared_memory import SWIZZLED, swizzled

__all__ = ["FARTHEST_COPY", "PTXMemory", "index_sums", "split_index"]

# The most elements, and the most bytes, of one access.
_MOST_LANES, _MOST_BYTES = 4, 16
# Elements of 16 bits that one access moves as four registers of 32 bits.
_HALVES = 8
# The largest offset that an instruction holds; that of `cp.async` is what `ptxas` puts into one for
# sm_80 and sm_90a.
_FARTHEST, FARTHEST_COPY = 1 << 23, 1 << 13
_SPACES = {AddressSpace.GLOBAL: "global", AddressSpace.SHARED: "shared"}
# Which source of an access is its index.
_INDEX_AT = {Ops.LOAD: 1, Ops.STORE: 1, Ops.COPY_ASYNC: 1, Ops.COPY_TILE: 1, Ops.DESCRIPTOR: 2}
_MAXIMA = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)


def _memory_type(dtype: DType) -> str:
    scalar = dtype.scalar
    if scalar is dtypes.bool:
        return "u8"
    if scalar.is_float:
        return f"f{scalar.bits}" if scalar.itemsize >= 4 else "b16"
    return f"{'s' if scalar.kind == 'int' else 'u'}{scalar.bits}"


def split_index(index: UOp) -> tuple[UOp | None, int]:
    """`index` as a node and a constant; no node where it is constant.

    The sum may not wrap: bounds say so, or it stays one node.
    """
    if index.op is Ops.CONST:
        return None, int(index.arg)
    if index.op is Ops.ADD and index.src[1].op is Ops.CONST and index.dtype.lanes == 1:
        first, number = index.src[0], int(index.src[1].arg)
        if root(first).op is Ops.DEFINE_ACC:
            return index, 0
        low, high = int(first.vmin) + number, int(first.vmax) + number
        if index.dtype.min <= low and high <= index.dtype.max and abs(number) < _FARTHEST:
            return first, number
    return index, 0


def _depths(program: Sequence[UOp]) -> dict[UOp, int]:
    """How many loops are open where each integer is computed."""
    found: dict[UOp, int] = {}
    depth = 0
    for node in program:
        depth -= sum(source.op is Ops.RANGE for source in node.src) * (node.op is Ops.END)
        depth += node.op is Ops.RANGE
        if node.dtype is dtypes.int32:
            found[node] = depth
    return found


def _factor(value: UOp) -> int:
    """The number by which `value` is its first source, or 1."""
    if value.op is Ops.MUL and value.src[1].op is Ops.CONST:
        return int(value.src[1].arg)
    if value.op is Ops.SHL and value.src[1].op is Ops.CONST:
        return 1 << int(value.src[1].arg)
    return 1


@dataclass(frozen=True)
class Address:
    """A register, or the name of an array, and bytes beyond it."""

    base: str
    offset: int

    def at(self, more: int = 0) -> str:
        total = self.offset + more
        return f"[{self.base}{f'+{total}' if total else ''}]"


class PTXMemory:
    """The buffers of a kernel: where each begins, and the addresses that registers hold."""

    def __init__(self, code: Code, program: Sequence[UOp]):
        self.code = code
        self.program = program
        self.stored = {root(node.src[0]) for node in program if node.op is Ops.STORE}
        copied = {root(node.src[0]) for node in program if node.op is Ops.COPY_ASYNC}
        # Memory that lanes write themselves.
        self.filled = self.stored | copied
        self.bases: dict[UOp, str] = {}
        self._known: list[dict[tuple[UOp, UOp, int], str]] = [{}]
        self._plain: list[dict[tuple[UOp, UOp, int], str]] = [{}]
        # The lines at which the bodies of the open loops begin.
        self._heads: list[int] = []
        self._depths = _depths(program)
        # The addresses that are known where one lane goes on alone.
        self._saved: tuple[list[dict[tuple[UOp, UOp, int], str]], ...] | None = None
        self.swizzled = swizzled(program)

    def enter(self) -> None:
        """The body of a loop begins."""
        self._known.append({})
        self._plain.append({})
        self._heads.append(len(self.code.lines))

    def leave(self) -> None:
        self._known.pop()
        self._plain.pop()
        self._heads.pop()

    def begin_of_one_lane(self) -> None:
        """Begin a section that one lane runs alone."""
        self._saved = [dict(each) for each in self._known], [dict(each) for each in self._plain]

    def end_of_one_lane(self) -> None:
        """All lanes go on, which know no address that one has made alone."""
        assert self._saved is not None
        self._known, self._plain = self._saved
        self._saved = None

    # addresses

    def space(self, buffer: UOp) -> str:
        return _SPACES.get(pointer_of(buffer).space, "local")

    def address(
        self, memory: UOp, index: UOp, operand: str | None = None, farthest: int = _FARTHEST
    ) -> Address:
        """Where the element is; `operand` stands for one lane of a vector of indices."""
        buffer = root(memory)
        base, stride = self.bases[buffer], pointer_of(buffer).base.nbytes
        if buffer in self.swizzled:
            return self._swizzled(buffer, index)
        if operand is not None:
            return Address(self._moved(buffer, operand, index.dtype, stride), 0)
        first, number = split_index(index)
        if first is None:
            return self._near(base, number * stride, buffer)
        varying = self._varying(first)
        if varying is not None and (split := split_index(varying))[1]:
            # Iterations that are unrolled differ by constants.
            varying, more = split
            assert varying is not None
            first, number = first.src[0] + varying, number + more
        offset = number * stride
        # Offsets that are near each other share a register.
        far = 0 if varying is None or abs(offset) < farthest else offset - offset % (farthest // 2)
        key = buffer, first, far
        found = next((known[key] for known in self._known if key in known), "")
        if not found:
            if varying is not None:
                found = self._running(buffer, first.src[0], varying, far)
            else:
                found = self._moved(buffer, self.code.scalar(first), first.dtype, stride)
            if root(first).op is not Ops.DEFINE_ACC:
                self._known[-1][key] = found
        return self._near(found, offset - far, buffer)

    def _swizzled(self, buffer: UOp, index: UOp) -> Address:
        """Where a vector of 16 bytes lies, or an element of it, in rows of 128 bytes: its number in
        the row is XORed with that of the row.
        """
        code, stride = self.code, pointer_of(buffer).base.nbytes
        first, number = split_index(index)
        offset = number * stride
        near = offset % SWIZZLED
        key = buffer, index if first is None else first, near
        found = next((known[key] for known in self._known if key in known), "")
        if not found:
            found = self.bases[buffer]
            if first is not None:
                found = self._moved(buffer, code.scalar(first), first.dtype, stride)
            if near:
                found = code.op("b32", "add.s32", found, str(near))
            row = code.op("b32", "shr.u32", found, "3")
            row = code.op("b32", "and.b32", row, str(7 << 4))
            found = code.op("b32", "xor.b32", found, row)
            if first is None or root(first).op is not Ops.DEFINE_ACC:
                self._known[-1][key] = found
        return self._near(found, offset - near, buffer)

    def plain(self, memory: UOp, index: UOp) -> Address:
        """The address of an element as if rows were not swizzled, which is one for a warp."""
        buffer, code = root(memory), self.code
        first, number = split_index(index)
        stride = pointer_of(buffer).base.nbytes
        if first is None:
            return Address(self.bases[buffer], number * stride)
        key = buffer, first, 0
        found = next((known[key] for known in self._plain if key in known), "")
        if not found:
            here, mark = len(self._heads), len(code.lines)
            level = min(self._depths.get(first, here), here)
            operand = code.in_register(code.scalar(first), kind_of(first.dtype))
            if first.dtype.itemsize == 4 and self._saved is None:
                made = code.new("b32")
                code.emit(uniform(made, operand))
                operand = made
            found = self._plain[level][key] = self._moved(buffer, operand, first.dtype, stride)
            if level < here:
                self._put_before(level, mark)
        return Address(found, number * stride)

    def _varying(self, index: UOp) -> UOp | None:
        """The second term of a sum in a loop, where the first is invariant there; None for other
        indices.
        """
        if index.op is not Ops.ADD or index.dtype is not dtypes.int32:
            return None
        fixed, varying = index.src
        here = len(self._heads)
        if fixed not in self._depths or varying not in self._depths:
            return None
        is_running = self._depths[fixed] < here <= self._depths[varying]
        return varying if is_running and root(fixed).op is not Ops.DEFINE_ACC else None

    def _running(self, buffer: UOp, fixed: UOp, varying: UOp, far: int) -> str:
        """The address of `fixed`, made before the loop, `varying` elements and `far` bytes on."""
        code, stride = self.code, pointer_of(buffer).base.nbytes
        level = self._depths[fixed]
        start = self._known[level].get((buffer, fixed, far), "")
        if not start:
            mark = len(code.lines)
            start = self._moved(buffer, code.scalar(fixed), fixed.dtype, stride)
            if far:
                kind = "b32" if self.space(buffer) == "shared" else "b64"
                start = code.op(kind, f"add.s{kind[1:]}", start, str(far))
            self._known[level][buffer, fixed, far] = start
            self._put_before(level, mark)
        factor = _factor(varying) * stride
        if abs(factor) < 1 << 31:
            varying, stride = varying.src[0] if factor != stride else varying, factor
        operand = code.in_register(code.scalar(varying), "b32")
        if self.space(buffer) == "shared":
            return code.op("b32", "mad.lo.s32", operand, str(stride), start)
        return code.op("b64", "mad.wide.s32", operand, str(stride), start)

    def _put_before(self, level: int, mark: int) -> None:
        """Move the lines from `mark` on in front of the loop at `level`."""
        lines = self.code.lines
        moved = lines[mark:]
        del lines[mark:]
        # The label of the loop is the line before its body.
        head = self._heads[level] - 1
        lines[head:head] = moved
        for deeper in range(level, len(self._heads)):
            self._heads[deeper] += len(moved)

    def _near(self, base: str, offset: int, buffer: UOp) -> Address:
        if abs(offset) < _FARTHEST:
            return Address(base, offset)
        kind = "b32" if self.space(buffer) == "shared" else "b64"
        return Address(self.code.op(kind, f"add.s{kind[1:]}", base, str(offset)), 0)

    def _moved(self, buffer: UOp, index: str, dtype: DType, stride: int) -> str:
        """The base of `buffer` and `index` elements."""
        code, base = self.code, self.bases[buffer]
        is_wide = kind_of(dtype) == "b64"
        if self.space(buffer) == "shared":
            if is_wide:
                index = code.op("b32", "cvt.u32.u64", code.in_register(index, "b64"))
            return code.op("b32", "mad.lo.s32", index, str(stride), base)
        if is_wide:
            return code.op("b64", "mad.lo.s64", index, str(stride), base)
        return code.op("b64", f"mad.wide.{letter(dtype)}", index, str(stride), base)

    # accesses

    def load(self, node: UOp) -> tuple[str, ...]:
        """The registers that a load fills."""
        memory, index, *rest = node.src
        buffer, width, scalar = root(memory), node.dtype.lanes, node.dtype.scalar
        code, kind = self.code, kind_of(scalar)
        holder = "b32" if kind == "pred" else kind
        made = [code.new(holder) for _ in range(width)]
        gate = ""
        if rest:
            self._set(made, code.lanes(rest[0]), scalar)
            gate = f"@{code.scalar(rest[1])} "
        space = self.space(buffer)
        if space == "global" and buffer not in self.stored:
            space = "global.nc"
        kind_text = _memory_type(scalar)
        for first, count, address in self._accesses(memory, index, scalar, width):
            names = made[first : first + count]
            if count == _HALVES:
                words = [code.new("b32") for _ in range(4)]
                code.emit(f"{gate}ld.{space}.v4.b32 {{{', '.join(words)}}}, {address}")
                self._unpack(gate, words, names)
                continue
            target = names[0] if count == 1 else f"{{{', '.join(names)}}}"
            vector = "" if count == 1 else f".v{count}"
            code.emit(f"{gate}ld.{space}{vector}.{kind_text} {target}, {address}")
        if kind == "pred":
            return tuple([code.op("pred", "setp.ne.u32", name, "0") for name in made])
        return tuple(made)

    def _unpack(self, gate: str, words: Sequence[str], names: Sequence[str]) -> None:
        """Unpack words to pairs of 16 bits; where the gate is closed, registers are unchanged."""
        for word, low, high in zip(words, names[::2], names[1::2], strict=True):
            self.code.emit(f"{gate}mov.b32 {{{low}, {high}}}, {word}")

    def _set(self, made: Sequence[str], values: Sequence[str], scalar: DType) -> None:
        """Set the registers of a load to the values that it has where its gate is closed."""
        code, kind = self.code, kind_of(scalar)
        for name, value in zip(made, values, strict=True):
            if kind == "pred":
                code.emit(f"selp.b32 {name}, 1, 0, {value}")
            else:
                code.emit(f"mov.{kind} {name}, {value}")

    def _accesses(
        self, memory: UOp, index: UOp, scalar: DType, width: int
    ) -> list[tuple[int, int, str]]:
        """The instructions that one access takes: the first lane, how many, and where."""
        if index.dtype.lanes > 1:
            operands = self.code.lanes(index)
            return [
                (lane, 1, self.address(memory, index, operand).at())
                for lane, operand in enumerate(operands)
            ]
        address = self.address(memory, index)
        # Integers of 16 bits have registers of 32.
        if kind_of(scalar) == "b16" and width % _HALVES == 0:
            return [
                (lane, _HALVES, address.at(lane * scalar.itemsize))
                for lane in range(0, width, _HALVES)
            ]
        most = min(_MOST_LANES, _MOST_BYTES // scalar.itemsize)
        while width % most:
            most //= 2
        return [(lane, most, address.at(lane * scalar.itemsize)) for lane in range(0, width, most)]

    def store(self, node: UOp, operands: Sequence[str] = ()) -> None:
        """A store of a value, or of `operands` that stand for it."""
        memory, index, value, *rest = node.src
        code, scalar = self.code, value.dtype.scalar
        kind, width = kind_of(scalar), value.dtype.lanes
        gate = f"@{code.scalar(rest[0])} " if rest else ""
        operands = operands or code.lanes(value)
        if node.arg is not None:
            self._combine(node, gate, operands)
            return
        if kind == "pred":
            operands = [code.op("b32", "selp.b32", "1", "0", each) for each in operands]
        names = code.registers_of(operands, "b32" if kind == "pred" else kind)
        space, kind_text = self.space(root(memory)), _memory_type(scalar)
        for first, count, address in self._accesses(memory, index, scalar, width):
            values = names[first : first + count]
            if count == _HALVES:
                pairs = zip(values[::2], values[1::2], strict=True)
                words = [code.op("b32", "mov.b32", f"{{{low}, {high}}}") for low, high in pairs]
                code.emit(f"{gate}st.{space}.v4.b32 {address}, {{{', '.join(words)}}}")
                continue
            text = values[0] if count == 1 else f"{{{', '.join(values)}}}"
            vector = "" if count == 1 else f".v{count}"
            code.emit(f"{gate}st.{space}{vector}.{kind_text} {address}, {text}")

    def _combine(self, node: UOp, gate: str, operands: Sequence[str]) -> None:
        """Combine values with elements, each as one step where the machine can: lanes may meet."""
        memory, index, value = node.src[:3]
        scalar = value.dtype.scalar
        op = node.arg
        for lane, operand in enumerate(operands):
            if index.dtype.lanes > 1:
                address = self.address(memory, index, self.code.lanes(index)[lane]).at()
            else:
                address = self.address(memory, index).at(lane * scalar.itemsize)
            operation = self._reduction(op, scalar)
            space = self.space(root(memory))
            if operation and space != "local":
                name = self.code.in_register(operand, kind_of(scalar))
                self.code.emit(f"{gate}red.{space}.{operation} {address}, {name}")
            else:
                self._by_steps(node, gate, address, operand)

    def _reduction(self, op: Ops, dtype: DType) -> str:
        """The operation of a `red` instruction, or an empty text where there is none."""
        if op is Ops.MAX and dtype in _MAXIMA:
            return f"max.{letter(dtype)}"
        if op is not Ops.ADD:
            return ""
        if dtype is dtypes.float16 or (dtype is dtypes.bfloat16 and self.code.capability >= 90):
            return f"add.noftz.{letter(dtype)}"
        if dtype.itemsize < 4:
            return ""
        return f"add.{'u64' if dtype is dtypes.int64 else letter(dtype)}"

    def _by_steps(self, node: UOp, gate: str, address: str, operand: str) -> None:
        """By a load and a store, which verification has shown to be enough; of a program by hand,
        whose index is one for several lanes, that cannot be.
        """
        value, scalar = node.src[2], node.src[2].dtype.scalar
        own = toposort([node.src[1], *node.src[3:]])
        for other in self.program:
            if other.op is Ops.SPECIAL and other not in own and other.vmax > 0:
                raise CompileError(
                    f"render.ptx: cannot store by {node.arg.name} of {scalar.name}",
                    lanes=f"all of {other.arg[0]} meet",
                )
        code, kind = self.code, kind_of(scalar)
        space, kind_text = self.space(root(node.src[0])), _memory_type(scalar)
        old = code.new("b32" if kind == "pred" else kind)
        if gate:
            code.emit(f"mov.{'b32' if kind == 'pred' else kind} {old}, {self._zero(scalar)}")
        code.emit(f"{gate}ld.{space}.{kind_text} {old}, {address}")
        if kind == "pred":
            old = code.op("pred", "setp.ne.u32", old, "0")
        made = UOp(node.arg, scalar, (UOp(Ops.CONST, scalar, (), 0), value))
        found = compute(code, made, (old, operand))
        if kind == "pred":
            found = code.op("b32", "selp.b32", "1", "0", found)
        name = code.in_register(found, "b32" if kind == "pred" else kind)
        code.emit(f"{gate}st.{space}.{kind_text} {address}, {name}")

    def _zero(self, scalar: DType) -> str:
        return "0" if scalar is dtypes.bool else self.code.constant(0, scalar)


def index_sums(program: Sequence[UOp]) -> set[UOp]:
    """Sums with a constant that are only ever the index of an access: its address holds the
    constant.
    """
    others: set[UOp] = set()
    indices: set[UOp] = set()
    for node in program:
        at = _INDEX_AT.get(node.op)
        for number, source in enumerate(node.src):
            (indices if number == at else others).add(source)
    return {node for node in indices - others if split_index(node)[1] and node.op is Ops.ADD}
