"""Integers of 64 bits in WGSL, which has none: a `vec2<u32>` of the low and the high word, and
functions of such pairs.

`functions(name)` gives the text of one with all that it calls. Signed and unsigned integers share
what is the same for both; where they differ the name begins with `long` or `ulong`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["DIVISION_TRIPS", "functions"]

DIVISION_TRIPS = 8
"""Iterations of a division's loop."""

_ADD = """\
fn long_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}"""
_SUBTRACT = """\
fn long_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}"""
_NEGATE = """\
fn long_negate(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(~a.x + 1u, ~a.y + u32(a.x == 0u));
}"""
_MULTIPLY = """\
fn long_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let a0 = a.x & 0xffffu;
  let a1 = a.x >> 16u;
  let b0 = b.x & 0xffffu;
  let b1 = b.x >> 16u;
  let first = a0 * b0;
  let middle = a1 * b0 + (first >> 16u);
  let other = a0 * b1 + (middle & 0xffffu);
  let high = a1 * b1 + (middle >> 16u) + (other >> 16u);
  return vec2<u32>((other << 16u) | (first & 0xffffu), high + a.x * b.y + a.y * b.x);
}"""
_SHIFT_LEFT = """\
fn long_shift_left(a: vec2<u32>, count: u32) -> vec2<u32> {
  let n = count & 31u;
  let crossing = (a.x >> 1u) >> (31u - n);
  let near = vec2<u32>(a.x << n, (a.y << n) | crossing);
  return select(near, vec2<u32>(0u, a.x << n), (count & 32u) != 0u);
}"""
_UNSIGNED_SHIFT_RIGHT = """\
fn ulong_shift_right(a: vec2<u32>, count: u32) -> vec2<u32> {
  let n = count & 31u;
  let crossing = (a.y << 1u) << (31u - n);
  let near = vec2<u32>((a.x >> n) | crossing, a.y >> n);
  return select(near, vec2<u32>(a.y >> n, 0u), (count & 32u) != 0u);
}"""
_SHIFT_RIGHT = """\
fn long_shift_right(a: vec2<u32>, count: u32) -> vec2<u32> {
  let n = count & 31u;
  let crossing = (a.y << 1u) << (31u - n);
  let high = u32(i32(a.y) >> n);
  let near = vec2<u32>((a.x >> n) | crossing, high);
  return select(near, vec2<u32>(high, u32(i32(a.y) >> 31u)), (count & 32u) != 0u);
}"""
_UNSIGNED_LESS = """\
fn ulong_less(a: vec2<u32>, b: vec2<u32>) -> bool {
  return select(a.y < b.y, a.x < b.x, a.y == b.y);
}"""
_LESS = """\
fn long_less(a: vec2<u32>, b: vec2<u32>) -> bool {
  return select(i32(a.y) < i32(b.y), a.x < b.x, a.y == b.y);
}"""
_ONE_BIT = """\
    {
      let is_beyond = (rest.y >> 31u) != 0u;
      rest = vec2<u32>((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
      quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
      if (is_beyond || !ulong_less(rest, b)) {
        rest = long_subtract(rest, b);
        quotient.x |= 1u;
      }
    }
"""
# Schoolbook division, a bit at a time; xy is the quotient and zw the remainder. For a divisor of 0
# the caller makes up both. There are few iterations, as some drivers count them (wgsl_loops.py).
_DIVIDE_BOTH = f"""\
fn ulong_divide_both(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {{
  if ((a.y | b.y) == 0u) {{
    return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u);
  }}
  var rest = vec2<u32>(0u, 0u);
  var quotient = a;
  for (var i = 0u; i < {DIVISION_TRIPS}u; i++) {{
{_ONE_BIT * (64 // DIVISION_TRIPS)}  }}
  return vec4<u32>(quotient, rest);
}}"""
_UNSIGNED_DIVIDE = """\
fn ulong_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(ulong_divide_both(a, b).xy, vec2<u32>(0u, 0u), all(b == vec2<u32>(0u, 0u)));
}"""
_UNSIGNED_REMAINDER = """\
fn ulong_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(ulong_divide_both(a, b).zw, a, all(b == vec2<u32>(0u, 0u)));
}"""
_MAGNITUDE = """\
fn long_magnitude(a: vec2<u32>) -> vec2<u32> {
  return select(a, long_negate(a), (a.y >> 31u) != 0u);
}"""
_DIVIDE = """\
fn long_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let size = ulong_divide(long_magnitude(a), long_magnitude(b));
  return select(size, long_negate(size), ((a.y ^ b.y) >> 31u) != 0u);
}"""
_REMAINDER = """\
fn long_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let size = ulong_remainder(long_magnitude(a), long_magnitude(b));
  return select(size, long_negate(size), (a.y >> 31u) != 0u);
}"""
# The first 32 digits are rounded once; the last of them is set if any digit behind them is.
_UNSIGNED_TO_FLOAT = """\
fn ulong_to_f32(a: vec2<u32>) -> f32 {
  if (a.y == 0u) {
    return f32(a.x);
  }
  let n = countLeadingZeros(a.y);
  let lifted = long_shift_left(a, n);
  return f32(lifted.y | u32(lifted.x != 0u)) * bitcast<f32>((159u - n) << 23u);
}"""
_TO_FLOAT = """\
fn long_to_f32(a: vec2<u32>) -> f32 {
  let size = ulong_to_f32(long_magnitude(a));
  return select(size, -size, (a.y >> 31u) != 0u);
}"""
_UNSIGNED_TO_DOUBLE = """\
fn ulong_to_f64(a: vec2<u32>) -> f64 {
  return f64(a.y) * 4294967296.0lf + f64(a.x);
}"""
_TO_DOUBLE = """\
fn long_to_f64(a: vec2<u32>) -> f64 {
  return f64(i32(a.y)) * 4294967296.0lf + f64(a.x);
}"""
# Floats of at most 2**64 in size: both words are exact.
_WORDS_OF = """\
fn ulong_of_{type}(x: {type}) -> vec2<u32> {{
  if (!(x >= 1.0{suffix})) {{
    return vec2<u32>(0u, 0u);
  }}
  if (x >= 18446744073709551616.0{suffix}) {{
    return vec2<u32>(0xffffffffu, 0xffffffffu);
  }}
  let high = u32(x * 2.3283064365386963e-10{suffix});
  return vec2<u32>(u32(x - {type}(high) * 4294967296.0{suffix}), high);
}}"""
_LONG_OF = """\
fn long_of_{type}(x: {type}) -> vec2<u32> {{
  if (x >= 9223372036854775808.0{suffix}) {{
    return vec2<u32>(0xffffffffu, 0x7fffffffu);
  }}
  if (x <= -9223372036854775808.0{suffix}) {{
    return vec2<u32>(0u, 0x80000000u);
  }}
  let size = ulong_of_{type}(abs(x));
  return select(size, long_negate(size), x < 0.0{suffix});
}}"""
_TEXTS = (
    _ADD, _SUBTRACT, _NEGATE, _MULTIPLY, _SHIFT_LEFT, _UNSIGNED_SHIFT_RIGHT, _SHIFT_RIGHT,
    _UNSIGNED_LESS, _LESS, _DIVIDE_BOTH, _UNSIGNED_DIVIDE, _UNSIGNED_REMAINDER, _MAGNITUDE,
    _DIVIDE, _REMAINDER, _UNSIGNED_TO_FLOAT, _TO_FLOAT, _UNSIGNED_TO_DOUBLE, _TO_DOUBLE,
    *(
        text.format(type=kind, suffix=suffix)
        for kind, suffix in (("f32", "f"), ("f64", "lf"))
        for text in (_WORDS_OF, _LONG_OF)
    ),
)  # fmt: skip
_BY_NAME = {text.removeprefix("fn ").partition("(")[0]: text for text in _TEXTS}
_CALL = re.compile(r"\b(u?long_\w+)\(")


def functions(name: str) -> Iterator[str]:
    """The text of the function `name`, after those of the functions that it calls."""
    text = _BY_NAME[name]
    for called in dict.fromkeys(_CALL.findall(text)):
        if called != name:
            yield from functions(called)
    yield text
