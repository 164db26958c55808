"""Loads and stores of WGSL.

A lane that stores some bits of a word clears and sets its own bits atomically, as other lanes may
store the rest; a store of whole words is plain.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import gated_statement, lane, strip_parentheses
from tilegrad.render.inline import refuse_shared
from tilegrad.render.wgsl_arrays import Array
from tilegrad.render.wgsl_layout import ATOMIC, fills_words
from tilegrad.render.wgsl_walk import WGSLRendering

__all__ = ["MEMORY_RULES"]

# addresses


def _index(index: UOp, ctx: WGSLRendering) -> str:
    """An index, negative only where a gate prevents the access."""
    text = ctx.text(index)
    return f"{ctx.atom(index)}.x" if index.dtype.itemsize == 8 else strip_parentheses(text)


def _shifted(index: UOp, bits: int, ctx: WGSLRendering) -> str:
    """`index` >> `bits` as a u32."""
    if index.op is Ops.CONST:
        return f"{int(index.arg) >> bits}u"
    return f"(u32({_index(index, ctx)}) >> {bits}u)"


def _stored_bits(text: str, dtype: DType) -> str:
    """A value of fewer than 32 bits as a word, with anything in the other bits."""
    return text if dtype.kind == "uint" else f"u32({strip_parentheses(text)})"


def _value_of_bits(word: str, offset: str, dtype: DType) -> str:
    """The value whose bits begin at `offset` in a word."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "int":
        return f"extractBits(bitcast<i32>({word}), {offset}, {bits}u)"
    text = f"extractBits({word}, {offset}, {bits}u)"
    return f"({text} != 0u)" if dtype is dtypes.bool else text


# loads


def load(u: UOp, ctx: WGSLRendering) -> str:
    """Memory outside is never touched: WGSL makes of a wrong index some other. So the gate only
    chooses between the values.
    """
    rest = u.src[2:]
    if u.dtype.lanes > 1 and ctx.layout(u.src[0]).bits and u.dtype.nbytes % 4 == 0:
        return _load_words(u, ctx)
    if u.dtype.lanes > 1 and (rest or not _is_whole(u, ctx)):
        return ctx.stacked([_lane_load(u, number) for number in range(u.dtype.lanes)])
    text = _ungated(u, ctx)
    if not rest:
        return text
    alternative, gate = (ctx.text(source) for source in rest)
    return f"select({alternative}, {strip_parentheses(text)}, {strip_parentheses(gate)})"


def _load_words(u: UOp, ctx: WGSLRendering) -> str:
    """The lanes of words that are loaded once; what is joined is aligned to its own size."""
    buffer, index, *rest = u.src
    layout, dtype = ctx.layout(buffer), u.dtype.scalar
    per_word = 32 // layout.bits
    first = _shifted(index, per_word.bit_length() - 1, ctx)
    words, values = [], []
    for number in range(u.dtype.lanes // per_word):
        words.append(ctx.word(ctx.array(buffer).read(f"{first} + {number}u" if number else first)))
    for source in rest:
        ctx.atom(source)
    for number in range(u.dtype.lanes):
        shift = number % per_word * layout.bits
        text = _value_of_bits(words[number // per_word], f"{shift}u", dtype)
        if rest:
            other, gate = (ctx.text(lane(source, number)) for source in rest)
            text = f"select({other},{text},{gate})"
        values.append(text)
    return f"{ctx.type(u.dtype)}({','.join(values)})"


def _is_whole(u: UOp, ctx: WGSLRendering) -> bool:
    layout = ctx.layout(u.src[0])
    return layout.lanes == u.dtype.lanes


def _lane_load(u: UOp, number: int) -> UOp:
    buffer, index, *rest = u.src
    at = index + number if number else index
    return UOp(Ops.LOAD, u.dtype.scalar, (buffer, at, *(lane(source, number) for source in rest)))


def _ungated(u: UOp, ctx: WGSLRendering) -> str:
    """The element, or vector of elements, at an index."""
    buffer, index = u.src[:2]
    layout, array, dtype = ctx.layout(buffer), ctx.array(buffer), u.dtype.scalar
    if layout.bits:
        per_word = (32 // layout.bits).bit_length() - 1
        word = array.read(_shifted(index, per_word, ctx))
        if index.op is Ops.CONST:
            offset = f"{int(index.arg) % (1 << per_word) * layout.bits}u"
        else:
            at = f"u32({_index(index, ctx)})"
            offset = f"({at} & {(1 << per_word) - 1}u) * {layout.bits}u"
        return _value_of_bits(word, offset, dtype)
    if layout.lanes > 1:
        vector = array.read(_shifted(index, layout.lanes.bit_length() - 1, ctx))
        if u.dtype.lanes > 1:
            return vector
        return f"{vector}[u32({_index(index, ctx)}) & {layout.lanes - 1}u]"
    text = array.read(_index(index, ctx))
    is_word = layout.is_atomic and dtype is dtypes.float32
    return f"bitcast<f32>({text})" if is_word else text


# stores


def store(u: UOp, ctx: WGSLRendering) -> str:
    buffer, index, value, *gate = u.src
    layout, dtype = ctx.layout(buffer), value.dtype.scalar
    lanes = value.dtype.lanes
    if layout.bits and lanes > 1 and fills_words(u, dtype):
        text = _store_words(u, ctx)
    elif lanes > 1 and layout.lanes != lanes:
        ctx.atom(value)
        stores = [
            UOp(Ops.STORE, dtypes.void, (buffer, index + n if n else index, lane(value, n)), u.arg)
            for n in range(lanes)
        ]
        if any(source.dtype.lanes > 1 for source in gate):
            for source in gate:
                ctx.atom(source)
            stores = [each.replace(src=(*each.src, lane(gate[0], n)))
                     for n, each in enumerate(stores)]  # fmt: skip
            return "\n".join(ctx.text(each) for each in stores)
        text = "\n".join(ctx.text(each) for each in stores)
    elif u.arg is not None:
        text = _combine(u, ctx)
    else:
        text = _store_one(u, ctx)
    if not gate:
        return text
    return gated_statement(ctx.text(gate[0]), text)


def _store_words(u: UOp, ctx: WGSLRendering) -> str:
    """A vector as the words that it fills."""
    buffer, index, value = u.src[:3]
    layout, array, dtype = ctx.layout(buffer), ctx.array(buffer), value.dtype.scalar
    ctx.atom(value)
    per_word = 32 // layout.bits
    first = _shifted(index, per_word.bit_length() - 1, ctx)
    lines = []
    for number in range(value.dtype.lanes // per_word):
        fields = []
        for field in range(per_word):
            text = _stored_bits(ctx.text(lane(value, number * per_word + field)), dtype)
            # Bits shifted out at the top need no mask.
            is_last = field == per_word - 1
            masked = text if is_last else f"({text} & {(1 << layout.bits) - 1}u)"
            fields.append(f"({masked} << {field * layout.bits}u)" if field else masked)
        at = f"{first} + {number}u" if number else first
        lines.append(array.write(at, f"({' | '.join(fields)})"))
    return "\n".join(lines)


def _store_one(u: UOp, ctx: WGSLRendering) -> str:
    buffer, index, value = u.src[:3]
    layout, array = ctx.layout(buffer), ctx.array(buffer)
    text = strip_parentheses(ctx.text(value))
    if layout.bits:
        return _put(array, _index(index, ctx), _stored_bits(text, value.dtype.scalar))
    if layout.lanes > 1:
        return array.write(_shifted(index, layout.lanes.bit_length() - 1, ctx), text)
    is_word = layout.is_atomic and value.dtype.scalar is dtypes.float32
    return array.write(_index(index, ctx), f"bitcast<u32>({text})" if is_word else text)


def _put(array: Array, index: str, bits: str) -> str:
    """A call of the function that stores some bits of a word of an array."""
    per_word, mask = 32 // array.layout.bits, (1 << array.layout.bits) - 1

    def body(name: str) -> list[str]:
        return [
            f"let word = at >> {per_word.bit_length() - 1}u;",
            f"let shift = (at & {per_word - 1}u) * {array.layout.bits}u;",
            f"atomicAnd(&{name}[word], ~({mask}u << shift));",
            f"atomicOr(&{name}[word], (value & {mask}u) << shift);",
        ]

    return array.call("put", "u32", body, index, bits, units=per_word)


def _combine(u: UOp, ctx: WGSLRendering) -> str:
    """Combine a value with an element: atomically where there is a way, as lanes may meet there,
    else by a load and a store, where it is proven that they do not.
    """
    buffer, index, value = u.src[:3]
    op, dtype, layout = u.arg, value.dtype.scalar, ctx.layout(buffer)
    if (op, dtype) in ATOMIC:
        array, at, text = ctx.array(buffer), _index(index, ctx), ctx.text(value)
        if dtype is not dtypes.float32:
            return array.combine("atomicAdd" if op is Ops.ADD else "atomicMax", at, text)
        return array.call("add", "f32", _add_float, at, strip_parentheses(text))
    refuse_shared(u, ctx.program, f"render: {ctx.target.name}")
    ctx.atom(value)
    old = UOp(Ops.LOAD, value.dtype, u.src[:2])
    name = ctx.name_for(old)
    read = f"let {name}: {ctx.type(value.dtype)} = {_ungated(old, ctx)};"
    changed = UOp(op, value.dtype, (old, value))
    made = UOp(Ops.STORE, dtypes.void, (*u.src[:2], changed))
    assert not layout.is_atomic or layout.bits
    return f"{read}\n{_store_one(made, ctx)}"


def _add_float(name: str) -> list[str]:
    """A float is compared and exchanged as the word with its bits."""
    return [
        f"var old = atomicLoad(&{name}[at]);",
        "loop {",
        f"  let result = atomicCompareExchangeWeak(&{name}[at], old, "
        "bitcast<u32>(bitcast<f32>(old) + value));",
        "  if (result.exchanged) { break; }",
        "  old = result.old_value;",
        "}",
    ]


MEMORY_RULES = PatternMatcher(
    "wgsl-memory",
    [
        Rule("wgsl-load", UPat(Ops.LOAD, name="u"), function=load),
        Rule("wgsl-store", UPat(Ops.STORE, name="u"), function=store),
    ],
)
