"""A result of a template as a function of arrays: NumPy's operations, one line a step.

For a handful of elements, to launch a kernel takes longer than NumPy takes for a dozen operations,
and to compile one as long as for ten thousand. The lines compute what kernels do: IEEE arithmetic,
operation by operation; only sums may add up in another order. A step that has no such line
(functions like `exp`, whose last bits are the kernels' own) makes no evaluator.

    v2 = add(i0, k0)                    # x + 1.5
    v3 = reduce_add(v2, (0,), None, float32, None, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.flat_code import FlatCode
from tilegrad.ir.graph_templates import Step, Template
from tilegrad.ir.op import Ops
from tilegrad.tensor.storage.host_constants import constant_elements

__all__ = ["DTYPES", "Evaluator", "NotOfHostError", "evaluator_of", "number_of"]

Evaluator = Callable[..., Any]
# Elements of a value on the way.
_MOST_ELEMENTS = 1024
# Arithmetic of these is the same in NumPy: IEEE's, or modulo two to the number of bits.
DTYPES = frozenset({
    dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8,
    dtypes.float32, dtypes.float64,
})  # fmt: skip
# Python's operators, which of two numbers of NumPy's take a tenth of the time of its functions.
_ANY_KIND = {Ops.CMPLT: "{} < {}", Ops.CMPNE: "{} != {}", Ops.CMPEQ: "{} == {}"}
_NUMBERS = {Ops.ADD: "{} + {}", Ops.SUB: "{} - {}", Ops.MUL: "{} * {}", Ops.NEG: "-{}"}
_BITS = {Ops.AND: "{} & {}", Ops.OR: "{} | {}", Ops.XOR: "{} ^ {}"}
_DIVISIONS = {Ops.FLOORDIV: "{} // {}", Ops.FLOORMOD: "{} % {}"}
_ELEMENTWISE = frozenset({
    *_ANY_KIND, *_NUMBERS, *_BITS, *_DIVISIONS, Ops.CAST, Ops.WHERE, Ops.MAX, Ops.SQRT, Ops.FDIV,
})  # fmt: skip
_SAME = frozenset({Ops.DETACH, Ops.CONTIGUOUS})


class NotOfHostError(Exception):
    """A value that a kernel has to compute."""


class _Value:
    """A value of the text: its name, the shape that it has there, and the shape that it stands for,
    to which it is broadcast.
    """

    __slots__ = ("dtype", "name", "shape", "stands_for")

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType):
        self.name, self.shape, self.stands_for, self.dtype = name, shape, shape, dtype


def evaluator_of(template: Template, slot: int, inputs: Sequence[Any]) -> Evaluator | None:
    """The function from the arrays of a template's `inputs` to that of the result in `slot`, which
    is not to be written to; None where a kernel has to compute it.
    """
    known = template.evaluators
    found = known.get(slot, False)
    if found is False:
        try:
            found = _Writer(template, slot, inputs).function()
        except NotOfHostError:
            found = None
        known[slot] = found
    made: Evaluator | None = found
    return made


class _Writer:
    """Writes the lines of one function."""

    def __init__(self, template: Template, slot: int, inputs: Sequence[Any]):
        import numpy

        self.numpy = numpy
        self.code = FlatCode()
        self.template, self.slot = template, slot
        self.first = template.count + len(template.constants)
        self.values: dict[int, _Value] = {}
        self.inputs = inputs

    def function(self) -> Evaluator:
        needed = self._needed()
        for at in needed:
            if at < self.template.count:
                each = self.inputs[at]
                self.values[at] = _Value(f"i{at}", tuple(each.shape), _checked(each.dtype))
            elif at < self.first:
                self.values[at] = self._constant(self.template.constants[at - self.template.count])
            else:
                self.values[at] = self._step(at, self.template.steps[at - self.first])
        self.code.lines.append(f"return {self._whole(self.values[self.slot])}")
        names = ", ".join([f"i{at}" for at in range(self.template.count)])
        found: Evaluator = self.code.function(f"evaluate({names})", "evaluator")
        return found

    def _needed(self) -> list[int]:
        """The slots that the result is computed from, sources first."""
        stack, seen = [self.slot], {self.slot}
        while stack:
            at = stack.pop()
            if at >= self.first:
                for source in self._sources(at):
                    if source not in seen:
                        seen.add(source)
                        stack.append(source)
        return sorted(seen)

    def _sources(self, at: int) -> tuple[int, ...]:
        _, _, _, pick, is_one, *_ = self.template.steps[at - self.first]
        picked = pick(range(at))
        return (picked,) if is_one else picked

    def _constant(self, node: Any) -> _Value:
        dtype = _checked(node.dtype)
        if node.op is Ops.CONST:
            with self.numpy.errstate(all="ignore"):
                return _Value(self.code.name(number_of(dtype)(node.arg)), (), dtype)
        if prod(node.shape) > _MOST_ELEMENTS:
            raise NotOfHostError
        array = constant_elements(node)
        if array is None:
            raise NotOfHostError
        return _Value(self.code.name(array), tuple(array.shape), dtype)

    def _step(self, at: int, step: Step) -> _Value:
        op, dtype, arg, _, _, _, shape, _ = step
        sources = [self.values[each] for each in self._sources(at)]
        _checked(dtype)
        if prod(shape) > _MOST_ELEMENTS:
            raise NotOfHostError
        if op in _SAME:
            return sources[0]
        if op is Ops.EXPAND:
            # An axis of size 1 is broadcast by what follows.
            made = _Value(sources[0].name, sources[0].shape, dtype)
            made.stands_for = shape
            return made
        if op.is_movement:
            text = self._moved(op, arg, sources[0], shape)
        elif op is Ops.REDUCE_AXIS:
            text = self._reduced(arg, sources[0])
        elif op is Ops.PREFIX_AXIS:
            text = self._accumulated(arg, sources[0])
        elif op is Ops.GATHER:
            table, rows = map(self._whole, sources)
            if arg:
                raise NotOfHostError
            text = f"{self.code.name(_rows)}({table}, {rows})"
        else:
            return self._elementwise(at, op, dtype, sources, shape)
        self.code.lines.append(f"v{at} = {text}")
        return _Value(f"v{at}", shape, dtype)

    def _whole(self, value: _Value) -> str:
        if value.shape == value.stands_for:
            return value.name
        shape = self.code.name(value.stands_for)
        return f"{self.code.name(self.numpy.broadcast_to)}({value.name}, {shape})"

    def _moved(self, op: Ops, arg: Any, source: _Value, shape: tuple[int, ...]) -> str:
        name = self._whole(source)
        if op is Ops.RESHAPE:
            return f"{name}.reshape({self.code.name(shape)})"
        if op is Ops.PERMUTE:
            return f"{name}.transpose({tuple(arg)})"
        if op is Ops.SHRINK:
            return f"{name}[{self.code.name(tuple([slice(*pair) for pair in arg]))}]"
        if op is Ops.FLIP:
            key = tuple([slice(None, None, -1 if each else 1) for each in arg])
            return f"{name}[{self.code.name(key)}]"
        if op is not Ops.PAD:
            raise NotOfHostError
        key = tuple(
            [
                slice(before, before + size)
                for (before, _), size in zip(arg, source.stands_for, strict=True)
            ]
        )
        names = name, self.code.name(shape), self.code.name(key)
        return f"{self.code.name(_padded)}({', '.join(names)})"

    def _reduced(self, arg: Any, source: _Value) -> str:
        op, axes = arg[:2]
        is_bool = source.dtype is dtypes.bool
        if op not in (Ops.ADD, Ops.MAX, Ops.MUL) or (is_bool and op is not Ops.MAX):
            raise NotOfHostError
        if 0 in source.stands_for:
            raise NotOfHostError
        names = {Ops.ADD: "add", Ops.MAX: "maximum", Ops.MUL: "multiply"}
        if is_bool:
            reduce = self.numpy.logical_or.reduce
        else:
            reduce = getattr(self.numpy, names[op]).reduce
        kind = self.code.name(self.numpy.dtype(source.dtype.name))
        where = tuple(axes) if len(axes) != len(source.stands_for) else None
        return f"{self.code.name(reduce)}({self._whole(source)}, {where}, {kind}, None, True)"

    def _accumulated(self, arg: Any, source: _Value) -> str:
        op, axis = arg
        accumulate = {Ops.ADD: self.numpy.add, Ops.MAX: self.numpy.maximum}.get(op)
        # Kernels add floats up in another order.
        if accumulate is None or not source.dtype.is_int:
            raise NotOfHostError
        kind = self.code.name(self.numpy.dtype(source.dtype.name))
        function = self.code.name(accumulate.accumulate)
        return f"{function}({self._whole(source)}, {axis}, {kind})"

    def _elementwise(
        self, at: int, op: Ops, dtype: DType, sources: list[_Value], shape: tuple[int, ...]
    ) -> _Value:
        if op not in _ELEMENTWISE:
            raise NotOfHostError
        actual = self.numpy.broadcast_shapes(*[each.shape for each in sources])
        names = [each.name for each in sources]
        first = sources[0].dtype
        if op is Ops.CAST:
            text = self._cast(sources[0], dtype)
        elif op is Ops.WHERE and not actual:
            text = "{1} if {0} else {2}".format(*names)
        elif op is Ops.WHERE:
            text = f"{self.code.name(self.numpy.where)}({', '.join(names)})"
        elif op is Ops.MAX and not actual:
            text = "{0} if {0} >= {1} or {0} != {0} else {1}".format(*names)
        elif op is Ops.MAX:
            text = f"{self.code.name(self.numpy.maximum)}({', '.join(names)})"
        elif op is Ops.SQRT and dtype.is_float:
            text = f"{self.code.name(self.numpy.sqrt)}({names[0]})"
        else:
            text = self._operator(at, op, first).format(*names)
        self.code.lines.append(f"v{at} = {text}")
        made = _Value(f"v{at}", actual, dtype)
        made.stands_for = shape
        return made

    def _operator(self, at: int, op: Ops, dtype: DType) -> str:
        """Python's operator for an operation of operands of one dtype."""
        found = _ANY_KIND.get(op)
        if dtype.is_float and op is Ops.FDIV:
            found = "{} / {}"
        elif dtype.is_int and op in _DIVISIONS:
            divisor = self._sources(at)[1]
            is_known = self.template.count <= divisor < self.first
            constant = self.template.constants[divisor - self.template.count] if is_known else None
            # A division by zero is undefined.
            if constant is not None and constant.op is Ops.CONST and constant.arg:
                found = _DIVISIONS[op]
        elif found is None and not dtype.is_float:
            found = _BITS.get(op)
        if found is None and dtype is not dtypes.bool:
            found = _NUMBERS.get(op)
        if found is None:
            raise NotOfHostError
        return found

    def _cast(self, source: _Value, dtype: DType) -> str:
        if dtype is dtypes.bool:
            return f"{source.name} != 0"
        if not source.shape and (dtype.is_float or not source.dtype.is_float):
            return f"{self.code.name(number_of(dtype))}({source.name})"
        kind = self.code.name(self.numpy.dtype(dtype.name))
        if source.dtype.is_float and not dtype.is_float:
            return f"{self.code.name(_in_integers)}({source.name}, {kind})"
        return f"{source.name}.astype({kind})"


def number_of(dtype: DType) -> Callable[[Any], Any]:
    """NumPy's class of numbers of a dtype.

    Raises NotOfHostError where that is none of `DTYPES`.
    """
    import numpy

    name = _checked(dtype).name
    made: Callable[[Any], Any] = getattr(numpy, "bool_" if name == "bool" else name)
    return made


def _checked(dtype: DType) -> DType:
    if dtype not in DTYPES:
        raise NotOfHostError
    return dtype


def _padded(array: Any, shape: tuple[int, ...], key: Any) -> Any:
    """Zeros around an array."""
    import numpy

    made = numpy.zeros(shape, array.dtype)
    made[key] = array
    return made


def _rows(table: Any, rows: Any) -> Any:
    """Rows of a table.

    Raises NotOfHostError where one is outside.
    """
    if rows.size and (rows.min() < 0 or rows.max() >= len(table)):
        raise NotOfHostError
    return table[rows]


def _in_integers(array: Any, dtype: Any) -> Any:
    """Floats cut to integers.

    Raises NotOfHostError where one does not fit, which no two machines do alike.
    """
    # Bounds for int8 and uint8 too, whose own are not symmetric.
    most = 2.0 ** min(8 * dtype.itemsize - 1, 62)
    least = 0.0 if dtype.kind == "u" else -most
    if not ((array >= least) & (array < most)).all():
        raise NotOfHostError
    return array.astype(dtype)
