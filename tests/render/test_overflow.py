"""Integers that overflow in rendered text: never as a signed type, whose overflow C leaves open.

The text of each op is compiled by gcc with its check for undefined behaviour, without an option
that defines it, and compared with Python's own numbers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.render.programs import body, const, data, gcc, load, special
from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.cstyle import (
    ClangRenderer,
    CStyleRenderer,
    CUDARenderer,
    HIPRenderer,
    MetalRenderer,
    OpenCLRenderer,
)

RENDERERS = {
    "cuda": CUDARenderer("sm_80"), "opencl": OpenCLRenderer(), "metal": MetalRenderer(),
    "hip": HIPRenderer(), "clang": ClangRenderer(),
}  # fmt: skip
INTEGERS = (*dtypes.signed, *dtypes.unsigned)
OPERATIONS: dict[str, tuple[Callable[..., UOp], Callable[..., int] | None]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a.alu(Ops.SUB, b), lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "neg": (lambda a, b: a.alu(Ops.NEG), lambda a, b: -a),
    "mulacc": (lambda a, b: UOp(Ops.MULACC, a.dtype, (a, b, a)), lambda a, b: a * b + a),
    "shl": (lambda a, b: a << 5, lambda a, b: a << 5),
    "shl far": (lambda a, b: a << (a.dtype.bits - 1), None),
    "chain": (lambda a, b: a + b + a + 100, lambda a, b: a + b + a + 100),
    "polynomial": (lambda a, b: (a * b + -7) * a, lambda a, b: (a * b - 7) * a),
    "idiv": (lambda a, b: a.alu(Ops.IDIV, b), lambda a, b: quotient(a, b)),
    "mod": (lambda a, b: a.alu(Ops.MOD, b), lambda a, b: a - b * quotient(a, b)),
}
NAMES = {
    "uchar": "unsigned char", "ushort": "unsigned short",
    "uint": "unsigned int", "ulong": "unsigned long",
}  # fmt: skip


def quotient(a: int, b: int) -> int:
    """C's, and 0 by 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def wrapped(value: int, dtype: DType) -> int:
    return (value - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min)


def edges(dtype: DType) -> list[int]:
    near = [0, 1, 2, 3, 7, 100, int(dtype.max), int(dtype.max) - 1, int(dtype.max) // 2 + 1]
    return near if dtype.kind == "uint" else [*near, -1, -2, -100, int(dtype.min)]


def text_of(value: UOp, renderer: CStyleRenderer) -> str:
    """The lines that compute `value` of val0 and val1, and its expression last."""
    out, zero = data(0, value.dtype), const(0)
    lines = body(renderer.render([out, zero, value, out.store(zero, value)]))
    kept = [line for line in lines if "val0 = " not in line and "val1 = " not in line]
    return "\n".join(kept[:-1]) + "\nreturn " + kept[-1].split(" = ", 1)[1]


def kind_of(dtype: DType) -> str:
    return CUDARenderer.dialect.types[dtype]


def literal(value: int, dtype: DType) -> str:
    return (
        f"{value}u" if dtype is dtypes.uint64 else f"({value + 1}-1)" if value < 0 else f"{value}"
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[tuple[int, int], int]]:
    """What each op gives in every language, by the op's name; nothing of what is undefined, where
    the program ends.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    functions, calls = [f"typedef {name} {short};" for short, name in NAMES.items()], []
    for language, renderer in RENDERERS.items():
        for dtype in INTEGERS:
            a, b = (load(data(number, dtype), const(0)) for number in (1, 2))
            kind, numbers = kind_of(dtype), edges(dtype)
            listed = ", ".join(literal(value, dtype) for value in numbers)
            form = "%llu" if dtype.kind == "uint" else "%lld"
            wide = "unsigned long long" if dtype.kind == "uint" else "long long"
            calls.append(f"{{ {kind} x[] = {{{listed}}};")
            for name, (make, _) in OPERATIONS.items():
                own = f"{language}_{dtype.name}_{name.replace(' ', '_')}"
                text = text_of(make(a, b), renderer)
                functions.append(f"{kind} {own}({kind} val0, {kind} val1) {{ {text} }}")
                values = ("x[i]", "x[j]", f"{own}(x[i], x[j])")
                shown = ", ".join(f"({wide}){value}" for value in values)
                loops = "".join(f"for (int {i}=0;{i}<{len(numbers)};{i}++) " for i in "ij")
                calls.append(f'{loops}printf("{own} {form} {form} {form}\\n", {shown});')
            calls.append("}")
    main = "\n".join(["int main(void) { setvbuf(stdout, 0, _IOLBF, 0);", *calls, "return 0; }"])
    program: Path = tmp_path_factory.mktemp("overflow") / "all"
    gcc(
        "-w", "-O1", "-fno-wrapv", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error",
        "-o", str(program), source="\n".join(["#include <stdio.h>", *functions, main]),
    )  # fmt: skip
    printed = subprocess.run([program], capture_output=True, text=True, check=False).stdout
    results: dict[str, dict[tuple[int, int], int]] = {}
    for line in printed.splitlines():
        own, *values = line.split()
        left, right, value = map(int, values)
        results.setdefault(own, {})[left, right] = value
    return results


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("language", RENDERERS)
def test_overflow_wraps_and_is_never_undefined(
    found: dict[str, dict[tuple[int, int], int]], language: str, dtype: DType
) -> None:
    for name, (_, exact) in OPERATIONS.items():
        meant = exact or (lambda a, b: a << (dtype.bits - 1))
        values = edges(dtype)
        expected = {(a, b): wrapped(meant(a, b), dtype) for a in values for b in values}
        assert found.get(f"{language}_{dtype.name}_{name.replace(' ', '_')}") == expected, name


@pytest.mark.parametrize("language", RENDERERS)
def test_sums_of_signed_integers_are_those_of_unsigned_ones(language: str) -> None:
    a, b = (load(data(number, dtypes.int32), const(0)) for number in (1, 2))
    unsigned = RENDERERS[language].dialect.types[dtypes.uint32]
    text = text_of(a * b + 7, RENDERERS[language])
    assert text == f"\nreturn (int)((({unsigned})val0*({unsigned})val1)+7u);"


@pytest.mark.parametrize("language", RENDERERS)
def test_indices_stay_plain(language: str) -> None:
    """Bounds show that they hold."""
    index = special("gidx0", 1000) * 64 + special("lidx0", 64)
    text = text_of(index, RENDERERS[language])
    assert "(gidx0*64)+lidx0" in text
    assert "u" not in re.sub(r"return|unsigned long|ulong", "", text.splitlines()[-1])


@pytest.mark.parametrize("language", RENDERERS)
def test_no_option_of_a_compiler_is_relied_on(language: str) -> None:
    assert not {"-fwrapv", "-ftrapv"} & set(RENDERERS[language].flags)


@pytest.mark.parametrize("dtype", dtypes.signed, ids=lambda dtype: dtype.name)
def test_vectors_of_c_wrap_around_too(dtype: DType, tmp_path: Path) -> None:
    """gcc may assume of lanes, too, that they do not overflow: here the casts are looked at."""
    wide = dtype.vec(4)
    a, b = (load(data(number, dtype), const(0), lanes=4) for number in (1, 2))
    unsigned = {1: "uchar4", 2: "ushort4", 4: "uint4", 8: "ulong4"}[dtype.itemsize]
    functions, calls, names = [], [], ("add", "sub", "mul", "neg")
    for name in names:
        value = OPERATIONS[name][0](a, b)
        assert value.dtype is wide
        out = data(0, dtype)
        text = ClangRenderer().render(name, [out, value, out.store(const(0), value)])
        assert text.count(f"({unsigned})") >= 1, text
        functions.append(text.replace("#include <stdbool.h>", ""))
        calls.append(f"{name}(out, in[0]{'' if name == 'neg' else ', in[1]'});")
        calls.append(f'printf("{name} %lld %lld %lld\\n",(long long)x[i],(long long)x[j],'
                     "(long long)out[3]);")  # fmt: skip
    # Each text defines the vector types that it needs.
    seen: dict[str, None] = dict.fromkeys("\n".join(functions).splitlines())
    lines = [line for line in seen if line.startswith(("typedef", "#define"))]
    bodies = "\n".join(
        line for line in "\n".join(functions).splitlines()
        if not line.startswith(("typedef", "#define"))
    )  # fmt: skip
    numbers = edges(dtype)
    source = "\n".join([
        "#include <stdio.h>", *lines, bodies, "int main(void) {",
        f"{kind_of(dtype)} x[] = {{{', '.join(literal(n, dtype) for n in numbers)}}};",
        f"{kind_of(dtype)} in[2][4], out[4];",
        f"for (int i=0;i<{len(numbers)};i++) for (int j=0;j<{len(numbers)};j++) {{",
        "for (int l=0;l<4;l++) { in[0][l] = x[i]; in[1][l] = x[j]; }", *calls, "} return 0; }",
    ])  # fmt: skip
    program = tmp_path / "vectors"
    gcc("-w", "-O2", "-fno-wrapv", "-o", str(program), source=source)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, *values = line.split()
        left, right, result = map(int, values)
        exact = OPERATIONS[name][1]
        assert exact is not None
        assert result == wrapped(exact(left, right), dtype), line
    assert len(printed.splitlines()) == len(names) * len(numbers) ** 2
