"""LLVM IR text to objects."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilegrad.base.errors import CompileError
from tilegrad.compile.llvm import assembly, compile_ir, host_target, inner_spills
from tilegrad.runtime import elf

TRIPLE, CPU, FEATURES = host_target()
AXPY = """
define float @axpy(float %a, float %x, float %y) nounwind {
  %m = fmul float %a, %x
  %s = fadd float %m, %y
  ret float %s
}
"""


def many_values(count: int) -> str:
    """A loop that keeps `count` vectors, all changed on every turn."""
    vector, lines = "<16 x float>", ["define void @k(ptr %data, i64 %n) nounwind {", "entry:"]
    for i in range(count):
        lines += [
            f"  %p{i} = getelementptr {vector}, ptr %data, i64 {i}",
            f"  %a{i} = alloca {vector}",
        ]
        lines += [f"  %v{i} = load {vector}, ptr %p{i}", f"  store {vector} %v{i}, ptr %a{i}"]
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [0, %entry], [%next, %loop]"]
    lines += [f"  %x{i} = load {vector}, ptr %a{i}" for i in range(count)]
    lines += [f"  %s{i} = fadd {vector} %x{i}, %x{(i + 1) % count}" for i in range(count)]
    lines += [f"  store {vector} %s{i}, ptr %a{i}" for i in range(count)]
    lines += [
        "  %next = add i64 %i, 1",
        "  %c = icmp ult i64 %next, %n",
        "  br i1 %c, label %loop, label %end",
        "end:",
    ]
    for i in range(count):
        lines += [f"  %r{i} = load {vector}, ptr %a{i}", f"  store {vector} %r{i}, ptr %p{i}"]
    return "\n".join([*lines, "  ret void", "}"])


def machine_of(data: bytes) -> tuple[int, int]:
    kind, machine = struct.unpack_from("<HH", data, 16)
    return kind, machine


def test_compiled_text_runs() -> None:
    loaded = elf.load(compile_ir(AXPY, cpu=CPU, features=FEATURES))
    kind = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float, ctypes.c_float, ctypes.c_float)
    assert kind(loaded.address("axpy"))(3, 5, 7) == 22


def test_the_same_text_gives_the_same_object() -> None:
    first, second = (compile_ir(AXPY, cpu=CPU, features=FEATURES) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("effort", range(4))
def test_every_effort_compiles(effort: int) -> None:
    assert compile_ir(many_values(4), cpu=CPU, features=FEATURES, opt=effort)[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("triple", "cpu", "machine"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64-v3", 62),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", 183),
    ],
)
def test_object_is_for_the_target(triple: str, cpu: str, machine: int) -> None:
    relocatable = 1
    assert machine_of(compile_ir(AXPY, cpu=cpu, features="", triple=triple)) == (
        relocatable,
        machine,
    )


@pytest.mark.parametrize(
    ("triple", "cpu"),
    [("x86_64-unknown-linux-gnu", "x86-64-v4"), ("aarch64-unknown-linux-gnu", "neoverse-n1")],
)
def test_a_product_and_a_sum_are_not_fused(triple: str, cpu: str) -> None:
    text = assembly(AXPY, cpu=cpu, features="", triple=triple)
    assert "fmadd" not in text
    assert "mul" in text


@pytest.mark.parametrize(("count", "least", "most"), [(8, 0, 0), (40, 8, 200)])
def test_accumulators_live_in_registers_as_long_as_there_are_enough(
    count: int, least: int, most: int
) -> None:
    triple = "x86_64-unknown-linux-gnu"
    text = assembly(many_values(count), cpu="x86-64-v4", features="", triple=triple)
    assert least <= inner_spills(text) <= most


def test_a_syntax_error_shows_its_line_and_kernel_and_keeps_the_text() -> None:
    text = "define float @f(float %a) {\n  %b = fadd float %z, %a\n  ret float %b\n}"
    with pytest.raises(CompileError, match=r"^llvm: use of undefined value '%z'\n") as caught:
        compile_ir(text, cpu=CPU, features=FEATURES)
    details = caught.value.details
    assert details["text"] == "2: %b = fadd float %z, %a"
    assert details["kernel"] == "f"
    assert Path(str(details["source"])).read_text() == text


def test_a_broken_rule_of_the_ir_shows_its_instruction() -> None:
    text = """
define i32 @f(i1 %c) {
entry:
  br i1 %c, label %a, label %b
a:
  %x = add i32 1, 2
  br label %b
b:
  ret i32 %x
}"""
    with pytest.raises(CompileError, match=r"^llvm: Instruction does not dominate all") as caught:
        compile_ir(text, cpu=CPU, features=FEATURES)
    assert caught.value.details["near"] == "%x = add i32 1, 2"


def test_a_refusal_that_is_collected_late_leaves_the_process_alive() -> None:
    """Its traceback has the module and the context, which the collector takes in any order. In a
    process of its own, which LLVM would end.
    """
    code = """
import gc
from tilegrad.base.errors import CompileError
from tilegrad.compile.llvm import compile_ir, host_target
_, cpu, features = host_target()
text = "define i32 @f(i1 %c) { br i1 %c, label %a, label %b a: %x = add i32 1, 2 br label %b "
text += "b: ret i32 %x }"
for text in [text, "define i32 @f() { ret i32 %z }"] * 20:
    try:
        compile_ir(text, cpu=cpu, features=features)
    except CompileError as error:
        error.itself = error
    gc.collect()
print("alive")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr


def test_an_unknown_triple_is_refused() -> None:
    with pytest.raises(CompileError, match=r"^llvm: .*nowhere.*\n  triple: +nowhere-none"):
        compile_ir(AXPY, cpu="", features="", triple="nowhere-none")


def test_several_threads_compile_at_once() -> None:
    texts = [many_values(1 + i % 4) for i in range(12)]
    expected = [compile_ir(text, cpu=CPU, features=FEATURES) for text in texts]
    with ThreadPoolExecutor(4) as executor:
        assert (
            list(executor.map(lambda text: compile_ir(text, cpu=CPU, features=FEATURES), texts))
            == expected
        )
